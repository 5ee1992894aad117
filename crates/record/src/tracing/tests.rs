//! Spans and events of `tracing`, recorded and read back.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tracing::Instrument as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;

use super::{Lives, RecordLayer};
use crate::event::FlowPlace;
use crate::read::{Event, What};
use crate::{Error, Policy, Reach, Recorder};

/// The recording of a program under a layer: one line per event, prefixed by its depth.
fn recorded(layer: RecordLayer, program: impl FnOnce()) -> Vec<String> {
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
    let session = builder.start().expect("nothing else records this thread");
    tracing::subscriber::with_default(registry().with(layer), program);
    let recording = session.finish().expect("whole");
    let mut found = Vec::new();
    for thread in recording.threads() {
        let visit = |event: &Event<'_>| {
            let what = match event.what {
                What::Scope { unfinished: false, .. } => "scope",
                What::Scope { unfinished: true, .. } => "unfinished",
                What::Instant { .. } => "instant",
                What::Flow { place: FlowPlace::Out, .. } => "out",
                What::Flow { .. } => "in",
                What::SpanBegin { .. } => "begin",
                What::SpanEnd { .. } => "end",
                _ => "other",
            };
            let arguments: String = event.arguments().map(|(key, value)| format!(" {key}={value:?}")).collect();
            found.push(format!("{} {what} {}{arguments}", event.depth, event.name()));
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, visit).expect("sound");
    }
    found
}

fn check(layer: RecordLayer, program: impl FnOnce(), expected: &[&str]) {
    assert_eq!(recorded(layer, program), expected);
}

/// Waits this many times.
struct Waits(u32);

impl Future for Waits {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.0 = self.0.saturating_sub(1);
        if self.0 == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn run(future: impl Future) {
    let mut future = pin!(future);
    for _ in 0..10 {
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
    }
    panic!("it waits too often");
}

#[test]
fn spans_are_scopes_with_fields_and_events_instants() {
    let program = || {
        let span = tracing::info_span!("outer", step = 3, ratio = 0.5, name = "a", late = tracing::field::Empty);
        let _outer = span.enter();
        tracing::warn!(bytes = 7_u64, "it is {}", "so");
        tracing::info_span!("inner", ok = true).in_scope(|| ());
        span.record("late", -1);
    };
    check(
        RecordLayer::new(),
        program,
        &[
            concat!(
                r#"1 instant probe_sync_record::tracing::tests message=Text("it is so") bytes=Unsigned(7) "#,
                r#"level=Text("WARN")"#
            ),
            "1 scope inner ok=Boolean(true)",
            r#"0 scope outer step=Integer(3) ratio=Float(0.5) name=Text("a") late=Integer(-1)"#,
        ],
    );
}

#[test]
fn fields_of_spans_that_are_entered_later_are_kept() {
    let program = || {
        let first = tracing::info_span!("first", a = 1);
        let second = tracing::info_span!("second", b = 2, c = tracing::field::Empty);
        first.record("a", 5);
        second.record("c", 3);
        first.in_scope(|| second.in_scope(|| ()));
    };
    let expected = ["1 scope second b=Integer(2) c=Integer(3)", "0 scope first a=Integer(1) a=Integer(5)"];
    check(RecordLayer::new(), program, &expected);
}

#[test]
fn values_that_another_thread_records_are_kept() {
    let on_another_thread = |span: &tracing::Span, value: i64| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let record = || tracing::dispatcher::with_default(&dispatch, || span.record("a", value));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                record();
            });
        });
    };
    let program = || {
        let span = tracing::info_span!("span", a = tracing::field::Empty);
        on_another_thread(&span, 1);
        span.in_scope(|| on_another_thread(&span, 2));
        span.in_scope(|| ());
        on_another_thread(&span, 3);
    };
    let expected = ["0 scope span a=Integer(1)", "0 scope span a=Integer(2)", "0 instant span a=Integer(3)"];
    check(RecordLayer::new().lives(Lives::None), program, &expected);
}

#[test]
fn futures_are_a_scope_per_poll_and_a_life() {
    let program = || {
        for number in 0..2 {
            run(Waits(2).instrument(tracing::info_span!("future", number)));
        }
    };
    let life = ["0 begin future", "0 scope future", "0 end future"];
    let learned = [&["0 scope future number=Integer(0)"], &life[..]].concat();
    let known = [
        "0 begin future number=Integer(1)",
        "0 scope future number=Integer(1)",
        "0 scope future",
        // Dropped with the future, which the span is entered for.
        "0 scope future",
        "0 end future",
    ];
    let found = recorded(RecordLayer::new(), program);
    let without_drops = |lines: &[String]| {
        let mut lines = lines.to_vec();
        lines.dedup();
        lines
    };
    let expected: Vec<String> = learned.iter().chain(&known).map(|line| (*line).to_owned()).collect();
    assert_eq!(without_drops(&found), without_drops(&expected));
    let none = recorded(RecordLayer::new().lives(Lives::None), program);
    assert!(none.iter().all(|line| line.starts_with("0 scope future")), "{none:?}");
    let all = recorded(RecordLayer::new().lives(Lives::All), || tracing::info_span!("sync", a = 1).in_scope(|| ()));
    assert_eq!(all, ["0 begin sync a=Integer(1)", "0 scope sync a=Integer(1)", "0 end sync"]);
}

#[test]
fn what_follows_from_another_is_joined_by_a_flow() {
    let program = || {
        let cause = tracing::info_span!("cause");
        let effect = tracing::info_span!("effect");
        cause.in_scope(|| effect.follows_from(&cause));
        effect.in_scope(|| ());
    };
    let expected = ["1 out follows from", "0 scope cause", "1 in follows from", "0 scope effect"];
    check(RecordLayer::new(), program, &expected);
}

#[test]
fn spans_that_are_left_out_of_order_or_made_by_values_do_no_harm() {
    struct Speaks;
    impl std::fmt::Debug for Speaks {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            tracing::info_span!("within").in_scope(|| formatter.write_str("said"))
        }
    }
    let program = || {
        let [one, two] = [tracing::info_span!("one"), tracing::info_span!("two")];
        let [one, two] = [one.entered(), two.entered()];
        drop(one);
        drop(two);
        tracing::info_span!("speaks", value = ?Speaks).in_scope(|| ());
    };
    // `tracing` itself leaves out what is said within a subscriber's call.
    let expected = ["1 unfinished two", "0 scope one", r#"0 scope speaks value=Text("said")"#];
    check(RecordLayer::new(), program, &expected);
}

#[test]
fn a_span_on_another_thread_is_recorded_there() {
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
    let session = builder.start().expect("nothing else records this thread");
    let adopter = session.adopter();
    let subscriber: tracing::Dispatch = registry().with(RecordLayer::new()).into();
    tracing::dispatcher::with_default(&subscriber, || {
        let span = tracing::info_span!("carried", a = 1);
        let carried = span.clone();
        let subscriber = subscriber.clone();
        let work = move || {
            let _adopted = adopter.adopt();
            tracing::dispatcher::with_default(&subscriber, || carried.in_scope(|| ()));
        };
        std::thread::spawn(work).join().expect("it does not panic");
    });
    let recording = session.finish().expect("whole");
    let events: Vec<u64> = recording.threads().iter().map(|thread| thread.events).collect();
    // There: its scope and the beginning of its life. Here: the end.
    assert_eq!(events.iter().sum::<u64>(), 3, "{events:?}");
}

//! Scopes that do not end as they should, and limits: what does not fit is cut or counted.

use std::panic::{AssertUnwindSafe, catch_unwind};

use probe_sync_record::read::{ArgumentValue, Event, What};
use probe_sync_record::{
    Error, Kind, Listed, Policy, Reach, Recorder, Recording, Scope, Session, Site, Value, instant, scope, span,
};

use crate::child;
use crate::support::{alone, sums, tallies};

fn session() -> Session {
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 4 << 20 });
    builder.start().expect("nothing else records this thread")
}

/// Scopes in the order of their ends: name, depth, whether they were closed with the one around
/// them.
fn scopes(recording: &Recording) -> Vec<(String, u32, bool)> {
    let mut found = Vec::new();
    for thread in recording.threads() {
        let take = |event: &Event<'_>| {
            if let What::Scope { unfinished, .. } = event.what {
                found.push((event.name().to_owned(), event.depth, unfinished));
            }
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, take).expect("sound");
    }
    found
}

fn check(what: impl FnOnce(), expected: &[(&str, u32, bool)]) {
    let _alone = alone();
    let session = session();
    what();
    let recording = session.finish().expect("whole");
    let expected: Vec<_> = expected.iter().map(|(name, depth, cut)| ((*name).to_owned(), *depth, *cut)).collect();
    assert_eq!(scopes(&recording), expected);
    drop(tallies(&recording));
}

#[test]
fn a_panic_ends_scopes_on_its_way() {
    let panics = || {
        let _outer = scope!("outer");
        let caught = catch_unwind(|| {
            let _inner = scope!("inner");
            let _innermost = scope!("innermost");
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(caught.is_err());
        drop(scope!("after"));
    };
    check(panics, &[("innermost", 2, false), ("inner", 1, false), ("after", 1, false), ("outer", 0, false)]);
}

#[test]
fn a_scope_that_is_forgotten_ends_with_the_one_around_it() {
    let forgets = || {
        let outer = scope!("outer");
        std::mem::forget(scope!("forgotten"));
        drop(scope!("within it"));
        drop(outer);
        drop(scope!("after"));
    };
    check(forgets, &[("within it", 2, false), ("forgotten", 1, true), ("outer", 0, false), ("after", 0, false)]);
}

#[test]
fn scopes_that_end_out_of_order_are_closed_with_the_outer_one() {
    let swaps = || {
        let outer = scope!("outer");
        let inner = scope!("inner");
        drop(outer);
        let next = scope!("next");
        // It was closed with the outer one; the next lies in its place.
        inner.argument(0, &1);
        drop(inner);
        drop(scope!("within next"));
        drop(next);
    };
    check(swaps, &[("inner", 1, true), ("outer", 0, false), ("within next", 1, false), ("next", 0, false)]);
}

#[test]
fn a_scope_forgotten_at_the_top_stays_open() {
    let _alone = alone();
    let session = session();
    std::mem::forget(scope!("forgotten"));
    drop(scope!("within it"));
    let recording = session.finish().expect("whole");
    assert_eq!(scopes(&recording), [("within it".to_owned(), 1, false)]);
    assert_eq!(recording.threads()[0].open[0].name, "forgotten");
}

#[test]
fn a_panic_in_an_argument_leaves_the_thread_recording() {
    let _alone = alone();
    let session = session();
    static SITE: Site = Site::new("lists", Kind::User, "", 0, &["a"]);
    let outer = scope!("outer");
    let list = Listed(1, |_| -> (u32, Value<'_>) { std::panic::resume_unwind(Box::new("on purpose")) });
    assert!(catch_unwind(AssertUnwindSafe(|| drop(Scope::enter_with(&SITE, &list)))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| outer.state(&list))).is_err());
    drop(scope!("after"));
    drop(outer);
    let recording = session.finish().expect("whole");
    assert_eq!(sums(&recording), [3, 0, 0], "{:?}", scopes(&recording));
    assert_eq!(recording.threads()[0].interrupted, 0);
}

/// A list that grows while it is written does not get into what comes behind.
#[test]
fn a_list_that_changes_is_cut() {
    let _alone = alone();
    let session = session();
    static SITE: Site = Site::new("lists", Kind::User, "", 0, &["a"]);
    let asked = std::cell::Cell::new(0);
    let long = "x".repeat(500);
    let grows = |_| {
        asked.set(asked.get() + 1);
        (probe_sync_record::event::OF_SITE, Value::Text(if asked.get() == 1 { "short" } else { &long }))
    };
    let outer = Scope::enter_with(&SITE, &Listed(1, grows));
    let inner = scope!("inner");
    asked.set(0);
    inner.state(&Listed(1, grows));
    drop((inner, outer));
    assert_eq!(sums(&session.finish().expect("whole")), [2, 0, 0]);
}

/// 600 scopes within each other are more than a slot has frames for, in one session and in two.
#[test]
fn scopes_deeper_than_the_stack_are_recorded_when_they_end() {
    fn nest(depth: u64) {
        let _scope = scope!("work", n = 600 - depth);
        if depth > 0 {
            nest(depth - 1);
        }
    }
    let _alone = alone();
    for sessions in 1..=2 {
        let outer = session();
        let inner = (sessions == 2).then(session);
        nest(600);
        drop(scope!("after"));
        for session in inner.into_iter().chain([outer]) {
            let recording = session.finish().expect("whole");
            let found = scopes(&recording);
            assert_eq!(found.len(), 602, "{sessions}");
            assert!((0..601).all(|at| found[at].1 as usize == 600 - at), "depths go down by one");
            assert_eq!((found[601].1, recording.threads()[0].open.len()), (0, 0));
            assert!(recording.threads()[0].too_deep > 0 && recording.threads()[0].arguments_lost > 0);
        }
    }
}

#[test]
fn a_deep_scope_that_is_forgotten_is_counted() {
    let _alone = alone();
    let session = session();
    let mut frames: Vec<Scope> = (0..600).map(|_| scope!("frame")).collect();
    std::mem::forget(frames.pop());
    while let Some(scope) = frames.pop() {
        drop(scope);
    }
    drop(scope!("after"));
    let recording = session.finish().expect("whole");
    assert_eq!(sums(&recording), [600, 1, 0]);
    assert_eq!(scopes(&recording).last(), Some(&("after".to_owned(), 0, false)));
}

#[test]
fn arguments_beyond_a_record_are_counted_and_long_ones_cut() {
    let _alone = alone();
    let session = session();
    let long = "é".repeat(2000);
    {
        let _cut = scope!("cut", text = long.as_str());
        let full = scope!("full", one = long.as_str(), two = || 5);
        full.argument_named("three", &long);
        full.argument_named("four", &7);
    }
    instant!("full", one = long.as_str(), two = long.as_str());
    let recording = session.finish().expect("whole");
    let mut lengths = Vec::new();
    let serial = recording.threads()[0].serial;
    let cut = |event: &Event<'_>| if event.name() == "cut" { take_texts(event, &mut lengths) } else { Ok(()) };
    recording.visit(serial, cut).expect("sound");
    assert_eq!(lengths, [("text".to_owned(), 1024 + '…'.len_utf8(), true)]);
    // The third of "full", and both of the moment.
    assert_eq!(recording.threads()[0].arguments_lost, 3);
    assert_eq!(sums(&recording), [3, 0, 0]);
}

fn take_texts(event: &Event<'_>, lengths: &mut Vec<(String, usize, bool)>) -> Result<(), Error> {
    lengths.extend(event.arguments().map(|(key, value)| match value {
        ArgumentValue::Text(text) => (key.to_owned(), text.len(), text.ends_with('…')),
        other => panic!("{other:?}"),
    }));
    Ok(())
}

/// In a process of its own: the names would take the room of other tests.
#[test]
fn names_without_room_are_lost_and_counted_but_not_their_events() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    child::succeeds("names", folder.path());
}

pub fn names_without_room() {
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 512 << 10 });
    let session = builder.start().expect("nothing else records this thread");
    const NAMES: usize = 100;
    for n in 0..NAMES {
        let name = format!("{n} {}", "x".repeat(1000));
        drop(Scope::enter(Site::named(Kind::User, &name).expect("few")));
    }
    let recording = session.finish().expect("whole");
    let found = scopes(&recording);
    let lost = found.iter().filter(|(name, ..)| name == "(name lost)").count();
    assert_eq!(found.len(), NAMES);
    assert!(lost > 0 && lost < NAMES && recording.status().definitions_lost >= lost as u64, "{lost}");
}

/// In a process of its own: it keeps its names.
#[test]
#[ignore = "long: makes as many names as there may be"]
fn names_beyond_the_most_there_may_be_are_refused() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    child::succeeds("too many names", folder.path());
}

pub fn too_many_names() {
    const NAMES: u32 = 1 << 20;
    let key = |n: u32| probe_sync_record::event::key(&format!("key {n}"));
    let site = |n: u32| Site::named(Kind::User, &format!("site {n}"));
    let first = key(0);
    assert!((1..NAMES).all(|n| key(n).is_some()) && (0..NAMES).all(|n| site(n).is_some()));
    assert!(key(NAMES).is_none() && site(NAMES).is_none() && Site::named(Kind::Io, "of another kind").is_some());
    assert!(first.is_some() && key(0) == first && site(0).is_some_and(|site| site.name() == "site 0"));
    // A session begins all the same, and says that names are missing.
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
    let session = builder.start().expect("nothing else records this thread");
    let scope = Scope::enter(site(7).expect("known"));
    scope.argument_named("key 9", &1);
    scope.argument_named("one too many", &2);
    drop(scope);
    let recording = session.finish().expect("whole");
    assert_eq!(scopes(&recording).len(), 1);
    assert!(recording.status().definitions_lost > 0, "{:?}", recording.status());
}

#[test]
fn threads_beyond_the_slots_are_recorded_without_open_scopes() {
    let _alone = alone();
    let policy = Policy::DropNewest { bytes: 4 << 20 };
    let session = Recorder::builder().policy(policy).threads(2).start().expect("nothing else records");
    let (ready, done) = (std::sync::Barrier::new(6), std::sync::Barrier::new(6));
    let recording = std::thread::scope(|threads| {
        for _ in 0..5 {
            threads.spawn(|| {
                let outer = scope!("outer");
                for n in 0..100_u64 {
                    drop(scope!("work", n = n));
                }
                drop(outer);
                ready.wait();
                done.wait();
            });
        }
        ready.wait();
        assert_eq!(session.counts().threads, 2);
        let recording = session.finish().expect("whole");
        done.wait();
        recording
    });
    assert_eq!(recording.threads().len(), 5, "all of them are there");
    assert!(recording.threads().iter().all(|thread| thread.events == 101));
    assert_eq!(sums(&recording), [505, 0, 0]);
}

#[test]
fn spans_end_on_other_threads() {
    let _alone = alone();
    let session = Recorder::builder().start().expect("nothing else records");
    let span = span!("request");
    let id = span.id();
    std::thread::spawn(move || span.end()).join().expect("no panic");
    let recording = session.finish().expect("whole");
    let mut found = Vec::new();
    for thread in recording.threads() {
        let take = |event: &Event<'_>| {
            match event.what {
                What::SpanBegin { id, .. } => found.push((true, id)),
                What::SpanEnd { id, .. } => found.push((false, id)),
                _ => panic!("{event:?}"),
            }
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, take).expect("sound");
    }
    found.sort_unstable();
    assert_eq!(found, [(false, id), (true, id)]);
}

//! Observers on threads of this process, most of one thread only, so that tests beside each other
//! do not see each other's scopes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::{Observed, Observer, ObserverCounts, Observing};
use crate::read::ArgumentValue;
use crate::{Error, Kind, Policy, Reach, Recorder, correlate, instant, scope};

type Log = Arc<Mutex<Vec<String>>>;

/// An observer of this thread that writes down what it is told.
fn logging(change: impl FnOnce(Observer) -> Observer) -> (Observing, Log) {
    let log = Log::default();
    let (entered, left) = (Arc::clone(&log), Arc::clone(&log));
    let say = |log: &Log, what: String| log.lock().expect("no test panics with it").push(what);
    let arguments = |event: &Observed<'_>| {
        let texts = event.arguments().iter().map(|(key, value)| match value {
            ArgumentValue::Integer(number) => format!(" {key}={number}"),
            other => format!(" {key}={other:?}"),
        });
        texts.collect::<String>()
    };
    let observer = Observer::new()
        .reach(Reach::Thread)
        .on_enter(move |event| {
            say(&entered, format!("+{}{}", event.site().name(), arguments(event)));
            entered.lock().expect("no test panics with it").len() as u64
        })
        .on_leave(move |event, context| {
            let mark = if event.is_unfinished() { "!" } else { "" };
            say(&left, format!("-{}{}{mark} {context}", event.site().name(), arguments(event)));
        });
    (change(observer).add().expect("there is room"), log)
}

fn said(log: &Log) -> Vec<String> {
    std::mem::take(&mut log.lock().expect("no test panics with it"))
}

fn thread_session() -> crate::Session {
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
    builder.start().expect("nothing else records this thread")
}

fn recorded(session: crate::Session) -> Vec<(String, u32)> {
    let recording = session.finish().expect("whole");
    let mut found = Vec::new();
    for thread in recording.threads() {
        let visit = |event: &crate::read::Event<'_>| {
            found.push((event.name().to_owned(), event.depth));
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, visit).expect("sound");
    }
    found
}

#[test]
fn scopes_are_told_of_without_a_session_from_begin_to_end() {
    let (observing, log) = logging(|observer| observer);
    {
        let _outer = scope!("outer", step = 1);
        drop(scope!(Kind::Io, "inner"));
        instant!("not a scope");
    }
    assert_eq!(said(&log), ["+outer", "+inner", "-inner 2", "-outer 1"]);
    assert_eq!(observing.counts(), ObserverCounts { calls: 4, panics: 0 });
    assert!(observing.remove());
    drop(scope!("after"));
    assert_eq!(said(&log), Vec::<String>::new());
}

#[test]
fn kinds_turns_and_arguments_are_as_asked_for() {
    let (by_kind, kinds) = logging(|observer| observer.kinds(&[Kind::Io]));
    let (by_turn, turns) = logging(|observer| observer.one_in(3));
    let (with_all, all) = logging(Observer::with_arguments);
    for number in 0..4 {
        let made = || number * 10;
        let scope = scope!("user", number = number, late = || made());
        scope.argument_named("later", &7);
        drop(scope!(Kind::Io, "io"));
    }
    assert_eq!(said(&kinds), ["+io", "-io 1", "+io", "-io 3", "+io", "-io 5", "+io", "-io 7"]);
    let expected = ["+user", "-user 1", "+io", "-io 3", "+user", "-user 5"];
    assert_eq!(said(&turns), expected, "of 8 scopes the first, the fourth and the seventh");
    assert_eq!(said(&all)[..4], ["+user number=0", "+io", "-io 2", "-user number=0 late=0 later=7 1"]);
    for observing in [by_kind, by_turn, with_all] {
        assert!(observing.remove());
    }
}

#[test]
fn a_session_beside_observers_records_the_same() {
    let session = thread_session();
    let _before = scope!("before");
    let (observing, log) = logging(Observer::with_arguments);
    {
        let _link = correlate(77);
        let outer = scope!("outer", step = 5);
        assert_eq!(outer.id(), 77);
        drop(scope!("inner"));
    }
    let across = scope!("across");
    assert!(observing.remove());
    drop(across);
    assert_eq!(said(&log), ["+outer step=5", "+inner", "-inner 2", "-outer step=5 1", "+across"]);
    let expected = [("inner", 2), ("outer", 1), ("across", 1)].map(|(name, depth)| (name.to_owned(), depth));
    assert_eq!(recorded(session), expected);
}

#[test]
fn nothing_is_observed_within_a_callback_but_it_is_recorded() {
    let session = thread_session();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let observer = Observer::new().reach(Reach::Thread).on_enter(move |_| {
        drop(scope!("of the observer"));
        counted.fetch_add(1, Ordering::Relaxed)
    });
    let observing = observer.add().expect("there is room");
    drop(scope!("observed"));
    assert!(observing.remove());
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    // Beside the scope, not in it: the call comes before it begins.
    let expected = [("of the observer", 0), ("observed", 0)].map(|(name, depth)| (name.to_owned(), depth));
    assert_eq!(recorded(session), expected);
}

#[test]
fn a_callback_that_panics_is_switched_off_and_the_program_goes_on() {
    let (beside, log) = logging(|observer| observer);
    let observer = Observer::new().reach(Reach::Thread).on_leave(|_, _| std::panic::resume_unwind(Box::new(1)));
    let observing = observer.add().expect("there is room");
    drop(scope!("one"));
    drop(scope!("two"));
    assert_eq!((observing.counts(), observing.is_on()), (ObserverCounts { calls: 1, panics: 1 }, false));
    // Also while another panic goes up the stack.
    let observer = Observer::new().reach(Reach::Thread).on_leave(|_, _| std::panic::resume_unwind(Box::new(2)));
    let second = observer.add().expect("there is room");
    let unwound = std::panic::catch_unwind(|| {
        let _scope = scope!("three");
        std::panic::resume_unwind(Box::new("the program's"));
    });
    let panicked = unwound.expect_err("it panics");
    assert_eq!(panicked.downcast_ref(), Some(&"the program's"));
    assert_eq!(second.counts(), ObserverCounts { calls: 1, panics: 1 });
    assert_eq!(said(&log), ["+one", "-one 1", "+two", "-two 3", "+three", "-three 5"]);
    for observing in [observing, second, beside] {
        assert!(observing.remove());
    }
}

#[test]
fn removal_from_within_a_callback_does_not_wait() {
    let place: Arc<Mutex<Option<Observing>>> = Arc::default();
    let result = Arc::new(Mutex::new(None));
    let (own, told) = (Arc::clone(&place), Arc::clone(&result));
    let observer = Observer::new().reach(Reach::Thread).on_enter(move |_| {
        let observing = own.lock().expect("no test panics with it").take();
        *told.lock().expect("no test panics with it") = observing.map(Observing::remove);
        1
    });
    *place.lock().expect("no test panics with it") = Some(observer.add().expect("there is room"));
    drop(scope!("first"));
    drop(scope!("second"));
    assert_eq!(*result.lock().expect("no test panics with it"), Some(false), "called once, not waited for");
}

#[test]
fn scopes_that_do_not_end_leave_with_those_around_them() {
    let (observing, log) = logging(|observer| observer);
    {
        let _outer = scope!("outer");
        std::mem::forget(scope!("forgotten"));
    }
    assert!(observing.remove());
    assert_eq!(said(&log), ["+outer", "+forgotten", "-forgotten! 2", "-outer 1"]);
}

#[test]
fn no_call_comes_after_a_removal_while_threads_record() {
    let stop = Arc::new(AtomicBool::new(false));
    let working: Vec<_> = (0..3)
        .map(|_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let _outer = scope!(Kind::Custom, "under fire");
                    drop(scope!(Kind::Custom, "within"));
                }
            })
        })
        .collect();
    let (mut calls, mut all_late) = (0, Vec::new());
    for _ in 0..50 {
        let alive = Arc::new(AtomicBool::new(true));
        let late = Arc::new(AtomicU64::new(0));
        let [(enter, entered), (leave, left)] = [0, 1].map(|_| (Arc::clone(&alive), Arc::clone(&late)));
        let check = |alive: &AtomicBool, late: &AtomicU64| {
            std::hint::spin_loop();
            late.fetch_add(u64::from(!alive.load(Ordering::SeqCst)), Ordering::SeqCst);
        };
        let observer = Observer::new()
            .kinds(&[Kind::Custom])
            .on_enter(move |_| {
                check(&enter, &entered);
                9
            })
            .on_leave(move |_, context| {
                assert_eq!(context, 9);
                check(&leave, &left);
            });
        let observing = observer.add().expect("there is room");
        std::thread::sleep(std::time::Duration::from_millis(1));
        let counts = observing.counts();
        assert_eq!(counts.panics, 0);
        calls += counts.calls;
        assert!(observing.remove());
        alive.store(false, Ordering::SeqCst);
        all_late.push(late);
    }
    stop.store(true, Ordering::Relaxed);
    for thread in working {
        thread.join().expect("it does not panic");
    }
    assert!(calls > 0, "threads were observed");
    assert_eq!(all_late.iter().map(|late| late.load(Ordering::SeqCst)).sum::<u64>(), 0);
}

#[test]
fn scopes_too_deep_for_a_frame_are_recorded_in_every_session_and_observed() {
    fn nest(left: u32) {
        let _scope = scope!("deep");
        if left > 1 {
            nest(left - 1);
        }
    }
    let sessions = [thread_session(), thread_session()];
    let (observing, log) = logging(|observer| observer);
    nest(700);
    drop(scope!("beside"));
    assert!(observing.remove());
    assert_eq!(said(&log).len(), 2 * 701);
    for session in sessions {
        let found = recorded(session);
        assert_eq!(found.len(), 701);
        assert_eq!(found[700], ("beside".to_owned(), 0));
    }
}

#[test]
fn what_cannot_be_observed_is_refused() {
    let observer = || Observer::new().reach(Reach::Thread).on_enter(|_| 0);
    let refused = |observer: Observer| observer.add().expect_err("it is refused").to_string();
    assert!(refused(observer().kinds(&[])).contains("no event kinds"));
    assert!(refused(observer().one_in(0)).contains("use 1 for all"));
    assert!(refused(Observer::new()).contains("it has no callback"));
}

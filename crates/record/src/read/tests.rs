//! Recordings that were made here and read back.

use std::mem::MaybeUninit;

use crate::event::ScopeWords;
use crate::{Kind, Listed, Policy, Reach, Recorder, Recording, Scope, Site, Value, event, instant, scope};

use super::{ArgumentValue, What};

fn session() -> crate::Session {
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
    builder.start().expect("nothing else records this thread")
}

fn names(recording: &Recording) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    for thread in recording.threads() {
        let take = |event: &super::Event<'_>| {
            found.push((event.name().to_owned(), event.depth));
            Ok::<(), crate::Error>(())
        };
        recording.visit(thread.serial, take).expect("sound");
    }
    found
}

#[test]
fn scopes_come_back_in_the_order_of_their_ends_with_arguments() {
    let session = session();
    {
        let _outer = scope!("outer", step = 17, phase = "warm", ratio = 0.5);
        let _inner = scope!(Kind::Io, "inner");
        instant!("moment", bytes = 3_u64);
    }
    let recording = session.finish().expect("whole");
    assert_eq!(names(&recording), [("moment".into(), 2), ("inner".into(), 1), ("outer".into(), 0)]);
    let thread = &recording.threads()[0];
    assert_eq!((thread.events, thread.lost.events, thread.open.len()), (3, 0, 0));
    let mut seen = Vec::new();
    let take = |event: &super::Event<'_>| {
        if let What::Scope { start, end, .. } = event.what {
            assert!(start < end);
        }
        seen.extend(event.arguments().map(|(key, value)| (key.to_owned(), value)));
        Ok::<(), crate::Error>(())
    };
    recording.visit(thread.serial, take).expect("sound");
    let expected = [
        ("bytes", ArgumentValue::Unsigned(3)),
        ("step", ArgumentValue::Integer(17)),
        ("phase", ArgumentValue::Text("warm".into())),
        ("ratio", ArgumentValue::Float(0.5)),
    ];
    assert_eq!(seen, expected.map(|(key, value)| (key.to_owned(), value)));
    assert!(recording.status().finished && recording.pairs().len() >= 2);
}

/// What events there are: name, depth, whether it was closed with the scope around it.
fn closed(recording: &Recording) -> Vec<(String, u32, bool)> {
    let mut found = Vec::new();
    let take = |event: &super::Event<'_>| {
        let unfinished = matches!(event.what, What::Scope { unfinished: true, .. });
        found.push((event.name().to_owned(), event.depth, unfinished));
        Ok::<(), crate::Error>(())
    };
    recording.visit(recording.threads()[0].serial, take).expect("sound");
    found
}

#[test]
fn a_scope_that_outlives_the_one_around_it_was_closed_with_it() {
    let session = session();
    let outer = scope!("outer");
    let inner = scope!("inner");
    drop(outer);
    // These lie where those did.
    let next = scope!("next");
    let within = scope!("within");
    inner.argument_named("late", &1);
    drop(inner);
    drop(within);
    drop(next);
    let recording = session.finish().expect("whole");
    let expected = [("inner", 1, true), ("outer", 0, false), ("within", 1, false), ("next", 0, false)];
    assert_eq!(closed(&recording), expected.map(|(name, depth, closed)| (name.to_owned(), depth, closed)));
    assert!(recording.threads()[0].open.is_empty());
}

#[test]
fn scopes_as_words_end_once_and_on_their_own_thread() {
    static SITE: Site = Site::new("words", Kind::User, "", 0, &[]);
    let session = session();
    let key = event::key("a key of run time").expect("room");
    let values = [Value::Integer(-3), Value::Text("text"), Value::Boolean(true)];
    let words = Scope::enter_with(&SITE, &Listed(3, |at| (key, values[at]))).into_words();
    let other = words;
    let elsewhere = std::thread::spawn(move || {
        let session = self::session();
        let own = scope!("own");
        // SAFETY: as they were.
        drop(unsafe { Scope::from_words(other) });
        drop(own);
        closed(&session.finish().expect("whole"))
    });
    assert_eq!(elsewhere.join().expect("no panic"), [("own".to_owned(), 0, false)]);
    for _ in 0..2 {
        // SAFETY: as they were.
        drop(unsafe { Scope::from_words(words) });
    }
    let recording = session.finish().expect("whole");
    let mut arguments = 0;
    let take = |event: &super::Event<'_>| {
        arguments += event.arguments().filter(|(name, _)| *name == "a key of run time").count();
        Ok::<(), crate::Error>(())
    };
    recording.visit(recording.threads()[0].serial, take).expect("sound");
    assert_eq!((names(&recording), arguments), (vec![("words".into(), 0)], 3));
}

#[test]
fn words_hold_whatever_becomes_of_a_scope() {
    static WORDS: Site = Site::new("in words", Kind::User, "", 0, &[]);
    static UNWANTED: Site = Site::new("unwanted", Kind::Io, "", 0, &[]);
    let enter = |site| {
        let mut words = MaybeUninit::uninit();
        let recorded = ScopeWords::enter(site, &(), &mut words);
        // SAFETY: written by `enter`.
        (recorded, unsafe { words.assume_init() })
    };
    // SAFETY: as they were.
    let end = |words: ScopeWords| unsafe { words.end() };
    let session = |kinds: &[Kind]| {
        let policy = Policy::DropNewest { bytes: 1 << 20 };
        Recorder::builder().reach(Reach::Thread).policy(policy).kinds(kinds).start().expect("fewer than eight")
    };
    let outer = session(&[Kind::User]);
    let opened: Vec<_> = (0..1000).map(|_| enter(&WORDS)).collect();
    assert!(opened.iter().all(|(recorded, _)| *recorded));
    assert!(!enter(&UNWANTED).0);
    for (_, words) in opened.into_iter().rev().chain([enter(&UNWANTED)]) {
        end(words);
    }
    let inner = session(&[Kind::User]);
    let (_, first) = enter(&WORDS);
    end(enter(&WORDS).1);
    end(first);
    end(first);
    let span = crate::Span::begin(&WORDS).into_id();
    crate::Span::of_id(&WORDS, span).end();
    let count = |session: crate::Session| session.finish().expect("whole").threads()[0].events;
    assert_eq!((count(inner), count(outer)), (4, 1004));
}

#[test]
fn a_recording_is_saved_under_every_policy() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let bytes = 1 << 20;
    let stream = Policy::Stream { bytes, every: std::time::Duration::from_millis(1) };
    for (policy, spill) in [(Policy::DropNewest { bytes }, false), (Policy::Flight { bytes }, true), (stream, true)] {
        let [live, whole, other] = ["live", "whole", "spill"].map(|name| folder.path().join(name));
        let mut builder = Recorder::builder().reach(Reach::Thread).policy(policy);
        if spill {
            builder = builder.spill(&other);
        }
        let session = builder.start().expect("nothing else records this thread");
        // More than a chunk, so that a stream has blocks.
        for _ in 0..1000 {
            drop(scope!("before"));
        }
        session.snapshot().and_then(|recording| recording.save(&live)).expect("room");
        drop(scope!("after"));
        session.finish().and_then(|recording| recording.save(&whole)).expect("room");
        let count = |path| names(&Recording::open(path).expect("sound")).len();
        assert_eq!((count(&live), count(&whole)), (1000, 1001), "{policy:?}");
        let refused =
            Recording::open(&whole).expect("sound").save(&folder.path().join("no/such")).expect_err("no folder");
        assert!(refused.to_string().contains("no/"), "{refused}");
        if spill {
            std::fs::remove_file(&other).expect("there");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 2, "nothing is left beside");
}

#[test]
fn a_recording_under_way_shows_what_is_open() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("live.rec");
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::Flight { bytes: 1 << 20 }).spill(&path);
    let session = builder.start().expect("nothing else records this thread");
    let _step = scope!("step", number = 5);
    drop(scope!("done"));
    for recording in [Recording::open(&path), session.snapshot()] {
        let recording = recording.expect("sound");
        let thread = &recording.threads()[0];
        assert_eq!((thread.events, recording.status().finished), (1, false));
        assert_eq!(thread.open.len(), 1);
        assert_eq!(thread.open[0].name, "step");
        assert_eq!(thread.open[0].arguments, [("number".to_owned(), ArgumentValue::Integer(5))]);
    }
}

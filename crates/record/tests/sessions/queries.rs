//! Who records, and how: what libraries can ask.

use std::time::Duration;

use probe_sync_record::{Kind, Policy, Reach, Recorder, scope};

use crate::support::{of_thread, place, whole_process};

#[test]
fn who_records_and_where_it_was_started() {
    let _place = place();
    let _one = whole_process();
    assert!(!Recorder::is_recording_this_thread());
    let line = line!() + 1;
    let session = of_thread().kinds(&[Kind::User, Kind::Io]).one_in(3).rank(7).start().expect("ready");
    assert!(Recorder::is_recording_this_thread() && Recorder::is_recording());
    let elsewhere = std::thread::spawn(Recorder::is_recording_this_thread).join().expect("no panic");
    assert!(!elsewhere, "another thread is not recorded");
    let here = format!("{}:{line}:", file!());
    let found = Recorder::sessions().into_iter().find(|standing| standing.facts.started_at.starts_with(&here));
    let found = found.expect("it is among them");
    assert_eq!(found, session.standing());
    assert_eq!(
        (found.facts.reach.as_str(), found.facts.policy.as_str(), found.facts.every),
        ("thread", "drop_newest", 3)
    );
    assert_eq!((found.facts.kinds.len(), found.facts.rank, found.recording, found.path), (2, Some(7), true, None));
    session.pause().expect("ours");
    assert!(!Recorder::is_recording_this_thread() && !session.is_recording());
    drop(session);
    assert!(!Recorder::sessions().iter().any(|standing| standing.facts.started_at.starts_with(&here)));
}

#[test]
fn a_session_of_the_process_records_every_thread() {
    let _place = place();
    let _one = whole_process();
    let session = Recorder::builder().policy(Policy::Flight { bytes: 1 << 20 }).start().expect("ready");
    let elsewhere = std::thread::spawn(Recorder::is_recording_this_thread).join().expect("no panic");
    assert!(elsewhere && session.reach() == Reach::Process);
}

#[test]
fn counts_tell_what_is_lost() {
    let _place = place();
    let session = of_thread().start().expect("ready");
    for _ in 0..100_000 {
        drop(scope!("scope"));
    }
    let counts = session.counts();
    assert!(counts.lost > 0 && counts.threads == 1 && counts.bytes > 100_000, "{counts:?}");
    let recording = session.finish().expect("whole");
    let thread = &recording.threads()[0];
    assert_eq!(thread.events + thread.lost.events, 100_000);
}

#[test]
fn what_was_chosen_is_said() {
    let _place = place();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("a.rec");
    let prepared =
        of_thread().spill(&path).pair_period(Duration::from_millis(50)).on_demand().prepare().expect("ready");
    let said = prepared.choices().join("\n");
    for part in ["clock ", "bytes in ", "a.rec", "chunks of", "kinds function", "controlled through"] {
        assert!(said.contains(part), "{said} lacks {part}");
    }
    assert!(path.exists());
    drop(prepared);
    assert!(!path.exists(), "it was never started");
    assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 0, "its socket is gone, too");
}

#[test]
fn what_is_prepared_starts_at_once_and_records_nothing_before() {
    let _place = place();
    let prepared = of_thread().prepare().expect("ready");
    drop(scope!("before"));
    let session = prepared.start().expect("nothing has come between");
    drop(scope!("after"));
    let recording = session.finish().expect("whole");
    assert_eq!(crate::support::names(&recording), crate::support::expected(&[("after", 0)]));
}

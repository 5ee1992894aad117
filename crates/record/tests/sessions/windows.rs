//! Spans of a reference clock that are recorded exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use probe_sync_record::{Recorder, Session, scope};

use crate::support::{of_thread, place, scopes, whole_process};

const MS: i64 = 1_000_000;

/// A reference that is 5 s ahead of the system clock.
fn reference() -> Option<i64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(now.as_nanos() as i64 + 5_000 * MS)
}

fn now() -> i64 {
    reference().expect("it is after 1970")
}

/// Scopes of which each says what the reference showed in it, until the window is over.
fn work(session: &Session, until: i64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while (now() < until || session.is_recording()) && Instant::now() < deadline {
        let _around = scope!("around");
        let _scope = scope!("scope", at = now());
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn no_event_lies_outside_and_none_is_missing_that_a_longer_recording_has() {
    let _place = place();
    let _one = whole_process();
    let [from, to] = [now() + 400 * MS, now() + 600 * MS];
    let longer = of_thread().start().expect("nothing is in the way");
    let builder = Recorder::builder().policy(probe_sync_record::Policy::Flight { bytes: 1 << 20 });
    let session = builder.reference(reference).window(from, to).start().expect("in time");
    assert!(!session.is_recording());
    let others = Arc::new(AtomicBool::new(true));
    let more = Arc::clone(&others);
    let other = std::thread::spawn(move || {
        while more.load(Ordering::Relaxed) {
            drop(scope!("other"));
            std::thread::sleep(Duration::from_micros(500));
        }
    });
    work(&session, to + 10 * MS);
    others.store(false, Ordering::Relaxed);
    other.join().expect("no panic");
    let (recording, longer) = (session.finish().expect("whole"), longer.finish().expect("whole"));
    let window = recording.windows()[0];
    assert_eq!((window.asked_ns, recording.windows().len()), (Some([from, to]), 1));
    let [begin, end] = [window.from, window.to.expect("it is over")];
    // Both recordings have the same clock and the same numbers of events.
    let inside = |scopes: Vec<(u32, u64, u64, u64)>| -> Vec<_> {
        scopes.into_iter().filter(|(_, from, to, _)| *from >= begin && *to <= end).collect()
    };
    let all = scopes(&recording);
    assert_eq!(all, inside(all.clone()), "no event lies outside");
    let serial = longer.threads()[0].serial;
    let own: Vec<_> = all.into_iter().filter(|scope| scope.0 == serial).collect();
    let expected = inside(scopes(&longer));
    assert!(expected.len() > 10, "{} events", expected.len());
    assert_eq!(own, expected, "none is missing");
    assert!(recording.threads().len() >= 2, "threads that began before are there");
}

#[test]
fn what_was_agreed_on_is_what_events_say() {
    let _place = place();
    let builder = of_thread().reference(reference);
    // On a busy machine the start may come too late for the window; a later one is agreed on then.
    let started = [300, 3_000, 30_000].into_iter().find_map(|lead| {
        let [from, to] = [now() + lead * MS, now() + (lead + 100) * MS];
        builder.clone().window(from, to).start().ok().map(|session| (session, from, to))
    });
    let (session, from, to) = started.expect("in time");
    work(&session, to + 10 * MS);
    let recording = session.finish().expect("whole");
    let mut seen = Vec::new();
    let take = |event: &probe_sync_record::read::Event<'_>| {
        let at = event.arguments().find(|(key, _)| *key == "at");
        if let Some((_, probe_sync_record::read::ArgumentValue::Integer(at))) = at {
            seen.push(at);
        }
        Ok::<(), probe_sync_record::Error>(())
    };
    recording.visit(recording.threads()[0].serial, take).expect("sound");
    assert!(!seen.is_empty());
    // What the system clock was slewed meanwhile, and what one reading costs, is far less.
    let tolerance = 50_000;
    assert!(seen.iter().all(|at| (from - tolerance..=to + tolerance).contains(at)), "{from} {to}: {seen:?}");
}

#[test]
fn a_window_that_is_late_or_overlaps_is_refused() {
    let _place = place();
    let session = of_thread().reference(reference).paused().on_demand().control(std::env::temp_dir().join("no-such"));
    drop(session);
    let folder = tempfile::tempdir().expect("a temporary directory");
    let session = of_thread().reference(reference).on_demand().control(folder.path()).start().expect("ready");
    let refused = |from, to, part: &str| {
        let said = session.record_window(from, to).expect_err("refused").to_string();
        assert!(said.contains(part), "{said}");
    };
    refused(now() - 5 * MS, now() + 100 * MS, "ms before now");
    refused(now() + 5 * MS, now() + 100 * MS, " now");
    refused(now() + 900 * MS, now() + 800 * MS, "ends before it begins");
    session.record_window(now() + 60_000 * MS, now() + 60_100 * MS).expect("in time");
    refused(now() + 90_000 * MS, now() + 90_100 * MS, "is already scheduled");
    session.resume().expect("ours");
    session.pause().expect("it gives the window up");
    session.record_window(now() + 60_000 * MS, now() + 60_100 * MS).expect("the other was given up");
    let without = of_thread().control(folder.path()).on_demand().start().expect("ready");
    let said = without.record_window(now() + 90_000 * MS, now() + 90_100 * MS).expect_err("no clock").to_string();
    assert!(said.contains("reference"), "{said}");
    let unknown = of_thread().reference(|| None).control(folder.path()).on_demand().start().expect("ready");
    let said = unknown.record_window(1, 2).expect_err("unknown").to_string();
    assert!(said.contains("not known yet"), "{said}");
}

//! Backends beside sessions of a thread each. `examples/simulated_gpu` tests one of a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    Backend, BackendState, DeviceClock, DeviceEvent, DevicePair, HostClock, MarkerSink, Markers, Request, Sink,
};
use crate::read::{ArgumentValue, Event, Recording, What};
use crate::{Error, Kind, Policy, Reach, Recorder, Site, Value, scope};

/// A backend of the thread that does what a test says.
#[derive(Default)]
struct Scripted {
    prepare: Option<Result<(), String>>,
    start: Option<Result<(), String>>,
    panics_at_stop: bool,
    events: Vec<(&'static str, u64, u64)>,
    pairs: Vec<(u64, u64)>,
    own: bool,
    of_process: bool,
}

impl Backend for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn is_for(&self, reach: Reach) -> Result<(), String> {
        if self.of_process && reach == Reach::Thread { Err("record the process".into()) } else { Ok(()) }
    }

    fn prepare(&mut self, _: &Request) -> Result<(), String> {
        self.prepare.take().unwrap_or(Ok(()))
    }

    fn clock(&self) -> DeviceClock {
        if self.own { DeviceClock::Own { hz: 1_000_000_000 } } else { DeviceClock::Recorder }
    }

    fn pair(&mut self, _: HostClock) -> Option<DevicePair> {
        let (device, ticks) = if self.pairs.is_empty() { return None } else { self.pairs.remove(0) };
        Some(DevicePair { device, ticks, bracket_ticks: 4 })
    }

    fn start(&mut self) -> Result<(), String> {
        self.start.take().unwrap_or(Ok(()))
    }

    fn stop(&mut self) -> Result<(), String> {
        if self.panics_at_stop {
            std::panic::resume_unwind(Box::new("a test's"));
        }
        Ok(())
    }

    fn collect(&mut self, sink: &mut Sink) -> Result<(), String> {
        let track = sink.track("device", "queue");
        for (name, start, end) in self.events.drain(..) {
            let arguments = [("bytes", Value::Unsigned(end - start.min(end)))];
            let (kind, flow) = (Kind::Custom, None);
            sink.event(track, &DeviceEvent { name, kind, start, end, correlation: start, flow, arguments: &arguments });
        }
        Ok(())
    }
}

fn recorded_with(backend: Scripted) -> Recording {
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
    builder.backend(backend).start().expect("nothing else records this thread").finish().expect("whole")
}

/// Name, row, begin, end and depth of each event on queues.
fn on_queues(recording: &Recording) -> Vec<(String, u32, u64, u64, u32)> {
    let mut found = Vec::new();
    for thread in recording.threads() {
        let Some(track) = &thread.device else { continue };
        let visit = |event: &Event<'_>| {
            if let What::Scope { start, end, .. } = event.what {
                found.push((event.name().to_owned(), track.row, start, end, event.depth));
            }
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, visit).expect("sound");
    }
    found
}

#[test]
fn events_of_a_queue_nest_or_go_to_further_rows() {
    let events =
        vec![("outer", 10, 100), ("inner", 10, 40), ("later", 40, 90), ("across", 95, 120), ("after", 130, 131)];
    let found = on_queues(&recorded_with(Scripted { events, ..Scripted::default() }));
    let expected = [
        ("inner", 0, 10, 40, 1),
        ("later", 0, 40, 90, 1),
        ("outer", 0, 10, 100, 0),
        ("after", 0, 130, 131, 0),
        ("across", 1, 95, 120, 0),
    ];
    let expected = expected.map(|(name, row, start, end, depth)| (name.to_owned(), row, start, end, depth));
    assert_eq!(found, expected);
}

#[test]
fn what_ends_before_it_begins_or_comes_too_late_is_counted() {
    let events = vec![("bad", 10, 5), ("good", 10, 20), ("late", 1, 2)];
    let recording = recorded_with(Scripted { events, ..Scripted::default() });
    let found = on_queues(&recording);
    assert_eq!(found.iter().map(|event| event.0.as_str()).collect::<Vec<_>>(), ["good", "late"]);
    assert_eq!(found[1].1, 1, "on a row of its own");
    let lost: u64 = recording.threads().iter().map(|thread| thread.lost.events).sum();
    assert_eq!(lost + recording.status().lost.events, 1);
}

/// They are handed over by the session's own thread after 10 ms, or by whoever stops the session;
/// neither waits for the other.
#[test]
fn all_events_of_a_device_go_through_a_stream_that_is_smaller() {
    for wait_ms in [0, 50] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("stream.rec");
        let events: Vec<(&str, u64, u64)> = (0..60_000).map(|at| ("kernel", at * 10, at * 10 + 9)).collect();
        let policy = Policy::Stream { bytes: 1 << 20, every: std::time::Duration::from_millis(5) };
        let builder = Recorder::builder().reach(Reach::Thread).policy(policy).spill(&path);
        let session = builder.backend(Scripted { events, ..Scripted::default() }).start().expect("room");
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        drop(session.finish().expect("whole"));
        let found = on_queues(&Recording::open(&path).expect("sound"));
        assert_eq!(found.len(), 60_000);
        assert!(found.iter().zip(0..).all(|(event, at)| (event.2, event.3, event.4) == (at * 10, at * 10 + 9, 0)));
    }
}

#[test]
fn what_a_device_loses_for_want_of_room_is_counted() {
    let events: Vec<(&str, u64, u64)> = (0..60_000).map(|at| ("kernel", at * 10, at * 10 + 9)).collect();
    let recording = recorded_with(Scripted { events, ..Scripted::default() });
    let found = on_queues(&recording).len() as u64;
    let lost: u64 = recording.threads().iter().map(|thread| thread.lost.events).sum();
    assert!(found > 0 && lost > 0, "{found} {lost}");
    assert_eq!(found + lost + recording.status().lost.events, 60_000);
}

#[test]
fn a_device_of_its_own_clock_is_mapped_by_its_pairs() {
    let pairs = vec![(1000, 500_000), (2000, 503_000)];
    let events = vec![("a", 1000, 1500), ("b", 2500, 3000)];
    let recording = recorded_with(Scripted { events: events.clone(), pairs, own: true, ..Scripted::default() });
    let times: Vec<(u64, u64)> = on_queues(&recording).iter().map(|event| (event.2, event.3)).collect();
    assert_eq!(times, [(500_000, 501_500), (504_500, 506_000)]);
    let without = recorded_with(Scripted { events, own: true, ..Scripted::default() });
    let track = without.threads().iter().find_map(|thread| thread.device.clone()).expect("there is a queue");
    assert!(!track.placed, "no pair: {track:?}");
}

#[test]
fn an_absent_or_failing_backend_is_said_and_the_session_goes_on() {
    let check = |backend: Scripted, during: &str, after: Option<&str>| {
        let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
        let session = builder.backend(backend).start().expect("nothing else records this thread");
        let choices = session.choices().join("\n");
        assert!(choices.contains(during), "{choices}");
        drop(scope!("goes on"));
        let recording = session.finish().expect("whole");
        let notes = recording.notes().join("\n");
        assert!(notes.contains(after.unwrap_or(during)), "{notes}");
        let events: u64 = recording.threads().iter().map(|thread| thread.events).sum();
        assert_eq!(events, 1);
    };
    let absent = Some(Err("no driver is loaded".into()));
    let absent = Scripted { prepare: absent, ..Scripted::default() };
    check(absent, "backend scripted: not available, the session continues without it: no driver is loaded", None);
    let failing = Scripted { start: Some(Err("busy".into())), ..Scripted::default() };
    check(failing, "backend scripted: failed: it did not start: busy", None);
    let panicking = Scripted { panics_at_stop: true, ..Scripted::default() };
    check(panicking, "backend scripted: started", Some("backend scripted: failed: it panicked"));
}

#[test]
fn a_backend_that_is_not_for_the_reach_is_refused() {
    let backend = Scripted { of_process: true, ..Scripted::default() };
    let refused = Recorder::builder().reach(Reach::Thread).backend(backend).start().expect_err("it serves all threads");
    assert!(matches!(&refused, Error::BackendNotForReach { backend, .. } if backend == "scripted"));
    assert_eq!(refused.to_string(), "the backend scripted does not support thread: record the process");
}

#[test]
fn a_backend_serves_one_session_at_a_time() {
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
    let builder = builder.backend(Scripted::default());
    let state = |session: &crate::Session| session.backends()[0].state.clone();
    let first = builder.clone().start().expect("room");
    let second = builder.clone().start().expect("room");
    assert_eq!(state(&first), BackendState::Running);
    assert!(matches!(state(&second), BackendState::Absent(reason) if reason.contains("another session")));
    drop(first.finish().expect("whole"));
    drop(second.finish().expect("whole"));
    assert_eq!(state(&builder.start().expect("room")), BackendState::Running);
}

/// Counts scopes, and how deep they were.
struct Counting(Arc<[AtomicU64; 3]>, Result<(), String>);

impl MarkerSink for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn is_present(&self) -> Result<(), String> {
        self.1.clone()
    }

    fn begin(&self, site: &'static Site) {
        assert_ne!(site.name(), "not this kind");
        let depth = self.0[0].fetch_add(1, Ordering::Relaxed) + 1;
        self.0[1].fetch_max(depth, Ordering::Relaxed);
        self.0[2].fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0[0].fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn scopes_are_forwarded_to_markers_while_their_session_runs() {
    let counts: Arc<[AtomicU64; 3]> = Arc::default();
    let builder =
        Recorder::builder().reach(Reach::Thread).kinds(&[Kind::Io]).policy(Policy::DropNewest { bytes: 1 << 20 });
    let builder = builder.backend(Markers::to(Counting(Arc::clone(&counts), Ok(()))));
    drop(scope!(Kind::Io, "before"));
    let session = builder.start().expect("nothing else records this thread");
    {
        let _outer = scope!(Kind::Io, "outer");
        drop(scope!(Kind::Io, "inner"));
        drop(scope!(Kind::User, "not this kind"));
    }
    let recording = session.finish().expect("whole");
    drop(scope!(Kind::Io, "after"));
    assert_eq!(counts.each_ref().map(|count| count.load(Ordering::Relaxed)), [0, 2, 2]);
    assert_eq!(recording.threads().iter().map(|thread| thread.events).sum::<u64>(), 2);
    let mut arguments = 0;
    for thread in recording.threads() {
        let visit = |event: &Event<'_>| {
            arguments += event.arguments().filter(|(_, value)| *value != ArgumentValue::Boolean(true)).count();
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, visit).expect("sound");
    }
    assert_eq!(arguments, 0);
}

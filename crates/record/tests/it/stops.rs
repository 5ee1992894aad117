//! Sessions end while others record, and threads end while sessions go on.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use probe_sync_record::read::What;
use probe_sync_record::{Error, Policy, Reach, Recorder, correlate, instant, scope, span};

use crate::support::{Stopping, alone, sums, tallies};

/// Threads that record as fast as they can, until the guard is dropped.
fn busy<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    stop: &'scope AtomicBool,
    threads: u64,
) -> Stopping<'scope> {
    for thread in 0..threads {
        let body = move || {
            let mut n = 0_u64;
            while !stop.load(Ordering::Acquire) {
                let _outer = scope!("outer", thread = thread);
                for _ in 0..100 {
                    drop(scope!("work", n = n));
                    n += 1;
                }
                instant!("moment", text = "a text that takes some words");
            }
        };
        std::thread::Builder::new().name(format!("w{thread}")).spawn_scoped(scope, body).expect("a thread");
    }
    Stopping(stop)
}

/// pytorch#64795: a profiler that was stopped by another thread than had started it crashed.
#[test]
#[ignore = "long: repeats a race hundreds of times"]
fn another_thread_stops_while_eight_record() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _busy = busy(scope, &stop, 8);
        for round in 0..200 {
            let (bytes, every) = (1 << 20, Duration::from_millis(1));
            let builder = match round % 3 {
                0 => Recorder::builder().policy(Policy::DropNewest { bytes }),
                1 => Recorder::builder().policy(Policy::Flight { bytes }),
                _ => {
                    let path = folder.path().join(format!("{round}.rec"));
                    Recorder::builder().policy(Policy::Stream { bytes, every }).spill(path)
                }
            };
            let session = builder.start().expect("the one before has ended");
            std::thread::sleep(Duration::from_micros(round * 20));
            let recording = scope.spawn(move || session.finish()).join().expect("no panic").expect("whole");
            let threads = tallies(&recording);
            assert!(threads.keys().all(|name| name.starts_with('w')), "{:?}", threads.keys());
            assert!(recording.status().finished && recording.status().overwritten == 0);
        }
    });
}

#[test]
#[ignore = "long: repeats a race hundreds of times"]
fn a_copy_is_taken_while_eight_record() {
    let _alone = alone();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _busy = busy(scope, &stop, 8);
        for policy in [Policy::DropNewest { bytes: 4 << 20 }, Policy::Flight { bytes: 1 << 20 }] {
            let session = Recorder::builder().policy(policy).start().expect("nothing else records");
            for _ in 0..50 {
                let recording = session.snapshot().expect("it goes on");
                drop(tallies(&recording));
                assert!(!recording.status().finished);
            }
            drop(tallies(&session.finish().expect("whole")));
        }
    });
}

#[test]
fn sessions_pause_while_threads_record() {
    let _alone = alone();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _busy = busy(scope, &stop, 4);
        let session = Recorder::builder()
            .policy(Policy::Flight { bytes: 1 << 20 })
            .paused()
            .start()
            .expect("nothing else records");
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(sums(&session.snapshot().expect("it goes on")), [0, 0, 0]);
        for _ in 0..50 {
            session.resume().expect("own");
            std::thread::sleep(Duration::from_millis(2));
            session.pause().expect("own");
            let newest = || {
                let threads = tallies(&session.snapshot().expect("it goes on"));
                let newest = threads.into_iter().map(|(name, tally)| (name, tally.numbers.last().copied()));
                newest.collect::<BTreeMap<_, _>>()
            };
            let held = newest();
            std::thread::sleep(Duration::from_micros(200));
            for (name, later) in newest() {
                // A scope that was open ends as it does. Older ones may be replaced by that.
                let before = held.get(&name).copied().flatten();
                assert!(before.is_none() || later <= before.map(|before| before + 1), "{name}: {before:?} {later:?}");
            }
        }
        let recording = session.finish().expect("whole");
        assert!(sums(&recording)[0] > 0 && recording.status().pauses == 101);
    });
}

/// kineto#443: threads that were there for a short time only were missing in a trace.
#[test]
fn short_threads_are_all_there_and_give_back_what_they_had() {
    const THREADS: u64 = 10_000;
    let _alone = alone();
    let policy = Policy::DropNewest { bytes: 64 << 20 };
    let session = Recorder::builder().policy(policy).threads(64).start().expect("nothing else records");
    for _ in 0..THREADS / 8 {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let body = || {
                    for n in 0..3_u64 {
                        drop(scope!("work", n = n));
                    }
                };
                std::thread::Builder::new().name("short".into()).spawn_scoped(scope, body).expect("a thread");
            }
        });
    }
    let counts = session.counts();
    assert!(counts.threads <= 8, "slots come back: {counts:?}");
    let recording = session.finish().expect("whole");
    assert_eq!(sums(&recording), [3 * THREADS, 0, 0]);
    assert_eq!(recording.threads().len() as u64, THREADS);
    assert!(recording.threads().iter().all(|thread| thread.events == 3 && thread.tid > 0 && thread.name == "short"));
    assert_eq!((recording.status().definitions_lost, recording.status().lost.events), (0, 0));
}

/// A thread that continues in a chunk left by another has its events in order all the same.
#[test]
fn a_thread_that_goes_on_in_another_ones_chunk_keeps_its_order() {
    let _alone = alone();
    let session = Recorder::builder().policy(Policy::DropNewest { bytes: 1 << 20 }).start().expect("nothing else");
    let long = || {
        for n in 0..2000_u64 {
            if n % 100 == 0 {
                // It leaves a chunk that is older than this thread's next.
                std::thread::spawn(|| drop(scope!("short"))).join().expect("no panic");
            }
            drop(scope!("work", n = n));
        }
    };
    std::thread::Builder::new().name("long".into()).spawn(long).expect("a thread").join().expect("no panic");
    // Looks at the order.
    let threads = tallies(&session.finish().expect("whole"));
    // Threads without a name of their own have that of who made them.
    assert_eq!(threads["long"].events() + threads["long"].lost, 2020);
}

/// What a thread lost, and how many handlers came, stays known when its slot is another's.
#[test]
fn losses_of_threads_that_have_ended_stay_theirs() {
    let _alone = alone();
    let policy = Policy::DropNewest { bytes: 512 << 10 };
    let session = Recorder::builder().policy(policy).threads(2).start().expect("nothing else records");
    let run = |name: &str| {
        let body = || (0..20_000_u64).for_each(|n| drop(scope!("work", n = n)));
        std::thread::Builder::new().name(name.into()).spawn(body).expect("a thread").join().expect("no panic");
    };
    ["first", "second", "third"].into_iter().for_each(run);
    let lost = session.counts().lost;
    let recording = session.finish().expect("whole");
    let threads = tallies(&recording);
    for name in ["first", "second", "third"] {
        assert_eq!(threads[name].events() + threads[name].lost, 20_000, "{name}");
    }
    assert!(threads["third"].events() == 0 && threads["third"].lost == 20_000, "not even a chunk was left");
    assert_eq!(lost, threads.values().map(|tally| tally.lost).sum::<u64>());
}

#[test]
fn scopes_open_when_their_thread_ends_or_leaves_are_closed_then() {
    let _alone = alone();
    let session = Recorder::builder().reach(Reach::Process).start().expect("nothing else records");
    let forget = || {
        std::mem::forget(scope!("outer"));
        std::mem::forget(scope!("inner"));
    };
    std::thread::Builder::new().name("ends".into()).spawn(forget).expect("a thread").join().expect("no panic");
    let recording = session.finish().expect("whole");
    assert_eq!(tallies(&recording)["ends"].names.values().sum::<u64>(), 2);
    let serial = recording.threads()[0].serial;
    let all_unfinished = |event: &probe_sync_record::read::Event<'_>| {
        assert!(matches!(event.what, What::Scope { unfinished: true, .. }), "{event:?}");
        Ok::<(), Error>(())
    };
    recording.visit(serial, all_unfinished).expect("sound");

    let session = Recorder::builder().reach(Reach::Thread).start().expect("nothing else records this thread");
    let adopter = session.adopter();
    let leaves = move || {
        let adopted = adopter.adopt();
        let open = scope!("open");
        drop(adopted);
        drop(scope!("not recorded"));
        drop(open);
        drop(scope!("not recorded"));
    };
    std::thread::Builder::new().name("leaves".into()).spawn(leaves).expect("a thread").join().expect("no panic");
    let tally = tallies(&session.finish().expect("whole")).remove("leaves").expect("it took part");
    assert_eq!(tally.names.into_iter().collect::<Vec<_>>(), [("open".to_owned(), 1)]);
}

#[test]
fn ids_have_64_bits_and_are_each_ones_own() {
    let _alone = alone();
    let session = Recorder::builder().start().expect("nothing else records");
    let given = u64::MAX - 5;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    drop(scope!("own"));
                }
                let _id = correlate(given);
                drop(scope!("given"));
                span!("span").end();
            });
        }
    });
    let recording = session.finish().expect("whole");
    let (mut own, mut of_caller) = (HashSet::new(), 0);
    for thread in recording.threads() {
        let take = |event: &probe_sync_record::read::Event<'_>| {
            match event.what {
                What::Scope { id, .. } if id == given => of_caller += 1,
                What::Scope { id, .. } => assert!(own.insert(id) && id > u64::from(u32::MAX), "{id}"),
                What::SpanBegin { id, .. } | What::SpanEnd { id, .. } => assert_eq!(id, given),
                _ => panic!("{event:?}"),
            }
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, take).expect("sound");
    }
    assert_eq!((own.len(), of_caller), (4000, 4));
}

/// Threads meet at a site that has no number yet: who comes second waits rather than lose its
/// event.
#[test]
fn the_first_event_of_a_site_is_recorded_on_every_thread() {
    let _alone = alone();
    let session = Recorder::builder().start().expect("nothing else records");
    let made = AtomicU64::new(0);
    for round in 0..200 {
        let site = probe_sync_record::Site::named(probe_sync_record::Kind::User, &format!("first {round}"));
        let site = site.expect("few names");
        let ready = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    ready.wait();
                    drop(probe_sync_record::Scope::enter(site));
                    made.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
    }
    let recording = session.finish().expect("whole");
    assert_eq!(sums(&recording), [made.load(Ordering::Relaxed), 0, 0]);
}

//! Every policy with every reach, nesting and way to end: counts are exact, and each recording
//! holds its own span. Every set of kinds holds events of these kinds.

use std::path::Path;
use std::time::{Duration, Instant};

use probe_sync_record::read::Event;
use probe_sync_record::{Builder, Error, Kind, Policy, Reach, Recorder, Recording, Session, counter, instant, scope};

use crate::support::{Tally, alone, sums, tallies};

#[derive(Copy, Clone, Debug, PartialEq)]
enum Keeps {
    Newest,
    Oldest,
    OldestOfSpan,
    Streamed,
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Whose {
    Process,
    Thread,
    Adopted,
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Way {
    Finish,
    Drop,
    OtherThread,
    AfterItsThreads,
}

const BYTES: usize = 1 << 20;

fn builder(keeps: Keeps, whose: Whose, path: &Path) -> Builder {
    let reach = if whose == Whose::Process { Reach::Process } else { Reach::Thread };
    let builder = Recorder::builder().reach(reach).spill(path).threads(8);
    match keeps {
        Keeps::Oldest => builder.policy(Policy::DropNewest { bytes: BYTES }),
        Keeps::Newest => builder.policy(Policy::Flight { bytes: BYTES }),
        Keeps::OldestOfSpan => builder.policy(Policy::Flight { bytes: BYTES }).keep(Duration::from_secs(3600)),
        Keeps::Streamed => builder.policy(Policy::Stream { bytes: BYTES, every: Duration::from_millis(1) }),
    }
}

fn work(count: u64) {
    for n in 0..count {
        drop(scope!("work", n = n));
    }
}

fn named(name: &str, body: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new().name(name.into()).spawn(body).expect("a thread")
}

fn end(session: Session, way: Way, path: &Path) -> Recording {
    match way {
        Way::Finish | Way::AfterItsThreads => session.finish().expect("whole"),
        Way::Drop => {
            drop(session);
            Recording::open(path).expect("whole")
        }
        Way::OtherThread => std::thread::spawn(move || session.finish()).join().expect("no panic").expect("whole"),
    }
}

/// One row: sessions of this thread nest within, and each holds what was made while it was open.
fn check(keeps: Keeps, whose: Whose, nesting: usize, way: Way, count: u64) {
    let row = format!("{keeps:?} {whose:?} {nesting} {way:?} {count}");
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("outer.rec");
    let session = builder(keeps, whose, &path).start().unwrap_or_else(|error| panic!("{row}: {error}"));
    let (adopter, stay) = (session.adopter(), std::sync::Arc::new(std::sync::Barrier::new(2)));
    let waits = (way != Way::AfterItsThreads).then(|| stay.clone());
    let other = named("other", move || {
        let adopted = (whose == Whose::Adopted).then(|| adopter.adopt());
        work(count);
        if let Some(stay) = waits {
            stay.wait();
            stay.wait();
        }
        drop(adopted);
    });
    let own = named_here(|| nested(nesting, count, &row));
    let mut other = Some(other);
    if way == Way::AfterItsThreads {
        other.take().into_iter().for_each(|thread| thread.join().expect("no panic"));
    } else {
        stay.wait();
    }
    let recording = end(session, way, &path);
    if let Some(other) = other {
        stay.wait();
        other.join().expect("no panic");
    }
    assert!(recording.status().finished && recording.pairs().len() >= 2, "{row}");
    let is_exact = |made: u64, name: &str| {
        let tally = tallies(&recording).remove(name).unwrap_or_default();
        let lost = tally.lost + recording.status().lost.events;
        assert!(lost + tally.events() <= made, "{row}: {name} {} + {lost} of {made}", tally.events());
        assert!(made == 0 || count > 1000 || tally.events() > 0, "{row}: {name} is missing");
    };
    let made = own + if whose == Whose::Thread { 0 } else { count };
    is_exact(own, OWN);
    is_exact(made - own, "other");
    let [recorded, lost, replaced] = sums(&recording);
    assert_eq!(recorded + lost + replaced, made, "{row}: {recorded} + {lost} + {replaced}");
    match keeps {
        Keeps::Oldest => assert_eq!(replaced, 0, "{row}"),
        Keeps::Streamed => assert_eq!(replaced, 0, "{row}"),
        Keeps::Newest | Keeps::OldestOfSpan => {
            assert_eq!(lost, 0, "{row}");
            let last = tallies(&recording)[OWN].names.get("last").copied();
            assert_eq!(last, Some(1), "{row}: the newest are there");
        }
    }
    if count < 1000 {
        assert_eq!((recorded, lost), (made, 0), "{row}: there was room for all");
    }
}

/// The name of the thread that runs a row.
const OWN: &str = "row";

/// Events of this thread while sessions of it nest; how many there were.
fn named_here(body: impl FnOnce() -> u64) -> u64 {
    let _outer = scope!("before the last");
    let made = body();
    drop(_outer);
    drop(scope!("last"));
    made + 2
}

fn nested(depth: usize, count: u64, row: &str) -> u64 {
    if depth == 0 {
        work(count);
        return count;
    }
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 16 << 20 }).threads(1);
    let session = builder.start().unwrap_or_else(|error| panic!("{row}: {error}"));
    // It begins before the next session and ends after it.
    let around = scope!("around");
    let within = nested(depth - 1, count, row);
    drop(around);
    let recording = session.finish().expect("whole");
    let threads = tallies(&recording);
    let own: Tally = threads.values().next().cloned().unwrap_or_default();
    assert_eq!((threads.len(), own.events(), own.lost), (1, within + 1, 0), "{row}: session {depth}");
    within + 1
}

/// Rows run on a thread of a name of their own.
fn run(rows: impl FnOnce() + Send + 'static) {
    let _alone = alone();
    named(OWN, rows).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

const WAYS: [Way; 4] = [Way::Finish, Way::Drop, Way::OtherThread, Way::AfterItsThreads];
const WHOSE: [Whose; 3] = [Whose::Process, Whose::Thread, Whose::Adopted];

/// A quarter of the rows: every reach meets every way to end and every depth of nesting.
fn some_rows(keeps: Keeps) {
    rows(keeps, |whose, way, nesting| (whose + way + nesting) % 4 == 0);
}

fn rows(keeps: Keeps, is_wanted: impl Fn(usize, usize, usize) -> bool + Send + 'static) {
    run(move || {
        for (at_whose, whose) in WHOSE.into_iter().enumerate() {
            for (at_way, way) in WAYS.into_iter().enumerate() {
                for nesting in (0..=3).filter(|nesting| is_wanted(at_whose, at_way, *nesting)) {
                    // The second is more than there is room for.
                    for count in [500, 40_000] {
                        check(keeps, whose, nesting, way, count);
                    }
                }
            }
        }
    });
}

#[test]
fn sessions_that_drop_the_newest_count_exactly() {
    some_rows(Keeps::Oldest);
}

#[test]
fn flight_recorders_count_exactly() {
    some_rows(Keeps::Newest);
}

#[test]
fn flight_recorders_of_a_span_count_exactly() {
    some_rows(Keeps::OldestOfSpan);
}

#[test]
fn streams_count_exactly() {
    some_rows(Keeps::Streamed);
}

#[test]
#[ignore = "long: every combination of policy, reach, way to end and nesting"]
fn every_combination_counts_exactly() {
    for keeps in [Keeps::Oldest, Keeps::Newest, Keeps::OldestOfSpan, Keeps::Streamed] {
        rows(keeps, |_, _, _| true);
    }
}

/// A scope, an instant and a counter of each kind.
fn every_kind() {
    macro_rules! events {
        ($($kind:ident)*) => {
            $({
                drop(scope!(Kind::$kind, "scope", kind = Kind::$kind as u32));
                instant!(Kind::$kind, "instant");
                counter!(Kind::$kind, "counter", 1);
            })*
        };
    }
    events!(Function Backward User Collective Runtime Io Memory Custom);
}

/// Kinds of the events of a recording, in their order, and how many there are.
fn kinds_of(recording: &Recording) -> (Vec<Kind>, u64) {
    let (mut kinds, mut count) = (std::collections::BTreeSet::new(), 0);
    for thread in recording.threads() {
        let take = |event: &Event<'_>| {
            kinds.insert(event.kind());
            count += 1;
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, take).expect("sound");
    }
    (kinds.into_iter().collect(), count)
}

/// Alone and around a session of all other kinds.
#[test]
fn every_set_of_kinds_holds_events_of_these_kinds() {
    run(|| {
        for set in 1..1_u32 << Kind::ALL.len() {
            let (own, other): (Vec<Kind>, Vec<Kind>) =
                Kind::ALL.into_iter().partition(|kind| set & (1 << *kind as u32) != 0);
            let policy =
                if set % 2 == 0 { Policy::DropNewest { bytes: BYTES } } else { Policy::Flight { bytes: BYTES } };
            let builder =
                |kinds: &[Kind]| Recorder::builder().reach(Reach::Thread).policy(policy).threads(1).kinds(kinds);
            let session = builder(&own).start().expect("few");
            every_kind();
            let within = (!other.is_empty()).then(|| builder(&other).start().expect("few"));
            every_kind();
            if let Some(within) = within {
                let recording = within.finish().expect("whole");
                assert_eq!(kinds_of(&recording), (other.clone(), 3 * other.len() as u64), "within {own:?}");
            }
            let recording = session.finish().expect("whole");
            assert_eq!(kinds_of(&recording), (own.clone(), 6 * own.len() as u64));
            let names: Vec<&str> = own.iter().map(|kind| kind.as_str()).collect();
            assert_eq!(recording.facts().kinds, names);
        }
    });
}

#[test]
fn a_flight_recorder_holds_no_more_than_its_span() {
    run(|| {
        let keep = Duration::from_millis(200);
        // On a busy machine the last event may be older than the span when the session ends.
        let in_time = (0..100).find_map(|_| held_in_span(keep));
        let own = in_time.expect("one of many sessions ends within 200 ms of its last event");
        assert_eq!((own.events(), own.names.get("late")), (1, Some(&1)), "{own:?}");
    });
}

/// What a flight recorder holds of events before and within its span; None where the span had
/// passed before the session could end.
fn held_in_span(keep: Duration) -> Option<Tally> {
    let settings = Recorder::builder().policy(Policy::Flight { bytes: BYTES }).keep(keep);
    let session = settings.start().expect("nothing else records");
    work(100);
    std::thread::sleep(keep * 2);
    let late = Instant::now();
    drop(scope!("late"));
    let recording = session.finish().expect("whole");
    (late.elapsed() < keep).then(|| tallies(&recording)[OWN].clone())
}

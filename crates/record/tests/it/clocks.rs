//! Which clock events are stamped with, and pairs that tie it to the system clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use probe_sync_record::read::{Event, What};
use probe_sync_record::{Error, Policy, Reach, RecordClock, Recorder, scope};

use crate::support::alone;

#[test]
fn events_lie_between_the_pairs_on_either_clock() {
    let _alone = alone();
    for clock in [RecordClock::Best, RecordClock::Tsc, RecordClock::MonotonicRaw] {
        let policy = Policy::DropNewest { bytes: 1 << 20 };
        let builder = Recorder::builder().reach(Reach::Thread).clock(clock).policy(policy);
        let session = match builder.pair_period(Duration::from_millis(10)).start() {
            Err(Error::UnsteadyClock { reason }) if clock == RecordClock::Tsc => {
                println!("no time-stamp counter here: {reason}");
                continue;
            }
            other => other.expect("nothing else records this thread"),
        };
        drop(scope!("work"));
        std::thread::sleep(Duration::from_millis(50));
        let recording = session.finish().expect("whole");
        let (pairs, status) = (recording.pairs(), recording.status());
        assert!(pairs.len() >= 3 && pairs.is_sorted_by_key(|pair| pair.ticks), "{pairs:?}");
        assert!(clock == RecordClock::Best || status.counter == (clock == RecordClock::Tsc), "{clock:?}");
        assert_eq!(recording.facts().clock, if status.counter { "tsc" } else { "monotonic_raw" });
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as i64;
        assert!(pairs.iter().all(|pair| (now - pair.system_ns).abs() < 60_000_000_000));
        let inside = |event: &Event<'_>| {
            let What::Scope { start, end, .. } = event.what else { panic!("{event:?}") };
            assert!(pairs[0].ticks <= start && end <= pairs[pairs.len() - 1].ticks && start >= status.start);
            Ok::<(), Error>(())
        };
        recording.visit(recording.threads()[0].serial, inside).expect("sound");
    }
}

#[test]
fn sessions_at_once_have_one_clock() {
    let _alone = alone();
    let start = |clock| Recorder::builder().reach(Reach::Thread).clock(clock).start();
    let first = start(RecordClock::MonotonicRaw).expect("nothing else records this thread");
    let second = start(RecordClock::Best).expect("that of the first");
    assert!(!second.snapshot().expect("it goes on").status().counter);
    if let Err(error) = start(RecordClock::Tsc) {
        assert!(error.to_string().contains("clock"), "{error}");
    } else {
        panic!("two clocks at once");
    }
    drop((first, second));
}

/// More pairs than there is room for: every other one goes, again and again, and the first and the
/// last stay.
#[test]
fn pairs_are_thinned_out_where_there_is_no_room() {
    let _alone = alone();
    let policy = Policy::DropNewest { bytes: 512 << 10 };
    let session = Recorder::builder().reach(Reach::Thread).policy(policy).start().expect("nothing else records");
    let first = session.snapshot().expect("it goes on").pairs()[0];
    // A copy takes a pair.
    for _ in 0..2500 {
        drop(session.snapshot().expect("it goes on"));
    }
    let recording = session.finish().expect("whole");
    let pairs = recording.pairs();
    assert!((512..=1024).contains(&pairs.len()), "{}", pairs.len());
    assert!(pairs.windows(2).all(|two| two[0].ticks < two[1].ticks));
    assert!(pairs[0] == first && pairs[pairs.len() - 1].ticks >= recording.status().end);
}

//! Regions of threads that have met in process: the clocks of all ranks show the reference of all
//! while the regions measure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use probe_sync_collective::InProcess;
use probe_sync_sys::SystemClock;
use probe_sync_time::{Clock as _, Duration};

use super::{Regions, RegionsReport};
use crate::clock::{GlobalClock, Status};
use crate::config::SkewModel;
use crate::session::{Context, Observer, Started};
use crate::{Config, Error};

struct Quiet;

impl Observer for Quiet {
    fn started(&mut self, _: &Started<'_>) {}
    fn round(&mut self, _: &probe_sync_lines::Round, _: StdDuration) {}
}

/// Observations of a clock: number of readings, largest certain error, and widest hard interval of the last
/// readings.
#[derive(Copy, Clone, Debug, Default)]
struct Seen {
    readings: usize,
    worst_ns: i64,
    last_width_ns: i64,
}

/// Reads all clocks until it is told to end. Rank 0's clock is the machine's own, and the global
/// reference.
fn read(clocks: &[GlobalClock], ended: &AtomicBool) -> BTreeMap<usize, Seen> {
    let mut seen: BTreeMap<usize, Seen> = BTreeMap::new();
    while !ended.load(Ordering::Relaxed) {
        for (rank, clock) in clocks.iter().enumerate() {
            let before = SystemClock.now().on_reference();
            let Some(now) = clock.now() else { continue };
            let after = SystemClock.now().on_reference();
            assert!(
                now.earliest <= after && before <= now.latest,
                "rank {rank}: {now:?} excludes {before:?} to {after:?}"
            );
            let of_rank = seen.entry(rank).or_default();
            of_rank.readings += 1;
            if now.status == Status::Synchronised {
                // The truth lies between `before` and `after`, which are milliseconds apart if this
                // thread was not scheduled.
                let error = (before - now.time).max(now.time - after).as_ns().max(0);
                (of_rank.worst_ns, of_rank.last_width_ns) =
                    (of_rank.worst_ns.max(error), (now.latest - now.earliest).as_ns());
            }
        }
        std::thread::sleep(StdDuration::from_millis(2));
    }
    seen
}

#[test]
fn every_ranks_clock_shows_the_reference_of_all_regions() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let regions = ["a", "b", "a", "b", "b"];
    let clocks: Vec<GlobalClock> = regions.iter().map(|_| GlobalClock::new().expect("a page")).collect();
    let rank = |(mut world, region, clock): (InProcess, &str, GlobalClock)| {
        let config = Config {
            window: Some(Duration::from_ms(300)),
            duration: Some(Duration::from_ms(4_000)),
            inject_skew: Some(5),
            skew_model: SkewModel::Sinusoid,
            region: Some(region.to_owned()),
            out: directory.path().join("out"),
            ..Config::default()
        };
        let context = Context { clock: Some(clock), ..Context::default() };
        std::thread::spawn(move || -> Result<Option<RegionsReport>, Error> {
            Regions::meet(Ok(config), &mut world, &context)?.run(&mut Quiet)
        })
    };
    let ranks = InProcess::group(regions.len()).into_iter().zip(regions).zip(&clocks);
    let ranks: Vec<_> = ranks.map(|((world, region), clock)| rank((world, region, clock.clone()))).collect();
    let ended = Arc::new(AtomicBool::new(false));
    let reader = {
        let ended = Arc::clone(&ended);
        std::thread::spawn(move || read(&clocks, &ended))
    };
    let reports: Vec<_> = ranks.into_iter().map(|rank| rank.join().expect("no panic").expect("no error")).collect();
    ended.store(true, Ordering::Relaxed);
    let seen = reader.join().expect("every reading holds the truth");
    assert_eq!(seen.len(), regions.len(), "every rank's clock became known: {seen:?}");
    for (rank, seen) in &seen {
        // Clocks are up to 10 ms apart, and go up to 50 ppm differently: one that shows its
        // region's master is milliseconds off.
        assert!(
            seen.readings > 100 && seen.worst_ns < 1_000_000 && seen.last_width_ns < 2_000_000,
            "rank {rank}: {seen:?}"
        );
    }
    let report = reports.into_iter().flatten().next().expect("rank 0 has the report");
    assert_eq!((report.composed.regions.len(), &report.missing[..]), (2, &[][..]));
}

//! How the runs of a job end: the regions' runs together, the masters' run last.
//!
//! When a region's run has ended in order, for any reason (its time is over, a signal to one of its
//! ranks, `probe_sync ctl`), the job ends: its master notifies the others with a note of the
//! masters' run, and they end their runs. When all remaining runs have ended, the masters' master
//! ends the masters' run. Therefore no line of a region lies beyond the time that the masters' run
//! covers. A region that fails does not end any other run, nor does one whose master is lost; if
//! all have failed the job is over. A master whose region has failed ends the job when it receives
//! a signal.
//!
//! Notes are said again until all is over, so that a master that took a lost one's place hears them
//! too.
//!
//! Where a launcher signals all ranks at once and kills them soon after (mpirun), there is no time
//! for one after the other: a rank that is signalled ends both of its runs at once.
//!
//! It does not end a region whose master is lost; its ranks end by --duration or by their own
//! signal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration as StdDuration, Instant};

use probe_sync_collective::Rank;
use serde::{Deserialize, Serialize};

use crate::round::notes::Notes;
use crate::wire;

/// How a region's run ended, according to its master.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RegionEnd {
    /// True if it ended without an error.
    pub orderly: bool,
    /// True if its files were sent to rank 0, which does not see its directory.
    pub brought: bool,
}

/// Messages between masters.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Said {
    /// To the masters' master: the sender's region has ended.
    Ended(RegionEnd),
    /// To all masters: end the runs of your regions.
    EndNow,
    /// To all masters: all regions have ended, and the masters' run ends too. Each cuts its window
    /// at once.
    EndMasters,
}

/// State shared by the threads of a master's process.
#[derive(Debug, Default)]
pub(super) struct Standing(Mutex<Stood>);

#[derive(Debug, Default)]
struct Stood {
    /// End of this master's region.
    own: Option<RegionEnd>,
    /// Masters that are lost or late, according to the masters' master.
    away: Vec<Rank>,
    /// Whether the masters' run ended normally, once it has ended.
    masters: Option<bool>,
    /// True if the watch is no longer needed.
    over: bool,
}

impl Standing {
    /// Records that this master's region has ended.
    pub fn region_ended(&self, end: RegionEnd) {
        self.see().own = Some(end);
    }

    /// Records which masters are away.
    pub fn away(&self, away: Vec<Rank>) {
        self.see().away = away;
    }

    /// Records that the masters' run is over.
    pub fn masters_ended(&self, orderly: bool) {
        self.see().masters = Some(orderly);
    }

    /// Allows the watch to end.
    pub fn over(&self) {
        self.see().over = true;
    }

    fn see(&self) -> MutexGuard<'_, Stood> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Coordinates the end of the runs, at one master.
pub(super) struct Watch {
    notes: Notes,
    standing: Arc<Standing>,
    /// Raised to end this master's region.
    stop_region: Arc<AtomicBool>,
    /// True if it was raised here, rather than by a signal.
    raised_here: bool,
    /// True if the launcher kills soon after a signal.
    killed_soon: bool,
    /// Raised to end the masters' run.
    stop_masters: Arc<AtomicBool>,
    /// This master's place among the masters, equal to its region's.
    place: Rank,
    /// Ends of the regions, as far as this master was told.
    ended: Vec<Option<RegionEnd>>,
    /// When this master last sent its state.
    said: Option<Instant>,
    /// When the end was requested here.
    called: Option<Instant>,
}

impl Watch {
    pub fn new(
        notes: Notes,
        standing: &Arc<Standing>,
        [stop_region, stop_masters]: [&Arc<AtomicBool>; 2],
        (place, regions): (Rank, usize),
        killed_soon: bool,
    ) -> Self {
        Self {
            notes,
            standing: Arc::clone(standing),
            stop_region: Arc::clone(stop_region),
            raised_here: false,
            killed_soon,
            stop_masters: Arc::clone(stop_masters),
            place,
            ended: vec![None; regions],
            said: None,
            called: None,
        }
    }

    /// Watches until all runs are over; returns the ends of the regions, as far as this master was
    /// told.
    pub fn run(mut self) -> Vec<Option<RegionEnd>> {
        while !self.look() {
            std::thread::sleep(LOOK);
        }
        self.ended
    }

    /// Checks the state once; returns true when all runs are over.
    fn look(&mut self) -> bool {
        let (own, away, masters, over) = {
            let stood = self.standing.see();
            (stood.own, stood.away.clone(), stood.masters, stood.over)
        };
        self.ended[self.place] = own;
        for (rank, note) in self.notes.heard() {
            match wire::decode(&note, rank) {
                Ok(Said::Ended(end)) if rank < self.ended.len() => self.ended[rank] = Some(end),
                Ok(Said::EndNow) => self.end_region(),
                Ok(Said::EndMasters) => self.stop_masters.store(true, Ordering::Relaxed),
                // The masters' run checks what ranks say; a foreign note is no matter of ours.
                Ok(Said::Ended(_)) | Err(_) => {}
            }
        }
        if self.is_killed_soon() || own.is_some_and(|end| !end.orderly) && self.is_signalled() {
            self.stop_masters.store(true, Ordering::Relaxed);
        }
        match masters {
            // Somebody has ended it, so there is nothing more that this region could be put on one
            // timeline with.
            Some(true) => self.end_region(),
            Some(false) => {}
            None if self.notes.leads() => self.lead(&away),
            None => {
                if let Some(end) = own
                    && self.is_time_to_say()
                {
                    self.notes.say(wire::encode(&Said::Ended(end)));
                }
            }
        }
        over
    }

    /// Returns true if this rank was signalled and there is no time to end the runs one after the
    /// other.
    fn is_killed_soon(&self) -> bool {
        self.killed_soon && self.is_signalled()
    }

    fn is_signalled(&self) -> bool {
        !self.raised_here && self.stop_region.load(Ordering::Relaxed)
    }

    fn end_region(&mut self) {
        self.raised_here |= !self.stop_region.swap(true, Ordering::Relaxed);
    }

    /// Coordinates the end, at the masters' master.
    fn lead(&mut self, away: &[Rank]) {
        let late: Vec<Rank> =
            (0..self.ended.len()).filter(|place| self.ended[*place].is_none() && !away.contains(place)).collect();
        if !late.is_empty() && !self.ended.iter().flatten().any(|end| end.orderly) {
            return;
        }
        let called = *self.called.get_or_insert_with(Instant::now);
        self.end_region();
        if late.is_empty() {
            if !self.stop_masters.swap(true, Ordering::Relaxed) {
                self.notes.say(wire::encode(&Said::EndMasters));
            }
        } else if called.elapsed() > LONGEST {
            if !self.stop_masters.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "the masters of regions {late:?} (counted from 0) did not end their runs within {LONGEST:?}; the masters' run \
                    ends without them"
                );
            }
        } else if self.is_time_to_say() {
            self.notes.say(wire::encode(&Said::EndNow));
        }
    }

    fn is_time_to_say(&mut self) -> bool {
        let due = self.said.is_none_or(|said| said.elapsed() > AGAIN);
        if due {
            self.said = Some(Instant::now());
        }
        due
    }
}

/// Time between two checks.
const LOOK: StdDuration = StdDuration::from_millis(20);
/// Time between two messages with the same content.
const AGAIN: StdDuration = StdDuration::from_secs(1);
/// Longest time for regions to end: a rank that hangs costs its region a window and
/// --round-timeout, several times.
const LONGEST: StdDuration = StdDuration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERLY: RegionEnd = RegionEnd { orderly: true, brought: false };

    /// The watches of three masters, with messages delivered by hand.
    struct Three(Vec<One>);

    type One = (Watch, Notes, Arc<Standing>, [Arc<AtomicBool>; 2]);

    impl Three {
        fn new() -> Self {
            Self::of(true)
        }

        fn of(killed_soon: bool) -> Self {
            let one = |place| {
                let (notes, standing) = (Notes::default(), Arc::<Standing>::default());
                let stops: [Arc<AtomicBool>; 2] = Default::default();
                let watch = Watch::new(notes.clone(), &standing, stops.each_ref(), (place, 3), killed_soon);
                (watch, notes, standing, stops)
            };
            Self((0..3).map(one).collect())
        }

        /// Checks all watches, delivers their messages as rounds do, and checks again. Returns the
        /// masters that stop their region and those that stop the masters' run.
        fn look(&mut self, lost: &[usize]) -> (Vec<usize>, Vec<usize>) {
            let there: Vec<usize> = (0..3).filter(|place| !lost.contains(place)).collect();
            let leader = there[0];
            for _ in 0..2 {
                let said: Vec<_> =
                    there.iter().map(|place| (*place, self.0[*place].1.take(*place == leader))).collect();
                for (from, note) in
                    said.into_iter().flat_map(|(from, notes)| notes.into_iter().map(move |note| (from, note)))
                {
                    let to = if from == leader { there[1..].to_vec() } else { vec![leader] };
                    to.into_iter().for_each(|to| self.0[to].1.hear(from, note.clone()));
                }
                there.iter().for_each(|place| assert!(!self.0[*place].0.look()));
                self.0.iter_mut().for_each(|(watch, ..)| watch.said = None);
            }
            let raised = |which: usize| {
                there.iter().copied().filter(|place| self.0[*place].3[which].load(Ordering::Relaxed)).collect()
            };
            (raised(0), raised(1))
        }

        fn ended(&self, place: usize, end: RegionEnd) {
            self.0[place].2.region_ended(end);
        }
    }

    #[test]
    fn the_first_orderly_end_ends_all_regions_and_the_last_ends_the_masters_run() {
        let mut three = Three::new();
        assert_eq!(three.look(&[]), (vec![], vec![]));
        three.ended(2, ORDERLY);
        three.look(&[]);
        assert_eq!(three.look(&[]), (vec![0, 1, 2], vec![]));
        three.ended(0, ORDERLY);
        assert_eq!(three.look(&[]).1, Vec::<usize>::new(), "region 1 goes on");
        three.ended(1, RegionEnd { orderly: false, brought: false });
        three.look(&[]);
        assert_eq!(three.look(&[]).1, [0, 1, 2]);
        assert_eq!(
            three.0[0].0.ended,
            [Some(ORDERLY), Some(RegionEnd { orderly: false, brought: false }), Some(ORDERLY)]
        );
    }

    const FAILED: RegionEnd = RegionEnd { orderly: false, brought: false };

    #[test]
    fn when_all_regions_have_failed_the_job_is_over() {
        let mut three = Three::new();
        (0..2).for_each(|place| three.ended(place, FAILED));
        three.look(&[]);
        assert_eq!(three.look(&[]).1, Vec::<usize>::new(), "region 2 goes on");
        three.ended(2, FAILED);
        three.look(&[]);
        assert_eq!(three.look(&[]).1, [0, 1, 2]);
    }

    #[test]
    fn a_master_whose_region_has_failed_ends_the_job_when_it_is_signalled() {
        let mut three = Three::of(false);
        three.ended(1, FAILED);
        three.look(&[]);
        assert_eq!(three.look(&[]).1, Vec::<usize>::new());
        three.0[1].3[0].store(true, Ordering::Relaxed);
        assert_eq!(three.look(&[]).1, [1]);
    }

    #[test]
    fn a_region_that_fails_or_is_lost_ends_nobody_else() {
        let mut three = Three::new();
        three.ended(1, RegionEnd { orderly: false, brought: false });
        three.look(&[]);
        assert_eq!(three.look(&[2]), (vec![], vec![]));
        three.0[0].2.away(vec![2]);
        three.ended(0, ORDERLY);
        assert_eq!(three.look(&[2]).1, [0, 1], "the lost one is not waited for");
    }

    #[test]
    fn a_master_in_a_lost_ones_place_hears_what_was_said_before() {
        let mut three = Three::new();
        three.ended(2, ORDERLY);
        three.look(&[]);
        // Rank 0 is lost, rank 1 takes its place.
        three.0[1].2.away(vec![0]);
        three.look(&[0]);
        assert_eq!(three.look(&[0]), (vec![1, 2], vec![]));
        three.ended(1, ORDERLY);
        assert_eq!(three.look(&[0]).1, [1, 2]);
    }

    #[test]
    fn a_rank_that_is_killed_soon_after_a_signal_ends_both_runs_at_once() {
        let mut three = Three::new();
        three.0[1].3[0].store(true, Ordering::Relaxed);
        assert_eq!(three.look(&[]), (vec![1], vec![1]));
        // What another master asks for is no signal.
        let mut three = Three::new();
        three.ended(2, ORDERLY);
        three.look(&[]);
        assert_eq!(three.look(&[]), (vec![0, 1, 2], vec![]));
    }

    #[test]
    fn a_masters_run_that_somebody_ended_ends_the_regions_and_one_that_failed_does_not() {
        for orderly in [true, false] {
            let mut three = Three::new();
            three.0[1].2.masters_ended(orderly);
            assert_eq!(three.look(&[]).0, if orderly { vec![1] } else { vec![] });
        }
    }
}

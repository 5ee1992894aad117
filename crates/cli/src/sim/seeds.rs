//! Runs many seeds on all cores and returns their results in seed order.
//!
//! Workers take the next seed from a counter. A seed's result depends on the seed alone and results
//! are put back in order, so the number of cores affects only the running time.
//!
//! Workers keep no packets: they return judgements and, for the first run, the last fits of the
//! nodes.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};

use probe_sync_sim::accuracy::{Plan, SeedRun, judge};
use probe_sync_sim::{Error, Scenario, Window, in_turn};

use crate::progress::Work;

/// The seeds of a command, and its progress.
pub struct Seeds {
    numbers: Vec<u64>,
    stop: Arc<AtomicBool>,
    work: Work,
    /// Runs of the command: seeds times scenarios.
    expected: usize,
    /// Completed parts of all runs, [`PARTS`] per run.
    done: AtomicU64,
}

impl Seeds {
    /// Runs these seeds until `stop` is set.
    pub fn new(numbers: Vec<u64>, stop: Arc<AtomicBool>) -> Self {
        let expected = numbers.len();
        Self { numbers, stop, work: Work::begin("sim"), expected, done: AtomicU64::new(0) }
    }

    /// Number of seeds.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Announces that this many scenarios will be run with all seeds.
    pub fn expect(&mut self, scenarios: usize) {
        self.expected = scenarios * self.numbers.len();
    }

    /// Judges all seeds of a scenario; `None` if a signal interrupted it.
    ///
    /// # Errors
    /// Error of the first seed that failed.
    pub fn run(&self, name: &str, scenario: &Scenario, plan: &Plan) -> Result<Option<Vec<SeedRun>>, Error> {
        // A core that has no seed of its own solves.
        let hand_over = if self.numbers.len() < cores() { beside } else { in_turn };
        self.map(name, |seed, goes_on| {
            let mut run = judge(scenario, seed, plan, goes_on, hand_over)?;
            if let Some(run) = run.as_mut().filter(|_| Some(&seed) != self.numbers.first()) {
                // Megabytes, and one run alone is shown over time.
                run.windows = Vec::new();
            }
            Ok(run)
        })
    }

    /// Does the same work for all seeds. The work reports its progress as a share of its time, is
    /// told whether to continue, and returns `None` if it is not; then this returns `None`, too.
    ///
    /// # Errors
    /// Error of the first seed that failed.
    pub fn map<T: Send>(
        &self,
        name: &str,
        of_seed: impl Fn(u64, &dyn Fn(f64) -> bool) -> Result<Option<T>, Error> + Sync,
    ) -> Result<Option<Vec<T>>, Error> {
        let next = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let results: Mutex<Vec<Option<Result<T, Error>>>> = Mutex::new(self.numbers.iter().map(|_| None).collect());
        let stopped = || self.stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(seed) = self.numbers.get(at).filter(|_| !stopped()) else { return };
                let told = AtomicU64::new(0);
                let goes_on = |share: f64| {
                    self.tell(&told, share, name);
                    !stopped()
                };
                let result = of_seed(*seed, &goes_on);
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                let Some(result) = result.transpose() else { return };
                // A worker that panicked has poisoned nothing that matters: its slot stays empty.
                results.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(result);
                self.tell(&told, 1.0, name);
            }
        };
        let workers = cores().min(self.numbers.len());
        std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
        let mut all = Vec::with_capacity(self.numbers.len());
        let mut whole = true;
        for result in results.into_inner().unwrap_or_else(PoisonError::into_inner) {
            match result {
                Some(result) => all.push(result?),
                None => whole = false,
            }
        }
        Ok(whole.then_some(all))
    }

    /// Reports the share of a run that is done; `told` counts the parts reported before.
    fn tell(&self, told: &AtomicU64, share: f64, name: &str) {
        let parts = (share * PARTS) as u64;
        let new = parts.saturating_sub(told.fetch_max(parts, Ordering::Relaxed));
        let done = self.done.fetch_add(new, Ordering::Relaxed) + new;
        self.work.at(done as f64 / (PARTS * self.expected.max(1) as f64), name);
    }

    /// Removes the progress display.
    pub fn finish(&self) {
        self.work.finish();
    }
}

/// Simulates on this thread while another solves the windows: neither depends on the other, so the
/// results equal those of doing both in turn.
fn beside(make: &mut dyn FnMut() -> Option<Window>, take: &mut (dyn FnMut(Window) + Send)) {
    std::thread::scope(|scope| {
        // One window is solved, one may wait, and one is simulated: each holds all its packets.
        let (sender, windows) = sync_channel(0);
        scope.spawn(move || windows.into_iter().for_each(take));
        while let Some(window) = make() {
            if sender.send(window).is_err() {
                // The other has panicked, which the scope passes on.
                return;
            }
        }
    });
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

const PARTS: f64 = 1e4;

#[cfg(test)]
mod tests {
    use probe_sync_sim::accuracy::Method;
    use probe_sync_time::Duration;

    use super::*;

    #[test]
    fn windows_that_are_solved_beside_the_simulation_are_judged_the_same() {
        let scenario = Scenario { nodes: 4, ..Scenario::default() };
        let (duration, window) = (Duration::from_ms(6_000), Duration::from_ms(1_000));
        let plan = Plan { duration, window, methods: Method::ALL.to_vec() };
        let [one, two] = [in_turn, beside].map(|hand_over| judge(&scenario, 7, &plan, &|_| true, hand_over));
        let run = one.expect("a sound scenario");
        assert!(run.as_ref().is_some_and(|run| run.methods.iter().all(|(_, judged)| !judged.is_empty())));
        assert_eq!(run, two.expect("a sound scenario"));
    }
}

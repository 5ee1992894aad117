//! Many seeds on all cores, their results in the order of the seeds.
//!
//! Place in the flow: between `sim` and `probe_sync_sim::accuracy::judge`. Workers take the next seed from a counter; a seed's
//! result depends on the seed alone, and results are put back in order, so the number of cores changes nothing but the time.
//!
//! What it does not do: keep packets; a run's judgements are all that leaves a worker.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use probe_sync_sim::accuracy::{Plan, SeedRun, judge};
use probe_sync_sim::{Error, Scenario};

use crate::progress::Work;

/// The seeds of a command, and how far it has come.
pub struct Seeds {
    numbers: Vec<u64>,
    stop: Arc<AtomicBool>,
    work: Work,
    /// Runs of the command: seeds times scenarios.
    expected: usize,
    /// Parts of a run, [`PARTS`] each, that are done of all.
    done: AtomicU64,
}

impl Seeds {
    /// These seeds, until `stop` is raised.
    pub fn new(numbers: Vec<u64>, stop: Arc<AtomicBool>) -> Self {
        let expected = numbers.len();
        Self { numbers, stop, work: Work::begin("sim"), expected, done: AtomicU64::new(0) }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// So many scenarios will be run with all seeds.
    pub fn expect(&mut self, scenarios: usize) {
        self.expected = scenarios * self.numbers.len();
    }

    /// Judges all seeds of a scenario; None when a signal ended it.
    ///
    /// # Errors
    /// The first seed's that failed.
    pub fn run(&self, name: &str, scenario: &Scenario, plan: &Plan) -> Result<Option<Vec<SeedRun>>, Error> {
        self.map(name, |seed, goes_on| judge(scenario, seed, plan, goes_on))
    }

    /// Does the same work for all seeds. The work tells which share of its time is over, hears whether to go on, and gives None when it is not to; this then
    /// does, too.
    ///
    /// # Errors
    /// The first seed's that failed.
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
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(self.numbers.len());
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

    /// This share of a run is done, of which so many parts had been told before.
    fn tell(&self, told: &AtomicU64, share: f64, name: &str) {
        let parts = (share * PARTS) as u64;
        let new = parts.saturating_sub(told.fetch_max(parts, Ordering::Relaxed));
        let done = self.done.fetch_add(new, Ordering::Relaxed) + new;
        self.work.at(done as f64 / (PARTS * self.expected.max(1) as f64), name);
    }

    /// Takes the progress away.
    pub fn finish(&self) {
        self.work.finish();
    }
}

const PARTS: f64 = 1e4;

//! Many seeds on all cores, their results in the order of the seeds.
//!
//! Place in the flow: between `sim` and `probe_sync_sim::accuracy::judge`. Workers take the next seed from a counter; a seed's
//! result depends on the seed alone, and results are put back in order, so the number of cores changes nothing but the time.
//!
//! What it does not do: keep packets; a run's judgements are all that leaves a worker.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use probe_sync_sim::accuracy::{Plan, SeedRun, judge};
use probe_sync_sim::{Error, Scenario};

/// The seeds of a command, and how far it has come.
pub struct Seeds {
    numbers: Vec<u64>,
    stop: Arc<AtomicBool>,
    bar: ProgressBar,
}

impl Seeds {
    /// These seeds, until `stop` is raised.
    pub fn new(numbers: Vec<u64>, stop: Arc<AtomicBool>) -> Self {
        Self { numbers, stop, bar: ProgressBar::hidden() }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Shows the progress over so many scenarios, on a terminal.
    pub fn expect(&mut self, scenarios: usize) {
        let total = (scenarios * self.numbers.len()) as u64;
        let target =
            if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{elapsed_precise} {bar:30} {pos}/{len} runs, {eta} left: {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        self.bar = ProgressBar::with_draw_target(Some(total), target).with_style(style);
    }

    /// Judges all seeds of a scenario; None when a signal ended it.
    ///
    /// # Errors
    /// The first seed's that failed.
    pub fn run(&self, name: &str, scenario: &Scenario, plan: &Plan) -> Result<Option<Vec<SeedRun>>, Error> {
        self.map(name, |seed, stopped| judge(scenario, seed, plan, stopped))
    }

    /// Does the same work for all seeds; the work gives None when it was told to stop, and this then does too.
    ///
    /// # Errors
    /// The first seed's that failed.
    pub fn map<T: Send>(
        &self,
        name: &str,
        of_seed: impl Fn(u64, &dyn Fn() -> bool) -> Result<Option<T>, Error> + Sync,
    ) -> Result<Option<Vec<T>>, Error> {
        self.bar.set_message(name.to_owned());
        let next = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let results: Mutex<Vec<Option<Result<T, Error>>>> = Mutex::new(self.numbers.iter().map(|_| None).collect());
        let stopped = || self.stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(seed) = self.numbers.get(at).filter(|_| !stopped()) else { return };
                let result = of_seed(*seed, &stopped);
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                let Some(result) = result.transpose() else { return };
                // A worker that panicked has poisoned nothing that matters: its slot stays empty.
                results.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(result);
                self.bar.inc(1);
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

    /// Takes the progress away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

//! A simulated job: ranks that arrive at the operations of one group, with clocks that are wrong.

use probe_sync_lateness::live::{Batch, Clocks, Event, GroupArrivals, Place, Stamp, Watch};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// How ranks differ by chance.
#[derive(Copy, Clone, Debug)]
pub enum Noise {
    Gaussian,
    /// Pareto with exponent 2.5: hiccups of any size.
    Heavy,
}

/// A job and its clocks.
pub struct Job {
    pub ranks: u32,
    pub ranks_per_host: u32,
    /// Length of a step, ns.
    pub step_ns: i64,
    /// Scale of what ranks differ by, ns.
    pub noise_ns: f64,
    pub noise: Noise,
    /// Error of each rank's mapped time, ns.
    pub errors_ns: Vec<i64>,
    /// Stated standard deviation of those errors, ns.
    pub sigma_ns: f64,
    /// Offset of each rank's own clock, ns.
    pub offsets_ns: Vec<i64>,
    random: ChaCha8Rng,
    pub watch: Watch,
    pub now_ns: i64,
    pub step: u64,
    unsaid: Vec<Vec<Stamp>>,
    /// Arrivals of each rank that were lost.
    pub dropped: Vec<u64>,
    /// Ranks that report, but nothing new since a time, ns.
    pub unchanged: Vec<(u32, i64)>,
}

struct Offsets<'a>(&'a [i64], &'a [i64], f64);

impl Clocks for Offsets<'_> {
    fn on_reference(&self, rank: u32, at_ns: i64) -> Option<(i64, f64)> {
        Some((at_ns - self.0[rank as usize] + self.1[rank as usize], self.2))
    }
}

impl Job {
    pub fn new(ranks: u32, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let offsets_ns = (0..ranks).map(|_| random.random_range(-20_000_000..20_000_000)).collect();
        Self {
            ranks,
            ranks_per_host: 1,
            step_ns: 30_000_000,
            noise_ns: 50_000.0,
            noise: Noise::Gaussian,
            errors_ns: vec![0; ranks as usize],
            sigma_ns: 1000.0,
            offsets_ns,
            random,
            watch: Watch::default(),
            now_ns: 1_800_000_000_000_000_000,
            step: 0,
            unsaid: vec![Vec::new(); ranks as usize],
            dropped: vec![0; ranks as usize],
            unchanged: Vec::new(),
        }
        .placed(1)
    }

    pub fn placed(mut self, ranks_per_host: u32) -> Self {
        self.ranks_per_host = ranks_per_host;
        let place = |rank: u32| Place { host: rank / ranks_per_host, clock: rank / ranks_per_host };
        self.watch = Watch::new((0..self.ranks).map(place).collect());
        self
    }

    fn noise(&mut self) -> i64 {
        let uniform = self.random.random::<f64>().max(1e-12);
        let drawn = match self.noise {
            Noise::Gaussian => {
                (-2.0 * uniform.ln()).sqrt() * (std::f64::consts::TAU * self.random.random::<f64>()).cos()
            }
            Noise::Heavy => uniform.powf(-1.0 / 2.5) - 1.0,
        };
        (drawn * self.noise_ns) as i64
    }

    /// One step in which each rank comes later by `delay`, ns; None: it does not come.
    pub fn step(&mut self, delay: impl Fn(u32) -> Option<i64>) {
        for rank in 0..self.ranks {
            let Some(delay_ns) = delay(rank) else { continue };
            let at_ns = self.now_ns + delay_ns + self.noise() + self.offsets_ns[rank as usize];
            self.unsaid[rank as usize].push(Stamp { step: self.step, at_ns });
        }
        self.step += 1;
        self.now_ns += self.step_ns + (0..self.ranks).filter_map(&delay).max().unwrap_or(0);
    }

    /// Ranks report, and the watch looks. `silent` ranks report nothing.
    pub fn report(&mut self, silent: &[u32]) -> Vec<Event> {
        for rank in (0..self.ranks).filter(|rank| !silent.contains(rank)) {
            let arrivals = std::mem::take(&mut self.unsaid[rank as usize]);
            let groups =
                if arrivals.is_empty() { Vec::new() } else { vec![GroupArrivals { name: "grads".into(), arrivals }] };
            let unchanged = self.unchanged.iter().find(|(other, _)| *other == rank).map(|(_, since_ns)| *since_ns);
            let as_of_ns = unchanged.unwrap_or(self.now_ns) + self.offsets_ns[rank as usize];
            let batch = Batch { as_of_ns, is_whole: true, dropped: self.dropped[rank as usize], groups };
            for word in batch.encode(4096, 64).0 {
                self.watch.hear(rank, &word, self.now_ns);
            }
        }
        self.look()
    }

    /// The watch looks, and nothing was reported.
    pub fn look(&mut self) -> Vec<Event> {
        self.watch.advance(self.now_ns, &Offsets(&self.offsets_ns, &self.errors_ns, self.sigma_ns))
    }

    /// So many steps, with a report about once a second.
    pub fn run(&mut self, steps: u64, delay: impl Fn(u64, u32) -> i64) -> Vec<Event> {
        let (mut events, mut reported_ns) = (Vec::new(), self.now_ns);
        for _ in 0..steps {
            let step = self.step;
            self.step(|rank| Some(delay(step, rank)));
            if self.now_ns - reported_ns >= 1_000_000_000 {
                reported_ns = self.now_ns;
                events.extend(self.report(&[]));
            }
        }
        events
    }
}

//! Queueing behind bursts of other traffic, as the virtual workload of one direction of a path.
//!
//! Bursts come as a Poisson process, take an exponential time to send (mean b) and wait in one
//! queue. The workload W(t) is the time that what is queued needs; it jumps at each burst and
//! drains at rate 1. A probe packet is small: it waits W(t) and adds nothing. With load ρ (bursts
//! come at rate ρ/b) the workload in the steady state is that of the M/M/1 queue (Kleinrock,
//! "Queueing Systems I", 1975, eq. 5.112 with exponential service): P(W = 0) = 1 − ρ, and else W is
//! exponential with mean b/(1 − ρ). So with ρ = 0.5 and b = 20 µs half of the packets pass freely
//! and the others wait 40 µs on average. Two packets 100 µs apart meet almost the same workload:
//! that is what coded pairs show.
//!
//! W is followed burst by burst only while the past still matters. It forgets like exp(−t/τ) or
//! faster, with the relaxation time τ = b/(1 − √ρ)² (the spectral gap of M/M/1; Morse, 1955): 233
//! µs for ρ = 0.5, 1.8 ms for 0.8. A packet more than [`MEMORY`]·τ after the one before gets a
//! fresh draw from the steady state; what correlation is thrown away is below 4 % (measured in the
//! test). Following a path between packets 50 ms apart would cost 2000 bursts for nothing.
//!
//! Packets cannot overtake each other, and a long queue does not drop them.

use crate::world::random::Draws;

/// The workload of one direction.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    burst_ns_mean: f64,
    load: f64,
    /// The time of the last update, ns since the start, and the workload then, ns; `None` before
    /// the first.
    last: Option<(i64, f64)>,
}

impl Workload {
    /// `load` in `0..1`.
    pub(crate) fn new(load: f64, burst_ns_mean: f64) -> Self {
        Self { burst_ns_mean, load, last: None }
    }

    /// Sets the load from now on.
    pub(crate) fn set_load(&mut self, load: f64) {
        self.load = load;
    }

    /// How long a packet waits that arrives at `at`, ns since the start; never earlier than the
    /// packet before.
    pub(crate) fn wait_ns(&mut self, at: i64, draws: &mut Draws) -> f64 {
        if self.load <= 0.0 || self.burst_ns_mean <= 0.0 {
            return 0.0;
        }
        let wait = match self.last {
            Some((before, workload)) if ((at - before) as f64) < MEMORY * self.relaxation_ns() => {
                self.follow(workload, (at - before) as f64, draws)
            }
            _ => self.steady(draws),
        };
        self.last = Some((at, wait));
        wait
    }

    fn steady(&self, draws: &mut Draws) -> f64 {
        let busy = draws.chance(self.load);
        if busy { draws.exponential(self.burst_ns_mean / (1.0 - self.load)) } else { 0.0 }
    }

    /// The workload `time_ns` after it was `workload`.
    fn follow(&self, mut workload: f64, time_ns: f64, draws: &mut Draws) -> f64 {
        let between = self.burst_ns_mean / self.load;
        let mut left = time_ns;
        // Ends: the mean gap is positive, and at most MEMORY relaxation times are left.
        loop {
            let gap = draws.exponential(between);
            if gap >= left {
                return (workload - left).max(0.0);
            }
            workload = (workload - gap).max(0.0) + draws.exponential(self.burst_ns_mean);
            left -= gap;
        }
    }

    fn relaxation_ns(&self) -> f64 {
        self.burst_ns_mean / (1.0 - self.load.sqrt()).powi(2)
    }
}

/// Number of relaxation times after which the past is forgotten.
const MEMORY: f64 = 2.5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::random::Purpose;

    const BURST_NS: f64 = 20_000.0;

    /// Waits of `count` packets `gap_ns` apart.
    fn waits(load: f64, gap_ns: i64, count: i64) -> Vec<f64> {
        let mut draws = Draws::new(9, Purpose::Packets, 0);
        let mut workload = Workload::new(load, BURST_NS);
        (0..count).map(|packet| workload.wait_ns(packet * gap_ns, &mut draws)).collect()
    }

    /// Correlation of waits with those `lag` packets later.
    fn correlation(waits: &[f64], lag: usize) -> f64 {
        let mean = waits.iter().sum::<f64>() / waits.len() as f64;
        let variance = waits.iter().map(|wait| (wait - mean).powi(2)).sum::<f64>() / waits.len() as f64;
        let products = waits.iter().zip(&waits[lag..]).map(|(a, b)| (a - mean) * (b - mean));
        products.sum::<f64>() / (waits.len() - lag) as f64 / variance
    }

    #[test]
    fn waits_follow_the_law_of_the_steady_state_whether_fresh_or_followed() {
        for load in [0.2, 0.5, 0.8] {
            // 100 µs is followed, 20 ms is fresh.
            for gap_ns in [100_000, 20_000_000] {
                let waits = waits(load, gap_ns, 150_000);
                let free = waits.iter().filter(|wait| **wait == 0.0).count() as f64 / waits.len() as f64;
                let mean = waits.iter().sum::<f64>() / waits.len() as f64;
                let expected = load * BURST_NS / (1.0 - load);
                assert!((free - (1.0 - load)).abs() < 0.02, "load {load}, gap {gap_ns}: {free} wait for nothing");
                assert!((mean / expected - 1.0).abs() < 0.08, "load {load}, gap {gap_ns}: mean {mean}");
                // Exponential: of those that wait, exp(−1) wait longer than their mean.
                let busy_mean = BURST_NS / (1.0 - load);
                let long = waits.iter().filter(|wait| **wait > busy_mean).count() as f64 / waits.len() as f64;
                assert!((long / (load * (-1f64).exp()) - 1.0).abs() < 0.08, "load {load}, gap {gap_ns}: {long}");
            }
        }
    }

    #[test]
    fn the_packets_of_a_pair_meet_the_same_queue_and_keep_their_order() {
        // The M/M/1 workload at small t: correlation falls like 1 − t(1−ρ)²/b at first, then
        // slower.
        for (load, least) in [(0.2, 0.05), (0.5, 0.35), (0.8, 0.8)] {
            let waits = waits(load, 100_000, 100_000);
            let found = correlation(&waits, 1);
            assert!(found > least, "load {load}: correlation {found} at 100 µs");
            assert!(waits.windows(2).all(|pair| pair[1] > pair[0] - 100_000.0 - 1e-6), "load {load}: overtaking");
        }
    }

    #[test]
    fn what_a_fresh_draw_forgets_is_small() {
        for load in [0.2, 0.5, 0.8] {
            let memory_ns = MEMORY * Workload::new(load, BURST_NS).relaxation_ns();
            // Steps of a tenth of the memory are followed; ten of them make what a fresh draw would
            // throw away.
            let waits = waits(load, (memory_ns / 10.0) as i64, 200_000);
            let found = correlation(&waits, 10);
            assert!((-0.02..0.045).contains(&found), "load {load}: correlation {found} after {memory_ns} ns");
            assert_eq!(self::waits(load, memory_ns as i64 + 1, 10_000).len(), 10_000);
        }
    }

    #[test]
    fn no_load_no_wait() {
        assert!(waits(0.0, 1_000, 100).iter().all(|wait| *wait == 0.0));
    }
}

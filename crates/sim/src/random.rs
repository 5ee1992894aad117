//! The few distributions that the simulator draws from, on small seeded generators.
//!
//! Each clock, node and direction of the network draws from a generator of its own, named by seed, purpose and index.
//! What happens on one path then leaves the numbers of all others alone: a run with a fault and the same run without it
//! differ by the fault only. Hundreds of thousands of generators must fit into a cache, so each is eight bytes: SplitMix64
//! (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014), a counter and a mixing function.
//!
//! What it does not do: cryptography.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    counter: u64,
}

/// What a stream is for; streams of different purposes never share numbers.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Purpose {
    /// A clock's constants and wander.
    Clock = 1,
    /// A clock's sudden events.
    ClockEvents,
    /// A node's stamps and wake-ups.
    Node,
    /// The constants of a pair of nodes.
    Pair,
    /// The constants of one direction.
    Direction,
    /// What the packets of one direction meet.
    Packets,
    /// The loads of one direction.
    Loads,
    /// Datagrams from elsewhere.
    Strangers,
}

impl Draws {
    /// The stream of this name.
    pub(crate) fn new(seed: u64, purpose: Purpose, index: u64) -> Self {
        Self { counter: mix(mix(mix(seed) ^ purpose as u64) ^ index) }
    }

    fn bits(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(GOLDEN);
        mix(self.counter)
    }

    /// Uniform in `[0, 1)`, 53 bits.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (-53f64).exp2()
    }

    /// Exponential with the given mean; 0 for a mean of 0.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        if mean == 0.0 {
            return 0.0;
        }
        // 1 − u lies in (0, 1]: the logarithm is finite.
        -mean * (1.0 - self.unit()).ln()
    }

    /// Normal with mean 0 (Box and Muller); 0 for a standard deviation of 0.
    pub(crate) fn normal(&mut self, sd: f64) -> f64 {
        if sd == 0.0 {
            return 0.0;
        }
        let radius = self.exponential(2.0).sqrt();
        sd * radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Uniform in `±max`.
    pub(crate) fn symmetric(&mut self, max: f64) -> f64 {
        max * (2.0 * self.unit() - 1.0)
    }

    /// Uniform whole number below `limit`, which must be positive. The bias of at most `limit`/2⁶⁴ does not matter here.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.bits()) * limit as u128) >> 64) as usize
    }

    /// True with probability `p`, clamped to 0..=1. Impossible things cost nothing.
    pub(crate) fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }
}

/// SplitMix64's mixing function.
fn mix(counter: u64) -> u64 {
    let z = (counter ^ (counter >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 2⁶⁴ divided by the golden ratio, as the paper has it.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and standard deviation of 100 000 draws.
    fn moments(mut draw: impl FnMut(&mut Draws) -> f64) -> (f64, f64) {
        let mut draws = Draws::new(1, Purpose::Node, 0);
        let values: Vec<f64> = (0..100_000).map(|_| draw(&mut draws)).collect();
        let mean = values.iter().sum::<f64>() / 1e5;
        (mean, (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 1e5).sqrt())
    }

    #[test]
    fn moments_are_those_of_the_laws() {
        let check = |name: &str, found: (f64, f64), mean: f64, sd: f64| {
            // Four standard errors of the mean; the standard deviation of heavy tails needs more room.
            assert!((found.0 - mean).abs() < 4.0 * sd / 316.0, "{name}: {found:?}");
            assert!((found.1 / sd - 1.0).abs() < 0.015, "{name}: {found:?}");
        };
        check("unit", moments(Draws::unit), 0.5, 12f64.sqrt().recip());
        check("exponential", moments(|draws| draws.exponential(7.0)), 7.0, 7.0);
        check("normal", moments(|draws| draws.normal(3.0)), 0.0, 3.0);
        check("symmetric", moments(|draws| draws.symmetric(2.0)), 0.0, 2.0 / 3f64.sqrt());
        check("below", moments(|draws| draws.below(10) as f64), 4.5, 8.25f64.sqrt());
        check("chance", moments(|draws| f64::from(draws.chance(0.2))), 0.2, 0.4);
    }

    #[test]
    fn the_mixing_function_is_splitmix64() {
        // First outputs for seed 0, as other implementations publish them.
        let mut draws = Draws { counter: 0 };
        assert_eq!(draws.bits(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(draws.bits(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn streams_do_not_resemble_each_other() {
        let mut first = Draws::new(1, Purpose::Packets, 5);
        for other in [(2, Purpose::Packets, 5), (1, Purpose::Node, 5), (1, Purpose::Packets, 6)] {
            let mut second = Draws::new(other.0, other.1, other.2);
            let product = |_| (first.unit() - 0.5) * (second.unit() - 0.5);
            let correlation = (0..10_000).map(product).sum::<f64>() / 10_000.0 * 12.0;
            assert!(correlation.abs() < 0.04, "{other:?}: {correlation}");
        }
    }
}

//! The few distributions that the simulator samples, on small seeded generators.
//!
//! Each clock, node and direction of the network draws from a generator of its own, named by seed,
//! purpose and index. What happens on one path then leaves the numbers of all others alone: a run
//! with a fault and the same run without it differ by the fault only. Hundreds of thousands of
//! generators must fit into a cache, so each is eight bytes: SplitMix64 (Steele, Lea and Flood,
//! "Fast splittable pseudorandom number generators", OOPSLA 2014), a counter and a mixing function.
//!
//! The generators are not cryptographically secure.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    counter: u64,
}

/// Purpose of a stream; streams with different purposes never share numbers.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Purpose {
    /// A clock's constants and wander.
    Clock = 1,
    /// A clock's sudden events.
    ClockEvents,
    /// A node's timestamps and wake-ups.
    Node,
    /// The constants of a pair of nodes.
    Pair,
    /// The constants of one direction.
    Direction,
    /// What happens to the packets of one direction.
    Packets,
    /// The loads of one direction.
    Loads,
    /// Foreign datagrams.
    Foreign,
    /// A clock in the generator of warming clocks.
    WarmingClock,
    /// A pair of nodes there.
    WarmingPair,
    /// The exchanges of an edge there.
    WarmingEdge,
    /// How a clock swings, how loaded its network is and when its machine pauses (`swinging`).
    Swinging,
    /// Which messages of a round are delayed (`round_cost`).
    Messages,
    /// Properties of a run of `coverage` as a whole.
    CoverageRun,
    /// A clock there.
    CoverageClock,
    /// A host there.
    CoverageHost,
    /// The exchanges of an edge there.
    CoverageEdge,
}

impl Draws {
    /// The stream with this identity.
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
        -mean * ln(1.0 - self.unit())
    }

    /// Normal with mean 0; 0 for a standard deviation of 0. Marsaglia's polar method (1964): a
    /// point within the unit circle has a uniform direction without any cosine.
    pub(crate) fn normal(&mut self, sd: f64) -> f64 {
        if sd == 0.0 {
            return 0.0;
        }
        // Ends: each turn with probability π/4.
        loop {
            let (x, y) = (self.symmetric(1.0), self.symmetric(1.0));
            let square = x * x + y * y;
            if square < 1.0 && square > 0.0 {
                return sd * x * (-2.0 * ln(square) / square).sqrt();
            }
        }
    }

    /// Uniform in `±max`.
    pub(crate) fn symmetric(&mut self, max: f64) -> f64 {
        max * (2.0 * self.unit() - 1.0)
    }

    /// Uniform integer below `limit`, which must be positive. The bias of at most `limit`/2⁶⁴ does
    /// not matter here.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.bits()) * limit as u128) >> 64) as usize
    }

    /// True with probability `p`, clamped to 0..=1. Impossible events draw no number.
    pub(crate) fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }
}

/// Natural logarithm of a normal number in `(0, 1]`, to 1e-12; the C library's is as fast, but need
/// not give the same bits on the next machine. With x = m·2^e and s = (m − 1)/(m + 1),
/// `ln x = e·ln 2 + 2·(s + s³/3 + s⁵/5 + …)`; m within a factor √2 of 1 makes |s| ≤ 0.172.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits() + (1.0f64.to_bits() - std::f64::consts::FRAC_1_SQRT_2.to_bits());
    let exponent = (bits >> 52) as i64 - 1023;
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) + std::f64::consts::FRAC_1_SQRT_2.to_bits());
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = [1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0];
    let sum = series.iter().fold(0.0, |sum, term| sum * square + term);
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * s * sum
}

/// SplitMix64's mixing function.
fn mix(counter: u64) -> u64 {
    let z = (counter ^ (counter >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 2⁶⁴ divided by the golden ratio, as in the paper.
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
            // Four standard errors of the mean; the standard deviation of heavy tails needs more
            // room.
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
    fn the_logarithm_is_a_logarithm() {
        let mut draws = Draws::new(1, Purpose::Node, 0);
        let scaled = (0..10_000).map(|power| draws.unit() * (-f64::from(power % 60)).exp2());
        let edges = [1.0, f64::EPSILON / 2.0, 0.5, 0.25, std::f64::consts::FRAC_1_SQRT_2, 1.0 - f64::EPSILON / 2.0];
        for x in scaled.chain(edges).filter(|x| *x > 0.0) {
            assert!((ln(x) - x.ln()).abs() < 2e-12, "ln {x} = {}, not {}", x.ln(), ln(x));
        }
        assert_eq!(ln(1.0), 0.0);
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

//! The difference between a stamp and the clock's reading.
//!
//! Noise is uniform and normal. Software stamps are one-sided on top: a transmit stamp is taken
//! before the packet leaves and a receive stamp after it came, each by an exponential time, and by
//! much more when an interrupt comes in between. So software makes every packet seem to have
//! travelled longer, never shorter.

use probe_sync_time::{Duration, System, Timestamp};

use crate::scenario::Stamps;
use crate::world::random::Draws;

/// The end of the path that a packet is at.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Transmit,
    Receive,
}

impl Stamps {
    /// The timestamp taken when the clock shows `exact`; `wrong_by_ns` is added.
    pub(crate) fn take(
        &self,
        exact: Timestamp<System>,
        wrong_by_ns: f64,
        side: Side,
        draws: &mut Draws,
    ) -> Timestamp<System> {
        let mut late_ns = draws.exponential(self.late_ns_mean);
        if draws.chance(self.spike) {
            late_ns += draws.exponential(self.spike_ns_mean);
        }
        let one_sided_ns = if side == Side::Receive { late_ns } else { -late_ns };
        let mut error_ns = one_sided_ns + draws.normal(self.noise_sd_ns) + wrong_by_ns;
        if self.noise_ns_max > 0 {
            error_ns += draws.symmetric(self.noise_ns_max as f64);
        }
        let stamp = exact + Duration::from_ns_f64(error_ns);
        Timestamp::from_ns(stamp.as_ns() - stamp.as_ns().rem_euclid(self.tick_ns.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::random::Purpose;

    /// Mean and standard deviation of 50 000 errors.
    fn moments(stamps: &Stamps, side: Side) -> (f64, f64) {
        let mut draws = Draws::new(4, Purpose::Node, 0);
        let exact = Timestamp::from_ns(1_790_000_000_000_000_000);
        let errors: Vec<f64> =
            (0..50_000).map(|_| (stamps.take(exact, 0.0, side, &mut draws) - exact).as_ns_f64()).collect();
        let mean = errors.iter().sum::<f64>() / 5e4;
        (mean, (errors.iter().map(|error| (error - mean).powi(2)).sum::<f64>() / 5e4).sqrt())
    }

    #[track_caller]
    fn check(stamps: &Stamps, side: Side, mean: f64, sd: f64) {
        let found = moments(stamps, side);
        assert!((found.0 - mean).abs() < 0.02 * sd + 0.01, "{side:?}: {found:?}, expected {mean}");
        assert!((found.1 - sd).abs() < 0.03 * sd + 0.01, "{side:?}: {found:?}, expected {sd}");
    }

    #[test]
    fn errors_follow_their_laws() {
        let exact = Stamps::default();
        for side in [Side::Transmit, Side::Receive] {
            check(&exact, side, 0.0, 0.0);
            check(&Stamps::hardware(), side, 0.0, 8.0);
            check(&Stamps { noise_ns_max: 300, ..exact }, side, 0.0, 300.0 / 3f64.sqrt());
        }
        let late = Stamps { late_ns_mean: 500.0, ..exact };
        check(&late, Side::Transmit, -500.0, 500.0);
        check(&late, Side::Receive, 500.0, 500.0);
        // One in ten, exponential of 2 µs: mean p·m, variance 2·p·m² − (p·m)².
        let spiky = Stamps { spike: 0.1, spike_ns_mean: 2_000.0, ..exact };
        check(&spiky, Side::Receive, 200.0, (0.8e6f64 - 0.04e6).sqrt());
    }

    #[test]
    fn clocks_tick() {
        let mut draws = Draws::new(4, Purpose::Node, 0);
        let stamps = Stamps { tick_ns: 40, ..Stamps::software() };
        for ns in 0..1_000 {
            let exact = Timestamp::from_ns(1_790_000_000_000_000_000 + ns);
            assert_eq!(stamps.take(exact, 0.0, Side::Receive, &mut draws).as_ns() % 40, 0);
        }
        let still = Stamps { tick_ns: 40, ..Stamps::default() };
        assert_eq!(still.take(Timestamp::from_ns(79), 0.0, Side::Receive, &mut draws).as_ns(), 40);
        assert_eq!(still.take(Timestamp::from_ns(-1), 0.0, Side::Receive, &mut draws).as_ns(), -40);
        assert_eq!(still.take(Timestamp::from_ns(79), 5.0, Side::Transmit, &mut draws).as_ns(), 80);
    }
}

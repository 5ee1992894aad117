//! Maps R → S from bracketed pairs and from markers, against simulated delays.

use super::*;

/// Kineto's timeline of a node whose REALTIME wanders and may step: R is true time, S = R + error(R).
pub(in super::super) struct Simulated {
    pub(in super::super) count: u32,
    pub(in super::super) amplitude_ns: f64,
    pub(in super::super) step_ns: f64,
}

const EPOCH_NS: i64 = 1_795_187_116_632_205_972;
const PERIOD_S: f64 = 2.0;

impl Simulated {
    pub(in super::super) fn error_ns(&self, seconds: f64) -> f64 {
        let wander = self.amplitude_ns * (std::f64::consts::TAU * seconds / PERIOD_S).sin();
        wander + if seconds < 0.93 { 0.0 } else { self.step_ns }
    }

    fn at(&self, seconds: f64, late_ns: i64, kind: PairKind) -> ClockPair {
        let since_ns = (seconds * 1e9) as i64;
        let system_ns = EPOCH_NS + since_ns + self.error_ns(seconds) as i64;
        ClockPair { tracer_ps: i128::from(EPOCH_NS + since_ns + late_ns) * 1000, system_ns, kind }
    }

    /// Markers over 1.8 s, 9 to 14 µs late, every eleventh by 400 µs more.
    pub(in super::super) fn markers(&self) -> Vec<ClockPair> {
        (0..self.count)
            .map(|k| {
                let late = 9_000 + i64::from(k * 7919 % 5000) + if k % 11 == 5 { 400_000 } else { 0 };
                self.at(1.8 * f64::from(k) / f64::from(self.count), late, PairKind::Marker)
            })
            .collect()
    }

    /// The largest error of the map against truth, `late_ns` taken out, over all of the markers' time except around the
    /// step, ns.
    fn worst(&self, map: &TimeMap, late_ns: f64) -> f64 {
        (0..170)
            .map(|k| f64::from(k) * 0.01)
            .filter(|seconds| self.step_ns == 0.0 || (seconds - 0.93).abs() > 0.05)
            .map(|seconds| {
                let pair = self.at(seconds, 0, PairKind::Marker);
                (difference_ns(map.map(pair.tracer_ps).time_ps, i128::from(pair.system_ns) * 1000) + late_ns).abs()
            })
            .fold(0.0, f64::max)
    }
}

fn check(simulated: &Simulated, pairs: &[ClockPair], late_ns: f64, most_ns: f64) -> Residuals {
    let found = tracer_map(pairs, &[]).expect("times are sane").expect("pairs");
    let worst = simulated.worst(&found.map, late_ns);
    assert!(worst < most_ns, "{worst} {:?}", found.residuals);
    found.residuals
}

#[test]
fn markers_follow_wander_and_steps_and_leave_their_overhead() {
    for (amplitude_ns, step_ns) in [(0.0, 0.0), (1e5, 0.0), (0.0, 2e6), (1e5, -2e6), (1e5, 2e6)] {
        let simulated = Simulated { count: 40, amplitude_ns, step_ns };
        let found = check(&simulated, &simulated.markers(), 11_500.0, 6_000.0);
        assert_eq!((found.steps, found.markers), (usize::from(step_ns != 0.0), 40), "{found:?}");
        assert!(found.outliers >= 3 && found.median_ns < 4_000.0 && found.early_by_up_to_ns > 14_000.0, "{found:?}");
    }
}

#[test]
fn bracketed_pairs_say_what_markers_cannot() {
    let simulated = Simulated { count: 40, amplitude_ns: 1e5, step_ns: 0.0 };
    let mut pairs: Vec<ClockPair> = (0..30)
        .map(|k| simulated.at(f64::from(k) * 0.06, i64::from(k % 3) * 100 - 100, PairKind::Bracketed(900.0)))
        .collect();
    let alone = check(&simulated, &pairs, 0.0, 1_000.0);
    assert_eq!((alone.bracketed, alone.markers, alone.early_by_up_to_ns), (30, 0, 0.0));
    pairs.extend(simulated.markers());
    let both = check(&simulated, &pairs, 0.0, 1_500.0);
    let overhead = both.overhead_ns.expect("measured");
    assert!((9_000.0..14_000.0).contains(&overhead), "{overhead}");
    assert_eq!((both.bracketed, both.markers, both.early_by_up_to_ns), (30, 40, 0.0));
}

#[test]
fn odd_pairs_do_not_panic() {
    assert_eq!(tracer_map(&[], &[]).expect("no pairs are no error"), None);
    let pair = |tracer_ps, system_ns, kind| ClockPair { tracer_ps, system_ns, kind };
    let kinds = [PairKind::Marker, PairKind::Bracketed(f64::NAN), PairKind::Bracketed(0.0), PairKind::Bracketed(1e300)];
    for kind in kinds {
        let one = tracer_map(&[pair(5_000, 3, kind)], &[]).expect("one pair").expect("a map");
        assert_eq!(one.map.map(9_000).time_ps, 7_000);
        let far =
            [pair(0, i64::MAX, kind), pair(1, i64::MIN, kind), pair(i128::MAX, 0, kind), pair(i128::MIN, 0, kind)];
        let _ = tracer_map(&far, &[]);
    }
}

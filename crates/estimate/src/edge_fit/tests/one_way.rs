//! Tests of the fit to one-way packets: by hand, with hostile stamps, and how often its interval
//! holds.

use super::*;

fn packet(sent: i64, received: i64) -> OneWayPacket {
    OneWayPacket {
        sent: Timestamp::from_ns(MIDPOINT.saturating_add(sent)),
        received: Timestamp::from_ns(MIDPOINT.saturating_add(received)),
    }
}

fn fitted(forward: &[OneWayPacket], reverse: &[OneWayPacket], max_skew: f64) -> Option<EdgeFit> {
    let window = PacketWindow {
        edge: NODES,
        midpoint: Timestamp::from_ns(MIDPOINT),
        forward,
        reverse,
        stamp: StampSource::Kernel,
    };
    let (line, _) = fit_packets(&window, &FitOptions { max_skew, ..FitOptions::default() })?;
    let [a, ab, b] = line.covariance;
    assert!(a > 0.0 && b > 0.0 && a * b - ab * ab > 0.0, "a covariance that GraphCalc takes: {line:?}");
    Some(line)
}

#[test]
fn two_nodes_by_hand() {
    // Node j 1000 ns ahead, delay 200 ns; the rate is known to a millionth of a millionth.
    let line = fitted(&[packet(0, 1200)], &[packet(2000, 1200)], 1e-12).expect("packets each way");
    assert!((line.beta - 1000.0).abs() < 1e-3 && (line.margin_ns - 200.0).abs() < 1e-3);
    // The stamps' own noise widens the 400 ns by 8.5.
    assert!((line.covariance[0].sqrt() - 408.5 / 12f64.sqrt()).abs() < 0.1, "{line:?}");
    assert!((line.bound_lo_ns - 795.8).abs() < 0.5 && (line.bound_hi_ns - 1204.2).abs() < 0.5, "{line:?}");
    assert_eq!((line.pairs_count, line.lost_count, line.feasible), (1, 0, true));
}

#[test]
fn one_direction_alone_says_nothing() {
    assert!(fitted(&[packet(0, 1200)], &[], 1e-3).is_none());
    assert!(fitted(&[], &[packet(0, 1200)], 1e-3).is_none());
}

#[test]
fn contradicting_packets_are_infeasible_and_claim_no_more_than_they_overlap() {
    let line = fitted(&[packet(0, 700)], &[packet(2000, 1200)], 1e-9).expect("packets each way");
    assert!(!line.feasible && line.margin_ns < 0.0, "{line:?}");
    assert_eq!((line.bound_lo_ns, line.bound_hi_ns), (f64::NEG_INFINITY, f64::INFINITY));
    assert!(line.covariance[0].sqrt() > 25.0, "they overlap by 100: {line:?}");
}

#[test]
fn hostile_stamps_do_not_panic() {
    let wild = [i64::MIN, i64::MAX, 0, -1, 1, i64::MAX / 2, i64::MIN / 2];
    for sent in wild {
        for received in wild {
            let raw = OneWayPacket { sent: Timestamp::from_ns(sent), received: Timestamp::from_ns(received) };
            for skew in [1e-9, 5e-4, 0.5] {
                let line = fitted(&[raw, packet(0, 1200)], &[packet(2000, 1200), raw], skew).expect("packets each way");
                assert!(line.beta.is_finite() && line.covariance.iter().all(|c| c.is_finite()), "{line:?}");
            }
        }
    }
}

#[test]
fn the_interval_holds_whatever_shares_the_margin() {
    // Packets each way, and by how much the floors of the directions differ, as a share of what
    // both have together.
    for (packets, unequal) in [(3, 0.0), (20, 0.0), (20, 0.3), (200, 0.3), (200, 0.6)] {
        let mut inside = [0; 2];
        for seed in 0..200 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut side = |floor: f64, sign: f64| -> Vec<OneWayPacket> {
                (0..packets)
                    .map(|_| {
                        let at = 1e8 * (random.random::<f64>() - 0.5);
                        let delay = floor - 3e4 * (1.0 - random.random::<f64>()).ln();
                        let there = at + THETA + RATE * at;
                        // Forward packets leave at `at`, reverse packets come at it.
                        let (sent, received) = if sign > 0.0 { (at, there + delay) } else { (there - delay, at) };
                        packet(sent.round() as i64, received.round() as i64)
                    })
                    .collect()
            };
            let (forward, reverse) = (side(1e5 * (1.0 + unequal), 1.0), side(1e5 * (1.0 - unequal), -1.0));
            let line = fitted(&forward, &reverse, 0.02).expect("packets each way");
            assert!(line.bound_lo_ns <= THETA && THETA <= line.bound_hi_ns, "{line:?}");
            inside[0] += usize::from((line.beta - THETA).abs() <= 1.96 * line.covariance[0].sqrt());
            inside[1] += usize::from((line.alpha - RATE).abs() <= 1.96 * line.covariance[2].sqrt());
        }
        println!(
            "{packets} packets, floors {unequal} apart: offset inside in {} of 200, rate in {}",
            inside[0], inside[1]
        );
        assert!(inside.iter().all(|count| *count >= 190), "{packets} {unequal}: {inside:?}");
    }
}

//! Tests of windows in which rates change: the truth stays inside the hard interval although
//! neither line nor parabola follows it. See also `tests/it/hard_bounds`, whose clocks and packets
//! were made for that.

use super::*;

/// The destination's clock changes its rate by `ppm` at the midpoint: ½·ppm·|x|, V-shaped, 0 at the
/// midpoint.
fn kinked(mut exchanges: Vec<Exchange>, ppm: f64) -> Vec<Exchange> {
    for exchange in &mut exchanges {
        for (source, destination) in [(0, 1), (2, 3), (5, 4), (7, 6)] {
            let x = (exchange.t[source] - Timestamp::from_ns(MIDPOINT)).as_ns_f64();
            exchange.t[destination] += probe_sync_time::Duration::from_ns_f64(0.5e-6 * ppm * x.abs());
        }
    }
    exchanges
}

fn is_inside(exchanges: &[Exchange], rate_range_ppm: f64) -> bool {
    let options = FitOptions { rate_range_ppm, ..FitOptions::default() };
    let line = fit(&window(exchanges), &options).expect("exchanges");
    line.bound_lo_ns <= THETA && THETA <= line.bound_hi_ns
}

#[test]
fn a_kink_that_no_line_shows_stays_inside_the_hard_interval() {
    // Ten exchanges in 4 s, every packet takes 1 µs; a kink of 1.5 ppm lies 1.5 µs below its chord.
    // Lines exist (up to 2 µs), and all of them exclude the truth (from 1 µs on).
    let path = Path { exchanges: 10, floor: 1e3, queued: 0.0, ..LIGHT };
    for ppm in [1.5, -1.5] {
        let exchanges = kinked(path.simulate(1), ppm);
        assert!(!is_inside(&exchanges, 0.0), "{ppm} ppm: lines alone exclude it");
        assert!(is_inside(&exchanges, FitOptions::default().rate_range_ppm), "{ppm} ppm");
    }
}

#[test]
fn whatever_the_watches_miss_stays_inside() {
    let mut windows = 0;
    for exchanges in [8, 10, 30, 90, 400] {
        for path in [LIGHT, MEDIUM, EXPONENTIAL] {
            for floor in [0.0, 300.0, 1e3] {
                for ppm in [0.2, -0.7, 1.5, -3.0, 6.0] {
                    for seed in 0..4 {
                        let path = Path { exchanges, floor, ..path };
                        let inside = is_inside(&kinked(path.simulate(seed), ppm), FitOptions::default().rate_range_ppm);
                        assert!(inside, "{exchanges} exchanges, floor {floor} ns, {ppm} ppm, seed {seed}");
                        windows += 1;
                    }
                }
            }
        }
    }
    assert_eq!(windows, 5 * 3 * 3 * 5 * 4);
}

#[test]
fn the_example_by_hand() {
    // Every packet takes 900 ns; the destination loses 1.5 µs until the midpoint and gains it back.
    // Packets at the times given.
    let exchanges = |seconds: &[i64]| -> Vec<Exchange> {
        let t = |s: i64| [0, 900, 0, 900, 1000, 1900, 1000, 1900].map(|ns| s * 1_000_000_000 + ns);
        let alone = seconds.iter().map(|&s| {
            // A packet forward at 0 and one back that arrives at it; the partners were lost.
            let [sent, arrived, ..] = t(s);
            let loss = -1_500 * i64::from(s == 0);
            exchange(
                StampSource::Kernel,
                [sent, arrived + loss, sent, arrived + loss, sent - 900 + loss, sent, sent - 900 + loss, sent],
            )
        });
        alone.collect()
    };
    let slack = 3.0 * 2f64.sqrt();
    for (seconds, expected) in [(&[-1, 1][..], [-3900.0, 3900.0]), (&[-1, 0, 1], [-2400.0, -600.0])] {
        let line = line(&exchanges(seconds));
        let found = [line.bound_lo_ns + slack, line.bound_hi_ns - slack];
        // 3 ppm of the clock's own rate, which is up to 500 ppm off, is 3.003 ppm.
        assert!((found[0] - expected[0]).abs() < 4.0 && (found[1] - expected[1]).abs() < 4.0, "{found:?} {expected:?}");
    }
}

#[test]
fn clocks_that_run_farther_apart_than_they_may_have_no_bounds() {
    let path = Path { exchanges: 40, ..LIGHT };
    let mut exchanges = path.simulate(3);
    for exchange in &mut exchanges {
        for (source, destination) in [(0, 1), (2, 3), (5, 4), (7, 6)] {
            let x = (exchange.t[source] - Timestamp::from_ns(MIDPOINT)).as_ns_f64();
            exchange.t[destination] += probe_sync_time::Duration::from_ns_f64(600e-6 * x);
        }
    }
    let line = line(&exchanges);
    assert_eq!((line.bound_lo_ns, line.bound_hi_ns), (f64::NEG_INFINITY, f64::INFINITY), "{line:?}");
}

//! Tests of bent windows: they are straightened where packets prove a bend, and only there.

use super::*;

/// The destination's clock gains `ppm_per_s` more every second: ½·c·x² at x from the midpoint.
fn bent(mut exchanges: Vec<Exchange>, ppm_per_s: f64) -> Vec<Exchange> {
    for exchange in &mut exchanges {
        // Source times of the four packets; what the destination stamped of each.
        for (source, destination) in [(0, 1), (2, 3), (5, 4), (7, 6)] {
            let x = (exchange.t[source] - Timestamp::from_ns(MIDPOINT)).as_ns_f64();
            exchange.t[destination] += probe_sync_time::Duration::from_ns_f64(0.5 * ppm_per_s * PER_NS * x * x);
        }
    }
    exchanges
}

struct Found {
    /// Sorted |error| of beta, ns.
    errors: Vec<f64>,
    bends: Vec<f64>,
    inside_hard: usize,
    inside_95: usize,
}

fn run(path: Path, ppm_per_s: f64, max_bend_ppm_per_s: f64, seeds: u64) -> Found {
    let options = FitOptions { max_bend_ppm_per_s, ..FitOptions::default() };
    let mut found = Found { errors: Vec::new(), bends: Vec::new(), inside_hard: 0, inside_95: 0 };
    for seed in 0..seeds {
        let exchanges = bent(path.simulate(seed), ppm_per_s);
        let (line, diagnostics) = fit_with_diagnostics(&window(&exchanges), &options).expect("exchanges");
        let error = line.beta - THETA;
        found.errors.push(error.abs());
        found.bends.extend(diagnostics.bend_ppm_per_s);
        found.inside_hard += usize::from(line.bound_lo_ns <= THETA && THETA <= line.bound_hi_ns);
        found.inside_95 += usize::from(error.abs() <= 1.96 * line.covariance[0].sqrt());
    }
    found.errors.sort_unstable_by(f64::total_cmp);
    found
}

#[test]
fn a_proven_bend_is_followed() {
    // Exchanges, path, bend in ppm per s, then the largest median and 95th percentile allowed, ns.
    // A line would miss by c·W²/16: 5 ppm/s over 4 s is 5 µs.
    let table = [
        (90, LIGHT, 5.0, [0.5, 2.0]),
        (90, EXPONENTIAL, -5.0, [70.0, 200.0]),
        (750, LIGHT, 0.1, [0.2, 0.5]),
        (750, MEDIUM, -1.0, [0.2, 0.5]),
        (750, EXPONENTIAL, 5.0, [12.0, 40.0]),
    ];
    for (exchanges, path, ppm_per_s, allowed) in table {
        let path = Path { exchanges, ..path };
        let (found, line) = (run(path, ppm_per_s, 20.0, 40), run(path, ppm_per_s, 0.0, 10));
        let [median, p95] = quantiles(&found.errors);
        let lost = ppm_per_s.abs() * 1e3 * 4.0 * 4.0 / 16.0;
        println!(
            "n {exchanges} {ppm_per_s} ppm/s: median {median:.1} p95 {p95:.1}, as a line {:.0} (c·W²/16 = {lost:.0}), hard {} 95 {}",
            quantiles(&line.errors)[0],
            found.inside_hard,
            found.inside_95
        );
        assert!(median <= allowed[0] && p95 <= allowed[1]);
        assert!((quantiles(&line.errors)[0] / lost - 1.0).abs() < 0.3, "the loss of a line is understood");
        assert_eq!((found.bends.len(), found.inside_hard), (40, 40));
        assert!(found.inside_95 >= 34, "{}", found.inside_95);
        assert!(found.bends.iter().all(|bend| (bend / ppm_per_s - 1.0).abs() < 0.2), "{:?}", found.bends);
    }
}

#[test]
fn straight_windows_stay_straight() {
    for (name, path) in [("light", LIGHT), ("medium", MEDIUM), ("heavy", HEAVY), ("exponential", EXPONENTIAL)] {
        for exchanges in [30, 90, 400] {
            let path = Path { exchanges, ..path };
            let found = run(path, 0.0, 20.0, 300);
            let line = run(path, 0.0, 0.0, 300);
            println!(
                "{name} n {exchanges}: {} bends of 300, {:?} against {:?}",
                found.bends.len(),
                quantiles(&found.errors),
                quantiles(&line.errors)
            );
            assert!(found.bends.len() <= 3 && found.inside_hard == 300);
            assert!(quantiles(&found.errors)[1] <= 1.1 * quantiles(&line.errors)[1] + 0.1);
        }
    }
}

#[test]
fn a_step_is_no_bend() {
    for share in [2, 3, 4] {
        for step_ns in [12_000, 40_000, 1_000_000] {
            let mut exchanges = LIGHT.simulate(1);
            let from = exchanges.len() / share;
            for exchange in &mut exchanges[from..] {
                for k in [1, 3, 4, 6] {
                    exchange.t[k] += probe_sync_time::Duration::from_ns(step_ns);
                }
            }
            let (line, diagnostics) =
                fit_with_diagnostics(&window(&exchanges), &FitOptions::default()).expect("exchanges");
            assert!(!line.feasible, "{step_ns} ns after 1/{share}: {line:?} {diagnostics:?}");
        }
    }
}

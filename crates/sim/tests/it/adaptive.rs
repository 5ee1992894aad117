//! Adaptive probing in small simulated runs: it saves where little is needed, and meets its target
//! where the load changes.

use probe_sync_estimate::pacing::{Budget, PacingOptions, Verdict};
use probe_sync_sim::adaptive::{AdaptiveRun, run};
use probe_sync_sim::{Error, Network, Scenario, Stamps};
use probe_sync_time::Duration;

const CADENCE: Duration = Duration::from_us(800);
const WINDOW: Duration = Duration::from_ms(2_000);

/// Eight nodes with asymmetric paths.
fn scenario(load: f64) -> Scenario {
    let network = Network {
        load,
        burst_ns_mean: 20_000.0,
        queueing_ns_mean: 0.0,
        asymmetry_sd_ns: 20.0,
        loss: 0.001,
        ..Scenario::default().network
    };
    Scenario { nodes: 8, neighbors: 5, gap: CADENCE, network, stamps: Stamps::hardware(), ..Scenario::default() }
}

fn options(target_ns: f64) -> PacingOptions {
    PacingOptions { target_ns, cadence_ns: CADENCE.as_ns(), budget: Budget::default(), window: None }
}

fn simulate(scenario: &Scenario, seconds: i64, target_ns: f64) -> AdaptiveRun {
    let times = [Duration::from_ms(1000 * seconds), WINDOW];
    run(scenario, 3, times, Some(options(target_ns)), &|_| true).expect("a sound scenario").expect("not stopped")
}

/// Packets that the fixed pace would have sent, by count: six per exchange.
fn share_of_fixed(run: &AdaptiveRun, seconds: i64) -> f64 {
    run.packets as f64 / (6.0 * 8.0 * 1250.0 * seconds as f64)
}

fn within(run: &AdaptiveRun, target_ns: f64) -> f64 {
    let good = run.live_errors_ns.iter().filter(|error| **error <= target_ns).count();
    good as f64 / (run.live_errors_ns.len() + run.missing) as f64
}

#[test]
fn a_quiet_network_costs_little_and_stays_within_the_target() {
    let run = simulate(&scenario(0.2), 16, 200.0);
    assert!(share_of_fixed(&run, 16) < 0.2, "{}", share_of_fixed(&run, 16));
    assert_eq!((within(&run, 200.0), run.missing), (1.0, 0));
    assert_eq!(run.steps.last().map(|step| step.verdict), Some(Verdict::Reached));
}

#[test]
fn a_network_whose_load_comes_and_goes_is_answered() {
    let mut breathing = scenario(0.45);
    breathing.stamps = Stamps::software();
    (breathing.network.load_spread, breathing.network.load_change_s) = (0.4, 6.0);
    let run = simulate(&breathing, 24, 200.0);
    assert!(within(&run, 200.0) >= 0.95, "{}", within(&run, 200.0));
    assert!(share_of_fixed(&run, 24) < 0.5, "{}", share_of_fixed(&run, 24));
    let cadences: Vec<i64> = run.steps.iter().map(|step| step.cadence_ns).collect();
    let jumps = cadences.windows(2).filter(|pair| pair[1] > 5 * pair[0]);
    assert_eq!(jumps.count(), 0, "lengthening is bounded: {cadences:?}");
}

#[test]
fn the_budget_holds_and_what_is_impossible_is_refused() {
    let tight = PacingOptions { budget: Budget { bits_per_second: Some(1e6), cpu_share: None }, ..options(1.0) };
    let times = [Duration::from_ms(6_000), WINDOW];
    // Bits per second and host of packets of 108 bytes on the wire: all of it in the first window,
    // never more.
    for (duration, least) in [(WINDOW, 0.95e6), (times[0], 0.1e6)] {
        let ran = run(&scenario(0.8), 3, [duration, WINDOW], Some(tight), &|_| true);
        let packets = ran.expect("a sound scenario").expect("not stopped").packets as f64;
        let bits = packets / 8.0 * 108.0 * 8.0 / (duration.as_ns_f64() * 1e-9);
        assert!((least..1.005e6).contains(&bits), "{bits}");
    }
    let wrong = run(&scenario(0.2), 3, [WINDOW, times[0]], None, &|_| true);
    assert!(matches!(wrong, Err(Error::Window { .. })), "{wrong:?}");
    assert_eq!(run(&scenario(0.2), 3, times, None, &|_| false), Ok(None));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let again = || simulate(&scenario(0.8), 6, 40.0);
    assert_eq!(again(), again());
}

//! Clocks of real machines: an hour of a clock that chrony steers and one that ntpd-rs steers
//! (ntpd-rs project), second by second, drive simulated clocks through whole rounds.
//!
//! Between the recorded seconds the clocks run straight, so a window of one second has no bend in
//! it, and every longer window has some: 0.2 ppm from second to second as a rule, in chrony's
//! series up to 17. That is more than a line or a parabola can follow, and the estimates must say
//! so: the hard interval holds, or the fit is infeasible and claims nothing.

use std::path::Path;

use probe_sync_sim::Rounds;
use probe_sync_sim::{Clocks, Network, Replay, Scenario, Simulation, Stamps};
use probe_sync_time::{Duration, NodeId};

/// Seconds of the series that are replayed, from here on.
const SECONDS: usize = 90;

/// The series in ns; `None`, with a message, if it is absent.
fn series(name: &str) -> Option<Vec<f64>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/probes").join(name);
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: {} is not here", path.display());
        return None;
    };
    let values: Vec<f64> = text.lines().map(|line| 10.0 * line.parse::<f64>().expect("a number of 10 ns")).collect();
    assert_eq!(values.len(), 3600);
    Some(values)
}

/// Where the series bends most within `SECONDS`, and where it begins.
fn places(values: &[f64]) -> [usize; 2] {
    let bend = |from: &usize| {
        let bends = values[*from..from + SECONDS].windows(3).map(|w| (w[2] - 2.0 * w[1] + w[0]).abs());
        bends.fold(0.0, f64::max)
    };
    let roughest = (0..values.len() - SECONDS).step_by(SECONDS).max_by(|a, b| bend(a).total_cmp(&bend(b)));
    [0, roughest.expect("a place")]
}

#[derive(Default)]
struct Judged {
    errors: Vec<f64>,
    covered: usize,
    outside_hard: usize,
    unbounded: usize,
}

impl Judged {
    fn quantile(&mut self, share: f64) -> f64 {
        self.errors.sort_unstable_by(f64::total_cmp);
        self.errors[((self.errors.len() - 1) as f64 * share) as usize]
    }
}

/// Node 1's clock is the series; three others are quiet. Judges node 1 in every round.
fn run(values: &[f64], window: Duration) -> Judged {
    let points = values.iter().enumerate().map(|(second, error)| (second as f64, *error)).collect();
    let scenario = Scenario {
        nodes: 4,
        neighbors: 3,
        pairs_per_second: Some(40.0),
        clocks: Clocks { skew_ppm_max: 30.0, ..Clocks::default() },
        network: Network { load: 0.2, ..Network::default() },
        stamps: Stamps::hardware(),
        replays: vec![Replay { node: NodeId(1), points }],
        ..Scenario::default()
    };
    let simulation = Simulation::new(scenario, 5).expect("a sound scenario");
    let span = Duration::from_ms(1000 * (values.len() as i64 - 1));
    let mut rounds = Rounds::new(&simulation, span, window).expect("windows fit");
    let mut judged = Judged::default();
    while let Some(round) = rounds.step() {
        let node = &round.solved.alone.nodes[1];
        let truth = rounds.running().offset_ns(NodeId(1), round.midpoint());
        let error = node.offset_ns - truth;
        judged.errors.push(error.abs());
        judged.covered += usize::from(error.abs() <= 1.96 * node.sigma_ns);
        judged.outside_hard += usize::from(!(node.bound_lo_ns..=node.bound_hi_ns).contains(&truth));
        judged.unbounded += usize::from(!node.bound_lo_ns.is_finite() || !node.bound_hi_ns.is_finite());
    }
    judged
}

#[test]
fn real_clocks_are_followed_and_bounded_through_rounds() {
    // Window, then the largest median and 95th percentile of |error| allowed, ns.
    let table = [(1000, [20.0, 50.0]), (4000, [120.0, 500.0])];
    for name in ["ntpd-rs-offset-ntpd-rs.dat", "ntpd-rs-offset-chrony.dat"] {
        let Some(values) = series(name) else { return };
        for (from, (window_ms, allowed)) in places(&values).into_iter().flat_map(|from| table.map(|row| (from, row))) {
            let mut judged = run(&values[from..from + SECONDS], Duration::from_ms(window_ms));
            let found = [0.5, 0.95, 1.0].map(|share| judged.quantile(share));
            let rounds = judged.errors.len();
            let covered = judged.covered;
            println!(
                "{name} from {from} s, {window_ms} ms: median, p95, worst {found:.0?} ns, {covered} of {rounds} covered"
            );
            assert!(found[0] <= allowed[0] && found[1] <= allowed[1]);
            assert_eq!(judged.outside_hard, 0, "a hard interval holds whatever the clock does");
            assert!(100 * covered >= 93 * rounds, "{covered} of {rounds} inside their 95 % intervals");
            assert!(100 * judged.unbounded <= 5 * rounds, "{} rounds without hard bounds", judged.unbounded);
        }
    }
}

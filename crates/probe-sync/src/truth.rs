//! Virtual clocks with known error, laid over the real timestamps to test the whole pipeline against truth.
//!
//! `--inject-skew SEED` gives every node but the reference an offset and a rate drawn uniformly from the configured
//! ranges. The estimators never see them; `truth.json` states them:
//! `node(t) = t + off_ns + ppm·1e-6·(t − t0_ns) + step_ns·[t − t0_ns ≥ step_at_ns]`, t being the machine's real clock.
//! Node 0 is not skewed, so at its midpoint M the true offset of node i is `node_i(M) − M`.
//!
//! It means something only where all nodes share one real clock, so `roster` refuses it across machines.

use probe_sync_time::{Duration, NodeId, SkewedClock, Step, Timestamp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

use crate::Config;

/// The virtual clock of `node` in a run that starts when the real clock shows `start_ns`; the identity without
/// `--inject-skew`.
pub fn virtual_clock(config: &Config, node: NodeId, start_ns: i64) -> SkewedClock {
    let (Some(seed), true) = (config.inject_skew, node != REFERENCE) else { return SkewedClock::default() };
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // One stream per node: its clock does not depend on how many nodes there are.
    random.set_stream(u64::from(node.0));
    let range = config.skew_offset.as_ns().abs();
    let off_ns = random.random_range(-range..=range);
    let ppm = random.random_range(-config.skew_ppm..=config.skew_ppm);
    let steps = config
        .inject_step
        .filter(|step| step.node == node)
        .map(|step| Step { at_ns: start_ns.saturating_add(step.after.as_ns()), step_ns: step.step.as_ns() })
        .into_iter()
        .collect();
    SkewedClock { t0_ns: start_ns, off_ns, ppm, wave: None, steps }
}

/// True offset of a node when the reference clock shows `reference_ns`.
pub fn true_offset_ns(clock: &SkewedClock, reference_ns: i64) -> f64 {
    clock.error_ns(Timestamp::from_ns(reference_ns))
}

/// The content of `truth.json`.
pub fn document(clocks: &[SkewedClock], start_ns: i64) -> Value {
    let nodes: Map<String, Value> = clocks
        .iter()
        .enumerate()
        .map(|(node, clock)| {
            let step = clock.steps.first().copied().unwrap_or(Step { at_ns: start_ns, step_ns: 0 });
            let since_start = Timestamp::<probe_sync_time::System>::from_ns(step.at_ns) - Timestamp::from_ns(start_ns);
            let parameters = json!({
                "t0_ns": start_ns, "off_ns": clock.off_ns, "ppm": clock.ppm,
                "step_ns": step.step_ns, "step_at_ns": Duration::as_ns(since_start),
            });
            (node.to_string(), parameters)
        })
        .collect();
    json!({
        "reference": "t = CLOCK_REALTIME of the one machine that ran all nodes",
        "model": "node(t) = t + off_ns + ppm*1e-6*(t - t0_ns) + (step_ns if step_ns != 0 and t - t0_ns >= step_at_ns)",
        "nodes": nodes,
    })
}

/// The reference node.
pub const REFERENCE: NodeId = NodeId(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_true_and_the_others_stay_in_range() {
        let config = Config { inject_skew: Some(7), ..Config::default() };
        assert!(virtual_clock(&config, REFERENCE, 5).is_identity());
        assert!(virtual_clock(&Config::default(), NodeId(1), 5).is_identity());
        for node in 1..200 {
            let clock = virtual_clock(&config, NodeId(node), 5);
            assert!(clock.off_ns.abs() <= 10_000_000 && clock.ppm.abs() <= 50.0 && !clock.is_identity());
            assert_eq!(clock, virtual_clock(&config, NodeId(node), 5));
        }
    }

    #[test]
    fn truth_by_hand() {
        // Node 1 is 1000 ns ahead at t0 = 0 and gains 10 ppm: after 1 s it is 11 000 ns ahead.
        let clock = SkewedClock { t0_ns: 0, off_ns: 1000, ppm: 10.0, ..SkewedClock::default() };
        assert!((true_offset_ns(&clock, 1_000_000_000) - 11_000.0).abs() < 1e-6);
    }
}

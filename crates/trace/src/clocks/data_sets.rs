//! The real sets of `../shared/data`, whose clocks are known exactly.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::*;

/// A set, or None with a message where it is absent.
fn folder(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: {} is absent", path.display());
    None
}

/// `truth.json` of one node; these sets have neither wander nor steps.
#[derive(Deserialize)]
struct Truth {
    t0_ns: i64,
    off_ns: f64,
    ppm: f64,
    amp_ns: f64,
    step_ns: f64,
}

impl Truth {
    fn of(folder: &Path, node: u32) -> Self {
        let text = std::fs::read_to_string(folder.join("truth.json")).expect("truth.json");
        let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let truth: Self = serde_json::from_value(all["nodes"][node.to_string()].clone()).expect("a node's clock");
        assert_eq!((truth.amp_ns, truth.step_ns), (0.0, 0.0));
        truth
    }

    /// What the node's clock shows at true time t, ps.
    fn shows_ps(&self, t_ns: i64) -> i128 {
        let error_ns = self.off_ns + self.ppm * 1e-6 * (t_ns - self.t0_ns) as f64;
        i128::from(t_ns) * 1000 + (error_ns * 1000.0).round() as i128
    }
}

/// A row of `clock_nodeK.json`.
#[derive(Deserialize)]
struct Snapshot {
    true_ns: i64,
    node_realtime_ns: i64,
    node_monotonic_raw_ns: i64,
    win: f64,
}

fn snapshots(folder: &Path, node: u32) -> Vec<Snapshot> {
    let text = std::fs::read_to_string(folder.join(format!("clock_node{node}.json"))).expect("clock file");
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    serde_json::from_value(all["snapshots"].clone()).expect("snapshots")
}

#[test]
fn exact_offsets_reproduce_the_true_clocks() {
    for name in ["jax/b_4node_offset_drift", "torch/b_4node_offset_drift"] {
        let Some(folder) = folder(name) else { return };
        let offsets = Offsets::read(&folder.join("offsets.csv"), None).expect("offsets");
        for node in 0..4 {
            let truth = Truth::of(&folder, node);
            let clock = node_clock(&TraceFacts::default(), &offsets, node, None, Timeline::Host).expect("a map");
            let rows = &offsets.nodes[&node];
            let true_at = |k: usize| rows[k].at_ns - rows[k].offset_ns as i64;
            let (from, until) = (true_at(0), true_at(rows.len() - 1));
            let mut worst = 0;
            for k in 0..=1000 {
                let time = from + (until - from) / 1000 * k;
                let found = clock.chain.map(truth.shows_ps(time));
                worst = worst.max((found.time_ps - i128::from(time) * 1000).abs());
                assert!(!found.clamped);
            }
            assert!(worst <= 1000, "{name} node {node}: {worst} ps");
        }
    }
}

#[test]
fn a_raw_clock_is_tied_to_the_true_one_by_bracketed_pairs() {
    for name in ["jax/b_4node_offset_drift", "torch/b_4node_offset_drift"] {
        let Some(folder) = folder(name) else { return };
        let offsets = Offsets::read(&folder.join("offsets.csv"), None).expect("offsets");
        for node in 0..4 {
            let rows = snapshots(&folder, node);
            let raw_ps = |row: &Snapshot| i128::from(row.node_monotonic_raw_ns) * 1000;
            let pairs: Vec<ClockPair> = rows
                .iter()
                .map(|row| ClockPair {
                    tracer_ps: raw_ps(row),
                    system_ns: row.node_realtime_ns,
                    kind: PairKind::Bracketed(row.win),
                })
                .collect();
            let clock =
                node_clock(&TraceFacts::default(), &offsets, node, Some(&pairs), Timeline::Host).expect("a map");
            for row in &rows {
                // Readings are good to half of their bracket.
                let error = clock.chain.map(raw_ps(row)).time_ps - i128::from(row.true_ns) * 1000;
                assert!(error.abs() as f64 * 1e-3 < 0.5 * row.win + 100.0, "{name} node {node}: {error} ps");
            }
        }
    }
}

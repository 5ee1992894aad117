//! Synthetic runs that are larger, more hostile and more faulty than any real run.
//!
//! A seeded random number generator produces the lines of `offsets.jsonl`, `windows/` and
//! `run.json`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

/// What to make.
pub struct Made<'a> {
    pub nodes: u32,
    pub rounds: u64,
    pub host: &'a dyn Fn(u32) -> String,
    /// Faults in the rounds.
    pub faults: bool,
    /// The file of offsets ends in the middle of a line.
    pub cut: bool,
}

const START_NS: i64 = 1_764_000_000_000_000_000;
const WINDOW_NS: i64 = 4_000_000_000;

/// Knuth's generator: enough for lines that look like measurements.
struct Random(u64);

impl Random {
    /// Between −1 and 1, thicker in the middle.
    fn next(&mut self) -> f64 {
        let mut one = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as f64 / f64::from(1_u32 << 31)
        };
        one() + one() - 1.0
    }
}

/// The offset of a node at a time, ns.
pub fn offset_ns(node: u32, at_ns: i64) -> f64 {
    if node == 0 {
        return 0.0;
    }
    let since = (at_ns - START_NS) as f64;
    let place = f64::from(node);
    1e6 * (place * 1.7).sin() * 8.0 + 40.0 * (place * 2.3).cos() * since * 1e-6 + 90.0 * (since * 2e-12 + place).sin()
}

/// Writes the directory of a run.
pub fn run(folder: &Path, made: &Made<'_>) -> Result<()> {
    std::fs::create_dir_all(folder.join("windows"))?;
    let nodes: Vec<Value> =
        (0..made.nodes).map(|node| json!({"hostname": (made.host)(node), "node_id": node})).collect();
    let of_run = |node: u32| json!({"node_id": node, "rank": node, "hostname": (made.host)(node), "stamp": "kernel"});
    let document = json!({
        "run_id": "00000000deadbeef", "version": "0.1.0", "backend": "tcp", "ranks": made.nodes, "reference": 0, "start_ns": START_NS,
        "configuration": {"target_error": "1us"}, "nodes": (0..made.nodes).map(of_run).collect::<Vec<_>>(),
    });
    std::fs::write(folder.join("run.json"), document.to_string())?;
    let mut random = Random(7);
    let mut text = json!({"meta": true, "nodes": nodes, "reference": 0}).to_string() + "\n";
    let mut global = String::new();
    for round in 0..made.rounds {
        let start = START_NS + WINDOW_NS * round as i64;
        let middle = start + WINDOW_NS / 2;
        for node in 0..made.nodes {
            let sigma = if node == 0 { 0.0 } else { 40.0 + 25.0 * f64::from(node % 7) + 12.0 * random.next() };
            let offset = offset_ns(node, middle) + sigma * random.next();
            let silent = made.faults && node == 5 && (200..230).contains(&round);
            let bound =
                |sign: f64| if node == 0 { 0.0 } else { offset + sign * (600.0 + 80.0 * random_of(node, round)) };
            let line = json!({
                "round_id": round, "window_id": round, "window_start_ns": start, "window_end_ns": start + WINDOW_NS, "node_id": node,
                "offset_ns": offset, "drift_ppm": if node == 0 { 0.0 } else { 40.0 * (f64::from(node) * 2.3).cos() + 0.002 * random.next() },
                "residual": 12.0, "reachable": !silent, "converged": true, "sigma_ns": if silent { Value::Null } else { json!(sigma) }, "asymmetry_sigma_ns": 3.0,
                "drift_sigma_ppm": 0.01, "bound_lo_ns": bound(-1.0), "bound_hi_ns": bound(1.0), "edges_used": 7, "edges_excluded": 0,
                "clock_disturbed": made.faults && node == 3 && round == 120,
            });
            writeln!(text, "{line}")?;
        }
        if made.faults && [120, 200, 231].contains(&round) {
            let fault = match round {
                120 => json!({"kind": "step", "culprit": {"node": 3}, "size": 250_000.0, "began": 120, "round": 120}),
                200 => json!({"kind": "silent", "culprit": {"node": 5}, "size": 0.0, "began": 200, "round": 200}),
                _ => json!({"kind": "rejoined", "culprit": {"node": 5}, "size": 1.0, "began": 230, "round": 231}),
            };
            writeln!(global, "{}", global_window(round, start, &fault))?;
        }
    }
    if made.cut {
        text.truncate(text.len() - 40);
    }
    std::fs::write(folder.join("offsets.jsonl"), text)?;
    std::fs::write(folder.join("global_windows.jsonl"), global)?;
    for node in 0..made.nodes {
        std::fs::write(folder.join("windows").join(format!("node{node}.jsonl")), windows(made, node, &mut random)?)?;
    }
    Ok(())
}

fn random_of(node: u32, round: u64) -> f64 {
    Random(u64::from(node) * 1_000_003 + round).next()
}

fn global_window(round: u64, start: i64, fault: &Value) -> Value {
    json!({
        "round_id": round, "window_id": round, "sequence_number": round, "reference": 0, "carried_by": null,
        "window_start_ns": start, "window_end_ns": start + WINDOW_NS, "all_nodes": [], "excluded_edges": [], "worst_edge": null,
        "asymmetry_sd_ns": 1.0, "loops": [0, 0.0], "clamped": 0, "contradictions": [], "clock_events": [],
        "watch": {"faults": [fault], "breaks": [], "left_out": [], "invalid": []},
        "decision": {"next_window_end_ns": 0, "next_window_ns": 0, "cadence_ns": 0, "stop": false},
    })
}

/// The last windows of a node: edges to the next few nodes.
fn windows(made: &Made<'_>, node: u32, random: &mut Random) -> Result<String> {
    let mut text = String::new();
    for round in made.rounds.saturating_sub(40)..made.rounds {
        let start = START_NS + WINDOW_NS * round as i64;
        let middle = start + WINDOW_NS / 2;
        let own = middle + offset_ns(node, middle) as i64;
        let edge = |dst: u32, random: &mut Random| {
            json!({
                "src": node, "dst": dst, "midpoint_ns": own, "alpha": 0.0, "beta": offset_ns(dst, middle) - offset_ns(node, middle) + 60.0 * random.next(),
                "pairs": 300, "lost": if dst == 9 { 12 } else { 0 }, "covariance": [9.0, 0.0, 1e-18], "margin_ns": 800.0 + 20.0 * f64::from(dst % 5), "bound_lo_ns": null,
                "bound_hi_ns": null, "alpha_bounds": [0.0, 0.0], "feasible": true, "purity": 0.5, "stamp": "kernel", "stamp_errors_ns": [0.0, 0.0],
            })
        };
        let edges: Vec<Value> = (1..=4.min(made.nodes.saturating_sub(1)))
            .map(|step| edge((node + step * step) % made.nodes, random))
            .filter(|edge| edge["src"] != edge["dst"])
            .collect();
        let line = json!({
            "node_id": node, "window_id": round, "round_id": round, "window_start_ns": own - WINDOW_NS / 2, "window_end_ns": own + WINDOW_NS / 2, "edges": edges,
            "clock_event": null, "stop_requested": false,
        });
        writeln!(text, "{line}")?;
    }
    Ok(text)
}

/// Kineto traces of a job on the nodes of a made run: an all-reduce in each step, to which one rank
/// comes late. Numbers of steps are not in order of time.
pub fn traces(folder: &Path, ranks: u32, host: &dyn Fn(u32) -> String) -> Result<Vec<PathBuf>> {
    let all: Vec<u32> = (0..ranks).collect();
    let mut paths = Vec::new();
    for rank in 0..ranks {
        let mut events = Vec::new();
        let mut random = Random(1000 + u64::from(rank));
        for step in 0..40_u32 {
            let begin = START_NS + 20_000_000_000 + 10_000_000 * i64::from(step);
            let own = |at: i64| at as f64 + offset_ns(rank, at) - START_NS as f64;
            let late = if rank == ranks / 2 && step % 4 != 3 { 900_000 } else { 0 };
            let arrival = begin + 2_000_000 + (150_000.0 * (1.0 + random.next())) as i64 + late;
            let end = begin + 3_500_000 + 2_000 * i64::from(rank);
            let us = |at: i64| format!("{:.3}", own(at) * 1e-3);
            let number = (step + 20) % 40;
            events.push(format!(r#"{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{number}", "pid": 1, "tid": 1, "ts": {}, "dur": 9000}}"#, us(begin)));
            let args = format!(
                r#""Collective name": "allreduce", "Process Group Name": "0", "Seq": {step}, "Process Group Ranks": "{all:?}""#
            );
            events.push(format!(
                r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 7, "ts": {}, "dur": {:.3}, "args": {{{args}}}}}"#,
                us(arrival), (end - arrival) as f64 * 1e-3
            ));
        }
        let head = json!({"rank": rank, "world_size": ranks, "pg_config": [{"pg_name": "0", "ranks": all}]});
        let host = json!((host)(rank));
        let path = folder.join(format!("rank{rank}.json"));
        let text = format!(
            r#"{{"baseTimeNanoseconds": {START_NS}, "distributedInfo": {head}, "host_name": {host}, "traceEvents": [{}]}}"#,
            events.join(",\n")
        );
        std::fs::write(&path, text)?;
        paths.push(path);
    }
    Ok(paths)
}

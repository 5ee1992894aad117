//! The documents that the root writes before the first round: `run.json` and the head of
//! `offsets.jsonl`.

use probe_sync_lines::{NodeRecord, OffsetsHeader};
use probe_sync_time::NodeId;
use serde_json::{Value, json};

use crate::join::{Hello, Joined, ranks};

/// Returns the content of `run.json`.
pub(super) fn run(joined: &Joined, hellos: &[Hello]) -> Value {
    let Joined { config, plan, roster, edges, backend, ranks: size, .. } = joined;
    let configuration: serde_json::Map<String, Value> =
        config.entries().into_iter().map(|(key, value)| (key, Value::String(value))).collect();
    let nodes: Vec<Value> = roster
        .nodes
        .iter()
        .enumerate()
        .map(|(node, ready)| {
            let rank = plan.rank_of_node[node];
            json!({"node_id": node, "rank": rank, "hostname": plan.hostnames[rank as usize],
                   "address": ready.address.to_string(), "stamp": ready.stamp, "stamp_error_ns": ready.stamp_error_ns,
                   "tracer_clock": ready.tracer_clock.as_ref().map(|(name, reason)| json!({"name": name, "reason": reason}))})
        })
        .collect();
    let missing: Vec<usize> = (0..hellos.len()).filter(|rank| hellos[*rank].missing).collect();
    // One entry per clock: ranks of one host say the same.
    let mut hosts = serde_json::Map::new();
    for hello in hellos.iter().filter(|hello| !hello.missing) {
        let facts = serde_json::from_str(&hello.host_facts).unwrap_or(Value::Null);
        let name = match hello.one_clock() {
            (identity, 0) => identity.to_owned(),
            (identity, machine) => format!("{identity}#{machine}"),
        };
        hosts.entry(name).or_insert(facts);
    }
    json!({
        "run_id": plan.run.to_string(), "version": env!("CARGO_PKG_VERSION"), "backend": backend,
        "ranks": size, "reference": roster.reference, "start_ns": roster.start.as_ns(),
        "configuration": configuration, "nodes": nodes, "node_of_rank": plan.node_of_rank,
        "launcher_ranks": ranks(plan, hellos), "missing_ranks": missing,
        "edges": edges.iter().map(|edge| [edge.src, edge.dst]).collect::<Vec<_>>(), "hosts": hosts,
    })
}

/// Returns the first line of `offsets.jsonl`.
pub(super) fn offsets_header(joined: &Joined, hellos: &[Hello]) -> OffsetsHeader {
    let Joined { plan, roster, .. } = joined;
    let node = |node: usize| {
        let node_id = NodeId(node as u32);
        let host = Some(plan.host_of_node[node]);
        let hostname = Some(plan.hostname(node_id).to_owned()).filter(|_| !roster.nodes[node].is_missing());
        NodeRecord { hostname, node_id, host }
    };
    OffsetsHeader {
        meta: true,
        nodes: (0..roster.nodes.len()).map(node).collect(),
        reference: roster.reference,
        ranks: ranks(plan, hellos),
    }
}

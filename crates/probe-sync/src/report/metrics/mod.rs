//! The state of a run as metrics, for `metrics.prom` and `--metrics-listen`.
//!
//! The root's recorder passes in every round after its broadcast ([`Observed`]) and other events,
//! and takes the text. [`server`] serves the same text; [`text`] converts it into the two formats
//! that readers accept. Names follow OpenMetrics: units are written out, counters end in `_total`.

mod families;
mod late;
mod nodes;
mod observed;
mod process;
mod server;
mod text;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration as StdDuration, SystemTime, UNIX_EPOCH};

use probe_sync_collective::Traffic;
use probe_sync_lines::{Fault, NodeWindow, Round, SnapshotCounts};
use probe_sync_time::NodeId;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use self::families::{Count, Families, Histograms, Value, labels};
use self::late::LateMetrics;
use self::nodes::Nodes;
pub(crate) use self::observed::Observed;
pub(super) use self::server::MetricsServer;
pub(super) use self::text::{prometheus_text, whole};
use crate::late::Totals;
use crate::measure::counters::Counter;
use crate::store::StreamState;

/// The metrics of a run.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    nodes: Nodes,
    rounds: Count,
    last_round: Value,
    window: Value,
    cadence: Value,
    nodes_within_target: Value,
    sequence_skew: Value,
    parts: Histograms,
    round_latency: Histogram,
    message_bytes: Histograms,
    control_messages: Families<Count>,
    control_bytes: Families<Count>,
    retries: Count,
    snapshots: Families<Count>,
    /// Latest counts of retries and snapshot pairs, by node.
    told: HashMap<NodeId, (u64, SnapshotCounts)>,
    ranks_lost: Count,
    ranks_returned: Count,
    ranks_away: Value,
    rank_away: Families<Value>,
    faults: Families<Count>,
    stopped_files: Value,
    removed_bytes: Count,
    /// Present once a rank has arrived anywhere.
    late: Option<LateMetrics>,
    /// Latest counters of the backend.
    carried: Traffic,
    target_ns: Option<f64>,
}

impl Metrics {
    /// Creates the metrics of a run whose nodes have these hosts; `target_ns` is the target
    /// half-width of adaptive probing.
    pub fn new(hosts: &[&str], target_ns: Option<f64>) -> Self {
        let mut registry = Registry::with_prefix("probe_sync");
        let r = &mut registry;
        let latency = "Time from the end of the root's window to the round's result";
        let metrics = Self {
            nodes: Nodes::register(r, hosts),
            rounds: families::count(r, "rounds", "Solved rounds"),
            last_round: families::seconds(r, "last_round_timestamp", "Unix time at which the last round was solved"),
            window: families::seconds(r, "window", "Length of the current window"),
            cadence: families::seconds(r, "cadence", "Interval between exchanges started by one host"),
            nodes_within_target: Value::default(),
            sequence_skew: families::seconds(
                r,
                "sequence_skew",
                "Time between the first and the last node to end the window, on the reference clock",
            ),
            parts: families::durations(r, "round_part", "Duration of each phase of a round at the root"),
            round_latency: families::duration(r, "round_latency", latency),
            message_bytes: families::sizes(r, "round_message", "Serialised size of a round's messages"),
            control_messages: families::counts(r, "control_messages", "Messages between the root and other ranks"),
            control_bytes: families::byte_counts(r, "control", "Bytes between the root and other ranks"),
            retries: families::count(r, "control_retries", "Retried connections and messages to other ranks"),
            snapshots: families::counts(r, "snapshots", "Snapshot pairs of all nodes, by outcome"),
            ranks_lost: families::count(r, "ranks_lost", "Number of times a rank was lost"),
            ranks_returned: families::count(r, "ranks_returned", "Number of times a rank came back"),
            ranks_away: families::value(r, "ranks_away", "Ranks that are currently absent"),
            rank_away: families::values(
                r,
                "rank_away",
                "1 while a rank is absent; ranks that were never absent are not listed",
            ),
            faults: families::counts(r, "faults", "Clock and path faults, by kind"),
            stopped_files: families::value(
                r,
                "files_stopped",
                "Recorded files that cannot currently be written, for example because the disk is full",
            ),
            removed_bytes: families::byte_count(
                r,
                "removed",
                "Recorded bytes of the root that were removed to stay within keep_bytes",
            ),
            late: None,
            carried: Traffic::default(),
            told: HashMap::new(),
            target_ns,
            registry: Registry::default(),
        };
        let mut metrics = Self { registry, ..metrics };
        if let Some(target_ns) = target_ns {
            metrics.aim_at(target_ns);
        }
        metrics
    }

    fn aim_at(&mut self, target_ns: f64) {
        let r = &mut self.registry;
        families::seconds(r, "target", "Target half-width of the 95 % intervals").set(target_ns * 1e-9);
        self.nodes_within_target =
            families::value(r, "nodes_within_target", "Nodes whose 95 % interval meets the target");
    }

    /// Updates the metrics from a solved round.
    pub fn round(&mut self, round: &Round, latency: StdDuration, observed: &Observed<'_>) {
        self.rounds.inc();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_round.set(now.as_secs_f64());
        self.window.set(round.decision.next_window.as_ns_f64() * 1e-9);
        self.cadence.set(round.decision.cadence.as_ns_f64() * 1e-9);
        if let Some(target_ns) = self.target_ns {
            let within = |node: &&_| nodes::half_width_ns(node) <= target_ns;
            self.nodes_within_target.set(round.all_nodes.iter().filter(within).count() as f64);
        }
        if let Some(skew_ns) = nodes::sequence_skew_ns(round, observed.windows) {
            self.sequence_skew.set(skew_ns * 1e-9);
        }
        self.nodes.round(round, observed);
        for (part, took) in observed.parts.iter() {
            self.parts.get_or_create(&labels(&[("part", part.name())])).observe(took.as_secs_f64());
        }
        self.round_latency.observe(latency.as_secs_f64());
        for (message, bytes) in [("gather", observed.gathered_bytes), ("decision", observed.decision_bytes)] {
            self.message_bytes.get_or_create(&labels(&[("message", message)])).observe(bytes as f64);
        }
        self.carried(observed.traffic);
        self.counted(observed.windows);
        for Fault { kind, .. } in &round.watch.faults {
            self.faults.get_or_create(&labels(&[("kind", kind.as_str())])).inc();
        }
    }

    fn carried(&mut self, now: Traffic) {
        let before = std::mem::replace(&mut self.carried, now);
        let directions = [
            ("sent", now.messages_sent, before.messages_sent, now.bytes_sent, before.bytes_sent),
            ("received", now.messages_received, before.messages_received, now.bytes_received, before.bytes_received),
        ];
        for (direction, messages, messages_before, bytes, bytes_before) in directions {
            let direction = labels(&[("direction", direction)]);
            self.control_messages.get_or_create(&direction).inc_by(messages.saturating_sub(messages_before));
            self.control_bytes.get_or_create(&direction).inc_by(bytes.saturating_sub(bytes_before));
        }
    }

    /// Adds the nodes' cumulative counts; a node that was restarted begins at 0.
    fn counted(&mut self, windows: &[NodeWindow]) {
        for NodeWindow { node_id, punctuality, .. } in windows {
            let now = (punctuality.control_retries, punctuality.snapshots);
            let before = self.told.insert(*node_id, now).unwrap_or_default();
            let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
            self.retries.inc_by(since(now.0, before.0));
            for ((kind, now), (_, before)) in kinds(now.1).into_iter().zip(kinds(before.1)) {
                if now > 0 {
                    self.snapshots.get_or_create(&labels(&[("kind", kind)])).inc_by(since(now, before));
                }
            }
        }
    }

    /// Records that a rank has left or returned; `all_away` ranks are absent now.
    pub fn rank(&mut self, rank: usize, host: &str, away: bool, all_away: usize) {
        if away { &self.ranks_lost } else { &self.ranks_returned }.inc();
        self.rank_away
            .get_or_create(&labels(&[("rank", &rank.to_string()), ("host", host)]))
            .set(f64::from(u8::from(away)));
        self.ranks_away.set(all_away as f64);
    }

    /// Records the host of a rank that was missing, and of its node.
    pub fn came(&mut self, rank: usize, node: Option<NodeId>, host: &str) {
        let of_rank = |host| labels(&[("rank", &rank.to_string()), ("host", host)]);
        self.rank_away.remove(&of_rank(""));
        self.rank_away.get_or_create(&of_rank(host)).set(1.0);
        if let Some(node) = node {
            self.nodes.came(node, host);
        }
    }

    /// Updates the state of the root's recordings, and of those that the nodes reported.
    pub fn streams(&mut self, own: [&StreamState; 2], windows: &[NodeWindow]) {
        let stopped = own.iter().filter(|state| state.stopped.is_some()).count() as u32;
        let of_nodes: u32 = windows.iter().map(|window| window.punctuality.files_stopped).sum();
        self.stopped_files.set((stopped + of_nodes).into());
        let removed: u64 = own.iter().map(|state| state.removed_bytes).sum();
        self.removed_bytes.inc_by(removed.saturating_sub(self.removed_bytes.get()));
    }

    /// Updates the metrics of late ranks.
    pub fn late(&mut self, totals: &Totals) {
        self.late.get_or_insert_with(|| LateMetrics::register(&mut self.registry)).set(totals);
    }

    /// Records what is known only at the end: the ranks' accounts.
    pub fn end(&mut self, cpu_cores: f64, counters: &BTreeMap<Counter, u64>) {
        let r = &mut self.registry;
        families::value(r, "cpu_cores", "Processor time of all ranks while probing, in cores").set(cpu_cores);
        let meanings: String =
            counters.keys().map(|counter| format!(" {}: {}", counter.name(), counter.help())).collect();
        let help = format!("Counted events, by kind, over all ranks.{}", meanings.trim_end_matches('.'));
        let events = families::counts(r, "events", &help);
        for (counter, count) in counters {
            events.get_or_create(&labels(&[("kind", counter.name())])).inc_by(*count);
        }
    }

    /// Returns the metrics as OpenMetrics text, without the end marker.
    pub fn render(&self) -> Arc<str> {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry).expect("a String takes any text");
        text.into()
    }
}

/// Returns the counts of snapshot pairs, by name.
fn kinds(of: SnapshotCounts) -> [(&'static str, u64); 5] {
    let SnapshotCounts { taken, failed, missed_deadline, dropped, wide } = of;
    [("taken", taken), ("failed", failed), ("missed_deadline", missed_deadline), ("dropped", dropped), ("wide", wide)]
}

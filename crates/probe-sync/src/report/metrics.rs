//! `metrics.prom`: the state of a run in OpenMetrics text, for a node exporter's textfile collector.
//!
//! Place in the flow: the root refreshes the file after every round, from a running summary, and writes it once more at the end.
//! What it does not do: serve HTTP.

use std::collections::BTreeMap;
use std::fmt::Write;

use probe_sync_estimate::faults::FaultKind;
use probe_sync_estimate::window::NodeEstimate;

use super::SIGMAS_95;
use crate::measure::counters::Counter;
use crate::pace::adaptive::PacingReport;

/// What the metrics say.
#[derive(Clone, Debug, Default)]
pub(super) struct Metrics<'a> {
    /// The last round's nodes, each with its host.
    pub nodes: Vec<(&'a NodeEstimate, &'a str)>,
    /// Solved rounds.
    pub rounds: u64,
    /// Processor time of all ranks while probing, in cores.
    pub cpu_cores: f64,
    /// Median and largest latency of a round, µs.
    pub round_latency_us: [f64; 2],
    /// What adaptive probing did.
    pub pacing: Option<&'a PacingReport>,
    /// Counted events; empty until the end.
    pub counters: BTreeMap<Counter, u64>,
    /// Ranks that are gone.
    pub ranks_away: usize,
    /// Faults by kind.
    pub faults_by_kind: BTreeMap<FaultKind, u64>,
}

impl Metrics<'_> {
    /// The content of `metrics.prom`.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let one = |value: f64| vec![(String::new(), value)];
        self.render_nodes(&mut text);
        gauge(&mut text, "rounds", "Solved rounds.", &one(self.rounds as f64));
        gauge(&mut text, "ranks_away", "Ranks that are gone and not back.", &one(self.ranks_away as f64));
        gauge(&mut text, "cpu_cores", "Processor time of all ranks while probing, in cores.", &one(self.cpu_cores));
        let [middle, largest] = self.round_latency_us.map(|us| us * 1e-6);
        let latencies = [("{quantile=\"0.5\"}".into(), middle), ("{quantile=\"1\"}".into(), largest)];
        gauge(
            &mut text,
            "round_latency_seconds",
            "Time from a window's end to its result, median and largest.",
            &latencies,
        );
        if let Some(pacing) = self.pacing {
            let cadence = pacing.final_cadence_ns as f64 * 1e-9;
            gauge(&mut text, "cadence_seconds", "Gap between exchanges started by one host.", &one(cadence));
            let target = pacing.target_ns * 1e-9;
            gauge(&mut text, "target_seconds", "Wanted half-width of the 95 % intervals.", &one(target));
            let within = pacing.nodes_within.into();
            gauge(&mut text, "nodes_within_target", "Nodes whose 95 % interval is that narrow.", &one(within));
        }
        self.render_events(&mut text);
        text.push_str("# EOF\n");
        text
    }

    fn render_nodes(&self, text: &mut String) {
        let by_node = |value: fn(&NodeEstimate) -> f64| {
            let reachable = self.nodes.iter().filter(|(node, _)| node.reachable);
            let line = |(node, host): &(&NodeEstimate, &str)| {
                (format!("{{node=\"{}\",host=\"{}\"}}", node.node_id, escape(host)), value(node))
            };
            reachable.map(line).collect::<Vec<_>>()
        };
        let offsets = by_node(|node| node.offset_ns * 1e-9);
        gauge(text, "offset_seconds", "This clock minus the reference clock.", &offsets);
        let drifts = by_node(|node| node.drift_ppm * 1e-6);
        gauge(text, "drift_ratio", "Rate of this clock against the reference.", &drifts);
        let widths = by_node(|node| node.sigma_ns * SIGMAS_95 * 1e-9);
        gauge(text, "offset_half_width_seconds", "Half-width of the 95 % interval of the offset.", &widths);
    }

    fn render_events(&self, text: &mut String) {
        let kind = |name: &str, count: u64| (format!("{{kind=\"{name}\"}}"), count as f64);
        let counters: Vec<_> = self.counters.iter().map(|(counter, count)| kind(counter.name(), *count)).collect();
        let meanings = self.counters.keys().map(|counter| format!(" {}: {}", counter.name(), counter.help()));
        let help = format!("Counted events, by kind, over all ranks.{}", meanings.collect::<String>());
        gauge(text, "events", &help, &counters);
        let faults: Vec<_> = self.faults_by_kind.iter().map(|(fault, count)| kind(fault.as_str(), *count)).collect();
        gauge(text, "faults", "Clocks and paths that went wrong, by kind.", &faults);
    }
}

fn gauge(text: &mut String, name: &str, help: &str, lines: &[(String, f64)]) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# HELP probe_sync_{name} {help}\n# TYPE probe_sync_{name} gauge");
    for (labels, value) in lines {
        let _ = writeln!(text, "probe_sync_{name}{labels} {value}");
    }
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_comes_with_its_help() {
        let counters = Counter::ALL.iter().map(|counter| (*counter, 1)).collect();
        let text = Metrics { counters, ..Metrics::default() }.render();
        for counter in Counter::ALL {
            assert!(text.contains(&format!("probe_sync_events{{kind=\"{}\"}} 1\n", counter.name())), "{text}");
            assert!(text.contains(&format!("{}: {}", counter.name(), counter.help())), "{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}

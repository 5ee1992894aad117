//! `metrics.prom`: the counters of a run in OpenMetrics text, for a node exporter's textfile collector.
//!
//! Place in the flow: after the report. What it does not do: serve HTTP.

use std::fmt::Write;

use crate::report::RunReport;

/// The content of `metrics.prom`.
pub fn render(report: &RunReport) -> String {
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, lines: &[(String, f64)]| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP probe_sync_{name} {help}\n# TYPE probe_sync_{name} gauge");
        for (labels, value) in lines {
            let _ = writeln!(text, "probe_sync_{name}{labels} {value}");
        }
    };
    let by_node = |value: fn(&crate::report::NodeRow) -> f64| {
        let reachable = report.nodes.iter().filter(|node| node.reachable);
        reachable
            .map(|node| (format!("{{node=\"{}\",host=\"{}\"}}", node.node_id, escape(&node.host)), value(node)))
            .collect::<Vec<_>>()
    };
    let one = |value: f64| vec![(String::new(), value)];
    gauge("offset_seconds", "This clock minus the reference clock.", &by_node(|node| node.offset_ns * 1e-9));
    gauge("drift_ratio", "Rate of this clock against the reference.", &by_node(|node| node.drift_ppm * 1e-6));
    gauge(
        "offset_half_width_seconds",
        "Half-width of the 95 % interval of the offset.",
        &by_node(|node| node.half_width_95_ns * 1e-9),
    );
    gauge("rounds", "Solved rounds.", &one(report.rounds as f64));
    gauge("cpu_cores", "Processor time of all ranks while probing, in cores.", &one(report.cpu_cores));
    gauge(
        "round_latency_seconds",
        "Time from a window's end to its result, median and largest.",
        &[
            ("{quantile=\"0.5\"}".into(), report.round_latency_us[0] * 1e-6),
            ("{quantile=\"1\"}".into(), report.round_latency_us[1] * 1e-6),
        ],
    );
    if let Some(pacing) = &report.pacing {
        gauge(
            "cadence_seconds",
            "Gap between exchanges started by one host.",
            &one(pacing.final_cadence_ns as f64 * 1e-9),
        );
        gauge("target_seconds", "Wanted half-width of the 95 % intervals.", &one(pacing.target_ns * 1e-9));
        gauge("nodes_within_target", "Nodes whose 95 % interval is that narrow.", &one(pacing.nodes_within.into()));
    }
    let counters: Vec<(String, f64)> =
        report.counters.iter().map(|(counter, count)| (format!("{{kind=\"{}\"}}", counter.name()), *count as f64)).collect();
    let meanings = report.counters.keys().map(|counter| format!(" {}: {}", counter.name(), counter.help()));
    gauge("events", &format!("Counted events, by kind, over all ranks.{}", meanings.collect::<String>()), &counters);
    let faults: Vec<(String, f64)> = report
        .faults_by_kind
        .iter()
        .map(|(kind, count)| (format!("{{kind=\"{}\"}}", kind.as_str()), *count as f64))
        .collect();
    gauge("faults", "Clocks and paths that went wrong, by kind.", &faults);
    text.push_str("# EOF\n");
    text
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

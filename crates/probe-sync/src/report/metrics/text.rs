//! The two text formats for metrics: OpenMetrics, and the Prometheus text format.
//!
//! A node exporter's textfile collector and `promtool` read only the older Prometheus text format.
//! It differs as follows: a counter's `TYPE` and `HELP` name it as its sample does, with `_total`,
//! and there is no `UNIT`.

use std::time::Duration;

use super::process;

/// Returns a run's metrics and those of the process as complete OpenMetrics text. The age of the
/// last round is only for immediate readers, since in a file it would not change.
pub(in crate::report) fn whole(metrics: &str, age: Option<Duration>) -> String {
    format!("{metrics}{}# EOF\n", process::render(age))
}

/// Converts to the Prometheus text format, version 0.0.4.
pub(in crate::report) fn prometheus_text(metrics: &str) -> String {
    let mut text = String::with_capacity(metrics.len());
    // HELP comes before TYPE, which alone says that it is a counter.
    let mut help = None;
    for line in metrics.lines() {
        match line.split_once(' ').zip(line.strip_prefix("# ")) {
            Some((_, rest)) if rest.starts_with("HELP ") => help = rest["HELP ".len()..].split_once(' '),
            Some((_, rest)) if rest.starts_with("TYPE ") => {
                let (name, kind) = rest["TYPE ".len()..].split_once(' ').unwrap_or((rest, "untyped"));
                let suffix = if kind == "counter" { "_total" } else { "" };
                if let Some((_, help)) = help.take() {
                    text.push_str(&format!("# HELP {name}{suffix} {help}\n"));
                }
                text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
            }
            Some((_, rest)) if rest.starts_with("UNIT ") || rest == "EOF" => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

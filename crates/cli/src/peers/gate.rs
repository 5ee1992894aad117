//! `doctor --peers --strict`: whether each host of a job is fit for it, in one line.
//!
//! A host is unfit if its clock, its UDP paths, its timestamps or its settings would spoil the job
//! or its measurement.

use probe_sync::RunReport;
use probe_sync::report::NodeRow;
use probe_sync_sys::doctor::Level;
use probe_sync_time::{Duration, StampSource};
use schemars::JsonSchema;
use serde::Serialize;

use super::survey::{HostRow, HostState, Survey};
use crate::table::signed;

/// Limits on clock differences between hosts.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest offset from the reference.
    pub offset: Duration,
    /// Largest rate relative to the reference, ppm.
    pub rate_ppm: f64,
}

/// Output of `probe_sync doctor --peers --strict --json`: the verdict on every host.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Gate {
    schema: u32,
    /// Largest allowed offset, ns.
    max_offset_ns: i64,
    /// Largest allowed rate, ppm.
    max_rate_ppm: f64,
    /// Hosts, indexed by node.
    hosts: Vec<GateRow>,
}

/// Verdict on one host.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GateRow {
    node_id: u32,
    host: String,
    /// Clock minus reference clock, ns; null if no packets connect the host to the reference.
    offset_ns: Option<f64>,
    /// Rate relative to the reference, ppm.
    rate_ppm: Option<f64>,
    /// Reasons for failing; empty if the host passes.
    problems: Vec<String>,
}

impl Gate {
    /// Judges the results of a survey; `states` is indexed by rank.
    pub(super) fn new(survey: &Survey, report: &RunReport, states: &[HostState], limits: Limits) -> Self {
        let kernel = report.nodes.iter().filter(|node| node.stamp != StampSource::User).count();
        let row = |(node, host): (&NodeRow, &HostRow)| {
            let state = states.get(node.rank as usize);
            let known = node.reachable || node.node_id == report.reference;
            let (offset_ns, rate_ppm) = (known.then_some(node.offset_ns), known.then_some(node.drift_ppm));
            let mut problems = clock_problems(offset_ns, rate_ppm, limits);
            problems.extend(path_problems(host));
            if node.stamp == StampSource::User && 2 * kernel > report.nodes.len() {
                problems.push("only user-space timestamps, unlike most hosts".to_owned());
            }
            let failures = state.into_iter().flat_map(|state| &state.facts).filter(|fact| fact.level == Level::Fail);
            problems.extend(failures.map(|fact| format!("{}: {}", fact.topic, fact.finding)));
            GateRow { node_id: node.node_id.0, host: node.host.clone(), offset_ns, rate_ppm, problems }
        };
        let hosts = report.nodes.iter().zip(&survey.hosts).map(row).collect();
        Self { schema: 1, max_offset_ns: limits.offset.as_ns(), max_rate_ppm: limits.rate_ppm, hosts }
    }

    /// Returns the number of hosts that fail.
    pub fn unfit(&self) -> usize {
        self.hosts.iter().filter(|host| !host.problems.is_empty()).count()
    }

    /// Returns one line per host, and a note on the consequences if clocks are far apart.
    pub(super) fn text(&self) -> String {
        let width = self.hosts.iter().map(|host| host.host.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for GateRow { node_id, host, offset_ns, rate_ppm, problems } in &self.hosts {
            let level = if problems.is_empty() { "ok  " } else { "FAIL" };
            let offset = offset_ns.map_or_else(|| "unknown".to_owned(), signed);
            let rate = rate_ppm.map_or_else(|| "-".to_owned(), |ppm| format!("{ppm:+.2} ppm"));
            let problems = problems.join("; ");
            let line = format!("{level}  {node_id:>4}  {host:width$}  {offset:>14}  {rate:>12}  {problems}");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        if self.hosts.iter().any(|host| host.offset_ns.is_some_and(|ns| ns.abs() >= MINUTE_NS)) {
            text.push_str(MINUTES_APART);
        }
        text
    }
}

fn clock_problems(offset_ns: Option<f64>, rate_ppm: Option<f64>, limits: Limits) -> Vec<String> {
    let offset = offset_ns.filter(|ns| ns.abs() > limits.offset.as_ns_f64());
    let offset = offset.map(|ns| {
        let side = if ns > 0.0 { "ahead of" } else { "behind" };
        format!("its clock is {} {side} the reference's", crate::table::unsigned(ns.abs()))
    });
    let rate = rate_ppm.filter(|ppm| ppm.abs() > limits.rate_ppm);
    let rate = rate.map(|ppm| format!("its clock rate is {ppm:+.1} ppm relative to the reference"));
    offset.into_iter().chain(rate).collect()
}

fn path_problems(host: &HostRow) -> Vec<String> {
    let direction = |way: &str, reached: usize, of: usize, lost: f64| match () {
        () if reached < of => Some(format!("UDP {way} {} of {of} nodes is blocked", of - reached)),
        () if lost > LOST_MAX => Some(format!("{:.0} % of UDP packets {way} other nodes are lost", 100.0 * lost)),
        () => None,
    };
    let [out, back] = host.lost;
    let ways = [
        direction("to", host.reaches.reached, host.reaches.of, out),
        direction("from", host.reached_by.reached, host.reached_by.of, back),
    ];
    ways.into_iter().flatten().collect()
}

/// Share of lost packets above which a host fails.
const LOST_MAX: f64 = 0.1;
const MINUTE_NS: f64 = 60e9;
const MINUTES_APART: &str = "\
Clocks that differ by minutes end torchelastic jobs, because agents consider each other's keep-alives expired. Set the clocks before the job starts,
for example with `chronyc makestep`.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_unfit_beyond_either_limit() {
        let limits = Limits { offset: Duration::from_ms(100), rate_ppm: 100.0 };
        let found = |offset_ns: f64, ppm: f64| clock_problems(Some(offset_ns), Some(ppm), limits);
        assert!(found(99e6, -99.0).is_empty());
        assert_eq!(found(-125e9, 5.0), ["its clock is 125 s behind the reference's"]);
        assert_eq!(found(0.0, 120.0), ["its clock rate is +120.0 ppm relative to the reference"]);
        assert!(clock_problems(None, None, limits).is_empty());
    }
}

//! The traces of a request, and the snapshot pairs that belong to them.
//!
//! They are read after the source is open, because a run knows its hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::Error;
use probe_sync_formats::{CpuClock, FactOptions};

use super::source::Source;
use crate::request::Request;
use probe_sync_time::TimeNamespace;

use crate::clocks::{Snapshots, read_snapshots};
use crate::folders::{self, Found};
use crate::merge::format_for_viewers;
use crate::nodes::{self, NodeTrace};

/// The traces of a request.
pub(super) struct Traces {
    /// In the caller's order.
    pub(super) paths: Vec<PathBuf>,
    /// In order of nodes.
    pub(super) read: Vec<NodeTrace>,
    /// Why others were left out, if that is allowed.
    pub(super) left_out: Vec<nodes::LeftOutFile>,
    /// What was found in folders.
    pub(super) notes: Vec<String>,
}

/// Reads the facts of all traces and determines their nodes.
pub(super) fn read(request: &Request, source: &Source) -> Result<Traces, Error> {
    let markers = request.markers.clone();
    if markers.as_ref().is_some_and(|regex| !regex.capture_names().flatten().any(|name| name == "system_ns")) {
        let problem =
            "--snapshot-markers: the pattern needs a group named system_ns, as in clk#(?<system_ns>\\d+)".to_owned();
        return Err(Error::Request { problem });
    }
    if request.assume_order && (request.traces.is_empty() || !request.nodes.is_empty()) {
        let problem = "--assume-order needs a list of --traces, whose order it uses, and excludes --nodes".to_owned();
        return Err(Error::Request { problem });
    }
    let Found { paths, notes } = folders::of_request(request)?;
    let said = nodes::Said { nodes: &request.nodes, in_order: request.assume_order, skip_bad: request.skip_bad };
    let cpu_clock = request.cpu_clock.clone();
    let merging = request.merging && request.outputs.iter().all(|output| format_for_viewers(output, true).is_none());
    let options = FactOptions { markers, thorough: request.skip_bad, cpu_clock, merging, ..FactOptions::default() };
    let (read, mut left_out) = nodes::read(&paths, &said, &source.known(), &source.marks()?, &options)?;
    if read.is_empty() && !left_out.is_empty() {
        return Err(left_out.swap_remove(0).1);
    }
    let of_no_such_rows = read.iter().find(|trace| trace.facts.cpu_behind_ns.is_none());
    if let Some(trace) = of_no_such_rows.filter(|_| request.cpu_clock.is_some()) {
        let (path, format) = (trace.path.display(), trace.format.name());
        let problem =
            format!("{path}: --cpu-clock applies to rocprof-sys databases, but this trace has the format {format}");
        return Err(Error::Request { problem });
    }
    if let Some(clock) = &request.cpu_clock {
        let mut hosts: BTreeSet<&str> = BTreeSet::new();
        hosts.extend(read.iter().filter_map(|trace| trace.facts.identity.hostname.as_deref()));
        // The host of a trace that was left out may not be known.
        if left_out.is_empty() {
            expect_hosts(clock, &hosts)?;
        }
    }
    Ok(Traces { paths, read, left_out, notes })
}

/// Warnings of the traces themselves, with their names. If many are the same except for their
/// numbers, only a few are kept.
pub(super) fn warnings(traces: &[NodeTrace]) -> Vec<String> {
    let mut alike: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for trace in traces {
        for warning in &trace.facts.warnings {
            let without_numbers: String = warning.chars().filter(|character| !character.is_ascii_digit()).collect();
            alike.entry(without_numbers).or_default().push(format!(
                "{} ({}): {warning}",
                trace.path.display(),
                trace.name
            ));
        }
    }
    let shortened = alike.into_values().flat_map(|mut said| {
        let more = said.len().saturating_sub(TOLD_ALIKE);
        said.truncate(TOLD_ALIKE);
        let rest = (more > 0).then(|| format!("{more} more traces have the same warning"));
        said.into_iter().chain(rest)
    });
    shortened.collect()
}

/// Most traces named with the same warning.
const TOLD_ALIKE: usize = 4;

/// Refuses a name in `--suspended` that is not the host of any trace: the intended trace would
/// remain unchanged.
fn expect_hosts(clock: &CpuClock, hosts: &BTreeSet<&str>) -> Result<(), Error> {
    let Some(name) = clock.suspended.keys().find(|name| !hosts.contains(name.as_str())) else { return Ok(()) };
    let known: Vec<&str> = hosts.iter().copied().collect();
    let known = if known.is_empty() { "unknown".to_owned() } else { known.join(", ") };
    let problem = format!("--suspended {name}=…: no trace is from this host; the traces' hosts are {known}");
    Err(Error::Request { problem })
}

/// The snapshot pairs of each trace, in the traces' sorted order: from the given files, otherwise
/// from the run. Notes about them go to the traces' notes.
pub(super) fn snapshots(
    request: &Request,
    source: &Source,
    paths: &[PathBuf],
    traces: &mut [NodeTrace],
) -> Result<Vec<Option<Snapshots>>, Error> {
    let files = &request.snapshots;
    if !(files.is_empty() || files.len() == paths.len()) {
        let problem = format!("{} traces, but {} snapshot files", paths.len(), files.len());
        return Err(Error::Request { problem });
    }
    let files: BTreeMap<&PathBuf, &PathBuf> = paths.iter().zip(files).rev().collect();
    let of = |trace: &mut NodeTrace| {
        let near = trace.facts.span;
        let process = trace.facts.identity.process.as_ref();
        let stated = process.map(|process| process.time_namespace.unwrap_or_default());
        match (files.get(&trace.path), source) {
            (Some(file), _) => Ok(Some(read_snapshots(file, near)?.in_namespace(stated, true, &[]))),
            (None, Source::Run(run)) if !request.realtime_only => {
                let found = run.snapshots(trace.node, near)?;
                trace.facts.notes.extend(found.iter().flat_map(|found| found.notes.iter().cloned()));
                let on_node = run.survey.ranks.iter().filter(|rank| rank.node_id.0 == trace.node);
                let others: Vec<TimeNamespace> = on_node.filter_map(|rank| rank.time_namespace).collect();
                Ok(found.map(|found| found.in_namespace(stated, false, &others)))
            }
            (None, _) => Ok(None),
        }
    };
    traces.iter_mut().map(of).collect()
}

#[cfg(test)]
mod tests {
    use probe_sync_time::Duration;

    use super::*;

    #[test]
    fn a_suspended_host_that_is_of_no_trace_is_refused() {
        let of = |name: &str| CpuClock {
            suspended: BTreeMap::from([(name.to_owned(), Duration::from_ns(1))]),
            elsewhere: Some(Duration::from_ns(0)),
        };
        let hosts = BTreeSet::from(["node0", "node1"]);
        expect_hosts(&of("node1"), &hosts).expect("a host of a trace");
        let refused = expect_hosts(&of("node01"), &hosts).expect_err("a typing error").to_string();
        assert!(refused.contains("--suspended node01=") && refused.contains("are node0, node1"), "{refused}");
    }
}

//! The omissions of the comparison, and its limits.

use std::collections::BTreeMap;

use probe_sync_alignment::Calibrated;
use probe_sync_alignment::collectives::{Matching, span};

use super::context::StepSpans;
use super::report::{LateInstance, Unpaired};

/// Describes parts that are in no operation, and how to change that.
pub(super) fn unpaired(calibrated: &Calibrated, matching: &Matching) -> Unpaired {
    let merged = calibrated.traces.iter().filter(|of| of.trace.facts.merged);
    let merged: u64 = merged.map(|of| of.trace.facts.collectives.len()).sum();
    let ambiguous = matching.ambiguous.iter().map(|line| line.instances).sum();
    let mut by_reason: BTreeMap<&str, (usize, Vec<&str>)> = BTreeMap::new();
    for line in &matching.ambiguous {
        let (count, operations) = by_reason.entry(&line.reason).or_default();
        *count += line.instances;
        operations.push(&line.operation);
    }
    let told = |(reason, (count, operations)): (&str, (usize, Vec<&str>))| {
        let more =
            if operations.len() > 1 { format!(" and {} other kinds", operations.len() - 1) } else { String::new() };
        format!("{count} × {}{more}: {reason}", operations[0])
    };
    let mut remedies: Vec<String> = by_reason.into_iter().map(told).collect();
    if ambiguous > 0 {
        remedies.push(REMEDY_AMBIGUOUS.to_owned());
    }
    let counts = [
        (matching.unpaired as u64, "parts that appear in no other trace", REMEDY_ALONE),
        (matching.unordered as u64, "parts without a known root or peer", REMEDY_UNORDERED),
        (matching.lost, "parts that could not be stored or read back", REMEDY_LOST),
        (merged, "parts in merged files", REMEDY_MERGED),
    ];
    let told = counts.iter().filter(|(count, ..)| *count > 0);
    remedies.extend(told.map(|(count, what, remedy)| format!("{count} {what}: {remedy}")));
    Unpaired {
        ambiguous_instances: ambiguous,
        alone_parts: matching.unpaired,
        unordered_parts: matching.unordered,
        lost_parts: matching.lost + merged,
        remedies,
    }
}

/// Returns warnings that put every other result in doubt.
pub(super) fn warnings(impossible: usize, instances: &[LateInstance]) -> Vec<String> {
    let worst = instances.iter().map(|instance| instance.transfer_ns).min().unwrap_or(0);
    let [count, all] = [impossible, instances.len()];
    let told = (impossible > 0).then(|| {
        format!(
            "{count} of {all} operations ended before their last arrival, by up to {}, which exceeds the clocks' uncertainty: a clock \
            is wrong, or a trace is assigned to the wrong node; no rank is named; probe_sync check lists these operations",
            span(-worst as f64)
        )
    });
    told.into_iter().collect()
}

/// Returns notes for the user on the whole job.
pub(super) fn notes(calibrated: &Calibrated, instances: &[LateInstance], spans: &StepSpans) -> Vec<String> {
    let mut notes = Vec::new();
    let aligned = || calibrated.traces.iter().filter(|of| of.map.is_none() && of.trace.facts.aligned_to.is_some());
    if aligned().any(|of| of.trace.facts.aligned_sigma_ns.is_none()) {
        notes.push(NOT_HOW_WELL.to_owned());
    } else if aligned().next().is_some() {
        notes.push(AS_WELL_AS_STATED.to_owned());
    }
    if spans.is_empty() && !instances.is_empty() {
        notes.push(
            "no steps were found, so each operation counts by itself; use --step-name to identify the step events"
                .to_owned(),
        );
    }
    notes
}

const REMEDY_AMBIGUOUS: &str = "operations that cannot be paired with certainty are ignored: record process groups (as NCCL kernels \
    of PyTorch 2.4 or later do), or use a single group";
const REMEDY_ALONE: &str = "give the traces of all ranks, recorded over the same steps";
const REMEDY_UNORDERED: &str = "the trace does not record who waits for whom; newer profilers do";
const REMEDY_LOST: &str = "memory or the disk for temporary files (TMPDIR) was full; give traces of fewer steps";
const REMEDY_MERGED: &str = "merged files do not record the rank of each part; give the original traces";
const NOT_HOW_WELL: &str = "the traces are already aligned, with unknown uncertainty, so no rank is named; give the original traces \
    and --run-dir";
const AS_WELL_AS_STATED: &str = "the traces are already aligned: using the uncertainty recorded for their midpoint; with the original \
    traces and --run-dir it is known for every time";

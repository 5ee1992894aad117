//! What the comparison leaves out, and what limits it.
//!
//! Place in the flow: under `summary`. What it does not do: decide what belongs together (`collectives`).

use std::collections::BTreeMap;

use super::context::StepSpans;
use super::operation::DEVIATIONS;
use super::report::{LateInstance, Unpaired};
use crate::calibrate::Calibrated;
use crate::collectives::Matching;

/// What is in no operation, with what would change that.
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
        (matching.unpaired as u64, "parts that no other trace shows", REMEDY_ALONE),
        (matching.unordered as u64, "parts without a known root or peer", REMEDY_UNORDERED),
        (matching.lost, "parts that could not be kept or read back", REMEDY_LOST),
        (merged, "parts in files into which several traces were merged", REMEDY_MERGED),
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

/// What the user should know of the whole.
pub(super) fn notes(calibrated: &Calibrated, instances: &[LateInstance], spans: &StepSpans) -> Vec<String> {
    let mut notes = Vec::new();
    if calibrated.traces.iter().any(|of| of.map.is_none() && of.trace.facts.aligned_to.is_some()) {
        notes.push("the traces were aligned before, and do not say how well: leads count as exact; give the original traces and --run-dir for uncertainties".to_owned());
    }
    if spans.is_empty() && !instances.is_empty() {
        notes.push(
            "no steps were found: each operation stands for itself; --step-name names the events that are steps"
                .to_owned(),
        );
    }
    let overtaken =
        instances.iter().filter(|instance| (instance.transfer_ns as f64) < -DEVIATIONS * instance.lead_sigma_ns);
    let overtaken = overtaken.count();
    if overtaken > 0 {
        notes.push(format!(
            "{overtaken} operations ended before their last arrival beyond what uncertainty explains: a clock is wrong; see probe_sync check"
        ));
    }
    notes
}

const REMEDY_AMBIGUOUS: &str = "what cannot be paired for certain is left out: let each operation name its process group (NCCL kernels of PyTorch 2.4 or later do), or use one group";
const REMEDY_ALONE: &str = "give the traces of all ranks, recorded over the same steps";
const REMEDY_UNORDERED: &str = "who waits for whom is not in the trace; newer profilers state it";
const REMEDY_LOST: &str = "memory or the disk for temporary files (TMPDIR) was full; give traces of fewer steps";
const REMEDY_MERGED: &str = "they do not say whose each part is; give the traces that went into them";

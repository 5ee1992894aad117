//! The provenance that an output states: method, clock, uncertainty and versions.

use probe_sync_formats::model::Picoseconds;
use probe_sync_formats::{ALIGNED_SIGMA, ALIGNED_TO};

use crate::calibrated::{Calibrated, CalibratedTrace};

/// For all traces of a merge.
pub(crate) fn of_job(calibrated: &Calibrated, uncalibrated: &[String]) -> Vec<(String, String)> {
    let mut pairs = of_calibration(calibrated);
    for trace in &calibrated.traces {
        if let Some(sigma) = sigma(trace) {
            pairs.push((format!("{ALIGNED_SIGMA} {}", trace.trace.name), sigma));
        }
    }
    if !uncalibrated.is_empty() {
        pairs.push(("probe_sync_uncalibrated".to_owned(), uncalibrated.join(", ")));
    }
    pairs
}

/// For one trace, written alone or as a part of a merge. One with an unknown clock is on no common
/// timeline, and states none; one that was aligned before states all of this already.
pub(crate) fn of_trace(calibrated: &Calibrated, trace: &CalibratedTrace) -> Vec<(String, String)> {
    let name = trace.trace.name.clone();
    if trace.map.is_none() {
        return match (calibrated.common_clock(), &trace.trace.facts.aligned_to) {
            (Ok(_), Some(_)) => Vec::new(),
            (Ok(_), None) => vec![version()],
            (Err(_), _) => vec![version(), ("probe_sync_uncalibrated".to_owned(), name)],
        };
    }
    let mut pairs = of_calibration(calibrated);
    pairs.push(("probe_sync_name".to_owned(), name));
    pairs.extend(sigma(trace).map(|sigma| (ALIGNED_SIGMA.to_owned(), sigma)));
    pairs
}

/// Traces on clocks of their own are on no common timeline; those that were aligned before are on
/// theirs.
pub(crate) fn of_calibration(calibrated: &Calibrated) -> Vec<(String, String)> {
    let mut pairs = vec![version(), ("probe_sync_method".to_owned(), calibrated.method.to_owned())];
    let traces = &calibrated.traces;
    let mapped = traces.iter().any(|trace| trace.map.is_some()).then_some(&calibrated.timeline);
    let before = traces.first().and_then(|trace| trace.trace.facts.aligned_to.as_ref());
    let before = before.filter(|clock| traces.iter().all(|trace| trace.trace.facts.aligned_to.as_ref() == Some(clock)));
    pairs.extend(mapped.or(before).map(|clock| (ALIGNED_TO.to_owned(), clock.clone())));
    pairs
}

fn version() -> (String, String) {
    ("probe_sync_version".to_owned(), env!("CARGO_PKG_VERSION").to_owned())
}

/// Uncertainty of a trace's map in its middle, ns; `None` if unknown.
fn sigma(of: &CalibratedTrace) -> Option<String> {
    let (first, last): (Picoseconds, Picoseconds) = of.trace.facts.span?;
    let sigma_ns = of.look()?(first + (last - first) / 2).sigma_ns;
    sigma_ns.is_finite().then(|| format!("{sigma_ns:.1}"))
}

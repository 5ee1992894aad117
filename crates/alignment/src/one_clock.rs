//! Checks whether the traces of a command are on one clock at all.
//!
//! Every command that compares times of several traces makes this check first.

use crate::Error;

use crate::calibrated::{Calibrated, CalibratedTrace};
use crate::counting::AlignmentStats;

/// Alternatives suggested by a refusal besides naming a source of clocks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// Nothing: a result on several clocks would be wrong.
    Nothing,
    /// The output may contain the times as they are, if the caller says so.
    AsTheyAre,
}

/// Returns the name of the clock that all traces are on.
///
/// # Errors
/// [`Error::Request`] if no source of clocks was named, otherwise [`Error::Nodes`]: names a trace
/// that is not on the others' clock. `purpose` is what they are compared for.
pub fn expect(calibrated: &Calibrated, purpose: &str, otherwise: Otherwise) -> Result<String, Error> {
    calibrated.common_clock().map_err(|reason| {
        let as_they_are = match otherwise {
            Otherwise::Nothing => "",
            Otherwise::AsTheyAre => "; use --no-correction to leave all times unchanged",
        };
        let remedy = "give --run-dir, --offsets or --from-collectives";
        let problem = if calibrated.has_source {
            format!("{purpose}: no clock is known for {reason}{as_they_are}")
        } else {
            format!("{purpose}: the traces may be on different clocks: {reason}; {remedy}{as_they_are}")
        };
        calibrated.no_clock(problem)
    })
}

/// Notes for a trace without a map, whose times are unchanged, the clock of its times and their
/// uncertainty on it.
pub(crate) fn note_unchanged(calibrated: &Calibrated, of: &CalibratedTrace, stats: &mut AlignmentStats) {
    if of.map.is_some() {
        return;
    }
    let common = calibrated.common_clock();
    // On the clock of the host itself times are exact; what was aligned is as sure as it says; else
    // zero would be a claim.
    stats.uncertainty_ns = match &common {
        Ok(_) if of.is_on_clock_of_host() => 0.0,
        Ok(_) => of.trace.facts.aligned_sigma_ns.unwrap_or(f64::INFINITY),
        Err(_) => f64::INFINITY,
    };
    stats.notes.push(match common {
        Ok(clock) => format!("its times are unchanged, on the {clock}"),
        Err(_) => "its clock is unknown; its times are unchanged".to_owned(),
    });
}

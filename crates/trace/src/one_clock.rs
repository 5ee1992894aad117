//! Whether the traces of a command are on one clock at all.
//!
//! Place in the flow: asked by whoever compares times of different traces, before it does. What it does not do: learn clocks.

use crate::Error;
use crate::calibrate::Calibrated;
use crate::model::{TraceClock, TraceFacts};

/// Refuses traces on clocks of their own, on which nobody is first or last; `purpose` is what they are compared for.
///
/// # Errors
/// [`Error::Request`] names one.
pub(crate) fn expect(calibrated: &Calibrated, purpose: &str) -> Result<(), Error> {
    let traces = &calibrated.traces;
    let Some(unknown) = traces.iter().find(|of| of.map.is_none()).filter(|_| traces.len() > 1) else { return Ok(()) };
    let of = |facts: &TraceFacts| match (&facts.aligned_to, facts.clock) {
        (Some(clock), _) => Some(clock.clone()),
        // The ranks of one host share its system clock.
        (None, TraceClock::System) => facts.identity.hostname.clone(),
        (None, _) => None,
    };
    let first = of(&unknown.trace.facts);
    if first.is_some() && traces.iter().all(|trace| trace.map.is_none() && of(&trace.trace.facts) == first) {
        return Ok(());
    }
    let problem = format!(
        "{purpose}: nothing says that the traces are on one clock, so nobody can be called first or last; give --run-dir, --offsets or \
         --from-collectives ({} has no clock)",
        unknown.trace.path.display()
    );
    Err(Error::Request { problem })
}

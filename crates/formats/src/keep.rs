//! The query by which a merging format asks whether an event goes into the output.
//!
//! The crate's `filter` implements it because it knows times, collectives and sizes.

use crate::Error;
use crate::model::Picoseconds;

/// Decides which events of the inputs of a merge are kept. The decision for one event is the same
/// each time it is asked.
pub trait EventFilter: std::fmt::Debug {
    /// What a name says about its event.
    fn named(&self, name: &str) -> Named;

    /// Whether an event of an input stays.
    fn wants(&self, input: usize, seen: &Seen) -> bool;

    /// Whether an event stays, which is counted.
    fn take(&self, input: usize, seen: &Seen) -> bool;

    /// Counts an end of a flow, which is kept if both its events are.
    fn take_flow_end(&self, stays: bool) -> bool;

    /// Omits an event that does not state its length.
    fn leave_unjudged(&self);

    /// Whether this input is one of the traces, rather than added to them.
    fn knows(&self, input: usize) -> bool;

    /// Whether an event on the reference clock is within the span; the only criterion for what is
    /// added to the traces.
    fn is_within(&self, start_ps: Picoseconds, end_ps: Picoseconds) -> bool;

    /// Must be called before an output of this many bytes gets its name.
    ///
    /// # Errors
    /// [`Error::Request`] if nothing is in it, [`Error::OverBudget`] if it is too large.
    fn accept(&self, bytes: u64) -> Result<(), Error>;
}

/// The properties of an event that decide whether it is kept.
#[derive(Copy, Clone, Debug, Default)]
pub struct Seen {
    /// Start, on the trace's own timeline.
    pub start_ps: Picoseconds,
    /// End.
    pub end_ps: Picoseconds,
    /// What its name says.
    pub named: Named,
    /// It ran on a device.
    pub on_device: bool,
    /// It belongs to a collective, as its launch does.
    pub of_collective: bool,
    /// Its length in the file, bytes.
    pub bytes: u64,
}

/// What the name of an event says.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// It is a step of the program.
    pub is_step: bool,
    /// It was requested by name.
    pub is_wanted: bool,
}

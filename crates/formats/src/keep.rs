//! The query by which a merging format asks whether an event goes into the output.
//!
//! The crate's `filter` implements it because it knows times, collectives and sizes.

use crate::Error;
use crate::model::Picoseconds;

/// Which events of the inputs of a merge stay. Asked twice of one event it says the same.
pub trait EventFilter: std::fmt::Debug {
    /// What a name says of its event.
    fn named(&self, name: &str) -> Named;

    /// Whether an event of an input stays.
    fn wants(&self, input: usize, seen: &Seen) -> bool;

    /// Whether an event stays, which is counted.
    fn take(&self, input: usize, seen: &Seen) -> bool;

    /// An end of a flow: it stays where both its events do. It is counted.
    fn take_flow_end(&self, stays: bool) -> bool;

    /// Leaves out an event that does not say how long it lasts.
    fn leave_unjudged(&self);

    /// Whether this input is of the traces, and not put beside them.
    fn knows(&self, input: usize) -> bool;

    /// Whether an event on the reference clock is within the span; of what is put beside the traces
    /// only this is asked.
    fn is_within(&self, start_ps: Picoseconds, end_ps: Picoseconds) -> bool;

    /// To be asked before an output of so many bytes gets its name.
    ///
    /// # Errors
    /// [`Error::Request`] where nothing is in it, [`Error::OverBudget`] where it is too large.
    fn accept(&self, bytes: u64) -> Result<(), Error>;
}

/// An event as it is judged.
#[derive(Copy, Clone, Debug, Default)]
pub struct Seen {
    /// When it begins, on the trace's own timeline.
    pub start_ps: Picoseconds,
    /// When it ends.
    pub end_ps: Picoseconds,
    /// What its name says.
    pub named: Named,
    /// It ran on a device.
    pub on_device: bool,
    /// It tells of a collective, as its launch does.
    pub of_collective: bool,
    /// How long it is in the file.
    pub bytes: u64,
}

/// What an event's name says.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// It is a step of the program.
    pub is_step: bool,
    /// It is one that was asked for by name.
    pub is_wanted: bool,
}

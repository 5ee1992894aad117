//! A machine whose events stand in a trace on the machine's own clock.
//!
//! Place in the flow: between whoever knows clocks and the writers of formats that can state them ([`super::TraceWriter::on_machine`]).
//! What it does not do: map the times of events.

use probe_sync_estimate::series::TimeMap;

/// A machine on a clock of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Which: not 0, which is the machine whose clock the trace is on.
    pub id: u32,
    /// From its clock to that of the trace.
    pub to_reference: TimeMap,
}

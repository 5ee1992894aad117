//! A machine whose events are written on its own clock.
//!
//! Only formats that can state such clocks use it ([`super::TraceWriter::on_machine`]). It does not
//! map the times of events.

use probe_sync_estimate::series::TimeMap;

/// A machine on a clock of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Number of the machine: never 0, which is the machine whose clock the trace is on.
    pub id: u32,
    /// From its clock to that of the trace.
    pub to_reference: TimeMap,
}

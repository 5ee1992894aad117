//! What came of a calibration: every trace with its map.
//!
//! Place in the flow: made by `calibrate`; `align`, `merge` and `check` work on it.
//! What it does not do: learn clocks, write.

use std::path::PathBuf;

use probe_sync_estimate::series::TimeMap;

use crate::collectives::CollectiveOffsets;
use crate::nodes::NodeTrace;

/// Traces with the maps from their timelines to the reference clock.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// In order of nodes, then ranks.
    pub traces: Vec<CalibratedTrace>,
    /// How the clocks were learnt.
    pub method: &'static str,
    /// Which clock the times are on afterwards.
    pub timeline: String,
    /// Worth telling the user, of no trace in particular.
    pub notes: Vec<String>,
    /// What probably has to be changed.
    pub warnings: Vec<String>,
    /// What the collectives say about the clocks, where they were asked.
    pub collectives: Option<CollectiveOffsets>,
    /// Files that were read beside the traces; no output may be one of them.
    pub(crate) inputs: Vec<PathBuf>,
}

/// One trace and its clock.
#[derive(Clone, Debug)]
pub struct CalibratedTrace {
    /// The trace, and whose it is.
    pub trace: NodeTrace,
    /// From its timeline to the reference clock; None where the node's clock is not known.
    pub map: Option<TimeMap>,
    /// What the user should know.
    pub notes: Vec<String>,
}

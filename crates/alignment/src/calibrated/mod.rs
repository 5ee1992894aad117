//! The result of a calibration: every trace with its map.

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;

use probe_sync_estimate::series::TimeMap;
use probe_sync_formats::Error;
use probe_sync_formats::model::MappedTime;

use crate::clocks::{NodeClock, Snapshots, Span};
use crate::collectives::{CollectiveOffsets, MapTime};
use crate::nodes::NodeTrace;
use crate::omitted::{Omitted, OmittedEvents, OmittedTrace};

pub(crate) use common::ONE_BOOT_PS;

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
    /// Traces that could not be read.
    pub(crate) unread: Vec<OmittedTrace>,
    /// What the collectives say about the clocks, where they were asked.
    pub collectives: Option<CollectiveOffsets>,
    /// The hosts of nodes, as the run recorded them.
    pub hosts: BTreeMap<u32, String>,
    /// The caller named something that clocks are learnt from.
    pub(crate) has_source: bool,
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
    /// How the map came about, and the maps of planes that are on another clock than the file.
    pub(crate) clock: Option<NodeClock>,
    /// Pairs of its node's tracer clock and system clock from elsewhere than the trace.
    pub(crate) snapshots: Option<Snapshots>,
    /// From when until when its node was measured, on the node's own system clock; None where no
    /// measurement is known of.
    pub(crate) measured: Option<Span>,
}

impl Calibrated {
    /// Returns what of the traces is in no result.
    pub fn omitted(&self) -> Omitted {
        let events = self.traces.iter().flat_map(|of| {
            let (path, facts) = (&of.trace.path, &of.trace.facts);
            facts.omitted.iter().map(|(reason, events)| OmittedEvents {
                path: path.clone(),
                rank: facts.identity.rank,
                reason,
                events: *events,
            })
        });
        Omitted { traces: self.unread.clone(), events: events.collect() }
    }

    /// The refusal of traces whose clock is not known: of the request, where it named nothing to
    /// learn clocks from.
    pub(crate) fn no_clock(&self, problem: String) -> Error {
        if self.has_source { Error::Nodes { problem } } else { Error::Request { problem } }
    }
}

impl CalibratedTrace {
    /// A trace whose clock is not known.
    pub(crate) fn unknown(trace: NodeTrace, snapshots: Option<Snapshots>) -> Self {
        let notes = [&trace.facts.notes[..], &trace.facts.warnings].concat();
        Self { map: None, notes, clock: None, snapshots, measured: None, trace }
    }

    /// Where the trace's times are on the reference clock, and how surely; None where its clock is
    /// not known. A trace that was aligned before is there already, as surely as it says; one that
    /// does not say it is known no better than not at all.
    pub fn look(&self) -> Option<Box<MapTime<'_>>> {
        match (&self.clock, &self.trace.facts.aligned_to) {
            (Some(clock), _) => Some(look(clock)),
            (None, Some(_)) => Some(as_is(self.trace.facts.aligned_sigma_ns.unwrap_or(f64::INFINITY))),
            (None, None) => None,
        }
    }
}

/// Times as they are, as surely as that.
pub(crate) fn as_is(sigma_ns: f64) -> Box<MapTime<'static>> {
    Box::new(move |at| MappedTime { at, sigma_ns, own_sigma_ns: sigma_ns, early_by_ns: 0.0 })
}

/// Times through a clock.
pub fn look(clock: &NodeClock) -> Box<MapTime<'_>> {
    Box::new(|time| clock.look(time))
}

//! The result of a calibration: every trace with its map.

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::Error;
use probe_sync_estimate::series::TimeMap;
use probe_sync_formats::model::MappedTime;

use crate::clocks::{NodeClock, Snapshots, Span};
use crate::collectives::{CollectiveOffsets, MapTime};
use crate::nodes::NodeTrace;
use crate::omitted::{Omitted, OmittedEvents, OmittedTrace};

pub(crate) use common::ONE_BOOT_PS;

/// Traces with the maps from their timelines to the reference clock.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// The traces, in order of nodes, then ranks.
    pub traces: Vec<CalibratedTrace>,
    /// How the clocks were determined.
    pub method: &'static str,
    /// Clock of the mapped times.
    pub timeline: String,
    /// Notes for the user that concern no particular trace.
    pub notes: Vec<String>,
    /// Problems that the user should probably fix.
    pub warnings: Vec<String>,
    /// Traces that could not be read.
    pub(crate) unread: Vec<OmittedTrace>,
    /// Clock estimates from the collectives, if requested.
    pub collectives: Option<CollectiveOffsets>,
    /// Hosts of the nodes, as recorded by the run.
    pub hosts: BTreeMap<u32, String>,
    /// True if the caller named a source for the clocks.
    pub(crate) has_source: bool,
    /// Other files read; no output may overwrite them.
    pub(crate) inputs: Vec<PathBuf>,
}

/// One trace and its clock.
#[derive(Clone, Debug)]
pub struct CalibratedTrace {
    /// The trace and its node.
    pub trace: NodeTrace,
    /// Map from its timeline to the reference clock; `None` if the node's clock is unknown.
    pub map: Option<TimeMap>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Origin of the map, and the maps of planes on another clock than the file.
    pub(crate) clock: Option<NodeClock>,
    /// Pairs of the node's tracer and system clocks from a source other than the trace.
    pub(crate) snapshots: Option<Snapshots>,
    /// Measured span of its node, on the node's own system clock; `None` if no measurement is
    /// known.
    pub(crate) measured: Option<Span>,
}

impl Calibrated {
    /// Returns the traces and events that are missing from every result.
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

    /// Returns the error for traces with unknown clocks; it concerns the request if that named no
    /// source for the clocks.
    pub(crate) fn no_clock(&self, problem: String) -> Error {
        if self.has_source { Error::Nodes { problem } } else { Error::Request { problem } }
    }
}

impl CalibratedTrace {
    /// Creates a trace with an unknown clock.
    pub(crate) fn unknown(trace: NodeTrace, snapshots: Option<Snapshots>) -> Self {
        let notes = [&trace.facts.notes[..], &trace.facts.warnings].concat();
        Self { map: None, notes, clock: None, snapshots, measured: None, trace }
    }

    /// Returns a function from the trace's times to the reference clock with their uncertainty;
    /// `None` if its clock is unknown. Times of a trace that was aligned before are returned
    /// unchanged, with the uncertainty that it states; without a stated one they are treated as
    /// unknown.
    pub fn look(&self) -> Option<Box<MapTime<'_>>> {
        match (&self.clock, &self.trace.facts.aligned_to) {
            (Some(clock), _) => Some(look(clock)),
            (None, Some(_)) => Some(as_is(self.trace.facts.aligned_sigma_ns.unwrap_or(f64::INFINITY))),
            (None, None) => None,
        }
    }
}

/// Returns times unchanged, with this uncertainty.
pub(crate) fn as_is(sigma_ns: f64) -> Box<MapTime<'static>> {
    Box::new(move |at| MappedTime { at, sigma_ns, own_sigma_ns: sigma_ns, early_by_ns: 0.0 })
}

/// Returns times mapped through a clock.
pub fn look(clock: &NodeClock) -> Box<MapTime<'_>> {
    Box::new(|time| clock.look(time))
}

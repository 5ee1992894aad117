//! Where the clocks are learnt from, opened.
//!
//! Place in the flow: first step of `calibrate`. What it does not do: make maps.

use crate::Error;
use crate::clocks::{Offsets, RunDirectory};
use crate::nodes::KnownNodes;

use super::ClockSource;

/// A [`ClockSource`] whose files are read.
pub(super) enum Source {
    Run(Box<RunDirectory>),
    Offsets(Offsets),
    Collectives,
    Nothing,
}

impl Source {
    pub(super) fn open(source: &ClockSource) -> Result<Self, Error> {
        Ok(match source {
            ClockSource::Run(directory) => Self::Run(Box::new(RunDirectory::open(directory)?)),
            ClockSource::Offsets(file) => Self::Offsets(Offsets::read(file)?),
            ClockSource::Collectives => Self::Collectives,
            ClockSource::Nothing => Self::Nothing,
        })
    }

    /// The nodes with offsets, and their hosts.
    pub(super) fn known(&self) -> KnownNodes {
        let offsets = match self {
            Self::Run(run) => &run.offsets,
            Self::Offsets(offsets) => offsets,
            Self::Collectives | Self::Nothing => return KnownNodes::default(),
        };
        // The reference has an offset by definition.
        let nodes = offsets.nodes.keys().copied().chain([offsets.reference]).collect();
        KnownNodes { nodes, hosts: offsets.hostnames.clone() }
    }

    /// For the output's metadata.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::Run(_) => "probes of a run of probe_sync",
            Self::Offsets(_) => "a file of offsets",
            Self::Collectives => "collectives alone",
            Self::Nothing => "nothing",
        }
    }
}

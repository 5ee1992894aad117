//! The opened source of the clocks.

use crate::Error;

use crate::clocks::{MarkFiles, Offsets, RunDirectory, Survey, Wanted};
use crate::nodes::KnownNodes;

use crate::request::ClockSource;

/// A [`ClockSource`] whose contents are known.
pub(super) enum Source {
    Run(Box<RunDirectory>),
    Offsets(Box<Survey>),
    Collectives,
    Nothing,
}

impl Source {
    pub(super) fn open(source: &ClockSource) -> Result<Self, Error> {
        Ok(match source {
            ClockSource::Run(directory) => Self::Run(Box::new(RunDirectory::open(directory)?)),
            ClockSource::Offsets(file) => Self::Offsets(Box::new(Survey::read(file)?)),
            ClockSource::Collectives => Self::Collectives,
            ClockSource::Nothing => Self::Nothing,
        })
    }

    /// Survey of measured offsets, if there are any.
    pub(super) fn survey(&self) -> Option<&Survey> {
        match self {
            Self::Run(run) => Some(&run.survey),
            Self::Offsets(survey) => Some(survey),
            Self::Collectives | Self::Nothing => None,
        }
    }

    /// A note for every trace if a run's live offsets are used.
    pub(super) fn live_only(&self) -> Option<&'static str> {
        match self {
            Self::Run(run) => run.live_only(),
            Self::Offsets(_) | Self::Collectives | Self::Nothing => None,
        }
    }

    /// The nodes with offsets, their hosts and ranks.
    pub(super) fn known(&self) -> KnownNodes {
        let Some(survey) = self.survey() else { return KnownNodes::default() };
        // The reference has an offset by definition.
        let nodes = survey.nodes().chain([survey.reference]).collect();
        KnownNodes { nodes, hosts: survey.hostnames.clone(), ranks: survey.ranks.clone() }
    }

    /// The marks of a run's processes.
    pub(super) fn marks(&self) -> Result<MarkFiles, Error> {
        match self {
            Self::Run(run) => run.marks(),
            Self::Offsets(_) | Self::Collectives | Self::Nothing => Ok(MarkFiles::default()),
        }
    }

    /// The wanted measured offsets, if there are any.
    pub(super) fn offsets(&self, wanted: Wanted) -> Result<Option<Offsets>, Error> {
        match self {
            Self::Run(run) => run.offsets(wanted).map(Some),
            Self::Offsets(survey) => survey.offsets(wanted).map(Some),
            Self::Collectives | Self::Nothing => Ok(None),
        }
    }

    /// For the output's metadata.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::Run(_) => "probes of a probe_sync run",
            Self::Offsets(_) => "a file of offsets",
            Self::Collectives => "collectives alone",
            Self::Nothing => "nothing",
        }
    }
}

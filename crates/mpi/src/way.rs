//! The transport of the leaders' messages.

use std::ffi::c_int;

use probe_sync_collective::{Error, Rank};

use crate::layout::Layout;
use crate::raw::Communicator;

/// What the leaders' messages go over.
pub(crate) enum Way {
    /// A communicator of the leaders, in the order of their hosts.
    OfLeaders(Communicator),
    /// One of all ranks that ever were, and how often ranks were lost: what is still under way from
    /// before has another tag.
    OfAll(Communicator, u64),
}

impl Way {
    pub(crate) fn comm(&self) -> &Communicator {
        let (Self::OfLeaders(comm) | Self::OfAll(comm, _)) = self;
        comm
    }

    /// The leader of `host` in the communicator.
    pub(crate) fn peer(&self, layout: &Layout, host: usize) -> Rank {
        match self {
            Self::OfLeaders(_) => host,
            Self::OfAll(..) => layout.ranks(host)[0],
        }
    }

    /// A tag that what was sent before the last loss of ranks does not have.
    pub(crate) fn tag(&self, of: c_int) -> c_int {
        match self {
            Self::OfLeaders(_) => of,
            // Every MPI has tags up to 32767 (MPI 4.1, 9.1.2).
            Self::OfAll(_, losses) => of + TAGS * (losses % LOSSES_TOLD_APART) as c_int,
        }
    }

    /// Collective, where no rank was lost: gives the communicator back.
    pub(crate) fn free(self) -> Result<(), Error> {
        match self {
            Self::OfLeaders(comm) => comm.free(),
            Self::OfAll(..) => Ok(()),
        }
    }
}

/// From the tags of one loss of ranks to those of the next, and after how many they come again.
const TAGS: c_int = 4;
const LOSSES_TOLD_APART: u64 = 8000;

//! The transport of the leaders' messages.

use std::ffi::c_int;

use probe_sync_collective::{Error, Rank};

use crate::layout::Layout;
use crate::raw::Communicator;

/// The connection for the leaders' messages.
pub(crate) enum Way {
    /// A communicator of the leaders, in the order of their hosts.
    OfLeaders(Communicator),
    /// A communicator of all ranks that ever were, and the number of losses: messages from before
    /// have another tag.
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

    /// A tag that differs from those used before the last loss.
    pub(crate) fn tag(&self, of: c_int) -> c_int {
        match self {
            Self::OfLeaders(_) => of,
            // Every MPI has tags up to 32767 (MPI 4.1, 9.1.2).
            Self::OfAll(_, losses) => of + TAGS * (losses % LOSSES_TOLD_APART) as c_int,
        }
    }

    /// Collective, if no rank was lost: frees the communicator.
    pub(crate) fn free(self) -> Result<(), Error> {
        match self {
            Self::OfLeaders(comm) => comm.free(),
            Self::OfAll(..) => Ok(()),
        }
    }
}

/// Distance between the tags of consecutive losses, and the period after which they repeat.
const TAGS: c_int = 4;
const LOSSES_TOLD_APART: u64 = 8000;

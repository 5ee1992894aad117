//! The order of a group's processes if it differs from that of MPI's world.
//!
//! [`crate::MpiCollective::init_placed`] uses it to place the master of a run first.

use mpi::ffi;
use probe_sync_collective::Error;

use crate::raw::{Communicator, check, length_as_int};

impl Communicator {
    /// Creates a communicator of the same processes, ordered by what `place` returns for each
    /// process's rank and the size.
    ///
    /// # Safety
    /// As [`Self::duplicate`].
    ///
    /// # Errors
    /// MPI's error.
    pub(crate) unsafe fn placed(
        handle: ffi::MPI_Comm,
        place: impl FnOnce(usize, usize) -> usize,
    ) -> Result<Self, Error> {
        let (mut rank, mut size, mut placed) = (0, 0, handle);
        // SAFETY: as this function requires; the pointers are of local variables.
        unsafe {
            check(ffi::MPI_Comm_rank(handle, &mut rank), "MPI_Comm_rank")?;
            check(ffi::MPI_Comm_size(handle, &mut size), "MPI_Comm_size")?;
        }
        let key = length_as_int(place(rank as usize, size as usize), "MPI_Comm_split")?;
        // SAFETY: as this function requires; every process calls with the same colour.
        check(unsafe { ffi::MPI_Comm_split(handle, 0, key, &mut placed) }, "MPI_Comm_split")?;
        // SAFETY: the call above made the communicator.
        unsafe { Self::own(placed) }
    }
}

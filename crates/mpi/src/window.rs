//! The shared memory of one host's ranks, from `MPI_Win_allocate_shared`.
//!
//! It is made once at start-up and holds [`crate::board`]. The leader provides all of it, so that
//! it is contiguous. Plain loads and stores work on it because the window uses MPI's unified memory
//! model, within one access epoch that lasts as long as the window. It does not synchronise after
//! the start.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use mpi::ffi;
use probe_sync_collective::{Deadline, Error, Wait};

use crate::board::{self, Memory};
use crate::raw::{Communicator, check};
use crate::watch::Watch;

/// An open window. Freeing is collective and explicit; a window that is dropped stays until the
/// process ends.
pub(crate) struct Window {
    handle: ffi::MPI_Win,
    /// Start of the board.
    base: NonNull<u8>,
    /// Size of the first board, bytes; it is followed by the number of the loss for which the
    /// memory was zeroed last.
    bytes: usize,
}

impl Window {
    /// Collective over the ranks of one host: creates the window, and returns the board's memory in
    /// it, zeroed. The memory must not be used after [`Window::free`].
    pub(crate) fn open(host: &Communicator) -> Result<(Self, Memory), Error> {
        let bytes = board::bytes(host.size()) + size_of::<AtomicU64>() + board::ALIGNMENT;
        let own = if host.rank() == LEADER { bytes } else { 0 };
        let mut window = Self::allocate(host, own)?;
        let (base, size) = window.leader_part()?;
        // Every process may map the window at another address, but always at a whole page.
        let padding = base.align_offset(board::ALIGNMENT);
        let base = match NonNull::new(base) {
            Some(base) if size >= bytes && padding < board::ALIGNMENT => base,
            _ => {
                let reason = format!("a window of {size} bytes at {base:?}, {bytes} needed");
                return Err(Error::Backend { operation: "MPI_Win_shared_query", reason });
            }
        };
        // SAFETY: the padding is less than the alignment, by which the window is larger than the
        // board.
        window.base = unsafe { base.byte_add(padding) };
        if host.rank() == LEADER {
            // SAFETY: the window has that many bytes after the padding, and the others wait in the
            // barrier below.
            unsafe { window.base.write_bytes(0, board::bytes(host.size()) + size_of::<AtomicU64>()) };
        }
        window.bytes = board::bytes(host.size());
        host.barrier()?;
        // SAFETY: zeroed above, aligned, large enough, and only boards of this host use it.
        let memory = unsafe { Memory::new(window.base, host.size()) };
        Ok((window, memory))
    }

    /// The same memory, zeroed by the member that `leads`, for a board of `members`, at most as
    /// many as before, after the loss number `losses`. No remaining rank uses the board before, and
    /// all get here. The rank that provided the memory may be lost: it stays mapped in the others.
    /// A new window would be the alternative, which Open MPI calls untested after a failure.
    ///
    /// # Errors
    /// Returns an error if another rank is lost meanwhile, or if the leading member does not
    /// arrive.
    pub(crate) fn again(
        &self,
        members: usize,
        leads: bool,
        losses: u64,
        deadline: &Deadline,
        watch: &Watch,
    ) -> Result<Memory, Error> {
        // SAFETY: `open` has left room for it after the board, aligned as the board is; all
        // accesses are atomic.
        let zeroed = unsafe { self.base.byte_add(self.bytes).cast::<AtomicU64>().as_ref() };
        if leads {
            // SAFETY: the memory held a board of as many members; none of them is used any more,
            // and the others wait below.
            unsafe { self.base.write_bytes(0, board::bytes(members)) };
            zeroed.store(losses, Release);
        }
        let mut wait = Wait::begin("continuing without lost ranks", deadline);
        while zeroed.load(Acquire) != losses {
            if watch.sees_loss() {
                return Err(board::lost(&wait));
            }
            let Some(slice) = wait.slice() else {
                let reason = "the leading rank of this host has not joined".to_owned();
                return Err(Error::Backend { operation: wait.operation(), reason });
            };
            std::thread::sleep(slice.min(PAUSE));
        }
        // SAFETY: as in `open`.
        Ok(unsafe { Memory::new(self.base, members) })
    }

    /// Collective: frees the memory. The boards in it must have been dropped.
    pub(crate) fn free(mut self) -> Result<(), Error> {
        // SAFETY: the window is ours, and in the epoch that `allocate` began.
        unsafe {
            check(ffi::MPI_Win_unlock_all(self.handle), "MPI_Win_unlock_all")?;
            check(ffi::MPI_Win_free(&mut self.handle), "MPI_Win_free")
        }
    }

    fn allocate(host: &Communicator, own: usize) -> Result<Self, Error> {
        let mut base = std::ptr::null_mut::<u8>();
        // SAFETY: `host` is a communicator of ranks that share memory; MPI writes a pointer and a
        // handle to the local variables whose addresses it gets.
        unsafe {
            let mut handle = ffi::RSMPI_WIN_NULL;
            let code = ffi::MPI_Win_allocate_shared(
                own as ffi::MPI_Aint,
                1,
                ffi::RSMPI_INFO_NULL,
                host.handle(),
                (&raw mut base).cast(),
                &mut handle,
            );
            check(code, "MPI_Win_allocate_shared")?;
            check(ffi::MPI_Win_set_errhandler(handle, ffi::RSMPI_ERRORS_RETURN), "MPI_Win_set_errhandler")?;
            check(ffi::MPI_Win_lock_all(ffi::MPI_MODE_NOCHECK as c_int, handle), "MPI_Win_lock_all")?;
            Ok(Self { handle, base: NonNull::dangling(), bytes: 0 })
        }
    }

    /// Address and size of the leader's part in this process.
    fn leader_part(&mut self) -> Result<(*mut u8, usize), Error> {
        let (mut base, mut size, mut unit) = (std::ptr::null_mut::<u8>(), 0, 0);
        // SAFETY: the window is open; MPI writes to the three local variables.
        let code = unsafe {
            let base = (&raw mut base).cast();
            ffi::MPI_Win_shared_query(self.handle, LEADER as c_int, &mut size, &mut unit, base)
        };
        check(code, "MPI_Win_shared_query")?;
        Ok((base, usize::try_from(size).unwrap_or(0)))
    }
}

/// Pause between two checks whether the memory is zeroed.
const PAUSE: Duration = Duration::from_micros(200);

/// Rank of the leader on its host.
const LEADER: usize = 0;

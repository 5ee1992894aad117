//! MPI's User-Level Failure Mitigation (ULFM), which reports failed ranks. It is looked up at run
//! time.
//!
//! The functions are extensions (`MPIX_…`, MPI Forum's chapter on process failures) that Open MPI 5
//! has and Open MPI 4.1 lacks. A program built against either runs on both, so they are found by
//! name. Open MPI survives a failure only if it was started with `--with-ft ulfm`, which sets
//! [`ENABLED`]. It does not detect a rank that hangs, because a stopped process has not failed for
//! MPI. It does not use revoke or shrink: both affect a communicator as a whole, and a shrink has
//! no deadline and waits for a rank that hangs. The group continues with point-to-point messages
//! instead.

use std::ffi::{CStr, c_int, c_void};

use mpi::ffi;
use probe_sync_collective::{Error, Rank};

use crate::raw::{Communicator, check};

/// The functions of this process's MPI.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Ulfm {
    get_failed: unsafe extern "C" fn(ffi::MPI_Comm, *mut ffi::MPI_Group) -> c_int,
    ack_failed: unsafe extern "C" fn(ffi::MPI_Comm, c_int, *mut c_int) -> c_int,
}

impl Ulfm {
    /// Returns them if MPI has them and continues after a failure.
    pub fn find() -> Option<Self> {
        let enabled = std::env::var(ENABLED).is_ok_and(|value| ["1", "true", "yes"].contains(&value.as_str()));
        if !enabled {
            return None;
        }
        // SAFETY: each name is that of a function of these arguments, as the extension's header
        // declares it; null was sorted out by `symbol`.
        unsafe {
            Some(Self {
                get_failed: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(ffi::MPI_Comm, *mut ffi::MPI_Group) -> c_int,
                >(symbol(c"MPIX_Comm_get_failed")?),
                ack_failed: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(ffi::MPI_Comm, c_int, *mut c_int) -> c_int,
                >(symbol(c"MPIX_Comm_ack_failed")?),
            })
        }
    }

    /// The ranks of `comm` that have failed, as far as this rank knows.
    ///
    /// # Errors
    /// MPI's error.
    pub fn failed(&self, comm: ffi::MPI_Comm) -> Result<Vec<Rank>, Error> {
        // SAFETY: the communicator is valid, and the group is a local variable, which is freed
        // below.
        unsafe {
            let mut group = ffi::RSMPI_GROUP_NULL;
            check((self.get_failed)(comm, &mut group), "MPIX_Comm_get_failed")?;
            let failed = ranks_in(group, comm);
            check(ffi::MPI_Group_free(&mut group), "MPI_Group_free")?;
            failed
        }
    }

    /// Allows waiting for a message from any rank on `comm` again: this rank knows which have
    /// failed.
    pub fn acknowledge(&self, comm: &Communicator) {
        let mut acknowledged = 0;
        // SAFETY: the communicator is valid and the number a local variable. What fails here fails
        // again where it matters.
        unsafe { (self.ack_failed)(comm.handle(), comm.size() as c_int, &mut acknowledged) };
    }
}

/// The ranks in `comm` of the processes of `group`.
///
/// # Safety
/// Both must be valid.
unsafe fn ranks_in(group: ffi::MPI_Group, comm: ffi::MPI_Comm) -> Result<Vec<Rank>, Error> {
    let mut size: c_int = 0;
    // SAFETY: as this function requires; both arrays have `size` numbers.
    unsafe {
        check(ffi::MPI_Group_size(group, &mut size), "MPI_Group_size")?;
        if size == 0 {
            return Ok(Vec::new());
        }
        let (own, mut ranks): (Vec<c_int>, Vec<c_int>) = ((0..size).collect(), vec![0; size as usize]);
        let mut all = ffi::RSMPI_GROUP_NULL;
        check(ffi::MPI_Comm_group(comm, &mut all), "MPI_Comm_group")?;
        let code = ffi::MPI_Group_translate_ranks(group, size, own.as_ptr(), all, ranks.as_mut_ptr());
        check(ffi::MPI_Group_free(&mut all), "MPI_Group_free")?;
        check(code, "MPI_Group_translate_ranks")?;
        Ok(ranks.into_iter().filter_map(|rank| Rank::try_from(rank).ok()).collect())
    }
}

/// A function of the libraries that this process has loaded.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a null byte; nothing is loaded by this call.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Open MPI's parameter, as `mpirun --with-ft ulfm` passes it to every rank.
const ENABLED: &str = "OMPI_MCA_mpi_ft_enable";

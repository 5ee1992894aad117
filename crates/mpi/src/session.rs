//! MPI's lifetime in this process: initialised first, finalised last, and aborted when a panic
//! unwinds past its owner.
//!
//! It is the first action of a program under `mpirun`. A rank that exits before `MPI_Init` can hang
//! `mpirun`, so this precedes even the parsing of arguments. A panic that unwinds past the owner of
//! MPI leaves peers waiting, so a session dropped during the panic ends the job. A panic that is
//! caught earlier, or that occurs on another thread, ends nothing, and no panic does if the host
//! program initialised MPI. A panic hook was rejected because it also runs for caught panics. It
//! does not decide when to finalise; the owner does, and only on the normal path.

use std::mem::ManuallyDrop;
use std::time::Duration;

use mpi::environment::{self, Threading, Universe};
use mpi::ffi;
use probe_sync_collective::Error;

/// MPI as this process initialised or found it.
pub(crate) struct Session {
    /// Absent if the host program initialised MPI and will finalise it.
    universe: ManuallyDrop<Option<Universe>>,
}

impl Session {
    /// Initialises MPI, if that was not done, with `MPI_THREAD_FUNNELED`: the thread that calls
    /// this owns MPI. If it was done, this must be the thread that did it, or the level must be
    /// `MPI_THREAD_MULTIPLE`.
    pub(crate) fn start() -> Result<Self, Error> {
        let setup = |reason: String| Error::Setup { what: "MPI_Init".to_owned(), reason };
        if environment::is_finalized() {
            return Err(setup("MPI is already finalised; it cannot be started twice in one process".to_owned()));
        }
        if !environment::is_initialized() {
            yield_when_idle();
        }
        let universe = match environment::initialize_with_threading(Threading::Funneled) {
            Some((universe, provided)) => {
                if provided < Threading::Funneled {
                    // Finalising is collective, and the peers may have succeeded.
                    std::mem::forget(universe);
                    return Err(setup(format!("this MPI provides only the thread level {provided:?}")));
                }
                Some(universe)
            }
            None => {
                check_thread()?;
                None
            }
        };
        Ok(Self { universe: ManuallyDrop::new(universe) })
    }

    /// MPI was initialised here, and has no other user.
    pub(crate) fn owns_mpi(&self) -> bool {
        self.universe.is_some()
    }

    /// Finalises MPI if it was initialised here. All ranks must get here; on any other path the
    /// session is simply dropped, which leaves MPI to the end of the process.
    pub(crate) fn finish(mut self) {
        drop(self.universe.take());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The message of the panic is on standard error already. Nothing may unwind into
        // MPI_Finalize.
        if self.owns_mpi() && std::thread::panicking() {
            abort_job();
        }
    }
}

/// Open MPI spins while it waits, unless it knows that there are more ranks than cores; with one
/// rank per host beside a job it does not know, and takes the core from the job. A variable set by
/// the user takes precedence.
fn yield_when_idle() {
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if may_set(std::env::var_os(YIELD).is_some(), threads) {
        // SAFETY: this is the only thread, so nobody reads the environment meanwhile.
        unsafe { std::env::set_var(YIELD, "1") };
    }
}

/// The environment may be modified while no other thread can read it.
fn may_set(is_set: bool, threads: usize) -> bool {
    !is_set && threads == 1
}

/// Ends the whole job after an error. Returns only if MPI is not running.
pub fn abort_job() {
    end_job(ABORT_CODE);
}

/// Ends the whole job, with this exit code if the launcher passes it on. Returns only if MPI is not
/// running.
pub fn end_job(code: i32) {
    if environment::is_initialized() && !environment::is_finalized() {
        // MPICH's launcher drops what it has not forwarded yet when a rank aborts; the reason is in
        // there.
        std::thread::sleep(FORWARDING);
        // SAFETY: MPI is running. From a thread that does not own MPI this is outside its contract,
        // but the process is about to end, and waiting for the owner could mean waiting for ever.
        unsafe {
            ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, code);
        }
    }
}

/// MPI that was initialised elsewhere must accept calls from this thread.
fn check_thread() -> Result<(), Error> {
    let mut main_thread = 0;
    // SAFETY: MPI is initialised, and the flag is a local variable.
    let code = unsafe { ffi::MPI_Is_thread_main(&mut main_thread) };
    super::raw::check(code, "MPI_Is_thread_main")?;
    let level = environment::threading_support();
    if may_call(level, main_thread != 0) {
        return Ok(());
    }
    let reason = format!(
        "MPI was initialised on another thread, at the thread level {level:?}; call from that thread, or initialise MPI with \
         MPI_THREAD_MULTIPLE"
    );
    Err(Error::Setup { what: "MPI".to_owned(), reason })
}

/// Whether a thread that waits within its calls may call MPI. At SERIALIZED nothing serialises the
/// calls of two threads, so there, too, it must be the thread that the host program calls MPI from.
fn may_call(level: Threading, main_thread: bool) -> bool {
    main_thread || level == Threading::Multiple
}

/// The exit code of an aborted job.
const ABORT_CODE: i32 = 1;

/// Time within which a launcher has read the output of a rank, even on a busy host.
const FORWARDING: Duration = Duration::from_millis(200);

/// Open MPI's parameter, as an environment variable.
const YIELD: &str = "OMPI_MCA_mpi_yield_when_idle";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_thread_needs_the_level_multiple() {
        for level in [Threading::Single, Threading::Funneled, Threading::Serialized, Threading::Multiple] {
            assert!(may_call(level, true), "{level:?}");
            assert_eq!(may_call(level, false), level == Threading::Multiple, "{level:?}");
        }
    }

    #[test]
    fn the_environment_is_written_by_the_only_thread_alone() {
        let cases = [(false, 1, true), (true, 1, false), (false, 2, false), (false, 0, false)];
        for (is_set, threads, expected) in cases {
            assert_eq!(may_set(is_set, threads), expected, "{is_set} {threads}");
        }
    }
}

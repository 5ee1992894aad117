//! MPI's life in this process: initialised first, ended last, and aborted when a thread panics.
//!
//! Place in the flow: the first thing that a program under `mpirun` does. A rank that exits before `MPI_Init` can hang
//! `mpirun`, so this comes before arguments are even read. A panic must not unwind into `MPI_Finalize`, which would wait
//! for peers that wait for us: a panic hook ends the job instead.
//! What it does not do: decide when to finalise. The owner says so, and only on the normal path.

use std::mem::ManuallyDrop;
use std::sync::Once;

use mpi::environment::{self, Threading, Universe};
use mpi::ffi;
use probe_sync_collective::Error;

/// MPI as this process initialised or found it.
pub(crate) struct Session {
    /// Absent when the host program had initialised MPI and will finalise it.
    universe: ManuallyDrop<Option<Universe>>,
}

impl Session {
    /// Initialises MPI, unless that was done, with `MPI_THREAD_FUNNELED`: the thread that calls this one owns MPI.
    pub(crate) fn start() -> Result<Self, Error> {
        let setup = |reason: String| Error::Setup { what: "MPI_Init".to_owned(), reason };
        if environment::is_finalized() {
            return Err(setup("MPI was finalised already; it cannot start twice in one process".to_owned()));
        }
        if !environment::is_initialized() {
            yield_when_idle();
        }
        let universe = match environment::initialize_with_threading(Threading::Funneled) {
            Some((universe, provided)) => {
                if provided < Threading::Funneled {
                    // Finalising is collective, and the peers may have succeeded.
                    std::mem::forget(universe);
                    return Err(setup(format!("this MPI offers only the thread level {provided:?}")));
                }
                Some(universe)
            }
            None => {
                check_thread()?;
                None
            }
        };
        install_panic_hook();
        Ok(Self { universe: ManuallyDrop::new(universe) })
    }

    /// MPI was initialised here, and nobody else uses it.
    pub(crate) fn owns_mpi(&self) -> bool {
        self.universe.is_some()
    }

    /// Ends MPI if it was started here. All ranks must come here; on any other path the session is simply dropped,
    /// which leaves MPI to the end of the process.
    pub(crate) fn finish(mut self) {
        drop(self.universe.take());
    }
}

/// Open MPI spins while it waits, unless it knows that there are more ranks than cores; on hosts of one rank beside a job it does not,
/// and takes the core from the job. Whoever sets the variable has decided.
fn yield_when_idle() {
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if may_set(std::env::var_os(YIELD).is_some(), threads) {
        // SAFETY: this is the only thread, so nobody reads the environment meanwhile.
        unsafe { std::env::set_var(YIELD, "1") };
    }
}

/// The environment may be written while nobody else can read it.
fn may_set(is_set: bool, threads: usize) -> bool {
    !is_set && threads == 1
}

/// Ends the whole job. Returns only when MPI is not running.
pub fn abort_job() {
    if environment::is_initialized() && !environment::is_finalized() {
        // SAFETY: MPI is running. From a thread that does not own MPI this is outside its contract, but the process
        // is about to end, and waiting for the owner could mean waiting for ever.
        unsafe {
            ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, ABORT_CODE);
        }
    }
}

/// MPI that somebody else initialised must accept calls from this thread.
fn check_thread() -> Result<(), Error> {
    let mut main_thread = 0;
    // SAFETY: MPI is initialised, and the flag is a local variable.
    let code = unsafe { ffi::MPI_Is_thread_main(&mut main_thread) };
    super::raw::check(code, "MPI_Is_thread_main")?;
    let level = environment::threading_support();
    if main_thread != 0 || level >= Threading::Serialized {
        return Ok(());
    }
    let reason = format!("MPI was initialised on another thread with {level:?}; call from that thread");
    Err(Error::Setup { what: "MPI".to_owned(), reason })
}

fn install_panic_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            report(panic);
            abort_job();
        }));
    });
}

/// The exit code of an aborted job.
const ABORT_CODE: i32 = 1;

/// Open MPI's parameter, as its environment names it.
const YIELD: &str = "OMPI_MCA_mpi_yield_when_idle";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_written_by_the_only_thread_alone() {
        let cases = [(false, 1, true), (true, 1, false), (false, 2, false), (false, 0, false)];
        for (is_set, threads, expected) in cases {
            assert_eq!(may_set(is_set, threads), expected, "{is_set} {threads}");
        }
    }
}

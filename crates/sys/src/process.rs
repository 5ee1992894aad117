//! Ties of a process to its parent.
//!
//! Place in the flow: `probe_sync run --local N` starts its ranks as child processes; none may outlive it.
//! What it does not do: handle signals; the command does.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::Error;

/// Asks the kernel to end this process with `SIGTERM` when the thread that started it ends. `parent` is the id of the
/// process that is expected to be the parent.
///
/// # Errors
/// When the system refuses, or the parent has ended already.
pub fn end_with_parent(parent: u32) -> Result<(), Error> {
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(Error::system("tie the process to its parent"))?;
    // It may have ended before the request: then no signal will ever come.
    let present = getppid().map(Pid::as_raw_nonzero);
    if present.is_some_and(|present| u32::try_from(present.get()) == Ok(parent)) {
        return Ok(());
    }
    Err(Error::System { operation: "tie the process to its parent", source: std::io::ErrorKind::NotFound.into() })
}

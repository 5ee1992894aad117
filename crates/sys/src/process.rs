//! Ties of a process to its parent, and of its threads to its signals.
//!
//! Place in the flow: `probe_sync run --local N` starts its ranks as child processes; none may outlive it. A session in a launcher's
//! process leaves the signals to the launcher's own threads.
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

/// Keeps signals away from the calling thread and from those that it starts later: handlers run on the process's other threads. Signals of
/// a fault of the thread itself come all the same.
///
/// # Errors
/// When the system refuses.
pub fn block_signals() -> Result<(), Error> {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset writes the whole set, sigdelset changes it; both fail only for bad arguments. pthread_sigmask reads it and changes the calling thread's
    // mask, nothing else.
    let result = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut())
    };
    match result {
        0 => Ok(()),
        code => Err(Error::system("block signals")(std::io::Error::from_raw_os_error(code))),
    }
}

/// What a thread brings upon itself: handlers that report crashes are to see it.
const FAULTS: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

//! Process settings: a child's tie to its parent, the signal masks of threads, and the limits on
//! open files and file sizes.
//!
//! `probe_sync run --local N` starts its ranks as child processes, none of which may outlive it. A
//! session in a launcher's process leaves the signals to the launcher's own threads. A master has a
//! connection to every rank. It does not handle signals; the command does.

use rustix::process::{Pid, Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit};

use crate::Error;

/// Asks the kernel to end this process with `SIGTERM` when the thread that started it ends.
/// `parent` is the process ID of the expected parent.
///
/// # Errors
/// Returns an error if the system refuses, or if the parent has ended already.
pub fn end_with_parent(parent: u32) -> Result<(), Error> {
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(Error::system("tie the process to its parent"))?;
    // It may have ended before the request: then no signal will ever come.
    let present = getppid().map(Pid::as_raw_nonzero);
    if present.is_some_and(|present| u32::try_from(present.get()) == Ok(parent)) {
        return Ok(());
    }
    Err(Error::System { operation: "tie the process to its parent", source: std::io::ErrorKind::NotFound.into() })
}

/// Raises the process's limit of open files to `count`, or to its hard limit if that is lower. It
/// is never lowered. For separate programs only: in a foreign process a higher limit breaks code
/// that uses `select`.
///
/// # Errors
/// Returns an error if the system refuses.
pub fn allow_open_files(count: u64) -> Result<(), Error> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let most = maximum.map_or(count, |maximum| maximum.min(count));
    if current.is_none_or(|current| current >= most) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(most), maximum };
    setrlimit(Resource::Nofile, raised).map_err(Error::system("raise the limit of open files"))
}

/// Blocks signals in the calling thread and in those it starts later: handlers run on other threads
/// of the process. Signals for faults of the thread itself are still delivered.
///
/// # Errors
/// Returns an error if the system refuses.
pub fn block_signals() -> Result<(), Error> {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset writes the whole set, sigdelset changes it; both fail only for bad
    // arguments. pthread_sigmask reads it and changes the calling thread's mask, nothing else.
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

/// Runs something that may make a file exceed this process's limit (RLIMIT_FSIZE, `ulimit -f`), so
/// that it merely fails, as on a full disk. By default the system also sends the thread SIGXFSZ,
/// which ends the process unless another action is set.
pub fn without_size_signal<T>(write: impl FnOnce() -> T) -> T {
    let mut signal = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset writes the whole set, sigaddset changes it; both fail only for bad
    // arguments. pthread_sigmask reads it, writes the calling thread's former mask, and fails for
    // bad arguments alone.
    unsafe {
        libc::sigemptyset(signal.as_mut_ptr());
        libc::sigaddset(signal.as_mut_ptr(), libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, signal.as_ptr(), before.as_mut_ptr());
    }
    let done = write();
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both sets were written above. sigtimedwait takes the signal away where it is pending,
    // without waiting; where it was blocked before, it stays so, and is nobody's to be surprised
    // by.
    unsafe {
        while libc::sigtimedwait(signal.as_ptr(), std::ptr::null_mut(), &raw const now) == libc::SIGXFSZ {}
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    done
}

/// Faults of the thread itself: handlers that report crashes must see them.
const FAULTS: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

//! A worker thread of a session, used for clock pairs and blocks, for the control socket and for
//! its clients.
//!
//! All signals are blocked in it.
//!
//! Not one of the standard library's: as such a thread starts it takes a lock (of the table for
//! messages of stack overflows), which in a child that was forked meanwhile is held for ever by a
//! thread that is not there. A session of the child would wait for its own thread without end.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::thread::masked::Masked;

/// A thread. Dropping it leaves it running; in a forked child there is none.
#[derive(Debug)]
pub(super) struct Worker(libc::pthread_t);

struct Work {
    name: &'static CStr,
    body: Box<dyn FnOnce() + Send>,
}

impl Worker {
    /// Starts it, with a name of at most 15 bytes.
    pub fn start(name: &'static CStr, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let work = Box::into_raw(Box::new(Work { name, body: Box::new(body) }));
        let mut thread = MaybeUninit::uninit();
        // The thread begins with what is blocked here.
        let masked = Masked::all();
        // SAFETY: `run` gets the work, which nobody else has from now on; the call writes the
        // thread where it succeeds.
        let failed = unsafe { libc::pthread_create(thread.as_mut_ptr(), ptr::null(), run, work.cast()) };
        drop(masked);
        if failed != 0 {
            // SAFETY: no thread has it.
            drop(unsafe { Box::from_raw(work) });
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: written, since the call has succeeded.
        Ok(Self(unsafe { thread.assume_init() }))
    }

    /// Waits until it has ended. Its panic is printed on standard error.
    pub fn join(self) {
        // SAFETY: it was started by `start` in this process, and is neither joined nor detached:
        // that takes the only value there is of it.
        unsafe { libc::pthread_join(self.0, ptr::null_mut()) };
    }

    /// Detaches it.
    pub fn detach(self) {
        // SAFETY: as for `join`.
        unsafe { libc::pthread_detach(self.0) };
    }
}

extern "C" fn run(work: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: made by `start`, for this thread alone.
    let Work { name, body } = *unsafe { Box::from_raw(work.cast::<Work>()) };
    // SAFETY: this thread, and a text with its end. It does without a name that is refused.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        // Dropping it may panic again, which ends the process here.
        std::mem::forget(payload);
    }
    ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn it_has_its_name_and_no_signals_and_survives_its_panic() {
        let (tell, told) = mpsc::channel();
        let body = move || {
            // SAFETY: zero is a set of signals, and the call writes one.
            let blocked = unsafe {
                let mut blocked: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut blocked);
                libc::sigismember(&raw const blocked, libc::SIGALRM)
            };
            let name = std::fs::read_to_string("/proc/thread-self/comm").expect("Linux");
            tell.send((name.trim().to_owned(), blocked)).expect("somebody waits");
            panic!("of a test");
        };
        Worker::start(c"recorder-test", body).expect("a thread").join();
        assert_eq!(told.recv(), Ok(("recorder-test".to_owned(), 1)));
    }
}

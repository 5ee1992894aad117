//! A guard that blocks a thread's signals where a recording signal handler would interfere.
//!
//! It is held for a few instructions while a thread acquires or releases its block, and while a
//! thread is started that must run without signals.

use std::mem::MaybeUninit;
use std::ptr;

/// While this exists, no signal reaches this thread.
pub(crate) struct Masked(libc::sigset_t);

impl Masked {
    /// Blocks all signals.
    pub(crate) fn all() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sigfillset writes the set, which then is one; the second call reads it and writes
        // the other. Neither fails for these arguments.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: the set that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

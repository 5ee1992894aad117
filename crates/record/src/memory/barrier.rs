//! A memory barrier that costs the other threads nothing: the caller sees what they stored before
//! it, and they see what was stored before it.
//!
//! To end a session, a thread closes the gate, calls [`everywhere`] and then checks whether any
//! thread is still writing. The recording threads execute no fence themselves: Linux issues one on
//! every running thread (`membarrier`, private expedited; Linux 4.14).

use std::sync::atomic::{Ordering, fence};

/// Makes all threads of the process pass a full barrier; returns false if the kernel cannot.
pub(crate) fn everywhere() -> bool {
    fence(Ordering::SeqCst);
    // Who has not registered is refused. Nothing is remembered here: a forked child may be another
    // process in the kernel's eyes.
    membarrier(PRIVATE_EXPEDITED) || (membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED))
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` of linux/membarrier.h.
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`.
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

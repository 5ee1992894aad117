//! The gate: one number that every event checks, 0 while nothing is being recorded.
//!
//! The gate lies on a page that the kernel clears in a forked child (`MADV_WIPEONFORK`, Linux
//! 4.14). In the child it is therefore closed automatically, and the list of sessions, which lies
//! on the same page, is empty.
//!
//! The page is a static of the program's: one load says that nothing records. The linker puts what
//! is zero at first where no file is mapped, as the kernel's advice demands.
//!
//! Every change gives the gate a number that it never had, so that a thread knows by it whether
//! what it holds is still right. The numbers go on in a child.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use rustix::mm::Advice;

/// The page; it contains nothing else.
#[repr(C, align(4096))]
pub(crate) struct Page {
    gate: AtomicU32,
    /// The list of sessions of this process; null in a child that has started none.
    pub(crate) registry: AtomicPtr<()>,
    /// Names known only at run time. A child creates its own: another thread of its parent may have
    /// held the lock when it was forked.
    pub(crate) names: AtomicPtr<()>,
}

/// The gate's number; 0: closed.
#[inline]
pub(crate) fn current() -> u32 {
    PAGE.gate.load(Ordering::Relaxed)
}

/// The word of the gate.
#[inline]
pub(crate) fn word() -> &'static AtomicU32 {
    &PAGE.gate
}

/// The page.
#[inline]
pub(crate) fn page() -> &'static Page {
    &PAGE
}

/// Gives the gate a new number, or closes it.
pub(crate) fn change(open: bool) -> u32 {
    let number = if open { next_number() } else { 0 };
    PAGE.gate.store(number, Ordering::SeqCst);
    number
}

/// Makes the kernel clear the page in children; returns what is missing otherwise.
pub(crate) fn prepare() -> Result<(), String> {
    // No `OnceLock`: a child that is forked while another thread is within one waits for that
    // thread, which it has not. Twice is as good as once.
    static WIPED: AtomicBool = AtomicBool::new(false);
    if WIPED.load(Ordering::Acquire) {
        return Ok(());
    }
    let page = ptr::from_ref(&PAGE).cast_mut().cast();
    // SAFETY: the page is a whole one and ours; what happens to it in a child is what `Registry`
    // goes by.
    let advised = unsafe { rustix::mm::madvise(page, size_of::<Page>(), Advice::LinuxWipeOnFork) };
    advised.map_err(|error| format!("madvise(MADV_WIPEONFORK): {error}; this requires Linux 4.14 or later"))?;
    WIPED.store(true, Ordering::Release);
    Ok(())
}

fn next_number() -> u32 {
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        if number != 0 && number != NEVER {
            return number;
        }
    }
}

/// A number that the gate never has.
pub(crate) const NEVER: u32 = u32::MAX;

static PAGE: Page =
    Page { gate: AtomicU32::new(0), registry: AtomicPtr::new(ptr::null_mut()), names: AtomicPtr::new(ptr::null_mut()) };
static NUMBER: AtomicU32 = AtomicU32::new(1);

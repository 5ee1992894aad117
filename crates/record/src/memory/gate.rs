//! The gate: one number that every event looks at, 0 while nothing records.
//!
//! Place in the flow: `active` opens and closes it; `event` looks at it. It lies on a page that the kernel empties in a forked child
//! (`MADV_WIPEONFORK`, Linux 4.14): there the gate is closed without anybody's doing, and what else lies on the page, the list of sessions,
//! is not there.
//!
//! Every change gives the gate a number that it never had, so that a thread knows by it whether what it holds is still right. The numbers go on in
//! a child.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The page.
#[repr(C)]
pub(crate) struct Page {
    gate: AtomicU32,
    /// The list of sessions of this process; null in a child that has started none.
    pub(crate) registry: AtomicPtr<()>,
}

/// The gate's number; 0: closed.
#[inline]
pub(crate) fn current() -> u32 {
    page().gate.load(Ordering::Relaxed)
}

/// The page; an empty one before anybody needed one.
#[inline]
pub(crate) fn page() -> &'static Page {
    // SAFETY: it points to `EMPTY`, or to a page that `prepared` has mapped and nobody unmaps.
    unsafe { &*PAGE.load(Ordering::Acquire) }
}

/// Gives the gate a new number, or closes it.
pub(crate) fn change(open: bool) -> u32 {
    let number = if open { next_number() } else { 0 };
    page().gate.store(number, Ordering::SeqCst);
    number
}

/// Makes the page, once in a process and its children; what is missing otherwise.
pub(crate) fn prepare() -> Result<(), String> {
    if !ptr::eq(PAGE.load(Ordering::Acquire), ptr::from_ref(&EMPTY).cast_mut()) {
        return Ok(());
    }
    let (length, protection) = (PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: the system chooses an address where nothing is.
    let mapped = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), length, protection, MapFlags::PRIVATE) };
    let page = mapped.map_err(|error| error.to_string())?;
    // SAFETY: the page is ours, and what it does in a child harms nobody.
    let wiped = unsafe { rustix::mm::madvise(page, length, Advice::LinuxWipeOnFork) };
    wiped.map_err(|error| format!("madvise(MADV_WIPEONFORK): {error}; Linux 4.14 or newer has it"))?;
    // Of two that come here at once the second keeps a page too many.
    let empty = ptr::from_ref(&EMPTY).cast_mut();
    let _ = PAGE.compare_exchange(empty, page.cast(), Ordering::AcqRel, Ordering::Acquire);
    Ok(())
}

fn next_number() -> u32 {
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        if number != 0 {
            return number;
        }
    }
}

const PAGE_BYTES: usize = 4096;
static EMPTY: Page = Page { gate: AtomicU32::new(0), registry: AtomicPtr::new(ptr::null_mut()) };
static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::from_ref(&EMPTY).cast_mut());
static NUMBER: AtomicU32 = AtomicU32::new(1);

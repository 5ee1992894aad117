//! Memory for libotf2's buffers, in separate pages that are returned when a buffer's events are in
//! its file.
//!
//! The functions are callbacks of [`crate::Archive`]. By default the library allocates its 256 KiB
//! per location with malloc and touches all of it when it closes a location. If malloc then keeps
//! freed memory, thousands of locations with a few events each need a gigabyte.

use std::os::raw::c_void;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::bindings as raw;

pub(crate) static MEMORY: raw::OTF2_MemoryCallbacks =
    raw::OTF2_MemoryCallbacks { otf2_allocate: Some(allocate), otf2_free_all: Some(free_all) };

/// Pages of one buffer, and their lengths.
type Chunks = Vec<(*mut c_void, usize)>;

extern "C" fn allocate(
    _: *mut c_void,
    _: raw::OTF2_FileType,
    _: raw::OTF2_LocationRef,
    buffer: *mut *mut c_void,
    size: u64,
) -> *mut c_void {
    // SAFETY: the library gives the address of a pointer that is the buffer's: null at first, and
    // then what is put there below. It calls for one buffer on one thread at a time.
    let chunks = unsafe {
        if (*buffer).is_null() {
            *buffer = Box::into_raw(Box::<Chunks>::default()).cast();
        }
        &mut *(*buffer).cast::<Chunks>()
    };
    // SAFETY: new private pages, which nothing else refers to.
    let pages =
        unsafe { mmap_anonymous(null_mut(), size as usize, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
    // The library takes null for an error.
    let Ok(pages) = pages else { return null_mut() };
    chunks.push((pages, size as usize));
    pages
}

extern "C" fn free_all(
    _: *mut c_void,
    _: raw::OTF2_FileType,
    _: raw::OTF2_LocationRef,
    buffer: *mut *mut c_void,
    last: bool,
) {
    // SAFETY: as in `allocate`; with `last` the library uses the pointer no more.
    unsafe {
        if (*buffer).is_null() {
            return;
        }
        for (pages, length) in (*(*buffer).cast::<Chunks>()).drain(..) {
            // They are mapped, so that it cannot fail; and nobody could be told.
            let _ = munmap(pages, length);
        }
        if last {
            drop(Box::from_raw((*buffer).cast::<Chunks>()));
            *buffer = null_mut();
        }
    }
}

//! Memory of libotf2's buffers: pages of their own, which are given back when a buffer's events are in its file.
//!
//! Place in the flow: callbacks of [`crate::Archive`]. By itself the library takes its 256 KiB per location by malloc, and touches all of it when it
//! closes a location; where malloc then keeps what is freed, thousands of locations of a few events each need a gigabyte.
//! What it does not do: share pages between buffers.

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
    // SAFETY: the library gives the address of a pointer that is the buffer's: null at first, and then what is put there below. It calls
    // for one buffer on one thread at a time.
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

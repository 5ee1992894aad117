//! libotf2's error reports, captured instead of being printed to standard error.
//!
//! The library reports an error where it occurs and then returns a less specific one, or none:
//! recording an event whose buffer does not fit on the disk succeeds. Therefore the first error
//! reported during a call counts as that call's error. It does not keep the library's texts, whose
//! arguments are for C.

use std::cell::Cell;
use std::ffi::CStr;
use std::os::raw::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::Once;

use crate::bindings as raw;

/// Installs this module's error callback in the library, once for the process.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    // SAFETY: the callback is a function of this program and takes no data.
    ONCE.call_once(|| unsafe {
        raw::OTF2_Error_RegisterCallback(Some(note), null_mut());
    });
}

/// The reason of the first error since the last call, or of the code returned by that call.
#[inline]
pub(crate) fn first(code: raw::OTF2_ErrorCode) -> Option<String> {
    let told = FIRST.get();
    if told == raw::OTF2_SUCCESS && code == raw::OTF2_SUCCESS {
        return None;
    }
    FIRST.set(raw::OTF2_SUCCESS);
    let code = if told == raw::OTF2_SUCCESS { code } else { told };
    // SAFETY: the library has a static text for every code, and for those that it does not know.
    let reason = unsafe { CStr::from_ptr(raw::OTF2_Error_GetDescription(code)) };
    Some(reason.to_string_lossy().into_owned())
}

/// Warnings have negative codes. The last argument is C's `va_list`, a different type on every
/// machine: the type parameter stands for it.
extern "C" fn note<T>(
    _: *mut c_void,
    _: *const c_char,
    _: u64,
    _: *const c_char,
    code: raw::OTF2_ErrorCode,
    _: *const c_char,
    _: T,
) -> raw::OTF2_ErrorCode {
    if code > raw::OTF2_SUCCESS && FIRST.get() == raw::OTF2_SUCCESS {
        FIRST.set(code);
    }
    code
}

thread_local! {
    /// The library calls back on the calling thread.
    static FIRST: Cell<raw::OTF2_ErrorCode> = const { Cell::new(raw::OTF2_SUCCESS) };
}

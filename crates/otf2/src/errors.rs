//! What libotf2 says of its failures, in place of lines on standard error.
//!
//! Place in the flow: under every call of [`crate::Archive`]. The library tells an error where it meets it, and hands on a less telling one, or none: an
//! event whose buffer finds no room on the disk is a success. So the first error that is told during a call is that call's.
//! What it does not do: keep its texts; their arguments are for C.

use std::cell::Cell;
use std::ffi::CStr;
use std::os::raw::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::Once;

use crate::bindings as raw;

/// Has the library tell this file of its errors, once for the process.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    // SAFETY: the callback is a function of this program and takes no data.
    ONCE.call_once(|| unsafe {
        raw::OTF2_Error_RegisterCallback(Some(note), null_mut());
    });
}

/// The reason of the first error since the last call, or of what that call has returned.
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

/// Warnings have negative codes. The last argument is C's `va_list`, which is another type on every machine: the declaration says which.
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
    /// The library calls back on the thread that has called it.
    static FIRST: Cell<raw::OTF2_ErrorCode> = const { Cell::new(raw::OTF2_SUCCESS) };
}

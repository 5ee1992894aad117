//! The text of the last failure, and the version, for C.
//!
//! A successful call does not clear the text, just as it does not clear `errno`.

use std::ffi::{CStr, c_char};
use std::panic::catch_unwind;

use crate::pointers;
use crate::status::{remember, remembered};

/// Returns the message of this thread's last failure, never NULL. It is valid until the thread's
/// next failure.
#[unsafe(no_mangle)]
pub extern "C" fn ps_last_error() -> *const c_char {
    // A thread that is ending has no text any more.
    remembered(CStr::as_ptr).unwrap_or(c"".as_ptr())
}

/// Replaces the text of ps_last_error() on this thread; for layers on top of this library, such as
/// probe_sync_mpi.h. NULL clears the text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_set_last_error(text: *const c_char) {
    // SAFETY: the rule of the crate.
    let text = unsafe { pointers::optional_text(text) };
    let _ = catch_unwind(|| remember(&text.map(CStr::to_string_lossy).unwrap_or_default()));
}

/// Returns the version of the library, for example "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn ps_version() -> *const c_char {
    VERSION.as_ptr()
}

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"?",
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ps_status::*;
    use crate::status::{Failure, guard};

    fn last() -> String {
        // SAFETY: never NULL, and valid until the next failure of this thread.
        unsafe { CStr::from_ptr(ps_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn errors_and_panics_become_a_status_with_a_text() {
        assert_eq!(last(), "");
        assert_eq!(guard(|| Err(Failure::argument("give a rank"))), PS_ERROR_ARGUMENT);
        assert_eq!(last(), "give a rank");
        assert_eq!(guard(|| Ok(())), PS_OK);
        assert_eq!(last(), "give a rank", "it stays until the next failure");
        assert_eq!(guard(|| panic!("a test's panic")), PS_ERROR_PANIC);
        assert!(last().contains("a bug in probe_sync"), "{}", last());
        std::thread::spawn(|| assert_eq!(last(), "", "each thread has its own")).join().expect("no panic");
        // SAFETY: both are valid.
        unsafe { ps_set_last_error(c"from above".as_ptr()) };
        assert_eq!(last(), "from above");
        // SAFETY: NULL is no text.
        unsafe { ps_set_last_error(std::ptr::null()) };
        assert_eq!(last(), "");
    }

    #[test]
    fn the_version_is_the_crates() {
        // SAFETY: a constant.
        assert_eq!(unsafe { CStr::from_ptr(ps_version()) }.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    }
}

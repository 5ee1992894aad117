//! Shared libraries of vendors, loaded at run time because the same program runs on machines
//! without them.
//!
//! A copy that the process has loaded already is preferred: it is the one that the rest of the
//! program uses. Libraries are never unloaded; profilers leave exit handlers behind.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use crate::library_path;

/// A loaded library.
#[derive(Copy, Clone, Debug)]
pub struct Library(NonNull<c_void>);

// SAFETY: the loader's functions may be called with a handle from any thread, and the library is
// never unloaded.
unsafe impl Send for Library {}
// SAFETY: the same.
unsafe impl Sync for Library {}

impl Library {
    /// Returns the first library of the list that is already loaded, otherwise the first that can
    /// be loaded. The loader searches `LD_LIBRARY_PATH` and its cache for plain names.
    ///
    /// # Errors
    /// States why none could be loaded.
    pub fn open(names: &[&CStr]) -> Result<Self, String> {
        if let Some(library) = Self::open_with(names, libc::RTLD_NOW | libc::RTLD_NOLOAD) {
            return Ok(library);
        }
        if let Some(planted) = library_path::planted() {
            return Err(format!(
                "LD_LIBRARY_PATH has an empty or relative entry, so the loader would search {}, where anyone may have placed a library; \
                use only absolute paths",
                planted.display()
            ));
        }
        Self::open_with(names, libc::RTLD_NOW | libc::RTLD_LOCAL).ok_or_else(|| {
            let shown: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
            format!("cannot load any of {} ({})", shown.join(", "), last_loader_error())
        })
    }

    /// Returns true if the process has loaded one of these libraries.
    pub fn is_loaded(names: &[&CStr]) -> bool {
        Self::open_with(names, libc::RTLD_NOW | libc::RTLD_NOLOAD).is_some()
    }

    /// Returns the address of a function or variable.
    ///
    /// # Errors
    /// Names what is missing.
    pub fn symbol(self, name: &CStr) -> Result<NonNull<c_void>, String> {
        // SAFETY: the handle comes from dlopen and stays valid; the name is a C string.
        let symbol = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        NonNull::new(symbol).ok_or_else(|| format!("the library has no function {}", name.to_string_lossy()))
    }

    /// Returns the first library that the loader finds with these flags.
    fn open_with(names: &[&CStr], flags: c_int) -> Option<Self> {
        names.iter().find_map(|name| {
            // SAFETY: the name is a C string. Loading runs the library's initialisers; these are
            // the vendors' own libraries, which the user asked for.
            NonNull::new(unsafe { libc::dlopen(name.as_ptr(), flags) }).map(Self)
        })
    }
}

/// Returns the loader's last error; its text belongs to the calling thread.
fn last_loader_error() -> String {
    // SAFETY: dlerror has no preconditions.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".into();
    }
    // SAFETY: a non-null result is a C string that stays until this thread's next call of the
    // loader; it is copied here.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

//! Functions of NVIDIA's libraries, looked up by name.

/// Declares a table of C functions that return a status, 0 for success, and how it is loaded.
macro_rules! functions {
    ($(#[$about:meta])* $table:ident { $($name:ident = $symbol:literal($($argument:ty),*);)* }) => {
        $(#[$about])*
        #[derive(Copy, Clone, Debug)]
        pub(super) struct $table {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> std::ffi::c_int,)*
        }

        impl $table {
            /// Looks all functions up.
            ///
            /// # Errors
            /// Names the first one that is missing.
            pub fn of(library: probe_sync_sys::Library) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        let symbol = library.symbol($symbol)?.as_ptr();
                        // SAFETY: a function of this name has this signature in the headers that
                        // the table names; the library is never unloaded.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                unsafe extern "C" fn($($argument),*) -> std::ffi::c_int,
                            >(symbol)
                        }
                    },)*
                })
            }
        }
    };
}

pub(super) use functions;

/// Returns the name of a status by a library's own function for it.
pub(super) fn status_name(
    look_up: unsafe extern "C" fn(std::ffi::c_int, *mut *const std::ffi::c_char) -> std::ffi::c_int,
    status: std::ffi::c_int,
) -> String {
    let mut text = std::ptr::null();
    // SAFETY: `text` is valid for the one write.
    let found = unsafe { look_up(status, &raw mut text) };
    if found != 0 || text.is_null() {
        return format!("status {status}");
    }
    // SAFETY: both libraries return a pointer to a constant C string.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

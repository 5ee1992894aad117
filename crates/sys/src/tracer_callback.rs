//! A tracer clock that the caller supplies as a closure or a C function.
//!
//! A profiler or another language's binding creates one through
//! [`TracerClock`](crate::TracerClock); it is then read like any other tracer clock.
//!
//! A failed reading is an error with its reason, never a time.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::Arc;

/// A C function that reads a tracer's clock: writes nanoseconds through `ns` and returns 0, or
/// returns another number, which is shown to the user, and then need not write. `user_data` is what
/// was registered with it.
///
/// ```c
/// int read_clock(void *user_data, int64_t *ns);
/// ```
pub type ReadTracerClock = unsafe extern "C" fn(user_data: *mut c_void, ns: *mut i64) -> c_int;

/// Reads the clock, ns, or says why it cannot.
#[derive(Clone)]
pub(crate) struct Callback(Arc<dyn Fn() -> Result<i64, String> + Send + Sync>);

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

impl Callback {
    pub(crate) fn new(read: impl Fn() -> Result<i64, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// # Safety
    /// `read` must be callable with `user_data` from any thread, also from several at once, for as
    /// long as this or a clone of it lives, and must write nothing but the one number.
    pub(crate) unsafe fn of_c(read: ReadTracerClock, user_data: *mut c_void) -> Self {
        let function = CFunction { read, user_data };
        Self::new(move || function.call())
    }

    pub(crate) fn read(&self) -> Result<i64, String> {
        (self.0)()
    }
}

struct CFunction {
    read: ReadTracerClock,
    user_data: *mut c_void,
}

// SAFETY: whoever made it promised that the function may be called with this pointer from any
// thread.
unsafe impl Send for CFunction {}
// SAFETY: and from several at once.
unsafe impl Sync for CFunction {}

impl CFunction {
    fn call(&self) -> Result<i64, String> {
        let mut ns = 0_i64;
        // SAFETY: `ns` is valid for the one write; the rest was promised to `Callback::of_c`.
        let status = unsafe { (self.read)(self.user_data, &raw mut ns) };
        if status == 0 { Ok(ns) } else { Err(format!("the callback returned {status}")) }
    }
}

/// Returns what is wrong with a name that files and messages cannot contain.
pub(crate) fn name_problem(name: &str) -> Option<String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    let usable = (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(plain) && !RESERVED.contains(&name);
    let taken = RESERVED.join(" and ");
    (!usable).then(|| {
        format!("a clock's name must have 1 to {LONGEST_NAME} letters, digits, '_', '-' or '.'; {taken} are reserved")
    })
}

/// Longest name that readers of the pairs accept.
const LONGEST_NAME: usize = 64;
/// Settings that do not name a clock.
const RESERVED: [&str; 2] = ["auto", "none"];

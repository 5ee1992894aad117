//! The call stack of the current thread as raw addresses, which are symbolized after the session
//! has stopped.
//!
//! A stack is recorded as an argument, best behind `||`:
//! `scope!("load", stack = || stack().value())`. The unwinder uses the tables that every program
//! has for its panics; frame pointers would be faster, but most programs lack them. The first stack
//! of a session also records where the program's files are mapped (`session::modules`), so that
//! addresses keep their meaning after the process has exited.

use std::ffi::{c_int, c_void};

use crate::session::modules;
use crate::value::Value;

/// Return addresses, innermost first.
#[derive(Copy, Clone, Debug)]
pub struct Stack {
    addresses: [u64; ADDRESSES_MAX],
    count: usize,
}

impl Stack {
    /// Returns the addresses.
    pub fn addresses(&self) -> &[u64] {
        &self.addresses[..self.count]
    }

    /// Returns the stack as the value of an argument.
    pub fn value(&self) -> Value<'_> {
        Value::Addresses(self.addresses())
    }
}

/// Returns the stack from the caller outwards, at most 64 addresses.
#[inline(never)]
pub fn stack() -> Stack {
    modules::define_for_all();
    let mut walk = Walk { stack: Stack { addresses: [0; ADDRESSES_MAX], count: 0 }, own: OWN_FRAMES };
    // SAFETY: `step` is called during this call alone, with a pointer to `walk`, which nobody else
    // uses meanwhile.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk.stack
}

struct Walk {
    stack: Stack,
    /// Remaining frames of the recorder.
    own: usize,
}

extern "C" fn step(context: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: `stack` hands over a `Walk` that nobody else uses while it walks.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    if walk.own > 0 {
        walk.own -= 1;
        return GO_ON;
    }
    // SAFETY: the unwinder gives a context that is valid during this call.
    let address = unsafe { _Unwind_GetIP(context) } as u64;
    let Some(place) = walk.stack.addresses.get_mut(walk.stack.count).filter(|_| address != 0) else { return END };
    *place = address;
    walk.stack.count += 1;
    GO_ON
}

// In every program that is linked with Rust's standard library, which walks stacks with it (Itanium
// C++ ABI, exception handling, 1.6).
unsafe extern "C" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// `_URC_NO_REASON` and `_URC_END_OF_STACK`.
const GO_ON: c_int = 0;
const END: c_int = 5;
/// `stack` itself.
const OWN_FRAMES: usize = 1;
const ADDRESSES_MAX: usize = 64;

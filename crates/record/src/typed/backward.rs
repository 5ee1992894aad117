//! Forward calls and their backward calls, linked by a sequence number and the forward call's
//! thread.

use crate::event::{OF_SITE, Scope};
use crate::site::Site;
use crate::thread::sync;

/// Begins a forward call with its number on this thread and, if any, its debug handle. The site's
/// first two keys are those of [`keys::SEQUENCE_NUMBER`](super::keys::SEQUENCE_NUMBER) and
/// [`keys::DEBUG_HANDLE`](super::keys::DEBUG_HANDLE), as created by [`forward!`](crate::forward).
pub fn forward(site: &'static Site, sequence_number: i64, debug_handle: Option<i64>) -> Scope {
    match debug_handle {
        None => Scope::enter_with(site, &((OF_SITE, &sequence_number), ())),
        Some(handle) => Scope::enter_with(site, &((OF_SITE, &sequence_number), ((1 | OF_SITE, &handle), ()))),
    }
}

/// Begins the backward call of a forward call, given the number there and the thread id
/// ([`thread_number`]). The site's first two keys are those of
/// [`keys::SEQUENCE_NUMBER`](super::keys::SEQUENCE_NUMBER) and
/// [`keys::FORWARD_THREAD`](super::keys::FORWARD_THREAD), as created by
/// [`backward!`](crate::backward).
pub fn backward(site: &'static Site, sequence_number: i64, forward_thread: u64) -> Scope {
    Scope::enter_with(site, &((OF_SITE, &sequence_number), ((1 | OF_SITE, &forward_thread), ())))
}

/// Returns the thread id of this thread, for [`backward`] on another one. 0 if the thread is about
/// to end.
pub fn thread_number() -> u64 {
    sync::attached().map_or(0, |block| block.tid.get())
}

/// Opens a forward call until the end of the block: `let _forward = forward!("linear", sequence);`,
/// with a debug handle `forward!("linear", sequence, handle)`.
#[macro_export]
macro_rules! forward {
    ($name:literal, $sequence:expr $(, $handle:expr)? $(,)?) => {{
        $crate::__site!(SITE, $crate::Kind::Function, $name; sequence_number = 0, debug_handle = 0);
        if $crate::__wanted!(SITE) {
            $crate::typed::forward(&SITE, $sequence, [$(Some($handle),)? None][0])
        } else {
            $crate::Scope::nowhere(&SITE)
        }
    }};
}

/// Opens a backward call until the end of the block: `let _backward = backward!("linear", sequence,
/// forward_thread);`.
#[macro_export]
macro_rules! backward {
    ($name:literal, $sequence:expr, $thread:expr $(,)?) => {{
        $crate::__site!(SITE, $crate::Kind::Backward, $name; sequence_number = 0, forward_thread = 0);
        if $crate::__wanted!(SITE) {
            $crate::typed::backward(&SITE, $sequence, $thread)
        } else {
            $crate::Scope::nowhere(&SITE)
        }
    }};
}

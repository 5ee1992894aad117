//! Forward calls and their backward calls, linked by a sequence number and the forward call's
//! thread.

use crate::event::{OF_SITE, Scope};
use crate::site::Site;
use crate::thread::sync;

/// A forward call: its number on this thread, and its debug handle if it has one. The site's first
/// two keys are those of [`keys::SEQUENCE_NUMBER`](super::keys::SEQUENCE_NUMBER) and
/// [`keys::DEBUG_HANDLE`](super::keys::DEBUG_HANDLE), as [`forward!`](crate::forward) makes it.
pub fn forward(site: &'static Site, sequence_number: i64, debug_handle: Option<i64>) -> Scope {
    match debug_handle {
        None => Scope::enter_with(site, &((OF_SITE, &sequence_number), ())),
        Some(handle) => Scope::enter_with(site, &((OF_SITE, &sequence_number), ((1 | OF_SITE, &handle), ()))),
    }
}

/// The backward call of a forward call: its number there, and the system's number of that thread
/// ([`thread_number`]). The site's first two keys are those of
/// [`keys::SEQUENCE_NUMBER`](super::keys::SEQUENCE_NUMBER) and
/// [`keys::FORWARD_THREAD`](super::keys::FORWARD_THREAD), as [`backward!`](crate::backward) makes
/// it.
pub fn backward(site: &'static Site, sequence_number: i64, forward_thread: u64) -> Scope {
    Scope::enter_with(site, &((OF_SITE, &sequence_number), ((1 | OF_SITE, &forward_thread), ())))
}

/// The system's number of this thread, for [`backward`] on another one. 0 where the thread is about
/// to end.
pub fn thread_number() -> u64 {
    sync::attached().map_or(0, |block| block.tid.get())
}

/// A forward call until the end of the block: `let _forward = forward!("linear", sequence);`, with
/// a debug handle `forward!("linear", sequence, handle)`.
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

/// A backward call until the end of the block:
/// `let _backward = backward!("linear", sequence, forward_thread);`.
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

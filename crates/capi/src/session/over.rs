//! Sessions whose ranks communicate through the launcher's own messages, usually its MPI, which
//! this library does not link.
//!
//! The C functions implement `probe_sync::collective::Messages`. `src/probe_sync_mpi.c`, compiled
//! by the user's mpicc, provides them; a launcher without MPI can provide its own. It does not call
//! MPI.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::Duration;

use probe_sync::collective::{Error, Messages, Threads};

use super::{begin, numbered, ps_session};
use crate::options::ps_options;
use crate::pointers::{Out, borrowed, optional_text};
use crate::status::{Failure, guard, ps_status};
use ps_status::*;

/// Which threads may call the functions of ps_messages.
#[repr(C)]
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ps_threads {
    /// Only the thread that calls ps_session_start_over() (MPI: SINGLE and FUNNELED).
    PS_THREADS_OWN = 0,
    /// Any thread, but only one at a time, which the caller ensures (MPI: SERIALIZED).
    PS_THREADS_ONE_AT_A_TIME = 1,
    /// Any thread, at any time (MPI: MULTIPLE). The session moves its messages itself and needs no
    /// calls of ps_session_step().
    PS_THREADS_ANY = 2,
}

/// Starts to send count bytes to rank `to`, and copies them before it returns. Returns 0, or
/// another number on failure.
pub type ps_send =
    Option<unsafe extern "C" fn(context: *mut c_void, to: c_int, bytes: *const c_void, count: usize) -> c_int>;
/// Makes progress on messages. Returns 1 and the next complete message, which stays valid until the
/// next call; 0 if there is none; or a negative number on failure.
pub type ps_receive = Option<
    unsafe extern "C" fn(context: *mut c_void, from: *mut c_int, bytes: *mut *const c_void, count: *mut usize) -> c_int,
>;
/// Returns nonzero if messages were still being sent at the last call of receive.
pub type ps_sending = Option<unsafe extern "C" fn(context: *mut c_void) -> c_int>;
/// Describes why the last call failed, as text that stays valid until the next call.
pub type ps_describe = Option<unsafe extern "C" fn(context: *mut c_void) -> *const c_char>;
/// Called last. in_order is 1 if all ranks ended normally; the call then comes from a thread that
/// may use the launcher's library. If it is 0, the library may already be finalised, and the call
/// may come from any thread.
pub type ps_release = Option<unsafe extern "C" fn(context: *mut c_void, in_order: c_int)>;

/// A launcher's own transport for messages between its ranks. None of the functions may wait for
/// another rank, and messages from one rank to another must arrive in order.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct ps_messages {
    /// Passed to every function.
    pub context: *mut c_void,
    /// This rank.
    pub rank: c_int,
    /// Number of ranks.
    pub size: c_int,
    /// Which threads may call the functions: one of ps_threads.
    pub threads: c_int,
    /// Starts to send a message.
    pub send: ps_send,
    /// Receives a message.
    pub receive: ps_receive,
    /// Tells whether messages are still being sent.
    pub sending: ps_sending,
    /// Describes a failure.
    pub describe: ps_describe,
    /// Called once, last.
    pub release: ps_release,
}

/// Starts a session like ps_session_start(), but the ranks communicate over the caller's own
/// messages and need no meeting. A NULL function or an invalid rank or size is PS_ERROR_ARGUMENT,
/// and no function is called; otherwise messages->release is called exactly once, whatever this
/// function returns. The structure itself is copied. Unless threads is PS_THREADS_ANY, the caller
/// moves the messages with ps_session_step(); ps_session_stop(), the waits and ps_session_free()
/// also move them, on the same thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_session_start_over(
    options: *const ps_options,
    messages: *const ps_messages,
    session: *mut *mut ps_session,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let messages = GivenMessages::of(unsafe { borrowed(messages, "messages") }?)?;
        // SAFETY: the rule of the crate.
        let (options, session) = unsafe { (options.as_ref(), Out::new(session, "session")?) };
        let rank = messages.rank;
        begin(options, rank, &session, |builder| Ok(builder.over(messages)))
    })
}

/// Moves as many of the session's messages as possible within budget_us microseconds, plus at most
/// one more. It never waits for another rank. Call it between your own MPI calls, on the thread
/// that may make them, at least every few hundred milliseconds. Returns PS_ERROR_FAILED if the
/// session failed, PS_ERROR_ARGUMENT if it needs no steps (ps_session_needs_step), PS_ERROR_MPI on
/// the wrong thread, and PS_ERROR_ENDED after ps_session_stop().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_session_step(session: *const ps_session, budget_us: u32) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let session = unsafe { borrowed(session, "session") }?;
        session.running(|handle| {
            let moved = handle.step(Duration::from_micros(u64::from(budget_us)));
            moved.map_err(|error| match error {
                _ if !handle.needs_step() => Failure::argument(error.to_string()),
                probe_sync::Error::Collective(_) => Failure::of(PS_ERROR_MPI)(error),
                error => Failure::from(error),
            })
        })
    })
}

/// Tells whether the caller must call ps_session_step().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_session_needs_step(session: *const ps_session, needs: *mut bool) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (session, needs) = unsafe { (borrowed(session, "session")?, Out::new(needs, "needs")?) };
        session.running(|handle| {
            needs.set(handle.needs_step());
            Ok(())
        })
    })
}

/// Functions given by C, all of them not NULL.
#[derive(Debug)]
struct GivenMessages {
    context: *mut c_void,
    rank: usize,
    size: usize,
    threads: Threads,
    send: unsafe extern "C" fn(*mut c_void, c_int, *const c_void, usize) -> c_int,
    receive: unsafe extern "C" fn(*mut c_void, *mut c_int, *mut *const c_void, *mut usize) -> c_int,
    sending: unsafe extern "C" fn(*mut c_void) -> c_int,
    describe: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    release: unsafe extern "C" fn(*mut c_void, c_int),
    released: bool,
}

// SAFETY: which threads call the functions is what `threads` says, and `collective::Carrier` keeps
// to it; `release` out of order may be called by any.
unsafe impl Send for GivenMessages {}

impl GivenMessages {
    fn of(given: &ps_messages) -> Result<Self, Failure> {
        let (rank, size) = numbered(given.rank, given.size)?;
        let missing =
            |name| move || Failure::argument(format!("{name} of ps_messages is NULL; all five functions are required"));
        Ok(Self {
            context: given.context,
            rank,
            size,
            threads: threads(given.threads)?,
            send: given.send.ok_or_else(missing("send"))?,
            receive: given.receive.ok_or_else(missing("receive"))?,
            sending: given.sending.ok_or_else(missing("sending"))?,
            describe: given.describe.ok_or_else(missing("describe"))?,
            release: given.release.ok_or_else(missing("release"))?,
            released: false,
        })
    }

    fn failed(&self, operation: &'static str) -> Error {
        // SAFETY: the caller's promise: a text that stays until the next call, which is not before
        // it was copied.
        let text = unsafe { optional_text((self.describe)(self.context)) };
        let reason = text.map_or_else(|| "no reason given".into(), CStr::to_string_lossy).into_owned();
        Error::Backend { operation, reason }
    }

    fn release_once(&mut self, in_order: bool) {
        if !std::mem::replace(&mut self.released, true) {
            // SAFETY: the caller's promise; called once, and nothing after it.
            unsafe { (self.release)(self.context, c_int::from(in_order)) };
        }
    }
}

/// Checks the value, since C may pass any number.
fn threads(given: c_int) -> Result<Threads, Failure> {
    const OWN: c_int = ps_threads::PS_THREADS_OWN as c_int;
    const ONE_AT_A_TIME: c_int = ps_threads::PS_THREADS_ONE_AT_A_TIME as c_int;
    const ANY: c_int = ps_threads::PS_THREADS_ANY as c_int;
    match given {
        OWN => Ok(Threads::Own),
        ONE_AT_A_TIME => Ok(Threads::OneAtATime),
        ANY => Ok(Threads::Any),
        other => Err(Failure::argument(format!("threads of ps_messages is {other}; it must be one of ps_threads"))),
    }
}

impl Messages for GivenMessages {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn backend(&self) -> &'static str {
        "mpi"
    }

    fn threads(&self) -> Threads {
        self.threads
    }

    fn send(&mut self, to: usize, message: Vec<u8>) -> Result<(), Error> {
        let bytes = message.as_ptr().cast();
        // SAFETY: the caller's promise; the bytes are valid during the call, and ranks fit
        // (`numbered`).
        let code = unsafe { (self.send)(self.context, to as c_int, bytes, message.len()) };
        if code == 0 { Ok(()) } else { Err(self.failed("send")) }
    }

    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>, Error> {
        let (mut from, mut bytes, mut count) = (0, std::ptr::null(), 0);
        // SAFETY: the caller's promise, and three local variables.
        match unsafe { (self.receive)(self.context, &mut from, &mut bytes, &mut count) } {
            0 => Ok(None),
            1 => {
                let from = usize::try_from(from).ok().filter(|from| *from < self.size);
                let reason = "it returned a message from an invalid rank".to_owned();
                let from = from.ok_or(Error::Backend { operation: "receive", reason })?;
                let empty = bytes.is_null() || count == 0;
                // SAFETY: the caller's promise: so many bytes, which stay until the next call.
                let message = if empty { &[] } else { unsafe { std::slice::from_raw_parts(bytes.cast(), count) } };
                Ok(Some((from, message.to_vec())))
            }
            _ => Err(self.failed("receive")),
        }
    }

    fn sending(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { (self.sending)(self.context) != 0 }
    }

    fn release(&mut self) -> Result<(), Error> {
        self.release_once(true);
        Ok(())
    }
}

impl Drop for GivenMessages {
    fn drop(&mut self) {
        self.release_once(false);
    }
}

//! Recording of the process's own activity: settings, recordings and how they end.
//!
//! In a forked child nothing here touches a lock: the recording belongs to the parent and continues
//! there.
//!
//! | module | holds |
//! |---|---|
//! | `mod` | settings; start, pause, snapshot, finish |
//! | `events` | what is recorded: scopes, moments, values, flows, spans |
//! | `values` | arguments of events |
//! | `facts` | what collectives and memory are recorded with |
//!
//! It does not write traces; `probe_sync record convert` produces them from the files.

mod events;
mod facts;
#[cfg(test)]
mod tests;
mod values;

use std::ffi::c_char;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use probe_sync_record::{Adopted, Builder, Recorder, Session};

pub use self::events::*;
pub use self::facts::*;
pub use self::values::*;
use crate::pointers::{Out, borrowed, borrowed_mut, taken_back, text};
use crate::status::{Failure, guard, ps_status};
use ps_status::*;

/// Settings of a recording.
#[derive(Debug)]
pub struct ps_record_options {
    builder: Builder,
}

/// A recording in progress.
#[derive(Debug)]
pub struct ps_record {
    /// Process that owns the recording.
    process: u32,
    /// None once it was finished.
    session: Mutex<Option<Session>>,
}

/// A thread that takes part in a recording of another thread.
#[derive(Debug)]
pub struct ps_record_adopted {
    /// Process that owns the recording.
    process: u32,
    adopted: Adopted,
}

/// Creates recording settings with default values: all threads, all kinds, and 64 MiB in memory;
/// when that is full, new events are dropped. Free them with ps_record_options_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_options_new(options: *mut *mut ps_record_options) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let options = unsafe { Out::new(options, "options") }?;
        options.hand_over(ps_record_options { builder: Recorder::builder() });
        Ok(())
    })
}

/// Sets one key from its text: reach (process, thread), policy (drop_newest, flight, stream), bytes
/// (64MiB), every (200ms: how often a stream appends; set policy first), spill (a file that
/// survives a kill), kinds (user,collective), one_in, longer_than (20us), clock (best, tsc,
/// monotonic_raw), pair_period (1s), threads, keep (5s), rank, devices (cupti: NVIDIA GPUs), control
/// (a folder for a socket, for `probe_sync record start`), and with true or false details, shapes,
/// stacks, modules, flops, memory (events of that kind), count_omitted, paused, on_demand (paused
/// until it is started from outside).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_options_set(
    options: *mut ps_record_options,
    key: *const c_char,
    value: *const c_char,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (options, key, value) =
            unsafe { (borrowed_mut(options, "options")?, text(key, "key")?, text(value, "value")?) };
        options.builder = options.builder.clone().set(key, value)?;
        Ok(())
    })
}

/// Frees the settings (NULL is a no-op). Recordings started with them continue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_options_free(options: *mut ps_record_options) {
    guard(|| {
        // SAFETY: the rule of the crate.
        drop(unsafe { taken_back(options) });
        Ok(())
    });
}

/// Starts recording. options may be NULL. A process can have one recording with reach process at a
/// time, and at most 8 including those with reach thread; a forked child may start its own. Free it
/// with ps_record_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_start(options: *const ps_record_options, record: *mut *mut ps_record) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (options, record) = unsafe { (options.as_ref(), Out::new(record, "record")?) };
        let builder = options.map_or_else(Recorder::builder, |options| options.builder.clone());
        let session = builder.start()?;
        record.hand_over(ps_record { process: std::process::id(), session: Mutex::new(Some(session)) });
        Ok(())
    })
}

/// Pauses recording until ps_record_resume(). Open scopes are still recorded when they end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_pause(record: *const ps_record) -> ps_status {
    // SAFETY: the rule of the crate.
    guard(|| unsafe { borrowed(record, "record") }?.running(|session| Ok(session.pause()?)))
}

/// Resumes recording.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_resume(record: *const ps_record) -> ps_status {
    // SAFETY: the rule of the crate.
    guard(|| unsafe { borrowed(record, "record") }?.running(|session| Ok(session.resume()?)))
}

/// Writes everything recorded so far to a file, replacing an existing one. Recording continues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_snapshot(record: *const ps_record, path: *const c_char) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (record, path) = unsafe { (borrowed(record, "record")?, text(path, "path")?) };
        record.running(|session| Ok(session.snapshot()?.save(Path::new(path))?))
    })
}

/// Ends the recording. When this returns, all threads' events are complete, and `probe_sync record`
/// can read the file. path is a file for a copy, which a recording without the setting spill needs;
/// NULL means no copy. The recording ends even if the copy fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_finish(record: *const ps_record, path: *const c_char) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let record = unsafe { borrowed(record, "record") }?;
        let path = match path.is_null() {
            true => None,
            // SAFETY: the rule of the crate.
            false => Some(unsafe { text(path, "path") }?),
        };
        let session = record.session()?.take().ok_or_else(ended)?;
        let recording = session.finish()?;
        if let Some(path) = path {
            recording.save(Path::new(path))?;
        }
        Ok(())
    })
}

/// Frees the recording (NULL is a no-op) and ends it if it is running. In a forked child the
/// parent's recording continues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_free(record: *mut ps_record) {
    guard(|| {
        // SAFETY: the rule of the crate.
        let Some(record) = (unsafe { taken_back(record) }) else { return Ok(()) };
        if record.process != std::process::id() {
            // Its lock and its thread are the parent's.
            std::mem::forget(record);
        }
        Ok(())
    });
}

/// Adds the calling thread to a recording with reach thread that another thread started, until
/// ps_record_adopted_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_adopt(record: *const ps_record, adopted: *mut *mut ps_record_adopted) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (record, adopted) = unsafe { (borrowed(record, "record")?, Out::new(adopted, "adopted")?) };
        record.running(|session| {
            adopted.hand_over(ps_record_adopted { process: record.process, adopted: session.adopter().adopt() });
            Ok(())
        })
    })
}

/// Removes the thread from the recording (NULL is a no-op).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_adopted_free(adopted: *mut ps_record_adopted) {
    guard(|| {
        // SAFETY: the rule of the crate.
        let Some(adopted) = (unsafe { taken_back(adopted) }) else { return Ok(()) };
        if adopted.process != std::process::id() {
            std::mem::forget(adopted.adopted);
        }
        Ok(())
    });
}

impl ps_record {
    /// Calls `act` with a recording that is not finished.
    fn running(&self, act: impl FnOnce(&Session) -> Result<(), Failure>) -> Result<(), Failure> {
        act(self.session()?.as_ref().ok_or_else(ended)?)
    }

    /// Returns the session, in the process that owns it.
    fn session(&self) -> Result<MutexGuard<'_, Option<Session>>, Failure> {
        if self.process != std::process::id() {
            return Err(Failure::new(PS_ERROR_FORKED, FORKED));
        }
        Ok(self.session.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn ended() -> Failure {
    Failure::new(PS_ERROR_ENDED, "this recording is finished; start another with ps_record_start()")
}

const FORKED: &str =
    "this recording belongs to the parent of this forked process and continues there; start one in this process";

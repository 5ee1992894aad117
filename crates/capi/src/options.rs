//! The settings of a session, under the same keys as on the command line, in files and in the
//! environment.
//!
//! A session reads them when it starts. `PROBE_SYNC_*` variables apply too, with lower precedence
//! than the options set here. The keys are defined in the table of `probe_sync::config`, not here.

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;

use probe_sync::{Config, TracerClock};

use crate::pointers::{Out, borrowed_mut, taken_back, text};
use crate::status::{Failure, guard, ps_status};
use ps_status::*;

/// Settings of a session.
#[derive(Debug, Default)]
pub struct ps_options {
    file: Option<PathBuf>,
    entries: Vec<(String, String)>,
    tracer_clock: Option<TracerClock>,
}

/// Reads a profiler's own clock: stores nanoseconds in *ns and returns 0, or returns another number
/// on failure.
pub type ps_read_clock = Option<unsafe extern "C" fn(user_data: *mut c_void, ns: *mut i64) -> c_int>;

/// Creates settings with default values. Free them with ps_options_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_options_new(options: *mut *mut ps_options) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let options = unsafe { Out::new(options, "options") }?;
        options.hand_over(ps_options::default());
        Ok(())
    })
}

/// Sets one key from its text, for example ("window", "250ms"). Keys and values are those of
/// `probe_sync run --help`, with underscores. A key set here takes precedence over the environment
/// (PROBE_SYNC_WINDOW), and that over ps_options_file().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_options_set(
    options: *mut ps_options,
    key: *const c_char,
    value: *const c_char,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (options, key, value) =
            unsafe { (borrowed_mut(options, "options")?, text(key, "key")?, text(value, "value")?) };
        // At once, so that the caller learns which line is wrong; keys that do not go together are
        // refused at the start.
        Config::default().set(key, value, "ps_options_set")?;
        options.entries.push((key.to_owned(), value.to_owned()));
        Ok(())
    })
}

/// Makes the session read settings from a TOML file (or JSON, if its name ends in .json) when it
/// starts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_options_file(options: *mut ps_options, path: *const c_char) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (options, path) = unsafe { (borrowed_mut(options, "options")?, text(path, "path")?) };
        Config::load(Some(path.as_ref()), std::iter::empty(), &[])?;
        options.file = Some(path.into());
        Ok(())
    })
}

/// Takes snapshot pairs of the caller's own clock, under a name of the caller's choice, instead of
/// the key tracer_clock. The function is called once now, and then from the session's threads,
/// possibly from several at once, until the session has ended. ps_session_stop() waits for that;
/// ps_session_free() does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_options_tracer_clock(
    options: *mut ps_options,
    name: *const c_char,
    read: ps_read_clock,
    user_data: *mut c_void,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (options, name) = unsafe { (borrowed_mut(options, "options")?, text(name, "name")?) };
        let read = read.ok_or_else(|| Failure::argument("read is NULL; give a function that reads the clock"))?;
        // SAFETY: the caller promises what stands above.
        let clock = unsafe { TracerClock::of_c_function(name, read, user_data) };
        options.tracer_clock = Some(clock.map_err(Failure::of(PS_ERROR_OPTION))?);
        Ok(())
    })
}

/// Frees the settings (NULL is a no-op). Sessions started with them continue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_options_free(options: *mut ps_options) {
    guard(|| {
        // SAFETY: the rule of the crate.
        drop(unsafe { taken_back(options) });
        Ok(())
    });
}

impl ps_options {
    /// Returns the configuration that these settings and the environment give.
    pub(crate) fn resolve(&self) -> (Result<Config, probe_sync::Error>, Option<TracerClock>) {
        (Config::load(self.file.as_deref(), std::env::vars_os(), &self.entries), self.tracer_clock.clone())
    }
}

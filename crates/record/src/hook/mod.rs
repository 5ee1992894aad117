//! Hooks, which derive facts about events after the session has stopped and add them as arguments.
//!
//! Hooks run between a [`Recording`] and its consumer. They see each event in the order of
//! [`Recording::visit`] and add arguments; the recording itself does not change.
//!
//! ```
//! use probe_sync_record::hook::{Flops, Hooks};
//! use probe_sync_record::{Error, Kind, Policy, Reach, Recorder, Value, scope};
//!
//! let session = Recorder::builder().reach(Reach::Thread).policy(Policy::Flight { bytes: 1 << 20 }).start()?;
//! drop(scope!(Kind::Function, "aten::mm", shapes = || Value::Json("[[2,3],[3,4]]")));
//! let recording = session.finish()?;
//! let mut hooks = Hooks::new(&recording, vec![Box::new(Flops)])?;
//! let serial = recording.threads()[0].serial;
//! hooks.visit(&recording, serial, |event, additions| {
//!     assert_eq!((event.name(), additions.len()), ("aten::mm", 1));
//!     Ok::<(), Error>(())
//! })?;
//! # Ok::<(), Error>(())
//! ```
//!
//! | hook | adds |
//! |---|---|
//! | [`Modules`] | to a stack's addresses: the file that each is in, and where |
//! | `Symbols` (feature `symbols`) | to a stack's addresses: function, file and line |
//! | [`ModulePath`] | the modules of the model that an event is in |
//! | [`Flops`] | floating-point operations, by name and shapes |
//! | [`Metadata`] | what the caller says of all events of a kind |
//!
//! A hook that panics is not asked again, and the panic is counted. One that is not for the
//! recording's reach is refused.

mod flops;
mod metadata;
mod module_path;
mod modules;
mod stack;
mod standard;
#[cfg(feature = "symbols")]
mod symbols;

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::active::core::Reach;
use crate::error::Error;
use crate::read::{Event, Recording, Thread};
use crate::tree::Item;
use crate::value::ArgumentValue;

pub use flops::Flops;
pub use metadata::Metadata;
pub use module_path::ModulePath;
pub use modules::Modules;
pub use stack::{Stack, stack};
#[cfg(feature = "symbols")]
pub use symbols::Symbols;

/// Arguments that hooks add to an event.
pub type Additions = Vec<(String, ArgumentValue)>;

/// Name of the argument with the names of a stack, a list as JSON, innermost first.
pub(crate) const CALL_STACK: &str = "call_stack";
/// Name of the argument with the modules of the model around an event.
pub(crate) const MODULE_PATH: &str = "module_path";

/// Computes additional arguments for events.
pub trait Hook: Send {
    /// Returns the name in messages.
    fn name(&self) -> &str;

    /// Checks whether it supports recordings of a reach.
    ///
    /// # Errors
    /// Returns the remedy.
    fn is_for(&self, reach: Reach) -> Result<(), String> {
        let _ = reach;
        Ok(())
    }

    /// Called before a recording is visited; it may be read beforehand.
    ///
    /// # Errors
    /// Errors of reading it.
    fn begin(&mut self, recording: &Recording) -> Result<(), Error> {
        let _ = recording;
        Ok(())
    }

    /// Called before the events of this thread.
    fn thread(&mut self, thread: &Thread) {
        let _ = thread;
    }

    /// Called for each event, and at the end of a thread for its open scopes.
    fn event(&mut self, item: &Item<'_>, additions: &mut Additions);

    /// Returns what a user should know about its additions so far.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Counts of a hook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookCounts {
    /// Its name.
    pub hook: String,
    /// Events passed to it.
    pub events: u64,
    /// Arguments added by it.
    pub additions: u64,
    /// Panics; after one it is no longer called.
    pub panics: u64,
}

/// Hooks of one recording, called in order.
pub struct Hooks {
    hooks: Vec<(Box<dyn Hook>, HookCounts)>,
    additions: Additions,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.hooks.iter().map(|(_, counts)| counts)).finish()
    }
}

impl Hooks {
    /// Creates the hooks of a recording.
    ///
    /// # Errors
    /// [`Error::HookNotForReach`]; errors of [`Hook::begin`].
    pub fn new(recording: &Recording, hooks: Vec<Box<dyn Hook>>) -> Result<Self, Error> {
        let reach = if recording.facts().reach == Reach::Thread.as_str() { Reach::Thread } else { Reach::Process };
        let mut all = Self { hooks: Vec::new(), additions: Vec::new() };
        for mut hook in hooks {
            let name = hook.name().to_owned();
            if let Err(remedy) = hook.is_for(reach) {
                return Err(Error::HookNotForReach { hook: name, reach: reach.as_str(), remedy });
            }
            let mut counts = HookCounts { hook: name, ..HookCounts::default() };
            guarded(&mut counts, || hook.begin(recording)).unwrap_or(Ok(()))?;
            all.hooks.push((hook, counts));
        }
        Ok(all)
    }

    /// Visits events of a thread together with the hooks' additions.
    ///
    /// # Errors
    /// Errors of [`Recording::visit`].
    pub fn visit<E: From<Error>>(
        &mut self,
        recording: &Recording,
        serial: u32,
        mut each: impl FnMut(&Event<'_>, &Additions) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(thread) = recording.threads().iter().find(|thread| thread.serial == serial) {
            self.thread(thread);
        }
        recording.visit(serial, |event| each(event, self.event(&Item::Event(event))))
    }

    /// Announces events of this thread.
    pub fn thread(&mut self, thread: &Thread) {
        for (hook, counts) in self.hooks.iter_mut().filter(|(_, counts)| counts.panics == 0) {
            guarded(counts, || hook.thread(thread));
        }
    }

    /// Returns the hooks' additions to an event.
    pub fn event(&mut self, item: &Item<'_>) -> &Additions {
        self.additions.clear();
        for (hook, counts) in self.hooks.iter_mut().filter(|(_, counts)| counts.panics == 0) {
            let before = self.additions.len();
            counts.events += 1;
            if guarded(counts, || hook.event(item, &mut self.additions)).is_none() {
                self.additions.truncate(before);
            }
            counts.additions += self.additions.len().saturating_sub(before) as u64;
        }
        &self.additions
    }

    /// Returns what a user should know about the additions so far.
    pub fn notes(&self) -> Vec<String> {
        let panicked = |counts: &&HookCounts| counts.panics > 0;
        let panics = self
            .counts()
            .filter(panicked)
            .map(|counts| format!("the hook {} panicked; it added {} arguments before", counts.hook, counts.additions));
        self.hooks.iter().flat_map(|(hook, _)| hook.notes()).chain(panics).collect()
    }

    /// Returns the counts of each hook.
    pub fn counts(&self) -> impl Iterator<Item = &HookCounts> {
        self.hooks.iter().map(|(_, counts)| counts)
    }
}

/// Calls a hook; `None` if it panics.
fn guarded<R>(counts: &mut HookCounts, call: impl FnOnce() -> R) -> Option<R> {
    let result = catch_unwind(AssertUnwindSafe(call));
    result
        .map_err(|payload| {
            counts.panics += 1;
            // Dropping what it panicked with may panic again.
            std::mem::forget(payload);
        })
        .ok()
}

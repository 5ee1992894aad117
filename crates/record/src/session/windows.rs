//! The windows of a recording in progress.
//!
//! Each window is a definition in the recording, written when it opens, so that it survives a kill.

use std::sync::atomic::Ordering;

use crate::active::core::Core;
use crate::error::Error;
use crate::layout::window;

/// The windows so far.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Nothing is recorded whatever the schedule says, until this is reverted.
    pub held: bool,
    opened: u32,
    /// Position of the open window.
    open: Option<usize>,
}

impl Windows {
    /// Whether one is open.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Opens one.
    pub fn open(&mut self, core: &Core, from: u64, asked_ns: Option<[i64; 2]>, late: bool) -> Result<(), Error> {
        let [asked_from, asked_to] = asked_ns.unwrap_or_default();
        let words = [from, 0, asked_from as u64, asked_to as u64, u64::from(late)];
        self.open = core.define_window(self.opened, words);
        if self.open.is_none() {
            let reason = "there is no space for the definition of another window; give the session more bytes";
            return Err(Error::Setting { setting: "policy", reason: reason.into() });
        }
        self.opened += 1;
        Ok(())
    }

    /// Corrects the start of the open window.
    pub fn begins_at(&self, core: &Core, from: u64) {
        if let Some(at) = self.open {
            core.definition_word(at + window::FROM).store(from, Ordering::Release);
        }
    }

    /// Ends the open window, if any.
    pub fn close(&mut self, core: &Core, to: u64) {
        if let Some(at) = self.open.take() {
            core.definition_word(at + window::TO).store(to.max(1), Ordering::Release);
        }
    }
}

//! A running session, which can be paused, inspected and ended.
//!
//! Ending a session removes it from the list that threads see, waits until no thread is still
//! within an event that began earlier, and only then marks the recording as complete.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::control::Server;
use super::helper::Helper;
use super::live::Live;
use super::modules;
use super::schedule::Step;
use super::standing::{Counts, Standing};
use crate::active::core::{Core, Reach};
use crate::active::registry::Registry;
use crate::backend::BackendStatus;
use crate::error::Error;
use crate::layout::{header, state};
use crate::read::{Recording, Source};
use crate::thread::exclusive::Exclusive;
use crate::thread::sync;

/// A session. Dropping it without [`Session::finish`] also ends it; the content of its file is
/// complete.
#[derive(Debug)]
pub struct Session {
    pub(super) live: Arc<Live>,
    pub(super) helper: Option<Helper>,
    pub(super) control: Option<Server>,
    pub(super) choices: Vec<String>,
}

impl Session {
    /// Returns the state of each backend.
    pub fn backends(&self) -> Vec<BackendStatus> {
        self.live.backends.status()
    }

    /// Ends the session and returns the complete recording.
    ///
    /// # Errors
    /// [`Error::NotRecording`] in a forked child; errors of reading the recording back.
    pub fn finish(mut self) -> Result<Recording, Error> {
        self.live.own()?;
        self.end();
        let source = match self.live.core.region.file() {
            Some((file, path)) => {
                let source = |source| Error::File { path: path.to_path_buf(), source };
                Source::File(file.try_clone().map_err(source)?, path.to_path_buf())
            }
            None => Source::Core(Arc::clone(&self.live.core)),
        };
        Recording::of(source)
    }

    /// Returns a copy of what has been recorded so far; the session continues.
    ///
    /// # Errors
    /// [`Error::NotRecording`] in a forked child.
    pub fn snapshot(&self) -> Result<Recording, Error> {
        self.live.snapshot()
    }

    /// Pauses recording until [`Session::resume`], whatever a schedule states; an agreed window is
    /// cancelled. Open scopes end as usual.
    ///
    /// # Errors
    /// [`Error::NotRecording`] in a forked child.
    pub fn pause(&self) -> Result<(), Error> {
        self.live.set_recording(false)
    }

    /// Resumes recording.
    ///
    /// # Errors
    /// [`Error::NotRecording`] in a forked child.
    pub fn resume(&self) -> Result<(), Error> {
        self.live.set_recording(true)
    }

    /// Returns true if it is recording.
    pub fn is_recording(&self) -> bool {
        self.live.is_recording()
    }

    /// Begins the next step of its schedule. Returns the kind of the step, and the repetition that
    /// is completed by it: its events are [`Recording::window`] with that number, in a
    /// [`Session::snapshot`] now or at the end.
    ///
    /// # Errors
    /// [`Error::Setting`] if it has no schedule, or there is no room for another window;
    /// [`Error::NotRecording`] in a forked child.
    pub fn step(&self) -> Result<Step, Error> {
        self.live.step()
    }

    /// Records this span of the reference clock (ns since the Unix epoch), as
    /// [`Builder::window`](crate::Builder::window) does.
    ///
    /// # Errors
    /// [`Error::Setting`] if it is too late, another one is agreed, or the session has no
    /// reference; [`Error::AlreadyRecording`]; [`Error::NotRecording`] in a forked child.
    pub fn record_window(&self, from_ns: i64, to_ns: i64) -> Result<(), Error> {
        self.live.arrange([from_ns, to_ns])
    }

    /// Returns its control socket.
    pub fn socket(&self) -> Option<&std::path::Path> {
        self.control.as_ref().map(Server::path)
    }

    /// Returns its counts.
    pub fn counts(&self) -> Counts {
        Counts::of(&self.live.core)
    }

    /// Returns its configuration and state.
    pub fn standing(&self) -> Standing {
        Standing::of(&self.live.core)
    }

    /// Returns a handle by which other threads can join a session of one thread.
    pub fn adopter(&self) -> Adopter {
        Adopter { core: Arc::clone(&self.live.core), owner: self.live.owner }
    }

    /// Returns what was chosen, and why, one line each.
    pub fn choices(&self) -> &[String] {
        &self.choices
    }

    /// Returns the file that it records into.
    pub fn path(&self) -> Option<&std::path::Path> {
        self.live.core.region.file().map(|(_, path)| path)
    }

    /// Returns its reach.
    pub fn reach(&self) -> Reach {
        self.live.core.reach
    }

    /// Removes it from the list; the last events are complete when this returns.
    fn end(&mut self) {
        let (Some(mut helper), control) = (self.helper.take(), self.control.take()) else { return };
        let Ok(registry) = self.live.own() else {
            if let Some(control) = control {
                control.abandon();
            }
            return helper.abandon();
        };
        self.live.ended();
        drop(control);
        let exclusive = Exclusive::of(registry);
        let mut sessions = registry.sessions();
        sessions.retain(|core| core.number != self.live.core.number);
        registry.publish(&sessions);
        drop(sessions);
        if !registry.quiet(exclusive.let_go()) {
            // A thread may still write into it.
            std::mem::forget(Arc::clone(&self.live.core));
        }
        self.live.core.header(header::END).store(self.live.ticks.now(), Ordering::Release);
        self.live.backends.stop(&self.live.core);
        modules::define_again(&self.live.core);
        helper.end();
        self.live.core.header(header::STATE).store(state::FINISHED, Ordering::Release);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// Lets threads take part in a session of another thread.
#[derive(Clone, Debug)]
pub struct Adopter {
    core: Arc<Core>,
    /// Process that started the session.
    owner: u32,
}

impl Adopter {
    /// Records this thread's events too, until the guard is dropped.
    pub fn adopt(&self) -> Adopted {
        let serial = sync::attached().map_or(0, |block| block.serial.get());
        self.change(|members| members.push(serial));
        Adopted { adopter: self.clone(), serial }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u32>)) {
        // In a child another thread of the parent may have held the members when it was forked.
        let Some(registry) = Registry::current().filter(|_| self.owner == std::process::id()) else { return };
        let _exclusive = Exclusive::of(registry);
        let sessions = registry.sessions();
        change(&mut self.core.members.lock());
        registry.publish(&sessions);
    }
}

/// A thread that takes part in another's session.
#[must_use = "the thread takes part until this is dropped"]
#[derive(Debug)]
pub struct Adopted {
    adopter: Adopter,
    serial: u32,
}

impl Drop for Adopted {
    fn drop(&mut self) {
        let at = |members: &Vec<u32>| members.iter().position(|member| *member == self.serial);
        self.adopter.change(|members| {
            if let Some(at) = at(members) {
                members.swap_remove(at);
            }
        });
    }
}

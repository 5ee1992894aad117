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

/// A session. Dropped without [`Session::finish`] it ends all the same; what its file holds is
/// whole.
#[derive(Debug)]
pub struct Session {
    pub(super) live: Arc<Live>,
    pub(super) helper: Option<Helper>,
    pub(super) control: Option<Server>,
    pub(super) choices: Vec<String>,
}

impl Session {
    /// How each backend stands.
    pub fn backends(&self) -> Vec<BackendStatus> {
        self.live.backends.status()
    }

    /// Ends it: the recording, whole.
    ///
    /// # Errors
    /// [`Error::NotRecording`] in a forked child; what reading the recording back meets.
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

    /// What has been recorded until now, as a copy; the session goes on.
    ///
    /// # Errors
    /// [`Error::NotRecording`] in a forked child.
    pub fn snapshot(&self) -> Result<Recording, Error> {
        self.live.snapshot()
    }

    /// Stops recording until [`Session::resume`], whatever a schedule says; a window that was
    /// agreed on is given up. Scopes that are open end as they do.
    ///
    /// # Errors
    /// [`Error::NotRecording`] in a forked child.
    pub fn pause(&self) -> Result<(), Error> {
        self.live.set_recording(false)
    }

    /// Goes on.
    ///
    /// # Errors
    /// [`Error::NotRecording`] in a forked child.
    pub fn resume(&self) -> Result<(), Error> {
        self.live.set_recording(true)
    }

    /// Whether it records now.
    pub fn is_recording(&self) -> bool {
        self.live.is_recording()
    }

    /// The next step of its schedule begins. What that is, and which repetition is whole with it:
    /// its events are [`Recording::window`] of that number, in a [`Session::snapshot`] now or at
    /// the end.
    ///
    /// # Errors
    /// [`Error::Setting`] where it was given none to go by, or there is no room for another window;
    /// [`Error::NotRecording`] in a forked child.
    pub fn step(&self) -> Result<Step, Error> {
        self.live.step()
    }

    /// Records this span of the reference clock (ns since the Unix epoch), as
    /// [`Builder::window`](crate::Builder::window) does.
    ///
    /// # Errors
    /// [`Error::Setting`] where it is too late, another one is agreed on, or the session knows no
    /// reference; [`Error::AlreadyRecording`]; [`Error::NotRecording`] in a forked child.
    pub fn record_window(&self, from_ns: i64, to_ns: i64) -> Result<(), Error> {
        self.live.arrange([from_ns, to_ns])
    }

    /// The socket at which it is asked from outside.
    pub fn socket(&self) -> Option<&std::path::Path> {
        self.control.as_ref().map(Server::path)
    }

    /// How it stands.
    pub fn counts(&self) -> Counts {
        Counts::of(&self.live.core)
    }

    /// Its configuration and how it stands.
    pub fn standing(&self) -> Standing {
        Standing::of(&self.live.core)
    }

    /// What it lets other threads do; for a session of one thread they adopt it.
    pub fn adopter(&self) -> Adopter {
        Adopter { core: Arc::clone(&self.live.core), owner: self.live.owner }
    }

    /// What was chosen, and why, a line each.
    pub fn choices(&self) -> &[String] {
        &self.choices
    }

    /// The file that it records into.
    pub fn path(&self) -> Option<&std::path::Path> {
        self.live.core.region.file().map(|(_, path)| path)
    }

    /// Its reach.
    pub fn reach(&self) -> Reach {
        self.live.core.reach
    }

    /// Takes it off the list; the last events are whole when this returns.
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
    /// The process that started it.
    owner: u32,
}

impl Adopter {
    /// This thread's events are recorded, too, until the guard is dropped.
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

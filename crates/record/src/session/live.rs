//! The shared state of a session: what is being recorded and which windows exist, as seen by its
//! holder, its helper and its control clients.
//!
//! The recording of a session that is controlled from outside, or that follows a schedule or
//! windows, is read by windows: a window opens once everything is being recorded and closes before
//! anything stops being recorded.
//!
//! Locks are taken in this order: agenda, windows, the list of sessions.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar};
use std::time::Instant;

use super::appointment::{Act, Appointment, LEAD_NS};
use super::pairs;
use super::reference::{Reading, Reference};
use super::schedule::{Phase, Schedule, Step};
use super::settings::Settings;
use super::windows::Windows;
use crate::active::core::Core;
use crate::active::registry::Registry;
use crate::backend::Running;
use crate::clock::Ticks;
use crate::error::Error;
use crate::layout::header;
use crate::memory::lock::Lock;
use crate::read::Recording;
use crate::thread::exclusive::Exclusive;

/// A session.
#[derive(Debug)]
pub(super) struct Live {
    pub core: Arc<Core>,
    pub ticks: Ticks,
    /// The process that started it.
    pub owner: u32,
    pub backends: Running,
    stage: AtomicU32,
    reference: Option<Reference>,
    schedule: Option<(Schedule, Lock<u64>)>,
    /// `None`: everything recorded counts.
    windows: Option<Lock<Windows>>,
    agenda: Lock<Agenda>,
    bell: Condvar,
}

/// Tasks of the helper in addition to those of every period.
#[derive(Debug, Default)]
struct Agenda {
    ended: bool,
    appointment: Option<Appointment>,
}

impl Live {
    pub fn of(core: Arc<Core>, ticks: Ticks, settings: &Settings, backends: Running) -> Self {
        Self {
            core,
            ticks,
            owner: std::process::id(),
            backends,
            stage: AtomicU32::new(PREPARED),
            reference: settings.reference.clone(),
            schedule: settings.schedule.map(|schedule| (schedule, Lock::new(0))),
            windows: settings.is_windowed().then(Lock::default),
            agenda: Lock::default(),
            bell: Condvar::new(),
        }
    }

    /// The process's list of sessions.
    pub fn own(&self) -> Result<&'static Registry, Error> {
        if self.owner != std::process::id() {
            let reason =
                format!("the session belongs to process {} and continues there; start one in this child", self.owner);
            return Err(Error::NotRecording { reason });
        }
        Registry::current().ok_or(Error::NotRecording { reason: "the session has ended".into() })
    }

    /// The session is on the list. `window`: a span that was requested before.
    pub fn started(&self, window: Option<[i64; 2]>) -> Result<(), Error> {
        self.stage.store(STARTED, Ordering::Release);
        if let (Some((schedule, _)), Some(windows)) = (&self.schedule, &self.windows) {
            self.turn(&mut windows.lock(), schedule.step(0))?;
        }
        window.map_or(Ok(()), |asked| self.arrange(asked))
    }

    /// The session has ended. An open window ends with the recording.
    pub fn ended(&self) {
        self.stage.store(ENDED, Ordering::Release);
        self.agenda.lock().appointment = None;
        if let Some(windows) = &self.windows {
            windows.lock().close(&self.core, self.ticks.now());
        }
    }

    /// The helper is not needed any more.
    pub fn dismiss(&self) {
        self.agenda.lock().ended = true;
        self.bell.notify_all();
    }

    /// Writes a reading of both clocks into the recording.
    pub fn take_pair(&self) {
        pairs::write_now(&self.core, self.ticks);
    }

    /// Returns what has been recorded until now.
    pub fn snapshot(&self) -> Result<Recording, Error> {
        self.own()?;
        self.take_pair();
        Recording::of_live(&self.core)
    }

    /// Starts or stops recording; for a session with a schedule this takes precedence until it is
    /// reverted.
    pub fn set_recording(&self, on: bool) -> Result<(), Error> {
        self.own()?;
        let Some(windows) = &self.windows else { return self.set_paused(!on) };
        if !on {
            // What was agreed on is not begun any more, or ends now.
            self.agenda.lock().appointment = None;
        }
        let mut windows = windows.lock();
        if let Some((_, number)) = &self.schedule {
            let number = *number.lock();
            windows.held = !on;
            return self.turn(&mut windows, self.step_of(number));
        }
        self.turn(&mut windows, Step { phase: if on { Phase::Active } else { Phase::Idle }, ..Step::default() })
    }

    /// The next step of the schedule begins.
    pub fn step(&self) -> Result<Step, Error> {
        self.own()?;
        let (Some((_, number)), Some(windows)) = (&self.schedule, &self.windows) else {
            return refuse("schedule", "the session has no schedule; give its builder one, or use pause and resume");
        };
        let mut windows = windows.lock();
        let mut number = number.lock();
        *number += 1;
        let step = self.step_of(*number);
        self.turn(&mut windows, step)?;
        Ok(step)
    }

    /// Request from outside: starts recording.
    pub fn start_as_asked(&self) -> Result<(), Error> {
        self.check_asked()?;
        let agenda = self.agenda.lock();
        if let Some(appointment) = &agenda.appointment {
            return refuse("start", &already_agreed(appointment.asked_ns));
        }
        if self.is_recording() {
            return Err(Error::AlreadyRecording { place: self.core.place.clone() });
        }
        drop(agenda);
        self.set_recording(true)
    }

    /// Request from outside: stops recording, including an agreed span that has not begun.
    pub fn stop_as_asked(&self) -> Result<(), Error> {
        self.check_asked()?;
        if !self.is_recording() && self.window_ns().is_none() {
            return Err(Error::NotRecording { reason: "it is already paused; start it first".into() });
        }
        self.set_recording(false)
    }

    /// Request from outside or by a builder: records this span of the reference clock.
    pub fn arrange(&self, asked_ns: [i64; 2]) -> Result<(), Error> {
        self.check_asked()?;
        let [from, to] = asked_ns;
        if from >= to {
            return refuse("window", "it ends before it begins; give an end after its start");
        }
        let Some(reference) = self.reference.as_ref().filter(|_| self.windows.is_some()) else {
            return refuse(
                "window",
                "the session has no reference clock; give its builder one with reference, and on_demand",
            );
        };
        let Some(now) = reference.read(self.ticks) else {
            return refuse("window", "the reference time is not known yet; try again once a run maintains it");
        };
        if now.ns.saturating_add(LEAD_NS) > from {
            let late = now.ns.saturating_sub(from);
            let reason = format!(
                "it begins {} ms {} now; choose a start at least {} ms from now, so that all sessions can be ready",
                late.unsigned_abs() / 1_000_000,
                if late < 0 { "after" } else { "before" },
                2 * LEAD_NS / 1_000_000
            );
            return refuse("window", &reason);
        }
        let mut agenda = self.agenda.lock();
        if let Some(appointment) = &agenda.appointment {
            return refuse("window", &already_agreed(appointment.asked_ns));
        }
        if self.is_recording() {
            return Err(Error::AlreadyRecording { place: self.core.place.clone() });
        }
        agenda.appointment = Some(Appointment::agreed(asked_ns, now));
        drop(agenda);
        self.bell.notify_all();
        Ok(())
    }

    /// Whether events are recorded and count now.
    pub fn is_recording(&self) -> bool {
        let started = self.stage.load(Ordering::Acquire) == STARTED;
        started && self.own().is_ok() && !self.core.paused.load(Ordering::Acquire)
    }

    /// The span that was agreed on and is not over.
    pub fn window_ns(&self) -> Option<[i64; 2]> {
        self.agenda.lock().appointment.as_ref().map(|appointment| appointment.asked_ns)
    }

    /// Reading of the reference.
    pub fn reference_ns(&self) -> Option<i64> {
        self.reference.as_ref()?.now_ns()
    }

    /// Waits until `due`, meanwhile continuing with the agreed span; returns false when the session
    /// ends.
    pub fn wait_until(&self, due: Instant) -> bool {
        let mut agenda = self.agenda.lock();
        loop {
            if agenda.ended {
                return false;
            }
            if let Some(appointment) = agenda.appointment.as_mut().filter(|agreed| agreed.due <= Instant::now())
                && self.go_on(appointment)
            {
                agenda.appointment = None;
            }
            let next = agenda.appointment.as_ref().map_or(due, |appointment| appointment.due.min(due));
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() && next == due {
                return true;
            }
            agenda = self.agenda.wait(agenda, &self.bell, left);
        }
    }

    /// Continues with the agreed span; returns true when it is over.
    fn go_on(&self, appointment: &mut Appointment) -> bool {
        let Some(windows) = &self.windows else { return true };
        let read = || self.reference.as_ref().and_then(|reference| reference.read(self.ticks));
        let mut windows = windows.lock();
        match appointment.go_on(read()) {
            Act::Wait => false,
            // Somebody has begun by hand meanwhile: that goes on.
            Act::Record if self.is_recording() => true,
            Act::Record => self.begin(appointment, &mut windows, read).is_err(),
            Act::From(ticks) => {
                windows.begins_at(&self.core, ticks);
                false
            }
            Act::End(ticks) => {
                windows.close(&self.core, ticks);
                // Only a child is refused, and it has no such thread.
                let _ = self.set_paused(true);
                true
            }
        }
    }

    fn begin(
        &self,
        appointment: &mut Appointment,
        windows: &mut Windows,
        read: impl Fn() -> Option<Reading>,
    ) -> Result<(), Error> {
        self.set_paused(false)?;
        let (from, late) = appointment.armed(self.ticks.now(), read());
        let opened = windows.open(&self.core, from, Some(appointment.asked_ns), late);
        if opened.is_err() {
            self.set_paused(true)?;
        }
        opened
    }

    /// Adjusts the recording to a step.
    fn turn(&self, windows: &mut Windows, step: Step) -> Result<(), Error> {
        let phase = if windows.held { Phase::Idle } else { step.phase };
        if phase != Phase::Active || step.completed.is_some() {
            windows.close(&self.core, self.ticks.now());
        }
        self.set_paused(phase == Phase::Idle)?;
        if phase == Phase::Active && !windows.is_open() {
            // From now on every thread records.
            return windows.open(&self.core, self.ticks.now(), None, false);
        }
        Ok(())
    }

    /// When it returns, every thread complies.
    fn set_paused(&self, paused: bool) -> Result<(), Error> {
        let registry = self.own()?;
        if self.core.paused.load(Ordering::Acquire) == paused {
            return Ok(());
        }
        let exclusive = Exclusive::of(registry);
        let sessions = registry.sessions();
        if self.core.paused.swap(paused, Ordering::AcqRel) != paused {
            self.core.header(header::PAUSES).fetch_add(1, Ordering::Relaxed);
        }
        registry.publish(&sessions);
        drop(sessions);
        registry.quiet(exclusive.let_go());
        Ok(())
    }

    fn check_asked(&self) -> Result<(), Error> {
        self.own()?;
        let reason = match self.stage.load(Ordering::Acquire) {
            STARTED if self.schedule.is_some() => {
                return refuse("schedule", "the session follows its schedule; only copies can be requested");
            }
            STARTED => return Ok(()),
            PREPARED => "it is prepared but not started",
            _ => "the session has ended",
        };
        Err(Error::NotRecording { reason: reason.into() })
    }

    fn step_of(&self, number: u64) -> Step {
        self.schedule.as_ref().map_or_else(Step::default, |(schedule, _)| schedule.step(number))
    }
}

fn refuse<T>(setting: &'static str, reason: &str) -> Result<T, Error> {
    Err(Error::Setting { setting, reason: reason.into() })
}

fn already_agreed([from, to]: [i64; 2]) -> String {
    format!("a window from {from} to {to} ns of reference time is already scheduled; wait until it is over, or stop it")
}

const PREPARED: u32 = 0;
const STARTED: u32 = 1;
const ENDED: u32 = 2;

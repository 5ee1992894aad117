//! A run on its own thread, concurrent with the caller's work.
//!
//! Waits are cut into slices, so that a session can be stopped while another thread waits for it.
//! In a forked child nothing here touches a lock or the thread: both belong to the parent.
//!
//! | module | holds |
//! |---|---|
//! | `mod` | start, pause, stop |
//! | `over` | start over the launcher's own messages, and steps |
//! | `seen` | what is seen of it: phase, rounds, waits |

mod over;
mod seen;

use std::ffi::{CString, c_char, c_int};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard};

use probe_sync::collective::{MAX_RANKS, UniqueId};
use probe_sync::{Arrivals, GlobalClock, Session, SessionBuilder};

pub use self::over::*;
pub use self::seen::*;
use crate::clock::ps_clock;
use crate::meeting::{ps_meeting, ps_unique_id};
use crate::options::ps_options;
use crate::pointers::{Out, borrowed, taken_back, text};
use crate::status::{Failure, guard, ps_status};
use ps_status::*;

/// One rank of a run.
#[derive(Debug)]
pub struct ps_session {
    /// Process of its thread; forked processes do not have it.
    process: u32,
    rank: u32,
    stage: RwLock<Stage>,
    arrivals: Arrivals,
    clock: GlobalClock,
    /// The report at rank 0, as JSON.
    report: OnceLock<CString>,
}

#[derive(Debug)]
enum Stage {
    Running(Box<Session>),
    /// It was stopped, with the reason if it had failed.
    Stopped(Option<String>),
}

/// The process with a running session; 0 if there is none. A forked child sees its parent's and may
/// start its own.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Starts a session as rank `rank` of `size` on its own thread, and returns immediately;
/// ps_session_state() reports later failures. Rank 0 passes the meeting that it opened, the other
/// ranks pass its id; the other argument may be NULL, and both may be NULL if size is 1. options
/// may be NULL. A process can have one session at a time. Free it with ps_session_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_session_start(
    options: *const ps_options,
    meeting: *const ps_meeting,
    id: *const ps_unique_id,
    rank: c_int,
    size: c_int,
    session: *mut *mut ps_session,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (options, meeting, id, session) =
            unsafe { (options.as_ref(), meeting.as_ref(), id.as_ref(), Out::new(session, "session")?) };
        let (rank, size) = numbered(rank, size)?;
        begin(options, rank, &session, |builder| meet(builder, rank, size, meeting, id))
    })
}

/// Records that this rank arrives now at operation `step` of `group`. Call it on every member right
/// before an operation in which the members wait for each other; rank 0 uses it to detect late
/// ranks (`probe_sync status`). The call takes some tens of nanoseconds, takes no lock, and may be
/// made from any thread. `group` has at most 64 bytes of UTF-8. If the buffer is full, the arrival
/// is dropped and counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_arrive(session: *const ps_session, group: *const c_char, step: u64) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (session, group) = unsafe { (borrowed(session, "session")?, text(group, "group")?) };
        session.arrivals.arrive(group, step);
        Ok(())
    })
}

/// Records an arrival, as ps_arrive() does, whenever a scope of ps_record_collective_enter() begins
/// in which all members wait: all-reduce, all-gather, reduce-scatter, all-to-all, barrier. Group and
/// step are the scope's group and sequence number; scopes without them are ignored.
/// No recording is needed. Ends with the session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_session_observe_collectives(session: *const ps_session) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let session = unsafe { borrowed(session, "session") }?;
        session.running(|handle| handle.observe_collectives().map_err(Failure::from))
    })
}

/// Stops starting exchanges on this rank from the next round on. The rank still answers the others'
/// exchanges, and rounds continue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_session_pause(session: *const ps_session) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let session = unsafe { borrowed(session, "session") }?;
        session.running(|handle| {
            handle.pause();
            Ok(())
        })
    })
}

/// Resumes measuring on this rank from the next round on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_session_resume(session: *const ps_session) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let session = unsafe { borrowed(session, "session") }?;
        session.running(|handle| {
            handle.resume();
            Ok(())
        })
    })
}

/// Gets the session's clock, which remains valid after the session's end and in forked children.
/// Free it with ps_clock_free(), before or after the session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_session_clock(session: *const ps_session, clock: *mut *mut ps_clock) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (session, clock) = unsafe { (borrowed(session, "session")?, Out::new(clock, "clock")?) };
        clock.hand_over(ps_clock::new(session.clock.clone()));
        Ok(())
    })
}

/// Ends the run on all ranks after the current window and a short final one; every rank must call
/// this. At rank 0, *report_json is set to the content of report.json, valid until the session is
/// freed; elsewhere to NULL. report_json itself may be NULL. Returns PS_ERROR_FAILED if the session
/// had failed, and PS_ERROR_ENDED if it was already stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_session_stop(session: *const ps_session, report_json: *mut *const c_char) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let session = unsafe { borrowed(session, "session") }?;
        // SAFETY: the rule of the crate.
        let told = unsafe { Out::new(report_json, "report_json") }.ok();
        if let Some(told) = &told {
            told.set(std::ptr::null());
        }
        let report = session.stop()?;
        if let (Some(told), Some(report)) = (told, report) {
            told.set(report.as_ptr());
        }
        Ok(())
    })
}

/// Frees the session (NULL is a no-op). A running session is asked to stop; this call does not wait
/// for it. In a forked child the parent's session continues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_session_free(session: *mut ps_session) {
    guard(|| {
        // SAFETY: the rule of the crate.
        let Some(session) = (unsafe { taken_back(session) }) else { return Ok(()) };
        if session.process != std::process::id() {
            // Its thread and its locks are the parent's: letting go of them here may touch what is
            // not there.
            std::mem::forget(session);
            return Ok(());
        }
        if matches!(*session.stage.read().unwrap_or_else(PoisonError::into_inner), Stage::Running(_)) {
            Ownership::give_up();
        }
        Ok(())
    });
}

impl ps_session {
    /// Calls `act` with a running session; otherwise returns why it cannot.
    fn running<T>(&self, act: impl FnOnce(&Session) -> Result<T, Failure>) -> Result<T, Failure> {
        match &*self.stage()? {
            Stage::Running(handle) => act(handle),
            Stage::Stopped(_) => Err(Failure::new(PS_ERROR_ENDED, STOPPED)),
        }
    }

    /// Returns the stage of the session, in the process that owns it.
    fn stage(&self) -> Result<RwLockReadGuard<'_, Stage>, Failure> {
        self.refuse_fork()?;
        Ok(self.stage.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stops the session; returns the report, if there is one.
    fn stop(&self) -> Result<Option<&CString>, Failure> {
        self.refuse_fork()?;
        let stopped =
            std::mem::replace(&mut *self.stage.write().unwrap_or_else(PoisonError::into_inner), Stage::Stopped(None));
        let Stage::Running(handle) = stopped else {
            *self.stage.write().unwrap_or_else(PoisonError::into_inner) = stopped;
            return Err(Failure::new(PS_ERROR_ENDED, STOPPED));
        };
        let ended = handle.stop();
        Ownership::give_up();
        let failed = |error: &probe_sync::Error| {
            *self.stage.write().unwrap_or_else(PoisonError::into_inner) = Stage::Stopped(Some(error.to_string()));
        };
        let report = ended.inspect_err(failed).map_err(Failure::of(PS_ERROR_FAILED))?;
        let Some(report) = report else { return Ok(None) };
        let text = serde_json::to_vec(&report).map_err(Failure::of(PS_ERROR_FAILED))?;
        Ok(Some(self.report.get_or_init(|| CString::new(text).unwrap_or_default())))
    }

    fn refuse_fork(&self) -> Result<(), Failure> {
        if self.process == std::process::id() { Ok(()) } else { Err(Failure::new(PS_ERROR_FORKED, FORKED)) }
    }
}

/// The right of this process to its only session, until it is kept or dropped.
struct Ownership;

impl Ownership {
    fn claim() -> Result<Self, Failure> {
        let (own, before) = (std::process::id(), OWNER.load(Ordering::Relaxed));
        let claimed =
            before != own && OWNER.compare_exchange(before, own, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if claimed { Ok(Self) } else { Err(Failure::new(PS_ERROR_STARTED, STARTED)) }
    }

    fn keep(self) {
        std::mem::forget(self);
    }

    fn give_up() {
        OWNER.store(0, Ordering::Relaxed);
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        Self::give_up();
    }
}

/// Starts a session whose ranks communicate as `meets` states, and passes it to the caller.
fn begin(
    options: Option<&ps_options>,
    rank: usize,
    session: &Out<*mut ps_session>,
    meets: impl FnOnce(SessionBuilder) -> Result<SessionBuilder, Failure>,
) -> Result<(), Failure> {
    let (config, tracer_clock) = options.unwrap_or(&ps_options::default()).resolve();
    let own = Ownership::claim()?;
    let mut builder = meets(Session::builder_of(config))?;
    if let Some(clock) = tracer_clock {
        builder = builder.tracer_clock(clock);
    }
    let handle = builder.start()?;
    own.keep();
    session.hand_over(ps_session {
        process: std::process::id(),
        rank: rank as u32,
        clock: handle.clock(),
        arrivals: handle.arrivals(),
        stage: RwLock::new(Stage::Running(Box::new(handle))),
        report: OnceLock::new(),
    });
    Ok(())
}

/// Sets how this rank meets the others.
fn meet(
    builder: SessionBuilder,
    rank: usize,
    size: usize,
    meeting: Option<&ps_meeting>,
    id: Option<&ps_unique_id>,
) -> Result<SessionBuilder, Failure> {
    match (rank, meeting, id) {
        (0, Some(meeting), _) => Ok(builder.host(meeting.take()?, size)),
        (0, None, _) if size == 1 => Ok(builder),
        (0, None, _) => Err(Failure::argument("rank 0 hosts the meeting: give it the meeting from ps_meeting_open()")),
        (_, _, Some(id)) => {
            let wrong = |error| {
                Failure::new(PS_ERROR_MEETING, format!("{error}; give the id that ps_meeting_id() returned at rank 0"))
            };
            Ok(builder.join(UniqueId::from_bytes(&id.bytes).map_err(wrong)?, rank, size))
        }
        _ => Err(Failure::argument(format!("rank {rank} joins rank 0: give the id of rank 0's meeting"))),
    }
}

/// Checks that a rank and a number of ranks are consistent.
fn numbered(rank: c_int, size: c_int) -> Result<(usize, usize), Failure> {
    let numbers = usize::try_from(rank).ok().zip(usize::try_from(size).ok());
    numbers.filter(|(rank, size)| rank < size && *size <= MAX_RANKS).ok_or_else(|| {
        Failure::argument(format!(
            "rank {rank} of {size}: ranks are numbered from 0 to size - 1, with at most {MAX_RANKS} ranks; size is the total number \
            of processes in the job"
        ))
    })
}

const STOPPED: &str = "this session was stopped; start another with ps_session_start() (its clock remains readable)";
const STARTED: &str =
    "this process already has a session; use it, or end it first with ps_session_stop() or ps_session_free()";
const FORKED: &str = "this session belongs to the parent of this forked process; start a session in this process (its clock remains \
    readable)";

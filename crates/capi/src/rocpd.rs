//! Databases of rocprofv3, written while the program runs.
//!
//! A forked child never takes the writer's lock: the file belongs to the parent.

use std::ffi::c_char;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use probe_sync_rocpd::writer::{Agent, AgentKind, Error, Links, NamedEvent, NamedKind, NamedWriter, Process, Settings};

use crate::pointers::{Out, borrowed, given_size, optional_text, taken_back, text};
use crate::status::{Failure, guard, ps_status};
use ps_status::*;

/// A database being written.
#[derive(Debug)]
pub struct ps_rocpd {
    /// Process that owns the file.
    process: u32,
    /// None once it was closed.
    /// Locked only to take or copy it: an event must not wait for a flush.
    writer: Mutex<Option<Arc<NamedWriter>>>,
}

/// Kind of an event in a database.
#[repr(C)]
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ps_rocpd_kind {
    /// Something that a CPU thread did.
    PS_ROCPD_REGION = 0,
    /// A kernel that ran on an agent.
    PS_ROCPD_KERNEL = 1,
    /// A copy from one agent to another.
    PS_ROCPD_COPY = 2,
    /// The value of a counter at start_ns.
    PS_ROCPD_COUNTER = 3,
    /// An instant event at start_ns.
    PS_ROCPD_SAMPLE = 4,
}

/// An event of a database. Zero all fields first; those that do not apply to its kind are ignored.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct ps_rocpd_event {
    /// sizeof(ps_rocpd_event).
    pub size: usize,
    /// One of ps_rocpd_kind.
    pub kind: u32,
    /// Agent of a kernel or counter, and source of a copy, from ps_rocpd_agent(); 0 means none.
    pub agent: u32,
    /// Destination of a copy.
    pub destination: u32,
    /// Unused.
    pub reserved: u32,
    /// Thread ID (gettid) of the thread that did, launched or requested it; 0 means the calling
    /// thread.
    pub thread: i64,
    /// Start, ns of CLOCK_BOOTTIME.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// Name of the region, kernel, copy, counter or sample.
    pub name: *const c_char,
    /// Category; NULL means the usual one of the kind, such as KERNEL_DISPATCH.
    pub category: *const c_char,
    /// Queue of a kernel; NULL means the default queue.
    pub queue: *const c_char,
    /// Stream of a kernel or copy; NULL means the default stream.
    pub stream: *const c_char,
    /// Number of the call within the process; a kernel has that of the call that launched it.
    pub stack_id: i64,
    /// Number of the enclosing call.
    pub parent_stack_id: i64,
    /// A number assigned by the program.
    pub correlation_id: i64,
    /// Size of a copy, bytes.
    pub bytes: i64,
    /// Value of a counter.
    pub value: f64,
}

/// What happened to all events of a database.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct ps_rocpd_report {
    /// Set by the caller before the call: sizeof(ps_rocpd_report). Nothing beyond it is written.
    pub size: usize,
    /// Events in the file.
    pub events: u64,
    /// Events missing because the disk was full, too slow, or did not respond.
    pub dropped: u64,
    /// Rows of the events.
    pub rows: u64,
    /// Committed transactions.
    pub commits: u64,
}

/// Creates a database as rocprofv3 writes it, one per process. path may contain rocprofv3's keys,
/// as in "%hostname%/%pid%_results.db"; folders are created, and an existing file is never
/// replaced. Events are committed every flush_ms milliseconds (0 means 1000): a process that is
/// killed loses at most this much, and leaves a whole file. Free it with ps_rocpd_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_rocpd_open(path: *const c_char, flush_ms: u32, rocpd: *mut *mut ps_rocpd) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (path, rocpd) = unsafe { (text(path, "path")?, Out::new(rocpd, "rocpd")?) };
        let mut settings = Settings { output: path.into(), ..Settings::default() };
        if flush_ms > 0 {
            settings.flush_interval = Duration::from_millis(flush_ms.into());
        }
        let writer = NamedWriter::open(settings, Process::current())?;
        rocpd.hand_over(ps_rocpd { process: std::process::id(), writer: Mutex::new(Some(Arc::new(writer))) });
        Ok(())
    })
}

/// Adds a GPU with this index on the node, and gets its number for events. name is for example
/// "gfx942".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_rocpd_agent(
    rocpd: *const ps_rocpd,
    name: *const c_char,
    index: u32,
    agent: *mut u32,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (rocpd, name, agent) =
            unsafe { (borrowed(rocpd, "rocpd")?, text(name, "name")?, Out::new(agent, "agent")?) };
        let index = i64::from(index);
        let new = Agent {
            kind: AgentKind::Gpu,
            absolute_index: index,
            logical_index: index,
            type_index: index,
            name: name.to_owned(),
            product_name: name.to_owned(),
            ..Agent::default()
        };
        rocpd.open(|writer| {
            agent.set(writer.agent(new));
            Ok(())
        })
    })
}

/// Records count events; the call copies them and never waits for the file system. An event that
/// does not fit in the buffer is dropped and counted. Returns PS_ERROR_ARGUMENT at the first invalid
/// event; the events before it are recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_rocpd_write(
    rocpd: *const ps_rocpd,
    events: *const ps_rocpd_event,
    count: usize,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let rocpd = unsafe { borrowed(rocpd, "rocpd") }?;
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the rule of the crate. A newer header has larger events, so their own size is the
        // distance between them.
        let stride = unsafe { borrowed(events.cast::<usize>(), "events") }?;
        let stride = given_size::<ps_rocpd_event>(*stride, "ps_rocpd_event")?;
        if !stride.is_multiple_of(align_of::<ps_rocpd_event>()) {
            return Err(Failure::argument(format!(
                "events->size is {stride}, which leaves the second event misaligned"
            )));
        }
        rocpd.open(|writer| {
            for place in 0..count {
                // SAFETY: the rule of the crate: there are `count` events of this size.
                let event = unsafe { events.byte_add(place * stride).read() };
                // SAFETY: the rule of the crate.
                let event = unsafe { event.named() }?;
                writer.record(&event)?;
            }
            Ok(())
        })
    })
}

/// Commits everything recorded so far, and waits at most timeout_ms until it is in the file, where
/// other processes can read it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_rocpd_flush(rocpd: *const ps_rocpd, timeout_ms: u32) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let rocpd = unsafe { borrowed(rocpd, "rocpd") }?;
        rocpd.open(|writer| Ok(writer.flush(Duration::from_millis(timeout_ms.into()))?))
    })
}

/// Commits the remaining events, ends the file, and reports what happened to all events. report may
/// be NULL; otherwise set its size first. Returns PS_ERROR_TIMEOUT if the file system does not respond.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_rocpd_close(rocpd: *const ps_rocpd, report: *mut ps_rocpd_report) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let rocpd = unsafe { borrowed(rocpd, "rocpd") }?;
        rocpd.refuse_forked()?;
        let size = match report.is_null() {
            true => 0,
            // SAFETY: the rule of the crate.
            false => unsafe { given_size::<ps_rocpd_report>((&raw const (*report).size).read(), "ps_rocpd_report") }?,
        };
        let writer = rocpd.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let found = NamedWriter::finish_shared(writer.ok_or_else(closed)?)?;
        if !report.is_null() {
            let (events, dropped, rows, commits) = (found.events, found.dropped, found.rows, found.commits);
            // SAFETY: the rule of the crate.
            unsafe { report.write(ps_rocpd_report { size, events, dropped, rows, commits }) };
        }
        Ok(())
    })
}

/// Frees the writer (NULL is a no-op), and ends the file if it is open. In a forked child the
/// parent's writer continues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_rocpd_free(rocpd: *mut ps_rocpd) {
    guard(|| {
        // SAFETY: the rule of the crate.
        let Some(rocpd) = (unsafe { taken_back(rocpd) }) else { return Ok(()) };
        if rocpd.process != std::process::id() {
            // Its lock and its thread are the parent's.
            std::mem::forget(rocpd);
        }
        Ok(())
    });
}

impl ps_rocpd {
    /// Calls `act` with the writer if it is open.
    fn open(&self, act: impl FnOnce(&NamedWriter) -> Result<(), Failure>) -> Result<(), Failure> {
        self.refuse_forked()?;
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        act(&*writer.ok_or_else(closed)?)
    }

    fn refuse_forked(&self) -> Result<(), Failure> {
        if self.process == std::process::id() { Ok(()) } else { Err(Failure::new(PS_ERROR_FORKED, FORKED)) }
    }
}

impl ps_rocpd_event {
    /// Returns the event with its texts.
    ///
    /// # Safety
    /// The texts are NULL, or C strings that do not change while the result is used.
    unsafe fn named<'a>(&self) -> Result<NamedEvent<'a>, Failure> {
        const KINDS: [NamedKind; 5] =
            [NamedKind::Region, NamedKind::Kernel, NamedKind::MemoryCopy, NamedKind::Counter, NamedKind::Sample];
        let unknown = || Failure::argument(format!("event->kind is {}; give one of ps_rocpd_kind", self.kind));
        let kind = *KINDS.get(self.kind as usize).ok_or_else(unknown)?;
        let number = |agent| Some(agent).filter(|agent| *agent != 0);
        // SAFETY: the caller's promise.
        let optional = |place, name| unsafe { optional_text(place).map(|_| text(place, name)).transpose() };
        Ok(NamedEvent {
            kind,
            // SAFETY: the caller's promise.
            name: unsafe { text(self.name, "event->name") }?,
            category: optional(self.category, "event->category")?,
            thread: Some(self.thread).filter(|thread| *thread != 0),
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            links: Links {
                stack_id: self.stack_id,
                parent_stack_id: self.parent_stack_id,
                correlation_id: self.correlation_id,
            },
            agent: number(self.agent),
            destination: number(self.destination),
            queue: optional(self.queue, "event->queue")?,
            stream: optional(self.stream, "event->stream")?,
            bytes: self.bytes,
            value: self.value,
        })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::Pattern { .. } | Error::Guid { .. } | Error::Agent { .. } => PS_ERROR_ARGUMENT,
            Error::Stalled { .. } => PS_ERROR_TIMEOUT,
            Error::Forked { .. } => PS_ERROR_FORKED,
            Error::Exists { .. } | Error::Create { .. } | Error::Database { .. } => PS_ERROR_SYSTEM,
            _ => PS_ERROR_FAILED,
        };
        Self::new(status, error.to_string())
    }
}

fn closed() -> Failure {
    Failure::new(PS_ERROR_ENDED, "this database is closed; open another with ps_rocpd_open()")
}

const FORKED: &str =
    "this database belongs to the parent of this forked process and is written there; open one in this process";

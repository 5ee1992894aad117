//! Records events that give names instead of ids, for callers that hold no ids.
//!
//! Threads, queues, streams, kernels, counters and tracks are defined at the first event that names
//! them. Each event takes a lock and looks its names up; [`ThreadRecorder`](super::ThreadRecorder)
//! avoids both.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::agent::Agent;
use super::definitions::{CodeObject, CounterDefinition, KernelSymbol};
use super::error::Error;
use super::event::{
    AgentId, CodeObjectId, CounterId, CounterValue, End, Kernel, KernelId, Links, MemoryCopy, QueueId, Region, Sample,
    StreamId, TrackId,
};
use super::flusher::Report;
use super::handle::{ThreadRecorder, Writer};
use super::process::Process;
use super::settings::Settings;

/// Kind of a [`NamedEvent`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NamedKind {
    /// Something that a CPU thread did.
    #[default]
    Region,
    /// A kernel that ran on an agent.
    Kernel,
    /// A copy from one agent to another.
    MemoryCopy,
    /// The value of a counter at `start_ns`.
    Counter,
    /// An instant event at `start_ns`.
    Sample,
}

/// An event with its names as texts. Fields that do not apply to its kind are ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NamedEvent<'a> {
    /// Kind.
    pub kind: NamedKind,
    /// Name of the region, kernel, copy, counter or sample.
    pub name: &'a str,
    /// Category; `None`: the usual one of the kind.
    pub category: Option<&'a str>,
    /// Thread that did, launched or requested it; `None`: the calling thread.
    pub thread: Option<i64>,
    /// Start, ns of CLOCK_BOOTTIME.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// Related events.
    pub links: Links,
    /// Agent of a kernel or counter, and source of a copy, as [`NamedWriter::agent`] returned it.
    pub agent: Option<u32>,
    /// Destination of a copy.
    pub destination: Option<u32>,
    /// Queue of a kernel; `None`: the default queue.
    pub queue: Option<&'a str>,
    /// Stream of a kernel or copy; `None`: the default stream.
    pub stream: Option<&'a str>,
    /// Size of a copy, bytes.
    pub bytes: i64,
    /// Value of a counter.
    pub value: f64,
}

/// A database being written, by names.
///
/// ```
/// use probe_sync_rocpd::writer::{Agent, NamedEvent, NamedKind, NamedWriter, Process, Settings};
///
/// let folder = tempfile::tempdir()?;
/// let settings = Settings { output: folder.path().join("results.db"), ..Settings::default() };
/// let writer = NamedWriter::open(settings, Process::current())?;
/// let gpu = writer.agent(Agent { name: "gfx942".into(), ..Agent::default() });
/// writer.record(&NamedEvent { name: "step", start_ns: 1_000, end_ns: 9_000, ..NamedEvent::default() })?;
/// let kernel = NamedEvent { kind: NamedKind::Kernel, name: "gemm", agent: Some(gpu), ..NamedEvent::default() };
/// writer.record(&NamedEvent { start_ns: 2_000, end_ns: 5_000, ..kernel })?;
/// assert_eq!(writer.finish()?.events, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct NamedWriter {
    writer: Writer,
    dispatches: AtomicI64,
    known: Mutex<Known>,
}

/// What has been defined.
#[derive(Debug, Default)]
struct Known {
    agents: Vec<AgentId>,
    threads: HashMap<i64, Arc<ThreadRecorder>>,
    queues: HashMap<String, QueueId>,
    streams: HashMap<String, StreamId>,
    code_objects: HashMap<u32, CodeObjectId>,
    kernels: HashMap<(u32, String), KernelId>,
    counters: HashMap<(Option<u32>, String), CounterId>,
    tracks: HashMap<(i64, String), TrackId>,
}

impl NamedWriter {
    /// Creates the file; see [`Writer::open`].
    ///
    /// # Errors
    /// Those of [`Writer::open`].
    pub fn open(settings: Settings, process: Process) -> Result<Self, Error> {
        let writer = Writer::open(settings, process)?;
        Ok(Self { writer, dispatches: AtomicI64::new(0), known: Mutex::default() })
    }

    /// The file being written.
    pub fn path(&self) -> &Path {
        self.writer.path()
    }

    /// Adds a device; returns its number for [`NamedEvent::agent`], counted from 1. In a forked child
    /// nothing is added, and it returns 0.
    pub fn agent(&self, agent: Agent) -> u32 {
        // The lock may be the parent's for ever.
        if self.writer.forked() {
            return 0;
        }
        let mut known = self.known();
        known.agents.push(self.writer.agent(agent));
        known.agents.len() as u32
    }

    /// Records an event. Returns false if it was dropped and counted.
    ///
    /// # Errors
    /// Returns an error if a kernel or copy names no agent, or an event names one that was not
    /// added.
    pub fn record(&self, event: &NamedEvent<'_>) -> Result<bool, Error> {
        if self.writer.forked() {
            return Ok(false);
        }
        let tid = event.thread.unwrap_or_else(|| i64::from(rustix::thread::gettid().as_raw_nonzero().get()));
        let known = &mut *self.known();
        if known.threads.len() >= THREADS_MAX && !known.threads.contains_key(&tid) {
            known.threads.clear();
        }
        let thread = || Arc::new(self.writer.thread(tid, None));
        let thread = Arc::clone(known.threads.entry(tid).or_insert_with(thread));
        let NamedEvent { kind, name, start_ns, end_ns, links, .. } = *event;
        let category = self.writer.intern(event.category.unwrap_or(kind.category()));
        match kind {
            NamedKind::Region => {
                let region = Region { start_ns, end_ns, category, links, ..Region::default() };
                Ok(thread.region(Region { name: self.writer.intern(name), ..region }))
            }
            NamedKind::Kernel => {
                let number = self.required(event, event.agent)?;
                let agent = self.agent_id(known, event, number)?;
                let kernel = Kernel::new(self.kernel(known, number, agent, name), agent);
                let queue = event.queue.map(|queue| named(&mut known.queues, queue, |queue| self.writer.queue(queue)));
                let dispatch_id = self.dispatches.fetch_add(1, Ordering::Relaxed) + 1;
                let stream = self.stream(known, event).unwrap_or_default();
                let queue = queue.unwrap_or_default();
                Ok(thread.kernel(Kernel { start_ns, end_ns, category, queue, stream, dispatch_id, links, ..kernel }))
            }
            NamedKind::MemoryCopy => {
                let end = |agent| {
                    let number = self.required(event, agent)?;
                    Ok(End { agent: self.agent_id(known, event, number)?, address: 0 })
                };
                let copy = MemoryCopy::new(end(event.agent)?, end(event.destination)?);
                let (name, size, stream) = (self.writer.intern(name), event.bytes, self.stream(known, event));
                Ok(thread.memory_copy(MemoryCopy { start_ns, end_ns, name, category, size, stream, links, ..copy }))
            }
            NamedKind::Counter => {
                let track = self.track(known, tid, &thread, name);
                let counter = self.counter(known, event)?;
                Ok(thread.counter(CounterValue { at_ns: start_ns, track, counter, category, value: event.value }))
            }
            NamedKind::Sample => {
                let track = self.track(known, tid, &thread, name);
                Ok(thread.sample(Sample { category, links, ..Sample::new(track, start_ns) }))
            }
        }
    }

    /// Commits everything recorded so far; see [`Writer::flush`].
    ///
    /// # Errors
    /// Those of [`Writer::flush`].
    pub fn flush(&self, timeout: Duration) -> Result<(), Error> {
        self.writer.flush(timeout)
    }

    /// Ends the file; see [`Writer::finish`].
    ///
    /// # Errors
    /// Those of [`Writer::finish`].
    pub fn finish(self) -> Result<Report, Error> {
        self.writer.finish()
    }

    /// Ends the file of a shared writer, as soon as the calls of other threads have returned.
    ///
    /// # Errors
    /// Those of [`Writer::finish`].
    pub fn finish_shared(mut shared: Arc<Self>) -> Result<Report, Error> {
        loop {
            match Arc::try_unwrap(shared) {
                Ok(writer) => return writer.finish(),
                // Bounded: a flush has a timeout, and nothing else takes long.
                Err(still) => shared = still,
            }
            std::thread::sleep(FINISH_POLL);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn required(&self, event: &NamedEvent<'_>, agent: Option<u32>) -> Result<u32, Error> {
        agent.ok_or_else(|| Error::Agent { path: self.path().to_owned(), event: event.name.to_owned(), agent: None })
    }

    fn agent_id(&self, known: &Known, event: &NamedEvent<'_>, number: u32) -> Result<AgentId, Error> {
        let unknown =
            || Error::Agent { path: self.path().to_owned(), event: event.name.to_owned(), agent: Some(number) };
        let place = (number as usize).checked_sub(1);
        place.and_then(|place| known.agents.get(place)).copied().ok_or_else(unknown)
    }

    fn stream(&self, known: &mut Known, event: &NamedEvent<'_>) -> Option<StreamId> {
        event.stream.map(|stream| named(&mut known.streams, stream, |stream| self.writer.stream(stream)))
    }

    fn kernel(&self, known: &mut Known, number: u32, agent: AgentId, name: &str) -> KernelId {
        let object = || self.writer.code_object(CodeObject { agent, uri: String::new() });
        let code_object = *known.code_objects.entry(number).or_insert_with(object);
        let symbol = KernelSymbol { code_object, kernel_name: name.to_owned(), display_name: name.to_owned() };
        *known.kernels.entry((number, name.to_owned())).or_insert_with(|| self.writer.kernel_symbol(symbol))
    }

    fn counter(&self, known: &mut Known, event: &NamedEvent<'_>) -> Result<CounterId, Error> {
        let agent = event.agent.map(|number| self.agent_id(known, event, number)).transpose()?;
        let (name, symbol) = (event.name.to_owned(), event.name.to_owned());
        let definition = CounterDefinition { agent, name, symbol, ..CounterDefinition::default() };
        let key = (event.agent, event.name.to_owned());
        Ok(*known.counters.entry(key).or_insert_with(|| self.writer.counter(definition)))
    }

    fn track(&self, known: &mut Known, tid: i64, thread: &ThreadRecorder, name: &str) -> TrackId {
        *known.tracks.entry((tid, name.to_owned())).or_insert_with(|| self.writer.track(name, thread))
    }
}

impl NamedKind {
    /// Returns the usual category.
    fn category(self) -> &'static str {
        match self {
            Self::Region | Self::Sample => "MARKER_RANGE",
            Self::Kernel => "KERNEL_DISPATCH",
            Self::MemoryCopy => "MEMORY_COPY",
            Self::Counter => "COUNTER_COLLECTION",
        }
    }
}

/// Returns the id of a name, which is defined at its first use.
fn named<Id: Copy>(known: &mut HashMap<String, Id>, name: &str, define: impl FnOnce(&str) -> Id) -> Id {
    match known.get(name) {
        Some(id) => *id,
        None => *known.entry(name.to_owned()).or_insert(define(name)),
    }
}

/// Most threads whose recorders are kept.
const THREADS_MAX: usize = 4096;
/// Time between two looks whether other threads still use a writer.
const FINISH_POLL: Duration = Duration::from_millis(1);

//! The handles that the program holds: the writer, and one recorder per thread.
//!
//! A call of a [`ThreadRecorder`] costs one copy of the event and never waits. Definitions
//! (`intern`, `thread`, `agent` …) take a short lock; they belong at the start of the program or at
//! the first use of a name. A forked child has no writer thread: there all events are dropped and
//! all ids are zero.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::agent::Agent;
use super::buffer::{Buffer, Put};
use super::definitions::{CodeObject, CounterDefinition, Definition, Definitions, KernelSymbol};
use super::error::Error;
use super::event::{
    AgentId, CodeObjectId, CounterId, CounterValue, Event, Kernel, KernelId, MemoryAllocation, MemoryCopy, QueueId,
    Region, Sample, StreamId, StringId, TrackId,
};
use super::file::{self, Made};
use super::flusher::{Flusher, Flushes, Report, Shared};
use super::pattern;
use super::process::Process;
use super::settings::Settings;

/// A database being written.
///
/// If it is dropped without [`Writer::finish`], for example by a panic, it ends the file as
/// `finish` does, and the report is lost.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    settings: Settings,
    /// `None` once it has been received; the lock only allows threads to share the writer.
    reports: Mutex<Option<Receiver<Report>>>,
}

impl Writer {
    /// Creates the file with all its tables, and starts the writer's thread.
    ///
    /// # Errors
    /// Returns an error if the name has an unknown key, the guid is invalid, a file of that name
    /// exists, or it cannot be created; a partly created file is removed.
    pub fn open(settings: Settings, process: Process) -> Result<Self, Error> {
        let path = pattern::expand(&settings.output, &process)?;
        process.check(&path)?;
        let Made { connection, path, journal } = file::make(path, settings.journal, &process)?;
        let shared = Arc::new(Shared {
            path: path.clone(),
            owner: std::process::id(),
            buffers: Mutex::default(),
            definitions: Mutex::new(Definitions::default()),
            dropped: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            open: AtomicU64::new(0),
            flushes: Flushes::default(),
            closing: AtomicBool::new(false),
            flusher: OnceLock::new(),
        });
        let (sender, reports) = mpsc::sync_channel(1);
        let (of_thread, own_settings) = (Arc::clone(&shared), settings.clone());
        let body = move || {
            // The statements were prepared on tables that were just made; without them there is no
            // report.
            let flusher = Flusher::new(of_thread, own_settings, &connection, &process, journal);
            let report = flusher.map(Flusher::run);
            // Before the report: whoever gets it may open the file.
            drop(connection);
            if let Ok(report) = report {
                // Whoever waited may have given up.
                let _ = sender.send(report);
            }
        };
        let spawned = std::thread::Builder::new().name("rocpd writer".to_owned()).spawn(body);
        let handle = spawned.map_err(|source| Error::Create { path, source })?;
        // Set once, here.
        let _ = shared.flusher.set(handle.thread().clone());
        Ok(Self { shared, settings, reports: Mutex::new(Some(reports)) })
    }

    /// The file being written.
    pub fn path(&self) -> &std::path::Path {
        &self.shared.path
    }

    /// Number of events dropped so far.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Acquire)
    }

    /// Returns the id of a string, the same for equal texts.
    pub fn intern(&self, text: &str) -> StringId {
        self.define(|definitions| definitions.string(text))
    }

    /// Creates a recorder for a thread of the program. Several threads may share one, at the cost
    /// of briefly waiting for each other.
    pub fn thread(&self, tid: i64, name: Option<&str>) -> ThreadRecorder {
        let id = self.define(|definitions| definitions.thread(tid, name));
        let buffer = Arc::new(Buffer::new(id, self.settings.buffer_events));
        if !self.forked() {
            self.shared.buffers().push(Arc::clone(&buffer));
        }
        ThreadRecorder { buffer, shared: Arc::clone(&self.shared) }
    }

    /// Sets when a thread began and ended.
    pub fn thread_span(&self, thread: &ThreadRecorder, span: [i64; 2]) {
        self.define(|definitions| definitions.new.push(Definition::ThreadSpan { id: thread.buffer.thread, span }));
    }

    /// Adds a device.
    pub fn agent(&self, agent: Agent) -> AgentId {
        self.define_new(AgentId, |id| Definition::Agent(id, agent))
    }

    /// Adds a hardware queue.
    pub fn queue(&self, name: &str) -> QueueId {
        self.define_new(QueueId, |id| Definition::Queue(id, name.to_owned()))
    }

    /// Adds a stream.
    pub fn stream(&self, name: &str) -> StreamId {
        self.define_new(StreamId, |id| Definition::Stream(id, name.to_owned()))
    }

    /// Adds a code object, which kernels are loaded from.
    pub fn code_object(&self, object: CodeObject) -> CodeObjectId {
        self.define_new(CodeObjectId, |id| Definition::CodeObject(id, object))
    }

    /// Adds the symbol of a kernel.
    pub fn kernel_symbol(&self, symbol: KernelSymbol) -> KernelId {
        self.define_new(KernelId, |id| Definition::Kernel(id, symbol))
    }

    /// Adds a counter.
    pub fn counter(&self, counter: CounterDefinition) -> CounterId {
        self.define_new(CounterId, |id| Definition::Counter(id, counter))
    }

    /// Adds a row for samples and counters, below a thread.
    pub fn track(&self, name: &str, thread: &ThreadRecorder) -> TrackId {
        TrackId(self.define(|definitions| definitions.track(name, thread.buffer.thread)))
    }

    /// Commits everything recorded so far, and waits until it is in the file.
    ///
    /// # Errors
    /// Returns an error if that takes longer than `timeout`, because the disk is full or does not
    /// respond, or in a forked child.
    pub fn flush(&self, timeout: Duration) -> Result<(), Error> {
        let path = self.shared.path.clone();
        if self.forked() {
            return Err(Error::Forked { path, owner: self.shared.owner });
        }
        let number = self.shared.flushes.request();
        self.shared.wake();
        if self.shared.flushes.wait(number, timeout) { Ok(()) } else { Err(self.stalled(timeout, 0)) }
    }

    /// Commits the remaining events, ends the file, and reports what happened to all events.
    ///
    /// Events recorded afterwards are dropped. If the disk is full it retries for
    /// [`Settings::finish_timeout`] and then returns the report with the losses; the file contains
    /// what was committed.
    ///
    /// # Errors
    /// Returns an error if the file system does not respond, or in a forked child.
    pub fn finish(mut self) -> Result<Report, Error> {
        self.end()
    }

    fn end(&mut self) -> Result<Report, Error> {
        let path = self.shared.path.clone();
        let reports = self.reports.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(reports) = reports else { return Err(Error::Ended { path }) };
        if self.forked() {
            return Err(Error::Forked { path, owner: self.shared.owner });
        }
        self.shared.closing.store(true, Ordering::Release);
        self.shared.wake();
        let waited = self.settings.finish_timeout + GRACE;
        reports.recv_timeout(waited).map_err(|why| match why {
            RecvTimeoutError::Disconnected => Error::Ended { path },
            RecvTimeoutError::Timeout => {
                // Its thread is in the file system and takes nothing; after this nothing comes in,
                // so the three numbers are all.
                let buffered: usize = self.shared.buffers().iter().map(|buffer| buffer.close()).sum();
                self.stalled(waited, buffered)
            }
        })
    }

    /// Returns the error of a file system that has not responded; `buffered` events are still in
    /// the buffers.
    fn stalled(&self, waited: Duration, buffered: usize) -> Error {
        Error::Stalled {
            path: self.shared.path.clone(),
            waited,
            committed: self.shared.committed.load(Ordering::Acquire),
            open: self.shared.open.load(Ordering::Acquire) + buffered as u64,
            dropped: self.dropped(),
        }
    }

    pub(super) fn forked(&self) -> bool {
        std::process::id() != self.shared.owner
    }

    fn define_new<Id: Copy>(&self, id: fn(u32) -> Id, definition: impl FnOnce(Id) -> Definition) -> Id {
        id(self.define(|definitions| {
            let number = definitions.next();
            definitions.new.push(definition(id(number)));
            number
        }))
    }

    fn define<T: Default>(&self, with: impl FnOnce(&mut Definitions) -> T) -> T {
        // In a child the lock may be held for ever by a thread that is not there.
        if self.forked() {
            return T::default();
        }
        with(&mut self.shared.definitions.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The report's reader is gone with it; a second end is refused at once.
        let _ = self.end();
    }
}

impl Shared {
    fn buffers(&self) -> MutexGuard<'_, Vec<Arc<Buffer>>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if let Some(flusher) = self.flusher.get() {
            flusher.unpark();
        }
    }
}

/// Records the events of one thread.
///
/// Every call returns at once. `false` means that the event was dropped and counted: the buffer is
/// full, or the writer has ended.
#[derive(Debug)]
pub struct ThreadRecorder {
    buffer: Arc<Buffer>,
    shared: Arc<Shared>,
}

impl ThreadRecorder {
    /// Records something the thread did.
    pub fn region(&self, region: Region) -> bool {
        self.put(Event::Region(region))
    }

    /// Records a kernel that it launched.
    pub fn kernel(&self, kernel: Kernel) -> bool {
        self.put(Event::Kernel(kernel))
    }

    /// Records a copy that it requested.
    pub fn memory_copy(&self, copy: MemoryCopy) -> bool {
        self.put(Event::MemoryCopy(copy))
    }

    /// Records memory that it allocated or freed.
    pub fn memory_allocation(&self, allocation: MemoryAllocation) -> bool {
        self.put(Event::MemoryAllocation(allocation))
    }

    /// Records the value of a counter.
    pub fn counter(&self, value: CounterValue) -> bool {
        self.put(Event::Counter(value))
    }

    /// Records an instant event.
    pub fn sample(&self, sample: Sample) -> bool {
        self.put(Event::Sample(sample))
    }

    /// Whether the next event would be dropped, for callers that can wait.
    pub fn is_full(&self) -> bool {
        self.buffer.full()
    }

    #[inline]
    fn put(&self, event: Event) -> bool {
        match self.buffer.put(event) {
            Put::Kept => true,
            Put::KeptHalfFull => {
                self.shared.wake();
                true
            }
            Put::Dropped => {
                self.shared.dropped.fetch_add(1, Ordering::AcqRel);
                false
            }
        }
    }
}

impl Drop for ThreadRecorder {
    fn drop(&mut self) {
        self.buffer.end();
    }
}

/// Extra time after the time limit of the writer's thread, before the file system is assumed to
/// hang.
const GRACE: Duration = Duration::from_secs(2);

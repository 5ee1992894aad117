//! The writer's thread, which takes events out of the buffers and commits them.
//!
//! Once the database is created, only this thread touches it. Rows that could not be committed are
//! kept and retried; meanwhile the buffers fill, and the program's events are dropped and counted.
//! The events in the file plus the dropped ones therefore always equal the recorded ones. An error
//! does not end the thread; it runs until it is asked to stop.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::buffer::{Buffer, HALVES};
use super::definitions::{Definition, Definitions};
use super::event::Event;
use super::file::{self, DROPPED_TAG};
use super::file_system::Journal;
use super::insert::Inserter;
use super::process::{Process, boottime_ns};
use super::settings::Settings;
use crate::schema::{self, quoted};

/// What happened to all recorded events.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The file.
    pub path: PathBuf,
    /// Events in the file.
    pub events: u64,
    /// Rows of these events.
    pub rows: u64,
    /// Events missing because the disk was full, too slow, or did not respond.
    pub dropped: u64,
    /// Committed transactions.
    pub commits: u64,
    /// Failed transactions, which were retried.
    pub failures: u64,
    /// Names beyond the limit, all replaced by one name.
    pub names_replaced: u64,
    /// The journal used during writing.
    pub journal: Journal,
    /// Whether the file is complete on its own. If not, `-wal` belongs to it.
    pub stands_alone: bool,
    /// The last problem, in words, if any.
    pub problem: Option<String>,
}

/// State shared by the threads of the program and the writer's thread.
#[derive(Debug)]
pub(super) struct Shared {
    pub path: PathBuf,
    pub owner: u32,
    pub buffers: Mutex<Vec<Arc<Buffer>>>,
    pub definitions: Mutex<Definitions>,
    pub dropped: AtomicU64,
    /// Events committed.
    pub committed: AtomicU64,
    /// Events taken out of the buffers and not committed.
    pub open: AtomicU64,
    pub flushes: Flushes,
    pub closing: AtomicBool,
    pub flusher: OnceLock<Thread>,
}

/// Requests to commit everything, numbered from 1.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    requested: AtomicU64,
    done: Mutex<u64>,
    changed: Condvar,
}

impl Flushes {
    /// Adds a request; returns its number.
    pub fn request(&self) -> u64 {
        self.requested.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Waits until a request is done; returns false if that takes too long.
    pub fn wait(&self, number: u64, timeout: Duration) -> bool {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(done, timeout, |done| *done < number);
        *waited.unwrap_or_else(PoisonError::into_inner).0 >= number
    }

    fn finish(&self, number: u64) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = number;
        self.changed.notify_all();
    }
}

/// The writer's thread.
pub(super) struct Flusher<'c> {
    shared: Arc<Shared>,
    settings: Settings,
    connection: &'c Connection,
    inserter: Inserter<'c>,
    metadata: String,
    process_row: String,
    pending: VecDeque<(i64, Event)>,
    pending_rows: usize,
    definitions: Vec<Definition>,
    spare: Vec<Event>,
    /// Interval at which the buffers are checked.
    poll: Duration,
    /// When the committed data was taken.
    last_flush: Instant,
    retry_at: Option<Instant>,
    /// The count stored in the file.
    dropped_in_file: u64,
    report: Report,
}

impl<'c> Flusher<'c> {
    pub fn new(
        shared: Arc<Shared>,
        settings: Settings,
        connection: &'c Connection,
        process: &Process,
        journal: Journal,
    ) -> rusqlite::Result<Self> {
        // A transaction of no row would never end.
        let settings = Settings { flush_rows: settings.flush_rows.max(1), ..settings };
        let suffix = schema::suffix_of(&process.guid);
        let report = Report {
            path: shared.path.clone(),
            events: 0,
            rows: 0,
            dropped: 0,
            commits: 0,
            failures: 0,
            names_replaced: 0,
            journal,
            stands_alone: false,
            problem: None,
        };
        Ok(Self {
            inserter: Inserter::new(connection, &suffix, process)?,
            metadata: quoted(&format!("rocpd_metadata{suffix}")),
            process_row: quoted(&format!("rocpd_info_process{suffix}")),
            shared,
            poll: (settings.flush_interval / 10).clamp(POLL_MIN, POLL_MAX),
            settings,
            connection,
            pending: VecDeque::new(),
            pending_rows: 0,
            definitions: Vec::new(),
            spare: Vec::new(),
            last_flush: Instant::now(),
            retry_at: None,
            dropped_in_file: 0,
            report,
        })
    }

    /// Runs until told to end.
    pub fn run(mut self) -> Report {
        let (poll, mut done) = (self.poll, 0);
        while !self.shared.closing.load(Ordering::Acquire) {
            // Before the events: what was recorded before the request is taken now.
            let requested = self.shared.flushes.requested.load(Ordering::Acquire);
            let is_requested = requested > done;
            // A request takes everything, however fast threads record: the buffers bound it.
            let is_all = self.take(false, is_requested && self.retry_at.is_none());
            if self.flush(is_requested) && is_requested && is_all {
                done = requested;
                self.shared.flushes.finish(done);
            }
            if self.pending_rows < self.settings.flush_rows {
                thread::park_timeout(poll);
            }
        }
        self.end()
    }

    /// Takes the events out of the buffers, unless there are enough and not all are wanted, and then
    /// what they refer to. Returns true if no buffer was left out.
    fn take(&mut self, close: bool, all: bool) -> bool {
        let mut is_all = true;
        let buffers = {
            let mut buffers = self.shared.buffers.lock().unwrap_or_else(PoisonError::into_inner);
            let now = buffers.clone();
            // Those that had ended before they were copied are emptied below for the last time.
            if self.room() || close || all {
                buffers.retain(|buffer| !buffer.has_ended());
            }
            now
        };
        for buffer in &buffers {
            for half in 0..HALVES {
                if !(self.room() || close || all || buffer.has_ended()) {
                    is_all = false;
                } else if buffer.take(half, &mut self.spare, close) {
                    self.pending_rows += self.spare.iter().map(Event::rows).sum::<usize>();
                    self.pending.extend(self.spare.drain(..).map(|event| (buffer.thread, event)));
                }
            }
        }
        self.shared.open.store(self.pending.len() as u64, Ordering::Release);
        // After the events: an event is recorded after what it refers to was defined.
        let mut definitions = self.shared.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        self.definitions.append(&mut definitions.new);
        self.report.names_replaced = definitions.replaced;
        is_all
    }

    /// Whether more may be taken: while nothing can be committed, the buffers are the limit.
    fn room(&self) -> bool {
        self.pending_rows < self.settings.flush_rows.saturating_mul(2)
    }

    /// Commits what is due. Returns false if that failed.
    fn flush(&mut self, all: bool) -> bool {
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        // Two looks early: one for the next, which is late by then, and one for the commit itself.
        let begin = Instant::now();
        let due = all || begin.duration_since(self.last_flush) + 2 * self.poll >= self.settings.flush_interval;
        while self.pending_rows >= self.settings.flush_rows || (due && self.anything()) {
            if let Err(error) = self.commit() {
                self.report.failures += 1;
                self.report.problem = Some(error.to_string());
                self.retry_at = Some(Instant::now() + RETRY);
                return false;
            }
            self.retry_at = None;
        }
        if due {
            self.last_flush = begin;
        }
        true
    }

    fn anything(&self) -> bool {
        let dropped = self.shared.dropped.load(Ordering::Acquire);
        !self.pending.is_empty() || !self.definitions.is_empty() || dropped != self.dropped_in_file
    }

    /// Runs one transaction: all definitions, events of `flush_rows` rows, and the number of
    /// dropped events.
    fn commit(&mut self) -> rusqlite::Result<()> {
        let mut events = 0;
        let mut rows = 0;
        while rows < self.settings.flush_rows && events < self.pending.len() {
            rows += self.pending[events].1.rows();
            events += 1;
        }
        let dropped = self.shared.dropped.load(Ordering::Acquire);
        let before = self.inserter.last_event();
        if let Err(error) = self.transaction(events, dropped) {
            self.inserter.go_back(before);
            if !self.connection.is_autocommit() {
                // If even this fails the next BEGIN does, and is tried again.
                let _ = self.connection.execute_batch("ROLLBACK");
            }
            return Err(error);
        }
        self.pending.drain(..events);
        self.pending_rows -= rows;
        self.definitions.clear();
        self.dropped_in_file = dropped;
        self.report.commits += 1;
        self.report.events += events as u64;
        self.report.rows += rows as u64;
        self.shared.committed.store(self.report.events, Ordering::Release);
        self.shared.open.store(self.pending.len() as u64, Ordering::Release);
        Ok(())
    }

    fn transaction(&mut self, events: usize, dropped: u64) -> rusqlite::Result<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        self.inserter.definitions(&self.definitions)?;
        self.inserter.events(self.pending.iter().take(events))?;
        if dropped != self.dropped_in_file {
            self.write_dropped(dropped)?;
        }
        self.connection.execute_batch("COMMIT")
    }

    fn write_dropped(&self, dropped: u64) -> rusqlite::Result<()> {
        let sql = format!("UPDATE {} SET value = ?1 WHERE tag = ?2", self.metadata);
        self.connection.execute(&sql, params![dropped.to_string(), DROPPED_TAG]).map(|_| ())
    }

    /// Commits everything, gives up what cannot be committed in time, and makes the file stand
    /// alone.
    fn end(mut self) -> Report {
        let deadline = Instant::now() + self.settings.finish_timeout;
        self.take(true, true);
        while !self.flush(true) && Instant::now() < deadline {
            thread::sleep(RETRY);
        }
        let given_up = self.pending.len() as u64;
        self.report.dropped = self.shared.dropped.fetch_add(given_up, Ordering::AcqRel) + given_up;
        self.pending.clear();
        self.shared.open.store(0, Ordering::Release);
        loop {
            match self.close() {
                Ok(()) => {
                    self.report.stands_alone = true;
                    break;
                }
                Err(error) => self.report.problem = Some(error.to_string()),
            }
            if Instant::now() >= deadline {
                break;
            }
            thread::sleep(RETRY);
        }
        self.report
    }

    /// Writes the end of the process and the final number of dropped events, and removes the log.
    fn close(&mut self) -> rusqlite::Result<()> {
        if self.dropped_in_file != self.report.dropped {
            self.write_dropped(self.report.dropped)?;
            self.dropped_in_file = self.report.dropped;
        }
        let sql = format!("UPDATE {} SET \"end\" = ?1, fini = ?1", self.process_row);
        self.connection.execute(&sql, [boottime_ns()])?;
        file::stand_alone(self.connection)
    }
}

/// Shortest and longest interval at which the buffers are checked.
const POLL_MIN: Duration = Duration::from_millis(1);
const POLL_MAX: Duration = Duration::from_millis(20);

/// How long to wait after a failed transaction.
const RETRY: Duration = Duration::from_millis(50);

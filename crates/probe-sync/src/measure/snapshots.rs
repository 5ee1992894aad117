//! Pairs of readings of the tracer clock and the system clock, taken throughout a run.
//!
//! One thread per node reads a pair at the start, every `snapshot_pair_period_ms` and at the end;
//! the crate `alignment` makes the node's map R → S from them. A pair is a tracer reading between
//! two system readings (`sys::tracer`): the error is at most half the bracket, which is kept. Under
//! `--inject-skew` the system time of a pair is the node's virtual clock, as for the packets'
//! stamps.
//!
//! Each pair goes at once to `snapshots/nodeN.snapshot_pairs.jsonl`, so that a killed run keeps
//! them, and into a bounded ring, which an orderly end writes as
//! `snapshots/nodeN.snapshot_pairs.pb`. When the ring is full the oldest pair leaves it
//! (`snapshots_dropped`); the JSON lines keep all.
//!
//! A reading of the tracer clock that fails, such as one of a profiler whose session has ended,
//! costs its pair and is counted (`snapshots_failed`); the first is said. Pairs go on: the next
//! reading may succeed. A reading that does not return is given up when the run ends, and said.
//!
//! Deadlines are fixed multiples of the period: a late pair does not move the later ones, and
//! periods that passed without a pair are counted (`snapshots_missed_deadline`), not made up for.
//!
//! It does not reject pairs: one whose bracket never fell below 5 µs is kept and counted
//! (`snapshots_wide`).

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant};

use probe_sync_files::OwnFolder;
use probe_sync_lines::SnapshotCounts;
use probe_sync_sys::tracer::SNAPSHOT_BRACKET;
use probe_sync_sys::{MonotonicClock, NARROW_BRACKET, SystemClock, TracerClock};
use probe_sync_time::{Clock, Duration, Monotonic, NodeId, SkewedClock, Timestamp};
use prost::Message;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::measure::counters::{Counter, Counts};
use crate::store::{Limits, RunDirectory, Stream, StreamState, pairs_file};
pub use crate::store::{SnapshotPair, SnapshotPairs};

/// The thread that takes snapshot pairs on one node. Dropping it ends the thread and keeps the JSON
/// lines.
pub(crate) struct Sampler {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<Result<Taken, Error>>>,
    /// The run's directory, and the name of the document in it.
    document: (OwnFolder, String),
    period: Duration,
    /// The tracer clock, and why it was chosen.
    clock: [String; 2],
    namespace_ns: i64,
    /// Counts of the thread so far.
    counts: Arc<Mutex<SnapshotCounts>>,
    /// Longest wait at the end for a reading in progress.
    end_limit: StdDuration,
}

/// Returns the counts as listed in a rank's account.
pub(crate) fn counts(of: SnapshotCounts) -> Counts {
    let SnapshotCounts { taken, failed, missed_deadline, dropped, wide } = of;
    vec![
        (Counter::SnapshotsTaken, taken),
        (Counter::SnapshotsFailed, failed),
        (Counter::SnapshotsMissedDeadline, missed_deadline),
        (Counter::SnapshotsDropped, dropped),
        (Counter::SnapshotsWide, wide),
    ]
}

impl Sampler {
    /// Starts taking pairs of `tracer` and the system clock as seen through `clock`; the files go
    /// to `snapshots/` of the run. With `same_clocks`, an earlier process of this rank has taken
    /// pairs of the same two clocks, and its file is continued.
    ///
    /// # Errors
    /// Returns an error if the files or the thread cannot be created.
    pub fn start(
        tracer: TracerClock,
        clock: SkewedClock,
        period: Duration,
        run: &RunDirectory,
        node: NodeId,
        same_clocks: bool,
    ) -> Result<Self, Error> {
        let name = pairs_file(node);
        let limits = Limits::default();
        let lines = if same_clocks { run.go_on_with(&name, limits) } else { run.stream(&name, limits, None::<&u8>) }?;
        let document = format!("snapshots/node{node}.snapshot_pairs.pb");
        run.vacate(&document)?;
        let (stop, stopped) = sync_channel(0);
        let name = [tracer.name(), tracer.reason()].map(str::to_owned);
        let namespace_ns = tracer.namespace_ns();
        let counts = Arc::default();
        let (ring, shared) = (VecDeque::new(), Arc::clone(&counts));
        let sampling =
            Sampling { tracer, namespace_ns, clock, period, lines, ring, counts: SnapshotCounts::default(), shared };
        let thread = std::thread::Builder::new()
            .name("snapshots".into())
            .spawn(move || sampling.run(&mut Waiting(&stopped)))
            .map_err(|error| Error::SnapshotThread { reason: format!("cannot start: {error}") })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
            document: (run.folder().clone(), document),
            period,
            clock: name,
            namespace_ns,
            counts,
            end_limit: END_LIMIT,
        })
    }

    /// Returns the counts of pairs so far.
    pub fn counts(&self) -> SnapshotCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the folder of the file of lines.
    pub fn folder(&self) -> &OwnFolder {
        &self.document.0
    }

    /// Takes the last pair, ends the thread and writes the protobuf file; also returns the state of
    /// the file of lines. A document that cannot be written is logged but does not fail the run,
    /// because its pairs are in the lines.
    ///
    /// # Errors
    /// Returns the error that ended the thread early.
    pub fn finish(mut self) -> Result<(SnapshotCounts, StreamState), Error> {
        let taken = self.end().unwrap_or_else(|| Err(Error::SnapshotThread { reason: "ended before".into() }))?;
        let pairs = taken.ring.into_iter().collect();
        let [tracer_clock, tracer_clock_reason] = self.clock.clone();
        let document = SnapshotPairs {
            pairs,
            sampling_period_ns: self.period.as_ns(),
            tracer_clock,
            tracer_clock_reason,
            namespace_ns: self.namespace_ns,
            node_id: None,
        };
        let (folder, name) = &self.document;
        if let Err(error) = folder.write_whole(name, &document.encode_to_vec()) {
            tracing::error!("cannot write {}: {error}", folder.path_of(name).display());
        }
        Ok((taken.counts, taken.lines))
    }

    fn end(&mut self) -> Option<Result<Taken, Error>> {
        drop(self.stop.take());
        let thread = self.thread.take()?;
        let deadline = Instant::now() + self.end_limit;
        while !thread.is_finished() {
            if Instant::now() >= deadline {
                // Whoever waited for it would wait for ever. It ends, without harm, when the
                // reading returns.
                let (clock, waited) = (&self.clock[0], self.end_limit);
                let reason = format!(
                    "the tracer clock {clock} has not responded for {waited:?}; its pairs are in the JSON lines"
                );
                return Some(Err(Error::SnapshotThread { reason }));
            }
            std::thread::sleep(END_POLL);
        }
        let panicked = || Error::SnapshotThread { reason: "panicked; its message is on standard error".into() };
        Some(thread.join().unwrap_or_else(|_| Err(panicked())))
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // The run has failed already, or finish() has told what there is to tell.
        let _ = self.end();
    }
}

/// Parses the pairs in the bytes of a protobuf file.
///
/// # Errors
/// Returns an error if the bytes are not a `SnapshotPairs` message.
pub fn read(bytes: &[u8]) -> Result<SnapshotPairs, prost::DecodeError> {
    SnapshotPairs::decode(bytes)
}

/// A line of `nodeN.snapshot_pairs.jsonl`, self-contained so that any part of a file can be read.
#[derive(Serialize, Deserialize)]
pub(crate) struct PairLine<'a> {
    pub sys_clock_ns: i64,
    pub tracer_clock_ns: i64,
    pub bracket_ns: i64,
    pub sampling_period_ns: i64,
    pub tracer_clock: Cow<'a, str>,
    /// Why that clock was chosen; in the first line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracer_clock_reason: Option<Cow<'a, str>>,
    /// Offset of the time namespace in the tracer clock, ns, if not zero.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub namespace_ns: i64,
    /// For a counter: ns per tick used for the conversion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ns_per_tick: Option<f64>,
}

/// Results of the thread.
struct Taken {
    ring: VecDeque<SnapshotPair>,
    counts: SnapshotCounts,
    lines: StreamState,
}

/// How time passes for the thread.
trait Pace {
    fn now(&mut self) -> Timestamp<Monotonic>;

    /// Waits; returns true as soon as the sampler is stopped.
    fn stopped_within(&mut self, wait: StdDuration) -> bool;
}

/// Real time. The sampler is stopped when the sender is dropped.
struct Waiting<'a>(&'a Receiver<()>);

impl Pace for Waiting<'_> {
    fn now(&mut self) -> Timestamp<Monotonic> {
        MonotonicClock.now()
    }

    fn stopped_within(&mut self, wait: StdDuration) -> bool {
        !matches!(self.0.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
    }
}

/// State of the thread.
struct Sampling {
    tracer: TracerClock,
    namespace_ns: i64,
    clock: SkewedClock,
    period: Duration,
    lines: Stream,
    ring: VecDeque<SnapshotPair>,
    counts: SnapshotCounts,
    /// Counts shared with the node.
    shared: Arc<Mutex<SnapshotCounts>>,
}

impl Sampling {
    /// Takes pairs until the sampler is stopped.
    fn run(mut self, pace: &mut impl Pace) -> Result<Taken, Error> {
        let mut due = pace.now();
        loop {
            self.take()?;
            let (next, missed) = next_deadline(due, pace.now(), self.period);
            self.counts.missed_deadline += missed;
            *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = self.counts;
            due = next;
            let left = (due - pace.now()).as_ns().max(0).unsigned_abs();
            if pace.stopped_within(StdDuration::from_nanos(left)) {
                break;
            }
        }
        // The last pair, so that no event of the run lies beyond the pairs.
        self.take()?;
        Ok(Taken { ring: self.ring, counts: self.counts, lines: self.lines.state().clone() })
    }

    fn take(&mut self) -> Result<(), Error> {
        // Aims lower than it must: a bracket of a few µs is what a first read after a sleep costs,
        // not what is possible.
        let pair = match self.tracer.read_pair(&SystemClock, NARROW_BRACKET) {
            Ok(pair) => pair,
            Err(error) => {
                if self.counts.failed == 0 {
                    tracing::warn!("no snapshot pair: {error}; further failures are counted as snapshots_failed");
                }
                self.counts.failed += 1;
                return Ok(());
            }
        };
        let pair_on_node = SnapshotPair {
            sys_clock_ns: self.clock.apply(pair.system).as_ns(),
            tracer_clock_ns: pair.tracer.as_ns(),
            bracket_ns: pair.bracket.as_ns(),
        };
        self.lines.append(&PairLine {
            sys_clock_ns: pair_on_node.sys_clock_ns,
            tracer_clock_ns: pair_on_node.tracer_clock_ns,
            bracket_ns: pair_on_node.bracket_ns,
            sampling_period_ns: self.period.as_ns(),
            tracer_clock: self.tracer.name().into(),
            tracer_clock_reason: (self.counts.taken == 0).then(|| self.tracer.reason().into()),
            namespace_ns: self.namespace_ns,
            ns_per_tick: self.tracer.ns_per_tick(),
        });
        self.lines.end_round();
        self.counts.taken += 1;
        self.counts.wide += u64::from(pair.bracket >= SNAPSHOT_BRACKET);
        self.counts.dropped += u64::from(push_bounded(&mut self.ring, pair_on_node, RING));
        Ok(())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// Returns the first deadline after `due` that lies ahead of `now`, and the number of deadlines
/// skipped.
fn next_deadline(
    due: Timestamp<Monotonic>,
    now: Timestamp<Monotonic>,
    period: Duration,
) -> (Timestamp<Monotonic>, u64) {
    let missed = ((now - due).as_ns().max(0) / period.as_ns().max(1)).unsigned_abs();
    let periods = i64::try_from(missed).unwrap_or(i64::MAX).saturating_add(1);
    (due + Duration::from_ns(period.as_ns().saturating_mul(periods)), missed)
}

/// Appends an item; returns true if the oldest had to be removed.
fn push_bounded<T>(ring: &mut VecDeque<T>, item: T, limit: usize) -> bool {
    let full = ring.len() >= limit;
    if full {
        ring.pop_front();
    }
    ring.push_back(item);
    full
}

/// Most pairs kept for the protobuf file: twelve days at the default period, 6 MB.
const RING: usize = 1 << 18;
/// Longest wait for a reading of the tracer clock in progress at the end of the run.
const END_LIMIT: StdDuration = StdDuration::from_secs(5);
/// Interval of checks whether the thread has ended.
const END_POLL: StdDuration = StdDuration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use probe_sync_sys::TracerClockName;

    use super::*;

    fn check_deadline(due: i64, now: i64, expected: (i64, u64)) {
        let (next, missed) = next_deadline(Timestamp::from_ns(due), Timestamp::from_ns(now), Duration::from_ns(10));
        assert_eq!((next.as_ns(), missed), expected, "due {due}, now {now}");
    }

    #[test]
    fn a_late_pair_moves_no_deadline_and_passed_ones_are_counted() {
        check_deadline(100, 100, (110, 0));
        check_deadline(100, 109, (110, 0));
        check_deadline(100, 110, (120, 1));
        check_deadline(100, 139, (140, 3));
        // Woken early.
        check_deadline(100, 97, (110, 0));
    }

    #[test]
    fn a_full_ring_gives_up_its_oldest() {
        let mut ring = VecDeque::new();
        let dropped: Vec<bool> = (0..5).map(|item| push_bounded(&mut ring, item, 3)).collect();
        assert_eq!(dropped, [false, false, false, true, true]);
        assert_eq!(ring, [2, 3, 4]);
    }

    /// Time that passes only while the sampler waits, and `late` more after each wait. The sampler
    /// is stopped at `end`.
    struct Simulated {
        now_ns: Arc<AtomicU64>,
        end: StdDuration,
        late: StdDuration,
    }

    impl Pace for Simulated {
        fn now(&mut self) -> Timestamp<Monotonic> {
            Timestamp::from_ns(self.now_ns.load(Ordering::SeqCst) as i64)
        }

        fn stopped_within(&mut self, wait: StdDuration) -> bool {
            let now = StdDuration::from_nanos(self.now_ns.load(Ordering::SeqCst));
            let stopped = self.end < now + wait + self.late;
            let then = if stopped { self.end } else { now + wait + self.late };
            self.now_ns.store(then.as_nanos() as u64, Ordering::SeqCst);
            stopped
        }
    }

    /// Takes pairs for so long and returns when they were taken, ms, as the tracer's clock shows it.
    fn taken_ms(period: Duration, end: StdDuration, late: StdDuration) -> (Vec<i64>, SnapshotCounts) {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let run = RunDirectory::join(folder.path()).expect("a writable directory");
        let now_ns = Arc::new(AtomicU64::new(0));
        let shown = Arc::clone(&now_ns);
        let tracer = TracerClock::of_callback("simulated", move || Ok(shown.load(Ordering::SeqCst) as i64));
        let sampling = Sampling {
            tracer: tracer.expect("always readable"),
            namespace_ns: 0,
            clock: SkewedClock::default(),
            period,
            lines: run.stream(&pairs_file(NodeId(3)), Limits::default(), None::<&u8>).expect("a writable directory"),
            ring: VecDeque::new(),
            counts: SnapshotCounts::default(),
            shared: Arc::default(),
        };
        let taken = sampling.run(&mut Simulated { now_ns, end, late }).expect("no error");
        let kept: Vec<i64> = taken.ring.iter().map(|pair| pair.tracer_clock_ns).collect();
        let written: Vec<_> = lines(folder.path()).iter().map(|line| line["tracer_clock_ns"].as_i64()).collect();
        assert_eq!(written, kept.iter().copied().map(Some).collect::<Vec<_>>());
        (kept.iter().map(|ns| ns / 1_000_000).collect(), taken.counts)
    }

    #[test]
    fn pairs_are_taken_at_the_start_every_period_and_at_the_end() {
        let (s, ms) = (StdDuration::from_secs, StdDuration::from_millis);
        let check = |period, late, expected: &[i64], missed| {
            let (taken, counts) = taken_ms(period, s(14), late);
            assert_eq!((taken.as_slice(), counts.missed_deadline), (expected, missed), "{period:?}, {late:?} late");
        };
        let default = crate::Config::default().snapshot_pair_period;
        check(default, ms(0), &[0, 4000, 8000, 12_000, 14_000], 0);
        // A late wake-up does not shift the later deadlines.
        check(default, ms(300), &[0, 4300, 8300, 12_300, 14_000], 0);
        check(default, ms(4100), &[0, 8100, 14_000], 1);
        check(Duration::from_ms(6000), ms(0), &[0, 6000, 12_000, 14_000], 0);
    }

    fn sampler(run: &Path, clock: SkewedClock) -> Sampler {
        sampler_of(TracerClock::open(TracerClockName::Boottime).expect("every Linux has it"), run, clock)
    }

    fn sampler_of(tracer: TracerClock, run: &Path, clock: SkewedClock) -> Sampler {
        let run = RunDirectory::join(run).expect("a writable directory");
        Sampler::start(tracer, clock, Duration::from_ms(1), &run, NodeId(3), false).expect("a writable directory")
    }

    fn lines(run: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(run.join("snapshots/node3.snapshot_pairs.jsonl")).expect("written live");
        text.lines().map(|line| serde_json::from_str(line).expect("whole lines")).collect()
    }

    #[test]
    fn both_files_hold_the_same_pairs_of_the_virtual_clock() {
        let run = tempfile::tempdir().expect("a temporary directory");
        let ahead_ns = 3_600_000_000_000;
        let clock = SkewedClock { off_ns: ahead_ns, ..SkewedClock::default() };
        let before = SystemClock.now().as_ns();
        let sampler = sampler(run.path(), clock);
        // The first pair does not wait for a period; a second one shows that the thread goes on.
        while lines(run.path()).len() < 2 {
            std::thread::sleep(StdDuration::from_millis(1));
        }
        let (counts, _) = sampler.finish().expect("no error");
        let lines = lines(run.path());
        let bytes = std::fs::read(run.path().join("snapshots/node3.snapshot_pairs.pb")).expect("written at the end");
        let document = read(&bytes).expect("our own bytes");
        assert_eq!((document.sampling_period_ns, document.tracer_clock.as_str()), (1_000_000, "boottime"));
        assert_eq!((counts.taken as usize, counts.dropped), (lines.len(), 0));
        assert_eq!(document.pairs.len(), lines.len());
        assert_eq!(document.tracer_clock_reason, "set in the configuration");
        assert_eq!(lines[0]["tracer_clock_reason"], "set in the configuration");
        assert_eq!(lines[1].get("tracer_clock_reason"), None);
        for (pair, line) in document.pairs.iter().zip(&lines) {
            assert_eq!(line["sys_clock_ns"], pair.sys_clock_ns);
            assert_eq!(line["tracer_clock_ns"], pair.tracer_clock_ns);
            assert_eq!(line["bracket_ns"], pair.bracket_ns);
            assert_eq!(line["tracer_clock"], "boottime");
            assert_eq!(line.get("ns_per_tick"), None);
            assert!(pair.sys_clock_ns >= before + ahead_ns, "the virtual clock is an hour ahead");
        }
        assert!(document.pairs.is_sorted_by_key(|pair| pair.tracer_clock_ns));
    }

    #[test]
    fn readings_that_fail_are_counted_and_pairs_go_on() {
        let run = tempfile::tempdir().expect("a temporary directory");
        let (ended, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (session_ended, refusals) = (Arc::clone(&ended), Arc::clone(&refused));
        let tracer = TracerClock::of_callback("flaky", move || {
            if session_ended.load(Ordering::SeqCst) {
                refusals.fetch_add(1, Ordering::SeqCst);
                return Err("no session".into());
            }
            Ok(1)
        });
        let sampler = sampler_of(tracer.expect("the first reading succeeds"), run.path(), SkewedClock::default());
        let until = |done: &dyn Fn() -> bool| {
            while !done() {
                std::thread::sleep(StdDuration::from_millis(1));
            }
        };
        until(&|| lines(run.path()).len() >= 2);
        ended.store(true, Ordering::SeqCst);
        // One of them may have fallen on a pair that was complete without it.
        until(&|| refused.load(Ordering::SeqCst) >= 3);
        ended.store(false, Ordering::SeqCst);
        let before = lines(run.path()).len();
        until(&|| lines(run.path()).len() > before);
        let (counts, _) = sampler.finish().expect("failing readings end nothing");
        let lines = lines(run.path());
        assert_eq!(counts.taken as usize, lines.len());
        assert!(counts.failed >= 2, "{counts:?}");
        assert!(lines.iter().all(|line| line["tracer_clock"] == "flaky"), "{lines:?}");
        assert_eq!(lines[0]["tracer_clock_reason"], "provided by the caller");
    }

    #[test]
    fn a_reading_that_never_returns_does_not_keep_the_run_from_ending() {
        let run = tempfile::tempdir().expect("a temporary directory");
        let (stuck, calls) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
        let (held, counted) = (Arc::clone(&stuck), Arc::clone(&calls));
        let tracer = TracerClock::of_callback("stuck", move || {
            let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
            while !first && held.load(Ordering::SeqCst) {
                std::thread::sleep(StdDuration::from_millis(1));
            }
            Ok(1)
        });
        let mut sampler = sampler_of(tracer.expect("the first reading returns"), run.path(), SkewedClock::default());
        sampler.end_limit = StdDuration::from_millis(50);
        while calls.load(Ordering::SeqCst) < 2 {
            std::thread::sleep(StdDuration::from_millis(1));
        }
        let error = sampler.finish().expect_err("stuck").to_string();
        assert!(error.contains("the tracer clock stuck has not responded for 50ms"), "{error}");
        stuck.store(false, Ordering::SeqCst);
    }

    #[test]
    fn a_dropped_sampler_ends_its_thread_and_leaves_the_lines() {
        let run = tempfile::tempdir().expect("a temporary directory");
        drop(sampler(run.path(), SkewedClock::default()));
        // The thread has ended: it has taken its first and its last pair, and no further one comes.
        let taken = lines(run.path()).len();
        assert!(taken >= 2);
        std::thread::sleep(StdDuration::from_millis(5));
        assert_eq!(lines(run.path()).len(), taken);
        assert!(!run.path().join("snapshots/node3.snapshot_pairs.pb").exists());
    }

    #[test]
    fn field_numbers_are_those_of_the_format() {
        let pair = SnapshotPair { sys_clock_ns: 5, tracer_clock_ns: 300, bracket_ns: 0 };
        let document = SnapshotPairs {
            pairs: vec![pair],
            sampling_period_ns: 7,
            tracer_clock: "tsc".into(),
            tracer_clock_reason: "?".into(),
            namespace_ns: 3,
            node_id: None,
        };
        // 1: a message of 5 bytes {1: 5, 2: 300}; 2: 7; 3: a text of 3 bytes; 4: one of 1; 5: 3.
        let expected = [0x0a, 5, 0x08, 5, 0x10, 0xac, 0x02, 0x10, 7, 0x1a, 3, b't', b's', b'c', 0x22, 1, b'?', 0x28, 3];
        assert_eq!(document.encode_to_vec(), expected);
    }
}

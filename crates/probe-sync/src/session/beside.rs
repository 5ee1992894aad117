//! A background session as seen by the training loop.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant};

use probe_sync_collective::FileSender;
use probe_sync_files::OwnFolder;
use probe_sync_lines::{MARKS_FOLDER, Round, marks_file};
use probe_sync_record::observe::Observing;
use probe_sync_time::RunId;

use super::by_launcher::{self, Steps};
use super::driver::State;
use super::files::FilesToRoot;
use super::hang::HANG_FOLDER;
use super::reach::Floors;
use crate::Error;
use crate::clock::GlobalClock;
use crate::late::{Arrivals, HangRequests, LateView};
use crate::report::{RunReport, SIGMAS_95};
use crate::round::request::{Request, Requests, Ticket};
use crate::store::{MarkWriter, MarkedProcess};

/// A session that measures on a thread of its own. Dropping it asks the run to end, as
/// [`Session::stop`] does, without waiting.
#[derive(Debug)]
pub struct Session {
    /// Process of the thread; forked processes do not have it.
    pub(super) process: u32,
    /// The run's directory.
    pub(super) out: PathBuf,
    pub(super) clock: GlobalClock,
    pub(super) shared: Arc<Shared>,
    pub(super) flags: Flags,
    pub(super) sender: Option<FileSender>,
    pub(super) thread: Option<JoinHandle<Result<Option<RunReport>, Error>>>,
    /// Messages that the launcher's thread has to move.
    pub(super) steps: Option<Steps>,
    /// The recorder's collective scopes as arrivals, if requested.
    pub(super) collectives: Mutex<Option<Observing>>,
}

/// Flags and requests of the session's owner.
#[derive(Clone, Debug, Default)]
pub(super) struct Flags {
    pub stop: Arc<AtomicBool>,
    pub pause: Arc<AtomicBool>,
    pub requests: Requests,
    pub arrivals: Arrivals,
    pub late: LateView,
    pub hang: HangRequests,
    /// Raised while the owner waits for the end.
    pub awaited: Arc<AtomicBool>,
}

/// State of a session on a thread of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// The ranks are meeting.
    #[default]
    Meeting,
    /// The session is measuring.
    Measuring(State),
    /// The session has ended normally.
    Ended,
    /// The session has failed, with this message.
    Failed(String),
}

/// State shared by the thread and the session's owner.
#[derive(Debug, Default)]
pub(super) struct Shared {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    pub progress: Progress,
    /// Rank and node of the process, once known.
    pub process: Option<MarkedProcess>,
    pub run: Option<RunId>,
    /// Files of this rank that alignment reads, relative to the run's directory.
    pub records: Vec<String>,
    pub latest: Option<Arc<Round>>,
    pub floors: Floors,
}

impl Seen {
    /// Records a newly solved round.
    pub fn observe(&mut self, latest: Option<Arc<Round>>) {
        let is_new = self.latest.as_ref().map(|round| round.round_id) != latest.as_ref().map(|round| round.round_id);
        self.latest = latest;
        if is_new && let (Some(round), Some(process)) = (&self.latest, &self.process) {
            self.floors.observe(round.node(process.node));
        }
    }
}

impl Session {
    /// Returns the state of the session.
    pub fn progress(&self) -> Progress {
        if let Err(error) = self.in_own_process() {
            return Progress::Failed(error.to_string());
        }
        self.shared.see().progress.clone()
    }

    /// Creates a file for marks of this process in the run's directory. The marks tie the process's
    /// own trace to the node's clock and prove which node wrote it. Waits until the ranks have met,
    /// at most for `limit`.
    ///
    /// # Errors
    /// Returns an error if the session has failed, the time is over, or the file cannot be created.
    pub fn marks(&self, limit: StdDuration) -> Result<MarkWriter, Error> {
        let process = self.wait("the meeting of the ranks", limit, |seen| seen.process.clone())?;
        let marks = MarkWriter::create(&self.out, &process)?;
        let name = format!("{MARKS_FOLDER}/{}", marks_file(process.rank, marks.token()));
        self.shared.tell(|seen| seen.records.push(name));
        Ok(marks)
    }

    /// Returns a handle to send this rank's files to rank 0, with the marks begun so far. Waits
    /// until the ranks have met, at most for `limit`.
    ///
    /// # Errors
    /// Returns an error if the session has failed, or the time is over.
    pub fn files_to_root(&self, limit: StdDuration) -> Result<FilesToRoot, Error> {
        let (run, records) =
            self.wait("the meeting of the ranks", limit, |seen| seen.run.zip(Some(seen.records.clone())))?;
        let (sender, out, stop) = (self.sender.clone(), self.out.clone(), Arc::clone(&self.flags.stop));
        Ok(FilesToRoot { sender, out, run, records, stop })
    }

    /// Returns the reference time for all threads of this process and for its children; it remains
    /// usable after the session has ended.
    pub fn clock(&self) -> GlobalClock {
        self.clock.clone()
    }

    /// Returns the last solved round.
    pub fn round(&self) -> Option<Arc<Round>> {
        self.in_own_process().ok()?;
        self.shared.see().latest.clone()
    }

    /// Waits for a round later than `seen` (`None`: for any), at most for `limit`. Returns `None`
    /// if the session has ended.
    ///
    /// # Errors
    /// Returns an error if the session has failed, or the time is over.
    pub fn next_round(&self, seen: Option<&Round>, limit: StdDuration) -> Result<Option<Arc<Round>>, Error> {
        let known = seen.map(|round| round.round_id);
        let later = |round: &Arc<Round>| known.is_none_or(|known| round.round_id > known);
        self.wait("the next round", limit, |seen| match (&seen.progress, seen.latest.clone().filter(later)) {
            (_, Some(round)) => Some(Some(round)),
            (Progress::Ended, None) => Some(None),
            _ => None,
        })
    }

    /// Waits until this node's offset is known to within ± `half_width_ns` in 95 %, at most for
    /// `limit`, and returns the round that shows it.
    ///
    /// # Errors
    /// [`Error::BoundUnreachable`] within some rounds if path and host asymmetry alone exceed it;
    /// otherwise an error if the session has ended or failed, or the time is over.
    pub fn wait_until_bound(&self, half_width_ns: u32, limit: StdDuration) -> Result<Arc<Round>, Error> {
        let within = |seen: &Seen| {
            let (round, node) = (seen.latest.as_ref()?, seen.process.as_ref()?.node);
            let own = round.node(node).filter(|own| own.reachable)?;
            (own.sigma_ns * SIGMAS_95 <= f64::from(half_width_ns)).then(|| Arc::clone(round))
        };
        self.wait("the requested bound", limit, |seen| match (within(seen), &seen.progress) {
            (Some(round), _) => Some(Ok(round)),
            (None, Progress::Ended) => Some(Err(Error::SessionThread { reason: "the session has ended".into() })),
            _ => seen.floors.beyond(f64::from(half_width_ns)).map(|reachable_ns| {
                let reachable_ns = reachable_ns.ceil();
                Err(Error::BoundUnreachable { half_width_ns, reachable_ns })
            }),
        })?
    }

    /// Returns true if [`Self::step`] must be called: the session uses the launcher's messages, and
    /// not every thread may move them.
    pub fn needs_step(&self) -> bool {
        self.steps.is_some()
    }

    /// Moves the session's messages: those that can be moved now, for at most `budget` plus one
    /// message. It never waits for another rank, and calls the launcher's library only if something
    /// is to be sent or is expected. A round needs about three steps of every rank: its window goes
    /// to rank 0, is solved there, and the result comes back; measuring continues meanwhile. A rank
    /// that does not call it within `round_timeout` plus a window and a half ends the session of
    /// all ranks, with an error that names it. [`Self::stop`] also moves messages, and so do waits
    /// and the drop on the thread that provided the messages.
    ///
    /// # Errors
    /// Returns the error with which the session failed; [`Error::SessionThread`] if it needs no
    /// steps, [`Error::Collective`] on a thread that may not call the library.
    pub fn step(&self, budget: StdDuration) -> Result<(), Error> {
        self.in_own_process()?;
        let Some(steps) = &self.steps else { return Err(Error::SessionThread { reason: NO_STEPS.into() }) };
        let moved = steps.step(budget);
        match self.progress() {
            Progress::Failed(reason) => {
                // What the others are told of it may have been said since the messages were moved,
                // and the launcher may step no more.
                let _ = steps.step(budget);
                Err(Error::SessionThread { reason })
            }
            _ => moved,
        }
    }

    /// Makes a request to the run, from any rank's owner: to pause all nodes, to name a phase, to
    /// end the current window ([`Request`]). Rank 0 processes it; the [`Ticket`](crate::Ticket)
    /// returns the round from which it applies.
    ///
    /// # Errors
    /// [`Error::Request`] if rounds have no master, or the session has ended.
    pub fn ask(&self, request: Request) -> Result<Ticket, Error> {
        self.in_own_process()?;
        self.flags.requests.ask(request)
    }

    /// Records that this rank arrives now at operation `step` of `group`, like
    /// [`Arrivals::arrive`].
    #[inline]
    pub fn arrive(&self, group: &str, step: u64) {
        self.flags.arrivals.arrive(group, step);
    }

    /// Records an arrival whenever a collective scope of the recorder begins (`collective!` of
    /// `probe_sync_record`) in which all members wait: all-reduce, all-gather, reduce-scatter,
    /// all-to-all, barrier. Group and step are the scope's `group` and `sequence`; scopes without
    /// them are ignored. No recording is needed. Ends with the session.
    ///
    /// # Errors
    /// [`Error::Observer`] if the process has too many observers.
    pub fn observe_collectives(&self) -> Result<(), Error> {
        self.in_own_process()?;
        let mut observing = self.collectives.lock().unwrap_or_else(PoisonError::into_inner);
        if observing.is_none() {
            *observing = Some(self.flags.arrivals.observe_collectives().map_err(Error::Observer)?);
        }
        Ok(())
    }

    /// Returns a handle to record arrivals on threads that do not have this handle.
    pub fn arrivals(&self) -> Arrivals {
        self.flags.arrivals.clone()
    }

    /// Returns a view of the late ranks and of those that others wait for, on every rank; it
    /// remains usable after the session has ended.
    pub fn late(&self) -> LateView {
        self.flags.late.clone()
    }

    /// Returns the number of a request for evidence of a hang (`probe_sync hang --live`) that this
    /// program has not answered. From the first call on, the session tells rank 0 that the program
    /// answers, so that a program which does not is evidence.
    pub fn hang_requested(&self) -> Option<u64> {
        self.in_own_process().ok()?;
        self.flags.hang.requested()
    }

    /// Tells rank 0 that this program answers no more requests for evidence of a hang.
    pub fn withdraw_from_hang(&self) {
        if self.in_own_process().is_ok() {
            self.flags.hang.withdraw();
        }
    }

    /// Answers a request with files, which rank 0 gets: a Flight Recorder dump `rank_R` and stacks
    /// `rank_R.stack`, as `probe_sync hang` reads them.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written, or has not reached rank 0 within `limit`.
    pub fn answer_hang(&self, number: u64, files: &[(&str, &[u8])], limit: StdDuration) -> Result<(), Error> {
        self.in_own_process()?;
        let until = Instant::now() + limit.min(LONGEST_WAIT);
        let way = self.files_to_root(limit)?;
        for (name, content) in files {
            let place = format!("{HANG_FOLDER}/{number}/{name}");
            let path = self.out.join(&place);
            OwnFolder::open(&self.out)
                .and_then(|out| out.make_folder(HANG_FOLDER))
                .and_then(|folder| folder.make_folder(number.to_string()))
                .and_then(|folder| folder.write_whole(name, content))
                .map_err(Error::file(&path, "write"))?;
            if !way.sees_root() {
                way.send(&path, &place, until.saturating_duration_since(Instant::now()))?;
            }
        }
        self.flags.hang.answered(number);
        Ok(())
    }

    /// Stops starting exchanges on this rank from the next round on. It still answers those of the
    /// others, and rounds continue; if all ranks pause, nothing is measured, and bounds grow.
    pub fn pause(&self) {
        self.flags.pause.store(true, Ordering::Relaxed);
    }

    /// Resumes measuring on this rank from the next round on.
    pub fn resume(&self) {
        self.flags.pause.store(false, Ordering::Relaxed);
    }

    /// Ends the run on all ranks with the current window and a short one after it, and returns the
    /// report at rank 0. Every rank must call it, because the last round needs all ranks.
    ///
    /// # Errors
    /// Returns the error with which the session failed.
    pub fn stop(mut self) -> Result<Option<RunReport>, Error> {
        self.in_own_process()?;
        self.flags.awaited.store(true, Ordering::Relaxed);
        self.flags.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(None) };
        let steps = self.steps.take();
        steps.as_ref().map_or(Ok(()), |steps| steps.until_ended(&thread))?;
        let panicked = |_| Err(Error::SessionThread { reason: PANICKED.into() });
        let report = thread.join().unwrap_or_else(panicked)?;
        steps.map_or(Ok(()), Steps::release)?;
        Ok(report)
    }

    /// Checks that this is the session's process. A forked process has neither the thread nor,
    /// perhaps, the lock, and would wait forever. Its clock continues to work.
    fn in_own_process(&self) -> Result<(), Error> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let reason = "it belongs to the parent of this forked process; start a session in this process (the clock remains readable)";
        Err(Error::SessionThread { reason: reason.into() })
    }

    /// Waits until `found` returns a value.
    fn wait<T>(&self, what: &str, limit: StdDuration, found: impl Fn(&Seen) -> Option<T>) -> Result<T, Error> {
        self.in_own_process()?;
        let deadline = Instant::now() + limit.min(LONGEST_WAIT);
        let mut seen = self.shared.see();
        loop {
            if let Some(found) = found(&seen) {
                return Ok(found);
            }
            if let Progress::Failed(reason) = &seen.progress {
                return Err(Error::SessionThread { reason: reason.clone() });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let rounds = seen.latest.as_ref().map_or(0, |round| round.round_id.0 + 1);
                let reason = format!("timed out waiting for {what} after {limit:.1?}; {rounds} rounds were solved");
                return Err(Error::SessionThread { reason });
            }
            let mut slice = left;
            if let Some(steps) = self.steps.as_ref().filter(|steps| steps.made_here()) {
                drop(seen);
                // What fails there is soon a state of the session.
                let _state = steps.step(by_launcher::TURN);
                slice = left.min(by_launcher::PAUSE);
                seen = self.shared.see();
            }
            seen = self.shared.changed.wait_timeout(seen, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Session {
    /// Lets the thread end by itself with the run, without waiting for it. If the launcher moves
    /// the messages, nothing will move them from now on, so the others are informed.
    fn drop(&mut self) {
        self.flags.stop.store(true, Ordering::Relaxed);
        if let Some(steps) = self.steps.take().filter(|_| self.in_own_process().is_ok()) {
            steps.let_go();
        }
    }
}

impl Shared {
    fn see(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn tell(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.see());
        self.changed.notify_all();
    }
}

const NO_STEPS: &str = "it moves its messages on its own thread; do not call step() if needs_step() returns false";
pub(super) const PANICKED: &str = "its thread panicked; the message is on standard error";
/// Limits a wait so that its end can be represented as an instant.
const LONGEST_WAIT: StdDuration = StdDuration::from_secs(365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::path::Path;

    use probe_sync_collective::Meeting;
    use probe_sync_time::Timestamp;

    use super::*;
    use crate::{Config, Session};

    const LONG: StdDuration = StdDuration::from_secs(60);

    fn config(out: &Path) -> Config {
        let mut config = Config { out: out.join("out"), ..Config::default() };
        for (key, text) in [("window", "250ms"), ("inject_skew", "7"), ("tracer_clock", "monotonic")] {
            config.set(key, text, "test").expect("a key");
        }
        config
    }

    fn meeting() -> Meeting {
        Meeting::open(&[IpAddr::V4(Ipv4Addr::LOCALHOST)]).expect("loopback")
    }

    #[test]
    fn a_rank_whose_configuration_is_unusable_says_so_to_all() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let meeting = meeting();
        let id = meeting.id().clone();
        let zero = Session::builder(config(directory.path())).host(meeting, 3).start().expect("a thread");
        let one = Session::builder(config(directory.path())).join(id.clone(), 1, 3).start().expect("a thread");
        let unusable = Config::load(None, std::iter::empty(), &[("windw".to_owned(), "1s".to_owned())]);
        let refused = Session::builder_of(unusable).join(id, 2, 3).start().expect_err("no such key");
        assert!(matches!(refused, Error::Configuration { .. }), "{refused:?}");
        for other in [zero, one] {
            let text = other.wait_until_bound(1_000, LONG).expect_err("it is told").to_string();
            assert!(text.contains("rank 2") && text.contains("windw: unknown key"), "{text}");
        }
    }

    #[test]
    fn every_rank_sees_every_round_beside_its_own_work() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let meeting = meeting();
        let id = meeting.id().clone();
        let join =
            |rank| Session::builder(config(directory.path())).join(id.clone(), rank, 3).start().expect("a thread");
        let mut handles = vec![Session::builder(config(directory.path())).host(meeting, 3).start().expect("a thread")];
        handles.extend([join(1), join(2)]);
        for handle in &handles {
            handle.wait_until_bound(1_000_000, LONG).expect("a millisecond is soon known");
        }
        let first: Vec<_> =
            handles.iter().map(|handle| handle.next_round(None, LONG).expect("it goes on").expect("a round")).collect();
        let next = handles[2].next_round(Some(&first[2]), LONG).expect("it goes on").expect("a round");
        assert!(next.round_id > first[2].round_id);
        let progress = handles[1].progress();
        assert!(matches!(&progress, Progress::Measuring(state) if state.rank == 1 && state.nodes == 3), "{progress:?}");
        let impossible = handles[1].wait_until_bound(0, LONG).expect_err("no clock is that good");
        let Error::BoundUnreachable { half_width_ns: 0, reachable_ns } = impossible else { panic!("{impossible}") };
        assert!((2.0..100_000.0).contains(&reachable_ns), "{reachable_ns} ns");
        assert!(handles[0].wait_until_bound(0, LONG).is_ok(), "the reference knows its own clock");
        let mut marks = handles[2].marks(LONG).expect("it measures");
        let (mark, _) = marks.next_name().expect("our own process");
        assert!(marks.write(mark, Timestamp::from_ns(5), Timestamp::from_ns(9)).expect("writable"));
        let file = directory.path().join(format!("out/marks/rank2-{}.jsonl", marks.token()));
        let lines = std::fs::read_to_string(file).expect("written at once");
        let (header, mark) = lines.split_once('\n').expect("two lines");
        assert!(header.contains(r#""rank":2,"world_size":3,"node_id":2"#), "{header}");
        // Of the node's virtual clock, which is wrong by up to 10 ms.
        assert!(!mark.contains(r#""before_ns":5,"#) && mark.contains("before_ns"), "{mark}");
        // Signals are the launcher's.
        let blocked = threads_that_block(15);
        for name in ["probe_sync", "probe", "snapshots"] {
            assert!(blocked.iter().any(|blocking| blocking == name), "{name} is not among {blocked:?}");
        }
        let ended: Vec<_> = handles.into_iter().map(|handle| std::thread::spawn(move || handle.stop())).collect();
        let mut reports: Vec<_> =
            ended.into_iter().map(|thread| thread.join().expect("no panic").expect("in order")).collect();
        let report = reports.remove(0).expect("rank 0 has the report");
        assert!(report.rounds >= 2 && reports.iter().all(Option::is_none));
        assert_eq!(report.truth.expect("virtual clocks").outside_hard_interval, 0);
    }

    #[test]
    fn a_pause_lets_the_clock_go_on_and_the_end_covers_what_was_before_it() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (meeting, mut config) = (meeting(), config(directory.path()));
        config.set("window", "400ms", "test").expect("a key");
        let id = meeting.id().clone();
        let zero = Session::builder(config.clone()).host(meeting, 2).start().expect("a thread");
        let one = Session::builder(config).join(id, 1, 2).start().expect("a thread");
        let handles = [zero, one];
        let first = handles[1].wait_until_bound(1_000_000, LONG).expect("a millisecond is soon known");
        handles.iter().for_each(Session::pause);
        let later = |seen: &Round| handles[1].next_round(Some(seen), LONG).expect("it goes on").expect("it");
        let mut round = later(&first);
        while round.all_nodes[1].reachable {
            round = later(&round);
        }
        let paused = handles[1].clock().now().expect("it was known");
        handles.iter().for_each(Session::resume);
        while !round.all_nodes[1].reachable {
            round = later(&round);
        }
        let resumed = handles[1].clock().now().expect("it was known");
        assert!(resumed.time > paused.time && resumed.earliest <= resumed.time);
        let asked = handles[0].clock().now_ns().expect("it is known");
        let ended: Vec<_> = handles.into_iter().map(|handle| std::thread::spawn(move || handle.stop())).collect();
        ended.into_iter().for_each(|end| _ = end.join().expect("no panic").expect("in order"));
        let lines = std::fs::read_to_string(directory.path().join("out/global_windows.jsonl")).expect("rounds");
        let round = |line| serde_json::from_str::<Round>(line).expect("a round");
        let (earliest, last) = (lines.lines().next().map(round), lines.lines().last().map(round));
        let (earliest, last) = (earliest.expect("a line"), last.expect("a line"));
        // Short, so that a bound is known soon.
        assert!((earliest.window_end - earliest.window_start).as_ns() < 350_000_000, "{earliest:?}");
        assert!(last.midpoint().as_ns() > asked, "{last:?} ends before {asked}");
    }

    #[test]
    fn files_of_a_rank_with_a_directory_of_its_own_travel_to_rank_0() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [at_root, elsewhere] = ["root", "elsewhere"].map(|name| directory.path().join(name));
        let meeting = meeting();
        let id = meeting.id().clone();
        let zero = Session::builder(config(&at_root)).host(meeting, 3).start().expect("a thread");
        let one = Session::builder(config(&elsewhere)).join(id.clone(), 1, 3).start().expect("a thread");
        let two = Session::builder(config(&at_root)).join(id, 2, 3).start().expect("a thread");
        let handles = [zero, one, two];
        for handle in &handles {
            handle.next_round(None, LONG).expect("in order");
        }
        let mut marks = handles[1].marks(LONG).expect("they have met");
        let (number, _) = marks.next_name().expect("this process");
        let at = Timestamp::from_ns(1_800_000_000_000_000_000);
        assert!(marks.write(number, at, at).expect("writable"));
        let files = [0, 1, 2].map(|rank: usize| handles[rank].files_to_root(LONG).expect("they have met"));
        assert_eq!([0, 1, 2].map(|rank: usize| files[rank].sees_root()), [true, false, true]);
        assert!(files.iter().all(|other| other.run_id() == files[0].run_id()));

        let trace = directory.path().join("trace.json");
        std::fs::write(&trace, vec![b'x'; 3 << 20]).expect("writable");
        files[1].send(&trace, "traces/rank1.json", LONG).expect("rank 0 takes it");
        files[1].send_records(LONG).expect("rank 0 takes them");
        files[2].send_records(StdDuration::ZERO).expect("they are there");
        let (out, own) = (at_root.join("out"), elsewhere.join("out"));
        let read = |path: &Path| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(read(&crate::received(&out, 1, "traces/rank1.json")), read(&trace));
        let name = format!("marks/{}", marks_file(1, marks.token()));
        assert_eq!(read(&out.join(&name)), read(&own.join(&name)));
        let pairs = "snapshots/node1.snapshot_pairs.jsonl";
        assert!(read(&own.join(pairs)).starts_with(&read(&out.join(pairs))), "it has taken more since");
        let error = files[1].send(&trace, "../x", LONG).expect_err("it points outside").to_string();
        assert!(error.starts_with("rank 1: ../x did not reach rank 0: "), "{error}");
        let error = files[0].send(&trace, "x", LONG).expect_err("rank 0 itself").to_string();
        assert!(error.contains("this is rank 0"), "{error}");

        let ended: Vec<_> = handles.into_iter().map(|handle| std::thread::spawn(move || handle.stop())).collect();
        ended.into_iter().for_each(|end| _ = end.join().expect("no panic").expect("in order"));
        let error = files[1].send(&trace, "late", LONG).expect_err("the run has ended").to_string();
        assert!(error.contains("rank 1: ") && error.contains("late"), "{error}");
    }

    /// Returns the names of this process's threads that block this signal.
    fn threads_that_block(signal: u32) -> Vec<String> {
        let threads = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
        let blocks = |path: &Path| {
            let status = std::fs::read_to_string(path.join("status")).ok()?;
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
            let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
            let name = std::fs::read_to_string(path.join("comm")).ok()?;
            (mask >> (signal - 1) & 1 == 1).then(|| name.trim().to_owned())
        };
        threads.filter_map(|thread| blocks(&thread.path())).collect()
    }

    #[test]
    fn who_does_not_come_and_what_is_refused_are_states() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let alone = Session::builder(config(directory.path())).host(meeting(), 2).start().expect("a thread");
        assert_eq!(alone.progress(), Progress::Meeting);
        let error = alone.stop().expect_err("nobody came");
        assert!(error.to_string().contains("rank(s) 1"), "{error}");

        let meeting = meeting();
        let id = meeting.id().clone();
        let mut other = config(directory.path());
        other.set("spacing", "90us", "test").expect("a key");
        let zero = Session::builder(config(directory.path())).host(meeting, 2).start().expect("a thread");
        let one = Session::builder(other).join(id, 1, 2).start().expect("a thread");
        for handle in [zero, one] {
            let error = handle.next_round(None, LONG).expect_err("settings differ");
            assert!(error.to_string().contains("spacing"), "{error}");
            let progress = handle.progress();
            assert!(matches!(&progress, Progress::Failed(reason) if reason.contains("spacing")), "{progress:?}");
        }
    }

    #[test]
    fn a_session_alone_is_its_own_reference() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut config = config(directory.path());
        config.inject_skew = None;
        let alone = Session::builder(config).start().expect("a thread");
        let round = alone.wait_until_bound(0, LONG).expect("it is its own reference");
        assert_eq!(round.all_nodes.len(), 1);
        assert!(alone.stop().expect("in order").is_some());
    }
}

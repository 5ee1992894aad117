//! A run in parallel with a training loop, from Python.
//!
//! The thread of `probe_sync::Session` measures. Every wait is cut into slices (`waiting`),
//! so a handle is borrowed only briefly and `stop` can take it. A failure is identified by the
//! thread's own error, not by its text.
//!
//! It does not enforce one session per process (`probe_sync/session.py`).

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use probe_sync::collective::{MAX_RANKS, UniqueId};
use probe_sync::late::{LateLine, WaitLine};
use probe_sync::{
    Arrivals, Config, Error, FilesToRoot, GlobalClock, LateView, Progress, Request, RunReport, Session as OwnSession,
    SessionBuilder, State,
};
use probe_sync_lines::Round;
use probe_sync_time::Timestamp;
use pyo3::prelude::*;

use crate::clock::{Clock, Marks};
use crate::errors::Failure;
use crate::meeting::Meeting;
use crate::messages::Messages;
use crate::round::PyRound;
use crate::waiting::{self, Until, Worker};

/// One rank of a run in progress.
#[pyclass(frozen, module = "probe_sync._native")]
#[derive(Debug)]
pub struct Session {
    inner: Mutex<Inner>,
    clock: GlobalClock,
    arrivals: Arrivals,
    late: LateView,
    /// Process that started the session; a fork does not have its thread.
    process: u32,
}

#[derive(Debug)]
struct Inner {
    stage: Stage,
    /// True if this process has requested the end.
    asked: bool,
    /// State at the last check while it was measuring.
    state: Option<State>,
    /// The last round seen.
    latest: Option<Arc<Round>>,
}

#[derive(Debug)]
enum Stage {
    Running(Arc<OwnSession>),
    /// Its thread is about to end.
    Ending(Arc<Mutex<Receiver<Outcome>>>),
    Over(Outcome),
}

/// The report as JSON, at rank 0, or the failure of the session.
type Outcome = Result<Option<String>, Failure>;

/// Result of [`Session::progress`]: phase, state (rank, node, nodes, reference, rounds) once known,
/// and the reason of a failure.
type Told = (&'static str, Option<(usize, u32, usize, u32, u64, Vec<usize>)>, Option<String>);

/// Starts a session; without `size` it has a single rank.
#[pyfunction]
#[pyo3(signature = (file, settings, *, rank, size, meeting, unique_id, messages))]
#[expect(clippy::needless_pass_by_value, reason = "Python's arguments are made for the call")]
pub fn start(
    file: Option<PathBuf>,
    settings: Vec<(String, String)>,
    rank: Option<usize>,
    size: Option<usize>,
    meeting: Option<&Bound<'_, Meeting>>,
    unique_id: Option<&[u8]>,
    messages: Option<&Bound<'_, Messages>>,
) -> PyResult<Session> {
    let config = Config::load(file.as_deref(), std::env::vars_os(), &settings);
    let builder = probe_sync::Session::builder_of(config);
    let builder = match messages {
        Some(messages) => builder.over(messages.get().carried()?),
        None => meet(builder, rank, size, meeting, unique_id)?,
    };
    let handle = builder.start().map_err(|error| Failure::of_session(&error, false))?;
    let (clock, arrivals, late) = (handle.clock(), handle.arrivals(), handle.late());
    let inner = Inner { stage: Stage::Running(Arc::new(handle)), asked: false, state: None, latest: None };
    Ok(Session { inner: Mutex::new(inner), clock, arrivals, late, process: std::process::id() })
}

/// Writes the page of the ended run in `out`; returns the reason if it cannot.
#[pyfunction]
pub fn write_page(py: Python<'_>, out: PathBuf) -> PyResult<Option<String>> {
    waiting::run(py, None, move |_| probe_sync_page::write_at_end(&out).err())
}

/// Sets how this rank meets the others.
fn meet(
    builder: SessionBuilder,
    rank: Option<usize>,
    size: Option<usize>,
    meeting: Option<&Bound<'_, Meeting>>,
    unique_id: Option<&[u8]>,
) -> Result<SessionBuilder, Failure> {
    let refuse = |text: String| Err(Failure::config(text));
    let (rank, size) = match (rank, size) {
        (None, None) if meeting.is_none() && unique_id.is_none() => return Ok(builder),
        (Some(rank), Some(size)) => (rank, size),
        _ => {
            return refuse(
                "rank and size must be given together; give both, or group=probe_sync.from_env()".to_owned(),
            );
        }
    };
    if rank >= size || size > MAX_RANKS {
        return refuse(format!(
            "rank={rank}, size={size}: ranks are numbered from 0 to size - 1, with at most {MAX_RANKS} ranks; size is the total \
            number of processes in the job"
        ));
    }
    match (rank, meeting, unique_id) {
        (0, Some(meeting), None) => match meeting.get().take() {
            Some(meeting) => Ok(builder.host(meeting, size)),
            None => refuse("this meeting was already used to start a session; open another Meeting()".to_owned()),
        },
        (0, None, None) if size == 1 => Ok(builder),
        (0, ..) => refuse("rank 0 hosts the others: give meeting=probe_sync.Meeting(), without unique_id".to_owned()),
        (_, None, Some(bytes)) => {
            let id = UniqueId::from_bytes(bytes).map_err(|error| {
                Failure::config(format!("unique_id: {error}; give the bytes of rank 0's Meeting().unique_id"))
            })?;
            Ok(builder.join(id, rank, size))
        }
        _ => refuse(format!("rank {rank} joins rank 0: give unique_id, the 128 bytes of rank 0's Meeting().unique_id")),
    }
}

#[pymethods]
impl Session {
    /// Returns phase, state and reason.
    fn progress(&self) -> PyResult<Told> {
        self.refuse_fork()?;
        let mut inner = self.lock();
        inner.look();
        let (phase, reason) = match &inner.stage {
            Stage::Running(handle) => match handle.progress() {
                Progress::Meeting => ("meeting", None),
                _ => ("measuring", None),
            },
            Stage::Ending(_) if inner.state.is_none() => ("meeting", None),
            Stage::Ending(_) => ("measuring", None),
            Stage::Over(Ok(_)) => ("ended", None),
            Stage::Over(Err(failure)) => ("failed", Some(failure.text().to_owned())),
        };
        let told = |state: &State| {
            (state.rank, state.node.0, state.nodes, state.reference.0, state.rounds, state.away.clone())
        };
        Ok((phase, inner.state.as_ref().map(told), reason))
    }

    /// Returns the last solved round.
    fn latest(&self, py: Python<'_>) -> PyResult<Option<PyRound>> {
        self.refuse_fork()?;
        let mut inner = self.lock();
        inner.look();
        Ok(inner.latest.clone().map(|data| PyRound::new(py, data)))
    }

    /// Waits for a round after `after`; None if the run has ended on its own.
    fn next_round(&self, py: Python<'_>, after: Option<&PyRound>, timeout: Option<f64>) -> PyResult<Option<PyRound>> {
        let after = after.map(|round| Arc::clone(round.data()));
        let later = |round: &&Arc<Round>| after.as_ref().is_none_or(|after| round.round_id > after.round_id);
        let found = self.wait(
            py,
            ("the next round", timeout),
            &|handle, slice| handle.next_round(after.as_deref(), slice),
            &|latest| Some(latest.filter(later).cloned()),
        )?;
        Ok(found.map(|data| PyRound::new(py, data)))
    }

    /// Waits until the half-width of the 95 % interval of this node's offset is at most
    /// `half_width_ns`.
    fn wait_until_bound(&self, py: Python<'_>, half_width_ns: u32, timeout: Option<f64>) -> PyResult<PyRound> {
        let what = format!("a bound of ±{half_width_ns} ns");
        let attempt = |handle: &OwnSession, slice| handle.wait_until_bound(half_width_ns, slice);
        let found = self.wait(py, (&what, timeout), &attempt, &|_| None)?;
        Ok(PyRound::new(py, found))
    }

    /// Makes a request to the run, as `probe_sync ctl` does; returns the first round to which it
    /// applies.
    fn ask(&self, py: Python<'_>, request: &str, timeout: Option<f64>) -> PyResult<u64> {
        self.refuse_fork()?;
        let asked: Request = request.parse().map_err(|error: String| Failure::config(error))?;
        let ticket = match self.borrow::<()>(&|_| None)? {
            Borrowed::Handle(handle) => handle.ask(asked).map_err(|error| Failure::of_session(&error, true))?,
            _ => return Err(Failure::ended(ENDED).into()),
        };
        let since = self.wait(py, (request, timeout), &|_, slice| ticket.wait(slice), &|_| None)?;
        Ok(since.round.0)
    }

    /// Returns the reference clock, also in a fork and after the end.
    fn clock(&self) -> Clock {
        Clock(self.clock.clone())
    }

    /// Records that this rank arrives now at an operation of a group.
    fn arrive(&self, group: &str, step: u64) {
        self.arrivals.arrive(group, step);
    }

    /// Records arrivals at times of the system clock, which are complete until a time but for some
    /// that are lost.
    fn report_arrivals(&self, arrivals: Vec<(String, u64, i64)>, until_ns: i64, lost: u64) {
        self.arrivals.lose(lost);
        for (group, step, at_ns) in arrivals {
            self.arrivals.arrive_at(&group, step, Timestamp::from_ns(at_ns));
        }
        self.arrivals.complete_until(Timestamp::from_ns(until_ns));
    }

    /// Returns the late ranks, and the ranks that others wait for, as JSON, with a sentence for
    /// each.
    fn late(&self) -> PyResult<String> {
        let standing = self.late.standing();
        let late: Vec<(String, &LateLine)> = standing.late.iter().map(|line| (line.to_string(), line)).collect();
        let waiting: Vec<(String, &WaitLine)> = standing.waiting.iter().map(|line| (line.to_string(), line)).collect();
        serde_json::to_string(&(late, waiting)).map_err(|error| Failure::config(error.to_string()).into())
    }

    /// Returns the number of a request for evidence of a hang that was not answered; None as well
    /// after the session's end.
    fn hang_requested(&self) -> PyResult<Option<u64>> {
        match self.borrow::<()>(&|_| None) {
            Ok(Borrowed::Handle(handle)) => Ok(handle.hang_requested()),
            _ => Ok(None),
        }
    }

    /// Answers no more such requests.
    fn withdraw_from_hang(&self) {
        if let Ok(Borrowed::Handle(handle)) = self.borrow::<()>(&|_| None) {
            handle.withdraw_from_hang();
        }
    }

    /// Answers such a request with files of these names and contents.
    fn answer_hang(&self, py: Python<'_>, number: u64, files: Vec<(String, Vec<u8>)>, timeout: f64) -> PyResult<()> {
        let until = Until::new(Some(timeout))?;
        let handle = match self.borrow::<()>(&|_| None)? {
            Borrowed::Handle(handle) => handle,
            _ => return Err(Failure::ended(ENDED).into()),
        };
        let answer = move || {
            let files: Vec<(&str, &[u8])> =
                files.iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect();
            handle.answer_hang(number, &files, until.left())
        };
        py.detach(answer).map_err(|error| Failure::of_session(&error, true).into())
    }

    /// Creates a file of marks of this process, once the ranks have met.
    fn marks(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Marks> {
        let attempt = |handle: &OwnSession, slice| handle.marks(slice);
        self.wait(py, ("the meeting of the ranks", timeout), &attempt, &|_| None).map(Marks::new)
    }

    /// Returns the run id.
    fn run_id(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<String> {
        Ok(self.files_to_root(py, timeout)?.run_id().to_string())
    }

    /// Returns True if this rank sees rank 0's directory under its own name for it.
    fn sees_root(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        Ok(self.files_to_root(py, timeout)?.sees_root())
    }

    /// Sends this rank's records, and then these files under the given names, to rank 0.
    fn send_files(&self, py: Python<'_>, files: Vec<(PathBuf, String)>, timeout: Option<f64>) -> PyResult<()> {
        let until = Until::new(timeout)?;
        let way = self.files_to_root(py, timeout)?;
        let send = move |worker: &Worker<Result<(), Error>>| {
            way.send_records(until.left())?;
            for (path, name) in files.iter().take_while(|_| !worker.is_left()) {
                way.send(path, name, until.left())?;
            }
            Ok(())
        };
        waiting::run(py, None, send)?.map_err(|error| Failure::of_session(&error, true).into())
    }

    /// Records an arrival whenever a collective scope begins in which all members wait.
    fn observe_collectives(&self) -> PyResult<()> {
        match self.borrow::<()>(&|_| None)? {
            Borrowed::Handle(handle) => {
                let observed = handle.observe_collectives();
                observed.map_err(|error| Failure::of_session(&error, true).into())
            }
            _ => Err(Failure::ended(ENDED).into()),
        }
    }

    /// Suspends or resumes starting exchanges.
    fn pause(&self, paused: bool) -> PyResult<()> {
        match self.borrow::<()>(&|_| None)? {
            Borrowed::Handle(handle) if paused => handle.pause(),
            Borrowed::Handle(handle) => handle.resume(),
            _ => {}
        }
        Ok(())
    }

    /// Ends the run with the current window; returns the report as JSON at rank 0. Further calls
    /// return the same.
    fn stop(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        self.refuse_fork()?;
        let until = Until::new(timeout)?;
        let ending = {
            let mut inner = self.lock();
            inner.look();
            inner.asked = true;
            inner.end()
        };
        let Some(ending) = ending else { return Ok(self.lock().outcome()?) };
        loop {
            let slice = until.slice();
            let found = py.detach(|| ending.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(slice));
            match found {
                Ok(outcome) => self.lock().stage = Stage::Over(outcome),
                Err(RecvTimeoutError::Timeout) => {}
                // Another thread that waits has it, or the thread that ended the session panicked.
                Err(RecvTimeoutError::Disconnected) => self.lock().settle(),
            }
            if let Stage::Over(outcome) = &self.lock().stage {
                return Ok(outcome.clone()?);
            }
            py.check_signals()?;
            if let Some(over) = until.over(
                "the end of the session",
                "other ranks may not have called stop() yet; call it again to keep waiting",
            ) {
                return Err(over.into());
            }
        }
    }

    /// Asks the run to end, without waiting.
    fn abandon(&self) {
        if self.process == std::process::id() {
            let mut inner = self.lock();
            inner.asked = true;
            let _nobody_waits = inner.end();
        }
    }
}

/// What a wait uses next.
enum Borrowed<T> {
    /// The handle, for a slice.
    Handle(Arc<OwnSession>),
    /// The thread has ended by itself; its outcome is about to be known.
    Nothing,
    /// The result at the end.
    End(T),
}

impl Session {
    /// Waits until `attempt` succeeds; if the run ends by itself before, returns the result of
    /// `at_end` for the last round, if any.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        (what, timeout): (&str, Option<f64>),
        attempt: &(dyn Fn(&OwnSession, Duration) -> Result<T, Error> + Sync),
        at_end: &dyn Fn(Option<&Arc<Round>>) -> Option<T>,
    ) -> PyResult<T> {
        self.refuse_fork()?;
        let until = Until::new(timeout)?;
        loop {
            let (borrowed, slice) = (self.borrow(at_end)?, until.slice());
            let found = match borrowed {
                Borrowed::Handle(handle) => py.detach(|| {
                    let found = attempt(&handle, slice);
                    // Before anybody ends the session.
                    drop(handle);
                    found.map(Some)
                }),
                Borrowed::Nothing => {
                    py.detach(|| std::thread::sleep(BRIEF));
                    Ok(None)
                }
                Borrowed::End(found) => Ok(Some(found)),
            };
            match found {
                Ok(Some(found)) => return Ok(found),
                Err(error @ Error::BoundUnreachable { .. }) => return Err(Failure::of_session(&error, true).into()),
                Ok(None) | Err(_) => {}
            }
            py.check_signals()?;
            let rounds = self.lock().latest.as_ref().map_or(0, |round| round.round_id.0 + 1);
            if let Some(over) = until.over(what, &format!("{rounds} rounds were solved")) {
                // The session may have failed in the meantime, and that is the reason then.
                return self.borrow(at_end).and_then(|_| Err(over)).map_err(PyErr::from);
            }
        }
    }

    fn borrow<T>(&self, at_end: &dyn Fn(Option<&Arc<Round>>) -> Option<T>) -> Result<Borrowed<T>, Failure> {
        let mut inner = self.lock();
        inner.look();
        match &inner.stage {
            Stage::Running(handle) => Ok(Borrowed::Handle(Arc::clone(handle))),
            Stage::Over(Err(failure)) if !inner.asked => Err(failure.clone()),
            _ if inner.asked => Err(Failure::ended(ENDED)),
            Stage::Ending(_) => Ok(Borrowed::Nothing),
            Stage::Over(_) => at_end(inner.latest.as_ref()).map(Borrowed::End).ok_or_else(|| Failure::ended(ENDED)),
        }
    }

    fn files_to_root(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<FilesToRoot> {
        let attempt = |handle: &OwnSession, slice| handle.files_to_root(slice);
        self.wait(py, ("the meeting of the ranks", timeout), &attempt, &|_| None)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse_fork(&self) -> Result<(), Failure> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(Failure::ended("this process was forked from the one that is measuring; start a session in this process"))
    }
}

impl Inner {
    /// Updates the state of the session and, once its thread has failed or ended by itself, its
    /// outcome.
    fn look(&mut self) {
        let Stage::Running(handle) = &self.stage else {
            return self.settle();
        };
        if let Some(round) = handle.round() {
            self.latest = Some(round);
        }
        match handle.progress() {
            Progress::Measuring(state) => self.state = Some(state),
            Progress::Failed(_) | Progress::Ended => {
                let _settled = self.end();
            }
            Progress::Meeting => {}
        }
    }

    /// Lets a thread end the session, unless one does already; None if it is over.
    fn end(&mut self) -> Option<Arc<Mutex<Receiver<Outcome>>>> {
        if let Stage::Running(_) = &self.stage {
            let met = self.state.is_some();
            let (sender, receiver) = channel();
            let ending = Stage::Ending(Arc::new(Mutex::new(receiver)));
            if let Stage::Running(handle) = std::mem::replace(&mut self.stage, ending) {
                let body = move || {
                    let outcome = alone(handle).stop().map(|report| report.as_ref().map(as_json));
                    let _nobody_waits = sender.send(outcome.map_err(|error| Failure::of_session(&error, met)));
                };
                if let Err(error) = std::thread::Builder::new().name("probe_sync_end".into()).spawn(body) {
                    self.stage = Stage::Over(Err(Failure::failed(format!("cannot start a thread: {error}"))));
                }
            }
        }
        match &self.stage {
            Stage::Ending(ending) => Some(Arc::clone(ending)),
            _ => None,
        }
    }

    /// Takes the outcome of an end, if there is one.
    fn settle(&mut self) {
        let Stage::Ending(ending) = &self.stage else { return };
        let found = ending.try_lock().ok().map(|ending| ending.try_recv());
        match found {
            Some(Ok(outcome)) => self.stage = Stage::Over(outcome),
            Some(Err(std::sync::mpsc::TryRecvError::Disconnected)) => {
                self.stage = Stage::Over(Err(Failure::failed("the thread that stopped it panicked")));
            }
            _ => {}
        }
    }

    fn outcome(&self) -> Outcome {
        if let Stage::Over(outcome) = &self.stage { outcome.clone() } else { Err(Failure::ended(ENDED)) }
    }
}

/// Returns the handle, once the waits that borrow it for a slice have returned it.
fn alone(mut handle: Arc<OwnSession>) -> OwnSession {
    loop {
        match Arc::try_unwrap(handle) {
            Ok(handle) => return handle,
            Err(shared) => handle = shared,
        }
        std::thread::sleep(BRIEF);
    }
}

fn as_json(report: &RunReport) -> String {
    serde_json::to_string(report).unwrap_or_else(|error| format!("{{\"error\": \"no report: {error}\"}}"))
}

const ENDED: &str = "this session has ended; start another with probe_sync.start()";

const BRIEF: Duration = Duration::from_millis(1);

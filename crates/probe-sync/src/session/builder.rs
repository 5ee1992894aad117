//! The configuration of a session on its own thread, and the work of that thread.
//!
//! Launchers link against it. [`Session::builder`] defines how the ranks meet; the thread of a
//! [`Session`] owns the collective and proceeds from round to round, and every rank observes
//! the solved rounds. The thread blocks all signals, so that the launcher's own handlers run as
//! before, and it never prints, ends the job or panics into it: a failure is a state.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration as StdDuration;

use probe_sync_collective::{ByMessages, Collective, Deadline, InProcess, Meeting, Messages, Rank, UniqueId};
use probe_sync_sys::{TracerClock, process};
use probe_sync_time::Duration;

use super::beside::{Flags, PANICKED, Progress, Session, Shared};
use super::by_launcher::{self, Steps};
use super::context::Context;
use super::driver::Driver;
use crate::clock::GlobalClock;
use crate::report::RunReport;
use crate::store::{kept_successors, pairs_file};
use crate::{Config, Error};

/// Builds a session on a thread of its own.
#[derive(Debug)]
pub struct SessionBuilder {
    config: Result<Config, Error>,
    tracer_clock: Option<TracerClock>,
    meets: Meets,
}

/// How the ranks meet.
#[derive(Debug)]
enum Meets {
    Alone,
    Hosts(Meeting, usize),
    Joins(UniqueId, Rank, usize),
    Group(Box<ByMessages>, Option<Steps>),
}

/// Turns a panic of the thread into a failure that the owner sees.
struct Panics<'a>(&'a Shared);

impl Drop for Panics<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.tell(|seen| seen.progress = Progress::Failed(PANICKED.into()));
        }
    }
}

impl Session {
    /// Returns a builder for a session on a thread of its own: see [`SessionBuilder`].
    ///
    /// Two ranks, here in two threads; a launcher would transmit the id from rank 0 to the others
    /// by its own means:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use probe_sync::collective::Meeting;
    /// use probe_sync::{Config, Session};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let mut config = Config { out: directory.path().join("out"), ..Config::default() };
    /// config.set("window", "250ms", "example")?;
    /// let meeting = Meeting::open(&["127.0.0.1".parse()?])?;
    /// let id = meeting.id().clone();
    /// let zero = Session::builder(config.clone()).host(meeting, 2).start()?;
    /// let one = Session::builder(config).join(id, 1, 2).start()?;
    ///
    /// // Training begins at once; whoever needs the clocks waits for them.
    /// let round = one.wait_until_bound(1_000, Duration::from_secs(30))?;
    /// println!("{} ns ahead of node 0", round.all_nodes[1].offset_ns);
    ///
    /// // The end: every rank ends with the window under way.
    /// let other = std::thread::spawn(move || one.stop());
    /// let report = zero.stop()?.expect("rank 0 has the report");
    /// assert!(report.rounds >= 1 && other.join().expect("no panic")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(config: Config) -> SessionBuilder {
        Self::builder_of(Ok(config))
    }

    /// Returns a builder from the result of [`Config::load`]. If that is an error,
    /// [`SessionBuilder::start`] returns it at once, and the other ranks, which would otherwise
    /// wait for minutes, receive it when they meet.
    pub fn builder_of(mut config: Result<Config, Error>) -> SessionBuilder {
        if let Ok(config) = &mut config {
            // Whoever links this asks soon, and has recorded something until the very end.
            config.first_window.get_or_insert(SHORT_WINDOW);
            config.last_window.get_or_insert(SHORT_WINDOW);
            config.keep_to_budget_or(BUDGET_CPU);
        }
        SessionBuilder { config, tracer_clock: None, meets: Meets::Alone }
    }
}

impl SessionBuilder {
    /// Makes this rank 0 of `size`, the host of the meeting whose id the others have.
    #[must_use]
    pub fn host(self, meeting: Meeting, size: usize) -> Self {
        Self { meets: Meets::Hosts(meeting, size), ..self }
    }

    /// Makes this `rank` of `size`, which joins by the id of rank 0's meeting.
    #[must_use]
    pub fn join(self, id: UniqueId, rank: Rank, size: usize) -> Self {
        Self { meets: Meets::Joins(id, rank, size), ..self }
    }

    /// Uses the launcher's own messages, such as `probe_sync::mpi::MpiMessages`, instead of a
    /// meeting. If any thread may call the launcher's library, the session's thread does; otherwise
    /// the launcher calls [`Session::step`] ([`Session::needs_step`]).
    #[must_use]
    pub fn over(self, messages: impl Messages + 'static) -> Self {
        let (group, steps) = by_launcher::group(Box::new(messages));
        Self { meets: Meets::Group(Box::new(group), steps), ..self }
    }

    /// Takes snapshot pairs of the caller's own clock, like [`Context::tracer_clock`].
    #[must_use]
    pub fn tracer_clock(self, clock: TracerClock) -> Self {
        Self { tracer_clock: Some(clock), ..self }
    }

    /// Starts the thread, and returns at once.
    ///
    /// # Errors
    /// Returns an error if the configuration is unusable, or the system cannot provide a thread or
    /// memory. All other failures are reported as states of the session.
    pub fn start(self) -> Result<Session, Error> {
        let Self { config, tracer_clock, mut meets } = self;
        let config = match config {
            Ok(config) => config,
            Err(error) => {
                Self { config: Err(told(&error)), tracer_clock, meets }.refuse();
                return Err(error);
            }
        };
        let out = config.out.clone();
        let steps = if let Meets::Group(_, steps) = &mut meets { steps.take() } else { None };
        let sender = match &meets {
            Meets::Joins(id, rank, size) => Some(id.file_sender(*rank, *size)),
            Meets::Alone | Meets::Hosts(..) | Meets::Group(..) => None,
        };
        let builder = Self { config: Ok(config), tracer_clock, meets };
        let shared = Arc::new(Shared::default());
        let flags = Flags::default();
        let (for_thread, flags_of_thread) = (Arc::clone(&shared), flags.clone());
        let clock = GlobalClock::new()?;
        let kept = clock.clone();
        let body = move || {
            let _panics = Panics(&for_thread);
            let result = builder.measure(Some(kept), &flags_of_thread, &for_thread);
            flags_of_thread.requests.close("the session has ended");
            for_thread.tell(|seen| {
                seen.progress = match &result {
                    Ok(_) => Progress::Ended,
                    Err(error) => Progress::Failed(error.to_string()),
                };
            });
            result
        };
        let cannot = |error| Error::SessionThread { reason: format!("cannot start: {error}") };
        let thread = std::thread::Builder::new().name("probe_sync".into()).spawn(body).map_err(cannot)?;
        let (process, thread) = (std::process::id(), Some(thread));
        let collectives = Mutex::default();
        Ok(Session { out, process, clock, shared, flags, sender, thread, steps, collectives })
    }

    /// Tells the others why this rank does not take part: over TCP when they meet, on a thread of
    /// its own.
    fn refuse(mut self) {
        let reason = self.config.as_ref().err().map(ToString::to_string).unwrap_or_default();
        match &mut self.meets {
            Meets::Alone => {}
            Meets::Group(_, Some(steps)) => steps.end(&reason),
            Meets::Group(group, None) => group.abort(&reason),
            Meets::Hosts(..) | Meets::Joins(..) => {
                let body = move || _ = self.measure(None, &Flags::default(), &Shared::default());
                // Without a thread the others wait until their deadline.
                let _ = std::thread::Builder::new().name("probe_sync".into()).spawn(body);
            }
        }
    }

    fn measure(self, clock: Option<GlobalClock>, flags: &Flags, shared: &Shared) -> Result<Option<RunReport>, Error> {
        process::block_signals()?;
        let deadline = Deadline::new(MEETING_LIMIT, Some(Arc::clone(&flags.stop)));
        let stop = Arc::clone(&flags.stop);
        let (tracer_clock, pause) = (self.tracer_clock, Arc::clone(&flags.pause));
        let (requests, arrivals, late) = (flags.requests.clone(), flags.arrivals.clone(), flags.late.clone());
        let hang = flags.hang.clone();
        let mut context =
            Context { stop, tracer_clock, clock, pause, requests, arrivals, late, hang, ..Context::default() };
        let mut tcp = match self.meets {
            Meets::Alone => return rounds(self.config, &mut InProcess::group(1).remove(0), &context, shared),
            Meets::Group(mut group, _) => {
                let result = rounds(self.config, group.as_mut(), &context, shared);
                match &result {
                    Err(error) => group.abort(&error.to_string()),
                    // Where nobody waits, the launcher's library may be gone at any moment.
                    Ok(_) if flags.awaited.load(Ordering::Relaxed) => group.release()?,
                    Ok(_) => {}
                }
                return result;
            }
            Meets::Hosts(meeting, size) => {
                let earlier = self.config.as_ref().map(|config| kept_successors(&config.out, 0)).unwrap_or_default();
                match meeting.return_as_rank_0(&earlier, size, &deadline)? {
                    Some(returned) => returned,
                    None => {
                        let begin_after = self.config.as_ref().ok().and_then(Config::begin_after);
                        meeting.host_after(begin_after, size, &deadline)?
                    }
                }
            }
            Meets::Joins(id, rank, size) => {
                let successors =
                    self.config.as_ref().map(|config| kept_successors(&config.out, rank)).unwrap_or_default();
                id.join_or_return(rank, size, &successors, &deadline)?
            }
        };
        context.towards_root = Some(tcp.local_ip());
        rounds(self.config, &mut tcp, &context, shared)
    }
}

/// Returns the form of the caller's error that the other ranks receive.
fn told(error: &Error) -> Error {
    match error {
        Error::Configuration { origin, key, reason } => {
            Error::Configuration { origin: origin.clone(), key: key.clone(), reason: reason.clone() }
        }
        other => Error::SessionThread { reason: other.to_string() },
    }
}

/// Runs from the handshake to the report.
fn rounds(
    config: Result<Config, Error>,
    collective: &mut dyn Collective,
    context: &Context,
    shared: &Shared,
) -> Result<Option<RunReport>, Error> {
    let mut session = Driver::start_at(config, collective, context, None)?;
    let process = Some(session.marked_process());
    let (run, pairs) = session.run();
    shared.tell(|seen| {
        (seen.progress, seen.process, seen.run) = (Progress::Measuring(session.state()), process, Some(run));
        seen.records.extend(pairs.map(pairs_file));
    });
    while session.next_round()?.is_some() {
        let (latest, state) = (session.round().cloned().map(Arc::new), session.state());
        shared.tell(|seen| {
            seen.observe(latest);
            seen.progress = Progress::Measuring(state);
        });
    }
    session.stop()
}

/// Default budget, as a share of one core of each host, since a training loop runs next to it.
const BUDGET_CPU: f64 = 0.01;
/// Default length of the first and last windows.
const SHORT_WINDOW: Duration = Duration::from_ms(250);
/// Longest time to meet; ranks of a large job start minutes apart on some clusters.
const MEETING_LIMIT: StdDuration = StdDuration::from_secs(300);

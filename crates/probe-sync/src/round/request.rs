//! Requests to a run in progress: to end the window now, pause, resume, name a phase, or stop.
//!
//! A launcher, or `probe_sync ctl`, puts a [`Request`] into the [`Requests`] of any rank's context.
//! That rank's round loop brings it to the master, which ends the current window so that the next
//! one begins as requested. The requester learns from which round on it takes effect.

use std::fmt;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration as StdDuration;

use probe_sync_lines::{Decision, Round};
use probe_sync_time::{Reference, RoundId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Error;

/// A request to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// End the current window now.
    EndRound,
    /// Stop starting exchanges on all nodes. All still answer, rounds continue, and bounds grow.
    Pause,
    /// Resume probing on all nodes.
    Resume,
    /// Assign the following rounds to this phase of an experiment, or to none.
    Phase(Option<String>),
    /// End the run.
    Stop,
    /// Report an observation, with a description, that spoils the current window.
    Anomaly(String),
}

/// Requests to one rank, from any thread. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Asked>,
    /// Why no requests are accepted any longer.
    closed: Option<String>,
}

/// A request with its waiting caller.
#[derive(Debug)]
pub(crate) struct Asked {
    pub request: Request,
    answer: Sender<Answer>,
}

/// When a request takes effect, or why it was refused.
pub type Answer = Result<Since, String>;

/// The first round to which a request applies.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Since {
    /// The round.
    pub round: RoundId,
    /// Start of its window on the reference clock.
    #[serde(rename = "start_ns")]
    pub start: Timestamp<Reference>,
}

/// Waits for the answer to a request.
#[derive(Debug)]
pub struct Ticket(Mutex<Receiver<Answer>>);

impl Request {
    /// Returns the request for a phase of this name.
    ///
    /// # Errors
    /// States what is wrong with the name.
    pub fn phase(name: &str) -> Result<Self, String> {
        if name.is_empty() || name.len() > PHASE_MAX || name.chars().any(char::is_control) {
            return Err(format!(
                "\"{}\" is not a valid phase name: use 1 to {PHASE_MAX} bytes on one line",
                name.escape_debug()
            ));
        }
        Ok(Self::Phase(Some(name.to_owned())))
    }

    /// Returns true if a decision fulfils the request.
    fn holds(&self, decision: &Decision) -> bool {
        match self {
            Self::Pause => decision.paused,
            Self::Resume => !decision.paused,
            Self::Phase(phase) => decision.phase == *phase,
            Self::Stop => decision.stop || decision.closing,
            Self::EndRound | Self::Anomaly(_) => true,
        }
    }
}

impl fmt::Display for Request {
    /// Writes the text that is parsed to this request; an anomaly is only for display.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pause => f.write_str("pause"),
            Self::Resume => f.write_str("resume"),
            Self::Phase(None) => f.write_str("phase"),
            Self::Phase(Some(name)) => write!(f, "phase {name}"),
            Self::EndRound => f.write_str("end-round"),
            Self::Stop => f.write_str("stop"),
            Self::Anomaly(what) => write!(f, "anomaly {what}"),
        }
    }
}

impl FromStr for Request {
    type Err = String;

    /// Parses the requests that users may make: `pause`, `resume`, `phase NAME`, `phase`,
    /// `end-round`, `stop`.
    fn from_str(text: &str) -> Result<Self, String> {
        let asks = [Self::Pause, Self::Resume, Self::Phase(None), Self::EndRound, Self::Stop];
        match text.split_once(' ') {
            Some(("phase", name)) => Self::phase(name),
            _ => asks.into_iter().find(|ask| ask.to_string() == text).ok_or_else(|| {
                format!(
                    "unknown request \"{}\"; use pause, resume, phase NAME, phase, end-round or stop",
                    text.escape_debug()
                )
            }),
        }
    }
}

impl Requests {
    /// Makes a request. It has taken effect when the [`Ticket`] returns.
    ///
    /// # Errors
    /// [`Error::Request`] if this run accepts no requests, or too many are waiting.
    pub fn ask(&self, request: Request) -> Result<Ticket, Error> {
        let (answer, ticket) = channel();
        let mut queue = self.lock();
        if let Some(reason) = &queue.closed {
            return Err(Error::Request { reason: reason.clone() });
        }
        if queue.waiting.len() >= WAITING_MAX {
            return Err(Error::Request { reason: format!("{WAITING_MAX} requests are already pending") });
        }
        queue.waiting.push(Asked { request, answer });
        Ok(Ticket(Mutex::new(ticket)))
    }

    /// Removes and returns the requests made since the previous call.
    pub(crate) fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut self.lock().waiting)
    }

    /// Accepts requests from now on.
    pub(crate) fn open(&self) {
        self.lock().closed = None;
    }

    /// Refuses all further requests.
    pub(crate) fn close(&self, reason: &str) {
        let mut queue = self.lock();
        queue.closed.get_or_insert_with(|| reason.to_owned());
        queue.waiting.drain(..).for_each(|asked| asked.refuse(reason));
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    /// Answers the caller if this round's decision fulfils the request. Returns true if it does.
    pub fn answered_by(&self, round: &Round) -> bool {
        let holds = self.request.holds(&round.decision);
        if holds {
            // Nobody may be waiting.
            let _ = self.answer.send(Ok(Since { round: round.round_id.next(), start: round.window_end }));
        }
        holds
    }

    /// Answers the caller that requested the end, after the run has ended with this round. Returns
    /// true if the end was requested.
    pub fn answered_by_the_end(&self, last: Option<&Round>) -> bool {
        let first = Since { round: RoundId::default(), start: Timestamp::from_ns(0) };
        let since = last.map_or(first, |last| Since { round: last.round_id.next(), start: last.window_end });
        self.request == Request::Stop && self.answer.send(Ok(since)).is_ok()
    }

    /// Answers the caller with the reason for a refusal.
    pub fn refuse(self, reason: &str) {
        let _ = self.answer.send(Err(reason.to_owned()));
    }
}

impl Ticket {
    /// Waits until the request has taken effect.
    ///
    /// # Errors
    /// [`Error::Request`] if it is refused, the run has ended, or the time is over.
    pub fn wait(&self, limit: StdDuration) -> Result<Since, Error> {
        let refused = |reason: String| Error::Request { reason };
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(limit) {
            Ok(answer) => answer.map_err(refused),
            Err(RecvTimeoutError::Timeout) => Err(refused(format!("no decision within {limit:.1?}"))),
            Err(RecvTimeoutError::Disconnected) => Err(refused("the run has ended".into())),
        }
    }
}

/// Longest name of a phase.
pub const PHASE_MAX: usize = 64;
/// Most requests waiting for the round loop, which checks several times a second.
const WAITING_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_ask_is_read_as_it_is_written() {
        let phase = Request::phase("step 3, all ranks").expect("a name");
        for asked in [Request::Pause, Request::Resume, Request::EndRound, Request::Stop, Request::Phase(None), phase] {
            assert_eq!(asked.to_string().parse(), Ok(asked));
        }
        for wrong in ["", "pause now", "explode", "phase ", "phase a\u{7}", "anomaly x"] {
            assert!(wrong.parse::<Request>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn names_of_phases() {
        assert_eq!(Request::phase("warm-up"), Ok(Request::Phase(Some("warm-up".into()))));
        for name in ["", "a\nb", &"x".repeat(PHASE_MAX + 1)] {
            assert!(Request::phase(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn what_is_asked_of_a_run_that_has_ended_is_refused_and_waiting_ends() {
        let requests = Requests::default();
        let ticket = requests.ask(Request::Pause).expect("it is open");
        assert!(ticket.wait(StdDuration::from_millis(1)).expect_err("no round").to_string().contains("no decision"));
        requests.close("the run has ended");
        for error in [ticket.wait(StdDuration::ZERO).map(|_| ()), requests.ask(Request::Resume).map(|_| ())] {
            assert!(error.expect_err("closed").to_string().contains("has ended"));
        }
    }

    #[test]
    fn a_flood_of_requests_is_refused() {
        let requests = Requests::default();
        let _tickets: Vec<_> = (0..WAITING_MAX).map(|_| requests.ask(Request::EndRound).expect("room")).collect();
        assert!(requests.ask(Request::EndRound).is_err());
        assert_eq!(requests.take().len(), WAITING_MAX);
        assert!(requests.ask(Request::EndRound).is_ok());
    }
}

//! Events outside the rounds: a request to the run, a clock jump seen by a node, or the master's
//! early end of a window.
//!
//! While a rank waits for the end of its window it checks here several times a second. A request
//! goes to the master, which sets an instant slightly in the future at which every node ends the
//! current window (ROUND_END); the following decision (ROUND_START) fulfils the request. The
//! instant is on the reference clock so that all windows end together, and far enough ahead that
//! every rank receives it in time.
//!
//! Two nodes by hand. Node 1 is 300 ms ahead. At 7.00 of the reference clock the master says: round
//! 5 ends at 7.25. Node 1 hears it at its 7.35 and ends its window at its 7.55, when the reference
//! shows 7.25.
//!
//! Time-based rounds have no master, and local windows no rounds: there only the end can be asked
//! for.

use std::time::{Duration as StdDuration, Instant};

use probe_sync_collective::Rank;
use probe_sync_lines::Round;
use probe_sync_sys::SystemClock;
use probe_sync_time::{Clock as _, Duration, NodeId, Reference, RoundId, Timestamp};

use super::decider::Decider;
use super::exchange::Exchange;
use super::messages::Word;
use super::node::Node;
use super::notes::Notes;
use super::request::{Asked, Request, Requests};
use super::window::WindowPlan;
use crate::Error;
use crate::config::RoundMode;
use crate::late::Said;
use crate::measure::stop::Stop;

/// One rank's part in requests and messages between rounds.
pub(super) struct Control {
    requests: Requests,
    notes: Notes,
    /// Requests that this rank has sent to the master, until a decision fulfils them.
    brought: Vec<Asked>,
    /// Round whose step was reported.
    step_told: Option<RoundId>,
    /// True if the end was reported, by a rank whose window does not report it.
    stop_told: bool,
    /// At the master: the round whose window ends early.
    ending: Option<RoundId>,
    /// At the master: when an anomaly last ended a window.
    anomaly: Option<Instant>,
    /// True if the master has changed, so that pending requests are sent again.
    again: bool,
    /// Messages about late ranks, for [`Control::late`].
    late: Vec<(Rank, Said)>,
}

/// State of a rank's rounds when it checks for messages.
pub(super) struct Here<'a, 'c> {
    pub mode: RoundMode,
    pub exchange: &'a mut Exchange<'c>,
    pub node: Option<&'a Node>,
    /// The rank's node, or the node that it follows.
    pub own: NodeId,
    pub decider: Option<&'a mut Decider>,
    pub stop: &'a Stop,
    pub window: &'a mut WindowPlan,
    pub last: Option<&'a Round>,
    /// The current round.
    pub round_id: RoundId,
}

impl Control {
    /// Creates the part of a rank that accepts requests.
    pub fn new(requests: Requests, notes: Notes, mode: RoundMode) -> Self {
        match mode {
            // A caller's context serves one session after the other.
            RoundMode::Master => requests.open(),
            RoundMode::Timed => {
                requests.close("timed rounds have no master to accept commands: use --rounds master");
            }
            RoundMode::Local => requests.close("this run has no rounds: use --rounds master"),
        }
        Self {
            requests,
            notes,
            brought: Vec::new(),
            step_told: None,
            stop_told: false,
            ending: None,
            anomaly: None,
            again: false,
            late: Vec::new(),
        }
    }

    /// Removes and returns the messages about late ranks received since the previous call.
    pub fn late(&mut self) -> Vec<(Rank, Said)> {
        std::mem::take(&mut self.late)
    }

    /// Records that the master has changed.
    pub fn ask_again(&mut self) {
        (self.again, self.stop_told, self.ending) = (true, false, None);
    }

    /// Answers the requests that this round's decision fulfils.
    pub fn follow(&mut self, round: &Round) {
        self.brought.retain(|asked| !asked.answered_by(round));
    }

    /// Records that the run ended after this round, without another decision.
    pub fn ended(&mut self, last: Option<&Round>) {
        self.brought.retain(|asked| !asked.answered_by_the_end(last));
    }

    /// Rejects all further requests.
    pub fn close(&mut self, reason: &str) {
        self.requests.close(reason);
        self.brought.drain(..).for_each(|asked| asked.refuse(reason));
    }
}

impl Here<'_, '_> {
    /// Returns the current time of the reference clock, if this rank's clock is known.
    fn reference_now(&self) -> Option<Timestamp<Reference>> {
        let own = self.last?.node(self.own).filter(|own| own.reachable)?;
        let now = self.node.map_or_else(|| SystemClock.now(), Node::now);
        Some((now - Duration::from_ns_f64(own.offset_ns)).on_reference())
    }
}

impl Control {
    /// Sends this rank's requests to the master, and processes received messages.
    ///
    /// # Errors
    /// Returns an error if the backend has failed.
    pub fn look(&mut self, here: &mut Here<'_, '_>) -> Result<(), Error> {
        if std::mem::take(&mut self.again) {
            for asked in std::mem::take(&mut self.brought) {
                self.ask(asked, here)?;
            }
        }
        for asked in self.requests.take() {
            self.ask(asked, here)?;
        }
        self.tell_of_own(here)?;
        self.say_notes(here)?;
        for (rank, word) in here.exchange.words()? {
            match word {
                Word::Asks(request) => self.heard(rank, &request, here)?,
                Word::RoundEnds { round_id, at } if round_id == here.round_id => here.window.end_at(at),
                // One that comes late: that window has ended.
                Word::RoundEnds { .. } => {}
                Word::RunEnds => here.stop.raise(),
                Word::Note(note) => self.notes.hear(rank, note),
                Word::Arrivals(word) => self.late.push((rank, Said::Arrivals(word))),
                Word::Late(word) => self.late.push((rank, Said::Standing(word))),
                Word::HangRequest(number) => self.late.push((rank, Said::HangRequest(number))),
                Word::HangAnswer(number, answer) => self.late.push((rank, Said::HangAnswer(number, answer))),
            }
        }
        Ok(())
    }

    /// Sends a request with a waiting caller to the master; refuses it if too many are pending.
    fn ask(&mut self, asked: Asked, here: &mut Here<'_, '_>) -> Result<(), Error> {
        if self.brought.len() < BROUGHT_MAX {
            self.bring(&asked.request, here)?;
            self.brought.push(asked);
        } else {
            asked.refuse("too many requests are pending");
        }
        Ok(())
    }

    /// Sends the notes of callers.
    fn say_notes(&mut self, here: &mut Here<'_, '_>) -> Result<(), Error> {
        for note in self.notes.take(here.exchange.at_root()) {
            here.exchange.say(&Word::Note(note))?;
        }
        Ok(())
    }

    /// Sends this rank's own reports.
    fn tell_of_own(&mut self, here: &mut Here<'_, '_>) -> Result<(), Error> {
        let stepped = here.node.filter(|node| node.stepped()).map(Node::id);
        if let (true, Some(node)) = (here.mode.has_master(), stepped)
            && self.step_told != Some(here.round_id)
        {
            self.bring(&Request::Anomaly(format!("the system clock of node {node} was stepped")), here)?;
            self.step_told = Some(here.round_id);
        }
        // A node tells with its window that it was asked to end the run; where there are no windows
        // to tell it with, this does.
        let silent = !here.mode.has_rounds() || here.node.is_none();
        if silent && here.stop.raised() && !self.stop_told {
            self.bring(&Request::Stop, here)?;
            self.stop_told = true;
        }
        Ok(())
    }

    /// Sends a request to the master.
    fn bring(&mut self, request: &Request, here: &mut Here<'_, '_>) -> Result<(), Error> {
        if here.exchange.at_root() {
            return self.heard(here.exchange.root(), request, here);
        }
        here.exchange.say(&Word::Asks(request.clone()))
    }

    /// Processes a request, at the root.
    fn heard(&mut self, rank: Rank, request: &Request, here: &mut Here<'_, '_>) -> Result<(), Error> {
        if !here.mode.has_rounds() {
            if *request == Request::Stop {
                here.stop.raise();
                here.exchange.say(&Word::RunEnds)?;
            }
            return Ok(());
        }
        // In time-based rounds everybody learns of the end by the windows.
        let Some(decider) = here.decider.as_mut().filter(|_| here.mode.has_master()) else { return Ok(()) };
        decider.take(request);
        if let Request::Anomaly(what) = request {
            let now = Instant::now();
            if self.anomaly.is_some_and(|last| now - last < ANOMALY_EVERY) {
                return Ok(());
            }
            self.anomaly = Some(now);
            tracing::warn!("round {} ends early: {what}", here.round_id);
        } else {
            tracing::info!("rank {rank} requests {request}; effective in round {}", here.round_id);
        }
        self.end_window_soon(here)
    }

    /// At the master: ends the current window on all nodes together, if they have a common clock by
    /// now and it would not end as soon by itself.
    fn end_window_soon(&mut self, here: &mut Here<'_, '_>) -> Result<(), Error> {
        if self.ending == Some(here.round_id) || here.window.closing() {
            return Ok(());
        }
        let Some((now, last)) = here.reference_now().zip(here.last) else { return Ok(()) };
        let at = (now + LEAD).max(last.window_end + SHORTEST);
        if at >= last.decision.next_window_end {
            return Ok(());
        }
        self.ending = Some(here.round_id);
        here.exchange.say(&Word::RoundEnds { round_id: here.round_id, at })?;
        here.window.end_at(at);
        Ok(())
    }
}

/// Most requests of this rank that wait for a decision.
const BROUGHT_MAX: usize = 256;

/// Time between two checks.
pub(super) const LOOK: Duration = Duration::from_ms(100);

/// How long in advance the end of a window is announced: two checks and the transmission.
const LEAD: Duration = Duration::from_ms(250);

/// Shortest window that a request can cause.
const SHORTEST: Duration = Duration::from_ms(250);

/// Shortest time between windows ended by anomalies, so that a clock that jumps repeatedly does not
/// keep all windows short.
const ANOMALY_EVERY: StdDuration = StdDuration::from_secs(10);

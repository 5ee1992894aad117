//! The round loop (Variant B, master-controlled): windows are cut, edges fitted, gathered, solved, broadcast.
//!
//! Windows tile time: where one is cut the next begins, and probing never pauses. Round k, window k:
//! 1. [`node`]: every node waits for the window's end, cuts it and fits its edges;
//! 2. [`exchange`]: the windows of all nodes go to the master;
//! 3. [`master`]: it solves the graph, decides the next window, and keeps both;
//! 4. [`exchange`]: the solved round goes to all ranks, identical bytes;
//! 5. every node follows the decision.
//!
//! This file joins the parts. What it does not do: set up a run (`session`), estimate (crate `estimate`).

mod attendants;
pub(crate) mod exchange;
pub(crate) mod master;
pub(crate) mod node;

use std::time::{Duration as StdDuration, Instant};

use probe_sync_estimate::round::GlobalWindowData;
use probe_sync_sys::clock;
use probe_sync_time::{Duration, NodeId, RoundId, System, Timestamp};

use self::exchange::{Broadcast, Exchange};
use self::master::{Ended, Master};
use self::node::{Node, WindowPlan};
use crate::Error;
use crate::clock::Feed;
use crate::join::Joined;
use crate::measure::account::RankAccount;
use crate::measure::prober::{FINISH_LIMIT, end_limit};
use crate::measure::stop::Stop;
use crate::pace::Pace;
use crate::report::Observed;
use crate::report::parts::{Part, Parts};

/// One rank's rounds.
pub(crate) struct Rounds<'c> {
    exchange: Exchange<'c>,
    /// Where this rank is a node.
    node: Option<Node>,
    /// At the root.
    master: Option<Master>,
    /// Whether the node starts no exchanges for the time being.
    paused: bool,
    /// Keeps global clocks right, where some are wanted.
    feed: Option<Feed>,
    stop: Stop,
    /// The round under way.
    round_id: RoundId,
    window: WindowPlan,
    pace: Pace,
    configured_window: Duration,
    /// How long a node lets its exchanges end.
    end_limit: StdDuration,
    last: Option<Box<GlobalWindowData>>,
    ended: bool,
    begun: (Instant, StdDuration),
    /// When the root decided on the window under way, on its node's clock.
    decided_at: Option<(NodeId, Timestamp<System>)>,
}

impl<'c> Rounds<'c> {
    /// The rounds of a run that begins now.
    pub fn new(
        joined: &Joined,
        exchange: Exchange<'c>,
        node: Option<Node>,
        master: Option<Master>,
        feed: Option<Feed>,
        stop: Stop,
    ) -> Self {
        let pace = Pace::configured(&joined.config);
        let start = pace.decision(joined.roster.start.on_reference(), false);
        Self {
            exchange,
            node,
            master,
            paused: false,
            feed,
            stop,
            round_id: RoundId::default(),
            window: WindowPlan::first(&start, joined.config.first_window),
            configured_window: pace.window,
            end_limit: end_limit(joined.config.exchange_timeout),
            pace,
            last: None,
            ended: false,
            begun: (Instant::now(), clock::process_cpu_time()),
            decided_at: None,
        }
    }

    /// Goes through the next round; false, and nothing happens, when the run has ended.
    ///
    /// # Errors
    /// The first error; finished rounds are in the files by then.
    pub fn advance(&mut self) -> Result<bool, Error> {
        if self.ended {
            return Ok(false);
        }
        let round_id = self.round_id;
        // Signed, as the integers of OpenTelemetry are: others arrive there as text.
        let (number, rank) = (round_id.0 as i64, self.exchange.rank() as i64);
        let _span = tracing::debug_span!("round", round_id = number, rank).entered();
        let mut parts = Parts::default();
        if self.feed.is_some() {
            parts.time(Part::Wait, || self.read_clocks())?;
        }
        let (own, closed) = match &mut self.node {
            Some(node) => {
                let closed = node.close_window(round_id, &self.window, &self.stop, &mut parts);
                closed.map(|(data, at)| (Some(data), at))?
            }
            None => (None, Instant::now()),
        };
        let windows = parts.time(Part::Gather, || self.exchange.gather(own.as_ref(), self.pace.window))?;
        let decided = match &mut self.master {
            Some(master) => {
                let stop = self.stop.raised();
                let back = master.attend(round_id, &mut self.exchange)?;
                let ended = Ended { round_id, length: self.window.length(), closed, pace: &self.pace, stop };
                Some(master.solve(ended, &windows, back, &mut parts)?)
            }
            None => None,
        };
        let decided_at = self.node.as_ref().map(|node| (node.id(), node.now()));
        let broadcast = || self.exchange.broadcast(decided.as_ref(), round_id, self.pace.window);
        let broadcast = parts.time(Part::Broadcast, broadcast)?;
        if !self.follow(broadcast)? {
            return Ok(false);
        }
        // Last: a slow disk must not keep this node back from the pace that the others have already.
        if let Some(master) = &mut self.master {
            let [gathered_bytes, decision_bytes] = self.exchange.message_bytes();
            let (traffic, decided) = (self.exchange.traffic(), std::mem::replace(&mut self.decided_at, decided_at));
            master.after_broadcast(&Observed {
                windows: &windows,
                parts,
                gathered_bytes,
                decision_bytes,
                traffic,
                decided,
            });
        }
        Ok(true)
    }

    /// Starts exchanges on this rank, or none for the time being.
    pub fn pause(&mut self, paused: bool) {
        if let Some(node) = self.node.as_mut().filter(|_| paused != self.paused) {
            node.set_probing(!paused);
            self.paused = paused;
        }
    }

    /// Takes part again in rounds under way, of which `latest` is the latest.
    ///
    /// # Errors
    /// When its decision cannot be followed.
    pub fn again(mut self, latest: Broadcast) -> Result<Self, Error> {
        self.follow(latest)?;
        Ok(self)
    }

    /// Makes ready for the round after the one that was broadcast; false when none comes.
    fn follow(&mut self, broadcast: Broadcast) -> Result<bool, Error> {
        let Broadcast::Solved(round, back) = broadcast else {
            self.ended = true;
            return Ok(false);
        };
        self.ended = round.decision.stop;
        if let Some(feed) = &mut self.feed {
            feed.follow(&round);
        }
        if let Some(node) = &mut self.node {
            back.iter().for_each(|back| node.meet_again(back));
        }
        if !self.ended {
            self.pace = Pace::decided(&round.decision);
            if let Some(node) = &mut self.node {
                node.follow(&self.pace)?;
            }
            self.window = WindowPlan::following(&round, self.node.as_ref().map(Node::id));
            self.round_id = round.round_id.next();
        }
        self.last = Some(round);
        Ok(true)
    }

    /// Waits for the middle of the window and reads the clocks there, for the global clock.
    fn read_clocks(&mut self) -> Result<(), Error> {
        let Some(feed) = &mut self.feed else { return Ok(()) };
        match &mut self.node {
            Some(node) => node.wait_for_middle(&self.window, &self.stop)?,
            // The other ranks' windows have just begun.
            None => self.stop.sleep(Duration::from_ns(self.window.length().as_ns() / 2)),
        }
        feed.read_clocks();
        Ok(())
    }

    /// Ends the run on all ranks with the window under way.
    pub fn end_early(&self) {
        self.stop.raise();
    }

    /// Whether this rank was asked to end the run.
    pub fn stop_asked(&self) -> bool {
        self.stop.raised()
    }

    /// The last solved round.
    pub fn last(&self) -> Option<&GlobalWindowData> {
        self.last.as_deref()
    }

    /// Nothing comes any more: tells who reads the global clocks.
    pub fn leave_clocks(&mut self, failed: bool) {
        if let Some(feed) = &mut self.feed {
            feed.end(failed);
        }
    }

    /// Whether the last round has been.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// The master, at the root.
    pub fn master(&self) -> Option<&Master> {
        self.master.as_ref()
    }

    /// Whether a signal came that the launcher lets a kill follow.
    pub fn killed_soon(&self) -> bool {
        self.exchange.signals_reach_all() && self.stop.of_caller().load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Takes the master out: nothing is solved after this.
    pub fn take_master(&mut self) -> Option<Master> {
        self.master.take()
    }

    /// Ends probing everywhere, lets the network drain, and brings every rank's account to the root (elsewhere the result
    /// is empty). Nobody counts before everybody has ended its exchanges: what one sent and another received then compares exactly.
    ///
    /// # Errors
    /// Names the rank that did not take part.
    pub fn settle(&mut self) -> Result<Vec<RankAccount>, Error> {
        let (instant, cpu) = self.begun;
        let wall_ns = instant.elapsed().as_nanos() as u64;
        let cpu_ns = clock::process_cpu_time().saturating_sub(cpu).as_nanos() as u64;
        if let Some(node) = &mut self.node {
            node.stop_probing();
        }
        self.exchange.let_nobody_back();
        self.exchange.meet(self.configured_window, StdDuration::ZERO)?;
        // Who still asks for a lost packet makes others count.
        self.node.as_mut().map(Node::let_end).transpose()?;
        self.exchange.meet(self.configured_window, self.end_limit)?;
        let account = self.node.take().map(Node::finish).transpose()?;
        let account = RankAccount { wall_ns, cpu_ns, ..account.unwrap_or_default() };
        let accounts = self.exchange.accounts(&account, self.configured_window, FINISH_LIMIT)?;
        if let Some(master) = &mut self.master {
            master.attend_the_end(self.round_id, &mut self.exchange);
        }
        Ok(accounts)
    }
}

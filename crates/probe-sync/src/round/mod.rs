//! The round loop: windows are cut, edges fitted, gathered, solved, and everybody goes on as was
//! decided.
//!
//! Windows tile time: where one is cut the next begins, and probing never pauses. Round k, window
//! k, master-controlled (Variant B):
//! 1. [`window`] says when it ends; the master may end it earlier ([`control`]);
//! 2. [`node`]: every node cuts it and fits its edges;
//! 3. [`exchange`]: the windows of all nodes go to the master;
//! 4. [`decider`]: it solves the graph and decides the next window; [`keeper`] keeps both;
//! 5. [`exchange`]: the solved round goes to all ranks;
//! 6. every node follows the decision.
//!
//! Time-based (Variant A): 3. all windows go to all ranks, 4. every rank has a decider, and all
//! come to the same; 5. falls away. Local: only 1. and 2.

mod attendants;
mod control;
pub(crate) mod decider;
pub(crate) mod exchange;
pub(crate) mod keeper;
mod lateness;
pub(crate) mod messages;
pub(crate) mod node;
pub(crate) mod notes;
mod recorded;
pub(crate) mod request;
mod returning;
mod settle;
pub(crate) mod side;
pub(crate) mod standby;
mod succession;
mod window;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as StdDuration, Instant};

use probe_sync_lines::{NodeWindow, Round};
use probe_sync_sys::{SystemClock, clock};
use probe_sync_time::{Clock as _, Duration, NodeId, RoundId, System, Timestamp};

use self::control::{Control, Here};
use self::decider::{Decided, Decider, Ended, MasterTime};
use self::exchange::Exchange;
use self::keeper::Keeper;
use self::messages::{Broadcast, Told};
use self::node::Node;
use self::notes::Notes;
use self::request::{Request, Requests};
use self::side::Side;
use self::standby::{Present, Shadow, Standby};
use self::window::WindowPlan;
use crate::Error;
use crate::clock::{Feed, Timeline};
use crate::config::RoundMode;
use crate::join::Joined;
use crate::measure::prober::end_limit;
use crate::measure::stop::Stop;
use crate::pace::Pace;
use crate::report::Observed;
use crate::report::parts::{Part, Parts};

/// One rank's rounds.
pub(crate) struct Rounds<'c> {
    mode: RoundMode,
    exchange: Exchange<'c>,
    /// The node of this rank, if it is one.
    node: Option<Node>,
    /// The rank's node, or the node that it follows.
    own: NodeId,
    /// Decides rounds: at the master, or on every rank.
    decider: Option<Box<Decider>>,
    /// The records, at the root.
    keeper: Option<Box<Keeper>>,
    /// The standby, on the rank that takes over if the master is lost.
    standby: Option<Box<Standby>>,
    /// On all potential successors: which ranks are present.
    attendants: Option<Present>,
    /// In time-based rounds: the windows from which the last round was solved.
    last_windows: Vec<NodeWindow>,
    joined: Arc<Joined>,
    control: Control,
    /// Whether the node starts exchanges.
    probing: Probing,
    /// Keeps global clocks up to date, if there are any.
    feed: Option<Feed>,
    timeline: Timeline,
    stop: Stop,
    /// The owner's flag: raised while the node must not start exchanges.
    pause: Arc<AtomicBool>,
    /// The current round.
    round_id: RoundId,
    window: WindowPlan,
    pace: Pace,
    configured_window: Duration,
    /// Duration of a run with windows but no rounds.
    duration: Option<Duration>,
    /// How long a node waits for its exchanges to end.
    end_limit: StdDuration,
    /// The last broadcast received by this rank.
    last: Option<Box<Told>>,
    ended: bool,
    begun: (Instant, StdDuration),
    /// Start of the run on the master's clock.
    masters_begin: Instant,
    /// Detection of late ranks.
    side: Arc<Side>,
    /// When the root decided on the current window, on its node's clock.
    decided_at: Option<(NodeId, Timestamp<System>)>,
}

/// What a rank needs for its rounds besides the connection to the others.
pub(crate) struct Setup {
    pub node: Option<Node>,
    /// The rank's node, or the node that it follows.
    pub own: NodeId,
    pub decider: Option<Box<Decider>>,
    pub keeper: Option<Box<Keeper>>,
    /// If this rank is a potential successor and its rounds do not convey it: which ranks are
    /// present.
    pub attendants: Option<Present>,
    pub feed: Option<Feed>,
    pub stop: Stop,
    pub pause: Arc<AtomicBool>,
    pub requests: Requests,
    pub notes: Notes,
    /// At a region's master: the state of its clock in the run among the masters.
    pub timeline: Timeline,
    pub side: Arc<Side>,
}

/// Reasons why a node does not start exchanges.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Probing {
    /// Paused by this rank's owner.
    paused_here: bool,
    /// Paused by the decision.
    paused_everywhere: bool,
}

impl<'c> Rounds<'c> {
    /// Creates the rounds of a run that begins now.
    pub fn new(joined: &Arc<Joined>, mut exchange: Exchange<'c>, setup: Setup) -> Self {
        let Setup { node, own, decider, keeper, attendants, feed, stop, pause, requests, notes, timeline, side } =
            setup;
        exchange.work_while_waiting(side.clone());
        let (mode, pace) = (joined.config.rounds, Pace::configured(&joined.config));
        let start = pace.decision(joined.roster.start.on_reference(), false);
        let first = pace.window.min(joined.config.first_window.unwrap_or(pace.window));
        // Until its offset is known a node takes its own clock for the reference's.
        let now = node.as_ref().map_or_else(|| SystemClock.now(), Node::now).on_reference();
        let end = mode.all_solve().then(|| decider::on_the_grid(now, first).of_reference_node());
        Self {
            mode,
            exchange,
            node,
            own,
            decider,
            keeper,
            standby: None,
            attendants,
            last_windows: Vec::new(),
            joined: Arc::clone(joined),
            control: Control::new(requests, notes, mode),
            probing: Probing::default(),
            feed,
            timeline,
            stop,
            pause,
            round_id: RoundId::default(),
            window: WindowPlan::first(&start, joined.config.first_window, end),
            configured_window: pace.window,
            duration: joined.config.duration,
            end_limit: end_limit(joined.config.exchange_timeout),
            pace,
            last: None,
            ended: false,
            begun: (Instant::now(), clock::process_cpu_time()),
            masters_begin: Instant::now(),
            side,
            decided_at: None,
        }
    }

    /// Runs the next round; returns false, without effect, if the run has ended. Without rounds it
    /// returns at the end of the run.
    ///
    /// # Errors
    /// The first error; the results of finished rounds are in the files by then.
    pub fn advance(&mut self) -> Result<bool, Error> {
        while !self.ended {
            let paused_here = self.pause.load(Ordering::Relaxed);
            self.set_probing(Probing { paused_here, ..self.probing });
            // Signed, as the integers of OpenTelemetry are: others arrive there as text.
            let (number, rank) = (self.round_id.0 as i64, self.exchange.rank() as i64);
            let _span = tracing::debug_span!("round", round_id = number, rank).entered();
            let _scope = probe_sync_record::scope!("round", round = self.round_id.0);
            let mut parts = Parts::of(self.numbers());
            let (own, closed) = self.end_window(&mut parts)?;
            if self.mode.has_rounds() {
                return self.round(own.as_ref(), closed, &mut parts);
            }
            self.no_round();
        }
        Ok(false)
    }

    /// Waits until the window has ended, reading the clocks in its middle, and cuts it if this rank
    /// is a node.
    fn end_window(&mut self, parts: &mut Parts) -> Result<(Option<NodeWindow>, Instant), Error> {
        parts.time(Part::Wait, || self.wait_for_end())?;
        let retries = self.exchange.traffic().retries;
        let Some(node) = &mut self.node else { return Ok((None, Instant::now())) };
        let (data, closed) =
            parts.time(Part::Fit, || node.close_window(self.round_id, self.window.end(), &self.stop, retries))?;
        Ok((Some(data), closed))
    }

    fn wait_for_end(&mut self) -> Result<(), Error> {
        if self.feed.is_some() {
            self.wait_for(|plan| Duration::from_ns(plan.length().as_ns() / 2))?;
        }
        if let Some(feed) = &mut self.feed {
            feed.read_clocks();
        }
        self.wait_for(|_| Duration::ZERO)?;
        match &mut self.node {
            Some(node) => node.missing(&self.stop).map_or(Ok(()), |more| node.sleep(more, &Stop::default())),
            None => Ok(()),
        }
    }

    /// Waits until this much of the window is left, processing requests meanwhile; a stop cuts the
    /// wait short.
    fn wait_for(&mut self, left_over: impl Fn(&WindowPlan) -> Duration) -> Result<(), Error> {
        loop {
            self.look()?;
            if self.exchange.master_has_gone() {
                return Ok(());
            }
            let now = self.node.as_ref().map(Node::now);
            let left = self.window.remaining(now) - left_over(&self.window);
            let cut = self.stop.raised() && !self.window.closing();
            if left <= Duration::ZERO || cut {
                return Ok(());
            }
            let (nap, never) = (left.min(control::LOOK), Stop::default());
            let stop = if self.window.closing() { &never } else { &self.stop };
            match &mut self.node {
                Some(node) => node.sleep(nap, stop)?,
                None => stop.sleep(nap),
            }
        }
    }

    /// Sends this rank's requests to the master, and processes received messages.
    fn look(&mut self) -> Result<(), Error> {
        self.exchange.hear_again(self.side.kept());
        let mut here = Here {
            mode: self.mode,
            exchange: &mut self.exchange,
            node: self.node.as_ref(),
            own: self.own,
            decider: self.decider.as_deref_mut(),
            stop: &self.stop,
            window: &mut self.window,
            last: self.last.as_ref().map(|told| &told.round),
            round_id: self.round_id,
        };
        self.control.look(&mut here)?;
        self.look_for_late()
    }

    /// Runs one round with the current master, or with its successor if it is lost meanwhile.
    fn round(&mut self, own: Option<&NodeWindow>, closed: Instant, parts: &mut Parts) -> Result<bool, Error> {
        let (round_id, mut masters_lost) = (self.round_id, Vec::new());
        // Bounded: every time round there is one rank less to be the master.
        loop {
            let done = if self.mode.all_solve() {
                self.round_of_all(own, closed, parts)
            } else {
                self.round_with_master(own, closed, parts)
            };
            let mut error = match done {
                Err(error) if self.exchange.master_is_lost(&error) && !self.exchange.master_is_there(&error) => error,
                other => return other,
            };
            // The next one may be lost while it takes over.
            loop {
                let lost = self.exchange.root();
                let Err(next) = self.go_on_without_master(&error, &masters_lost) else {
                    masters_lost.push(lost);
                    break;
                };
                if !self.exchange.master_is_lost(&next) {
                    return Err(next);
                }
                masters_lost.push(lost);
                error = next;
            }
            if self.ended || self.round_id != round_id {
                return Ok(!self.ended);
            }
        }
    }

    fn round_with_master(
        &mut self,
        own: Option<&NodeWindow>,
        closed: Instant,
        parts: &mut Parts,
    ) -> Result<bool, Error> {
        let windows = parts.time(Part::Gather, || self.exchange.gather(own, self.pace.window))?;
        // What was asked before the last window came is decided with it.
        self.look()?;
        let (mut decided, mut standby) = (None, None);
        if let (Some(keeper), Some(decider)) = (&mut self.keeper, &mut self.decider) {
            let before = keeper.here();
            let back = keeper.attend(self.round_id, &mut self.exchange)?;
            let here = keeper.here();
            self.exchange.check_not_superseded(before, here)?;
            standby = self.exchange.standby(|rank| keeper.is_steady(rank));
            let (attendants, away) = (keeper.for_successors(), keeper.away());
            if self.stop.raised() && !decider.asked() {
                decider.take(&Request::Stop);
            }
            let time = MasterTime { begun: self.masters_begin.elapsed(), closed: closed.elapsed() };
            let requests = decider.taken();
            let ended = Broadcast::Ended { round_id: self.round_id };
            decided = Some(self.decide(&windows, closed, Some(time), parts)?.map_or(ended, |round| {
                let shadow = standby.map(|_| Shadow { windows: windows.clone(), time, requests });
                let above = self.timeline.with(&round);
                Broadcast::Solved(Box::new(Told { round: *round, back, away, shadow, attendants, above }))
            }));
        }
        let decided_at = self.node.as_ref().map(|node| (node.id(), node.now()));
        let broadcast = || self.exchange.broadcast(decided, standby, self.round_id, self.pace.window);
        let broadcast = parts.time(Part::Broadcast, broadcast)?;
        self.follow_and_finish(broadcast, &windows, decided_at, parts)
    }

    fn round_of_all(&mut self, own: Option<&NodeWindow>, closed: Instant, parts: &mut Parts) -> Result<bool, Error> {
        let allgather = || self.exchange.allgather(own, self.round_id, self.pace.window);
        let (windows, here) = parts.time(Part::Gather, allgather)?;
        if let Some(keeper) = &mut self.keeper {
            let before = keeper.here();
            keeper.take_down(self.round_id, &mut self.exchange);
            self.exchange.check_not_superseded(before, keeper.here())?;
        }
        if let Some(attendants) = &mut self.attendants {
            attendants.away = here.iter().map(|here| !here).collect();
        }
        let solved = self.decide(&windows, closed, None, parts)?;
        let decided_at = self.node.as_ref().map(|node| (node.id(), node.now()));
        let ended = Broadcast::Ended { round_id: self.round_id };
        let away = (0..here.len()).filter(|rank| !here[*rank]).collect();
        let broadcast = solved.map_or(ended, |round| Broadcast::solved(*round, Vec::new(), away));
        let goes_on = self.follow_and_finish(broadcast, &windows, decided_at, parts)?;
        self.last_windows = windows;
        Ok(goes_on)
    }

    /// Keeps the length of the window; the run ends when its time is over or on request.
    fn no_round(&mut self) {
        let half = self.configured_window.to_std() / 2;
        let over = self.duration.is_some_and(|duration| self.begun.0.elapsed() + half >= duration.to_std());
        self.ended = over || self.stop.raised();
        self.round_id = self.round_id.next();
        let next = self.pace.decision(SystemClock.now().on_reference(), false);
        self.window = WindowPlan::first(&next, None, None);
    }

    /// Solves the round if this rank decides, and records it at the root; `None` if the run ends
    /// without it. `master` holds the master's times.
    fn decide(
        &mut self,
        windows: &[NodeWindow],
        closed: Instant,
        master: Option<MasterTime>,
        parts: &mut Parts,
    ) -> Result<Option<Box<Round>>, Error> {
        let Some(decider) = &mut self.decider else { return Ok(None) };
        let ended = Ended { round_id: self.round_id, length: self.window.length(), pace: &self.pace, master };
        let Decided::Solved(solved) = parts.time(Part::Solve, || decider.decide(&ended, windows))? else {
            return Ok(None);
        };
        let data = Box::new(solved.data.clone());
        if let Some(keeper) = &mut self.keeper {
            parts.time(Part::Record, || keeper.record(*solved, closed.elapsed()));
        }
        Ok(Some(data))
    }

    fn follow_and_finish(
        &mut self,
        broadcast: Broadcast,
        windows: &[NodeWindow],
        decided_at: Option<(NodeId, Timestamp<System>)>,
        parts: &Parts,
    ) -> Result<bool, Error> {
        if !self.follow(broadcast)? {
            return Ok(false);
        }
        // Last: a slow disk must not keep this node back from the pace that the others have
        // already.
        if let Some(keeper) = &mut self.keeper {
            let [gathered_bytes, decision_bytes] = self.exchange.message_bytes();
            let (traffic, decided) = (self.exchange.traffic(), std::mem::replace(&mut self.decided_at, decided_at));
            let parts = *parts;
            keeper.after_broadcast(&Observed { windows, parts, gathered_bytes, decision_bytes, traffic, decided });
        }
        Ok(true)
    }

    fn set_probing(&mut self, probing: Probing) {
        let runs = |probing: Probing| !probing.paused_here && !probing.paused_everywhere;
        if let Some(node) = self.node.as_mut().filter(|_| runs(probing) != runs(self.probing)) {
            node.set_probing(runs(probing));
        }
        self.probing = probing;
    }

    /// Prepares for the round after the one that was broadcast; returns false if there is none.
    fn follow(&mut self, broadcast: Broadcast) -> Result<bool, Error> {
        let Broadcast::Solved(mut told) = broadcast else {
            self.ended = true;
            self.control.ended(self.last.as_ref().map(|told| &told.round));
            return Ok(false);
        };
        self.attendants = told.attendants.take().or(self.attendants.take());
        let (round, shadow) = (&told.round, told.shadow.take());
        self.ended = round.decision.stop;
        if let Some(feed) = &mut self.feed {
            feed.follow(round, told.above.as_ref());
        }
        if let Some(node) = &mut self.node {
            told.back.iter().for_each(|back| node.meet_again(back));
        }
        self.control.follow(round);
        self.follow_late(round);
        let (length, pace) = (self.window.length(), self.pace.clone());
        if !self.ended {
            self.set_probing(Probing { paused_everywhere: round.decision.paused, ..self.probing });
            self.pace = Pace::decided(&round.decision);
            if let Some(node) = &mut self.node {
                node.follow(&self.pace)?;
            }
            self.window = WindowPlan::following(round, self.node.as_ref().map(Node::id));
            self.round_id = round.round_id.next();
        }
        // Last: the window under way does not wait for it.
        if let Some(shadow) = shadow.filter(|_| self.keeper.is_none()) {
            let standby = self.standby.get_or_insert_with(|| Box::new(Standby::new(&self.joined)));
            standby.follow(shadow, round, length, &pace);
        }
        self.last = Some(told);
        Ok(true)
    }

    /// Ends the run on all ranks with the current window.
    pub fn end_early(&self) {
        self.stop.raise();
    }

    /// Returns the last solved round.
    pub fn last(&self) -> Option<&Round> {
        self.last.as_ref().map(|told| &told.round)
    }

    /// At the root: returns the time from the end of its own window to the last solved round.
    pub fn latency(&self) -> Option<StdDuration> {
        self.keeper.as_ref().map(|keeper| keeper.latency())
    }

    /// At the master: returns the ranks that are gone.
    pub fn away(&self) -> Vec<probe_sync_collective::Rank> {
        self.keeper.as_ref().map_or_else(Vec::new, |keeper| keeper.away())
    }

    /// Returns the folder in which this rank continues after taking over from a lost master.
    pub fn taken_over_in(&self) -> Option<&Path> {
        self.keeper.as_ref()?.taken_over_in()
    }

    /// Ends all updates: informs readers of the global clocks, and callers with pending requests.
    pub fn leave(&mut self, failed: bool) {
        if let Some(feed) = &mut self.feed {
            feed.end(failed);
        }
        self.control.close("the run has ended");
    }

    /// Returns true if the last round is over.
    pub fn ended(&self) -> bool {
        self.ended
    }
}

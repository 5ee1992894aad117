//! The prober's half of the exchange, which starts exchanges on the node's out-edges in turn and
//! ends with eight timestamps.
//!
//! One exchange: `Pt1` at the start, `Pt2` one spacing later, `Pt3` as soon as both transmit stamps
//! are known, since it carries them; then wait for `Pr1 Pr2 Pr3` in any order, until the exchange
//! timeout. Several exchanges may be in flight, also to one peer: on a path of 2 ms with a gap of
//! 800 µs they must be. The table is bounded, and so is each peer's part of it: one that is dead
//! must not keep the others from being probed.
//!
//! # Loss
//! One packet of each direction is enough for an exchange. `Pr3`, which carries the responder's
//! stamps, is asked for again by repeating `Pt3`, a few times; the answer to a lost `Pt3` comes the
//! same way. When `Pr3` is there and a packet of the pair is not, it may only be late: the exchange
//! waits for it a little, then ends without it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use probe_sync_time::{Duration, Edge, Exchange, Monotonic, NodeId, RunId, Stamp, Timestamp};

use crate::counters::{EdgeWindowCounts, ExchangeCounters, Fate};
use crate::outbox::Outbox;
use crate::packet::{Kind, Packet, REPETITIONS_MAX, poorer};
use crate::schedule::Schedule;
use crate::seen::{Seen, SeenWindow, is_newer};

#[derive(Debug)]
pub(crate) struct Prober {
    run: RunId,
    node: NodeId,
    incarnation: u32,
    spacing: Duration,
    exchange_timeout: Duration,
    schedule: Schedule,
    next_start: Timestamp<Monotonic>,
    probing: bool,
    /// All edges that are or were probed, sorted by peer: fewer than the run has nodes.
    edges: Vec<OutEdge>,
    /// Indices of the edges that are probed at present.
    active: Vec<usize>,
    /// Index within `active` of the next edge.
    turn: usize,
    flights: BTreeMap<FlightKey, Flight>,
    alarms: BTreeSet<(Timestamp<Monotonic>, FlightKey, Alarm)>,
    finished: VecDeque<Exchange>,
    pub(crate) skipped_starts: u64,
    pub(crate) refused_starts: u64,
    pub(crate) unread_exchanges: u64,
}

/// Peer and sequence number.
type FlightKey = (NodeId, u32);

/// Purpose of an alarm. At the same instant, a pending second packet comes first and the timeout
/// last.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    Second,
    /// Stop waiting for packets of the pair.
    Settle,
    /// Repeat the third packet.
    Repeat,
    Timeout,
}

/// Why an exchange ended without a result.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    TimedOut,
    StampMissing,
    SendFailed,
}

#[derive(Debug)]
struct OutEdge {
    peer: NodeId,
    next_seq: u32,
    counters: ExchangeCounters,
    /// `counters` when the window was last cut.
    at_cut: ExchangeCounters,
}

#[derive(Debug)]
struct Flight {
    deadline: Timestamp<Monotonic>,
    /// Due times of the alarms, by [`Alarm`], without the timeout.
    due: [Option<Timestamp<Monotonic>>; 3],
    pt_tx: [Option<Stamp>; 2],
    /// Number of third packets sent.
    thirds: u8,
    pr_rx: [Option<Stamp>; 2],
    /// Content of the responder's third packet.
    responder: Option<Answer>,
}

/// The responder's stamps.
#[derive(Copy, Clone, Debug)]
struct Answer {
    tx: [Stamp; 2],
    /// Receive stamps of the packets that reached it.
    rx: [Option<Stamp>; 2],
}

/// Settings of the prober; checked by the endpoint.
pub(crate) struct ProberConfig {
    pub run: RunId,
    pub node: NodeId,
    pub incarnation: u32,
    pub out_edges: Vec<NodeId>,
    pub schedule: Schedule,
    pub spacing: Duration,
    pub exchange_timeout: Duration,
}

impl Prober {
    pub(crate) fn new(config: ProberConfig, now: Timestamp<Monotonic>) -> Self {
        let mut peers = config.out_edges;
        peers.sort_unstable();
        // Starting with the next higher peer spreads the nodes: from the lowest, all would probe
        // node 0 first.
        let turn = peers.partition_point(|peer| *peer < config.node);
        Self {
            run: config.run,
            node: config.node,
            incarnation: config.incarnation,
            spacing: config.spacing,
            exchange_timeout: config.exchange_timeout,
            schedule: config.schedule,
            next_start: config.schedule.next_after(now),
            probing: true,
            turn: if turn < peers.len() { turn } else { 0 },
            active: (0..peers.len()).collect(),
            edges: peers.into_iter().map(OutEdge::new).collect(),
            flights: BTreeMap::new(),
            alarms: BTreeSet::new(),
            finished: VecDeque::new(),
            skipped_starts: 0,
            refused_starts: 0,
            unread_exchanges: 0,
        }
    }

    pub(crate) fn set_schedule(&mut self, schedule: Schedule, now: Timestamp<Monotonic>) {
        self.schedule = schedule;
        self.next_start = schedule.next_after(now);
    }

    /// Probes `peers` from now on. Edges no longer probed are kept: the peer still remembers their
    /// sequence numbers, which must not be reused, and exchanges in flight still end.
    pub(crate) fn set_out_edges(&mut self, peers: &[NodeId], now: Timestamp<Monotonic>) {
        let next = self.active.get(self.turn).and_then(|at| self.edges.get(*at)).map(|edge| edge.peer);
        let idle = self.active.is_empty();
        for peer in peers {
            if let Err(place) = self.edges.binary_search_by_key(peer, |edge| edge.peer) {
                self.edges.insert(place, OutEdge::new(*peer));
            }
        }
        let probed = |(_, edge): &(usize, &OutEdge)| peers.contains(&edge.peer);
        self.active = self.edges.iter().enumerate().filter(probed).map(|(at, _)| at).collect();
        // The turn goes on where it was, or with the next higher peer.
        let next = next.unwrap_or(self.node);
        let turn = self.active.partition_point(|at| self.edges.get(*at).is_some_and(|edge| edge.peer < next));
        self.turn = if turn < self.active.len() { turn } else { 0 };
        if idle {
            self.next_start = self.schedule.next_after(now);
        }
    }

    pub(crate) fn set_probing(&mut self, probing: bool, now: Timestamp<Monotonic>) {
        if probing && !self.probing {
            self.next_start = self.schedule.next_after(now);
        }
        self.probing = probing;
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    pub(crate) fn next_timer(&self) -> Option<Timestamp<Monotonic>> {
        let start = (self.probing && !self.active.is_empty()).then_some(self.next_start);
        let alarm = self.alarms.first().map(|(due, ..)| *due);
        start.into_iter().chain(alarm).min()
    }

    /// Runs every alarm that is due, then starts at most one burst of exchanges.
    pub(crate) fn handle_timer(&mut self, now: Timestamp<Monotonic>, outbox: &mut Outbox) {
        // Bounded: each turn removes an alarm, and the one that sets another sets it later than
        // now.
        while let Some(&(due, key, alarm)) = self.alarms.first() {
            if due > now {
                break;
            }
            self.alarms.pop_first();
            if let Some(flight) = self.flights.get_mut(&key).filter(|_| alarm != Alarm::Timeout) {
                flight.due[alarm as usize] = None;
            }
            match alarm {
                Alarm::Second => self.send_coded(key, Kind::Pt2, outbox),
                Alarm::Settle => self.finish(key),
                Alarm::Repeat => self.send_third(key, now, outbox),
                Alarm::Timeout => self.lose(key, Loss::TimedOut),
            }
        }
        if self.probing && !self.active.is_empty() && now >= self.next_start {
            self.skipped_starts += self.schedule.missed(self.next_start, now);
            self.next_start = self.schedule.next_after(now);
            let burst = self.schedule.burst().min(BURST_MAX);
            for number in 0..burst {
                self.start(now, outbox);
                if !self.schedule.is_train() || number + 1 == burst {
                    self.turn = (self.turn + 1) % self.active.len();
                }
            }
        }
    }

    /// Processes a `Pr` packet.
    pub(crate) fn handle_packet(
        &mut self,
        packet: &Packet,
        received: Stamp,
        now: Timestamp<Monotonic>,
        seen: &mut SeenWindow,
    ) -> Fate {
        let key = (packet.src, packet.seq);
        let started = self.edge(packet.src).is_some_and(|edge| is_newer(edge.next_seq, packet.seq));
        if !started || packet.incarnation != self.incarnation {
            return Fate::OutOfState;
        }
        if self.flights.get(&key).is_some_and(|flight| flight.deadline <= now) {
            // The timer has not run yet, but the exchange is over all the same.
            self.lose(key, Loss::TimedOut);
        }
        let flight = self.flights.get_mut(&key);
        if flight.as_ref().is_some_and(|flight| flight.thirds == 0) {
            return Fate::OutOfState;
        }
        match seen.note(packet) {
            Seen::First => {}
            Seen::Duplicate => return Fate::Duplicate,
            Seen::Forgotten => return Fate::TooOld,
            Seen::FarAhead => return Fate::OutOfState,
        }
        let Some(flight) = flight else { return Fate::Late };
        flight.note(packet, received);
        self.look(key, now);
        Fate::Accepted
    }

    /// Processes the transmit stamp of a coded packet; returns false if no exchange waits for it.
    pub(crate) fn handle_tx_stamp(
        &mut self,
        key: FlightKey,
        place: usize,
        stamp: Stamp,
        now: Timestamp<Monotonic>,
        outbox: &mut Outbox,
    ) -> bool {
        let Some(flight) = self.flights.get_mut(&key) else { return false };
        let queued = place == 0 || flight.due[Alarm::Second as usize].is_none();
        let Some(slot) = flight.pt_tx.get_mut(place).filter(|slot| slot.is_none() && queued) else { return false };
        *slot = Some(stamp);
        if flight.pt_tx.iter().all(Option::is_some) && flight.thirds == 0 {
            self.send_third(key, now, outbox);
        }
        true
    }

    /// Gives up an exchange, unless it has already ended.
    pub(crate) fn lose(&mut self, key: FlightKey, loss: Loss) {
        if !self.remove(key) {
            return;
        }
        if let Some(edge) = self.edge_mut(key.0) {
            match loss {
                Loss::TimedOut => edge.counters.timed_out += 1,
                Loss::StampMissing => edge.counters.stamp_missing += 1,
                Loss::SendFailed => edge.counters.send_failed += 1,
            }
        }
    }

    pub(crate) fn poll_exchange(&mut self) -> Option<Exchange> {
        self.finished.pop_front()
    }

    /// Returns the counts of every out-edge since the last call, in order of peer. An edge no
    /// longer probed is included as long as it has something to report.
    pub(crate) fn cut_window(&mut self) -> Vec<EdgeWindowCounts> {
        let active = &self.active;
        let cut = |(at, edge): (usize, &mut OutEdge)| (active.binary_search(&at).is_ok(), edge.cut());
        let all = self.edges.iter_mut().enumerate().map(cut);
        all.filter(|(probed, counts)| *probed || counts.finished > 0 || counts.lost > 0).map(|(_, c)| c).collect()
    }

    pub(crate) fn edge_counters(&self) -> impl Iterator<Item = (NodeId, ExchangeCounters)> {
        self.edges.iter().map(|edge| (edge.peer, edge.counters))
    }

    fn start(&mut self, now: Timestamp<Monotonic>, outbox: &mut Outbox) {
        let Some(edge) = self.active.get(self.turn).and_then(|at| self.edges.get_mut(*at)) else { return };
        if self.flights.len() >= MAX_IN_FLIGHT || edge.counters.in_flight() >= MAX_PER_PEER {
            self.refused_starts += 1;
            return;
        }
        let key = (edge.peer, edge.next_seq);
        edge.next_seq = edge.next_seq.wrapping_add(1);
        edge.counters.started += 1;
        let flight = Flight::new(now + self.schedule.exchange_limit(self.exchange_timeout));
        self.alarms.insert((flight.deadline, key, Alarm::Timeout));
        self.flights.insert(key, flight);
        if self.spacing > Duration::ZERO {
            self.set_alarm(key, Alarm::Second, now + self.spacing);
        }
        self.send_coded(key, Kind::Pt1, outbox);
        if self.spacing == Duration::ZERO {
            self.send_coded(key, Kind::Pt2, outbox);
        }
    }

    /// Sends a packet of the coded pair, the second with the stamp of the first if known.
    fn send_coded(&mut self, key: FlightKey, kind: Kind, outbox: &mut Outbox) {
        let Some(flight) = self.flights.get(&key) else { return };
        let tx = if kind == Kind::Pt2 { [flight.pt_tx[0], None] } else { [None; 2] };
        self.send(key, kind, 0, tx, outbox);
    }

    /// Sends the third packet, or repeats it while there is no answer.
    fn send_third(&mut self, key: FlightKey, now: Timestamp<Monotonic>, outbox: &mut Outbox) {
        let Some(flight) = self.flights.get_mut(&key) else { return };
        if flight.responder.is_some() || flight.thirds > REPETITIONS_MAX {
            return;
        }
        let (repetition, tx) = (flight.thirds, flight.pt_tx);
        flight.thirds += 1;
        if repetition < REPETITIONS_MAX {
            self.set_alarm(key, Alarm::Repeat, now + self.schedule.repeat_after(self.exchange_timeout));
        }
        self.send(key, Kind::Pt3, repetition, tx, outbox);
    }

    fn send(&mut self, key: FlightKey, kind: Kind, repetition: u8, tx: [Option<Stamp>; 2], outbox: &mut Outbox) {
        let ((dst, seq), incarnation) = (key, self.incarnation);
        let packet =
            Packet { kind, run: self.run, src: self.node, dst, seq, repetition, incarnation, tx, rx: [None; 2] };
        if !outbox.push(&packet) {
            self.lose(key, Loss::SendFailed);
        }
    }

    /// Ends the exchange if it is complete, or soon if it has enough.
    fn look(&mut self, key: FlightKey, now: Timestamp<Monotonic>) {
        let Some(flight) = self.flights.get(&key) else { return };
        if flight.is_whole() {
            self.finish(key);
        } else if flight.is_enough() && flight.due[Alarm::Settle as usize].is_none() {
            self.set_alarm(key, Alarm::Settle, now + reorder_grace(self.exchange_timeout));
        }
    }

    fn finish(&mut self, key: FlightKey) {
        let edge = Edge { src: self.node, dst: key.0 };
        let Some(flight) = self.flights.get(&key) else { return };
        let whole = flight.is_whole();
        let Some(exchange) = flight.exchange(edge, key.1) else { return };
        self.remove(key);
        if let Some(edge) = self.edge_mut(key.0) {
            edge.counters.finished += 1;
            edge.counters.incomplete += u64::from(!whole);
        }
        if self.finished.len() < MAX_FINISHED {
            self.finished.push_back(exchange);
        } else {
            self.unread_exchanges += 1;
        }
    }

    fn set_alarm(&mut self, key: FlightKey, alarm: Alarm, due: Timestamp<Monotonic>) {
        let Some(flight) = self.flights.get_mut(&key) else { return };
        if let Some(before) = flight.due[alarm as usize].replace(due) {
            self.alarms.remove(&(before, key, alarm));
        }
        self.alarms.insert((due, key, alarm));
    }

    fn remove(&mut self, key: FlightKey) -> bool {
        let Some(flight) = self.flights.remove(&key) else { return false };
        self.alarms.remove(&(flight.deadline, key, Alarm::Timeout));
        for (due, alarm) in flight.due.into_iter().zip([Alarm::Second, Alarm::Settle, Alarm::Repeat]) {
            if let Some(due) = due {
                self.alarms.remove(&(due, key, alarm));
            }
        }
        true
    }

    fn edge(&self, peer: NodeId) -> Option<&OutEdge> {
        let index = self.edges.binary_search_by_key(&peer, |edge| edge.peer).ok()?;
        self.edges.get(index)
    }

    fn edge_mut(&mut self, peer: NodeId) -> Option<&mut OutEdge> {
        let index = self.edges.binary_search_by_key(&peer, |edge| edge.peer).ok()?;
        self.edges.get_mut(index)
    }
}

impl OutEdge {
    fn new(peer: NodeId) -> Self {
        let counters = ExchangeCounters::default();
        Self { peer, next_seq: 0, counters, at_cut: counters }
    }

    fn cut(&mut self) -> EdgeWindowCounts {
        let (now, then) = (self.counters, self.at_cut);
        self.at_cut = now;
        let since = |now: u64, then: u64| u32::try_from(now.saturating_sub(then)).unwrap_or(u32::MAX);
        EdgeWindowCounts {
            peer: self.peer,
            started: since(now.started, then.started),
            finished: since(now.finished, then.finished),
            lost: since(now.lost(), then.lost()),
        }
    }
}

impl Flight {
    fn new(deadline: Timestamp<Monotonic>) -> Self {
        Self { deadline, due: [None; 3], pt_tx: [None; 2], thirds: 0, pr_rx: [None; 2], responder: None }
    }

    /// Stores the stamps of a `Pr` packet, without replacing known ones.
    fn note(&mut self, packet: &Packet, received: Stamp) {
        if let Some(slot) = self.pr_rx.get_mut(packet.kind.place()) {
            slot.get_or_insert(received);
        } else if let [Some(first), Some(second)] = packet.tx {
            self.responder.get_or_insert(Answer { tx: [first, second], rx: packet.rx });
        }
    }

    fn is_whole(&self) -> bool {
        let there = self.responder.is_some_and(|answer| answer.rx.iter().all(Option::is_some));
        there && self.pr_rx.iter().all(Option::is_some)
    }

    /// Returns true if one packet of each direction has both its stamps.
    fn is_enough(&self) -> bool {
        let there = self.responder.is_some_and(|answer| answer.rx.iter().any(Option::is_some));
        there && self.pr_rx.iter().any(Option::is_some)
    }

    /// Returns the exchange, with a lost packet replaced by its partner; `None` while a direction
    /// has no packet.
    fn exchange(&self, edge: Edge, seq: u32) -> Option<Exchange> {
        let answer = self.responder?;
        let [forward, reverse] =
            [arrived([self.pt_tx[0]?, self.pt_tx[1]?], answer.rx)?, arrived(answer.tx, self.pr_rx)?];
        let stamps: [Stamp; 8] = [
            forward[0].0,
            forward[0].1,
            forward[1].0,
            forward[1].1,
            reverse[0].0,
            reverse[0].1,
            reverse[1].0,
            reverse[1].1,
        ];
        let stamp = stamps.iter().map(|stamp| stamp.source).fold(stamps[0].source, poorer);
        Some(Exchange { edge, seq, stamp, t: stamps.map(|stamp| stamp.at) })
    }
}

/// Returns the transmit and receive stamps of a pair, with a lost packet replaced by its partner;
/// `None` if both were lost.
fn arrived(tx: [Stamp; 2], rx: [Option<Stamp>; 2]) -> Option<[(Stamp, Stamp); 2]> {
    let [first, second] = [rx[0].map(|rx| (tx[0], rx)), rx[1].map(|rx| (tx[1], rx))];
    Some([first.or(second)?, second.or(first)?])
}

/// Returns how long to wait for a packet of a pair after the third has arrived. Packets overtake
/// each other by microseconds.
pub(crate) fn reorder_grace(exchange_timeout: Duration) -> Duration {
    REORDER_GRACE.min(Duration::from_ns(exchange_timeout.as_ns() / 20))
}

/// Most exchanges in flight with all peers together; the receive buffer has room for their answers.
const MAX_IN_FLIGHT: usize = 1024;

/// Most exchanges in flight with one peer. At a gap of 800 µs to a single peer these are 50 ms.
/// Fewer than the responder keeps; see also `seen::SPAN`.
pub(crate) const MAX_PER_PEER: u64 = 64;

/// Most finished exchanges waiting. A driver collects them after every call, so this many mean that
/// it does not.
const MAX_FINISHED: usize = 4096;

const REORDER_GRACE: Duration = Duration::from_ms(2);

/// Most exchanges started at once, whatever the schedule states.
const BURST_MAX: u32 = 256;

//! The prober's half of the exchange: starts exchanges on the node's out-edges in turn and ends with eight timestamps.
//!
//! One exchange: `Pt1` at the start, `Pt2` one spacing later, `Pt3` as soon as both transmit stamps are known, since it
//! carries them; then wait for `Pr1 Pr2 Pr3` in any order, until the exchange timeout. Several exchanges may be in
//! flight, also to one peer: on a path of 2 ms with a gap of 800 µs they must be. The table is bounded.
//!
//! What it does not do: send, read a clock, or answer other nodes' exchanges.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use probe_sync_time::{Duration, Edge, Exchange, Monotonic, NodeId, RunId, Stamp, Timestamp};

use crate::counters::{EdgeWindowCounts, ExchangeCounters, Fate};
use crate::outbox::Outbox;
use crate::packet::{Kind, Packet, poorer};
use crate::schedule::Schedule;
use crate::seen::{Seen, SeenWindow, is_newer};

#[derive(Debug)]
pub(crate) struct Prober {
    run: RunId,
    node: NodeId,
    spacing: Duration,
    exchange_timeout: Duration,
    schedule: Schedule,
    next_start: Timestamp<Monotonic>,
    probing: bool,
    /// Every edge that is or was probed, sorted by peer: fewer than the run has nodes.
    edges: Vec<OutEdge>,
    /// Indices of the edges that are probed.
    active: Vec<usize>,
    /// Index within `active` of the edge whose turn is next.
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

/// What an alarm is for. At the same instant a pending second packet comes before the timeout.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    Second,
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
    second_due: Option<Timestamp<Monotonic>>,
    pt_tx: [Option<Stamp>; 2],
    third_sent: bool,
    pr_rx: [Option<Stamp>; 2],
    /// The responder's transmit and receive stamps, from its third packet.
    responder: Option<([Stamp; 2], [Stamp; 2])>,
}

/// What the prober is made from; checked by the endpoint.
pub(crate) struct ProberConfig {
    pub run: RunId,
    pub node: NodeId,
    pub out_edges: Vec<NodeId>,
    pub schedule: Schedule,
    pub spacing: Duration,
    pub exchange_timeout: Duration,
}

impl Prober {
    pub(crate) fn new(config: ProberConfig, now: Timestamp<Monotonic>) -> Self {
        let mut peers = config.out_edges;
        peers.sort_unstable();
        // Starting with the next higher peer spreads the nodes: from the lowest, all would probe node 0 first.
        let turn = peers.partition_point(|peer| *peer < config.node);
        Self {
            run: config.run,
            node: config.node,
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

    /// Probes `peers` from now on. Edges no longer probed are kept: the peer still remembers their sequence numbers, which
    /// may not come twice, and exchanges in flight still end.
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

    /// Runs every alarm that is due, then starts at most one exchange.
    pub(crate) fn handle_timer(&mut self, now: Timestamp<Monotonic>, outbox: &mut Outbox) {
        // Bounded: each turn removes an alarm and sets none.
        while let Some(&(due, key, alarm)) = self.alarms.first() {
            if due > now {
                break;
            }
            self.alarms.pop_first();
            match alarm {
                Alarm::Second => self.send_second(key, outbox),
                Alarm::Timeout => self.lose(key, Loss::TimedOut),
            }
        }
        if self.probing && !self.active.is_empty() && now >= self.next_start {
            self.skipped_starts += self.schedule.missed(self.next_start, now);
            self.next_start = self.schedule.next_after(now);
            self.start(now, outbox);
        }
    }

    /// Takes a `Pr` packet in.
    pub(crate) fn handle_packet(
        &mut self,
        packet: &Packet,
        received: Stamp,
        now: Timestamp<Monotonic>,
        seen: &mut SeenWindow,
    ) -> Fate {
        let key = (packet.src, packet.seq);
        let started = self.edge(packet.src).is_some_and(|edge| is_newer(edge.next_seq, packet.seq));
        if !started {
            return Fate::OutOfState;
        }
        if self.flights.get(&key).is_some_and(|flight| flight.deadline <= now) {
            // The timer has not run yet, but the exchange is over all the same.
            self.lose(key, Loss::TimedOut);
        }
        let flight = self.flights.get_mut(&key);
        if flight.as_ref().is_some_and(|flight| !flight.third_sent) {
            return Fate::OutOfState;
        }
        let seen = seen.note(packet.seq, packet.kind.place());
        let Some(flight) = flight else {
            return if seen == Seen::Duplicate { Fate::Duplicate } else { Fate::Late };
        };
        if !flight.note(packet, received) {
            return Fate::Duplicate;
        }
        self.finish_if_complete(key);
        Fate::Accepted
    }

    /// The transmit stamp of a coded packet; false when no exchange waits for it.
    pub(crate) fn handle_tx_stamp(&mut self, key: FlightKey, place: usize, stamp: Stamp, outbox: &mut Outbox) -> bool {
        let Some(flight) = self.flights.get_mut(&key) else { return false };
        let queued = place == 0 || flight.second_due.is_none();
        let Some(slot) = flight.pt_tx.get_mut(place).filter(|slot| slot.is_none() && queued) else { return false };
        *slot = Some(stamp);
        self.send_third_if_ready(key, outbox);
        true
    }

    /// Gives an exchange up. Nothing happens when it has ended already.
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

    /// Counts of every out-edge since the last call, in order of peer. An edge no longer probed is among them as long as
    /// it has something to report.
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
        if self.flights.len() >= MAX_IN_FLIGHT {
            self.refused_starts += 1;
            return;
        }
        let Some(edge) = self.active.get(self.turn).and_then(|at| self.edges.get_mut(*at)) else { return };
        self.turn = (self.turn + 1) % self.active.len();
        let key = (edge.peer, edge.next_seq);
        edge.next_seq = edge.next_seq.wrapping_add(1);
        edge.counters.started += 1;
        let flight = Flight::new(now + self.exchange_timeout, now + self.spacing);
        self.alarms.insert((flight.deadline, key, Alarm::Timeout));
        self.alarms.insert((now + self.spacing, key, Alarm::Second));
        self.flights.insert(key, flight);
        self.send(key, Kind::Pt1, [None; 2], outbox);
    }

    fn send_second(&mut self, key: FlightKey, outbox: &mut Outbox) {
        let Some(flight) = self.flights.get_mut(&key) else { return };
        flight.second_due = None;
        let tx = [flight.pt_tx[0], None];
        self.send(key, Kind::Pt2, tx, outbox);
    }

    fn send_third_if_ready(&mut self, key: FlightKey, outbox: &mut Outbox) {
        let Some(flight) = self.flights.get_mut(&key) else { return };
        if flight.pt_tx.iter().all(Option::is_some) && !flight.third_sent {
            flight.third_sent = true;
            let tx = flight.pt_tx;
            self.send(key, Kind::Pt3, tx, outbox);
        }
    }

    fn send(&mut self, key: FlightKey, kind: Kind, tx: [Option<Stamp>; 2], outbox: &mut Outbox) {
        let (dst, seq) = key;
        let packet = Packet { kind, run: self.run, src: self.node, dst, seq, tx, rx: [None; 2] };
        if !outbox.push(&packet) {
            self.lose(key, Loss::SendFailed);
        }
    }

    fn finish_if_complete(&mut self, key: FlightKey) {
        let edge = Edge { src: self.node, dst: key.0 };
        let Some(exchange) = self.flights.get(&key).and_then(|flight| flight.exchange(edge, key.1)) else { return };
        self.remove(key);
        if let Some(edge) = self.edge_mut(key.0) {
            edge.counters.finished += 1;
        }
        if self.finished.len() < MAX_FINISHED {
            self.finished.push_back(exchange);
        } else {
            self.unread_exchanges += 1;
        }
    }

    fn remove(&mut self, key: FlightKey) -> bool {
        let Some(flight) = self.flights.remove(&key) else { return false };
        self.alarms.remove(&(flight.deadline, key, Alarm::Timeout));
        if let Some(due) = flight.second_due {
            self.alarms.remove(&(due, key, Alarm::Second));
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
    fn new(deadline: Timestamp<Monotonic>, second_due: Timestamp<Monotonic>) -> Self {
        Self {
            deadline,
            second_due: Some(second_due),
            pt_tx: [None; 2],
            third_sent: false,
            pr_rx: [None; 2],
            responder: None,
        }
    }

    /// Keeps what a `Pr` packet tells; false when that was known already.
    fn note(&mut self, packet: &Packet, received: Stamp) -> bool {
        match self.pr_rx.get_mut(packet.kind.place()) {
            Some(slot) if slot.is_none() => {
                *slot = Some(received);
                true
            }
            Some(_) => false,
            None => match (packet.tx, packet.rx) {
                ([Some(tx1), Some(tx2)], [Some(rx1), Some(rx2)]) if self.responder.is_none() => {
                    self.responder = Some(([tx1, tx2], [rx1, rx2]));
                    true
                }
                _ => false,
            },
        }
    }

    fn exchange(&self, edge: Edge, seq: u32) -> Option<Exchange> {
        let [pt1_tx, pt2_tx] = [self.pt_tx[0]?, self.pt_tx[1]?];
        let [pr1_rx, pr2_rx] = [self.pr_rx[0]?, self.pr_rx[1]?];
        let ([pr1_tx, pr2_tx], [pt1_rx, pt2_rx]) = self.responder?;
        let stamps = [pt1_tx, pt1_rx, pt2_tx, pt2_rx, pr1_tx, pr1_rx, pr2_tx, pr2_rx];
        let stamp = stamps.iter().map(|stamp| stamp.source).fold(pt1_tx.source, poorer);
        Some(Exchange { edge, seq, stamp, t: stamps.map(|stamp| stamp.at) })
    }
}

/// At a gap of 800 µs and a timeout of 100 ms a dead peer fills 125 places.
pub(crate) const MAX_IN_FLIGHT: usize = 256;

/// A driver takes exchanges after every call; this many waiting ones mean that it does not.
const MAX_FINISHED: usize = 4096;

//! The responder's half of the exchange, which collects a peer's `Pt1 Pt2 Pt3` and answers with
//! `Pr1 Pr2 Pr3`.
//!
//! It answers once it has all three packets, in whatever order they came: then both receive stamps
//! are known, and `Pt3` says that the prober knows its transmit stamps, so an answer is worth
//! sending. Where `Pt3` is there and one of the pair is not, the answer waits a little and does
//! without. `Pr2` leaves one spacing after `Pr1`, `Pr3` as soon as both transmit stamps are known,
//! and again whenever the prober repeats `Pt3`. State is bounded: so many exchanges per peer, the
//! oldest gives way.
//!
//! It has no timer for request timeouts: a peer's requests are checked when a packet of that peer
//! arrives.

use std::collections::{BTreeMap, BTreeSet};

use probe_sync_time::{Duration, Monotonic, NodeId, RunId, Stamp, Timestamp};

use crate::counters::{AnswerCounters, Fate};
use crate::outbox::Outbox;
use crate::packet::{Kind, Packet};
use crate::prober::{MAX_PER_PEER, reorder_grace};
use crate::schedule::Schedule;
use crate::seen::{Seen, SeenWindow, is_newer};

#[derive(Debug)]
pub(crate) struct Responder {
    run: RunId,
    node: NodeId,
    spacing: Duration,
    exchange_timeout: Duration,
    /// How long a peer may wait for its answer.
    exchange_limit: Duration,
    peers: BTreeMap<NodeId, Peer>,
    alarms: BTreeSet<(Timestamp<Monotonic>, RequestKey, Alarm)>,
}

/// Peer and sequence number.
type RequestKey = (NodeId, u32);

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// Send the second packet of the answer.
    Second,
    /// Stop waiting for packets of the request.
    Settle,
}

#[derive(Debug, Default)]
struct Peer {
    /// Latest requests, by sequence number.
    requests: BTreeMap<u32, Request>,
    /// Newest dropped request: packets of it and of older ones are late and are not answered again.
    dropped: Option<u32>,
    counters: AnswerCounters,
}

#[derive(Debug)]
struct Request {
    first_at: Timestamp<Monotonic>,
    /// Incarnation of the peer to which it belongs.
    incarnation: u32,
    pt_rx: [Option<Stamp>; 2],
    third_came: bool,
    stage: Stage,
    /// Due times of the alarms, by [`Alarm`].
    due: [Option<Timestamp<Monotonic>>; 2],
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stage {
    Collecting,
    Answering {
        pr_tx: [Option<Stamp>; 2],
    },
    /// Answered with these transmit stamps, which may be requested again.
    Answered {
        pr_tx: [Option<Stamp>; 2],
    },
    GivenUp,
}

/// Why an answer ended early.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum AnswerLoss {
    StampMissing,
    SendFailed,
}

impl Responder {
    pub(crate) fn new(
        run: RunId,
        node: NodeId,
        spacing: Duration,
        exchange_timeout: Duration,
        schedule: &Schedule,
    ) -> Self {
        let exchange_limit = schedule.exchange_limit(exchange_timeout);
        Self { run, node, spacing, exchange_timeout, exchange_limit, peers: BTreeMap::new(), alarms: BTreeSet::new() }
    }

    /// Records that the pace of all nodes has changed.
    pub(crate) fn set_schedule(&mut self, schedule: &Schedule) {
        self.exchange_limit = schedule.exchange_limit(self.exchange_timeout);
    }

    pub(crate) fn next_timer(&self) -> Option<Timestamp<Monotonic>> {
        self.alarms.first().map(|(due, ..)| *due)
    }

    /// Queues every second packet that is due, and answers requests that have waited long enough
    /// for a lost packet.
    pub(crate) fn handle_timer(&mut self, now: Timestamp<Monotonic>, outbox: &mut Outbox) {
        // Bounded: each turn removes an alarm, and the one that sets another sets it later than
        // now.
        while let Some(&(due, key, alarm)) = self.alarms.first() {
            if due > now {
                break;
            }
            self.alarms.pop_first();
            let Some(request) = self.request_mut(key) else { continue };
            request.due[alarm as usize] = None;
            match (alarm, request.stage) {
                (Alarm::Second, Stage::Answering { pr_tx }) => self.send(key, Kind::Pr2, 0, [pr_tx[0], None], outbox),
                (Alarm::Settle, Stage::Collecting) => self.answer(key, now, outbox),
                _ => {}
            }
        }
    }

    /// Processes a `Pt` packet.
    pub(crate) fn handle_packet(
        &mut self,
        packet: &Packet,
        received: Stamp,
        now: Timestamp<Monotonic>,
        seen: &mut SeenWindow,
        outbox: &mut Outbox,
    ) -> Fate {
        match seen.note(packet) {
            Seen::First => {}
            Seen::Duplicate => return Fate::Duplicate,
            Seen::Forgotten => return Fate::TooOld,
            Seen::FarAhead => return Fate::OutOfState,
        }
        let key = (packet.src, packet.seq);
        self.make_room(packet.src, packet.seq, now);
        let peer = self.peers.entry(packet.src).or_default();
        let known = peer.requests.contains_key(&packet.seq);
        if !known && peer.dropped.is_some_and(|dropped| !is_newer(packet.seq, dropped)) {
            return Fate::Late;
        }
        let request = peer.requests.entry(packet.seq).or_insert_with(|| Request::new(now, packet.incarnation));
        let collecting = request.stage == Stage::Collecting;
        match (request.pt_rx.get_mut(packet.kind.place()), request.stage) {
            (Some(slot), Stage::Collecting) => *slot = Some(received),
            (None, Stage::Collecting) => request.third_came = true,
            (None, Stage::Answered { pr_tx }) if packet.repetition > 0 => {
                self.send(key, Kind::Pr3, packet.repetition, pr_tx, outbox);
            }
            // The answer is under way, or there will be none.
            (None, _) if packet.repetition > 0 => {}
            _ => return Fate::Late,
        }
        if collecting {
            self.look(key, now, outbox);
        }
        Fate::Accepted
    }

    /// Processes the transmit stamp of a coded packet; returns false if no answer waits for it.
    pub(crate) fn handle_tx_stamp(&mut self, key: RequestKey, place: usize, stamp: Stamp, outbox: &mut Outbox) -> bool {
        let Some(request) = self.request_mut(key) else { return false };
        let second_queued = request.due[Alarm::Second as usize].is_none();
        let Stage::Answering { pr_tx } = &mut request.stage else { return false };
        let queued = place == 0 || second_queued;
        let Some(slot) = pr_tx.get_mut(place).filter(|slot| slot.is_none() && queued) else { return false };
        *slot = Some(stamp);
        let pr_tx = *pr_tx;
        if pr_tx.iter().all(Option::is_some) {
            request.stage = Stage::Answered { pr_tx };
            self.counters(key.0).finished += 1;
            self.send(key, Kind::Pr3, 0, pr_tx, outbox);
        }
        true
    }

    /// Gives up an answer, unless it has already ended.
    pub(crate) fn lose(&mut self, key: RequestKey, loss: AnswerLoss) {
        let Some(request) = self.request_mut(key).filter(|request| matches!(request.stage, Stage::Answering { .. }))
        else {
            return;
        };
        request.stage = Stage::GivenUp;
        self.silence(key);
        match loss {
            AnswerLoss::StampMissing => self.counters(key.0).stamp_missing += 1,
            AnswerLoss::SendFailed => self.counters(key.0).send_failed += 1,
        }
    }

    /// Drops all requests of a peer from an earlier incarnation.
    pub(crate) fn forget(&mut self, peer: NodeId) {
        let known = self.peers.get(&peer).map(|peer| peer.requests.keys().copied().collect::<Vec<_>>());
        for seq in known.unwrap_or_default() {
            self.drop_request((peer, seq));
        }
        // A life begins with any number.
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.dropped = None;
        }
    }

    pub(crate) fn answer_counters(&self) -> impl Iterator<Item = (NodeId, AnswerCounters)> {
        self.peers.iter().map(|(peer, state)| (*peer, state.counters))
    }

    /// Answers if the request is complete; sets the waiting limit if a packet of it may have been
    /// lost.
    fn look(&mut self, key: RequestKey, now: Timestamp<Monotonic>, outbox: &mut Outbox) {
        let grace = reorder_grace(self.exchange_timeout);
        let Some(request) = self.request_mut(key).filter(|request| request.third_came) else { return };
        match request.pt_rx.iter().flatten().count() {
            2 => self.answer(key, now, outbox),
            1 if request.due[Alarm::Settle as usize].is_none() => self.set_alarm(key, Alarm::Settle, now + grace),
            _ => {}
        }
    }

    fn answer(&mut self, key: RequestKey, now: Timestamp<Monotonic>, outbox: &mut Outbox) {
        self.silence(key);
        let Some(request) = self.request_mut(key) else { return };
        request.stage = Stage::Answering { pr_tx: [None; 2] };
        self.counters(key.0).started += 1;
        if self.spacing > Duration::ZERO {
            self.set_alarm(key, Alarm::Second, now + self.spacing);
        }
        self.send(key, Kind::Pr1, 0, [None; 2], outbox);
        if self.spacing == Duration::ZERO {
            self.send(key, Kind::Pr2, 0, [None; 2], outbox);
        }
    }

    fn send(&mut self, key: RequestKey, kind: Kind, repetition: u8, tx: [Option<Stamp>; 2], outbox: &mut Outbox) {
        let (run, src) = (self.run, self.node);
        let Some(request) = self.request_mut(key) else { return };
        let (incarnation, rx) = (request.incarnation, request.pt_rx);
        let packet = Packet { kind, run, src, dst: key.0, seq: key.1, repetition, incarnation, tx, rx };
        if !outbox.push(&packet) {
            self.lose(key, AnswerLoss::SendFailed);
        }
    }

    /// Drops the peer's requests whose prober has timed out by now, and the oldest ones if there
    /// are too many for another.
    fn make_room(&mut self, peer: NodeId, wanted: u32, now: Timestamp<Monotonic>) {
        // Ends: each turn drops a request.
        loop {
            let Some(state) = self.peers.get(&peer) else { return };
            let full = state.requests.len() >= MAX_REQUESTS && !state.requests.contains_key(&wanted);
            let Some((&seq, oldest)) = state.requests.first_key_value() else { return };
            if !full && now - oldest.first_at < self.exchange_limit {
                return;
            }
            self.drop_request((peer, seq));
        }
    }

    fn drop_request(&mut self, key: RequestKey) {
        self.silence(key);
        let Some(state) = self.peers.get_mut(&key.0) else { return };
        if state.dropped.is_none_or(|dropped| is_newer(key.1, dropped)) {
            state.dropped = Some(key.1);
        }
        match state.requests.remove(&key.1).map(|request| request.stage) {
            Some(Stage::Collecting) => state.counters.incomplete += 1,
            Some(Stage::Answering { .. }) => state.counters.superseded += 1,
            _ => {}
        }
    }

    fn set_alarm(&mut self, key: RequestKey, alarm: Alarm, due: Timestamp<Monotonic>) {
        let Some(request) = self.request_mut(key) else { return };
        request.due[alarm as usize] = Some(due);
        self.alarms.insert((due, key, alarm));
    }

    /// Cancels a request's alarms.
    fn silence(&mut self, key: RequestKey) {
        let Some(request) = self.request_mut(key) else { return };
        let due = std::mem::take(&mut request.due);
        for (due, alarm) in due.into_iter().zip([Alarm::Second, Alarm::Settle]) {
            if let Some(due) = due {
                self.alarms.remove(&(due, key, alarm));
            }
        }
    }

    fn request_mut(&mut self, (peer, seq): RequestKey) -> Option<&mut Request> {
        self.peers.get_mut(&peer)?.requests.get_mut(&seq)
    }

    fn counters(&mut self, peer: NodeId) -> &mut AnswerCounters {
        &mut self.peers.entry(peer).or_default().counters
    }
}

impl Request {
    fn new(now: Timestamp<Monotonic>, incarnation: u32) -> Self {
        let (pt_rx, due) = ([None; 2], [None; 2]);
        Self { first_at: now, incarnation, pt_rx, third_came: false, stage: Stage::Collecting, due }
    }
}

/// Most requests kept per peer: more than an honest one has in flight.
const MAX_REQUESTS: usize = 2 * MAX_PER_PEER as usize;

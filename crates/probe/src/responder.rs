//! The responder's half of the exchange: collects `Pt1 Pt2 Pt3` of a peer and answers with `Pr1 Pr2 Pr3`.
//!
//! It answers once it has all three packets, in whatever order they came: then both receive stamps are known, and `Pt3`
//! says that the prober knows its transmit stamps, so an answer is worth sending. `Pr2` leaves one spacing after `Pr1`,
//! `Pr3` as soon as both transmit stamps are known.
//! State is bounded: one exchange per peer; a newer sequence number replaces an older one.
//!
//! What it does not do: time answers out by a timer. A request that stays incomplete is replaced by the peer's next one,
//! and its age is checked when a packet comes.

use std::collections::{BTreeMap, BTreeSet};

use probe_sync_time::{Duration, Monotonic, NodeId, RunId, Stamp, Timestamp};

use crate::counters::{AnswerCounters, Fate};
use crate::outbox::Outbox;
use crate::packet::{Kind, Packet};
use crate::seen::{Seen, SeenWindow, is_newer};

#[derive(Debug)]
pub(crate) struct Responder {
    run: RunId,
    node: NodeId,
    spacing: Duration,
    exchange_timeout: Duration,
    requests: BTreeMap<NodeId, Request>,
    /// When which peer's second packet is due; at most one entry per peer.
    alarms: BTreeSet<(Timestamp<Monotonic>, NodeId)>,
}

#[derive(Debug)]
struct Request {
    seq: u32,
    first_at: Timestamp<Monotonic>,
    pt_rx: [Option<Stamp>; 2],
    third_came: bool,
    stage: Stage,
    counters: AnswerCounters,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stage {
    Collecting,
    Answering { pr_tx: [Option<Stamp>; 2], second_due: Option<Timestamp<Monotonic>> },
    Done,
}

/// Why an answer ended early.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum AnswerLoss {
    StampMissing,
    SendFailed,
}

impl Responder {
    pub(crate) fn new(run: RunId, node: NodeId, spacing: Duration, exchange_timeout: Duration) -> Self {
        Self { run, node, spacing, exchange_timeout, requests: BTreeMap::new(), alarms: BTreeSet::new() }
    }

    pub(crate) fn next_timer(&self) -> Option<Timestamp<Monotonic>> {
        self.alarms.first().map(|(due, _)| *due)
    }

    /// Queues every second packet that is due.
    pub(crate) fn handle_timer(&mut self, now: Timestamp<Monotonic>, outbox: &mut Outbox) {
        // Bounded: each turn removes an alarm and sets none.
        while let Some(&(due, peer)) = self.alarms.first() {
            if due > now {
                break;
            }
            self.alarms.remove(&(due, peer));
            let Some(request) = self.requests.get_mut(&peer) else { continue };
            if let Stage::Answering { pr_tx, second_due } = &mut request.stage {
                *second_due = None;
                let tx = [pr_tx[0], None];
                self.send(peer, Kind::Pr2, tx, outbox);
            }
        }
    }

    /// Takes a `Pt` packet in.
    pub(crate) fn handle_packet(
        &mut self,
        packet: &Packet,
        received: Stamp,
        now: Timestamp<Monotonic>,
        seen: &mut SeenWindow,
        outbox: &mut Outbox,
    ) -> Fate {
        match seen.note(packet.seq, packet.kind.place()) {
            Seen::Duplicate => return Fate::Duplicate,
            Seen::Forgotten => return Fate::Late,
            Seen::First => {}
        }
        let peer = packet.src;
        let request = self.requests.entry(peer).or_insert_with(|| Request::new(packet.seq, now));
        if is_newer(packet.seq, request.seq) {
            let alarm = request.replace(packet.seq, now);
            if let Some(due) = alarm {
                self.alarms.remove(&(due, peer));
            }
        }
        request.expire(now, self.exchange_timeout);
        if packet.seq != request.seq || request.stage != Stage::Collecting {
            return Fate::Late;
        }
        match request.pt_rx.get_mut(packet.kind.place()) {
            Some(slot) => *slot = Some(received),
            None => request.third_came = true,
        }
        if request.third_came && request.pt_rx.iter().all(Option::is_some) {
            self.answer(peer, now, outbox);
        }
        Fate::Accepted
    }

    /// The transmit stamp of a coded packet; false when no answer waits for it.
    pub(crate) fn handle_tx_stamp(
        &mut self,
        peer: NodeId,
        seq: u32,
        place: usize,
        stamp: Stamp,
        outbox: &mut Outbox,
    ) -> bool {
        let Some(request) = self.requests.get_mut(&peer).filter(|request| request.seq == seq) else { return false };
        let Stage::Answering { pr_tx, second_due } = &mut request.stage else { return false };
        let queued = place == 0 || second_due.is_none();
        let Some(slot) = pr_tx.get_mut(place).filter(|slot| slot.is_none() && queued) else { return false };
        *slot = Some(stamp);
        if pr_tx.iter().all(Option::is_some) {
            let tx = *pr_tx;
            request.stage = Stage::Done;
            request.counters.finished += 1;
            self.send(peer, Kind::Pr3, tx, outbox);
        }
        true
    }

    /// Gives an answer up. Nothing happens when it has ended already.
    pub(crate) fn lose(&mut self, peer: NodeId, seq: u32, loss: AnswerLoss) {
        let Some(request) = self.requests.get_mut(&peer).filter(|request| request.seq == seq) else { return };
        let Stage::Answering { second_due, .. } = request.stage else { return };
        request.stage = Stage::Done;
        match loss {
            AnswerLoss::StampMissing => request.counters.stamp_missing += 1,
            AnswerLoss::SendFailed => request.counters.send_failed += 1,
        }
        if let Some(due) = second_due {
            self.alarms.remove(&(due, peer));
        }
    }

    pub(crate) fn answer_counters(&self) -> impl Iterator<Item = (NodeId, AnswerCounters)> {
        self.requests.iter().map(|(peer, request)| (*peer, request.counters))
    }

    fn answer(&mut self, peer: NodeId, now: Timestamp<Monotonic>, outbox: &mut Outbox) {
        let Some(request) = self.requests.get_mut(&peer) else { return };
        let due = now + self.spacing;
        request.counters.started += 1;
        request.stage = Stage::Answering { pr_tx: [None; 2], second_due: Some(due) };
        self.alarms.insert((due, peer));
        self.send(peer, Kind::Pr1, [None; 2], outbox);
    }

    fn send(&mut self, peer: NodeId, kind: Kind, tx: [Option<Stamp>; 2], outbox: &mut Outbox) {
        let Some(request) = self.requests.get(&peer) else { return };
        let (seq, rx) = (request.seq, request.pt_rx);
        let packet = Packet { kind, run: self.run, src: self.node, dst: peer, seq, tx, rx };
        if !outbox.push(&packet) {
            self.lose(peer, seq, AnswerLoss::SendFailed);
        }
    }
}

impl Request {
    fn new(seq: u32, now: Timestamp<Monotonic>) -> Self {
        let counters = AnswerCounters::default();
        Self { seq, first_at: now, pt_rx: [None; 2], third_came: false, stage: Stage::Collecting, counters }
    }

    /// Makes room for a newer exchange; returns the alarm that the older one had set.
    fn replace(&mut self, seq: u32, now: Timestamp<Monotonic>) -> Option<Timestamp<Monotonic>> {
        let mut alarm = None;
        match self.stage {
            Stage::Collecting => self.counters.incomplete += 1,
            Stage::Answering { second_due, .. } => {
                self.counters.superseded += 1;
                alarm = second_due;
            }
            Stage::Done => {}
        }
        *self = Self { counters: self.counters, ..Self::new(seq, now) };
        alarm
    }

    /// A request whose prober has timed out by now is not worth answering.
    fn expire(&mut self, now: Timestamp<Monotonic>, exchange_timeout: Duration) {
        if self.stage == Stage::Collecting && now - self.first_at >= exchange_timeout {
            self.stage = Stage::Done;
            self.counters.incomplete += 1;
        }
    }
}

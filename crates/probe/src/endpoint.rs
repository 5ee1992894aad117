//! One node's end of all its edges: a prober and a responder behind one socket.
//!
//! The driver hands in datagrams, transmit stamps and the time; it takes out packets to send,
//! finished exchanges and the instant of the next timer. After every `handle_…` call it polls
//! [`Endpoint::poll_transmit`] and [`Endpoint::poll_exchange`] until they return `None`, then
//! sleeps until [`Endpoint::next_timer`] or the next datagram.
//!
//! It has no sockets, reads no clock and does not trust its driver: calls in any order, with any
//! time and any bytes, neither panic nor let the state grow without bound.

use std::collections::BTreeMap;

use probe_sync_time::{Duration, Exchange, Monotonic, NodeId, RunId, SessionKey, Stamp, Timestamp};

use crate::counters::{Counters, EdgeWindowCounts, Fate, ForeignCounters, PeerCounters};
use crate::outbox::{Outbox, Transmit, TxContext};
use crate::packet::{Packet, Reject};
use crate::prober::{Loss, Prober, ProberConfig};
use crate::responder::{AnswerLoss, Responder};
use crate::schedule::Schedule;
use crate::seen::{SeenWindow, is_newer};

/// What an endpoint is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// The run; packets of other runs are foreign.
    pub run: RunId,
    /// This node.
    pub node: NodeId,
    /// How many nodes the run has; packets from higher numbers are foreign.
    pub nodes: u32,
    /// The nodes that this one probes, in any order. Empty: a listener, which only answers.
    pub out_edges: Vec<NodeId>,
    /// When exchanges start.
    pub schedule: Schedule,
    /// Time between the two packets of a coded pair.
    pub spacing: Duration,
    /// How long an exchange may take before it is given up; longer at a pace at which nodes look
    /// for packets rarely ([`Schedule::look_period`]).
    pub exchange_timeout: Duration,
    /// Which life of this node this is: greater than in all before.
    pub incarnation: u32,
    /// What packets are authenticated with; `None` trusts whoever knows the run id, which is right
    /// where nobody else can send.
    pub key: Option<SessionKey>,
}

impl EndpointConfig {
    /// The default of `spacing`.
    pub const SPACING: Duration = Duration::from_us(100);
    /// The default of `exchange_timeout`. Stamps do not care when a starved process looks at them,
    /// so it is long.
    pub const EXCHANGE_TIMEOUT: Duration = Duration::from_ms(1_000);
}

/// Why an endpoint cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A node that the run does not have.
    #[error("node {node} is not one of the run's {nodes} nodes")]
    NoSuchNode {
        /// The node.
        node: NodeId,
        /// How many there are.
        nodes: u32,
    },
    /// An edge to itself, or the same edge twice.
    #[error("the edge from node {node} to node {peer} is a loop or given twice")]
    BadEdge {
        /// The edge's source.
        node: NodeId,
        /// The edge's destination.
        peer: NodeId,
    },
    /// The spacing is negative or not shorter than the timeout.
    #[error("spacing {spacing:?} must not be negative and must be shorter than the exchange timeout {timeout:?}")]
    Spacing {
        /// The spacing.
        spacing: Duration,
        /// The exchange timeout.
        timeout: Duration,
    },
}

/// One node's end of all its edges.
#[derive(Debug)]
pub struct Endpoint {
    run: RunId,
    node: NodeId,
    nodes: u32,
    key: Option<SessionKey>,
    /// The latest time that the driver gave; time never goes back in here.
    now: Timestamp<Monotonic>,
    prober: Prober,
    responder: Responder,
    /// Grows with the peers that sent well-formed packets of this run: fewer than `nodes`.
    peers: BTreeMap<NodeId, Peer>,
    foreign: ForeignCounters,
    stray_tx_stamps: u64,
    outbox: Outbox,
}

#[derive(Debug, Default)]
struct Peer {
    counters: PeerCounters,
    /// The latest life of the peer that it started exchanges in.
    incarnation: Option<u32>,
    forward: SeenWindow,
    reverse: SeenWindow,
}

impl Endpoint {
    /// An endpoint whose first exchange starts at the schedule's first point after `now`.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn new(config: EndpointConfig, now: Timestamp<Monotonic>) -> Result<Self, Error> {
        config.check()?;
        let EndpointConfig { run, node, nodes, out_edges, schedule, spacing, exchange_timeout, incarnation, key } =
            config;
        let peers = out_edges.iter().map(|peer| (*peer, Peer::default())).collect();
        let config = ProberConfig { run, node, incarnation, out_edges, schedule, spacing, exchange_timeout };
        let prober = Prober::new(config, now);
        Ok(Self {
            run,
            node,
            nodes,
            key,
            now,
            prober,
            responder: Responder::new(run, node, spacing, exchange_timeout, &schedule),
            peers,
            foreign: ForeignCounters::default(),
            stray_tx_stamps: 0,
            outbox: Outbox::new(key),
        })
    }

    /// Does what is due: second packets, repetitions, timeouts, and at most one burst of starts.
    pub fn handle_timer(&mut self, now: Timestamp<Monotonic>) {
        let now = self.advance(now);
        self.prober.handle_timer(now, &mut self.outbox);
        self.responder.handle_timer(now, &mut self.outbox);
    }

    /// Takes a datagram in that came from the address of node `from` (`None`: of no node) and was
    /// stamped `received` on this node's system clock.
    pub fn handle_packet(&mut self, datagram: &[u8], from: Option<NodeId>, received: Stamp, now: Timestamp<Monotonic>) {
        let now = self.advance(now);
        let packet = match self.admit(datagram, from) {
            Ok(packet) => packet,
            Err(reason) => return self.foreign.count(reason),
        };
        let peer = self.peers.entry(packet.src).or_default();
        let fate = if !packet.kind.is_forward() {
            self.prober.handle_packet(&packet, received, now, &mut peer.reverse)
        } else if peer.lives_in(packet.incarnation, &mut self.responder, packet.src) {
            self.responder.handle_packet(&packet, received, now, &mut peer.forward, &mut self.outbox)
        } else {
            Fate::OutOfState
        };
        peer.counters.received += 1;
        match fate {
            Fate::Accepted => {}
            Fate::Duplicate => peer.counters.duplicates += 1,
            Fate::Late => peer.counters.late += 1,
            Fate::TooOld => peer.counters.too_old += 1,
            Fate::OutOfState => peer.counters.out_of_state += 1,
        }
    }

    /// A packet's transmit stamp, on this node's system clock. Stamps of third packets are ignored.
    pub fn handle_tx_stamp(&mut self, context: TxContext, stamp: Stamp, now: Timestamp<Monotonic>) {
        let now = self.advance(now);
        let TxContext { peer, kind, seq, .. } = context;
        if !kind.needs_tx_stamp() {
            return;
        }
        let taken = if kind.is_forward() {
            self.prober.handle_tx_stamp((peer, seq), kind.place(), stamp, now, &mut self.outbox)
        } else {
            self.responder.handle_tx_stamp((peer, seq), kind.place(), stamp, &mut self.outbox)
        };
        if !taken {
            self.stray_tx_stamps += 1;
        }
    }

    /// The packet was sent, but its transmit stamp will never come: the exchange is dropped and
    /// counted.
    pub fn handle_tx_lost(&mut self, context: TxContext, now: Timestamp<Monotonic>) {
        self.advance(now);
        if !context.kind.needs_tx_stamp() {
            return;
        }
        if let Some(peer) = self.peers.get_mut(&context.peer) {
            peer.counters.missing_tx_stamps += 1;
        }
        self.lose(context, Loss::StampMissing, AnswerLoss::StampMissing);
    }

    /// The system refused to send the packet: it does not count as sent, and the exchange is
    /// dropped and counted.
    pub fn handle_send_failed(&mut self, context: TxContext, now: Timestamp<Monotonic>) {
        self.advance(now);
        if let Some(peer) = self.peers.get_mut(&context.peer) {
            peer.counters.sent = peer.counters.sent.saturating_sub(1);
            peer.counters.send_failed += 1;
        }
        self.lose(context, Loss::SendFailed, AnswerLoss::SendFailed);
    }

    /// The next packet to send. It counts as sent unless [`Endpoint::handle_send_failed`] follows.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let transmit = self.outbox.pop()?;
        self.peers.entry(transmit.to).or_default().counters.sent += 1;
        Some(transmit)
    }

    /// The next finished exchange.
    pub fn poll_exchange(&mut self) -> Option<Exchange> {
        self.prober.poll_exchange()
    }

    /// When [`Endpoint::handle_timer`] is to be called next.
    pub fn next_timer(&self) -> Option<Timestamp<Monotonic>> {
        self.prober.next_timer().into_iter().chain(self.responder.next_timer()).min()
    }

    /// Changes the schedule from the latest time given on. Exchanges in flight are not disturbed.
    pub fn set_schedule(&mut self, schedule: Schedule) {
        self.prober.set_schedule(schedule, self.now);
        self.responder.set_schedule(&schedule);
    }

    /// Probes these nodes from now on, in turn, and no others. Exchanges in flight are not
    /// disturbed; counts and sequence numbers of a node that is probed again go on.
    ///
    /// # Errors
    /// When a node is not one of the run's, is this one, or is given twice; then nothing changes.
    pub fn set_out_edges(&mut self, out_edges: &[NodeId]) -> Result<(), Error> {
        check_edges(self.node, self.nodes, out_edges)?;
        self.prober.set_out_edges(out_edges, self.now);
        Ok(())
    }

    /// Stops or resumes starting exchanges. A stopped endpoint ends what is in flight and goes on
    /// answering: once [`Endpoint::in_flight`] is 0 everywhere and the network has drained, counts
    /// of sent and received packets compare exactly.
    pub fn set_probing(&mut self, probing: bool) {
        self.prober.set_probing(probing, self.now);
    }

    /// Exchanges that this node started and that have not ended.
    pub fn in_flight(&self) -> usize {
        self.prober.in_flight()
    }

    /// Counts of every out-edge since the last call, in order of peer.
    pub fn cut_window(&mut self) -> Vec<EdgeWindowCounts> {
        self.prober.cut_window()
    }

    /// Everything counted since the endpoint was made.
    pub fn counters(&self) -> Counters {
        let mut peers: BTreeMap<NodeId, PeerCounters> =
            self.peers.iter().map(|(node, peer)| (*node, peer.counters)).collect();
        for (node, exchanges) in self.prober.edge_counters() {
            peers.entry(node).or_default().exchanges = exchanges;
        }
        for (node, answers) in self.responder.answer_counters() {
            peers.entry(node).or_default().answers = answers;
        }
        Counters {
            peers,
            foreign: self.foreign,
            skipped_starts: self.prober.skipped_starts,
            refused_starts: self.prober.refused_starts,
            stray_tx_stamps: self.stray_tx_stamps,
            unread_exchanges: self.prober.unread_exchanges,
        }
    }

    /// The packet in a datagram, if it is one of this run for this node. The cheap questions come
    /// first.
    fn admit(&self, datagram: &[u8], from: Option<NodeId>) -> Result<Packet, Reject> {
        let packet = Packet::decode(datagram)?;
        packet.check_addressee(self.run, self.node, self.nodes)?;
        let from = from.ok_or(Reject::Address)?;
        if from != packet.src {
            return Err(Reject::Source);
        }
        Packet::authenticate(datagram, self.key.as_ref())?;
        Ok(packet)
    }

    /// `CLOCK_MONOTONIC` never goes back; a driver that mixes up its readings must not make alarms
    /// run twice.
    fn advance(&mut self, now: Timestamp<Monotonic>) -> Timestamp<Monotonic> {
        self.now = self.now.max(now);
        self.now
    }

    fn lose(&mut self, context: TxContext, loss: Loss, answer_loss: AnswerLoss) {
        let TxContext { peer, kind, seq, .. } = context;
        if kind.is_forward() {
            self.prober.lose((peer, seq), loss);
        } else {
            self.responder.lose((peer, seq), answer_loss);
        }
    }
}

impl EndpointConfig {
    fn check(&self) -> Result<(), Error> {
        check_edges(self.node, self.nodes, &self.out_edges)?;
        if self.spacing < Duration::ZERO || self.spacing >= self.exchange_timeout {
            return Err(Error::Spacing { spacing: self.spacing, timeout: self.exchange_timeout });
        }
        Ok(())
    }
}

impl Peer {
    /// Whether a request of this life of the peer is to be answered. A later life than all before
    /// begins with nothing: what the peer asked in an earlier one is forgotten, and what comes of
    /// it still is refused.
    fn lives_in(&mut self, incarnation: u32, responder: &mut Responder, peer: NodeId) -> bool {
        let latest = *self.incarnation.get_or_insert(incarnation);
        if is_newer(incarnation, latest) {
            self.incarnation = Some(incarnation);
            self.forward = SeenWindow::default();
            responder.forget(peer);
        }
        !is_newer(latest, incarnation)
    }
}

fn check_edges(node: NodeId, nodes: u32, out_edges: &[NodeId]) -> Result<(), Error> {
    let mut peers = out_edges.to_vec();
    peers.sort_unstable();
    if let Some(outside) = peers.iter().chain([&node]).find(|node| node.0 >= nodes) {
        return Err(Error::NoSuchNode { node: *outside, nodes });
    }
    let twice = peers.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    match twice.or_else(|| peers.iter().copied().find(|peer| *peer == node)) {
        Some(peer) => Err(Error::BadEdge { node, peer }),
        None => Ok(()),
    }
}

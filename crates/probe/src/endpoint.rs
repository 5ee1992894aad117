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

/// Settings of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// The run; packets of other runs are foreign.
    pub run: RunId,
    /// This node.
    pub node: NodeId,
    /// Number of nodes in the run; packets from higher numbers are foreign.
    pub nodes: u32,
    /// Nodes that this one probes, in any order. Empty for a listener, which only answers.
    pub out_edges: Vec<NodeId>,
    /// Schedule of exchange starts.
    pub schedule: Schedule,
    /// Time between the two packets of a coded pair.
    pub spacing: Duration,
    /// Time limit of an exchange; extended at a pace at which nodes poll rarely
    /// ([`Schedule::look_period`]).
    pub exchange_timeout: Duration,
    /// Incarnation of this node: greater than all before.
    pub incarnation: u32,
    /// Key that authenticates packets; `None` trusts anyone who knows the run id, which is right if
    /// no one else can send.
    pub key: Option<SessionKey>,
}

impl EndpointConfig {
    /// Default of `spacing`.
    pub const SPACING: Duration = Duration::from_us(100);
    /// Default of `exchange_timeout`. It is long because stamps remain valid even if a starved
    /// process reads them late.
    pub const EXCHANGE_TIMEOUT: Duration = Duration::from_ms(1_000);
}

/// Why an endpoint cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The run has no such node.
    #[error("node {node} is not one of the run's {nodes} nodes")]
    NoSuchNode {
        /// The node.
        node: NodeId,
        /// Number of nodes.
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
    /// Latest time given by the driver; the endpoint's time never goes back.
    now: Timestamp<Monotonic>,
    prober: Prober,
    responder: Responder,
    /// State by peer; contains the peers that sent well-formed packets of this run: fewer than
    /// `nodes`.
    peers: BTreeMap<NodeId, Peer>,
    foreign: ForeignCounters,
    stray_tx_stamps: u64,
    outbox: Outbox,
}

#[derive(Debug, Default)]
struct Peer {
    counters: PeerCounters,
    /// Latest incarnation of the peer in which it started exchanges.
    incarnation: Option<u32>,
    forward: SeenWindow,
    reverse: SeenWindow,
}

impl Endpoint {
    /// Creates an endpoint whose first exchange starts at the schedule's first point after `now`.
    ///
    /// # Errors
    /// Returns an error if the configuration is inconsistent.
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

    /// Does everything that is due: second packets, repetitions, timeouts, and at most one burst of
    /// starts.
    pub fn handle_timer(&mut self, now: Timestamp<Monotonic>) {
        let now = self.advance(now);
        self.prober.handle_timer(now, &mut self.outbox);
        self.responder.handle_timer(now, &mut self.outbox);
    }

    /// Processes a datagram that arrived from the address of node `from` (`None`: not of a node)
    /// and was stamped `received` on this node's system clock.
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

    /// Processes a packet's transmit stamp, on this node's system clock. Stamps of third packets
    /// are ignored.
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

    /// Records that a packet was sent but its transmit stamp will never arrive: the exchange is
    /// dropped and counted.
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

    /// Records that the system refused to send a packet: it does not count as sent, and the
    /// exchange is dropped and counted.
    pub fn handle_send_failed(&mut self, context: TxContext, now: Timestamp<Monotonic>) {
        self.advance(now);
        if let Some(peer) = self.peers.get_mut(&context.peer) {
            peer.counters.sent = peer.counters.sent.saturating_sub(1);
            peer.counters.send_failed += 1;
        }
        self.lose(context, Loss::SendFailed, AnswerLoss::SendFailed);
    }

    /// Returns the next packet to send. It counts as sent unless [`Endpoint::handle_send_failed`]
    /// follows.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let transmit = self.outbox.pop()?;
        self.peers.entry(transmit.to).or_default().counters.sent += 1;
        Some(transmit)
    }

    /// Returns the next finished exchange.
    pub fn poll_exchange(&mut self) -> Option<Exchange> {
        self.prober.poll_exchange()
    }

    /// Returns when [`Endpoint::handle_timer`] is to be called next.
    pub fn next_timer(&self) -> Option<Timestamp<Monotonic>> {
        self.prober.next_timer().into_iter().chain(self.responder.next_timer()).min()
    }

    /// Changes the schedule from the latest time given. Exchanges in flight are not affected.
    pub fn set_schedule(&mut self, schedule: Schedule) {
        self.prober.set_schedule(schedule, self.now);
        self.responder.set_schedule(&schedule);
    }

    /// Probes these nodes from now on, in turn, and no others. Exchanges in flight are not
    /// affected; counts and sequence numbers of a node that is probed again continue.
    ///
    /// # Errors
    /// Returns an error, without any change, if a node is not in the run, is this one, or is given
    /// twice.
    pub fn set_out_edges(&mut self, out_edges: &[NodeId]) -> Result<(), Error> {
        check_edges(self.node, self.nodes, out_edges)?;
        self.prober.set_out_edges(out_edges, self.now);
        Ok(())
    }

    /// Stops or resumes starting exchanges. A stopped endpoint completes exchanges in flight and
    /// continues to answer: once [`Endpoint::in_flight`] is 0 on all nodes and the network has
    /// drained, counts of sent and received packets compare exactly.
    pub fn set_probing(&mut self, probing: bool) {
        self.prober.set_probing(probing, self.now);
    }

    /// Returns the number of exchanges started by this node that have not ended.
    pub fn in_flight(&self) -> usize {
        self.prober.in_flight()
    }

    /// Returns the counts of every out-edge since the last call, in order of peer.
    pub fn cut_window(&mut self) -> Vec<EdgeWindowCounts> {
        self.prober.cut_window()
    }

    /// Returns everything counted since the endpoint was created.
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

    /// Decodes the packet in a datagram, if it is one of this run for this node. Cheap checks come
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

    /// Returns the time, never going back: `CLOCK_MONOTONIC` never does, and a driver that mixes up
    /// its readings must not trigger alarms twice.
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
    /// Returns true if a request of this incarnation of the peer is to be answered. A later
    /// incarnation starts afresh: requests of an earlier one are forgotten, and further packets of
    /// it are refused.
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

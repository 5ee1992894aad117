//! Two endpoints joined by a wire that does to each packet what a plan says. Node 1 is 1000 ns
//! ahead of node 0, and a packet takes 200 ns unless the plan says otherwise.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use probe_sync_probe::{Counters, Endpoint, EndpointConfig, Kind, PACKET_BYTES, PeerCounters, Schedule, Transmit};
use probe_sync_time::{Duration, Exchange, Monotonic, NodeId, RunId, SessionKey, Stamp, StampSource, Timestamp};

pub const DELAY: i64 = 200;
pub const AHEAD: i64 = 1000;
pub const TIMEOUT: i64 = 100_000_000;
/// How long a lost packet of a pair is waited for.
pub const GRACE: i64 = 2_000_000;
pub const KEY: SessionKey = SessionKey([9; 32]);

/// What becomes of a packet's transmit stamp.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Tx {
    Stamp(StampSource),
    Lost,
    SendFailed,
    Silence,
}

/// What happens to the packets of the first exchange of node 0. Later exchanges pass undisturbed.
#[derive(Copy, Clone)]
pub struct Plan {
    /// For each copy that arrives, by how much it is late, ns. Repetitions of third packets have
    /// their own number.
    pub copies: fn(Kind, u8) -> &'static [i64],
    pub tx: fn(Kind) -> Tx,
    pub rx: StampSource,
    /// How many exchanges node 0 starts, 1 ms apart.
    pub exchanges: i64,
}

pub const GOOD: Plan =
    Plan { copies: |_, _| &[0], tx: |_| Tx::Stamp(StampSource::Kernel), rx: StampSource::Kernel, exchanges: 1 };

pub struct Outcome {
    pub exchanges: Vec<Exchange>,
    pub counters: [Counters; 2],
}

impl Outcome {
    /// What node 0 counted about node 1, and the reverse.
    pub fn peers(&self) -> [PeerCounters; 2] {
        let about = |node: usize, peer| self.counters[node].peers.get(&NodeId(peer)).copied().unwrap_or_default();
        [about(0, 1), about(1, 0)]
    }

    /// Packets lost from node 0 to node 1 and from node 1 to node 0.
    pub fn lost(&self) -> [u64; 2] {
        let [zero, one] = self.peers();
        [zero.sent - one.first_copies(), one.sent - zero.first_copies()]
    }
}

pub fn at(ns: i64) -> Timestamp<Monotonic> {
    Timestamp::from_ns(ns)
}

pub fn stamp(ns: i64, source: StampSource) -> Stamp {
    Stamp { at: Timestamp::from_ns(ns), source }
}

pub fn config(node: u32, nodes: u32, out_edges: &[u32]) -> EndpointConfig {
    EndpointConfig {
        run: RunId(77),
        node: NodeId(node),
        nodes,
        out_edges: out_edges.iter().copied().map(NodeId).collect(),
        schedule: Schedule::new(Duration::from_ms(1), Duration::ZERO).expect("a positive gap"),
        spacing: EndpointConfig::SPACING,
        exchange_timeout: Duration::from_ns(TIMEOUT),
        incarnation: 7,
        key: Some(KEY),
    }
}

pub fn endpoint(node: u32, nodes: u32, out_edges: &[u32]) -> Endpoint {
    Endpoint::new(config(node, nodes, out_edges), at(0)).expect("a sound configuration")
}

pub fn transmits(endpoint: &mut Endpoint) -> Vec<Transmit> {
    std::iter::from_fn(|| endpoint.poll_transmit()).collect()
}

/// Runs node 0 against node 1 until the wire is empty and every exchange has ended.
pub fn run(plan: &Plan) -> Outcome {
    let mut wire = Wire::default();
    let mut nodes = [endpoint(0, 2, &[1]), endpoint(1, 2, &[])];
    let mut exchanges = Vec::new();
    for _ in 0..10_000 {
        let timers = nodes.each_ref().map(|node| node.next_timer().map(Timestamp::as_ns));
        let timer = timers.iter().flatten().min().copied();
        let arrival = wire.queue.peek().map(|Reverse((time, ..))| *time);
        let Some(now) = timer.into_iter().chain(arrival).min() else { break };
        if now > plan.exchanges * 1_000_000 {
            nodes[0].set_probing(false);
        }
        if Some(now) == arrival {
            let Some(Reverse((_, _, to, bytes))) = wire.queue.pop() else { break };
            let from = Some(NodeId(1 - to as u32));
            nodes[to].handle_packet(&bytes, from, stamp(now + AHEAD * to as i64, plan.rx), at(now));
        } else {
            nodes.iter_mut().for_each(|node| node.handle_timer(at(now)));
        }
        nodes.iter_mut().enumerate().for_each(|(from, node)| wire.carry(plan, from, node, now));
        exchanges.extend(std::iter::from_fn(|| nodes[0].poll_exchange()));
    }
    assert_eq!(nodes[0].in_flight(), 0);
    Outcome { exchanges, counters: nodes.map(|node| node.counters()) }
}

/// When, tie breaker, to which node, what.
type Arrival = (i64, u64, usize, [u8; PACKET_BYTES]);

#[derive(Default)]
struct Wire {
    queue: BinaryHeap<Reverse<Arrival>>,
    order: u64,
}

impl Wire {
    /// Takes what `node` wants to send, and gives the transmit stamps back at once.
    fn carry(&mut self, plan: &Plan, from: usize, node: &mut Endpoint, now: i64) {
        while let Some(transmit) = node.poll_transmit() {
            let context = transmit.context;
            let plan = if context.seq == 0 { plan } else { &GOOD };
            match (plan.tx)(context.kind) {
                Tx::Stamp(source) => node.handle_tx_stamp(context, stamp(now + AHEAD * from as i64, source), at(now)),
                Tx::Lost => node.handle_tx_lost(context, at(now)),
                Tx::SendFailed => {
                    node.handle_send_failed(context, at(now));
                    continue;
                }
                Tx::Silence => {}
            }
            for late in (plan.copies)(context.kind, context.repetition) {
                self.order += 1;
                self.queue.push(Reverse((now + DELAY + late, self.order, 1 - from, transmit.bytes)));
            }
        }
    }
}

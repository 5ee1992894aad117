//! The event loop: endpoints, clocks and wires in one discrete-event simulation.
//!
//! Events lie in one binary heap by true time, ties in order of their making, so a run depends on nothing but scenario
//! and seed. When the duration is over the nodes stop starting exchanges, and the run goes on until everything in flight
//! has ended: only then can counts of sent and received packets be compared exactly.
//!
//! What it does not do: cut windows or run rounds; it hands out exchanges and truth.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use probe_sync_probe::{
    Counters, Endpoint, EndpointConfig, PACKET_BYTES, Schedule, Stamp, Transmit, TxContext, topology,
};
use probe_sync_time::{Duration, Edge, Exchange, Monotonic, NodeId, RunId, SkewedClock, System, Timestamp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::clock::WanderingClock;
use crate::ledger::{Bookkeeper, Ledger};
use crate::network::Wires;
use crate::random::{chance, exponential, symmetric};
use crate::scenario::Scenario;

/// Why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The gap between exchanges is not positive.
    #[error("the gap between exchanges must be positive, not {0:?}")]
    Gap(Duration),
    /// A delay is negative: packets would arrive before they are sent.
    #[error("delays must not be negative")]
    Delay,
    /// The endpoints refuse their configuration.
    #[error(transparent)]
    Endpoint(#[from] probe_sync_probe::Error),
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Finished exchanges of every edge, in the order in which they finished. Edges without any have an empty list.
    pub exchanges: BTreeMap<Edge, Vec<Exchange>>,
    /// What each node counted.
    pub counters: Vec<Counters>,
    /// What really happened to the packets.
    pub ledger: Ledger,
    /// Each node's clock. Node 0's shows true time.
    pub clocks: Vec<WanderingClock>,
    /// The run's first instant, true time.
    pub start: Timestamp<System>,
    /// When the last packet and timer were done, true time.
    pub end: Timestamp<System>,
    /// Events handled: the cost of the run.
    pub events: u64,
}

impl Outcome {
    /// The truth: offset of `node` from node 0 when node 0's clock shows `at`, ns.
    pub fn offset_ns(&self, node: NodeId, at: Timestamp<System>) -> f64 {
        self.clocks[node.index()].error_ns(at)
    }
}

/// A run that is ready to go.
#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    seed: u64,
    edges: Vec<Edge>,
}

impl Simulation {
    /// Prepares a run of `scenario`.
    ///
    /// # Errors
    /// When the scenario contradicts itself.
    pub fn new(scenario: Scenario, seed: u64) -> Result<Self, Error> {
        let network = &scenario.network;
        let delays = [network.delay_ns, network.asymmetry_ns_max, network.straggling_ns, scenario.stamps.report_ns];
        if delays.iter().any(|delay| *delay < 0) || network.queueing_ns_mean < 0.0 || scenario.wakeup_ns_mean < 0.0 {
            return Err(Error::Delay);
        }
        let edges = topology::edges(scenario.nodes, scenario.neighbors, seed);
        let simulation = Self { scenario, seed, edges };
        simulation.endpoints()?;
        Ok(simulation)
    }

    /// The edges that are probed.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Probes for `duration`, then lets everything in flight end.
    pub fn run(&self, duration: Duration) -> Outcome {
        let endpoints = self.endpoints().expect("the same scenario was accepted by Simulation::new");
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ CLOCK_SALT);
        let clocks = (0..self.scenario.nodes).map(|node| self.clock(node, duration, &mut rng)).collect();
        let timeout_ns = self.scenario.exchange_timeout.as_ns();
        let mut world = World {
            scenario: &self.scenario,
            nodes: endpoints.into_iter().map(|endpoint| Node { endpoint, armed: None }).collect(),
            clocks,
            wires: Wires::new(self.scenario.network, self.seed),
            rng,
            books: Bookkeeper::new(self.scenario.nodes, timeout_ns),
            heap: BinaryHeap::new(),
            order: 0,
            exchanges: self.edges.iter().map(|edge| (*edge, Vec::new())).collect(),
        };
        let (events, end) = world.run(duration.as_ns());
        Outcome {
            exchanges: world.exchanges,
            counters: world.nodes.iter().map(|node| node.endpoint.counters()).collect(),
            ledger: world.books.ledger,
            clocks: world.clocks,
            start: EPOCH,
            end: true_time(end),
            events,
        }
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>, Error> {
        let Scenario { nodes, gap, spacing, exchange_timeout, .. } = self.scenario;
        let mut out_edges: Vec<Vec<NodeId>> = vec![Vec::new(); nodes as usize];
        for edge in &self.edges {
            out_edges[edge.src.index()].push(edge.dst);
        }
        let endpoint = |(node, out_edges): (u32, Vec<NodeId>)| {
            let phase = gap.as_ns() / i64::from(nodes) * i64::from(node);
            let schedule = Schedule::new(gap, Duration::from_ns(phase)).ok_or(Error::Gap(gap))?;
            let run = RunId(self.seed);
            let node = NodeId(node);
            let config = EndpointConfig { run, node, nodes, out_edges, schedule, spacing, exchange_timeout };
            Ok(Endpoint::new(config, Timestamp::from_ns(0))?)
        };
        (0..nodes).zip(out_edges).map(endpoint).collect()
    }

    fn clock(&self, node: u32, duration: Duration, rng: &mut ChaCha8Rng) -> WanderingClock {
        let clocks = &self.scenario.clocks;
        let t0_ns = EPOCH.as_ns();
        let off_ns = symmetric(rng, clocks.offset_ns_max);
        let ppm = clocks.skew_ppm_max * (2.0 * rng.random::<f64>() - 1.0);
        let skewed = SkewedClock { t0_ns, off_ns, ppm, steps: Vec::new() };
        if node == 0 {
            return WanderingClock::new(SkewedClock::default(), EPOCH, duration, 0.0, rng);
        }
        WanderingClock::new(skewed, EPOCH, duration, clocks.wander_ppm, rng)
    }
}

/// A run under way.
struct World<'a> {
    scenario: &'a Scenario,
    nodes: Vec<Node>,
    clocks: Vec<WanderingClock>,
    wires: Wires,
    rng: ChaCha8Rng,
    books: Bookkeeper,
    heap: BinaryHeap<Reverse<Event>>,
    order: u64,
    exchanges: BTreeMap<Edge, Vec<Exchange>>,
}

struct Node {
    endpoint: Endpoint,
    /// The timer asked for, and when the node will wake up for it.
    armed: Option<(Timestamp<Monotonic>, i64)>,
}

/// Something that happens at a true time, ns since the start.
#[derive(Debug)]
struct Event {
    at: i64,
    order: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    /// The probing time is over.
    Stop,
    Wake(NodeId),
    Arrival {
        from: NodeId,
        context: TxContext,
        copies: u8,
        bytes: [u8; PACKET_BYTES],
    },
    Foreign {
        to: NodeId,
        bytes: [u8; PACKET_BYTES],
        length: usize,
    },
    /// A transmit stamp is reported, or will never be.
    Sent {
        from: NodeId,
        context: TxContext,
        stamp: Option<Stamp>,
    },
}

impl World<'_> {
    /// Handles all events; returns their number and the time of the last.
    fn run(&mut self, duration_ns: i64) -> (u64, i64) {
        self.push(duration_ns, What::Stop);
        for index in 0..self.nodes.len() {
            self.settle(NodeId(index as u32), 0);
        }
        let (mut events, mut now) = (0, 0);
        // Ends: after Stop no exchange starts, and each packet and timer of an exchange makes finitely many events.
        while let Some(Reverse(event)) = self.heap.pop() {
            now = event.at;
            events += 1;
            self.handle(&event.what, now);
        }
        (events, now)
    }

    fn handle(&mut self, what: &What, now: i64) {
        let node = match *what {
            What::Stop => {
                self.nodes.iter_mut().for_each(|node| node.endpoint.set_probing(false));
                return;
            }
            What::Wake(node) => {
                let state = &mut self.nodes[node.index()];
                if state.armed.is_none_or(|(_, at)| at != now) {
                    return;
                }
                state.armed = None;
                state.endpoint.handle_timer(monotonic(now));
                node
            }
            What::Arrival { from, context, copies, ref bytes } => {
                self.books.note_arrival(from, context, copies, now);
                self.receive(context.peer, bytes, now)
            }
            What::Foreign { to, ref bytes, length } => self.receive(to, &bytes[..length], now),
            What::Sent { from, context, stamp } => {
                let endpoint = &mut self.nodes[from.index()].endpoint;
                match stamp {
                    Some(stamp) => endpoint.handle_tx_stamp(context, stamp, monotonic(now)),
                    None => endpoint.handle_tx_lost(context, monotonic(now)),
                }
                from
            }
        };
        self.settle(node, now);
    }

    fn receive(&mut self, node: NodeId, datagram: &[u8], now: i64) -> NodeId {
        let received = self.stamp(node, now);
        self.nodes[node.index()].endpoint.handle_packet(datagram, received, monotonic(now));
        node
    }

    /// Does what a driver does after each call: sends, takes exchanges, sets the timer.
    fn settle(&mut self, node: NodeId, now: i64) {
        while let Some(transmit) = self.nodes[node.index()].endpoint.poll_transmit() {
            self.send(node, &transmit, now);
        }
        let state = &mut self.nodes[node.index()];
        while let Some(exchange) = state.endpoint.poll_exchange() {
            self.exchanges.entry(exchange.edge).or_default().push(exchange);
        }
        let Some(timer) = state.endpoint.next_timer() else { return };
        if state.armed.is_none_or(|(armed, _)| timer < armed) {
            let lateness = exponential(&mut self.rng, self.scenario.wakeup_ns_mean).round() as i64;
            let wake = timer.as_ns().max(now) + lateness;
            state.armed = Some((timer, wake));
            self.push(wake, What::Wake(node));
        }
    }

    fn send(&mut self, from: NodeId, transmit: &Transmit, now: i64) {
        let Transmit { to, bytes, context } = *transmit;
        if chance(&mut self.rng, self.scenario.stamps.unsendable) {
            self.books.direction(from, to).unsendable += 1;
            self.nodes[from.index()].endpoint.handle_send_failed(context, monotonic(now));
            return;
        }
        self.books.note_sent(from, context, now);
        self.report_stamp(from, context, now);
        let delays = self.wires.carry(from, to);
        let copies = delays.iter().flatten().count() as u8;
        if copies == 0 {
            self.books.direction(from, to).dropped += 1;
        }
        for delay in delays.into_iter().flatten() {
            self.push(now + delay, What::Arrival { from, context, copies, bytes });
        }
        if let Some((bytes, length)) = self.wires.foreign(&bytes, &mut self.books.ledger.foreign[to.index()]) {
            self.push(now + self.scenario.network.delay_ns, What::Foreign { to, bytes, length });
        }
    }

    fn report_stamp(&mut self, from: NodeId, context: TxContext, now: i64) {
        if !context.kind.needs_tx_stamp() {
            return;
        }
        let withheld = chance(&mut self.rng, self.scenario.stamps.missing);
        self.books.direction(from, context.peer).stamps_withheld += u64::from(withheld);
        let stamp = self.stamp(from, now);
        let what = What::Sent { from, context, stamp: (!withheld).then_some(stamp) };
        self.push(now + self.scenario.stamps.report_ns, what);
    }

    fn stamp(&mut self, node: NodeId, now: i64) -> Stamp {
        let noise = symmetric(&mut self.rng, self.scenario.stamps.noise_ns_max);
        let at = self.clocks[node.index()].apply(true_time(now)) + Duration::from_ns(noise);
        Stamp { at, source: self.scenario.stamps.source }
    }

    fn push(&mut self, at: i64, what: What) {
        self.order += 1;
        self.heap.push(Reverse(Event { at, order: self.order, what }));
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

fn monotonic(now: i64) -> Timestamp<Monotonic> {
    Timestamp::from_ns(now)
}

fn true_time(now: i64) -> Timestamp<System> {
    EPOCH + Duration::from_ns(now)
}

/// A plausible present: clock arithmetic at this scale must not lose nanoseconds.
const EPOCH: Timestamp<System> = Timestamp::from_ns(1_790_000_000_000_000_000);

/// Keeps the clocks' random numbers apart from the wires'.
const CLOCK_SALT: u64 = 0x5eed_c10c;

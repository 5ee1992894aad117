//! The event loop: endpoints, clocks and wires in one discrete-event simulation.
//!
//! Events lie in one binary heap by true time, ties in order of their making, so a run depends on nothing but scenario
//! and seed. When probing stops the run goes on until everything in flight has ended: only then can counts of sent and
//! received packets be compared exactly.
//!
//! What it does not do: cut windows or run rounds.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use probe_sync_probe::{Endpoint, PACKET_BYTES, Schedule, Stamp, Transmit, TxContext};
use probe_sync_time::{Duration, Exchange, Monotonic, NodeId, System, Timestamp};
use rand_chacha::ChaCha8Rng;

use crate::clock::WanderingClock;
use crate::ledger::Bookkeeper;
use crate::network::Wires;
use crate::random::{chance, exponential, symmetric};
use crate::scenario::Scenario;
use crate::simulation::Simulation;

/// Everything that a run is made of.
#[derive(Debug)]
pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clocks: Vec<WanderingClock>,
    wires: Wires,
    rng: ChaCha8Rng,
    pub(crate) books: Bookkeeper,
    heap: BinaryHeap<Reverse<Event>>,
    order: u64,
    /// Time since the start, ns.
    now: i64,
    /// Events handled.
    pub(crate) events: u64,
    /// Packets that the network took.
    pub(crate) packets_sent: u64,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    /// Exchanges that finished since the last cut, by destination.
    pub(crate) finished: BTreeMap<NodeId, Vec<Exchange>>,
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

impl<'a> World<'a> {
    /// A world at its first instant.
    pub(crate) fn new(
        scenario: &'a Scenario,
        seed: u64,
        endpoints: Vec<Endpoint>,
        clocks: Vec<WanderingClock>,
        rng: ChaCha8Rng,
    ) -> Self {
        let node = |endpoint| Node { endpoint, finished: BTreeMap::new(), armed: None };
        let mut world = Self {
            scenario,
            nodes: endpoints.into_iter().map(node).collect(),
            clocks,
            wires: Wires::new(scenario.network, seed),
            rng,
            books: Bookkeeper::new(scenario.nodes, scenario.exchange_timeout.as_ns()),
            heap: BinaryHeap::new(),
            order: 0,
            now: 0,
            events: 0,
            packets_sent: 0,
        };
        for index in 0..world.nodes.len() {
            world.settle(NodeId(index as u32), 0);
        }
        world
    }

    /// True time.
    pub(crate) fn now(&self) -> Timestamp<System> {
        true_time(self.now)
    }

    /// Handles all events up to `until`, ns since the start.
    pub(crate) fn advance(&mut self, until: i64) {
        while self.heap.peek().is_some_and(|Reverse(event)| event.at <= until) {
            self.step();
        }
        self.now = self.now.max(until);
    }

    /// Stops the starting of exchanges and handles all events that are left.
    pub(crate) fn drain(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.endpoint.set_probing(false));
        // Ends: no exchange starts, and each packet and timer of an exchange makes finitely many events.
        while !self.heap.is_empty() {
            self.step();
        }
    }

    /// Changes when `node` starts exchanges.
    pub(crate) fn set_schedule(&mut self, node: NodeId, schedule: Schedule) {
        self.nodes[node.index()].endpoint.set_schedule(schedule);
        self.settle(node, self.now);
    }

    /// Handles the next event, if any.
    fn step(&mut self) {
        let Some(Reverse(event)) = self.heap.pop() else { return };
        self.now = event.at;
        self.events += 1;
        self.handle(&event.what, event.at);
    }

    fn handle(&mut self, what: &What, now: i64) {
        let node = match *what {
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
            state.finished.entry(exchange.edge.dst).or_default().push(exchange);
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
        self.packets_sent += 1;
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
    Simulation::START + Duration::from_ns(now)
}

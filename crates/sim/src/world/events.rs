//! The event loop: endpoints, clocks and wires in one discrete-event simulation.
//!
//! Events lie in one binary heap by true time, ties in order of their making, so a run depends on
//! nothing but scenario and seed. When probing stops the run goes on until everything in flight has
//! ended: only then can counts of sent and received packets be compared exactly.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use probe_sync_probe::{Endpoint, PACKET_BYTES, Schedule, Tally, Transmit, TxContext};
use probe_sync_time::{Duration, Edge, Exchange, Monotonic, NodeId, Stamp, StampSource, System, Timestamp};

use crate::error::Error;
use crate::scenario::Scenario;
use crate::scenario::faults::Span;
use crate::world::clock::WanderingClock;
use crate::world::ground_truth::PacketCounter;
use crate::world::in_flight::{Numbered, Packet, Report};
use crate::world::network::Wires;
use crate::world::random::{Draws, Purpose};
use crate::world::stamp_errors::StampError;
use crate::world::stamps::Side;

/// State of a run.
#[derive(Debug)]
pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clocks: Vec<WanderingClock>,
    wires: Wires<'a>,
    packets: Numbered<Packet>,
    reports: Numbered<Report>,
    pub(crate) counter: PacketCounter,
    heap: BinaryHeap<Reverse<Event>>,
    order: u64,
    /// Time since the start, ns.
    now: i64,
    /// Events processed.
    pub(crate) events: u64,
    /// Packets accepted by the network.
    pub(crate) packets_sent: u64,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    /// Exchanges that finished since the last cut, by destination.
    pub(crate) finished: BTreeMap<NodeId, Vec<Exchange>>,
    /// Packets by peer at the last cut.
    pub(crate) tally: Tally,
    /// When the node's process last began, ns since the start.
    pub(crate) began_at: i64,
    /// The requested timer, and when the node will wake up for it.
    armed: Option<(Timestamp<Monotonic>, i64)>,
    draws: Draws,
    /// When it neither sends nor receives.
    silences: Vec<Span>,
    /// When its process does not run, in order of time.
    pauses: Vec<Span>,
    stamp_errors: Vec<StampError>,
}

/// An event at a true time, ns since the start.
#[derive(Copy, Clone, Debug)]
struct Event {
    at: i64,
    order: u64,
    what: What,
}

#[derive(Copy, Clone, Debug)]
enum What {
    Wake(NodeId),
    /// A packet arrives, by its number.
    Arrival(u32),
    /// A transmit timestamp is reported, or will never be, by its number.
    Sent(u32),
    /// A node's silence is over: its process begins anew.
    Begin(NodeId),
}

impl<'a> World<'a> {
    /// The state at the first instant.
    pub(crate) fn new(
        scenario: &'a Scenario,
        seed: u64,
        edges: &[Edge],
        endpoints: Vec<Endpoint>,
        clocks: Vec<WanderingClock>,
    ) -> Self {
        let node = |(index, endpoint)| Node::new(scenario, seed, edges, NodeId(index), endpoint);
        let mut world = Self {
            scenario,
            nodes: (0..).zip(endpoints).map(node).collect(),
            clocks,
            wires: Wires::new(scenario.network, &scenario.faults, seed, scenario.nodes),
            packets: Numbered::default(),
            reports: Numbered::default(),
            counter: PacketCounter::new(scenario.nodes),
            heap: BinaryHeap::new(),
            order: 0,
            now: 0,
            events: 0,
            packets_sent: 0,
        };
        for (node, span) in scenario.faults.iter().filter_map(|fault| fault.silence()) {
            world.push(span.end_ns, What::Begin(node));
        }
        for index in 0..world.nodes.len() {
            world.settle(NodeId(index as u32), 0);
        }
        world
    }

    /// True time.
    pub(crate) fn now(&self) -> Timestamp<System> {
        true_time(self.now)
    }

    /// Processes all events up to `until`, ns since the start.
    pub(crate) fn advance(&mut self, until: i64) {
        while self.heap.peek().is_some_and(|Reverse(event)| event.at <= until) {
            self.step();
        }
        self.now = self.now.max(until);
    }

    /// Stops starting exchanges and processes all remaining events.
    pub(crate) fn drain(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.endpoint.set_probing(false));
        // Ends: no exchange starts, and each packet and timer of an exchange makes finitely many
        // events.
        while !self.heap.is_empty() {
            self.step();
        }
    }

    /// Changes which nodes `node` probes.
    pub(crate) fn set_out_edges(&mut self, node: NodeId, peers: &[NodeId]) -> Result<(), Error> {
        self.nodes[node.index()].endpoint.set_out_edges(peers)?;
        self.settle(node, self.now);
        Ok(())
    }

    /// Changes when `node` starts exchanges.
    pub(crate) fn set_schedule(&mut self, node: NodeId, schedule: Schedule) {
        self.nodes[node.index()].endpoint.set_schedule(schedule);
        self.settle(node, self.now);
    }

    /// Whether `node` currently takes part.
    pub(crate) fn is_live(&self, node: NodeId) -> bool {
        !self.nodes[node.index()].is_silent(self.now)
    }

    /// Processes the next event, if any.
    fn step(&mut self) {
        let Some(Reverse(event)) = self.heap.pop() else { return };
        self.now = event.at;
        self.events += 1;
        match self.paused_until(event.what, event.at) {
            Some(end) => self.push(end, event.what),
            None => self.handle(event.what, event.at),
        }
    }

    /// When the process that an event is for runs again, if it does not run now.
    fn paused_until(&mut self, what: What, now: i64) -> Option<i64> {
        let node = match what {
            What::Wake(node) | What::Begin(node) => node,
            What::Sent(number) => self.reports.at(number).from,
            What::Arrival(number) => self.packets.at(number).to,
        };
        let state = &mut self.nodes[node.index()];
        let end = state.pauses.iter().find(|pause| pause.contains(now))?.end_ns;
        match what {
            What::Arrival(number) => self.packets.hold(number, now),
            What::Wake(_) => {
                // A timer that was set anew meanwhile has its own event.
                let (timer, _) = state.armed.filter(|(_, at)| *at == now)?;
                state.armed = Some((timer, end));
            }
            What::Sent(_) | What::Begin(_) => {}
        }
        Some(end)
    }

    fn handle(&mut self, what: What, now: i64) {
        let node = match what {
            What::Wake(node) => {
                let state = &mut self.nodes[node.index()];
                if state.armed.is_none_or(|(_, at)| at != now) || state.is_silent(now) {
                    return;
                }
                state.armed = None;
                state.endpoint.handle_timer(monotonic(now));
                node
            }
            What::Arrival(number) => self.receive(number, now),
            What::Sent(number) => {
                let Report { from, context, stamp } = self.reports.take(number);
                let endpoint = &mut self.nodes[from.index()].endpoint;
                match stamp {
                    Some(stamp) => endpoint.handle_tx_stamp(context, stamp, monotonic(now)),
                    None => endpoint.handle_tx_lost(context, monotonic(now)),
                }
                from
            }
            What::Begin(node) => {
                self.nodes[node.index()].begin(now);
                node
            }
        };
        self.settle(node, now);
    }

    fn receive(&mut self, number: u32, now: i64) -> NodeId {
        let Packet { from, to, context, copies, bytes, length, came_at } = self.packets.take(number);
        if let Some(context) = context {
            self.counter.note_arrival(from, context, copies);
        }
        let early = came_at.filter(|_| self.scenario.stamps.source != StampSource::User);
        let received = self.stamp(to, from, Side::Receive, early.unwrap_or(now));
        self.nodes[to.index()].endpoint.handle_packet(&bytes[..length], Some(from), received, monotonic(now));
        to
    }

    /// Does what a driver does after each call: sends, takes exchanges, sets the timer.
    fn settle(&mut self, node: NodeId, now: i64) {
        if self.nodes[node.index()].is_silent(now) {
            return;
        }
        // What leaves together leaves one after another, as fast as a system puts packets on the
        // wire.
        let mut leaves = now;
        while let Some(transmit) = self.nodes[node.index()].endpoint.poll_transmit() {
            self.send(node, &transmit, leaves);
            leaves += SEND_NS;
        }
        let state = &mut self.nodes[node.index()];
        while let Some(exchange) = state.endpoint.poll_exchange() {
            state.finished.entry(exchange.edge.dst).or_default().push(exchange);
        }
        let Some(timer) = state.endpoint.next_timer() else { return };
        if state.armed.is_none_or(|(armed, _)| timer < armed) {
            let lateness = state.draws.exponential(self.scenario.wakeup_ns_mean).round() as i64;
            let wake = timer.as_ns().max(now) + lateness;
            state.armed = Some((timer, wake));
            self.push(wake, What::Wake(node));
        }
    }

    fn send(&mut self, from: NodeId, transmit: &Transmit, now: i64) {
        let Transmit { to, bytes, context } = *transmit;
        let sender = &mut self.nodes[from.index()];
        if sender.draws.chance(self.scenario.stamps.unsendable) {
            sender.endpoint.handle_send_failed(context, monotonic(now));
            self.counter.counts(from, to).unsendable += 1;
            return;
        }
        self.packets_sent += 1;
        self.report_stamp(from, context, now);
        let receiver = &self.nodes[to.index()];
        let delays =
            self.wires.carry(from, to, now).map(|delay| delay.filter(|delay| !receiver.is_silent(now + delay)));
        let copies = delays.iter().flatten().count() as u8;
        self.counter.note_sent(from, to, copies);
        for delay in delays.into_iter().flatten() {
            let packet =
                Packet { from, to, context: Some(context), copies, bytes, length: PACKET_BYTES, came_at: None };
            self.post(packet, now + delay);
        }
        let arrives_at = now + self.scenario.network.delay_ns;
        if self.scenario.network.foreign > 0.0 && !self.nodes[to.index()].is_silent(arrives_at) {
            let counters = &mut self.counter.foreign[to.index()];
            if let Some((bytes, length)) = self.wires.foreign(&bytes, counters) {
                self.post(Packet { from, to, context: None, copies: 1, bytes, length, came_at: None }, arrives_at);
            }
        }
    }

    fn post(&mut self, packet: Packet, at: i64) {
        let number = self.packets.put(packet);
        self.push(at, What::Arrival(number));
    }

    fn report_stamp(&mut self, from: NodeId, context: TxContext, now: i64) {
        if !context.kind.needs_tx_stamp() {
            return;
        }
        let reported_at = now + self.scenario.stamps.report_ns;
        let stamp = self.stamp(from, context.peer, Side::Transmit, now);
        let sender = &mut self.nodes[from.index()];
        let withheld = sender.draws.chance(self.scenario.stamps.missing) || sender.is_silent(reported_at);
        self.counter.counts(from, context.peer).stamps_withheld += u64::from(withheld);
        let number = self.reports.put(Report { from, context, stamp: (!withheld).then_some(stamp) });
        self.push(reported_at, What::Sent(number));
    }

    /// The timestamp of a packet between `node` and `peer`.
    fn stamp(&mut self, node: NodeId, peer: NodeId, side: Side, now: i64) -> Stamp {
        let exact = self.clocks[node.index()].apply(true_time(now));
        let state = &mut self.nodes[node.index()];
        let received = side == Side::Receive;
        let wrong_by_ns = state.stamp_errors.iter().map(|error| error.error_ns(now, peer, received)).sum();
        let stamps = &self.scenario.stamps;
        Stamp { at: stamps.take(exact, wrong_by_ns, side, &mut state.draws), source: stamps.source }
    }

    fn push(&mut self, at: i64, what: What) {
        self.order += 1;
        self.heap.push(Reverse(Event { at, order: self.order, what }));
    }
}

impl Node {
    fn new(scenario: &Scenario, seed: u64, edges: &[Edge], node: NodeId, endpoint: Endpoint) -> Self {
        let silences = scenario.faults.iter().filter_map(|fault| fault.silence());
        Self {
            endpoint,
            finished: BTreeMap::new(),
            tally: Tally::default(),
            began_at: i64::MIN,
            armed: None,
            draws: Draws::new(seed, Purpose::Node, u64::from(node.0)),
            silences: silences.filter(|(silent, _)| *silent == node).map(|(_, span)| span).collect(),
            pauses: scenario.faults.iter().filter_map(|fault| fault.pause(node)).collect(),
            stamp_errors: StampError::of(node, &scenario.faults, edges),
        }
    }

    fn is_silent(&self, at: i64) -> bool {
        self.silences.iter().any(|span| span.contains(at))
    }

    /// A new process knows nothing about the old one's exchanges; those in flight are given up at
    /// its first timer.
    fn begin(&mut self, now: i64) {
        self.began_at = now;
        self.armed = None;
        self.endpoint.handle_timer(monotonic(now));
        while self.endpoint.poll_transmit().is_some() {}
        while self.endpoint.poll_exchange().is_some() {}
        self.endpoint.cut_window();
        self.finished.clear();
        self.tally.since_last(self.endpoint.counters());
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
    START + Duration::from_ns(now)
}

/// The first instant of every run, true time. A plausible present: clock arithmetic at this scale
/// must not lose nanoseconds.
pub(crate) const START: Timestamp<System> = Timestamp::from_ns(1_790_000_000_000_000_000);

/// Time from one packet of a batch to the next, ns.
const SEND_NS: i64 = 1_500;

//! The probe thread's own side: one tokio task that probes and answers on all edges of a node.
//!
//! It drives `probe::Endpoint` with the real socket, the real clocks and, under `--inject-skew`,
//! the virtual clock applied to every stamp. It collects finished exchanges into the current window
//! and watches the system clock for steps. Other threads reach it only through [`Command`]s
//! (`prober`).

use std::collections::{BTreeMap, HashMap};
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use probe_sync_estimate::round::{EdgeCut, WindowCut};
use probe_sync_lines::{ClockEvent, PeerPackets};
use probe_sync_probe::{Endpoint, EndpointConfig, PACKET_BYTES, Schedule, Tally, Transmit, TxContext};
use probe_sync_sys::discipline::ClockWatch;
use probe_sync_sys::{
    AsyncUdp, MonotonicClock, NARROW_BRACKET, Outgoing, RawClock, SendToken, SystemClock, Timer, TimestampedUdp,
    read_pair, wait,
};
use probe_sync_time::{
    Clock, Duration, Edge, Exchange, Monotonic, NodeId, SkewedClock, Stamp, StampSource, System, Timestamp,
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::account::{EdgeExchanges, RankAccount};
use super::counters::{self, Counter};
use crate::Error;

/// A command to the probe thread.
pub(super) enum Command {
    /// Requests the window, and the largest number of queued commands since the previous one.
    Cut(SyncSender<(WindowCut, u32)>),
    SetSchedule(Schedule),
    SetOutEdges(Vec<NodeId>),
    SetAddress(NodeId, SocketAddr),
    SetProbing(bool),
    StopProbing,
    InFlight(SyncSender<usize>),
    Account(SyncSender<RankAccount>),
}

/// State of the probe thread.
pub(super) struct Driver {
    endpoint: Endpoint,
    udp: AsyncUdp,
    timer: Timer,
    addresses: Vec<SocketAddr>,
    clock: SkewedClock,
    nodes: HashMap<SocketAddr, NodeId>,
    awaited: AwaitedStamps,
    /// Next time to poll for packets if nothing wakes the task.
    look_due: Timestamp<Monotonic>,
    look_period: Duration,
    /// Poll period, shortened while more packets arrive between two polls than a socket holds.
    crowded_period: Duration,
    watch: ClockWatch,
    /// Signals a step to the round loop before the window ends.
    stepped: Arc<AtomicBool>,
    watch_due: Timestamp<Monotonic>,
    node: NodeId,
    window_start: Timestamp<System>,
    /// Exchanges finished in the current window.
    finished: Vec<Exchange>,
    tally: Tally,
    overflowed: u64,
    /// Largest number of queued commands in the current window.
    commands_waiting: u32,
    /// Peers to which packets could not be sent, with the latest reason.
    unreachable: BTreeMap<NodeId, String>,
}

impl Driver {
    pub(super) fn new(
        udp: TimestampedUdp,
        endpoint: EndpointConfig,
        addresses: Vec<SocketAddr>,
        clock: SkewedClock,
        stepped: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let now = MonotonicClock.now();
        let node = endpoint.node;
        let look_period = look_period(&endpoint.schedule, udp.stamp_source());
        // User code stamps when it looks, so it must be woken by what comes. The kernel and the
        // interface need nobody.
        let mut udp = AsyncUdp::polled(udp);
        if udp.udp().stamp_source() == StampSource::User {
            udp.watch()?;
        }
        let endpoint =
            Endpoint::new(endpoint, now).map_err(|error| Error::ProbeThread { reason: error.to_string() })?;
        Ok(Self {
            endpoint,
            udp,
            timer: Timer::new()?,
            nodes: (0..).map(NodeId).zip(&addresses).map(|(node, address)| (canonical(*address), node)).collect(),
            addresses,
            window_start: clock.apply(SystemClock.now()),
            clock,
            awaited: AwaitedStamps::new(),
            look_due: now,
            look_period,
            crowded_period: look_period,
            watch: ClockWatch::new(),
            stepped,
            watch_due: now,
            node,
            finished: Vec::new(),
            tally: Tally::default(),
            overflowed: 0,
            commands_waiting: 0,
            unreachable: BTreeMap::new(),
        })
    }

    /// Runs until the sending side of `commands` is dropped.
    pub(super) async fn serve(mut self, mut commands: UnboundedReceiver<Command>) -> Result<(), Error> {
        loop {
            let look = if self.udp.is_polled() { self.look_due } else { self.watch_due };
            let due = self.endpoint.next_timer().map_or(look, |timer| timer.min(look));
            self.timer.set(Some(due))?;
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => {
                        let waiting = u32::try_from(commands.len()).unwrap_or(u32::MAX).saturating_add(1);
                        self.commands_waiting = self.commands_waiting.max(waiting);
                        self.handle_command(command);
                    }
                    None => return Ok(()),
                },
                woken = wait(&mut self.udp, &self.timer) => {
                    woken?;
                    self.turn()?;
                }
            }
        }
    }

    /// Runs one turn: processes everything received, then sends everything that is due.
    fn turn(&mut self) -> Result<(), Error> {
        let now = MonotonicClock.now();
        if self.udp.is_polled() {
            self.udp.look();
        }
        // At the look that is nearest to when it is due.
        let watching = now + Duration::from_ns(self.look_period.as_ns() / 2) >= self.watch_due;
        if watching {
            self.udp.look_for_errors();
        }
        let received = self.receive(now)?;
        self.crowded_period = crowded_period(self.crowded_period, received, self.look_period);
        self.endpoint.handle_timer(now);
        self.send_all(now)?;
        self.look_due = now + if self.udp.udp().stamps_awaited() > 0 { STAMP_PERIOD } else { self.crowded_period };
        if self.udp.is_polled() && self.udp.udp().stamp_source() == StampSource::User {
            self.udp.watch()?;
        }
        while let Some(exchange) = self.endpoint.poll_exchange() {
            if self.finished.len() < MAX_EXCHANGES {
                self.finished.push(exchange);
            } else {
                self.overflowed += 1;
            }
        }
        if watching {
            self.take_network_errors();
            self.look_at_the_clock();
            self.watch_due = now + WATCH_PERIOD;
        }
        Ok(())
    }

    /// Sends until nothing is left to send. Transmit stamps are usually available when the send
    /// returns, and release the third packets of their exchanges at once.
    fn send_all(&mut self, now: Timestamp<Monotonic>) -> Result<(), Error> {
        self.take_stamps(now)?;
        let mut transmits = Vec::new();
        loop {
            transmits.extend(std::iter::from_fn(|| self.endpoint.poll_transmit()));
            if transmits.is_empty() {
                return Ok(());
            }
            let (udp, awaited, addresses) = (&mut self.udp, &mut self.awaited, &self.addresses);
            // The endpoint names only nodes of the run, and every node has its address.
            let outgoing = transmits.iter().map(|Transmit { to, bytes, context }| Outgoing {
                bytes,
                to: addresses[to.index()],
                stamped: context.kind.needs_tx_stamp(),
            });
            let packets: Vec<Outgoing<'_>> = outgoing.collect();
            let mut failed = Vec::new();
            udp.send_batch(&packets, |place, result| match result {
                Ok(token) => {
                    if let Some(token) = token {
                        awaited.insert(token, transmits[place].context);
                    }
                }
                Err(error) => failed.push((transmits[place].context, error.to_string())),
            });
            // Counted by the socket, by reason; the exchanges are given up.
            for (context, reason) in failed {
                self.endpoint.handle_send_failed(context, now);
                self.cannot_reach(context.peer, &reason);
            }
            transmits.clear();
            self.take_stamps(now)?;
        }
    }

    fn take_stamps(&mut self, now: Timestamp<Monotonic>) -> Result<(), Error> {
        for _ in 0..MAX_PER_TURN {
            let Some((token, stamp)) = self.udp.try_transmit_stamp()? else { break };
            if let Some(context) = self.awaited.take(token).filter(|context| context.kind.needs_tx_stamp()) {
                self.endpoint.handle_tx_stamp(context, self.on_virtual_clock(stamp), now);
            }
        }
        while let Some(token) = self.udp.try_lost_stamp() {
            if let Some(context) = self.awaited.take(token).filter(|context| context.kind.needs_tx_stamp()) {
                self.endpoint.handle_tx_lost(context, now);
            }
        }
        Ok(())
    }

    /// Records why a peer is unreachable, and logs it once.
    fn cannot_reach(&mut self, peer: NodeId, reason: &str) {
        if self.unreachable.insert(peer, reason.to_owned()).is_none() {
            tracing::warn!("node {} cannot send to node {peer}: {reason}", self.node);
        }
    }

    /// Processes the network's error reports about sent packets.
    fn take_network_errors(&mut self) {
        while let Some(error) = self.udp.take_network_error() {
            if let Some(peer) = self.node_at(error.to) {
                self.cannot_reach(peer, &format!("the network reports {}", error.kind));
            }
        }
    }

    /// Processes received packets, and returns the number of datagrams.
    fn receive(&mut self, now: Timestamp<Monotonic>) -> Result<usize, Error> {
        // One byte more than a packet, so that a longer datagram is seen to be longer.
        let mut buffer = [0; PACKET_BYTES + 1];
        for count in 0..MAX_PER_TURN {
            let Some(received) = self.udp.try_recv(&mut buffer)? else { return Ok(count) };
            let from = self.node_at(received.from);
            self.endpoint.handle_packet(&buffer[..received.len], from, self.on_virtual_clock(received.stamp), now);
        }
        Ok(MAX_PER_TURN)
    }

    /// Returns the node with this address.
    fn node_at(&self, address: SocketAddr) -> Option<NodeId> {
        self.nodes.get(&canonical(address)).copied()
    }

    fn on_virtual_clock(&self, stamp: Stamp) -> Stamp {
        Stamp { at: self.clock.apply(stamp.at), source: stamp.source }
    }

    fn look_at_the_clock(&mut self) {
        let pair = read_pair(&RawClock, &SystemClock, NARROW_BRACKET);
        // A wave is in the oscillator, and so in both of the clocks that are compared.
        self.watch.observe(self.clock.without_wave().apply(pair.b), pair.a, pair.bracket);
        if self.watch.large_step() {
            self.stepped.store(true, Ordering::Relaxed);
        }
    }

    fn handle_command(&mut self, command: Command) {
        // Whoever asked may have gone away; then nobody misses the answer.
        match command {
            Command::Cut(reply) => {
                let waiting = std::mem::take(&mut self.commands_waiting);
                let _ = reply.send((self.cut(), waiting));
            }
            Command::SetSchedule(schedule) => {
                self.look_period = look_period(&schedule, self.udp.udp().stamp_source());
                self.look_due = self.look_due.min(MonotonicClock.now() + self.look_period);
                self.endpoint.set_schedule(schedule);
            }
            Command::SetOutEdges(peers) => {
                if let Err(error) = self.endpoint.set_out_edges(&peers) {
                    tracing::warn!("rejected the master's edges and kept the old ones: {error}");
                }
            }
            Command::SetAddress(node, address) => {
                self.nodes.retain(|_, other| *other != node);
                self.nodes.insert(canonical(address), node);
                if let Some(known) = self.addresses.get_mut(node.index()) {
                    *known = address;
                }
                // What was said of its earlier life says nothing of this one.
                self.unreachable.remove(&node);
            }
            Command::SetProbing(probing) => self.endpoint.set_probing(probing),
            Command::StopProbing => {
                self.endpoint.set_probing(false);
                // The run waits for what is under way.
                self.look_period = self.look_period.min(LAST_LOOKS);
                self.look_due = self.look_due.min(MonotonicClock.now() + self.look_period);
            }
            Command::InFlight(reply) => {
                let _ = reply.send(self.endpoint.in_flight());
            }
            Command::Account(reply) => {
                let _ = reply.send(self.account());
            }
        }
    }

    fn cut(&mut self) -> WindowCut {
        self.look_at_the_clock();
        let end = self.clock.apply(SystemClock.now());
        let start = std::mem::replace(&mut self.window_start, end);
        let mut finished = std::mem::take(&mut self.finished);
        finished.sort_by_key(|exchange| (exchange.edge.dst, exchange.seq));
        let counts = self.endpoint.cut_window();
        let edges = counts
            .iter()
            .map(|count| {
                let from = finished.partition_point(|exchange| exchange.edge.dst < count.peer);
                let to = finished.partition_point(|exchange| exchange.edge.dst <= count.peer);
                EdgeCut {
                    edge: Edge { src: self.node, dst: count.peer },
                    exchanges: finished[from..to].to_vec(),
                    lost: count.lost,
                    // The node knows what both ends state; this thread does not.
                    stamp_errors_ns: [0.0; 2],
                }
            })
            .collect();
        self.stepped.store(false, Ordering::Relaxed);
        let clock_event = self.watch.take_event().map(|event| ClockEvent {
            step_ns: event.step_ns,
            slew_ppm: event.slew_ppm,
            at: Timestamp::from_ns(event.at_ns),
            step_between: event.step_between_ns.map(|between| between.map(Timestamp::from_ns)),
        });
        let passed = self.tally.since_last(self.endpoint.counters()).into_iter();
        let packets = passed.map(|(peer, sent, received)| PeerPackets { peer, sent, received }).collect();
        WindowCut { node: self.node, start, end, edges, clock_event, packets }
    }

    fn account(&mut self) -> RankAccount {
        let counters = self.endpoint.counters();
        let mut counts = counters::of_endpoint(&counters);
        counts.extend(counters::of_socket(self.udp.udp().counters()));
        counts.push((Counter::ExchangesBeyondWindowLimit, self.overflowed));
        counts.push((Counter::ClockReadingsDiscarded, self.watch.discarded()));
        let peers = counters.peers.iter();
        let packets = peers.clone().map(|(peer, count)| PeerPackets {
            peer: *peer,
            sent: count.sent,
            received: count.first_copies(),
        });
        let edges = peers.filter(|(_, count)| count.exchanges.started > 0).map(|(peer, count)| EdgeExchanges {
            edge: Edge { src: self.node, dst: *peer },
            started: count.exchanges.started,
            finished: count.exchanges.finished,
            lost: count.exchanges.lost(),
        });
        RankAccount {
            packets: packets.collect(),
            exchanges: edges.collect(),
            stamp: Some(self.udp.udp().stamp_source()),
            unreachable: self.unreachable.iter().map(|(peer, reason)| (*peer, reason.clone())).collect(),
            counters: counts,
            ..RankAccount::default()
        }
    }
}

/// Packets sent whose transmit stamps have not arrived, by token; tokens are consecutive.
struct AwaitedStamps {
    slots: Vec<Option<(u32, TxContext)>>,
}

impl AwaitedStamps {
    fn new() -> Self {
        Self { slots: vec![None; AWAITED] }
    }

    /// Adds a packet; the socket gives up on a packet long before its slot is needed again.
    fn insert(&mut self, token: SendToken, context: TxContext) {
        self.slots[token.0 as usize % AWAITED] = Some((token.0, context));
    }

    fn take(&mut self, token: SendToken) -> Option<TxContext> {
        let slot = &mut self.slots[token.0 as usize % AWAITED];
        slot.take_if(|(waiting, _)| *waiting == token.0).map(|(_, context)| context)
    }
}

/// Returns the poll period. Stamps of an interface are converted with readings of its clock, which
/// are taken at polls and must be recent.
fn look_period(schedule: &Schedule, source: StampSource) -> Duration {
    let period = schedule.look_period();
    if source == StampSource::Hardware { period.min(CONVERTED_LOOK_MAX) } else { period }
}

/// Returns the next poll period after receiving this many datagrams. During a flood, a socket holds
/// only the first packets after a poll, and no larger share of honest ones. The period has a
/// minimum and a turn processes a limited number (`MAX_PER_TURN`), so the cost of a flood is
/// bounded at any rate.
fn crowded_period(present: Duration, received: usize, usual: Duration) -> Duration {
    match received {
        CROWD.. => Duration::from_ns(present.as_ns() / 2).max(CROWDED_LOOK_MIN).min(usual),
        count if count < CROWD / 4 => Duration::from_ns(present.as_ns() * 2).min(usual),
        _ => present.min(usual),
    }
}

/// Normalises an address so that those reported by the system equal those of a roster: it removes
/// the flow label, and the scope of addresses that are not link-local.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => {
            let scope = if v6.ip().is_unicast_link_local() { v6.scope_id() } else { 0 };
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope).into()
        }
        v4 => v4,
    }
}

/// Most datagrams or stamps processed in one turn, so that a flood cannot delay the schedule.
const MAX_PER_TURN: usize = 256;
/// Most exchanges kept for one window: 20 s at the fastest cadence.
const MAX_EXCHANGES: usize = 1 << 20;
/// Most packets awaiting their stamps.
const AWAITED: usize = 1024;
/// Interval of comparisons between the system clock and `CLOCK_MONOTONIC_RAW`. Each takes place at
/// the poll nearest to its time, so it needs no wake-up of its own while the thread polls anyway.
/// Slightly less than the longest poll period, so that no poll is skipped.
const WATCH_PERIOD: Duration = Duration::from_ms(240);
/// Datagrams at one poll that exceed what honest peers send within the longest poll period.
const CROWD: usize = 128;
/// Shortest poll period during a flood.
const CROWDED_LOOK_MIN: Duration = Duration::from_ms(80);
/// Poll period while exchanges end.
const LAST_LOOKS: Duration = Duration::from_ms(5);
/// Longest poll period with stamps of an interface.
const CONVERTED_LOOK_MAX: Duration = Duration::from_ms(50);
/// Poll period for transmit stamps that were not available when the send returned: an interface
/// takes microseconds.
const STAMP_PERIOD: Duration = Duration::from_us(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_brings_looks_forward_and_its_end_takes_them_back() {
        let (usual, ms) = (Duration::from_ms(240), |ms| Duration::from_ms(ms));
        let periods = |start: Duration, counts: &[usize]| {
            let next = |present: &mut Duration, count: &usize| {
                *present = crowded_period(*present, *count, usual);
                Some(*present)
            };
            counts.iter().scan(start, next).collect::<Vec<_>>()
        };
        assert_eq!(periods(usual, &[300, 300, 128, 256]), [ms(120), ms(80), ms(80), ms(80)]);
        assert_eq!(periods(ms(80), &[100, 31, 0, 0]), [ms(80), ms(160), usual, usual]);
        // A rank that looks more often anyway goes on so.
        assert_eq!(crowded_period(ms(5), 256, ms(5)), ms(5));
        assert_eq!(crowded_period(usual, 256, ms(5)), ms(5), "also when it has just begun to");
        assert_eq!(crowded_period(ms(100), 60, ms(5)), ms(5), "the pace has become faster");
    }
}

//! One thread with a small tokio runtime that probes and answers on all edges of a node.
//!
//! Place in the flow: drives `probe::Endpoint` with the real socket, the real clocks and, under `--inject-skew`, the
//! virtual clock laid over every stamp; collects finished exchanges into the window under way; watches the system clock
//! for steps. The round loop talks to it through [`Prober`], by messages; nothing is shared.
//!
//! What it does not do: fit, gather, write files.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant};

use probe_sync_estimate::round::{EdgeCut, WindowCut};
use probe_sync_estimate::window::{ClockEvent, PeerPackets};
use probe_sync_probe::{Endpoint, EndpointConfig, PACKET_BYTES, Schedule, Stamp, Tally, TxContext};
use probe_sync_sys::discipline::ClockWatch;
use probe_sync_sys::timer::reduce_timer_slack;
use probe_sync_sys::{
    AsyncUdp, MonotonicClock, NARROW_BRACKET, RawClock, SendToken, SystemClock, Timer, TimestampedUdp, UdpOptions,
    host, read_pair, wait,
};
use probe_sync_time::{
    Clock, Duration, Edge, Exchange, Monotonic, NodeId, RunId, SkewedClock, StampSource, System, Timestamp,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::report::{EdgeExchanges, RankAccount};
use crate::{Config, Error};

/// A node's socket before the peers are known.
pub struct ProberSetup {
    node: NodeId,
    udp: TimestampedUdp,
}

/// The probe thread of a node.
pub struct Prober {
    commands: UnboundedSender<Command>,
    thread: Option<JoinHandle<Result<(), Error>>>,
    /// Says nothing; disconnects when the thread ends.
    alive: Receiver<()>,
    clock: SkewedClock,
    cadence: Duration,
    /// The run's own edges of this node, and those that the master added, sorted.
    out_edges: [Vec<NodeId>; 2],
    ranks_on_host: (u32, u32),
    drain: StdDuration,
}

enum Command {
    Cut(SyncSender<WindowCut>),
    SetSchedule(Schedule),
    SetOutEdges(Vec<NodeId>),
    StopProbing,
    Account(SyncSender<RankAccount>),
}

impl ProberSetup {
    /// Opens the node's socket.
    ///
    /// # Errors
    /// When the port is taken, the address is not this host's, or the timestamps asked for are not to be had.
    pub fn bind(config: &Config, node: NodeId, address: SocketAddr) -> Result<Self, Error> {
        let mut options = UdpOptions::new(address);
        options.timestamps = config.timestamps;
        options.interface.clone_from(&config.interface);
        let udp = TimestampedUdp::bind(&options)?;
        for note in udp.stamp_notes() {
            tracing::debug!("{note}");
        }
        Ok(Self { node, udp })
    }

    /// The node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Where probes are taken.
    pub fn local_addr(&self) -> SocketAddr {
        self.udp.local_addr()
    }

    /// Where stamps come from.
    pub fn stamp_source(&self) -> StampSource {
        self.udp.stamp_source()
    }
}

impl Prober {
    /// Starts probing. `addresses` by node; `place_on_host` is this rank's place among the probing ranks of its host and
    /// their number, which share the cadence.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        setup: ProberSetup,
        run: RunId,
        addresses: Vec<SocketAddr>,
        out_edges: Vec<NodeId>,
        clock: SkewedClock,
        place_on_host: (u32, u32),
        config: &Config,
    ) -> Result<Self, Error> {
        let (commands, orders) = unbounded_channel();
        let (sign_of_life, alive) = sync_channel(0);
        let endpoint = EndpointConfig {
            run,
            node: setup.node,
            nodes: addresses.len() as u32,
            out_edges: out_edges.clone(),
            schedule: schedule(config.cadence, place_on_host)?,
            spacing: config.spacing,
            exchange_timeout: config.exchange_timeout,
        };
        let cpus = cpus_near(config, setup.local_addr());
        let virtual_clock = clock.clone();
        let body = move || {
            let _sign_of_life: SyncSender<()> = sign_of_life;
            prepare_thread(cpus.as_deref());
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .build()
                .map_err(|error| Error::ProbeThread { reason: format!("cannot start: {error}") })?;
            runtime.block_on(async { Driver::new(setup.udp, endpoint, addresses, virtual_clock)?.serve(orders).await })
        };
        let thread = std::thread::Builder::new()
            .name("probe".into())
            .spawn(body)
            .map_err(|error| Error::ProbeThread { reason: format!("cannot start: {error}") })?;
        Ok(Self {
            commands,
            thread: Some(thread),
            alive,
            clock,
            cadence: config.cadence,
            out_edges: [out_edges, Vec::new()],
            ranks_on_host: place_on_host,
            drain: 2 * StdDuration::from_nanos(config.exchange_timeout.as_ns().unsigned_abs()),
        })
    }

    /// This node's system clock, the virtual one under `--inject-skew`.
    pub fn system_now(&self) -> Timestamp<System> {
        self.clock.apply(SystemClock.now())
    }

    /// Sleeps for `span`, or until `stop` is raised or the thread ends.
    ///
    /// # Errors
    /// The thread's own error when it has ended.
    pub fn wait(&mut self, span: Duration, stop: &AtomicBool) -> Result<(), Error> {
        let deadline = Instant::now() + StdDuration::from_nanos(span.as_ns().max(0).unsigned_abs());
        while !stop.load(Ordering::Relaxed) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if self.alive.recv_timeout(left.min(STOP_POLL)) == Err(RecvTimeoutError::Disconnected) {
                return Err(self.why_it_ended());
            }
        }
        Ok(())
    }

    /// Ends the window under way and begins the next.
    ///
    /// # Errors
    /// The thread's own error when it has ended.
    pub fn cut(&mut self) -> Result<WindowCut, Error> {
        self.ask(Command::Cut)
    }

    /// The gap between exchanges started by this host.
    pub fn cadence(&self) -> Duration {
        self.cadence
    }

    /// Changes the cadence.
    ///
    /// # Errors
    /// When the cadence is not above zero.
    pub fn set_cadence(&mut self, cadence: Duration) -> Result<(), Error> {
        self.cadence = cadence;
        // A thread that has ended says so at the next cut.
        let _ = self.commands.send(Command::SetSchedule(schedule(cadence, self.ranks_on_host)?));
        Ok(())
    }

    /// Probes these nodes besides the run's own edges, and no others. A node that is probed already is not added twice.
    pub fn set_extra_edges(&mut self, mut extra: Vec<NodeId>) {
        let [own, added] = &mut self.out_edges;
        extra.retain(|peer| !own.contains(peer));
        extra.sort_unstable();
        extra.dedup();
        if *added != extra {
            let peers = own.iter().chain(&extra).copied().collect();
            *added = extra;
            // A thread that has ended says so at the next cut.
            let _ = self.commands.send(Command::SetOutEdges(peers));
        }
    }

    /// Stops starting exchanges.
    pub fn stop_probing(&mut self) {
        // A thread that has ended says so when it is asked for its account.
        let _ = self.commands.send(Command::StopProbing);
    }

    /// Lets what is under way end, once all nodes have stopped probing, and returns the exact account.
    ///
    /// # Errors
    /// The thread's own error when it has ended.
    pub fn finish(mut self) -> Result<RankAccount, Error> {
        std::thread::sleep(self.drain);
        self.ask(Command::Account)
    }

    fn ask<T>(&mut self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, Error> {
        let (reply, answer) = sync_channel(1);
        if self.commands.send(command(reply)).is_err() {
            return Err(self.why_it_ended());
        }
        answer.recv_timeout(ANSWER_LIMIT).map_err(|error| match error {
            RecvTimeoutError::Disconnected => self.why_it_ended(),
            RecvTimeoutError::Timeout => Error::ProbeThread { reason: format!("no answer within {ANSWER_LIMIT:?}") },
        })
    }

    fn why_it_ended(&mut self) -> Error {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => error,
            Some(Err(_)) => Error::ProbeThread { reason: "panicked; its message is on standard error".into() },
            Some(Ok(Ok(()))) | None => Error::ProbeThread { reason: "ended early".into() },
        }
    }
}

/// The thread's own state.
struct Driver {
    endpoint: Endpoint,
    udp: AsyncUdp,
    timer: Timer,
    addresses: Vec<SocketAddr>,
    clock: SkewedClock,
    awaited: AwaitedStamps,
    watch: ClockWatch,
    watch_due: Timestamp<Monotonic>,
    node: NodeId,
    window_start: Timestamp<System>,
    /// The exchanges of the window under way.
    finished: Vec<Exchange>,
    tally: Tally,
    overflowed: u64,
    /// Peers that packets could not be sent to, with the latest reason.
    unreachable: BTreeMap<NodeId, String>,
}

impl Driver {
    fn new(
        udp: TimestampedUdp,
        endpoint: EndpointConfig,
        addresses: Vec<SocketAddr>,
        clock: SkewedClock,
    ) -> Result<Self, Error> {
        let now = MonotonicClock.now();
        let node = endpoint.node;
        let endpoint =
            Endpoint::new(endpoint, now).map_err(|error| Error::ProbeThread { reason: error.to_string() })?;
        Ok(Self {
            endpoint,
            udp: AsyncUdp::new(udp)?,
            timer: Timer::new()?,
            addresses,
            window_start: clock.apply(SystemClock.now()),
            clock,
            awaited: AwaitedStamps::new(),
            watch: ClockWatch::new(),
            watch_due: now,
            node,
            finished: Vec::new(),
            tally: Tally::default(),
            overflowed: 0,
            unreachable: BTreeMap::new(),
        })
    }

    /// Serves until the other side of `orders` is gone.
    async fn serve(mut self, mut orders: UnboundedReceiver<Command>) -> Result<(), Error> {
        loop {
            let due = self.endpoint.next_timer().map_or(self.watch_due, |timer| timer.min(self.watch_due));
            self.timer.set(Some(due))?;
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return Ok(()),
                },
                woken = wait(&mut self.udp, &self.timer) => {
                    woken?;
                    self.turn()?;
                }
            }
        }
    }

    /// One turn: what is due goes out first, then everything that came in is taken.
    fn turn(&mut self) -> Result<(), Error> {
        let now = MonotonicClock.now();
        self.endpoint.handle_timer(now);
        self.send_all(now)?;
        self.receive(now)?;
        self.send_all(now)?;
        while let Some(exchange) = self.endpoint.poll_exchange() {
            if self.finished.len() < MAX_EXCHANGES {
                self.finished.push(exchange);
            } else {
                self.overflowed += 1;
            }
        }
        if now >= self.watch_due {
            self.take_network_errors();
            self.look_at_the_clock();
            self.watch_due = now + WATCH_PERIOD;
        }
        Ok(())
    }

    /// Sends until nothing is left to send. A transmit stamp is usually there when the send returns, and releases the
    /// third packet of its exchange at once.
    fn send_all(&mut self, now: Timestamp<Monotonic>) -> Result<(), Error> {
        self.take_stamps(now)?;
        while let Some(transmit) = self.endpoint.poll_transmit() {
            // The endpoint names only nodes of the run, and every node has its address.
            let to = self.addresses[transmit.to.index()];
            match self.udp.try_send(&transmit.bytes, to) {
                Ok(token) => {
                    self.awaited.insert(token, transmit.context);
                    self.take_stamps(now)?;
                }
                // Counted by the socket, by reason; the exchange is given up.
                Err(error) => {
                    self.endpoint.handle_send_failed(transmit.context, now);
                    self.cannot_reach(transmit.to, &error.to_string());
                }
            }
        }
        Ok(())
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

    /// Remembers why a peer cannot be reached, and says so once.
    fn cannot_reach(&mut self, peer: NodeId, reason: &str) {
        if self.unreachable.insert(peer, reason.to_owned()).is_none() {
            tracing::warn!("node {} cannot send to node {peer}: {reason}", self.node);
        }
    }

    /// What the network said of packets that had left.
    fn take_network_errors(&mut self) {
        while let Some(error) = self.udp.take_network_error() {
            if let Some(peer) = self.addresses.iter().position(|address| *address == error.to) {
                self.cannot_reach(NodeId(peer as u32), &format!("the network says {}", error.kind));
            }
        }
    }

    fn receive(&mut self, now: Timestamp<Monotonic>) -> Result<(), Error> {
        // One byte more than a packet, so that a longer datagram is seen to be longer.
        let mut buffer = [0; PACKET_BYTES + 1];
        for _ in 0..MAX_PER_TURN {
            let Some(received) = self.udp.try_recv(&mut buffer)? else { break };
            self.endpoint.handle_packet(&buffer[..received.len], self.on_virtual_clock(received.stamp), now);
        }
        Ok(())
    }

    fn on_virtual_clock(&self, stamp: probe_sync_sys::Stamp) -> Stamp {
        Stamp { at: self.clock.apply(stamp.at), source: stamp.source }
    }

    fn look_at_the_clock(&mut self) {
        let pair = read_pair(&RawClock, &SystemClock, NARROW_BRACKET);
        // A wave is in the oscillator, and so in both of the clocks that are compared.
        self.watch.observe(self.clock.without_wave().apply(pair.b), pair.a, pair.bracket);
    }

    fn obey(&mut self, order: Command) {
        // Whoever asked may have gone away; then nobody misses the answer.
        match order {
            Command::Cut(reply) => {
                let _ = reply.send(self.cut());
            }
            Command::SetSchedule(schedule) => self.endpoint.set_schedule(schedule),
            Command::SetOutEdges(peers) => {
                if let Err(error) = self.endpoint.set_out_edges(&peers) {
                    tracing::warn!("the master's edges are refused, the old ones stay: {error}");
                }
            }
            Command::StopProbing => self.endpoint.set_probing(false),
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
                }
            })
            .collect();
        let clock_event = self.watch.take_event().map(|event| ClockEvent {
            step_ns: event.step_ns,
            slew_ppm: event.slew_ppm,
            at: Timestamp::from_ns(event.at_ns),
        });
        let passed = self.tally.since_last(self.endpoint.counters()).into_iter();
        let packets = passed.map(|(peer, sent, received)| PeerPackets { peer, sent, received }).collect();
        WindowCut { node: self.node, start, end, edges, clock_event, packets }
    }

    fn account(&mut self) -> RankAccount {
        let counters = self.endpoint.counters();
        let total = counters.total();
        let udp = self.udp.udp().counters();
        let named: [(&str, u64); 26] = [
            ("packets_sent", total.sent),
            ("packets_received", total.received),
            ("packets_duplicate", total.duplicates),
            ("packets_late", total.late),
            ("packets_out_of_state", total.out_of_state),
            ("packets_foreign", counters.foreign.total()),
            ("packets_dropped_by_kernel", udp.dropped_by_kernel),
            ("exchanges_started", total.exchanges.started),
            ("exchanges_finished", total.exchanges.finished),
            ("exchanges_timed_out", total.exchanges.timed_out),
            ("exchanges_without_stamp", total.exchanges.stamp_missing),
            ("exchanges_send_failed", total.exchanges.send_failed),
            ("exchanges_beyond_window_limit", self.overflowed),
            ("exchanges_unread", counters.unread_exchanges),
            ("stamps_stray", counters.stray_tx_stamps),
            ("clock_readings_discarded", self.watch.discarded()),
            ("starts_skipped", counters.skipped_starts),
            ("starts_refused", counters.refused_starts),
            ("stamps_user", udp.user_stamps),
            ("stamps_missing_tx", udp.transmit_stamps_missing),
            ("stamps_missing_rx", udp.receive_stamps_missing),
            ("send_buffer_full", udp.send_full),
            ("send_unreachable", udp.send_unreachable),
            ("send_refused", udp.send_refused),
            ("icmp_refused", udp.icmp_refused),
            ("icmp_unreachable", udp.icmp_unreachable),
        ];
        let peers = counters.peers.iter();
        let packets = peers.clone().map(|(peer, count)| PeerPackets {
            peer: *peer,
            sent: count.sent,
            received: count.received - count.duplicates,
        });
        let edges = peers.filter(|(_, count)| count.exchanges.started > 0).map(|(peer, count)| EdgeExchanges {
            edge: Edge { src: self.node, dst: *peer },
            started: count.exchanges.started,
            finished: count.exchanges.finished,
            lost: count.exchanges.timed_out + count.exchanges.stamp_missing + count.exchanges.send_failed,
        });
        RankAccount {
            packets: packets.collect(),
            exchanges: edges.collect(),
            stamp: Some(self.udp.udp().stamp_source()),
            unreachable: self.unreachable.iter().map(|(peer, reason)| (*peer, reason.clone())).collect(),
            counters: named.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
            ..RankAccount::default()
        }
    }
}

/// Packets sent whose transmit stamps have not come, by token; tokens count up by one.
struct AwaitedStamps {
    slots: Vec<Option<(u32, TxContext)>>,
}

impl AwaitedStamps {
    fn new() -> Self {
        Self { slots: vec![None; AWAITED] }
    }

    /// The socket gives a packet up long before its slot is needed again.
    fn insert(&mut self, token: SendToken, context: TxContext) {
        self.slots[token.0 as usize % AWAITED] = Some((token.0, context));
    }

    fn take(&mut self, token: SendToken) -> Option<TxContext> {
        let slot = &mut self.slots[token.0 as usize % AWAITED];
        slot.take_if(|(waiting, _)| *waiting == token.0).map(|(_, context)| context)
    }
}

/// Every rank of a host starts one exchange per `ranks · cadence`, a cadence after the rank before it.
fn schedule(cadence: Duration, place_on_host: (u32, u32)) -> Result<Schedule, Error> {
    let (place, ranks) = place_on_host;
    let times = |count: u32| Duration::from_ns(cadence.as_ns().saturating_mul(i64::from(count)));
    Schedule::new(times(ranks), times(place))
        .ok_or_else(|| Error::ProbeThread { reason: format!("a cadence of {cadence:?} is no schedule") })
}

/// The processors near the interface that has `address`, where pinning is wanted and means something.
fn cpus_near(config: &Config, address: SocketAddr) -> Option<Vec<usize>> {
    if !config.pin || address.ip().is_loopback() {
        return None;
    }
    host::interface_of_address(address.ip()).and_then(|interface| host::local_cpus(&interface))
}

/// Both are improvements only; a system that refuses them still measures.
fn prepare_thread(cpus: Option<&[usize]>) {
    if let Err(error) = reduce_timer_slack() {
        tracing::debug!("{error}");
    }
    if let Some(Err(error)) = cpus.map(host::pin_thread) {
        tracing::debug!("{error}");
    }
}

/// Datagrams or stamps taken in one turn, so that a flood cannot keep the schedule waiting.
const MAX_PER_TURN: usize = 256;
/// Exchanges kept for one window: 20 s at the fastest cadence.
const MAX_EXCHANGES: usize = 1 << 20;
/// Packets whose stamps can be awaited at once.
const AWAITED: usize = 1024;
/// How often the system clock is compared with `CLOCK_MONOTONIC_RAW`.
const WATCH_PERIOD: Duration = Duration::from_ms(250);
/// How soon a raised stop flag is seen.
const STOP_POLL: StdDuration = StdDuration::from_millis(50);
/// The probe thread answers within microseconds; one that does not is stuck.
const ANSWER_LIMIT: StdDuration = StdDuration::from_secs(10);

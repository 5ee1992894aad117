//! The probe thread as the round loop sees it.
//!
//! Through [`Prober`] the round loop starts the thread, cuts windows, changes the pace and requests
//! the final account. It uses messages only, and nothing is shared. `driver` is the thread's own
//! side.

use std::io::{PipeReader, PipeWriter, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant};

use probe_sync_estimate::round::WindowCut;
use probe_sync_probe::{EndpointConfig, Schedule};
use probe_sync_sys::timer::{reduce_timer_slack, sleep_unless_told};
use probe_sync_sys::{SystemClock, TimestampMode, TimestampedUdp, UdpOptions, host};
use probe_sync_time::{Clock, Duration, NodeId, RunId, SessionKey, SkewedClock, StampSource, System, Timestamp};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::account::RankAccount;
use super::driver::{Command, Driver};
use super::stop::Stop;
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
    /// Detects the end of the thread.
    alive: PipeReader,
    clock: SkewedClock,
    /// True if the thread saw a step of the system clock in the current window.
    stepped: Arc<AtomicBool>,
    cadence: Duration,
    /// The run's own edges of this node, and those added by the master, sorted.
    out_edges: [Vec<NodeId>; 2],
    ranks_on_host: (u32, u32),
    /// Longest wait for exchanges with peers that do not answer.
    end_limit: StdDuration,
}

impl ProberSetup {
    /// Opens the node's socket.
    ///
    /// # Errors
    /// Returns an error if the port is taken, the address is not this host's, or the requested
    /// timestamps are not available.
    pub fn bind(config: &Config, node: NodeId, address: SocketAddr) -> Result<Self, Error> {
        let mut options = UdpOptions::new(address);
        options.timestamps = config.timestamps;
        options.interface.clone_from(&config.interface);
        let udp = TimestampedUdp::bind(&options)?;
        for note in udp.stamp_notes() {
            tracing::debug!("{note}");
        }
        if config.timestamps == TimestampMode::Auto && udp.stamp_source() == StampSource::User {
            let reason = udp.stamp_notes().last().map_or("", String::as_str);
            tracing::warn!(
                "node {node} ({}) takes its own timestamps, which are about 10 µs less accurate, because the kernel does not \
                timestamp its packets: {reason}. Use --interface to choose an interface whose driver does, or --timestamps user to \
                accept this; probe_sync doctor tests every interface",
                address.ip()
            );
        }
        Ok(Self { node, udp })
    }

    /// Returns the node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the address at which probes are received.
    pub fn local_addr(&self) -> SocketAddr {
        self.udp.local_addr()
    }

    /// Returns the stamp source.
    pub fn stamp_source(&self) -> StampSource {
        self.udp.stamp_source()
    }

    /// Returns the bound of the stamps' error from the conversion of an interface's clock.
    pub fn conversion_error(&self) -> Duration {
        self.udp.conversion_error()
    }
}

impl Prober {
    /// Starts probing, with packets of this run under its key and of this incarnation of the node.
    /// `addresses` is indexed by node; `place_on_host` is this rank's place among the probing ranks
    /// of its host, which share the cadence, and their number.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(
        setup: ProberSetup,
        (run, key, incarnation): (RunId, SessionKey, u32),
        addresses: Vec<SocketAddr>,
        out_edges: Vec<NodeId>,
        clock: SkewedClock,
        place_on_host: (u32, u32),
        config: &Config,
    ) -> Result<Self, Error> {
        let (commands, received) = unbounded_channel();
        let cannot = |error: std::io::Error| Error::ProbeThread { reason: format!("cannot start: {error}") };
        let (alive, liveness) = std::io::pipe().map_err(cannot)?;
        let endpoint = EndpointConfig {
            run,
            node: setup.node,
            nodes: addresses.len() as u32,
            out_edges: out_edges.clone(),
            schedule: schedule(config.cadence(), place_on_host)?,
            spacing: config.spacing,
            exchange_timeout: config.exchange_timeout,
            incarnation,
            key: Some(key),
        };
        let cpus = cpus_near(config, setup.local_addr());
        let virtual_clock = clock.clone();
        let stepped = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stepped);
        let body = move || {
            let _liveness = Liveness(liveness);
            prepare_thread(cpus.as_deref());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(cannot)?;
            runtime.block_on(async {
                Driver::new(setup.udp, endpoint, addresses, virtual_clock, seen)?.serve(received).await
            })
        };
        let thread = std::thread::Builder::new().name("probe".into()).spawn(body).map_err(cannot)?;
        Ok(Self {
            commands,
            thread: Some(thread),
            alive,
            clock,
            stepped,
            cadence: config.cadence(),
            out_edges: [out_edges, Vec::new()],
            ranks_on_host: place_on_host,
            end_limit: end_limit(config.exchange_timeout),
        })
    }

    /// Returns the time of this node's system clock, the virtual one with `--inject-skew`.
    pub fn system_now(&self) -> Timestamp<System> {
        self.clock.apply(SystemClock.now())
    }

    /// Returns true if the thread saw a step of the system clock in the current window.
    pub fn stepped(&self) -> bool {
        self.stepped.load(Ordering::Relaxed)
    }

    /// Sleeps for `span`, or until `stop` is raised or the thread ends.
    ///
    /// # Errors
    /// Returns the thread's own error if it has ended.
    pub fn wait(&mut self, span: Duration, stop: &Stop) -> Result<(), Error> {
        stop.wait(
            span,
            |nap| {
                if sleep_unless_told(self.alive.as_fd(), nap)? { Err(self.why_it_ended()) } else { Ok(()) }
            },
        )
    }

    /// Ends the current window and begins the next; also returns the largest number of queued
    /// commands.
    ///
    /// # Errors
    /// Returns the thread's own error if it has ended.
    pub fn cut(&mut self) -> Result<(WindowCut, u32), Error> {
        self.ask(Command::Cut)
    }

    /// Returns the gap between exchanges started by this host.
    pub fn cadence(&self) -> Duration {
        self.cadence
    }

    /// Changes the cadence.
    ///
    /// # Errors
    /// Returns an error if the cadence is not above zero.
    pub fn set_cadence(&mut self, cadence: Duration) -> Result<(), Error> {
        self.cadence = cadence;
        // A thread that has ended says so at the next cut.
        let _ = self.commands.send(Command::SetSchedule(schedule(cadence, self.ranks_on_host)?));
        Ok(())
    }

    /// Probes these nodes in addition to the run's own edges, and no others. A node that is probed
    /// already is not added twice.
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

    /// Adds a permanent edge to this node.
    pub fn add_edge(&mut self, peer: NodeId) {
        let [own, added] = &mut self.out_edges;
        own.push(peer);
        added.retain(|other| *other != peer);
        // A thread that has ended says so at the next cut.
        let _ = self.commands.send(Command::SetOutEdges(own.iter().chain(&*added).copied().collect()));
    }

    /// Sets the address of a node for all further packets.
    pub fn set_address(&mut self, node: NodeId, address: SocketAddr) {
        // A thread that has ended says so at the next cut.
        let _ = self.commands.send(Command::SetAddress(node, address));
    }

    /// Starts or suspends starting exchanges.
    pub fn set_probing(&mut self, probing: bool) {
        // A thread that has ended says so at the next cut.
        let _ = self.commands.send(Command::SetProbing(probing));
    }

    /// Stops starting exchanges.
    pub fn stop_probing(&mut self) {
        // A thread that has ended says so when it is asked for its account.
        let _ = self.commands.send(Command::StopProbing);
    }

    /// Waits until the exchanges started by this node have ended, at the latest by their timeout.
    ///
    /// # Errors
    /// Returns the thread's own error if it has ended.
    pub fn let_end(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + self.end_limit;
        while self.ask(Command::InFlight)? > 0 && Instant::now() < deadline {
            std::thread::sleep(DRAIN / 10);
        }
        Ok(())
    }

    /// Drains the network, once the exchanges of all nodes have ended, and returns the exact
    /// account.
    ///
    /// # Errors
    /// Returns the thread's own error if it has ended.
    pub fn finish(mut self) -> Result<RankAccount, Error> {
        std::thread::sleep(DRAIN);
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

/// Held by the thread while it runs, and released even on a panic. A forked process may hold the
/// pipe open too, so it also writes a byte on release.
struct Liveness(PipeWriter);

impl Drop for Liveness {
    fn drop(&mut self) {
        // Nobody may listen any more.
        let _ = self.0.write(&[0]);
    }
}

impl Drop for Prober {
    /// Ends the thread and waits for it, unless it is stuck.
    fn drop(&mut self) {
        // Without its commands the thread ends by itself.
        let (closed, _) = unbounded_channel();
        self.commands = closed;
        let deadline = Instant::now() + ANSWER_LIMIT;
        let left = || deadline.saturating_duration_since(Instant::now());
        // A signal ends a sleep, not the wait.
        let mut ended = false;
        while !ended && !left().is_zero() {
            ended = sleep_unless_told(self.alive.as_fd(), left()).unwrap_or(true);
        }
        if let Some(thread) = self.thread.take().filter(|_| ended) {
            // The run has failed already, or the thread has told what there is to tell.
            let _ = thread.join();
        }
    }
}

/// Returns the schedule. Each rank of a host starts on average one exchange per `ranks · cadence`,
/// and the ranks take turns: in bursts to several peers if single starts would cause too many
/// wake-ups, and in trains to one peer if pauses would let caches grow cold.
fn schedule(cadence: Duration, place_on_host: (u32, u32)) -> Result<Schedule, Error> {
    let (place, ranks) = place_on_host;
    let gap = cadence.as_ns().saturating_mul(i64::from(ranks));
    let made = if gap < WAKE_PERIODS[0].as_ns() {
        let wake = BURST.saturating_mul(gap).clamp(WAKE_PERIODS[0].as_ns(), WAKE_PERIODS[1].as_ns());
        let burst = (wake + gap - 1) / gap.max(1);
        Schedule::in_bursts(Duration::from_ns(gap), burst as u32, phase(cadence, place, burst))
    } else {
        Schedule::in_trains(Duration::from_ns(gap), TRAIN, phase(cadence, place, TRAIN.into()))
    };
    made.ok_or_else(|| Error::ProbeThread { reason: format!("invalid cadence: {cadence:?}") })
}

/// Returns how long a node waits for its exchanges once probing has stopped.
pub fn end_limit(exchange_timeout: Duration) -> StdDuration {
    END_LIMIT_MIN.max(2 * exchange_timeout.to_std())
}

/// Returns the phase of a rank's bursts relative to the others on its host.
fn phase(cadence: Duration, place: u32, burst: i64) -> Duration {
    Duration::from_ns(cadence.as_ns().saturating_mul(i64::from(place)).saturating_mul(burst))
}

/// Returns the processors near the interface with `address`, if pinning is requested and useful.
fn cpus_near(config: &Config, address: SocketAddr) -> Option<Vec<usize>> {
    if !config.pin || address.ip().is_loopback() {
        return None;
    }
    host::interface_of_address(address.ip()).and_then(|interface| host::local_cpus(&interface))
}

/// Sets priority and pinning. Both are optional; a system that refuses them can still measure.
fn prepare_thread(cpus: Option<&[usize]>) {
    if let Err(error) = reduce_timer_slack() {
        tracing::debug!("{error}");
    }
    if let Some(Err(error)) = cpus.map(host::pin_thread) {
        tracing::debug!("{error}");
    }
}

/// A node starts exchanges at most once per the first period, and at most once per the second while
/// fewer than `BURST` start together, because a wake-up costs as much as several packets. An
/// exchange takes up to three such periods; with a single peer, up to 48 are then in flight
/// (`MAX_PER_PEER`).
const WAKE_PERIODS: [Duration; 2] = [Duration::from_ms(5), Duration::from_ms(10)];
const BURST: i64 = 16;
/// Exchanges of a train: the first is slow, the others are not.
const TRAIN: u32 = 4;
/// Shortest limit; at a slow pace an exchange may take 2 s (`Schedule::look_period`).
const END_LIMIT_MIN: StdDuration = StdDuration::from_secs(3);
/// Time that a node may take to finish after that: a tracer clock that does not return, and
/// draining.
pub const FINISH_LIMIT: StdDuration = StdDuration::from_secs(6);
/// Time for the last packets to arrive and to be processed, even on a busy host.
const DRAIN: StdDuration = StdDuration::from_millis(200);
/// Longest wait for an answer of the probe thread, which normally takes microseconds; a slower one
/// is stuck.
const ANSWER_LIMIT: StdDuration = StdDuration::from_secs(10);

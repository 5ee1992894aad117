//! What a probe packet costs and how exact its stamps are, on loopback.
//!
//! `cargo bench -p probe-sync-sys --bench loopback [-- --seconds S --gap-us G]`
//!
//! Two threads as two nodes, each with one socket and one tokio task, exchange packets in the
//! pattern of an exchange: three there, three back, the first two of each 100 µs apart, the third
//! as soon as the transmit stamps of the first two are known. Both read the same clock, so a stamp
//! difference is a true one-way delay, and half the difference of the least delays there and back
//! is the error that an offset from these stamps would have.
//!
//! Prints a table: least delays, that error, CPU time of both threads per packet and as a part of
//! one core at 7500 packets per second (an exchange every 800 µs), and how late the timer woke the
//! task. Then the cost of the system calls without any waiting, of clock reads, and what
//! `ClockWatch` makes of this machine's clock.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use probe_sync_sys::discipline::ClockWatch;
use probe_sync_sys::udp::{AsyncUdp, TimestampMode, TimestampedUdp, UdpOptions, wait};
use probe_sync_sys::{BootClock, MonotonicClock, NARROW_BRACKET, RawClock, SystemClock, Timer, Tsc, read_pair, timer};
use probe_sync_time::{Clock, Domain, Duration, Monotonic, System, Timestamp};
use rustix::time::{ClockId, clock_gettime};

const SPACING: Duration = Duration::from_us(100);
const PACKET_BYTES: usize = 112;
const PACKETS_PER_SECOND: f64 = 7_500.0;

fn main() {
    let seconds = option("--seconds").unwrap_or(4);
    let gap = Duration::from_us(option("--gap-us").unwrap_or(800));
    println!(
        "{:7} {:>9} {:>12} {:>12} {:>9} {:>12} {:>14} {:>12} {:>12} {:>8}",
        "stamps",
        "exchanges",
        "min there ns",
        "min back ns",
        "error ns",
        "CPU ns/pkt",
        "% of core @7500",
        "late p50 µs",
        "late p99 µs",
        "missing"
    );
    for mode in [TimestampMode::Kernel, TimestampMode::User, TimestampMode::Kernel, TimestampMode::User] {
        exchange(mode, gap, seconds);
    }
    println!();
    for mode in [TimestampMode::Kernel, TimestampMode::User] {
        calls(mode);
    }
    println!();
    clock_reads();
    println!();
    watch_clock(seconds);
}

fn option(name: &str) -> Option<i64> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)?.parse().ok()
}

/// Observations of one node.
#[derive(Default)]
struct Side {
    /// Transmit timestamps by packet number.
    sent: Vec<(u64, Timestamp<System>)>,
    /// Receive timestamps by packet number.
    received: Vec<(u64, Timestamp<System>)>,
    cpu_ns: i64,
    packets: u64,
    missing: u64,
    late_ns: Vec<i64>,
}

fn exchange(mode: TimestampMode, gap: Duration, seconds: i64) {
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, address) = mpsc::channel();
    let responder = std::thread::spawn({
        let stop = stop.clone();
        move || node(mode, |here| tell.send(here).expect("the prober lives"), None, gap, &stop)
    });
    let peer = address.recv().expect("the responder lives");
    let prober = std::thread::spawn({
        let stop = stop.clone();
        move || node(mode, |_| {}, Some(peer), gap, &stop)
    });
    std::thread::sleep(std::time::Duration::from_secs(seconds.unsigned_abs()));
    stop.store(true, Ordering::Relaxed);
    let (prober, responder) = (prober.join().expect("no panic"), responder.join().expect("no panic"));
    let there = least_delay(&prober.sent, &responder.received);
    let back = least_delay(&responder.sent, &prober.received);
    let packets = prober.packets + responder.packets;
    let cpu_ns = (prober.cpu_ns + responder.cpu_ns) as f64 / packets.max(1) as f64;
    println!(
        "{:7} {:>9} {there:>12} {back:>12} {:>9.1} {cpu_ns:>12.0} {:>14.1} {:>12.1} {:>12.1} {:>8}",
        format!("{mode:?}").to_lowercase(),
        packets / 6,
        (there - back) as f64 / 2.0,
        cpu_ns * PACKETS_PER_SECOND * 1e-9 * 100.0,
        quantile(prober.late_ns.clone(), 0.5) as f64 * 1e-3,
        quantile(prober.late_ns, 0.99) as f64 * 1e-3,
        prober.missing + responder.missing,
    );
}

fn least_delay(sent: &[(u64, Timestamp<System>)], received: &[(u64, Timestamp<System>)]) -> i64 {
    let mut received = received.iter().peekable();
    let mut least = i64::MAX;
    for (number, at) in sent {
        while received.peek().is_some_and(|(other, _)| other < number) {
            received.next();
        }
        if let Some((other, arrived)) = received.peek()
            && other == number
        {
            least = least.min((*arrived - *at).as_ns());
        }
    }
    least
}

fn quantile(mut values: Vec<i64>, part: f64) -> i64 {
    values.sort_unstable();
    values.get(((values.len() as f64 - 1.0) * part) as usize).copied().unwrap_or_default()
}

/// Runs one node: with a peer it probes it, without it answers probes.
fn node(
    mode: TimestampMode,
    announce: impl FnOnce(SocketAddr),
    peer: Option<SocketAddr>,
    gap: Duration,
    stop: &AtomicBool,
) -> Side {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    timer::reduce_timer_slack().expect("may be set");
    let cpu = |side: &mut Side, sign: i64| {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        side.cpu_ns += sign * (used.tv_sec * 1_000_000_000 + used.tv_nsec);
    };
    let mut side = Side::default();
    runtime.block_on(async {
        let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options = UdpOptions { timestamps: mode, ..UdpOptions::new(bind) };
        let mut udp = AsyncUdp::bind(&options).expect("loopback has room");
        announce(udp.udp().local_addr());
        cpu(&mut side, -1);
        let mut train =
            Train { peer, next_number: 0, numbers: Vec::new(), step: Step::Idle { start: MonotonicClock.now() } };
        let mut timer = Timer::new().expect("a timer");
        while !stop.load(Ordering::Relaxed) {
            turn(&mut udp, &mut train, &mut side, gap);
            let due = train.due().unwrap_or(MonotonicClock.now() + Duration::from_ms(100));
            timer.set(Some(due)).expect("a timer");
            let wake = wait(&mut udp, &timer).await.expect("the runtime runs");
            if wake.expired && train.due() == Some(due) {
                side.late_ns.push((MonotonicClock.now() - due).as_ns());
            }
        }
        cpu(&mut side, 1);
        side.missing = udp.udp().counters().transmit_stamps_missing + udp.udp().counters().receive_stamps_missing;
        side.packets = udp.udp().counters().sent;
    });
    side
}

/// Three packets in flight.
struct Train {
    peer: Option<SocketAddr>,
    next_number: u64,
    /// The number of each packet sent; tokens count up from zero.
    numbers: Vec<u64>,
    step: Step,
}

enum Step {
    Idle { start: Timestamp<Monotonic> },
    Second { to: SocketAddr, due: Timestamp<Monotonic>, stamps: u32 },
    Third { to: SocketAddr, stamps: u32 },
}

impl Train {
    fn due(&self) -> Option<Timestamp<Monotonic>> {
        match self.step {
            Step::Idle { start } => self.peer.map(|_| start),
            Step::Second { due, .. } => Some(due),
            Step::Third { .. } => None,
        }
    }

    fn send(&mut self, udp: &mut AsyncUdp, to: SocketAddr) {
        let mut packet = [0; PACKET_BYTES];
        packet[..8].copy_from_slice(&self.next_number.to_le_bytes());
        let token = udp.try_send(&packet, to).expect("loopback takes it");
        assert_eq!(token.0 as usize, self.numbers.len());
        self.numbers.push(self.next_number);
        self.next_number += 1;
    }

    fn begin(&mut self, udp: &mut AsyncUdp, to: SocketAddr, now: Timestamp<Monotonic>) {
        // A train whose stamps were lost leaves its third packet out.
        self.next_number = self.next_number.next_multiple_of(3);
        self.send(udp, to);
        self.step = Step::Second { to, due: now + SPACING, stamps: 0 };
    }
}

/// Empties the queues and sends what is due.
fn turn(udp: &mut AsyncUdp, train: &mut Train, side: &mut Side, gap: Duration) {
    let mut buffer = [0; PACKET_BYTES];
    let now = MonotonicClock.now();
    match train.step {
        Step::Idle { start } if start <= now => {
            if let Some(to) = train.peer {
                train.begin(udp, to, now);
            }
        }
        Step::Second { to, due, stamps } if due <= now => {
            train.send(udp, to);
            train.step = Step::Third { to, stamps };
        }
        _ => {}
    }
    while let Some((token, stamp)) = udp.try_transmit_stamp().expect("the socket works") {
        side.sent.push((train.numbers[token.0 as usize], stamp.at));
        if let Step::Second { stamps, .. } | Step::Third { stamps, .. } = &mut train.step {
            *stamps += 1;
        }
    }
    if let Step::Third { to, stamps: 2.., .. } = train.step {
        train.send(udp, to);
        let start = now + gap - SPACING;
        train.step = Step::Idle { start };
    }
    while let Some(packet) = udp.try_recv(&mut buffer).expect("the socket works") {
        let number = u64::from_le_bytes(buffer[..8].try_into().expect("eight bytes"));
        side.received.push((number, packet.stamp.at));
        if train.peer.is_none() && number % 3 == 2 {
            train.begin(udp, packet.from, MonotonicClock.now());
        }
    }
}

/// The system calls alone: one packet to itself after the other, no waiting.
fn calls(mode: TimestampMode) {
    const PACKETS: u32 = 50_000;
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut udp = TimestampedUdp::bind(&UdpOptions { timestamps: mode, ..UdpOptions::new(bind) }).expect("has room");
    let here = udp.local_addr();
    let cpu = || {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        used.tv_sec * 1_000_000_000 + used.tv_nsec
    };
    let (mut send_ns, mut stamp_ns, mut receive_ns) = (0, 0, 0);
    let mut buffer = [0; PACKET_BYTES];
    for _ in 0..PACKETS {
        let start = cpu();
        udp.try_send(&[0; PACKET_BYTES], here).expect("loopback takes it");
        let sent = cpu();
        while udp.try_transmit_stamp().expect("the socket works").is_some() {}
        let stamped = cpu();
        while udp.try_recv(&mut buffer).expect("the socket works").is_some() {}
        send_ns += sent - start;
        stamp_ns += stamped - sent;
        receive_ns += cpu() - stamped;
    }
    let each = |ns: i64| ns as f64 / f64::from(PACKETS);
    println!(
        "calls alone, {:6}: send {:5.0} ns, transmit stamp {:5.0} ns, receive {:5.0} ns per packet",
        format!("{mode:?}").to_lowercase(),
        each(send_ns),
        each(stamp_ns),
        each(receive_ns)
    );
}

fn clock_reads() {
    fn cost<D: Domain>(name: &str, clock: &impl Clock<D>) {
        const READS: i64 = 1_000_000;
        let start = MonotonicClock.now();
        let mut last = clock.now();
        for _ in 1..READS {
            last = last.max(clock.now());
        }
        let spent = (MonotonicClock.now() - start).as_ns_f64();
        println!("{name:14} {:6.1} ns per read (last {last:?})", spent / READS as f64);
    }
    cost("system", &SystemClock);
    cost("monotonic", &MonotonicClock);
    cost("monotonic_raw", &RawClock);
    cost("boottime", &BootClock);
    println!("tsc            {}", if Tsc::detect().is_some() { "steady" } else { "not usable" });
    let mut brackets: Vec<i64> =
        (0..10_000).map(|_| read_pair(&SystemClock, &RawClock, NARROW_BRACKET).bracket.as_ns()).collect();
    brackets.sort_unstable();
    println!(
        "pair system/raw: bracket p50 {} ns, p99 {} ns, worst {} ns",
        brackets[5_000], brackets[9_900], brackets[9_999]
    );
}

fn watch_clock(seconds: i64) {
    let mut watch = ClockWatch::new();
    for window in 0..seconds {
        for _ in 0..20 {
            let pair = read_pair(&SystemClock, &RawClock, NARROW_BRACKET);
            watch.observe(pair.a, pair.b, pair.bracket);
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        println!("clock watch, window {window}: {:?}, discarded {}", watch.take_event(), watch.discarded());
    }
}

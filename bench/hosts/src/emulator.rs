//! The link between the namespaces, which reads every host's packets, delays each as [`Links`]
//! decides and delivers it.
//!
//! The emulator is one thread of `scenario`; it owns the [`Links`] and returns them with their
//! counts. It delivers packets in the order of their release times on its monotonic clock. Between
//! two packets it waits in a `ppoll` with nanosecond resolution and a timer slack of 1 ns. A packet
//! delivered late because the thread was not scheduled looks like queueing, never like a shorter
//! path. It counts every packet it loses; the queues of the devices are queried separately.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::link::Links;
use crate::namespace::Host;
use crate::packet::{Header, Protocol};

/// Relays packets between `hosts` until `stop`, and returns the links with their counts and the
/// punctuality.
///
/// # Errors
/// A device cannot be polled.
pub(crate) fn relay(hosts: &[Host], links: Links, stop: &AtomicBool) -> Result<(Links, Punctuality)> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).context("setting the timer slack")?;
    let mut relay = Relay {
        hosts,
        links,
        queue: BinaryHeap::new(),
        start: Instant::now(),
        admitted: 0,
        punctuality: Punctuality::default(),
    };
    while !stop.load(Ordering::Relaxed) {
        relay.deliver_due();
        relay.wait()?;
        for from in 0..hosts.len() {
            relay.read(from);
        }
    }
    Ok((relay.links, relay.punctuality))
}

/// How late packets were delivered, after the time that the link had decided.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Punctuality {
    packets: u64,
    sum: Duration,
    worst: Duration,
}

impl Punctuality {
    /// Mean delay beyond the decided one, and the worst.
    pub(crate) fn mean_and_worst(self) -> (Duration, Duration) {
        let packets = u32::try_from(self.packets.max(1)).unwrap_or(u32::MAX);
        (self.sum / packets, self.worst)
    }

    fn note(&mut self, late: Duration) {
        self.packets += 1;
        self.sum += late;
        self.worst = self.worst.max(late);
    }
}

struct Relay<'a> {
    hosts: &'a [Host],
    links: Links,
    queue: BinaryHeap<Reverse<Waiting>>,
    start: Instant,
    admitted: u64,
    punctuality: Punctuality,
}

/// A packet under way, ordered by release time and, between equals, by arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    release: Duration,
    number: u64,
    from: usize,
    to: usize,
    protocol: Protocol,
    bytes: Vec<u8>,
}

impl Relay<'_> {
    /// Delivers everything whose time has come.
    fn deliver_due(&mut self) {
        let mut now = self.start.elapsed();
        while self.queue.peek().is_some_and(|Reverse(next)| next.release <= now) {
            let Some(Reverse(packet)) = self.queue.pop() else { break };
            let taken = self.hosts[packet.to].device.send(&packet.bytes).is_ok();
            self.links.settle(packet.from, packet.to, packet.protocol, taken);
            self.punctuality.note(now - packet.release);
            now = self.start.elapsed();
        }
    }

    /// Sleeps until a packet comes or one is due.
    fn wait(&self) -> Result<()> {
        let until_due = self.queue.peek().map(|Reverse(next)| next.release.saturating_sub(self.start.elapsed()));
        let wait = until_due.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut descriptors: Vec<_> = self.hosts.iter().map(|host| PollFd::new(&host.device, PollFlags::IN)).collect();
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("waiting for packets"),
        }
    }

    /// Takes in what a host has sent, at most a batch, so that due packets do not wait for a flood.
    fn read(&mut self, from: usize) {
        let mut buffer = [0; LARGEST_PACKET];
        for _ in 0..BATCH {
            let Ok(length) = self.hosts[from].device.recv(&mut buffer) else { return };
            let packet = &buffer[..length];
            let Some(header) = Header::parse(packet) else { continue };
            let Some(to) = self.hosts.iter().position(|host| host.address == header.destination) else { continue };
            let Some(release) = self.links.admit(from, to, header.protocol, self.start.elapsed()) else { continue };
            if self.queue.len() >= LONGEST_QUEUE {
                self.links.settle(from, to, header.protocol, false);
                continue;
            }
            self.admitted += 1;
            let (number, protocol, bytes) = (self.admitted, header.protocol, packet.to_vec());
            self.queue.push(Reverse(Waiting { release, number, from, to, protocol, bytes }));
        }
    }
}

/// How soon the thread notices that it shall stop.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// Above the device's MTU of 1500.
const LARGEST_PACKET: usize = 2048;

const BATCH: usize = 64;

/// Seconds of the heaviest probing; a packet beyond it counts as refused.
const LONGEST_QUEUE: usize = 200_000;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::AsFd;

    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

    use super::*;
    use crate::link::LinkOptions;
    use crate::namespace::{Namespaces, NotPermitted};

    /// Sends numbered packets from `host`, inside its namespace.
    fn send(host: &Host, to: Ipv4Addr, packets: u32) -> std::io::Result<()> {
        enter(host)?;
        let socket = UdpSocket::bind((host.address, 0))?;
        for number in 0..packets {
            socket.send_to(&number.to_le_bytes(), (to, PORT))?;
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    /// Moves the calling thread into the host's network.
    fn enter(host: &Host) -> std::io::Result<()> {
        let namespace = File::open(format!("/run/netns/{}", host.name))?;
        Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// The numbers that arrive at `host` until nothing comes for a while.
    fn receive(host: &Host, ready: &AtomicBool) -> std::io::Result<Vec<u32>> {
        enter(host)?;
        let socket = UdpSocket::bind((host.address, PORT))?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        ready.store(true, Ordering::Relaxed);
        let mut found = Vec::new();
        let mut number = [0; 4];
        while socket.recv(&mut number).is_ok() {
            found.push(u32::from_le_bytes(number));
        }
        Ok(found)
    }

    #[test]
    fn what_arrives_and_what_is_lost_is_counted_exactly() {
        let spaces = match Namespaces::new(2) {
            Ok(spaces) => spaces,
            Err(error) if error.is::<NotPermitted>() => return println!("skipped: {error}"),
            Err(error) => panic!("{error:#}"),
        };
        let hosts = spaces.hosts();
        let options = LinkOptions {
            delay: Duration::from_millis(2),
            jitter: Duration::from_micros(300),
            loss: 10.0,
            asymmetry: Duration::ZERO,
            keep_order: true,
            one_way_loss: None,
            asymmetric_link: None,
            link_seed: 3,
        };
        let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
        let (links, received) = std::thread::scope(|scope| {
            let relay = scope.spawn(|| relay(hosts, Links::new(&options, 2), &stop));
            let receiver = scope.spawn(|| receive(&hosts[1], &ready));
            while !ready.load(Ordering::Relaxed) && !receiver.is_finished() {
                std::thread::yield_now();
            }
            let sender = scope.spawn(|| send(&hosts[0], hosts[1].address, PACKETS));
            sender.join().expect("no panic").expect("sends");
            let received = receiver.join().expect("no panic").expect("receives");
            stop.store(true, Ordering::Relaxed);
            let (links, _) = relay.join().expect("no panic").expect("relays");
            (links, received)
        });
        let counts = links.counts(0, 1, Protocol::Udp);
        assert_eq!(counts.seen + hosts[0].device_drops().expect("statistics"), u64::from(PACKETS));
        assert_eq!(counts.delivered, received.len() as u64);
        assert_eq!(counts.dropped, counts.seen - counts.delivered);
        assert!(counts.dropped > 0, "10 % of {PACKETS} packets");
        assert!(received.is_sorted(), "order was asked for");
        assert_eq!(links.counts(1, 0, Protocol::Udp).seen, 0);
    }

    const PORT: u16 = 17_077;
    const PACKETS: u32 = 2000;
}

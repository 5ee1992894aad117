//! A self-test that sends a few packets to check whether a kind of stamp works before a run depends
//! on it.
//!
//! In mode `auto`, `stamping` runs it before it chooses the interface's or the kernel's stamps. A
//! driver that claims to support stamps may deliver none, or wrong ones; a note and the next poorer
//! kind are better than a run without exchanges.
//!
//! Two kinds of packets, on a socket of its own. Packets to the own address come back by loopback:
//! both stamps of each must come, the receive stamp not before the transmit stamp, in order, and
//! between this program's own readings of the clock before and after. They never touch the
//! interface, so some packets also leave through it: to the group of PTP's link-local messages,
//! which no bridge forwards, with a time to live of 1, to the discard port, without content. Nobody
//! answers a group's packet. Of those only the transmit stamp is looked at; nothing here can make
//! the interface stamp an arrival.
//!
//! It does not wait long: a stamp that has not arrived within [`STAMP_LIMIT`] counts as missing.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration as StdDuration, Instant};

use probe_sync_time::{Clock, Duration, Stamp, StampSource, System, Timestamp};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::UdpOptions;
use super::message::{self, Batch, Control};
use crate::SystemClock;
use crate::host::read_line;

/// The timestamps under test.
pub(super) struct Promise<'a> {
    /// Their source.
    pub(super) source: StampSource,
    /// Their largest error, in addition to rounding.
    pub(super) error_limit: Duration,
    /// Reads the timestamp from a control message.
    pub(super) stamp: &'a dyn Fn(Control) -> Option<Stamp>,
    /// Requests them from the kernel.
    pub(super) ask: &'a dyn Fn(BorrowedFd<'_>) -> io::Result<()>,
}

/// Observations of one packet.
#[derive(Copy, Clone, Debug)]
struct Observed {
    /// The clock before it was sent.
    before: Timestamp<System>,
    transmit: Option<Stamp>,
    /// `None`: it was not expected back.
    receive: Option<Option<Stamp>>,
    /// The clock when its timestamps were read.
    after: Timestamp<System>,
}

/// Tests the timestamps on the path of `options`: over loopback, and out of `interface` if that is
/// another. Returns a note if the interface could not be tested.
///
/// # Errors
/// States what failed in each of [`ATTEMPTS`] tests: a clock step during one invalidates it.
pub(super) fn self_test(
    options: &UdpOptions,
    interface: Option<&str>,
    promise: &Promise<'_>,
) -> Result<Option<String>, String> {
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        match attempt(options, interface, promise) {
            Ok(note) => return Ok(note),
            Err(reason) => last = reason,
        }
    }
    Err(last)
}

fn attempt(options: &UdpOptions, interface: Option<&str>, promise: &Promise<'_>) -> Result<Option<String>, String> {
    let failed = |error: io::Error| format!("packets for a self-test: {error}");
    // A link-local address keeps the interface that it is of.
    let mut bind = options.bind;
    bind.set_port(0);
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(bind), kind, Some(Protocol::UDP)).map_err(failed)?;
    socket.bind(&bind.into()).map_err(failed)?;
    (promise.ask)(socket.as_fd()).map_err(|error| format!("SO_TIMESTAMPING: {error}"))?;
    let own = socket.local_addr().map_err(failed)?;
    let mut id = 0;
    // The interface does not see what goes to the own address, and the kernel need not stamp it for
    // the interface.
    if promise.source == StampSource::Kernel {
        let echoes = observe(&socket, &own, &mut id, promise, true).map_err(failed)?;
        judge(&echoes, promise).map_err(|reason| format!("packets to itself: {reason}"))?;
    }
    if bind.ip().is_loopback() {
        return Ok(None);
    }
    let outward =
        group(bind.ip(), interface, &socket).and_then(|group| observe(&socket, &group, &mut id, promise, false));
    let name = interface.unwrap_or("the interface");
    match outward {
        Ok(outward) => {
            judge(&outward, promise).map(|()| None).map_err(|reason| format!("packets out of {name}: {reason}"))
        }
        // Without the interface's own word its stamps are a guess; the kernel's come from code that
        // has just been tried.
        Err(error) if promise.source == StampSource::Hardware => {
            Err(format!("{name} cannot send a test packet: {error}"))
        }
        Err(error) => {
            Ok(Some(format!("cannot test transmit timestamps of {name}, because it cannot send a packet: {error}")))
        }
    }
}

/// Makes packets leave through the interface of `own`, and returns the destination.
fn group(own: IpAddr, interface: Option<&str>, socket: &Socket) -> io::Result<SockAddr> {
    match own {
        IpAddr::V4(own) => {
            socket.set_multicast_if_v4(&own)?;
            socket.set_multicast_ttl_v4(1)?;
            socket.set_multicast_loop_v4(false)?;
            Ok(SocketAddr::from((GROUP_V4, DISCARD)).into())
        }
        IpAddr::V6(_) => {
            let index = interface.and_then(|name| read_line(format!("/sys/class/net/{name}/ifindex").as_str()));
            let index = index.and_then(|text| text.trim().parse().ok());
            let index = index.ok_or_else(|| io::Error::other("its index is unknown"))?;
            socket.set_multicast_if_v6(index)?;
            socket.set_multicast_hops_v6(1)?;
            socket.set_multicast_loop_v6(false)?;
            Ok(SocketAddr::from(SocketAddrV6::new(GROUP_V6, DISCARD, 0, index)).into())
        }
    }
}

/// Sends [`PACKETS`] one after the other and waits for the timestamps of each; `id` continues
/// counting as the kernel does.
fn observe(
    socket: &Socket,
    to: &SockAddr,
    id: &mut u32,
    promise: &Promise<'_>,
    echoed: bool,
) -> io::Result<Vec<Observed>> {
    let mut observed = Vec::with_capacity(PACKETS);
    let (mut errors, mut inbox) = (Batch::new(), Batch::new());
    for _ in 0..PACKETS {
        let before = SystemClock.now();
        message::send(socket.as_fd(), &[(&id.to_le_bytes(), to.clone(), true)], None)?;
        let (mut transmit, mut receive) = (None, None);
        let deadline = Instant::now() + STAMP_LIMIT;
        loop {
            if errors.fetch(socket.as_fd(), libc::MSG_ERRQUEUE, 1).is_ok()
                && let Some(message) = errors.pop()
                && message.control.error.is_some_and(|error| error.is_transmit_stamp() && error.data == *id)
            {
                transmit = (promise.stamp)(message.control);
            }
            if echoed
                && inbox.fetch(socket.as_fd(), 0, 1).is_ok()
                && let Some(message) = inbox.pop()
                && message.bytes == id.to_le_bytes()
            {
                receive = (promise.stamp)(message.control);
            }
            if (transmit.is_some() && (receive.is_some() || !echoed)) || Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(StdDuration::from_micros(50));
        }
        *id += 1;
        observed.push(Observed { before, transmit, receive: echoed.then_some(receive), after: SystemClock.now() });
    }
    Ok(observed)
}

/// Checks whether the timestamps are as promised.
fn judge(observed: &[Observed], promise: &Promise<'_>) -> Result<(), String> {
    let (kind, room) = (promise.source.as_str(), promise.error_limit);
    let mut earlier: Option<Timestamp<System>> = None;
    for packet in observed {
        let Observed { before, transmit, receive, after } = *packet;
        let between = |what: &str, stamp: Option<Stamp>| {
            let stamp = stamp
                .filter(|stamp| stamp.source == promise.source)
                .ok_or_else(|| format!("no {kind} {what} timestamp arrived within {STAMP_LIMIT:?}"))?;
            if stamp.at < before - room || stamp.at > after + room {
                let (early, late) = ((stamp.at - before).as_ns(), (stamp.at - after).as_ns());
                return Err(format!(
                    "a {kind} {what} timestamp is {early} ns after the send and {late} ns after it was read"
                ));
            }
            Ok(stamp.at)
        };
        let sent = between("transmit", transmit)?;
        if earlier.is_some_and(|earlier| sent < earlier) {
            return Err(format!("a {kind} transmit timestamp is earlier than that of the previous packet"));
        }
        earlier = Some(sent);
        if let Some(receive) = receive
            && between("receive", receive)? < sent
        {
            return Err(format!("a {kind} receive timestamp is earlier than the transmit timestamp of its packet"));
        }
    }
    Ok(())
}

/// Packets of each kind.
const PACKETS: usize = 4;
/// Tests before a kind of timestamps is given up.
const ATTEMPTS: usize = 3;
/// How long to wait for the timestamps of one packet, even on a busy machine.
const STAMP_LIMIT: StdDuration = StdDuration::from_millis(100);
/// The discard port.
const DISCARD: u16 = 9;
/// Link-local messages of PTP (IEEE 1588, annexes C and D).
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 107);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x6b);

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(ns: i64) -> Stamp {
        Stamp { at: Timestamp::from_ns(ns), source: StampSource::Kernel }
    }

    fn promise<'a>(
        error_limit: i64,
        stamp: &'a dyn Fn(Control) -> Option<Stamp>,
        ask: &'a dyn Fn(BorrowedFd<'_>) -> io::Result<()>,
    ) -> Promise<'a> {
        Promise { source: StampSource::Kernel, error_limit: Duration::from_ns(error_limit), stamp, ask }
    }

    /// `[before, transmit, receive, after]` of packets.
    fn check(packets: &[[i64; 4]], error_limit: i64, expected: Result<(), &str>) {
        let observed: Vec<Observed> = packets
            .iter()
            .map(|[before, transmit, receive, after]| Observed {
                before: Timestamp::from_ns(*before),
                transmit: Some(stamp(*transmit)),
                receive: Some(Some(stamp(*receive))),
                after: Timestamp::from_ns(*after),
            })
            .collect();
        match (judge(&observed, &promise(error_limit, &|_| None, &|_| Ok(()))), expected) {
            (Err(reason), Err(part)) => assert!(reason.contains(part), "{reason} lacks {part}"),
            (judged, expected) => assert_eq!(judged.is_ok(), expected.is_ok(), "{packets:?}: {judged:?}"),
        }
    }

    #[test]
    fn stamps_must_lie_between_the_readings_around_them_and_in_order() {
        check(&[[0, 100, 200, 300], [400, 500, 500, 700]], 0, Ok(()));
        check(&[[0, 100, 200, 300], [90, 99, 200, 300]], 0, Err("than that of the previous packet"));
        check(&[[0, 100, 99, 300]], 0, Err("than the transmit timestamp of its packet"));
        check(&[[0, -1, 200, 300]], 0, Err("transmit timestamp is -1 ns"));
        check(&[[0, 100, 301, 300]], 0, Err("receive timestamp is"));
        // What the conversion of the interface's clock may be wrong by.
        check(&[[0, -50, 350, 300]], 50, Ok(()));
        check(&[[0, -51, 350, 300]], 50, Err("transmit timestamp is"));
    }

    #[test]
    fn a_stamp_that_does_not_come_or_is_of_another_kind_is_told() {
        let poorer = Stamp { source: StampSource::User, ..stamp(1) };
        for transmit in [None, Some(poorer)] {
            let packet =
                Observed { before: Timestamp::from_ns(0), transmit, receive: None, after: Timestamp::from_ns(2) };
            let reason = judge(&[packet], &promise(0, &|_| None, &|_| Ok(()))).expect_err("no kernel stamp");
            assert!(reason.contains("no kernel transmit timestamp arrived"), "{reason}");
        }
    }
}

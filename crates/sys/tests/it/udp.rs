//! The socket by itself: stamps, errors, counters.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use probe_sync_sys::udp::{Received, SendError, SendToken, TimestampMode, TimestampedUdp, UdpOptions};
use probe_sync_sys::{Error, SystemClock};
use probe_sync_time::{Clock, Stamp, StampSource};

use super::loopbacks;

fn open(bind: SocketAddr, timestamps: TimestampMode) -> TimestampedUdp {
    TimestampedUdp::bind(&UdpOptions { timestamps, ..UdpOptions::new(bind) }).expect("loopback has room")
}

/// Asks until there is an answer; a hang becomes a failure.
fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < limit, "{what} did not come");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn receive(udp: &mut TimestampedUdp, buffer: &mut [u8]) -> Received {
    eventually("the datagram", || udp.try_recv(buffer).expect("the socket works"))
}

fn stamp(udp: &mut TimestampedUdp) -> (SendToken, Stamp) {
    eventually("the transmit stamp", || udp.try_transmit_stamp().expect("the socket works"))
}

/// Sends a packet and checks both stamps' kind and order.
fn check_stamps(timestamps: TimestampMode, expected: StampSource) {
    for loopback in loopbacks() {
        let (mut a, mut b) = (open(loopback, timestamps), open(loopback, timestamps));
        assert_eq!(a.stamp_source(), expected, "{:?}", a.stamp_notes());
        let mut buffer = [0; 200];
        for round in 0..50u8 {
            let before = SystemClock.now();
            let token = a.try_send(&[round; 100], b.local_addr()).expect("loopback takes it");
            let received = receive(&mut b, &mut buffer);
            let (stamped, sent) = stamp(&mut a);
            let after = SystemClock.now();
            assert_eq!((received.len, received.from, &buffer[..100]), (100, a.local_addr(), &[round; 100][..]));
            assert_eq!((stamped, sent.source, received.stamp.source), (token, expected, expected));
            assert!(before <= sent.at && sent.at <= received.stamp.at && received.stamp.at <= after);
        }
        let (sender, receiver) = (a.counters(), b.counters());
        assert_eq!((sender.sent, sender.transmit_stamps, receiver.received), (50, 50, 50));
        assert_eq!((sender.transmit_stamps_missing, sender.transmit_stamps_unmatched), (0, 0));
        assert_eq!(receiver.receive_stamps_missing, 0);
        let user = if expected == StampSource::User { 50 } else { 0 };
        assert_eq!((sender.user_stamps, receiver.user_stamps), (user, user));
        assert_eq!((a.stamps_awaited(), a.try_lost_stamp()), (0, None));
    }
}

#[test]
fn kernel_stamps_both_directions() {
    check_stamps(TimestampMode::Kernel, StampSource::Kernel);
    check_stamps(TimestampMode::Auto, StampSource::Kernel);
}

#[test]
fn user_stamps_are_counted() {
    check_stamps(TimestampMode::User, StampSource::User);
}

#[test]
fn stamps_of_a_burst_go_to_their_packets() {
    for loopback in loopbacks() {
        let (mut a, mut b) = (open(loopback, TimestampMode::Kernel), open(loopback, TimestampMode::Kernel));
        let tokens: Vec<SendToken> =
            (0..40u8).map(|n| a.try_send(&[n; 60], b.local_addr()).expect("loopback takes it")).collect();
        let sent: Vec<(SendToken, Stamp)> = (0..40).map(|_| stamp(&mut a)).collect();
        assert_eq!(sent.iter().map(|(token, _)| *token).collect::<Vec<_>>(), tokens);
        let mut buffer = [0; 60];
        for (n, (_, sent)) in sent.iter().enumerate() {
            let received = receive(&mut b, &mut buffer);
            assert_eq!(buffer, [n as u8; 60]);
            assert!(sent.at <= received.stamp.at, "packet {n}");
        }
    }
}

#[test]
fn hardware_stamps_are_refused_where_there_are_none() {
    let options =
        UdpOptions { timestamps: TimestampMode::Hardware, ..UdpOptions::new("127.0.0.1:0".parse().expect("valid")) };
    let message = TimestampedUdp::bind(&options).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("hardware timestamps are not available on lo"), "{message}");
}

#[test]
fn a_taken_port_and_a_foreign_address_are_named_with_advice() {
    let check = |address: SocketAddr, advice: &str| {
        let error = TimestampedUdp::bind(&UdpOptions::new(address)).err().expect("cannot be bound");
        assert!(matches!(error, Error::Bind { .. }));
        let message = error.to_string();
        assert!(message.contains(&address.to_string()) && message.contains(advice), "{message}");
    };
    for loopback in loopbacks() {
        let holder = UdpSocket::bind(loopback).expect("loopback has room");
        check(holder.local_addr().expect("bound"), "choose another with --port");
    }
    // TEST-NET-1 (RFC 5737) belongs to nobody.
    check("192.0.2.1:0".parse().expect("valid"), "choose one with --bind");
}

#[test]
fn a_closed_port_is_counted_and_named_and_ends_nothing() {
    for loopback in loopbacks() {
        let closed = UdpSocket::bind(loopback).and_then(|socket| socket.local_addr()).expect("loopback has room");
        let (mut a, mut b) = (open(loopback, TimestampMode::Kernel), open(loopback, TimestampMode::Kernel));
        let mut buffer = [0; 100];
        for round in 0..20u8 {
            // The refusal of the first must not disturb the second, nor the first's own stamp.
            let refused = a.try_send(&[round; 10], closed).expect("leaves this host's stack");
            let fine = a.try_send(&[round; 20], b.local_addr()).expect("an earlier packet's error is not its own");
            assert_eq!([stamp(&mut a).0, stamp(&mut a).0], [refused, fine]);
            assert_eq!(receive(&mut b, &mut buffer).len, 20);
        }
        assert_eq!(a.try_recv(&mut buffer).expect("the socket works"), None);
        assert_eq!(a.try_transmit_stamp().expect("the socket works"), None);
        assert_eq!(a.counters().icmp_refused, 20);
        let error = a.take_network_error().expect("it is kept");
        assert_eq!((error.to, error.kind), (closed, std::io::ErrorKind::ConnectionRefused));
    }
}

#[test]
fn a_packet_that_cannot_leave_is_an_error_and_later_stamps_still_match() {
    for loopback in loopbacks() {
        let (mut a, mut b) = (open(loopback, TimestampMode::Kernel), open(loopback, TimestampMode::Kernel));
        let mut buffer = [0; 100];
        for round in 0..5u8 {
            // Port 0 is invalid, and no datagram is as long as the second.
            let mut nowhere = b.local_addr();
            nowhere.set_port(0);
            assert!(matches!(a.try_send(&[round], nowhere), Err(SendError::Refused { .. })));
            assert!(matches!(a.try_send(&[round; 70_000], b.local_addr()), Err(SendError::Refused { .. })));
            let token = a.try_send(&[round; 30], b.local_addr()).expect("loopback takes it");
            assert_eq!(stamp(&mut a).0, token);
            assert_eq!(receive(&mut b, &mut buffer).len, 30);
        }
        assert_eq!((a.counters().send_refused, a.counters().transmit_stamps_missing), (10, 0));
    }
}

#[test]
fn datagrams_beyond_the_receive_buffer_are_counted_by_the_kernel() {
    for loopback in loopbacks() {
        let mut a = open(loopback, TimestampMode::User);
        let options = UdpOptions { receive_buffer_bytes: 1, ..UdpOptions::new(loopback) };
        let mut b = TimestampedUdp::bind(&options).expect("loopback has room");
        let sent = 200;
        for _ in 0..sent {
            a.try_send(&[0; 500], b.local_addr()).expect("loopback takes it");
        }
        let mut buffer = [0; 500];
        while b.try_recv(&mut buffer).expect("the socket works").is_some() {}
        // The total of drops comes with the next datagram that finds room.
        a.try_send(&[0; 500], b.local_addr()).expect("loopback takes it");
        receive(&mut b, &mut buffer);
        let counters = b.counters();
        assert!(counters.dropped_by_kernel > 0);
        assert_eq!(counters.received + counters.dropped_by_kernel, sent + 1);
    }
}

#[test]
fn oversized_datagrams_are_dropped_and_counted() {
    for loopback in loopbacks() {
        let (mut a, mut b) = (open(loopback, TimestampMode::Kernel), open(loopback, TimestampMode::Kernel));
        for length in [5000, 101, 100] {
            a.try_send(&vec![7; length], b.local_addr()).expect("loopback takes it");
        }
        let mut buffer = [0; 100];
        assert_eq!(receive(&mut b, &mut buffer).len, 100);
        assert_eq!((b.counters().received, b.counters().oversized), (3, 2));
    }
}

//! A UDP socket that reports when each packet left and arrived.
//!
//! One [`TimestampedUdp`] per node carries all its edges; [`AsyncUdp`] lets one tokio task wait for
//! it.
//!
//! # Where stamps come from
//! `SO_TIMESTAMPING` (Linux `Documentation/networking/timestamping.rst`) makes the kernel stamp a
//! packet as it hands it to the interface and as the interface hands it over, both on
//! `CLOCK_REALTIME`. The receive stamp comes with the packet. The transmit stamp comes later on the
//! socket's error queue, named by an id. Since Linux 6.13 the id is ours (`SCM_TS_OPT_ID`). Before,
//! it is the kernel's count of packets sent.
//!
//! A send that fails half way may have advanced that count, depending on the kernel's version.
//! Recovery: what the error queue holds is collected first, packets still without a stamp are given
//! up, and switching `OPT_ID` off and on sets the count to zero, where ours is set too. A stamp of
//! an earlier packet that comes after that is older than the packet it claims to belong to, or
//! belongs to none, and is dropped and counted.
//!
//! Without kernel stamps the clock is read before a send and after a receive: counted, and visible
//! in each stamp's source. In mode [`TimestampMode::Auto`] a socket whose first `GIVE_UP_AFTER`
//! stamps all fail to come steps down from hardware to kernel to user.
//!
//! # Errors of the network
//! `IP_RECVERR` brings ICMP errors to the error queue. The kernel also lets the next unrelated call
//! on the socket fail with them; such a call is repeated. They are counted, kept by peer for
//! [`TimestampedUdp::take_network_error`], and end nothing.

mod message;
mod pending;
mod readiness;
mod self_test;
mod socket;
mod stamping;
mod types;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use probe_sync_time::{Clock, Duration, Stamp, StampSource, System, Timestamp};
use socket2::{SockAddr, Socket};

use crate::fork;
use crate::{Error, SystemClock};
use message::{BATCH, Batch, Control, Datagram};
use pending::Pending;
pub use readiness::{AsyncUdp, Wake, wait};
use socket::{fetch, is_network_error, open};
use stamping::Stamping;
pub use types::{NetworkError, Outgoing, Received, SendError, SendToken, TimestampMode, UdpCounters, UdpOptions};

/// A non-blocking UDP socket with timestamps.
pub struct TimestampedUdp {
    socket: Socket,
    local: SocketAddr,
    stamping: Stamping,
    automatic: bool,
    ids: Ids,
    pending: Pending,
    /// Transmit timestamps ready to be taken: user timestamps, and those collected during a
    /// recovery.
    ready: VecDeque<(SendToken, Stamp)>,
    inbox: Batch,
    errors: Batch,
    network_errors: VecDeque<NetworkError>,
    counters: UdpCounters,
    dropped_seen: u32,
}

/// Who numbers the packets for the error queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Ids {
    /// This process, with each packet. Unproven until a packet was accepted that way.
    Chosen { proven: bool },
    /// The kernel, counting from zero at this token.
    Counted { zero_at: u32 },
}

impl TimestampedUdp {
    /// Opens the socket.
    ///
    /// # Errors
    /// [`Error::Bind`] if the port is taken or the address does not belong to this host;
    /// [`Error::Stamps`] if the mode requires timestamps that are not available.
    pub fn bind(options: &UdpOptions) -> Result<Self, Error> {
        let socket = fork::opened(|| open(options))?;
        let local = socket.local_addr().map_err(Error::system("read the socket's address"))?;
        let local = local.as_socket().unwrap_or(options.bind);
        let stamping = Stamping::start(socket.as_fd(), options)?;
        Ok(Self {
            socket,
            local,
            stamping,
            automatic: options.timestamps == TimestampMode::Auto,
            ids: Ids::Chosen { proven: false },
            pending: Pending::new(),
            ready: VecDeque::new(),
            inbox: Batch::new(),
            errors: Batch::new(),
            network_errors: VecDeque::new(),
            counters: UdpCounters::default(),
            dropped_seen: 0,
        })
    }

    /// The address, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Present source of timestamps.
    pub fn stamp_source(&self) -> StampSource {
        self.stamping.source()
    }

    /// Largest error of every timestamp, in either direction but the same one throughout a run, due
    /// to the conversion from the interface's clock; zero for timestamps of the kernel and of this
    /// process.
    pub fn conversion_error(&self) -> Duration {
        self.stamping.conversion_error()
    }

    /// Why the timestamps are no better than [`Self::stamp_source`], in mode
    /// [`TimestampMode::Auto`].
    pub fn stamp_notes(&self) -> &[String] {
        self.stamping.notes()
    }

    /// Counts since the socket was created.
    pub fn counters(&self) -> UdpCounters {
        self.counters
    }

    /// The receive buffer that the system granted, bytes (Linux counts its own overhead, so usually
    /// twice the requested size).
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn receive_buffer_bytes(&self) -> Result<usize, Error> {
        self.socket.recv_buffer_size().map_err(Error::system("read the receive buffer's size"))
    }

    /// Number of packets waiting for their transmit timestamp.
    pub fn stamps_awaited(&self) -> usize {
        self.pending.len() + self.ready.len()
    }

    /// The next network error, oldest first; at most `NETWORK_ERRORS_KEPT` are kept.
    pub fn take_network_error(&mut self) -> Option<NetworkError> {
        self.network_errors.pop_front()
    }

    /// Sends a datagram at once. Its transmit timestamp comes from [`Self::try_transmit_stamp`]
    /// with the returned token.
    ///
    /// # Errors
    /// Returns an error if the packet was not sent; no timestamp will come. The error is counted;
    /// the socket remains usable.
    pub fn try_send(&mut self, bytes: &[u8], to: SocketAddr) -> Result<SendToken, SendError> {
        let mut token = Err(SendError::Full { to });
        self.send_batch(&[Outgoing { bytes, to, stamped: true }], |_, result| {
            token = result.map(|token| token.unwrap_or(SendToken(0)));
        });
        token
    }

    /// Sends datagrams at once, as many as possible with one system call, and reports for each, by
    /// index and in order, the result: the token of the wanted timestamp, or why it was not sent. A
    /// failed packet does not keep the others from being sent.
    pub fn send_batch(
        &mut self,
        packets: &[Outgoing<'_>],
        mut sent: impl FnMut(usize, Result<Option<SendToken>, SendError>),
    ) {
        let mut done = 0;
        // Ends: each turn finishes at least one packet.
        while done < packets.len() {
            // A user stamp is as good as it is early; and who lets the kernel count must know of
            // every failure.
            let one = self.stamping.source() == StampSource::User || matches!(self.ids, Ids::Counted { .. });
            let limit = if one { 1 } else { BATCH };
            let batch = &packets[done..packets.len().min(done + limit)];
            // The clock is read before the packets leave: a user stamp is never later than a kernel
            // stamp would be.
            let now = SystemClock.now();
            match self.send_named(batch) {
                Ok(left) => {
                    // A call that sends nothing reports an error; to be safe it does not repeat for
                    // ever.
                    let left = left.clamp(1, batch.len());
                    self.counters.sent += left as u64;
                    for packet in &batch[..left] {
                        sent(done, Ok(packet.stamped.then(|| self.await_stamp(now))));
                        done += 1;
                    }
                }
                Err(error) => {
                    sent(done, Err(self.count_send_error(batch[0].to, error)));
                    done += 1;
                }
            }
        }
        // On a fast interface the stamps are there already: do not say "empty" unasked.
        self.errors.tell_emptied();
    }

    /// Returns the next datagram, or `None` if there is none at present.
    ///
    /// # Errors
    /// Returns an error only if the socket itself is broken.
    pub fn try_recv(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, Error> {
        for _ in 0..RECEIVE_ROUNDS {
            let Some(message) = self.inbox.pop() else { if self.fetch_inbox()? { continue } else { return Ok(None) } };
            self.counters.received += 1;
            let control = message.control;
            let (Some(from), false, true) = (message.peer, message.truncated, message.bytes.len() <= buffer.len())
            else {
                self.counters.oversized += 1;
                continue;
            };
            let len = message.bytes.len();
            buffer[..len].copy_from_slice(message.bytes);
            self.count_dropped(control);
            let stamp = self.receive_stamp(control);
            return Ok(Some(Received { len, from, stamp }));
        }
        // A flood of unusable datagrams: let the caller do something else in between.
        Ok(None)
    }

    /// Returns the next transmit timestamp, in the order in which timestamps arrive, or `None` if
    /// there is none at present. Also takes network errors off the error queue.
    ///
    /// # Errors
    /// Returns an error only if the socket itself is broken.
    pub fn try_transmit_stamp(&mut self) -> Result<Option<(SendToken, Stamp)>, Error> {
        for _ in 0..RECEIVE_ROUNDS {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(Some(ready));
            }
            let Some(message) = self.errors.pop() else {
                if self.fetch_errors()? { continue } else { return Ok(None) }
            };
            let (peer, control) = (message.peer, message.control);
            if let Some(stamped) = self.sort_error(peer, control) {
                return Ok(Some(stamped));
            }
        }
        Ok(None)
    }

    /// Returns a packet whose transmit timestamp will not come: it has been awaited for
    /// `STAMP_TIMEOUT`, or was given up. Call this at least once a second.
    pub fn try_lost_stamp(&mut self) -> Option<SendToken> {
        if let Some(token) = self.pending.pop_lost() {
            return Some(token);
        }
        if self.pending.len() == 0 {
            return None;
        }
        let missing = self.pending.expire(SystemClock.now(), STAMP_TIMEOUT);
        self.count_missing(missing);
        self.pending.pop_lost()
    }

    /// True if no datagram is left and an edge will announce the next.
    fn inbox_exhausted(&self) -> bool {
        self.inbox.exhausted()
    }

    /// True if no timestamp is left and an edge will announce the next.
    fn errors_exhausted(&self) -> bool {
        self.ready.is_empty() && self.errors.exhausted()
    }

    /// Notes that a timestamp is wanted for a packet that was sent at `now`.
    fn await_stamp(&mut self, now: Timestamp<System>) -> SendToken {
        if self.stamping.source() != StampSource::User {
            return self.pending.push(now);
        }
        self.counters.user_stamps += 1;
        self.counters.transmit_stamps += 1;
        let token = self.pending.skip();
        if self.ready.len() == pending::RING {
            self.ready.pop_front();
            self.counters.transmit_stamps_missing += 1;
        }
        self.ready.push_back((token, Stamp { at: now, source: StampSource::User }));
        token
    }

    /// Sends with known ids, whoever chooses them. Returns how many were sent; an error is that of
    /// the first.
    fn send_named(&mut self, packets: &[Outgoing<'_>]) -> io::Result<usize> {
        let datagrams: Vec<Datagram<'_>> = packets
            .iter()
            .take(BATCH)
            .map(|packet| (packet.bytes, SockAddr::from(packet.to), packet.stamped))
            .collect();
        if self.stamping.source() == StampSource::User {
            return self.send_repeated(&datagrams, None);
        }
        match self.ids {
            Ids::Chosen { proven } => {
                let id = Some(self.pending.next_token());
                match self.send_repeated(&datagrams, id) {
                    Ok(left) => {
                        let named = packets.iter().take(left).any(|packet| packet.stamped);
                        self.ids = Ids::Chosen { proven: proven || named };
                        Ok(left)
                    }
                    Err(error) if !proven && error.raw_os_error() == Some(libc::EINVAL) => {
                        // A kernel before 6.13, or a destination that is invalid in itself.
                        let left = self.send_repeated(&datagrams, None)?;
                        self.ids = Ids::Counted { zero_at: self.pending.next_token() };
                        Ok(left)
                    }
                    Err(error) => Err(error),
                }
            }
            Ids::Counted { .. } => {
                let sent = self.send_repeated(&datagrams, None);
                if sent.is_err() {
                    self.recover_ids();
                }
                sent
            }
        }
    }

    /// Sends, once more if the first attempt reported an earlier packet's ICMP error.
    fn send_repeated(&mut self, datagrams: &[Datagram<'_>], first_id: Option<u32>) -> io::Result<usize> {
        let result = message::send(self.socket.as_fd(), datagrams, first_id);
        let Err(error) = &result else { return result };
        if error.kind() != io::ErrorKind::Interrupted && !is_network_error(error) {
            return result;
        }
        if matches!(self.ids, Ids::Counted { .. }) {
            self.recover_ids();
        }
        message::send(self.socket.as_fd(), datagrams, first_id)
    }

    /// Called after a send that may or may not have advanced the kernel's count of packets.
    fn recover_ids(&mut self) {
        for _ in 0..RECEIVE_ROUNDS {
            while let Some(message) = self.errors.pop() {
                let (peer, control) = (message.peer, message.control);
                if let Some(stamped) = self.sort_error(peer, control) {
                    self.ready.push_back(stamped);
                }
            }
            self.errors.tell_emptied();
            if !matches!(self.fetch_errors(), Ok(true)) {
                break;
            }
        }
        let missing = self.pending.forget_all();
        self.count_missing(missing);
        self.counters.id_recoveries += 1;
        self.stamping.restart_ids(self.socket.as_fd());
        self.ids = Ids::Counted { zero_at: self.pending.next_token() };
    }

    /// Fills the inbox. Returns false if there is nothing at present.
    fn fetch_inbox(&mut self) -> Result<bool, Error> {
        if self.inbox.tell_emptied() {
            return Ok(false);
        }
        // A user stamp is as good as it is early: one datagram at a time.
        let limit = if self.stamping.source() == StampSource::User { 1 } else { BATCH };
        self.stamping.refresh();
        fetch(&mut self.inbox, self.socket.as_fd(), 0, limit)
    }

    /// Fills the batch of error messages. Returns false if there is nothing at present.
    fn fetch_errors(&mut self) -> Result<bool, Error> {
        if self.errors.tell_emptied() {
            return Ok(false);
        }
        self.stamping.refresh();
        fetch(&mut self.errors, self.socket.as_fd(), libc::MSG_ERRQUEUE, BATCH)
    }

    /// Handles one message of the error queue: a timestamp that a packet waits for is returned,
    /// everything else is counted.
    fn sort_error(&mut self, peer: Option<SocketAddr>, control: Control) -> Option<(SendToken, Stamp)> {
        let error = control.error?;
        if !error.is_transmit_stamp() {
            self.count_network_error(peer, error.errno);
            return None;
        }
        let token = match self.ids {
            Ids::Chosen { .. } => error.data,
            Ids::Counted { zero_at } => zero_at.wrapping_add(error.data),
        };
        let stamp = self.stamping.stamp(control);
        let Some(sent) = self.pending.take(token) else {
            self.counters.transmit_stamps_unmatched += 1;
            return None;
        };
        let stale = |stamp: Stamp| matches!(self.ids, Ids::Counted { .. }) && stamp.at < sent;
        match stamp {
            Some(stamp) if !stale(stamp) => {
                self.counters.transmit_stamps += 1;
                Some((SendToken(token), stamp))
            }
            _ => {
                self.counters.transmit_stamps_unmatched += 1;
                self.count_missing(1);
                self.pending.give_up(token);
                None
            }
        }
    }

    fn receive_stamp(&mut self, control: Control) -> Stamp {
        let wanted = self.stamping.source();
        if wanted != StampSource::User {
            if let Some(stamp) = self.stamping.stamp(control) {
                if stamp.source != wanted {
                    self.counters.receive_stamps_missing += 1;
                }
                return stamp;
            }
            self.counters.receive_stamps_missing += 1;
        }
        self.counters.user_stamps += 1;
        Stamp { at: SystemClock.now(), source: StampSource::User }
    }

    /// The kernel reports its running total with each datagram that arrived after a drop.
    fn count_dropped(&mut self, control: Control) {
        if let Some(total) = control.dropped {
            self.counters.dropped_by_kernel += u64::from(total.wrapping_sub(self.dropped_seen));
            self.dropped_seen = total;
        }
    }

    fn count_missing(&mut self, missing: usize) {
        self.counters.transmit_stamps_missing += missing as u64;
        let hopeless = self.counters.transmit_stamps == 0 && self.counters.transmit_stamps_missing >= GIVE_UP_AFTER;
        if self.automatic && hopeless && self.stamping.source() != StampSource::User {
            self.stamping.step_down(self.socket.as_fd());
            self.ids = Ids::Chosen { proven: false };
            let forgotten = self.pending.forget_all() as u64;
            self.counters.transmit_stamps_missing += forgotten;
        }
    }

    fn count_network_error(&mut self, peer: Option<SocketAddr>, errno: i32) {
        match errno {
            libc::ECONNREFUSED => self.counters.icmp_refused += 1,
            libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN | libc::ENETDOWN => {
                self.counters.icmp_unreachable += 1;
            }
            _ => self.counters.icmp_other += 1,
        }
        if let Some(to) = peer {
            if self.network_errors.len() == NETWORK_ERRORS_KEPT {
                self.network_errors.pop_front();
            }
            self.network_errors.push_back(NetworkError { to, kind: io::Error::from_raw_os_error(errno).kind() });
        }
    }

    fn count_send_error(&mut self, to: SocketAddr, source: io::Error) -> SendError {
        match source.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                self.counters.send_full += 1;
                SendError::Full { to }
            }
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN | libc::EADDRNOTAVAIL) => {
                self.counters.send_unreachable += 1;
                SendError::Unreachable { to, source }
            }
            _ => {
                self.counters.send_refused += 1;
                SendError::Refused { to, source }
            }
        }
    }
}

impl AsRawFd for TimestampedUdp {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for TimestampedUdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// How long to wait for a transmit timestamp. The kernel takes it when the packet leaves the
/// interface's queue.
const STAMP_TIMEOUT: Duration = Duration::from_ms(50);

/// Missing transmit timestamps, with none received, after which mode [`TimestampMode::Auto`] steps
/// down.
const GIVE_UP_AFTER: u64 = 16;

/// Network errors kept for [`TimestampedUdp::take_network_error`].
const NETWORK_ERRORS_KEPT: usize = 16;

/// Most messages examined in one call that returns none of them.
const RECEIVE_ROUNDS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
        for _ in 0..10_000 {
            if let Some(answer) = ask() {
                return answer;
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        panic!("it did not come");
    }

    /// A socket that lets the kernel count packets, as before Linux 6.13.
    fn counting() -> TimestampedUdp {
        let bind = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = UdpOptions { timestamps: TimestampMode::Kernel, ..UdpOptions::new(bind) };
        let mut udp = TimestampedUdp::bind(&options).expect("loopback has room");
        udp.ids = Ids::Counted { zero_at: 0 };
        udp
    }

    fn check_stamped(udp: &mut TimestampedUdp, tokens: &[SendToken]) {
        for token in tokens {
            let (stamped, _) = eventually(|| udp.try_transmit_stamp().expect("the socket works"));
            assert_eq!(stamped, *token);
        }
        assert_eq!(udp.stamps_awaited(), 0);
    }

    #[test]
    fn counted_ids_match_their_packets_after_failed_sends() {
        let mut udp = counting();
        let here = udp.local_addr();
        for _ in 0..5 {
            let tokens: Vec<_> = (0..3).map(|_| udp.try_send(&[0; 10], here).expect("loopback takes it")).collect();
            check_stamped(&mut udp, &tokens);
            // Too long for a datagram: refused, on some kernels after it was counted.
            let recoveries = udp.counters().id_recoveries;
            assert!(udp.try_send(&[0; 70_000], here).is_err());
            assert!(udp.counters().id_recoveries > recoveries);
        }
        assert_eq!((udp.counters().transmit_stamps, udp.counters().transmit_stamps_missing), (15, 0));
    }

    #[test]
    fn stamps_collected_during_a_recovery_are_not_lost() {
        let mut udp = counting();
        let here = udp.local_addr();
        let mut tokens: Vec<_> = (0..30).map(|_| udp.try_send(&[0; 10], here).expect("loopback takes it")).collect();
        assert!(udp.try_send(&[0; 70_000], here).is_err());
        tokens.push(udp.try_send(&[0; 10], here).expect("loopback takes it"));
        check_stamped(&mut udp, &tokens);
        assert_eq!(udp.counters().transmit_stamps_unmatched, 0);
    }

    #[test]
    fn a_socket_whose_stamps_never_come_steps_down_in_mode_auto() {
        let bind = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut udp = TimestampedUdp::bind(&UdpOptions::new(bind)).expect("loopback has room");
        let here = udp.local_addr();
        assert_eq!(udp.stamp_source(), StampSource::Kernel);
        // As if the driver took no transmit stamps.
        stamping::set_option(udp.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 0).expect("may be switched off");
        udp.ids = Ids::Counted { zero_at: 0 };
        for _ in 0..GIVE_UP_AFTER {
            udp.try_send(&[0; 10], here).expect("loopback takes it");
        }
        assert_eq!(udp.try_transmit_stamp().expect("the socket works"), None);
        let lost: Vec<u32> = (0..GIVE_UP_AFTER).map(|_| eventually(|| udp.try_lost_stamp()).0).collect();
        assert_eq!(lost, (0..GIVE_UP_AFTER as u32).collect::<Vec<_>>());
        assert_eq!((udp.stamp_source(), udp.stamp_notes().len()), (StampSource::User, 2), "{:?}", udp.stamp_notes());
        let token = udp.try_send(&[0; 10], here).expect("loopback takes it");
        let stamp = udp.try_transmit_stamp().expect("the socket works").expect("a user stamp is there at once");
        assert_eq!((stamp.0, stamp.1.source), (token, StampSource::User));
    }
}

//! The inputs and outputs of a [`TimestampedUdp`](super::TimestampedUdp).

use std::io;
use std::net::SocketAddr;

use probe_sync_time::Stamp;
use serde::{Deserialize, Serialize};

/// Which kind of timestamps to use.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimestampMode {
    /// The best available.
    #[default]
    Auto,
    /// The interface's, or fail.
    Hardware,
    /// The kernel's, or fail.
    Kernel,
    /// Clock readings in this process.
    User,
}

/// Options of a [`TimestampedUdp`](super::TimestampedUdp).
#[derive(Clone, Debug)]
pub struct UdpOptions {
    /// Local address; port 0 lets the system choose one.
    pub bind: SocketAddr,
    /// Kind of timestamps.
    pub timestamps: TimestampMode,
    /// The interface that packets use, for hardware timestamps. `None`: the one that has the
    /// address `bind`.
    pub interface: Option<String>,
    /// Receive buffer, bytes; the system may grant less, see
    /// [`TimestampedUdp::receive_buffer_bytes`](super::TimestampedUdp::receive_buffer_bytes).
    pub receive_buffer_bytes: usize,
}

impl UdpOptions {
    /// Best timestamps and a buffer that holds some thousand probe packets.
    pub fn new(bind: SocketAddr) -> Self {
        Self { bind, timestamps: TimestampMode::Auto, interface: None, receive_buffer_bytes: 1 << 20 }
    }
}

/// Identifies a sent packet until its transmit timestamp arrives. Counts up by one per packet with
/// a wanted timestamp, modulo 2^32.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SendToken(pub u32);

/// A datagram to send.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// Content.
    pub bytes: &'a [u8],
    /// Destination.
    pub to: SocketAddr,
    /// Whether its transmit timestamp is wanted. A timestamp costs the kernel a copy of the packet
    /// and the reader a message.
    pub stamped: bool,
}

/// A datagram that arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes written to the caller's buffer.
    pub len: usize,
    /// Sender.
    pub from: SocketAddr,
    /// Time of arrival.
    pub stamp: Stamp,
}

/// Why a packet was not sent. All cases are counted, and none ends a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The send buffer or the interface's queue is full.
    #[error("send buffer full on the way to {to}")]
    Full {
        /// The destination.
        to: SocketAddr,
    },
    /// There is no route, or the network or host is known to be down.
    #[error("no route to {to}: {source}")]
    Unreachable {
        /// The destination.
        to: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The system refused the packet, for example a firewall.
    #[error("cannot send to {to}: {source}")]
    Refused {
        /// The destination.
        to: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
}

/// An ICMP error about one of our packets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct NetworkError {
    /// Destination of the packet.
    pub to: SocketAddr,
    /// The error; `ConnectionRefused`: nobody listens on that port.
    pub kind: io::ErrorKind,
}

/// Counts of events on a socket since it was created.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UdpCounters {
    /// Packets passed to the kernel.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Transmit timestamps returned.
    pub transmit_stamps: u64,
    /// Transmit timestamps that did not come, or came too late.
    pub transmit_stamps_missing: u64,
    /// Transmit timestamps that belonged to no waiting packet.
    pub transmit_stamps_unmatched: u64,
    /// Transmit and receive times read by this process, by choice or for lack of anything better.
    pub user_stamps: u64,
    /// Datagrams without a timestamp of the kind in use, which got a worse one.
    pub receive_stamps_missing: u64,
    /// Sends that found the buffer full.
    pub send_full: u64,
    /// Sends without a route or to a network that is down.
    pub send_unreachable: u64,
    /// Sends that the system refused.
    pub send_refused: u64,
    /// ICMP: nobody listens there.
    pub icmp_refused: u64,
    /// ICMP: host or network unreachable.
    pub icmp_unreachable: u64,
    /// Other ICMP or local errors.
    pub icmp_other: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full.
    pub dropped_by_kernel: u64,
    /// Datagrams longer than any probe packet, or longer than the caller's buffer, dropped.
    pub oversized: u64,
    /// Times that the count of packets was reset after a failed send (kernels before 6.13).
    pub id_recoveries: u64,
}

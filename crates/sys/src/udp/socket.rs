//! The socket of [`TimestampedUdp`](super::TimestampedUdp), opened with its options, and the reads
//! from it.
//!
//! [`open`] creates the socket before stamps are requested; [`fetch`] fills a batch from its
//! receive queue or its error queue. With `IP_RECVERR`, an unrelated call can fail with an earlier
//! packet's ICMP error: [`fetch`] retries such a call, and the caller retries a send whose failure
//! [`is_network_error`] recognizes.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::message::Batch;
use super::{UdpOptions, stamping};
use crate::Error;

/// Opens a non-blocking, bound socket that reports ICMP errors and dropped datagrams.
pub(super) fn open(options: &UdpOptions) -> Result<Socket, Error> {
    let address = options.bind;
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))
        .map_err(|source| bind_error(address, source))?;
    if address.is_ipv6() {
        // One family per socket: an IPv4 peer seen as ::ffff:a.b.c.d would not equal its configured
        // address.
        socket.set_only_v6(true).map_err(Error::system("restrict the socket to IPv6"))?;
    }
    let bytes = libc::c_int::try_from(options.receive_buffer_bytes).unwrap_or(libc::c_int::MAX);
    // With CAP_NET_ADMIN beyond net.core.rmem_max, otherwise up to it.
    if stamping::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes).is_err() {
        socket.set_recv_buffer_size(options.receive_buffer_bytes).map_err(Error::system("set the receive buffer"))?;
    }
    let (level, kind) =
        if address.is_ipv6() { (libc::SOL_IPV6, libc::IPV6_RECVERR) } else { (libc::SOL_IP, libc::IP_RECVERR) };
    stamping::set_option(socket.as_fd(), level, kind, 1).map_err(Error::system("enable ICMP errors"))?;
    stamping::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
        .map_err(Error::system("enable the count of dropped packets"))?;
    socket.bind(&SockAddr::from(address)).map_err(|source| bind_error(address, source))?;
    Ok(socket)
}

/// Fills `batch` with at most `limit` messages. Returns false if there is nothing at present.
pub(super) fn fetch(
    batch: &mut Batch,
    socket: BorrowedFd<'_>,
    flags: libc::c_int,
    limit: usize,
) -> Result<bool, Error> {
    for _ in 0..FETCH_ATTEMPTS {
        match batch.fetch(socket, flags, limit) {
            Ok(received) => return Ok(received > 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            // An ICMP error about an earlier packet; the error queue has the details.
            Err(error) if error.kind() == io::ErrorKind::Interrupted || is_network_error(&error) => {}
            Err(error) => return Err(Error::System { operation: "receive from the probe socket", source: error }),
        }
    }
    Ok(false)
}

/// Errors caused by the network, not by the current call.
pub(super) fn is_network_error(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EPROTO
                | libc::EOPNOTSUPP
                | libc::EACCES
                | libc::EMSGSIZE
        )
    )
}

fn bind_error(address: SocketAddr, source: io::Error) -> Error {
    let advice = match source.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            "another program (or rank) uses this port: choose another with --port; 0 lets the system choose"
        }
        Some(libc::EADDRNOTAVAIL) => {
            "no interface of this host has this address: see `ip addr` and choose one with --bind"
        }
        Some(libc::EACCES | libc::EPERM) => "ports below 1024 require privileges: choose another with --port",
        Some(libc::EAFNOSUPPORT) => "this kernel does not support that address family: use the other one with --bind",
        Some(libc::EMFILE | libc::ENFILE) => "too many open files: raise `ulimit -n`",
        _ => "check --bind and --port",
    };
    Error::Bind { address, source, advice }
}

/// Most repetitions of a receive that reported an earlier packet's ICMP error.
const FETCH_ATTEMPTS: usize = 16;

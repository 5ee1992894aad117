//! How the ranks find each other: the root waits at one known address until every rank has come and
//! proven that it belongs to the run.
//!
//! This is the root's side; `joining` is that of the other ranks, `greeting` defines the messages,
//! and `newcomers` holds the unproven connections.
//!
//! It cannot keep out a process that has the key or can guess how it was made.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::os::fd::AsFd as _;

use probe_sync_sys::fork;
use rustix::event::PollFlags;
use socket2::{Domain, Protocol, Socket, Type};

use super::connection::Connection;
use super::greeting::{Errand, Verdict};
use super::newcomers::{Expected, Newcomers};
use super::sockets::poll_sockets;
use crate::{Deadline, Error, Rank, Wait};

/// Listens on `address` (`ip:port`; port 0 lets the system choose), for [`super::Tcp::host`]. On
/// `[::]`, IPv4 connections are accepted too.
///
/// # Errors
/// [`Error::Setup`] names the address and states what to do.
pub fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    listen(address).map_err(|error| cannot_listen(address, &error))
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => match outgoing_ports().filter(|ports| ports.contains(&address.port())) {
            None => IN_USE.to_owned(),
            Some(ports) => {
                let (first, last) = (ports.start(), ports.end());
                format!(
                    "{IN_USE}. A port from {first} to {last} may also be occupied by an outgoing connection, for up to a minute after \
                    it closes"
                )
            }
        },
        io::ErrorKind::AddrNotAvailable => "no interface of this machine has that address".to_owned(),
        io::ErrorKind::PermissionDenied => "ports below 1024 require privileges; choose a higher one".to_owned(),
        _ => "choose another address or port".to_owned(),
    };
    Error::Setup { what: format!("cannot listen on {address}"), reason: format!("{error}; {advice}") }
}

/// Returns the ports that the system assigns to outgoing connections.
fn outgoing_ports() -> Option<RangeInclusive<u16>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ends = text.split_whitespace().map_while(|end| end.parse().ok());
    Some(ends.next()?..=ends.next()?)
}

/// Listens on all addresses of this machine, whatever its own name resolves to (127.0.1.1 on
/// Debian).
///
/// # Errors
/// Errors of [`bind`].
pub fn bind_everywhere(port: u16) -> Result<TcpListener, Error> {
    let six = SocketAddr::from(([0u16; 8], port));
    match listen(six) {
        Ok(listener) => Ok(listener),
        Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied) => {
            Err(cannot_listen(six, &error))
        }
        // A kernel or a container without IPv6.
        Err(_) => bind(SocketAddr::from(([0; 4], port))),
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = fork::opened(|| Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)))?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    // A run may follow another at once: connections of the last one that linger must not hold the
    // port.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Result of meeting the ranks.
pub(super) struct Met {
    /// Connections to ranks 1 and up, in order; `None` for one that has not joined.
    pub joined: Vec<Option<Connection>>,
    /// Port at which each of them listens for its children, if there is a tree.
    pub ports: Vec<u16>,
    /// Address by which they reached the root.
    pub local: IpAddr,
}

/// Meets the ranks, at the root.
pub(super) fn host(listener: &TcpListener, expected: Expected, deadline: &Deadline) -> Result<Met, Error> {
    let size = expected.size;
    let mut wait = Wait::begin(OPERATION, deadline);
    let setup = |error: io::Error| Error::Setup { what: "waiting for ranks".to_owned(), reason: error.to_string() };
    listener.set_nonblocking(true).map_err(setup)?;
    let listening = listener.local_addr().map_err(setup)?.ip();
    let mut joined: Vec<Option<Connection>> = (1..size).map(|_| None).collect();
    let mut ports = vec![0; size.saturating_sub(1)];
    let mut newcomers = Newcomers::new(expected);
    let missing =
        |joined: &[Option<Connection>]| (1..size).filter(|&rank| joined[rank - 1].is_none()).collect::<Vec<Rank>>();
    while !missing(&joined).is_empty() {
        let slice = wait.slice();
        let begin_after = expected.options.begin_after.filter(|_| !wait.interrupted());
        let enough = begin_after.is_some_and(|after| slice.is_none() || wait.elapsed() >= after);
        if enough && joined.iter().any(Option::is_some) {
            break;
        }
        let Some(slice) = slice else { return Err(wait.late(missing(&joined))) };
        let sockets: Vec<_> = std::iter::once((listener.as_fd(), PollFlags::IN)).chain(newcomers.sockets()).collect();
        let ready = poll_sockets(&sockets, slice, OPERATION)?;
        for proven in newcomers.advance(&ready[1..], |rank| joined[rank - 1].is_some())? {
            let (rank, port) = (proven.rank, proven.port);
            let place = &mut joined[rank - 1];
            match place {
                _ if proven.errand == Errand::File => proven.refuse(Verdict::NoFiles),
                _ if matches!(proven.errand, Errand::Return | Errand::Look) => {
                    proven.refuse(Verdict::NotUnderWay);
                }
                _ if proven.run != 0 => proven.refuse(Verdict::OtherRun),
                // Two of one rank have greeted at the same time.
                Some(_) => proven.refuse(Verdict::Duplicate),
                _ if proven.errand == Errand::Child => proven.refuse(Verdict::NoSuchRank),
                None => {
                    *place = proven.welcome(Verdict::Welcome);
                    ports[rank - 1] = port;
                }
            }
        }
        if ready[0] {
            newcomers.accept(listener)?;
        }
    }
    let local_ip = reached_by(&joined).unwrap_or(listening);
    Ok(Met { joined, ports, local: local_ip.to_canonical() })
}

/// Returns the address by which the first rank on another host has reached the root.
fn reached_by(joined: &[Option<Connection>]) -> Option<IpAddr> {
    let addresses =
        || joined.iter().flatten().filter_map(|peer| Some(peer.stream().local_addr().ok()?.ip().to_canonical()));
    addresses().find(|address| !address.is_loopback()).or_else(|| addresses().next())
}

const OPERATION: &str = "rendezvous";

/// Most connections waiting to be accepted.
const BACKLOG: i32 = 1024;

const IN_USE: &str =
    "another program uses it; end that program or choose another port (--port or MASTER_PORT, 0 for any)";

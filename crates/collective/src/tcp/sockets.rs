//! Socket operations: keep-alive, waiting on several sockets, and non-blocking transfer.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::SendFlags;
use socket2::{SockRef, TcpKeepalive};

use crate::Error;

/// Enables keep-alive, so that a peer whose machine has lost power is noticed within half a minute
/// even if nothing is sent.
pub(super) fn keep_alive(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let alive = TcpKeepalive::new().with_time(ALIVE_AFTER).with_interval(ALIVE_EVERY).with_retries(ALIVE_RETRIES);
    // Both make things better only.
    let _ = socket.set_tcp_keepalive(&alive);
    let _ = socket.set_tcp_user_timeout(Some(ALIVE_AFTER + ALIVE_RETRIES * ALIVE_EVERY));
}

/// Writes what a socket accepts, and removes it from the buffer; returns the number of bytes.
///
/// # Errors
/// Returns an error if the other side no longer reads.
pub(super) fn write(socket: BorrowedFd<'_>, bytes: &mut Vec<u8>) -> Result<usize, rustix::io::Errno> {
    let mut sent = 0;
    while sent < bytes.len() {
        match rustix::net::send(socket, &bytes[sent..], SendFlags::NOSIGNAL) {
            Ok(count) => sent += count,
            Err(rustix::io::Errno::AGAIN) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    bytes.drain(..sent);
    Ok(sent)
}

/// Sleeps until one of the sockets is ready, at most for `limit`; returns which.
///
/// # Errors
/// [`Error::Backend`] if the system refuses; a signal only ends the sleep.
pub(super) fn poll_sockets(
    sockets: &[(BorrowedFd<'_>, PollFlags)],
    limit: Duration,
    operation: &'static str,
) -> Result<Vec<bool>, Error> {
    let mut set: Vec<PollFd<'_>> =
        sockets.iter().map(|(socket, events)| PollFd::from_borrowed_fd(*socket, *events)).collect();
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    match rustix::event::poll(&mut set, Some(&limit)) {
        Ok(_) => Ok(set.iter().map(|entry| !entry.revents().is_empty()).collect()),
        Err(rustix::io::Errno::INTR) => Ok(vec![false; sockets.len()]),
        Err(error) => Err(Error::Backend { operation, reason: format!("poll: {error}") }),
    }
}

/// Returns true if a port is open at one of these addresses; if all refuse, the process has ended.
pub(super) fn somebody_listens(addresses: &[SocketAddr]) -> bool {
    let refused = |address: &SocketAddr| {
        let answer = TcpStream::connect_timeout(address, LOOK);
        answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    !addresses.iter().all(refused)
}

/// Returns true if the other side has closed this connection, as far as can be seen without
/// waiting.
pub(super) fn has_hung_up(stream: &TcpStream) -> bool {
    let ended = poll_sockets(&[(stream.as_fd(), PollFlags::RDHUP)], Duration::ZERO, "looking");
    ended.is_ok_and(|ended| ended == [true])
}

/// Time limit for checking a port, in case the host is gone.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// Time after which a silent peer is probed, and how often.
const ALIVE_AFTER: Duration = Duration::from_secs(10);
const ALIVE_EVERY: Duration = Duration::from_secs(5);
const ALIVE_RETRIES: u32 = 4;

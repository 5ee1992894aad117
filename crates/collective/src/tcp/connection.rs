//! One connection between the root and another rank: frames in, frames out, without ever blocking.
//!
//! Place in the flow: `tcp` decides whom to wait for and sleeps in [`poll_sockets`]; this file moves the bytes.
//! A frame is a header of 16 bytes, `length: u32, kind: u32, sequence: u64`, little-endian, and `length` bytes.
//! The sequence counts the group's operations, so that ranks that run different programs are found out.
//! What it does not do: reconnect. A broken connection is a lost rank; one that comes back has a new one (`door`).

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use socket2::{SockRef, TcpKeepalive};

use crate::{Error, Rank};

/// What a frame is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Gather = 1,
    Broadcast = 2,
    Abort = 3,
    /// Between the root and a rank that comes back; the sequence counts what the two say ([`super::door`]).
    Back = 4,
    /// The root goes on without the rank that gets it.
    Dismissal = 5,
}

impl Kind {
    fn from_wire(number: u32) -> Option<Self> {
        let all = [Self::Gather, Self::Broadcast, Self::Abort, Self::Back, Self::Dismissal];
        all.into_iter().find(|&kind| kind as u32 == number)
    }
}

/// A frame's bytes, ready to be written.
///
/// # Errors
/// [`Error::Backend`] when the payload is longer than [`FRAME_MAX`].
pub(super) fn frame(kind: Kind, sequence: u64, payload: &[u8], operation: &'static str) -> Result<Vec<u8>, Error> {
    if payload.len() > FRAME_MAX {
        let reason = format!("a payload of {} bytes; at most {FRAME_MAX} are allowed", payload.len());
        return Err(Error::Backend { operation, reason });
    }
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(kind as u32).to_le_bytes());
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes.extend_from_slice(payload);
    Ok(bytes)
}

/// An open connection to `rank`.
#[derive(Debug)]
pub(super) struct Connection {
    /// Shared with the door, which looks whether the peer is still there.
    stream: Arc<TcpStream>,
    rank: Rank,
    /// Bytes received; those before `used` have been handed out.
    incoming: Vec<u8>,
    used: usize,
    /// A frame went out in part only: no other frame can follow it.
    cut_off: bool,
}

impl Connection {
    /// Takes over a stream whose handshake is done; it must be non-blocking.
    pub(super) fn new(stream: TcpStream, rank: Rank) -> Self {
        keep_alive(&stream);
        Self { stream: Arc::new(stream), rank, incoming: Vec::new(), used: 0, cut_off: false }
    }

    pub(super) fn rank(&self) -> Rank {
        self.rank
    }

    pub(super) fn stream(&self) -> &Arc<TcpStream> {
        &self.stream
    }

    /// Reads what is there. True once a whole frame of this kind and sequence lies in [`Connection::payload`].
    ///
    /// # Errors
    /// [`Error::Aborted`] when the peer ended the job, [`Error::Dismissed`] when it goes on without us, [`Error::Lost`] when it is gone,
    /// [`Error::Protocol`] when it sent anything else.
    pub(super) fn receive(
        &mut self,
        kind: Kind,
        sequence: u64,
        operation: &'static str,
        scratch: &mut [u8],
    ) -> Result<bool, Error> {
        // Bounded: every pass that goes on has read a full scratch, and a frame has at most FRAME_MAX bytes.
        loop {
            if self.has_frame(kind, sequence, operation)? {
                return Ok(true);
            }
            match (&*self.stream).read(scratch) {
                Ok(0) => return Err(self.lost(operation, &"the connection was closed")),
                Ok(count) => {
                    self.incoming.extend_from_slice(&scratch[..count]);
                    if count < scratch.len() {
                        return self.has_frame(kind, sequence, operation);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(operation, &error)),
            }
        }
    }

    /// The payload of the frame that [`Connection::receive`] found; empty when there is none.
    pub(super) fn payload(&self) -> &[u8] {
        let waiting = &self.incoming[self.used..];
        match header(waiting) {
            Some((length, ..)) if waiting.len() >= HEADER + length => &waiting[HEADER..HEADER + length],
            _ => &[],
        }
    }

    /// Forgets that frame.
    pub(super) fn consume(&mut self) {
        self.used += HEADER + self.payload().len();
        if self.used >= self.incoming.len() {
            self.incoming.clear();
            self.used = 0;
        }
    }

    /// Writes as much of `bytes` after the first `sent` as the socket takes. True once all are written.
    ///
    /// # Errors
    /// [`Error::Lost`] when the peer is gone.
    pub(super) fn send(&mut self, bytes: &[u8], sent: &mut usize, operation: &'static str) -> Result<bool, Error> {
        while *sent < bytes.len() {
            match (&*self.stream).write(&bytes[*sent..]) {
                Ok(count) => *sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(operation, &error)),
            }
        }
        self.cut_off = *sent > 0 && *sent < bytes.len();
        Ok(*sent == bytes.len())
    }

    /// Tells the peer that `rank` ended the job and why, as far as that is possible without waiting.
    pub(super) fn send_abort(&mut self, rank: Rank, reason: &str) {
        self.send_last(Kind::Abort, rank, reason);
    }

    /// Tells the peer that the group goes on without it, and why, as far as that is possible without waiting.
    pub(super) fn send_dismissal(&mut self, reason: &str) {
        self.send_last(Kind::Dismissal, self.rank, reason);
    }

    /// Sends the last frame of this connection: whom it is about, and why.
    fn send_last(&mut self, kind: Kind, rank: Rank, reason: &str) {
        if !self.cut_off {
            let mut payload = (rank as u32).to_le_bytes().to_vec();
            payload.extend_from_slice(&reason.as_bytes()[..reason.len().min(LAST_REASON_MAX)]);
            if let Ok(bytes) = frame(kind, 0, &payload, "abort") {
                let _ = self.send(&bytes, &mut 0, "abort");
            }
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        // Closing a socket with unread bytes resets the connection, which may overtake the frame just sent.
        let mut discarded = [0; 4096];
        for _ in 0..ABORT_DRAIN_READS {
            if !matches!((&*self.stream).read(&mut discarded), Ok(1..)) {
                break;
            }
        }
    }

    fn lost(&self, operation: &'static str, reason: &dyn ToString) -> Error {
        Error::Lost { operation, rank: self.rank, reason: reason.to_string() }
    }

    /// True when a whole expected frame has been read, false while bytes are missing.
    ///
    /// # Errors
    /// As [`Connection::receive`], for what has been read.
    pub(super) fn has_frame(&self, kind: Kind, sequence: u64, operation: &'static str) -> Result<bool, Error> {
        let waiting = &self.incoming[self.used..];
        let Some((length, number, found)) = header(waiting) else { return Ok(false) };
        let protocol = |what| Err(Error::Protocol { operation, rank: self.rank, what });
        let Some(found_kind) = Kind::from_wire(number) else {
            return protocol(format!("a frame of unknown kind {number}"));
        };
        if length > FRAME_MAX {
            return protocol(format!("a frame of {length} bytes; at most {FRAME_MAX} are allowed"));
        }
        let last = matches!(found_kind, Kind::Abort | Kind::Dismissal);
        if !last && (found_kind, found) != (kind, sequence) {
            return protocol(format!("frame {found} ({found_kind:?}) instead of frame {sequence} ({kind:?})"));
        }
        if waiting.len() < HEADER + length {
            return Ok(false);
        }
        if !last {
            return Ok(true);
        }
        let Some((rank, reason)) = self.payload().split_first_chunk::<4>() else {
            return protocol("an abort without its rank".to_owned());
        };
        let (rank, reason) = (u32::from_le_bytes(*rank) as usize, String::from_utf8_lossy(reason).into_owned());
        Err(match found_kind {
            Kind::Dismissal => Error::Dismissed { reason },
            _ => Error::Aborted { operation, rank, reason },
        })
    }
}

/// A peer whose machine has lost its power is found out within half a minute, also while nothing is said.
pub(super) fn keep_alive(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let alive = TcpKeepalive::new().with_time(ALIVE_AFTER).with_interval(ALIVE_EVERY).with_retries(ALIVE_RETRIES);
    // Both make things better only.
    let _ = socket.set_tcp_keepalive(&alive);
    let _ = socket.set_tcp_user_timeout(Some(ALIVE_AFTER + ALIVE_RETRIES * ALIVE_EVERY));
}

/// Sleeps until one of the sockets has what is asked of it, at most for `limit`; says which.
///
/// # Errors
/// [`Error::Backend`] when the system refuses; a signal only ends the sleep.
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

/// Length, kind and sequence, when they are there.
fn header(bytes: &[u8]) -> Option<(usize, u32, u64)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (kind, rest) = rest.split_first_chunk::<4>()?;
    let (sequence, _) = rest.split_first_chunk::<8>()?;
    Some((u32::from_le_bytes(*length) as usize, u32::from_le_bytes(*kind), u64::from_le_bytes(*sequence)))
}

/// The longest payload of a frame. A round of 10 240 nodes is 2 MB; a length beyond this one is a broken stream.
pub(super) const FRAME_MAX: usize = 256 << 20;

/// When a silent peer is asked whether it is there, and how often.
const ALIVE_AFTER: Duration = Duration::from_secs(10);
const ALIVE_EVERY: Duration = Duration::from_secs(5);
const ALIVE_RETRIES: u32 = 4;

/// Bytes of a frame's header.
pub(super) const HEADER: usize = 16;

/// Reason bytes that the last frame of a connection carries.
const LAST_REASON_MAX: usize = 4096;

/// Reads with which an abort empties the socket.
const ABORT_DRAIN_READS: usize = 256;

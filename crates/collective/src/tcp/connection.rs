//! One connection between the root and another rank, which transfers frames without ever blocking.
//!
//! `peers` decides which connections to wait for and sleeps; this file moves the bytes. `frame`
//! documents their format. Words leave as soon as the socket accepts them, and the rest goes out
//! before the next frame. Frames of one host may move to a second socket (`local`). It does not
//! reconnect: a broken connection means a lost rank, and a rank that returns gets a new connection
//! (`door`).

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{RecvFlags, SendFlags};
use socket2::SockRef;

use super::frame::{Hashed, Header, HeaderBytes, Kind, Leaving, Seal, Seals};
use super::incoming::Incoming;
use super::local::{self, Local, MOVED, OFFER, Offers};
use super::sockets::{keep_alive, write};
use crate::{Error, Rank, Traffic};

/// An open connection to `rank`.
#[derive(Debug)]
pub(super) struct Connection {
    /// Shared with the door, which checks whether the peer is still alive.
    stream: Arc<TcpStream>,
    rank: Rank,
    /// Number of the peer's process, as stated by the peer.
    process: u64,
    incoming: Incoming,
    /// Seal of outgoing frames.
    seal: Seal,
    /// Set once nothing more arrives.
    broken: Option<Broken>,
    /// True if something may have arrived since the last read, according to `peers`.
    readable: bool,
    /// True if the peer has closed its side.
    ended: bool,
    /// Why nothing more can be sent.
    deaf: Option<String>,
    /// Messages that the socket has not accepted yet.
    unsent: Vec<u8>,
    local: Local,
    /// True if a frame was sent only in part, so that no other can follow.
    cut_off: bool,
    traffic: Traffic,
}

/// Why nothing more arrives.
#[derive(Debug)]
enum Broken {
    /// The connection has ended.
    Ended(String),
    /// The peer sent something that no rank would send.
    Wrong(String),
}

impl Connection {
    /// Creates a connection from a stream after the handshake; it must be non-blocking.
    pub(super) fn new(stream: TcpStream, rank: Rank, seals: Seals) -> Self {
        keep_alive(&stream);
        Self {
            stream: Arc::new(stream),
            rank,
            process: 0,
            incoming: Incoming::new(seals.peers),
            seal: seals.own,
            broken: None,
            readable: true,
            ended: false,
            deaf: None,
            unsent: Vec::new(),
            local: Local::default(),
            cut_off: false,
            traffic: Traffic::default(),
        }
    }

    /// Sets the number of the peer's process.
    pub(super) fn of_process(self, process: u64) -> Self {
        Self { process, ..self }
    }

    pub(super) fn process(&self) -> u64 {
        self.process
    }

    pub(super) fn rank(&self) -> Rank {
        self.rank
    }

    pub(super) fn stream(&self) -> &Arc<TcpStream> {
        &self.stream
    }

    /// Returns the socket for outgoing bytes, to be watched by writers.
    pub(super) fn outward(&self) -> BorrowedFd<'_> {
        match &self.local.stream {
            Some(local) if !self.seal.has_key() && self.local.farewell.is_empty() => local.as_fd(),
            _ => self.stream.as_fd(),
        }
    }

    /// Returns for incoming and outgoing frames whether they have moved to another socket.
    #[cfg(test)]
    pub(super) fn has_moved(&self) -> [bool; 2] {
        [self.incoming.has_moved(), !self.seal.has_key()]
    }

    fn inward(&self) -> BorrowedFd<'_> {
        match &self.local.stream {
            Some(local) if self.incoming.has_moved() => local.as_fd(),
            _ => self.stream.as_fd(),
        }
    }

    /// Registers the connection with `epoll` under this number.
    ///
    /// # Errors
    /// Returns an error if the system cannot watch it.
    pub(super) fn watch(&mut self, epoll: &Arc<OwnedFd>, number: u64) -> rustix::io::Result<()> {
        self.local.watch(&self.stream, epoll, number)
    }

    /// Removes the registration.
    pub(super) fn unwatch(&mut self) {
        self.local.unwatch(&self.stream);
    }

    /// Accepts offers of another socket for frames.
    pub(super) fn take_offers(&mut self) {
        self.local.wanted = true;
    }

    /// Offers another socket, if the other side is on this host.
    ///
    /// # Errors
    /// Never fails, because the message is short.
    pub(super) fn offer(&mut self, offers: &Arc<Offers>) -> Result<(), Error> {
        let ip = |address: io::Result<std::net::SocketAddr>| address.ok().map(|address| address.ip().to_canonical());
        let (own, peers) = (ip(self.stream.local_addr()), ip(self.stream.peer_addr()));
        let Some((offer, secret)) = offers.make().filter(|_| own.is_some() && own == peers) else { return Ok(()) };
        self.local.offered = Some((Arc::clone(offers), secret));
        self.say(Kind::Local, OFFER, &offer, "rendezvous")
    }

    /// Returns the traffic of the connection.
    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Records the system's report that something has arrived, or that nothing more will.
    pub(super) fn tell(&mut self, ended: bool) {
        self.readable = true;
        self.ended |= ended;
    }

    /// Returns true if the peer has closed its side, as far as the system has reported.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Reads what is available. Returns true once a complete frame of this kind and sequence is in
    /// [`Connection::payload`].
    ///
    /// # Errors
    /// [`Error::Aborted`] if the peer ended the job, [`Error::Dismissed`] if it continues without
    /// this rank, [`Error::Lost`] if it is gone, [`Error::Protocol`] if it sent anything else.
    pub(super) fn receive(&mut self, kind: Kind, sequence: u64, operation: &'static str) -> Result<bool, Error> {
        if self.has_frame(kind, sequence, operation)? {
            return Ok(true);
        }
        self.next_frame(operation)?;
        self.has_frame(kind, sequence, operation)
    }

    /// Reads until any complete frame has arrived; returns its kind and sequence, while
    /// [`Connection::payload`] is its payload.
    ///
    /// # Errors
    /// Errors of [`Connection::receive`].
    pub(super) fn next_frame(&mut self, operation: &'static str) -> Result<Option<(Kind, u64)>, Error> {
        // Bounded: every pass that goes on has filled the room, which doubles, and a frame has at
        // most FRAME_MAX bytes.
        loop {
            if let Some(found) = self.first(operation)? {
                return Ok(Some(found));
            }
            match &self.broken {
                Some(Broken::Ended(reason)) => return Err(self.lost(operation, reason)),
                Some(Broken::Wrong(what)) => return Err(self.wrong(what.clone(), operation)),
                None => {}
            }
            if !self.read() && self.broken.is_none() {
                return self.first(operation);
            }
        }
    }

    /// Returns true if the expected frame is complete, false while bytes are missing.
    fn has_frame(&self, kind: Kind, sequence: u64, operation: &'static str) -> Result<bool, Error> {
        match self.first(operation)? {
            None => Ok(false),
            Some(found) if found == (kind, sequence) => Ok(true),
            Some(found) => Err(self.unexpected(found, (kind, sequence), operation)),
        }
    }

    /// Returns the frame that has been read and not been consumed.
    fn first(&self, operation: &'static str) -> Result<Option<(Kind, u64)>, Error> {
        let Some((found, payload)) = self.incoming.first() else { return Ok(None) };
        if !found.kind.is_last() {
            return Ok(Some((found.kind, found.sequence)));
        }
        let Some((rank, reason)) = payload.split_first_chunk::<4>() else {
            return Err(self.wrong("an abort without a rank".to_owned(), operation));
        };
        let (rank, reason) = (u32::from_le_bytes(*rank) as usize, String::from_utf8_lossy(reason).into_owned());
        Err(match found.kind {
            Kind::Dismissal => Error::Dismissed { reason },
            _ => Error::Aborted { operation, rank, reason },
        })
    }

    /// Returns the error for another frame than the expected one.
    pub(super) fn unexpected(&self, found: (Kind, u64), due: (Kind, u64), operation: &'static str) -> Error {
        let ((its_kind, its), (kind, sequence)) = (found, due);
        self.wrong(format!("frame {its} ({its_kind:?}) instead of frame {sequence} ({kind:?})"), operation)
    }

    /// Returns the error for a violation of the protocol.
    pub(super) fn wrong(&self, what: String, operation: &'static str) -> Error {
        Error::Protocol { operation, rank: self.rank, what }
    }

    /// Returns the payload of the frame found by [`Connection::receive`]; empty if there is none.
    pub(super) fn payload(&self) -> &[u8] {
        self.incoming.first().map_or(&[], |(_, payload)| payload)
    }

    /// Discards that frame.
    pub(super) fn consume(&mut self) {
        self.incoming.consume();
    }

    /// Sends and receives messages, and returns those received. Failures are noticed in the next
    /// operation.
    pub(super) fn words(&mut self) -> Vec<Vec<u8>> {
        self.send_unsent();
        while self.broken.is_none() && self.incoming.waiting() < READ_AHEAD && self.read() {}
        self.incoming.words()
    }

    /// Sends a message as soon as the socket accepts it, independently of operations. A peer that
    /// accepts nothing is given up in the next operation.
    ///
    /// # Errors
    /// [`Error::Backend`] if it is too long.
    pub(super) fn say(
        &mut self,
        kind: Kind,
        sequence: u64,
        payload: &[u8],
        operation: &'static str,
    ) -> Result<(), Error> {
        self.move_out();
        let header = Header::of(kind, sequence, (payload, &mut Hashed::default()), &self.seal, operation)?;
        if self.deaf.is_some() || self.cut_off {
            return Ok(());
        }
        if self.unsent.len() > UNSENT_MAX {
            self.deaf = Some(format!("it has not read {} bytes of its messages", self.unsent.len()));
            return Ok(());
        }
        self.unsent.extend_from_slice(&header.encode(&self.seal));
        self.seal.pass();
        self.unsent.extend_from_slice(payload);
        self.traffic.messages_sent += 1;
        self.send_unsent();
        Ok(())
    }

    /// Creates an outgoing frame: see [`Connection::send`].
    ///
    /// # Errors
    /// [`Error::Backend`] if it is too long.
    pub(super) fn begin<'a>(
        &mut self,
        kind: Kind,
        sequence: u64,
        payload: (&'a [u8], &mut Hashed<'a>),
        operation: &'static str,
    ) -> Result<Leaving, Error> {
        let header = Header::of(kind, sequence, payload, &self.seal, operation)?;
        self.traffic.messages_sent += 1;
        Ok(Leaving { header, bytes: HeaderBytes::NONE, sent: 0 })
    }

    /// Writes as much of a frame as the socket accepts. Returns true once all of it is written.
    ///
    /// # Errors
    /// [`Error::Lost`] if the peer is gone.
    pub(super) fn send(&mut self, frame: &mut Leaving, payload: &[u8], operation: &'static str) -> Result<bool, Error> {
        if frame.sent == 0 {
            self.move_out();
        }
        let no_words = self.send_unsent();
        if let Some(reason) = &self.deaf {
            return Err(self.lost(operation, reason));
        }
        if !no_words {
            return Ok(false);
        }
        if frame.sent == 0 {
            // Its number is known only now: a frame that was begun may never leave.
            frame.bytes = frame.header.encode(&self.seal);
        }
        let header_length = frame.bytes.len();
        let whole = header_length + payload.len();
        while frame.sent < whole {
            let header = IoSlice::new(&frame.bytes[frame.sent.min(header_length)..]);
            let rest = IoSlice::new(&payload[frame.sent.saturating_sub(header_length)..]);
            // The standard library's write of several parts would signal SIGPIPE where the peer is
            // gone.
            match SockRef::from(&self.outward()).send_vectored_with_flags(&[header, rest], NO_SIGNAL) {
                Ok(count) => {
                    if frame.sent == 0 {
                        self.seal.pass();
                    }
                    frame.sent += count;
                    self.traffic.bytes_sent += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(operation, &error)),
            }
        }
        self.cut_off = frame.sent > 0 && frame.sent < whole;
        Ok(frame.sent == whole)
    }

    /// Tells the peer that `rank` ended the job and why, as far as possible without waiting.
    pub(super) fn send_abort(&mut self, rank: Rank, reason: &str) {
        self.send_last(Kind::Abort, rank, reason);
    }

    /// Tells the peer that the group continues without it, and why, as far as possible without
    /// waiting.
    pub(super) fn send_dismissal(&mut self, reason: &str) {
        self.send_last(Kind::Dismissal, self.rank, reason);
    }

    /// Tells the peer that nothing more follows.
    fn say_no_more(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        let _ = self.local.stream.as_ref().map(|local| SockRef::from(local).shutdown(std::net::Shutdown::Write));
    }

    /// Sends the last frame of this connection, with the rank concerned and the reason.
    fn send_last(&mut self, kind: Kind, rank: Rank, reason: &str) {
        if !self.cut_off {
            let mut payload = (rank as u32).to_le_bytes().to_vec();
            payload.extend_from_slice(&reason.as_bytes()[..reason.len().min(LAST_REASON_MAX)]);
            if let Ok(mut frame) = self.begin(kind, 0, (&payload, &mut Hashed::default()), "abort") {
                let _ = self.send(&mut frame, &payload, "abort");
            }
        }
        self.say_no_more();
        // Closing a socket with unread bytes resets the connection, which may overtake the frame
        // just sent.
        let mut discarded = [0; 4096];
        for _ in 0..ABORT_DRAIN_READS {
            if !matches!(rustix::net::recv(self.inward(), &mut discarded, RecvFlags::empty()), Ok((1.., _))) {
                break;
            }
        }
    }

    /// Reads once. Returns true if more may be available.
    fn read(&mut self) -> bool {
        if !self.readable {
            return false;
        }
        let inward = match &self.local.stream {
            Some(local) if self.incoming.has_moved() => local.as_fd(),
            _ => self.stream.as_fd(),
        };
        let room = self.incoming.room();
        let asked = room.len();
        let count = match rustix::net::recv(inward, room, RecvFlags::empty()).map(|(count, _)| count) {
            Ok(0) => {
                self.broken = Some(Broken::Ended("the connection was closed".to_owned()));
                return false;
            }
            Ok(count) => count,
            Err(rustix::io::Errno::AGAIN) => {
                self.readable = false;
                return false;
            }
            Err(rustix::io::Errno::INTR) => return true,
            Err(error) => {
                self.broken = Some(Broken::Ended(error.to_string()));
                return false;
            }
        };
        self.traffic.bytes_received += count as u64;
        match self.incoming.came(count) {
            Ok(whole) => self.traffic.messages_received += whole,
            Err(what) => self.broken = Some(Broken::Wrong(what)),
        }
        // After a read that was not filled the system tells of what comes later; an end may have
        // been told of already.
        self.readable = count == asked || self.ended;
        if let Some((sequence, content)) = self.incoming.local()
            && let Err(what) = self.hear_local(sequence, &content)
        {
            self.broken = Some(Broken::Wrong(what));
        }
        self.readable && self.broken.is_none()
    }

    /// Processes the other side's messages about the other socket for frames.
    fn hear_local(&mut self, sequence: u64, content: &[u8]) -> Result<(), String> {
        match sequence {
            OFFER if !self.local.wanted => {}
            OFFER if self.local.stream.is_none() && self.local.offered.is_none() => {
                local::accept_offer(content).map_or(Ok(()), |stream| self.add_local(stream))?;
            }
            MOVED if self.local.offered.is_some() => {
                let offered = self.local.offered.take();
                let stream = offered.map(|(offers, secret)| offers.take(&secret)).transpose()?;
                self.incoming.moved()?;
                stream.map_or(Ok(()), |stream| self.add_local(stream))?;
                self.readable = true;
            }
            MOVED if self.local.stream.is_some() && !self.incoming.has_moved() => {
                self.incoming.moved()?;
                self.readable = true;
            }
            other => return Err(format!("unexpected word {other} about another connection")),
        }
        Ok(())
    }

    /// Adds another socket, to which outgoing frames move.
    fn add_local(&mut self, stream: OwnedFd) -> Result<(), String> {
        self.local.watch_socket(stream.as_fd()).map_err(|error| format!("cannot watch its other socket: {error}"))?;
        self.local.stream = Some(stream);
        self.local.due = true;
        self.move_out();
        Ok(())
    }

    /// Moves outgoing frames to the other socket if requested and if no frame has been sent in
    /// part.
    fn move_out(&mut self) {
        if !self.local.due || self.cut_off || !self.unsent.is_empty() {
            return;
        }
        if let Ok(header) = Header::of(Kind::Local, MOVED, (&[], &mut Hashed::default()), &self.seal, "moving") {
            self.local.farewell = header.encode(&self.seal).to_vec();
            self.local.due = false;
            self.seal = Seal::none();
            self.send_unsent();
        }
    }

    /// Writes pending messages. Returns true if none is left.
    fn send_unsent(&mut self) -> bool {
        if self.local.farewell.is_empty() && self.unsent.is_empty() {
            return true;
        }
        let mut farewell = std::mem::take(&mut self.local.farewell);
        let left = write(self.stream.as_fd(), &mut farewell);
        self.local.farewell = farewell;
        let left = left.and_then(|before| {
            if !self.local.farewell.is_empty() {
                return Ok(before);
            }
            let mut unsent = std::mem::take(&mut self.unsent);
            let left = write(self.outward(), &mut unsent).map(|count| before + count);
            self.unsent = unsent;
            left
        });
        match left {
            Ok(count) => self.traffic.bytes_sent += count as u64,
            Err(error) => self.deaf = Some(error.to_string()),
        }
        self.local.farewell.is_empty() && self.unsent.is_empty()
    }

    fn lost(&self, operation: &'static str, reason: &dyn ToString) -> Error {
        Error::Lost { operation, rank: self.rank, reason: reason.to_string() }
    }
}

/// Writing to a peer that is gone must be an error, not a signal.
const NO_SIGNAL: i32 = SendFlags::NOSIGNAL.bits() as i32;

/// Bytes of frames that are read while only messages are requested.
const READ_AHEAD: usize = 1 << 20;

/// Most bytes of messages that wait for a peer that does not read.
const UNSENT_MAX: usize = 4 << 20;

/// Longest reason in the last frame of a connection, bytes.
const LAST_REASON_MAX: usize = 4096;

/// Most reads by which an abort empties the socket.
const ABORT_DRAIN_READS: usize = 256;

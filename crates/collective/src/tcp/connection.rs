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
    /// Shared with the door, which looks whether the peer is still there.
    stream: Arc<TcpStream>,
    rank: Rank,
    /// The number of the peer's process, as it said it.
    process: u64,
    incoming: Incoming,
    /// Of what leaves.
    seal: Seal,
    /// Nothing more comes.
    broken: Option<Broken>,
    /// Something may have come since the last read: `peers` tells.
    readable: bool,
    /// The peer has ended its side.
    ended: bool,
    /// Nothing more can be said, and why.
    deaf: Option<String>,
    /// Words that the socket has not taken yet.
    unsent: Vec<u8>,
    local: Local,
    /// A frame went out in part only: no other frame can follow it.
    cut_off: bool,
    traffic: Traffic,
}

/// Why nothing more comes.
#[derive(Debug)]
enum Broken {
    /// It has ended.
    Ended(String),
    /// It sent something that no rank would.
    Wrong(String),
}

impl Connection {
    /// Takes over a stream whose handshake is done; it must be non-blocking.
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

    /// The same with a peer that has given its process this number.
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

    /// Where the next bytes leave: what waits to write waits for it.
    pub(super) fn outward(&self) -> BorrowedFd<'_> {
        match &self.local.stream {
            Some(local) if !self.seal.has_key() && self.local.farewell.is_empty() => local.as_fd(),
            _ => self.stream.as_fd(),
        }
    }

    /// Whether frames have moved to another socket, those that come and those that leave.
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

    /// Has `epoll` tell under this number what happens here.
    ///
    /// # Errors
    /// When the system cannot watch it.
    pub(super) fn watch(&mut self, epoll: &Arc<OwnedFd>, number: u64) -> rustix::io::Result<()> {
        self.local.watch(&self.stream, epoll, number)
    }

    /// Ends that.
    pub(super) fn unwatch(&mut self) {
        self.local.unwatch(&self.stream);
    }

    /// Takes an offer of another socket for frames, should one come.
    pub(super) fn take_offers(&mut self) {
        self.local.wanted = true;
    }

    /// Offers one, if the other side is on this host.
    ///
    /// # Errors
    /// Never: it is short.
    pub(super) fn offer(&mut self, offers: &Arc<Offers>) -> Result<(), Error> {
        let ip = |address: io::Result<std::net::SocketAddr>| address.ok().map(|address| address.ip().to_canonical());
        let (own, peers) = (ip(self.stream.local_addr()), ip(self.stream.peer_addr()));
        let Some((offer, secret)) = offers.make().filter(|_| own.is_some() && own == peers) else { return Ok(()) };
        self.local.offered = Some((Arc::clone(offers), secret));
        self.say(Kind::Local, OFFER, &offer, "rendezvous")
    }

    /// What it has carried.
    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// The system tells that something has come, or that nothing more will.
    pub(super) fn tell(&mut self, ended: bool) {
        self.readable = true;
        self.ended |= ended;
    }

    /// Whether the peer has ended its side, as far as the system has told.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Reads what is there. True once a whole frame of this kind and sequence lies in
    /// [`Connection::payload`].
    ///
    /// # Errors
    /// [`Error::Aborted`] when the peer ended the job, [`Error::Dismissed`] when it goes on without
    /// us, [`Error::Lost`] when it is gone, [`Error::Protocol`] when it sent anything else.
    pub(super) fn receive(&mut self, kind: Kind, sequence: u64, operation: &'static str) -> Result<bool, Error> {
        if self.has_frame(kind, sequence, operation)? {
            return Ok(true);
        }
        self.next_frame(operation)?;
        self.has_frame(kind, sequence, operation)
    }

    /// Reads until a frame has come whole, whatever it is: its kind and its sequence, while
    /// [`Connection::payload`] is its payload.
    ///
    /// # Errors
    /// As [`Connection::receive`].
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

    /// True when a whole expected frame has been read, false while bytes are missing.
    fn has_frame(&self, kind: Kind, sequence: u64, operation: &'static str) -> Result<bool, Error> {
        match self.first(operation)? {
            None => Ok(false),
            Some(found) if found == (kind, sequence) => Ok(true),
            Some(found) => Err(self.unexpected(found, (kind, sequence), operation)),
        }
    }

    /// Which frame has been read and not been taken.
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

    /// Another frame than the one that is due.
    pub(super) fn unexpected(&self, found: (Kind, u64), due: (Kind, u64), operation: &'static str) -> Error {
        let ((its_kind, its), (kind, sequence)) = (found, due);
        self.wrong(format!("frame {its} ({its_kind:?}) instead of frame {sequence} ({kind:?})"), operation)
    }

    /// It sent what this protocol does not allow.
    pub(super) fn wrong(&self, what: String, operation: &'static str) -> Error {
        Error::Protocol { operation, rank: self.rank, what }
    }

    /// The payload of the frame that [`Connection::receive`] found; empty when there is none.
    pub(super) fn payload(&self) -> &[u8] {
        self.incoming.first().map_or(&[], |(_, payload)| payload)
    }

    /// Forgets that frame.
    pub(super) fn consume(&mut self) {
        self.incoming.consume();
    }

    /// Moves words on, in and out, and hands out those that have come. What breaks meanwhile shows
    /// in the next operation.
    pub(super) fn words(&mut self) -> Vec<Vec<u8>> {
        self.send_unsent();
        while self.broken.is_none() && self.incoming.waiting() < READ_AHEAD && self.read() {}
        self.incoming.words()
    }

    /// Says something that leaves when the socket takes it, beside what is waited for. A peer that
    /// takes nothing is given up in the next operation.
    ///
    /// # Errors
    /// [`Error::Backend`] when it is too long.
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

    /// A frame that is to leave here: see [`Connection::send`].
    ///
    /// # Errors
    /// [`Error::Backend`] when it is too long.
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

    /// Writes as much of a frame as the socket takes. True once all of it is written.
    ///
    /// # Errors
    /// [`Error::Lost`] when the peer is gone.
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

    /// Tells the peer that `rank` ended the job and why, as far as that is possible without
    /// waiting.
    pub(super) fn send_abort(&mut self, rank: Rank, reason: &str) {
        self.send_last(Kind::Abort, rank, reason);
    }

    /// Tells the peer that the group goes on without it, and why, as far as that is possible
    /// without waiting.
    pub(super) fn send_dismissal(&mut self, reason: &str) {
        self.send_last(Kind::Dismissal, self.rank, reason);
    }

    /// The peer hears that nothing more comes.
    pub(super) fn say_no_more(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        let _ = self.local.stream.as_ref().map(|local| SockRef::from(local).shutdown(std::net::Shutdown::Write));
    }

    /// Sends the last frame of this connection: whom it is about, and why.
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

    /// Reads once. True when more may be there.
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

    /// What the other side says about the other socket for frames.
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

    /// There is another socket: what leaves moves there.
    fn add_local(&mut self, stream: OwnedFd) -> Result<(), String> {
        self.local.watch_socket(stream.as_fd()).map_err(|error| format!("cannot watch its other socket: {error}"))?;
        self.local.stream = Some(stream);
        self.local.due = true;
        self.move_out();
        Ok(())
    }

    /// What leaves moves to the other socket if it is to and no frame has left in part.
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

    /// Writes words that are still here. True when none is left.
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

/// Writing to a peer that is gone is an error, no signal.
const NO_SIGNAL: i32 = SendFlags::NOSIGNAL.bits() as i32;

/// Bytes of frames that are read while only words are asked for.
const READ_AHEAD: usize = 1 << 20;

/// Bytes of words that wait for a peer that reads nothing.
const UNSENT_MAX: usize = 4 << 20;

/// Reason bytes that the last frame of a connection carries.
const LAST_REASON_MAX: usize = 4096;

/// Reads with which an abort empties the socket.
const ABORT_DRAIN_READS: usize = 256;

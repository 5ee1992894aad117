//! A shortcut for the frames of ranks on the root's own host: a Unix-domain socket in addition to
//! their TCP connection.
//!
//! The root offers it to ranks that have proven themselves over TCP and whose connection ends on
//! its own host; `connection` moves its frames there. The two sides exchange these `Local` frames
//! on the TCP connection:
//!
//! | from | sequence | content |
//! |---|---|---|
//! | root | [`OFFER`] | where the root listens (the end of an abstract name), and 16 secret bytes |
//! | rank | [`MOVED`] | nothing: it has connected there and said the secret; its frames come there from now on |
//! | root | [`MOVED`] | nothing: so do the root's |
//!
//! A rank that does not see that name (another network namespace, another user) says nothing, and
//! all stays as it was. Both sides ask the system whether the other is of the same user. The kernel
//! alone carries what passes there, so it has no tags. The TCP connection stays: its end tells that
//! the other process has ended, and the door knows the rank by it. It does not move the connections
//! of a tree, or of ranks that have returned.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use probe_sync_sys::fork;
use rustix::event::epoll;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send, sockopt::socket_peercred};
use rustix::process::{Resource, geteuid, getrlimit};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::random_bytes;

/// The root's socket for ranks of its host.
#[derive(Debug)]
pub(super) struct Offers {
    listener: Socket,
    place: [u8; PART],
    expected: Mutex<Expected>,
}

#[derive(Debug, Default)]
struct Expected {
    /// Secrets given out.
    secrets: BTreeSet<[u8; PART]>,
    /// Connections that have sent nothing yet.
    undecided: VecDeque<OwnedFd>,
    /// Connections that have sent their secret.
    came: Vec<([u8; PART], OwnedFd)>,
}

/// The other socket for frames, and how far both sides have moved to it.
#[derive(Debug, Default)]
pub(super) struct Local {
    /// Offer made to the other side.
    pub offered: Option<(Arc<Offers>, Secret)>,
    /// True if an offer is accepted.
    pub wanted: bool,
    pub stream: Option<OwnedFd>,
    /// True if outgoing frames move there, from the next one on.
    pub due: bool,
    /// Unsent bytes of the last frame on TCP.
    pub farewell: Vec<u8>,
    /// The epoll that watches the sockets, and the number.
    watch: Option<(Arc<OwnedFd>, u64)>,
}

impl Local {
    /// Registers the TCP connection and this socket with `epoll` under this number.
    ///
    /// # Errors
    /// Returns an error if the system cannot watch them.
    pub fn watch(&mut self, tcp: &TcpStream, epoll: &Arc<OwnedFd>, number: u64) -> rustix::io::Result<()> {
        self.watch = Some((Arc::clone(epoll), number));
        self.watch_socket(tcp.as_fd())?;
        self.stream.as_ref().map_or(Ok(()), |local| self.watch_socket(local.as_fd()))
    }

    /// Registers one more socket.
    ///
    /// # Errors
    /// Returns an error if the system cannot watch it.
    pub fn watch_socket(&self, socket: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let events = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let Some((epoll, number)) = &self.watch else { return Ok(()) };
        epoll::add(epoll, socket, epoll::EventData::new_u64(*number), events)
    }

    /// Removes the registration.
    pub fn unwatch(&mut self, tcp: &TcpStream) {
        if let Some((epoll, _)) = self.watch.take() {
            // It cannot fail for sockets that are there.
            let _ = epoll::delete(&epoll, tcp);
            let _ = self.stream.as_ref().map(|local| epoll::delete(&epoll, local));
        }
    }
}

/// One rank's secret.
pub(super) type Secret = [u8; PART];

impl Offers {
    /// Listens for this many ranks; `None` if the system does not allow it, or has too few
    /// descriptors for two connections of each rank.
    pub fn open(ranks: usize) -> Option<Self> {
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        if most < 3 * ranks as u64 + DESCRIPTORS_LEFT {
            return None;
        }
        let place = random_bytes().ok()?;
        let listener = socket().ok()?;
        listener.bind(&address(&place)?).ok()?;
        listener.listen(i32::try_from(ranks).ok()?.max(BACKLOG_LEAST)).ok()?;
        Some(Self { listener, place, expected: Mutex::default() })
    }

    /// Returns the offer for one rank, and its secret.
    pub fn make(&self) -> Option<(Vec<u8>, Secret)> {
        let secret = random_bytes().ok()?;
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).secrets.insert(secret);
        Some(([self.place, secret].concat(), secret))
    }

    /// Returns the connection of a rank that reported having connected.
    ///
    /// # Errors
    /// States that it has not.
    pub fn take(&self, secret: &Secret) -> Result<OwnedFd, String> {
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = expected.accept(&self.listener) {
            return Err(format!("it claims to be connected to our Unix-domain socket: {failure}"));
        }
        expected.hear();
        let place = expected.came.iter().position(|(said, _)| said == secret);
        let place = place.ok_or("it claims to be connected to our Unix-domain socket, but is not")?;
        Ok(expected.came.swap_remove(place).1)
    }
}

impl Expected {
    /// Accepts all waiting connections; returns the error if that fails.
    fn accept(&mut self, listener: &Socket) -> Option<rustix::io::Errno> {
        for _ in 0..ACCEPTED_MAX {
            match fork::opened(|| accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)) {
                Ok(stream) => {
                    if is_ours(&stream) {
                        self.undecided.push_back(stream);
                    }
                }
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
                Err(rustix::io::Errno::AGAIN) => return None,
                Err(error) => return Some(error),
            }
            if self.undecided.len() > UNDECIDED_MAX {
                self.undecided.pop_front();
            }
        }
        None
    }

    /// Reads the secrets of connections. One that has connected may not have sent its own yet, if
    /// another's message triggered this call.
    fn hear(&mut self) {
        for stream in std::mem::take(&mut self.undecided) {
            let mut said = Secret::default();
            match recv(&stream, &mut said, RecvFlags::empty()) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => self.undecided.push_back(stream),
                // Each counts once.
                Ok((PART, _)) if self.secrets.remove(&said) => self.came.push((said, stream)),
                _ => {}
            }
        }
    }
}

/// Connects to the root's socket and sends the secret; `None` if that is not possible.
pub(super) fn accept_offer(offer: &[u8]) -> Option<OwnedFd> {
    let (place, secret) = offer.split_first_chunk::<PART>()?;
    let socket = socket().ok()?;
    // It never waits: where the queue is full it fails.
    socket.connect(&address(place)?).ok()?;
    let stream = OwnedFd::from(socket);
    let told = is_ours(&stream) && send(&stream, secret, SendFlags::NOSIGNAL) == Ok(PART);
    told.then_some(stream)
}

/// Creates a non-blocking socket.
fn socket() -> io::Result<Socket> {
    fork::opened(|| Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None))
}

/// Returns true if the process at the other end belonged to this user when it connected or began to
/// listen.
fn is_ours(stream: &OwnedFd) -> bool {
    socket_peercred(stream.as_fd()).is_ok_and(|peer| peer.uid == geteuid())
}

/// Returns an abstract address, which is in no folder and disappears with the socket.
fn address(place: &[u8; PART]) -> Option<SockAddr> {
    let digits: String = place.iter().map(|byte| format!("{byte:02x}")).collect();
    SockAddr::unix(format!("\0probe_sync-{digits}")).ok()
}

/// Sequence numbers of `Local` frames.
pub(super) const OFFER: u64 = 0;
pub(super) const MOVED: u64 = 1;

/// Longest payload of a `Local` frame, bytes.
pub(super) const LOCAL_MAX: usize = 2 * PART;

/// Length of the place and of the secret, bytes.
const PART: usize = 16;

/// Descriptors that a root reserves for other uses.
const DESCRIPTORS_LEFT: u64 = 256;

/// Smallest backlog of waiting connections: ranks connect at the same time.
const BACKLOG_LEAST: i32 = 128;

/// Most processes of this user that may have connected without sending anything.
const UNDECIDED_MAX: usize = 1024;

/// Most connections accepted in search of one: more than any system queues.
const ACCEPTED_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_in_any_order_and_foreign_connections_do_not_count() {
        let offers = Offers::open(2).expect("this system has them");
        let (first, first_secret) = offers.make().expect("random bytes");
        let (second, second_secret) = offers.make().expect("random bytes");
        // Foreign connections that say nothing, or something else, before and between.
        let silent = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        silent.connect(&address(&offers.place).expect("a name")).expect("it listens");
        let mut guessed = first.clone();
        guessed[PART] ^= 1;
        let wrong = accept_offer(&guessed).expect("it is let wait");
        assert!(offers.take(&second_secret).is_err(), "nobody has come");
        // One that another's word finds between its two steps.
        let slow = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        slow.connect(&address(&offers.place).expect("a name")).expect("it listens");
        let (_, slow_secret) = offers.make().expect("random bytes");
        assert!(offers.take(&slow_secret).is_err(), "it has said nothing");
        assert_eq!(send(&slow, &slow_secret, SendFlags::NOSIGNAL), Ok(PART));
        offers.take(&slow_secret).expect("it has come");
        let own = [accept_offer(&second).expect("its place"), accept_offer(&first).expect("its place")];
        for (secret, own) in [(first_secret, &own[1]), (second_secret, &own[0])] {
            let stream = offers.take(&secret).expect("it has come");
            assert_eq!(send(own, b"x", SendFlags::NOSIGNAL), Ok(1));
            assert_eq!(recv(&stream, &mut [0; 2], RecvFlags::empty()).map(|(count, _)| count), Ok(1));
        }
        drop((wrong, offers));
        assert!(accept_offer(&first).is_none(), "nobody listens any more");
        assert!(accept_offer(b"short").is_none());
    }
}

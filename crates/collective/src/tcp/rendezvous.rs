//! How the ranks find each other: every rank but the root connects to one known address and says who it is.
//!
//! Place in the flow: start-up of the TCP backend. The greeting is 32 bytes, little-endian: magic, version, rank, size,
//! job key; the answer is 16 bytes: magic, version, verdict. Whatever does not greet like that (a port scanner, a rank of
//! another job) is refused and forgotten; it can neither break nor delay the rendezvous, because the root waits for all
//! newcomers at once and gives each a bounded time.
//! What it does not do: authenticate. The job key tells runs apart; it is no secret.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use socket2::{Domain, Protocol, Socket, Type};

use super::connection::{Connection, poll_sockets};
use super::job_key::JobKey;
use crate::{Deadline, Error, ROOT, Rank, Wait};

/// Listens on `address` (`ip:port`; port 0 lets the system choose), for [`super::Tcp::host`].
///
/// # Errors
/// [`Error::Setup`] names the address and says what to do.
pub fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    let listen = || -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // A run may follow another at once: connections of the last one that linger must not hold the port.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    listen().map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "another program uses it; end that program or choose another port (--port or MASTER_PORT, 0 for any)"
            }
            io::ErrorKind::AddrNotAvailable => "no interface of this machine has that address",
            io::ErrorKind::PermissionDenied => "ports below 1024 need privileges; choose a higher one",
            _ => "choose another address or port",
        };
        Error::Setup { what: format!("cannot listen on {address}"), reason: format!("{error}; {advice}") }
    })
}

/// The root's side: connections to ranks 1 and up, in order, and the address that they reached the root by.
pub(super) fn host(
    listener: &TcpListener,
    size: usize,
    job: JobKey,
    deadline: &Deadline,
) -> Result<(Vec<Connection>, IpAddr), Error> {
    let mut wait = Wait::begin(OPERATION, deadline);
    let setup = |error: io::Error| Error::Setup { what: "waiting for ranks".to_owned(), reason: error.to_string() };
    listener.set_nonblocking(true).map_err(setup)?;
    let mut local_ip = listener.local_addr().map_err(setup)?.ip();
    let mut joined: Vec<Option<Connection>> = (0..size).map(|_| None).collect();
    let mut newcomers: Vec<Newcomer> = Vec::new();
    let missing = |joined: &[Option<Connection>]| (1..size).filter(|&rank| joined[rank].is_none()).collect::<Vec<_>>();
    while !missing(&joined).is_empty() {
        let Some(slice) = wait.slice() else { return Err(wait.late(missing(&joined))) };
        let mut sockets = vec![(listener.as_fd(), PollFlags::IN)];
        sockets.extend(newcomers.iter().map(|newcomer| (newcomer.stream.as_fd(), PollFlags::IN)));
        let ready = poll_sockets(&sockets, slice, OPERATION)?;
        let mut undecided = Vec::with_capacity(newcomers.len());
        for (mut newcomer, ready) in newcomers.into_iter().zip(&ready[1..]) {
            let greeting = if *ready { newcomer.read() } else { newcomer.time_left() };
            match greeting {
                Greeting::Unfinished => undecided.push(newcomer),
                Greeting::Foreign => tracing::debug!(from = ?newcomer.from, "refused a connection that is not ours"),
                Greeting::Said(hello) => {
                    let from = newcomer.from;
                    match newcomer.decide(&hello, size, job, &joined) {
                        Ok(connection) => {
                            local_ip = connection.stream().local_addr().map_or(local_ip, |address| address.ip());
                            joined[hello.rank as usize] = Some(connection);
                        }
                        Err(verdict) => tracing::warn!(?from, ?hello, ?verdict, "refused a rank"),
                    }
                }
            }
        }
        newcomers = undecided;
        if ready[0] {
            accept(listener, &mut newcomers, size)?;
        }
    }
    Ok((joined.into_iter().flatten().collect(), local_ip.to_canonical()))
}

/// Any other rank's side: the connection to the root, and this machine's address on it.
pub(super) fn join(
    address: &str,
    rank: Rank,
    size: usize,
    job: JobKey,
    deadline: &Deadline,
) -> Result<(Connection, IpAddr), Error> {
    if rank == ROOT || rank >= size {
        let what = format!("joining as rank {rank} of {size}");
        return Err(Error::Setup { what, reason: format!("ranks that join are 1 to {}", size.saturating_sub(1)) });
    }
    let hello = Hello { version: VERSION, rank: rank as u32, size: size as u64, job: job.0 };
    let mut wait = Wait::begin(OPERATION, deadline);
    let mut pause = RETRY_FIRST;
    loop {
        let failure = match attempt(address, &hello, &mut wait) {
            Ok(stream) => {
                let local = stream.local_addr().map(|local| local.ip().to_canonical());
                let local = local.map_err(|error| unreachable(address, &wait, &error.to_string()))?;
                return Ok((Connection::new(stream, ROOT), local));
            }
            Err(Attempt::Refused(reason)) => {
                return Err(Error::Setup { what: format!("rank 0 at {address} refused rank {rank}"), reason });
            }
            Err(Attempt::Failed(error)) => error,
        };
        let Some(slice) = wait.slice() else { return Err(unreachable(address, &wait, &failure)) };
        std::thread::sleep(slice.min(pause));
        pause = (pause * 2).min(RETRY_LAST);
    }
}

/// What a rank says when it connects.
#[derive(Debug)]
struct Hello {
    version: u32,
    rank: u32,
    size: u64,
    job: u64,
}

impl Hello {
    fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.rank.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.job.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HELLO]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (version, rest) = rest.split_first_chunk()?;
        let (rank, rest) = rest.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (job, _) = rest.split_first_chunk()?;
        (*magic == MAGIC).then(|| Self {
            version: u32::from_le_bytes(*version),
            rank: u32::from_le_bytes(*rank),
            size: u64::from_le_bytes(*size),
            job: u64::from_le_bytes(*job),
        })
    }
}

/// The root's answer to a greeting.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Welcome = 0,
    OtherVersion = 1,
    OtherJob = 2,
    OtherSize = 3,
    NoSuchRank = 4,
    Duplicate = 5,
}

impl Verdict {
    const ALL: [Self; 6] =
        [Self::Welcome, Self::OtherVersion, Self::OtherJob, Self::OtherSize, Self::NoSuchRank, Self::Duplicate];

    fn of(hello: &Hello, size: usize, job: JobKey, joined: &[Option<Connection>]) -> Self {
        match hello {
            hello if hello.version != VERSION => Self::OtherVersion,
            hello if hello.job != job.0 => Self::OtherJob,
            hello if hello.size != size as u64 => Self::OtherSize,
            hello if hello.rank as usize == ROOT || hello.rank as usize >= size => Self::NoSuchRank,
            hello if joined[hello.rank as usize].is_some() => Self::Duplicate,
            _ => Self::Welcome,
        }
    }

    fn explain(self) -> &'static str {
        match self {
            Self::Welcome => "welcome",
            Self::OtherVersion => "its program is of another version; start the same build everywhere",
            Self::OtherJob => "it belongs to another job; choose a port of your own",
            Self::OtherSize => "it expects another number of ranks; WORLD_SIZE must be equal everywhere",
            Self::NoSuchRank => "its job has no such rank",
            Self::Duplicate => "that rank has joined already; RANK must differ everywhere",
        }
    }

    fn encode(self) -> [u8; ANSWER] {
        let mut bytes = [0; ANSWER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self as u32).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; ANSWER]) -> Option<Self> {
        let number = u32::from_le_bytes(*bytes.last_chunk::<4>()?);
        Self::ALL.into_iter().find(|verdict| bytes.starts_with(&MAGIC) && *verdict as u32 == number)
    }
}

/// A connection whose greeting is not complete.
struct Newcomer {
    stream: TcpStream,
    from: SocketAddr,
    bytes: [u8; HELLO],
    filled: usize,
    since: Instant,
}

enum Greeting {
    Unfinished,
    Foreign,
    Said(Hello),
}

impl Newcomer {
    fn read(&mut self) -> Greeting {
        match self.stream.read(&mut self.bytes[self.filled..]) {
            Ok(0) => return Greeting::Foreign,
            Ok(count) => self.filled += count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return Greeting::Foreign,
        }
        if self.filled < HELLO {
            return self.time_left();
        }
        Hello::decode(&self.bytes).map_or(Greeting::Foreign, Greeting::Said)
    }

    fn time_left(&self) -> Greeting {
        if self.since.elapsed() < GREETING_TIME { Greeting::Unfinished } else { Greeting::Foreign }
    }

    /// Answers the greeting; the 16 bytes always fit the empty socket.
    fn decide(
        mut self,
        hello: &Hello,
        size: usize,
        job: JobKey,
        joined: &[Option<Connection>],
    ) -> Result<Connection, Verdict> {
        let verdict = Verdict::of(hello, size, job, joined);
        let answered = self.stream.write_all(&verdict.encode());
        match verdict {
            // A rank that hung up before the answer tries again, so its place stays free.
            Verdict::Welcome if answered.is_ok() => Ok(Connection::new(self.stream, hello.rank as usize)),
            other => Err(other),
        }
    }
}

fn accept(listener: &TcpListener, newcomers: &mut Vec<Newcomer>, size: usize) -> Result<(), Error> {
    for _ in 0..ACCEPT_BURST {
        let (stream, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if matches!(error.raw_os_error(), Some(code) if out_of_descriptors(code)) => {
                let reason = format!("{error}; raise the limit of open files (ulimit -n) above {}", size + FOREIGN_MAX);
                return Err(Error::Setup { what: "accepting ranks".to_owned(), reason });
            }
            // Nothing left, or a connection that ended before it was accepted.
            Err(_) => break,
        };
        if stream.set_nonblocking(true).is_err() || stream.set_nodelay(true).is_err() {
            continue;
        }
        if newcomers.len() >= size + FOREIGN_MAX {
            newcomers.remove(0);
        }
        newcomers.push(Newcomer { stream, from, bytes: [0; HELLO], filled: 0, since: Instant::now() });
    }
    Ok(())
}

fn out_of_descriptors(code: i32) -> bool {
    [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].iter().any(|errno| errno.raw_os_error() == code)
}

/// Why an attempt to join did not succeed.
enum Attempt {
    /// The root answered no: trying again will not help.
    Refused(String),
    /// The root may not have started yet.
    Failed(String),
}

fn attempt(address: &str, hello: &Hello, wait: &mut Wait<'_>) -> Result<TcpStream, Attempt> {
    let failed = |error: &dyn ToString| Attempt::Failed(error.to_string());
    let mut last = Attempt::Failed("the name has no address".to_owned());
    for target in address.to_socket_addrs().map_err(|error| failed(&error))? {
        match TcpStream::connect_timeout(&target, CONNECT_TIME) {
            // A port of this machine that nobody listens on can be connected to itself by chance.
            Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {
                last = Attempt::Failed("nobody listens yet".to_owned());
            }
            Ok(stream) => return greet(stream, hello, wait),
            Err(error) => last = failed(&error),
        }
    }
    Err(last)
}

fn greet(mut stream: TcpStream, hello: &Hello, wait: &mut Wait<'_>) -> Result<TcpStream, Attempt> {
    let failed = |error: io::Error| Attempt::Failed(error.to_string());
    stream.set_nodelay(true).map_err(failed)?;
    stream.write_all(&hello.encode()).map_err(failed)?;
    stream.set_nonblocking(true).map_err(failed)?;
    let (mut answer, mut filled) = ([0; ANSWER], 0);
    while filled < ANSWER {
        let Some(slice) = wait.slice() else {
            return Err(Attempt::Failed("connected, but rank 0 never answered".to_owned()));
        };
        let socket = [(stream.as_fd(), PollFlags::IN)];
        poll_sockets(&socket, slice, OPERATION).map_err(|error| Attempt::Failed(error.to_string()))?;
        match stream.read(&mut answer[filled..]) {
            Ok(0) => return Err(Attempt::Failed("the other side hung up without an answer".to_owned())),
            Ok(count) => filled += count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    match Verdict::decode(&answer) {
        Some(Verdict::Welcome) => Ok(stream),
        Some(verdict) => Err(Attempt::Refused(verdict.explain().to_owned())),
        None => Err(Attempt::Refused("another program answers there; choose a port of your own".to_owned())),
    }
}

fn unreachable(address: &str, wait: &Wait<'_>, failure: &str) -> Error {
    let what = format!("cannot reach rank 0 at {address} within {:.1?}", wait.elapsed());
    let advice = "is rank 0 running, and are MASTER_ADDR and MASTER_PORT right?";
    Error::Setup { what, reason: format!("{failure}; {advice}") }
}

const OPERATION: &str = "rendezvous";
const MAGIC: [u8; 8] = *b"prbsync\x01";
const VERSION: u32 = 1;
const HELLO: usize = 32;
const ANSWER: usize = 16;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Connections accepted between two looks at the others.
const ACCEPT_BURST: usize = 64;

/// Newcomers beyond the number of ranks that may be undecided at one time; then the oldest is dropped.
const FOREIGN_MAX: usize = 64;

/// How long a newcomer has for its greeting.
const GREETING_TIME: Duration = Duration::from_secs(5);

/// The longest a single attempt to connect may take.
const CONNECT_TIME: Duration = Duration::from_secs(1);

/// Pauses between attempts to connect, doubled each time.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_LAST: Duration = Duration::from_millis(200);

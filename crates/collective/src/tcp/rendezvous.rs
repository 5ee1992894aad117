//! How the ranks find each other: the root waits at one known address until every rank has come and has proven that it is of the run.
//!
//! Place in the flow: start-up of the TCP backend, the root's side; `joining` is the others', and `greeting` what is said. Whatever
//! does not greet like that (a port scanner, a rank of another job, somebody without the key) is refused and forgotten; it can neither
//! take a rank's place nor delay it, because the root waits for all newcomers at once and gives each a bounded time. When there are too
//! many, those go first whose address has sent the most.
//!
//! What it does not do: keep out whoever has the key, or can guess what it was made of.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use blake3::Hash;
use rustix::event::PollFlags;
use socket2::{Domain, Protocol, Socket, Type};

use super::connection::{Connection, poll_sockets};
use super::greeting::{HELLO, Hello, NONCE, PROOF, VERSION, Verdict, version_of};
use super::job_key::JobKey;
use crate::{Deadline, Error, Rank, Wait, random_bytes};

/// Listens on `address` (`ip:port`; port 0 lets the system choose), for [`super::Tcp::host`]. On `[::]` IPv4 connections are taken too.
///
/// # Errors
/// [`Error::Setup`] names the address and says what to do.
pub fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    listen(address).map_err(|error| cannot_listen(address, &error))
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program uses it; end that program or choose another port (--port or MASTER_PORT, 0 for any)"
        }
        io::ErrorKind::AddrNotAvailable => "no interface of this machine has that address",
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges; choose a higher one",
        _ => "choose another address or port",
    };
    Error::Setup { what: format!("cannot listen on {address}"), reason: format!("{error}; {advice}") }
}

/// Listens on all addresses of this machine, whatever its own name leads to (127.0.1.1 on Debian).
///
/// # Errors
/// As [`bind`].
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
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    // A run may follow another at once: connections of the last one that linger must not hold the port.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
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
    let listening = listener.local_addr().map_err(setup)?.ip();
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
            let progress = if *ready { newcomer.advance(size, job, &joined)? } else { newcomer.time_left() };
            match progress {
                Progress::Undecided => undecided.push(newcomer),
                Progress::Gone(why) => tracing::debug!(from = ?newcomer.from, why, "refused a connection"),
                Progress::Refused(rank, verdict) => {
                    tracing::warn!(from = ?newcomer.from, rank, ?verdict, "refused a rank");
                }
                Progress::Joined(rank) => joined[rank] = Some(Connection::new(newcomer.stream, rank)),
            }
        }
        newcomers = undecided;
        if ready[0] {
            accept(listener, &mut newcomers, size)?;
        }
    }
    let joined: Vec<Connection> = joined.into_iter().flatten().collect();
    let local_ip = reached_by(&joined).unwrap_or(listening);
    Ok((joined, local_ip.to_canonical()))
}

/// The address by which the first rank that is not on this host has reached the root.
fn reached_by(joined: &[Connection]) -> Option<IpAddr> {
    let addresses = || joined.iter().filter_map(|peer| Some(peer.stream().local_addr().ok()?.ip().to_canonical()));
    addresses().find(|address| !address.is_loopback()).or_else(|| addresses().next())
}

/// A connection that has not proven yet that it is a rank.
struct Newcomer {
    stream: TcpStream,
    from: SocketAddr,
    stage: Stage,
    bytes: [u8; HELLO],
    filled: usize,
    since: Instant,
}

/// What a newcomer is to say next.
enum Stage {
    Greeting,
    /// The rank that it says it is, and what both sides prove.
    Proof(Rank, [Hash; 2]),
}

enum Progress {
    Undecided,
    Gone(&'static str),
    Refused(u32, Verdict),
    Joined(Rank),
}

impl Newcomer {
    /// Reads what is there, and answers where an answer is due.
    fn advance(&mut self, size: usize, job: JobKey, joined: &[Option<Connection>]) -> Result<Progress, Error> {
        let wanted = if matches!(self.stage, Stage::Greeting) { HELLO } else { PROOF };
        match self.stream.read(&mut self.bytes[self.filled..wanted]) {
            Ok(0) => return Ok(Progress::Gone("it hung up")),
            Ok(count) => self.filled += count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return Ok(Progress::Gone("it broke off")),
        }
        match &self.stage {
            Stage::Greeting => self.greeted(size, job, joined),
            Stage::Proof(rank, proofs) if self.filled == PROOF => {
                let (rank, [theirs, own]) = (*rank, *proofs);
                Ok(self.proven(rank, theirs, &own, joined[rank].is_some()))
            }
            Stage::Proof(..) => Ok(self.time_left()),
        }
    }

    /// Judges a greeting and asks for the proof.
    fn greeted(&mut self, size: usize, job: JobKey, joined: &[Option<Connection>]) -> Result<Progress, Error> {
        match version_of(&self.bytes[..self.filled]) {
            Some(Err(_)) => return Ok(Progress::Gone("it is foreign")),
            // Greetings of other versions have other lengths.
            Some(Ok(version)) if version != VERSION => {
                return Ok(self.refuse(u32::MAX, Verdict::OtherVersion));
            }
            _ if self.filled < HELLO => return Ok(self.time_left()),
            _ => {}
        }
        let Some(hello) = Hello::decode(&self.bytes) else { return Ok(Progress::Gone("it is foreign")) };
        match Verdict::of(&hello, size, |rank| joined[rank].is_some()) {
            Verdict::Welcome => {}
            verdict => return Ok(self.refuse(hello.rank, verdict)),
        }
        let nonce = random_bytes()?;
        if self.stream.write_all(&Verdict::Welcome.encode(&nonce)).is_err() {
            return Ok(Progress::Gone("it hung up"));
        }
        self.stage = Stage::Proof(hello.rank as usize, hello.proofs(job, &nonce));
        self.filled = 0;
        Ok(self.time_left())
    }

    /// Judges a proof.
    fn proven(&mut self, rank: Rank, expected: Hash, own: &Hash, taken: bool) -> Progress {
        let mut proof = [0; PROOF];
        proof.copy_from_slice(&self.bytes[..PROOF]);
        if expected != proof {
            return self.refuse(rank as u32, Verdict::OtherJob);
        }
        if taken {
            return self.refuse(rank as u32, Verdict::Duplicate);
        }
        match self.stream.write_all(&Verdict::Welcome.encode(own.as_bytes())) {
            Ok(()) => Progress::Joined(rank),
            // It tries again, so its place stays free.
            Err(_) => Progress::Gone("it hung up"),
        }
    }

    /// Says no; a short answer always fits the empty buffer.
    fn refuse(&mut self, rank: u32, verdict: Verdict) -> Progress {
        let _nobody_may_listen = self.stream.write_all(&verdict.encode(&[0; NONCE]));
        Progress::Refused(rank, verdict)
    }

    fn time_left(&self) -> Progress {
        if self.since.elapsed() < GREETING_TIME { Progress::Undecided } else { Progress::Gone("it was silent") }
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
            newcomers.remove(dispensable(newcomers));
        }
        let (stage, since) = (Stage::Greeting, Instant::now());
        newcomers.push(Newcomer { stream, from, stage, bytes: [0; HELLO], filled: 0, since });
    }
    Ok(())
}

/// The oldest newcomer of the address that has sent the most: who opens many connections loses his own.
fn dispensable(newcomers: &[Newcomer]) -> usize {
    let mut per_address: HashMap<IpAddr, usize> = HashMap::new();
    newcomers.iter().for_each(|newcomer| *per_address.entry(newcomer.from.ip()).or_default() += 1);
    let most = per_address.values().copied().max().unwrap_or(0);
    newcomers.iter().position(|newcomer| per_address[&newcomer.from.ip()] == most).unwrap_or(0)
}

fn out_of_descriptors(code: i32) -> bool {
    [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].iter().any(|errno| errno.raw_os_error() == code)
}

const OPERATION: &str = "rendezvous";

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Connections accepted between two looks at the others.
const ACCEPT_BURST: usize = 64;

/// Newcomers beyond the number of ranks that may be undecided at one time.
const FOREIGN_MAX: usize = 64;

/// How long a newcomer has for its greeting and its proof.
const GREETING_TIME: Duration = Duration::from_secs(5);

//! Connections that have not yet proven that they belong to ranks of the run.
//!
//! This is the root's side of the greeting, for `rendezvous` at the start and for `door` while the
//! group is in progress. A peer that does not greet like a rank (a port scanner, a rank of another
//! job, a process without the key) is rejected and forgotten. It can neither take a rank's place
//! nor delay it, because all newcomers are waited for at once and each has bounded time. If there
//! are too many, those from the address with the most connections are dropped first.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Instant;

use blake3::Hash;
use probe_sync_sys::fork;
use probe_sync_sys::tcp_peer::{self, Peer};
use rustix::event::PollFlags;

use super::connection::Connection;
use super::frame::{Seal, Seals};
use super::greeting::{Errand, HELLO, Hello, NONCE, PROOF, Proofs, VERSION, Verdict, version_of};
use super::job_key::JobKey;
use super::options::{FanOut, TcpOptions};
use crate::labels::exchanged;
use crate::{Error, ROOT, Rank, random_bytes};

/// Connections to one listener that have proven nothing yet.
pub(super) struct Newcomers {
    expected: Expected,
    /// Rank of this process, which connecting ranks expect.
    listener: Rank,
    undecided: Vec<Newcomer>,
    /// True if a process of another user was refused, which is logged once.
    saw_foreign: bool,
}

/// Parameters on which all ranks of the run agree.
#[derive(Copy, Clone, Debug)]
pub(super) struct Expected {
    pub size: usize,
    pub job: JobKey,
    /// Number of ranks for which a rank of the tree forwards; 0 in a star.
    pub fan_out: usize,
    pub options: TcpOptions,
    /// Rank whose label is exchanged with rank 0's.
    pub root: Rank,
}

impl Expected {
    pub fn new(size: usize, job: JobKey, options: TcpOptions) -> Self {
        Self { size, job, fan_out: options.ranks_below(size), options, root: ROOT }
    }

    /// Returns the parameters of a new group around `root`. It is small enough for a star, whose
    /// simplicity is worth more than what a tree saves.
    pub fn around(self, root: Rank) -> Self {
        let options = TcpOptions { fan_out: FanOut::Star, ..self.options };
        Self { fan_out: 0, options, root, ..self }
    }
}

/// A rank of the run that waits for the answer to its proof.
pub(super) struct Proven {
    stream: TcpStream,
    from: SocketAddr,
    /// Rank that it claims to be.
    pub rank: Rank,
    /// Purpose of its connection.
    pub errand: Errand,
    /// Port at which it listens for its children.
    pub port: u16,
    /// Number of its process.
    pub process: u64,
    /// Run of an earlier process of this rank; 0 for none.
    pub run: u64,
    proofs: Proofs,
    root: Rank,
}

/// A connection that has not yet proven to be a rank.
struct Newcomer {
    stream: TcpStream,
    from: SocketAddr,
    stage: Stage,
    bytes: [u8; HELLO],
    filled: usize,
    /// End of its time.
    until: Instant,
}

/// Next expected message of a newcomer.
enum Stage {
    Greeting,
    /// Its claim, and the proofs of both sides.
    Proof(Claim, Proofs),
}

enum Progress {
    Undecided,
    Gone(&'static str),
    Refused(u32, Verdict),
    Proven(Claim, Proofs),
}

/// Claimed identity of a newcomer.
#[derive(Copy, Clone)]
struct Claim {
    rank: Rank,
    errand: Errand,
    port: u16,
    process: u64,
    run: u64,
}

impl Newcomers {
    /// Creates an empty list for the listener of the group's root.
    pub fn new(expected: Expected) -> Self {
        Self::at(expected.root, expected)
    }

    /// Creates an empty list for this rank's listener.
    pub fn at(listener: Rank, expected: Expected) -> Self {
        Self { expected, listener, undecided: Vec::new(), saw_foreign: false }
    }

    /// Returns true if there are no newcomers with a time limit.
    pub fn is_empty(&self) -> bool {
        self.undecided.is_empty()
    }

    /// Returns the sockets to poll, in the order of [`Self::advance`].
    pub fn sockets(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        self.undecided.iter().map(|newcomer| (newcomer.stream.as_fd(), PollFlags::IN))
    }

    /// Reads from newcomers that are `ready` and drops those whose time is over; returns those that
    /// have proven to be ranks. Ranks that are `taken` are refused at once.
    ///
    /// # Errors
    /// Returns an error if the system has no random bytes.
    pub fn advance(&mut self, ready: &[bool], taken: impl Fn(Rank) -> bool) -> Result<Vec<Proven>, Error> {
        let mut proven = Vec::new();
        let undecided = Vec::with_capacity(self.undecided.len());
        for (mut newcomer, ready) in std::mem::replace(&mut self.undecided, undecided).into_iter().zip(ready) {
            let progress =
                if *ready { newcomer.advance((self.listener, self.expected), &taken)? } else { newcomer.time_left() };
            let from = newcomer.from;
            match progress {
                Progress::Undecided => self.undecided.push(newcomer),
                Progress::Gone(why) => tracing::debug!(?from, why, "refused a connection"),
                Progress::Refused(label, verdict) => {
                    let rank = exchanged(self.expected.root, label as Rank);
                    tracing::warn!(?from, rank, ?verdict, "refused a rank");
                }
                Progress::Proven(Claim { rank, errand, port, process, run }, proofs) => {
                    let root = self.expected.root;
                    if let Some(peer) = self.untrusted(&newcomer.stream) {
                        self.refuse_process(peer, from, exchanged(root, rank));
                        continue;
                    }
                    proven.push(Proven {
                        stream: newcomer.stream,
                        from,
                        rank,
                        errand,
                        port,
                        process,
                        run,
                        proofs,
                        root,
                    });
                }
            }
        }
        Ok(proven)
    }

    /// Accepts the connections waiting at the listener.
    ///
    /// # Errors
    /// Returns an error if this process has too many open files.
    pub fn accept(&mut self, listener: &TcpListener) -> Result<(), Error> {
        let most = self.expected.size + FOREIGN_MAX;
        for _ in 0..ACCEPT_BURST {
            let stream = match fork::opened(|| listener.accept().map(|(stream, _)| stream)) {
                Ok(accepted) => accepted,
                Err(error) if matches!(error.raw_os_error(), Some(code) if out_of_descriptors(code)) => {
                    let reason = format!("{error}; raise the limit on open files (ulimit -n) above {most}");
                    return Err(Error::Setup { what: "accepting ranks".to_owned(), reason });
                }
                // Nothing left, or a connection that ended before it was accepted.
                Err(_) => break,
            };
            let Ok(from) = stream.peer_addr() else { continue };
            if stream.set_nonblocking(true).is_err() || stream.set_nodelay(true).is_err() {
                continue;
            }
            if self.undecided.len() >= most {
                self.undecided.remove(self.dispensable());
            }
            let (stage, until) = (Stage::Greeting, Instant::now() + self.expected.options.greeting);
            self.undecided.push(Newcomer { stream, from, stage, bytes: [0; HELLO], filled: 0, until });
        }
        Ok(())
    }

    fn untrusted(&self, stream: &TcpStream) -> Option<Peer> {
        if self.expected.options.same_user { untrusted_peer(stream) } else { None }
    }

    /// Logs once that another user claims a place, since such claims are repeated.
    fn refuse_process(&mut self, peer: Peer, from: SocketAddr, rank: Rank) {
        if matches!(peer, Peer::User(_)) && !std::mem::replace(&mut self.saw_foreign, true) {
            tracing::warn!(?from, rank, "rejected a rank: another user of this host claims its place");
        } else {
            tracing::debug!(?from, rank, ?peer, "refused a rank");
        }
    }

    /// Returns the oldest newcomer of the address with the most connections, so that an address
    /// that opens many loses its own.
    fn dispensable(&self) -> usize {
        let mut per_address: HashMap<IpAddr, usize> = HashMap::new();
        self.undecided.iter().for_each(|newcomer| *per_address.entry(newcomer.from.ip()).or_default() += 1);
        let most = per_address.values().copied().max().unwrap_or(0);
        self.undecided.iter().position(|newcomer| per_address[&newcomer.from.ip()] == most).unwrap_or(0)
    }
}

/// Returns the other end of a connection, unless it is a process of this user, of root or of
/// another host. An end that was closed is unknown, because everything that a rank sends can be
/// sent before.
pub(super) fn untrusted_peer(stream: &TcpStream) -> Option<Peer> {
    let (Ok(peer), Ok(own)) = (stream.peer_addr(), stream.local_addr()) else { return Some(Peer::Gone) };
    let own_user = rustix::process::geteuid().as_raw();
    Some(tcp_peer::at(peer, own)).filter(|peer| match peer {
        Peer::User(user) => *user != 0 && *user != own_user,
        Peer::Gone => true,
        Peer::Elsewhere => false,
    })
}

impl Proven {
    /// Gives it its place, with the root's proof. `None` if it has disconnected: it tries again, so
    /// its place stays free.
    pub fn welcome(mut self, verdict: Verdict) -> Option<Connection> {
        let [by_rank, by_root] = self.proofs.frames.map(Seal::new);
        let seals = Seals { own: by_root, peers: by_rank };
        self.tell(verdict).ok().map(|()| Connection::new(self.stream, self.rank, seals).of_process(self.process))
    }

    /// Lets it send its file; returns its connection and the key of messages on it. `None` if it
    /// has disconnected.
    pub fn bring(mut self) -> Option<(TcpStream, Hash)> {
        self.tell(Verdict::Welcome).ok().map(|()| (self.stream, self.proofs.seal))
    }

    /// Tells it that a group is running here, which is all it wants to know.
    pub fn show(mut self) {
        let _nobody_may_listen = self.tell(Verdict::Back);
    }

    fn tell(&mut self, verdict: Verdict) -> io::Result<()> {
        self.stream.write_all(&verdict.encode(self.proofs.roots.as_bytes()))
    }

    /// Refuses it.
    pub fn refuse(mut self, verdict: Verdict) {
        let rank = exchanged(self.root, self.rank);
        // Nothing is wrong with a rank that comes again later.
        if verdict == Verdict::Later {
            tracing::debug!(from = ?self.from, rank, "too many ranks are sending files");
        } else {
            tracing::warn!(from = ?self.from, rank, ?verdict, "refused a rank");
        }
        let _nobody_may_listen = self.stream.write_all(&verdict.encode(&[0; NONCE]));
    }
}

impl Newcomer {
    /// Reads what is available, and answers if an answer is due.
    fn advance(&mut self, expected: (Rank, Expected), taken: &impl Fn(Rank) -> bool) -> Result<Progress, Error> {
        let wanted = if matches!(self.stage, Stage::Greeting) { HELLO } else { PROOF };
        match self.stream.read(&mut self.bytes[self.filled..wanted]) {
            Ok(0) => return Ok(Progress::Gone("it closed the connection")),
            Ok(count) => self.filled += count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return Ok(Progress::Gone("it disconnected")),
        }
        match &self.stage {
            Stage::Greeting => self.greeted(expected, taken),
            Stage::Proof(claim, proofs) if self.filled == PROOF => {
                let (claim, proofs) = (*claim, *proofs);
                Ok(self.proven(claim, proofs))
            }
            Stage::Proof(..) => Ok(self.time_left()),
        }
    }

    /// Judges a greeting and requests the proof.
    fn greeted(
        &mut self,
        (listener, expected): (Rank, Expected),
        taken: &impl Fn(Rank) -> bool,
    ) -> Result<Progress, Error> {
        match version_of(&self.bytes[..self.filled]) {
            Some(Err(_)) => return Ok(Progress::Gone("it does not belong to this job")),
            // Greetings of other versions have other lengths.
            Some(Ok(version)) if version != VERSION => {
                return Ok(self.refuse(u32::MAX, Verdict::OtherVersion));
            }
            _ if self.filled < HELLO => return Ok(self.time_left()),
            _ => {}
        }
        let Some(hello) = Hello::decode(&self.bytes) else {
            return Ok(Progress::Gone("it does not belong to this job"));
        };
        match Verdict::of(&hello, listener, expected.size, expected.fan_out, taken) {
            Verdict::Welcome => {}
            verdict => return Ok(self.refuse(hello.rank, verdict)),
        }
        let nonce = random_bytes()?;
        if self.stream.write_all(&Verdict::Welcome.encode(&nonce)).is_err() {
            return Ok(Progress::Gone("it closed the connection"));
        }
        let proofs = hello.proofs(expected.job, &nonce);
        let Hello { rank, errand, port, process, run, .. } = hello;
        self.stage = Stage::Proof(Claim { rank: rank as usize, errand, port: port as u16, process, run }, proofs);
        self.filled = 0;
        Ok(self.time_left())
    }

    /// Judges a proof.
    fn proven(&mut self, claim: Claim, proofs: Proofs) -> Progress {
        let mut proof = [0; PROOF];
        proof.copy_from_slice(&self.bytes[..PROOF]);
        if proofs.ranks == proof {
            Progress::Proven(claim, proofs)
        } else {
            self.refuse(claim.rank as u32, Verdict::OtherJob)
        }
    }

    /// Refuses it; a short answer always fits the empty buffer.
    fn refuse(&mut self, rank: u32, verdict: Verdict) -> Progress {
        let _nobody_may_listen = self.stream.write_all(&verdict.encode(&[0; NONCE]));
        Progress::Refused(rank, verdict)
    }

    fn time_left(&self) -> Progress {
        if Instant::now() < self.until { Progress::Undecided } else { Progress::Gone("it sent nothing") }
    }
}

fn out_of_descriptors(code: i32) -> bool {
    [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].iter().any(|errno| errno.raw_os_error() == code)
}

/// Most connections accepted between two checks of the others.
const ACCEPT_BURST: usize = 64;

/// Undecided newcomers allowed in addition to the number of ranks.
const FOREIGN_MAX: usize = 64;

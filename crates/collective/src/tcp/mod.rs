//! The TCP backend: a star of persistent connections around the root.
//!
//! Place in the flow: runs without MPI, `--local N` and torchrun-style launchers. One connection per rank, made once by
//! `rendezvous`, with proof that both ends are of the run; a gather is one frame per participant towards the root, a broadcast one frame from it.
//! Every wait sleeps in `poll` until a socket is ready, knows its deadline, and names who is late.
//! What it does not do: reconnect, encrypt, or relay through other ranks (the root serves all of them).

mod connection;
mod greeting;
mod job_key;
mod joining;
mod rendezvous;

pub use rendezvous::{bind, bind_everywhere};

#[cfg(feature = "suite")]
use std::net::TcpStream;
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsFd;

use rustix::event::PollFlags;

use crate::{Collective, Deadline, Error, Frames, ROOT, Rank, Wait, check_participants};
use connection::{Connection, Kind, poll_sockets};

pub use job_key::JobKey;

/// One rank of a star of connections.
#[derive(Debug)]
pub struct Tcp {
    rank: Rank,
    size: usize,
    local_ip: IpAddr,
    /// At the root: ranks 1 and up, in order. Elsewhere: the root alone.
    peers: Vec<Connection>,
    /// Operations so far; equal on all ranks.
    sequence: u64,
    scratch: Vec<u8>,
    failed: Option<String>,
}

impl Tcp {
    /// Rank 0: waits on `listener` until the `size - 1` others have joined. Foreign connections and duplicates are refused and
    /// otherwise ignored. The listener is closed afterwards.
    ///
    /// # Errors
    /// [`Error::Late`] names the ranks that did not join.
    pub fn host(listener: TcpListener, size: usize, job: JobKey, deadline: &Deadline) -> Result<Self, Error> {
        let (peers, local_ip) = rendezvous::host(&listener, size, job, deadline)?;
        drop(listener);
        Ok(Self::new(ROOT, size, local_ip, peers))
    }

    /// Any other rank: connects to the root at `address` (`host:port`), trying again until the root has started.
    ///
    /// # Errors
    /// [`Error::Setup`] when the root cannot be reached in time or refuses this rank; the text says which. [`Error::Late`] when the
    /// wait was interrupted.
    pub fn join(address: &str, rank: Rank, size: usize, job: JobKey, deadline: &Deadline) -> Result<Self, Error> {
        let (root, local_ip) = joining::join(address, rank, size, job, deadline)?;
        Ok(Self::new(rank, size, local_ip, vec![root]))
    }

    /// The address of this machine towards the root; at the root, the one that the others reached it by.
    pub fn local_ip(&self) -> IpAddr {
        self.local_ip
    }

    /// The connections, for tests that send what no rank would.
    #[cfg(feature = "suite")]
    #[doc(hidden)]
    pub fn into_streams(self) -> Vec<TcpStream> {
        self.peers.into_iter().filter_map(|peer| peer.stream().try_clone().ok()).collect()
    }

    fn new(rank: Rank, size: usize, local_ip: IpAddr, peers: Vec<Connection>) -> Self {
        Self { rank, size, local_ip, peers, sequence: 0, scratch: vec![0; SCRATCH], failed: None }
    }

    /// Runs one operation; afterwards the group is unusable if it failed. The root passes an abort on to all.
    fn operate(
        &mut self,
        operation: &'static str,
        run: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if let Some(reason) = &self.failed {
            return Err(Error::Backend { operation, reason: format!("the group had failed before: {reason}") });
        }
        self.sequence += 1;
        let result = run(self);
        if let Err(error) = &result {
            self.failed = Some(error.to_string());
            if let (Error::Aborted { rank, reason, .. }, ROOT) = (error, self.rank) {
                self.peers.iter_mut().for_each(|peer| peer.send_abort(*rank, reason));
            }
        }
        result
    }

    /// Waits until a frame of `kind` has come from each of the peers at the indices `pending`.
    fn receive_all(&mut self, kind: Kind, senders: Vec<usize>, mut wait: Wait<'_>) -> Result<(), Error> {
        // A frame that came together with the one before it has been read already: no socket will tell of it.
        let mut pending = Vec::with_capacity(senders.len());
        for peer in senders {
            if !self.peers[peer].has_frame(kind, self.sequence, wait.operation())? {
                pending.push(peer);
            }
        }
        while !pending.is_empty() {
            let Some(slice) = wait.slice() else {
                return Err(wait.late(pending.iter().map(|&peer| self.peers[peer].rank()).collect()));
            };
            let sockets: Vec<_> =
                pending.iter().map(|&peer| (self.peers[peer].stream().as_fd(), PollFlags::IN)).collect();
            let ready = poll_sockets(&sockets, slice, wait.operation())?;
            let mut still_pending = Vec::with_capacity(pending.len());
            for (peer, ready) in pending.into_iter().zip(ready) {
                let connection = &mut self.peers[peer];
                if !ready || !connection.receive(kind, self.sequence, wait.operation(), &mut self.scratch)? {
                    still_pending.push(peer);
                }
            }
            pending = still_pending;
        }
        Ok(())
    }

    /// Sends one frame to all peers. While a socket is full it is also watched for an abort or the peer's end.
    fn send_all(&mut self, kind: Kind, payload: &[u8], mut wait: Wait<'_>) -> Result<(), Error> {
        let operation = wait.operation();
        let bytes = connection::frame(kind, self.sequence, payload, operation)?;
        let mut pending: Vec<(usize, usize)> = (0..self.peers.len()).map(|peer| (peer, 0)).collect();
        loop {
            let mut still_pending = Vec::new();
            for (peer, mut sent) in pending {
                match self.peers[peer].send(&bytes, &mut sent, operation) {
                    Ok(true) => {}
                    Ok(false) => still_pending.push((peer, sent)),
                    Err(lost) => return Err(self.reason_before_end(peer, lost)),
                }
            }
            pending = still_pending;
            if pending.is_empty() {
                return Ok(());
            }
            let Some(slice) = wait.slice() else {
                return Err(wait.late(pending.iter().map(|&(peer, _)| self.peers[peer].rank()).collect()));
            };
            let sockets: Vec<_> = pending
                .iter()
                .map(|&(peer, _)| (self.peers[peer].stream().as_fd(), PollFlags::OUT | PollFlags::RDHUP))
                .collect();
            poll_sockets(&sockets, slice, operation)?;
            self.check_alive(&pending.iter().map(|&(peer, _)| peer).collect::<Vec<_>>(), operation)?;
        }
    }

    /// A peer that ended the job may have said why before its connection broke.
    fn reason_before_end(&mut self, peer: usize, lost: Error) -> Error {
        match self.peers[peer].receive(Kind::Abort, 0, "abort", &mut self.scratch) {
            Err(aborted @ Error::Aborted { .. }) => aborted,
            _ => lost,
        }
    }

    /// Finds peers that closed their end: they read no more, though the first write to them still succeeds.
    fn check_alive(&mut self, peers: &[usize], operation: &'static str) -> Result<(), Error> {
        let sockets: Vec<_> = peers.iter().map(|&peer| (self.peers[peer].stream().as_fd(), PollFlags::RDHUP)).collect();
        let ended = poll_sockets(&sockets, std::time::Duration::ZERO, operation)?;
        let Some(&peer) = peers.iter().zip(ended).find_map(|(peer, ended)| ended.then_some(peer)) else {
            return Ok(());
        };
        let reason = "the connection was closed".to_owned();
        let lost = Error::Lost { operation, rank: self.peers[peer].rank(), reason };
        Err(self.reason_before_end(peer, lost))
    }
}

impl Collective for Tcp {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn backend(&self) -> &'static str {
        "tcp"
    }

    fn gather(
        &mut self,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        check_participants(self.rank, self.size, participants)?;
        frames.clear();
        self.operate("gather", |group| {
            let wait = Wait::begin("gather", deadline);
            if group.rank != ROOT {
                return if participants[group.rank] { group.send_all(Kind::Gather, payload, wait) } else { Ok(()) };
            }
            let senders = (0..group.peers.len()).filter(|&peer| participants[group.peers[peer].rank()]);
            group.receive_all(Kind::Gather, senders.collect(), wait)?;
            frames.push(payload);
            for peer in &mut group.peers {
                if participants[peer.rank()] {
                    frames.push(peer.payload());
                    peer.consume();
                } else {
                    frames.push(&[]);
                }
            }
            Ok(())
        })
    }

    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        self.operate("broadcast", |group| {
            let wait = Wait::begin("broadcast", deadline);
            if group.rank == ROOT {
                group.check_alive(&(0..group.peers.len()).collect::<Vec<_>>(), "broadcast")?;
                return group.send_all(Kind::Broadcast, buffer, wait);
            }
            group.receive_all(Kind::Broadcast, vec![0], wait)?;
            buffer.clear();
            buffer.extend_from_slice(group.peers[0].payload());
            group.peers[0].consume();
            Ok(())
        })
    }

    fn abort(&mut self, reason: &str) {
        self.peers.iter_mut().for_each(|peer| peer.send_abort(self.rank, reason));
        self.failed.get_or_insert_with(|| format!("ended by this rank: {reason}"));
    }
}

/// Bytes read from a socket at once.
const SCRATCH: usize = 64 << 10;

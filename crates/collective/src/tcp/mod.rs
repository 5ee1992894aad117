//! The TCP backend: a star of persistent connections around the root.
//!
//! Place in the flow: runs without MPI, `--local N` and torchrun-style launchers. One connection per rank, made once by
//! `rendezvous`, with proof that both ends are of the run; a gather is one frame per participant towards the root, a broadcast one frame from it.
//! Every wait sleeps in `poll` until a socket is ready, knows its deadline, and names who is late.
//! Once the root goes on without lost ranks, one that is gone or late is left out, and a process started in its place may come back
//! through the `door`. There too, and on connections of their own, ranks bring files: `sending` to `receiving`.
//! What it does not do: encrypt, relay through other ranks (the root serves all of them), or go on without the root.

mod connection;
mod delivery;
mod door;
mod greeting;
mod job_key;
mod joining;
mod newcomers;
mod receiving;
mod rendezvous;
mod secret;
mod sending;
#[cfg(test)]
mod tests;
mod unique_id;

pub use rendezvous::{bind, bind_everywhere};

#[cfg(feature = "suite")]
use std::net::TcpStream;
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::{Attendance, Collective, Deadline, Error, FilePlaces, Frames, ROOT, Rank, Wait, check_participants};
use connection::{Connection, Kind, poll_sockets};
use door::Door;
use secret::Secret;

pub use job_key::JobKey;
pub use sending::FileSender;
pub use unique_id::{Meeting, UniqueId};

/// One rank of a star of connections.
#[derive(Debug)]
pub struct Tcp {
    rank: Rank,
    size: usize,
    local_ip: IpAddr,
    /// At the root: ranks 1 and up, in order; None for those that have left. Elsewhere: the root alone.
    peers: Vec<Option<Connection>>,
    /// Operations so far; equal on all ranks.
    sequence: u64,
    scratch: Vec<u8>,
    failed: Option<String>,
    way_back: WayBack,
    /// Who has left since it was last asked.
    left: Vec<(Rank, Error)>,
    /// Who asks to come back.
    asking: Vec<Connection>,
    /// At the root: where files go that ranks bring.
    files: Option<Arc<dyn FilePlaces>>,
}

/// How lost ranks come back.
#[derive(Debug)]
enum WayBack {
    /// They do not: the first that is lost ends the group. At the root with what a door is made of.
    Closed(Option<(TcpListener, JobKey)>),
    /// The group goes on without them, and they may.
    Open(Door),
    /// The group goes on without them, and they may not any more.
    Ended,
    /// This rank is such, and has not taken part yet; the root's notice, until it is asked for.
    Returning(Option<Secret>),
}

impl Tcp {
    /// Rank 0: waits on `listener` until the `size - 1` others have joined. Foreign connections and duplicates are refused and
    /// otherwise ignored.
    ///
    /// # Errors
    /// [`Error::Late`] names the ranks that did not join.
    pub fn host(listener: TcpListener, size: usize, job: JobKey, deadline: &Deadline) -> Result<Self, Error> {
        let (peers, local_ip) = rendezvous::host(&listener, size, job, deadline)?;
        Ok(Self::new(ROOT, size, local_ip, peers, WayBack::Closed(Some((listener, job)))))
    }

    /// Any other rank: connects to the root at `address` (`host:port`), trying again until the root has started.
    ///
    /// # Errors
    /// [`Error::Setup`] when the root cannot be reached in time or refuses this rank; the text says which. [`Error::Late`] when the
    /// wait was interrupted.
    pub fn join(address: &str, rank: Rank, size: usize, job: JobKey, deadline: &Deadline) -> Result<Self, Error> {
        Self::join_any(&[address.to_owned()], rank, size, job, deadline)
    }

    /// As [`Tcp::join`], where the root has several addresses and not all of them lead to it from here.
    ///
    /// # Errors
    /// As [`Tcp::join`].
    pub(crate) fn join_any(
        addresses: &[String],
        rank: Rank,
        size: usize,
        job: JobKey,
        deadline: &Deadline,
    ) -> Result<Self, Error> {
        let joining::Joining { root, local, back } = joining::join(addresses, rank, size, job, deadline)?;
        let mut group = Self::new(rank, size, local, vec![root], WayBack::Closed(None));
        if back {
            let wait = Wait::begin("coming back", deadline);
            group.way_back = WayBack::Returning(Some(Secret(group.receive_from_root(Kind::Back, 0, wait)?)));
        }
        Ok(group)
    }

    /// The address of this machine towards the root; at the root, the one that the others reached it by.
    pub fn local_ip(&self) -> IpAddr {
        self.local_ip
    }

    /// The connections, for tests that send what no rank would.
    #[cfg(feature = "suite")]
    #[doc(hidden)]
    pub fn into_streams(self) -> Vec<TcpStream> {
        self.peers.into_iter().flatten().filter_map(|peer| peer.stream().try_clone().ok()).collect()
    }

    fn new(rank: Rank, size: usize, local_ip: IpAddr, peers: Vec<Connection>, way_back: WayBack) -> Self {
        let (peers, scratch) = (peers.into_iter().map(Some).collect(), vec![0; SCRATCH]);
        let (left, asking) = (Vec::new(), Vec::new());
        Self { rank, size, local_ip, peers, sequence: 0, scratch, failed: None, way_back, left, asking, files: None }
    }

    /// The places in [`Self::peers`] where somebody is.
    fn present(&self) -> Vec<usize> {
        (0..self.peers.len()).filter(|&peer| self.peers[peer].is_some()).collect()
    }

    /// The process at the other end has its rank's place no more.
    fn leave_place(&self, gone: &Connection) {
        if let WayBack::Open(door) = &self.way_back {
            door.leave(gone.rank(), gone.stream());
        }
    }

    /// Whether the group goes on without ranks that are lost.
    fn goes_on(&self) -> bool {
        matches!(self.way_back, WayBack::Open(_) | WayBack::Ended)
    }

    fn rank_of(&self, peer: usize) -> Rank {
        if self.rank == ROOT { peer + 1 } else { ROOT }
    }

    /// A peer that fails ends the operation, unless the group goes on without it.
    fn lose(&mut self, peer: usize, error: Error) -> Result<(), Error> {
        if !self.goes_on() {
            return Err(error);
        }
        if let Some(mut gone) = self.peers[peer].take() {
            let again = if matches!(self.way_back, WayBack::Open(_)) { "; start this rank again" } else { "" };
            gone.send_dismissal(&format!("rank {} went on after this: {error}{again}", self.rank));
            self.leave_place(&gone);
            self.left.push((gone.rank(), error));
        }
        Ok(())
    }

    /// Peers that have not come in time end the operation, unless the group goes on without them.
    fn lose_late(&mut self, peers: &[usize], wait: &Wait<'_>) -> Result<(), Error> {
        if !self.goes_on() {
            return Err(wait.late(peers.iter().map(|&peer| self.rank_of(peer)).collect()));
        }
        peers.iter().try_for_each(|&peer| self.lose(peer, wait.late(vec![self.rank_of(peer)])))
    }

    /// A frame of the root.
    fn receive_from_root(&mut self, kind: Kind, sequence: u64, wait: Wait<'_>) -> Result<Vec<u8>, Error> {
        self.receive_all(kind, sequence, vec![0], wait)?;
        let root = self.peers[0].as_mut();
        Ok(root.map_or_else(Vec::new, |root| {
            let payload = root.payload().to_vec();
            root.consume();
            payload
        }))
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
                self.peers.iter_mut().flatten().for_each(|peer| peer.send_abort(*rank, reason));
            }
        }
        result
    }

    /// Waits until a frame of `kind` has come from each of the peers at the places `senders`, those left out that the group goes on
    /// without.
    fn receive_all(&mut self, kind: Kind, sequence: u64, senders: Vec<usize>, mut wait: Wait<'_>) -> Result<(), Error> {
        let operation = wait.operation();
        // A frame that came together with the one before it has been read already: no socket will tell of it.
        let mut ready = vec![false; senders.len()];
        let mut pending = senders;
        loop {
            let mut still_pending = Vec::with_capacity(pending.len());
            for (peer, ready) in pending.into_iter().zip(ready) {
                let Some(connection) = &mut self.peers[peer] else { continue };
                let received = if ready {
                    connection.receive(kind, sequence, operation, &mut self.scratch)
                } else {
                    connection.has_frame(kind, sequence, operation)
                };
                match received {
                    Ok(true) => {}
                    Ok(false) => still_pending.push(peer),
                    Err(error) => self.lose(peer, error)?,
                }
            }
            pending = still_pending;
            if pending.is_empty() {
                return Ok(());
            }
            let Some(slice) = wait.slice() else { return self.lose_late(&pending, &wait) };
            ready = self.poll(&pending, PollFlags::IN, slice, operation)?;
        }
    }

    /// Sleeps until one of the peers at these places has what is asked of its socket; says which.
    fn poll(
        &self,
        peers: &[usize],
        wanted: PollFlags,
        limit: Duration,
        operation: &'static str,
    ) -> Result<Vec<bool>, Error> {
        let connections = peers.iter().filter_map(|&peer| self.peers[peer].as_ref());
        let sockets: Vec<_> = connections.map(|connection| (connection.stream().as_fd(), wanted)).collect();
        poll_sockets(&sockets, limit, operation)
    }

    /// Sends one frame to all peers. While a socket is full it is also watched for an abort or the peer's end.
    fn send_all(&mut self, kind: Kind, payload: &[u8], mut wait: Wait<'_>) -> Result<(), Error> {
        let operation = wait.operation();
        let bytes = connection::frame(kind, self.sequence, payload, operation)?;
        let mut pending: Vec<(usize, usize)> = self.present().into_iter().map(|peer| (peer, 0)).collect();
        loop {
            let mut still_pending = Vec::new();
            for (peer, mut sent) in pending {
                let Some(connection) = &mut self.peers[peer] else { continue };
                match connection.send(&bytes, &mut sent, operation) {
                    Ok(true) => {}
                    Ok(false) => still_pending.push((peer, sent)),
                    Err(lost) => {
                        let reason = self.reason_before_end(peer, lost);
                        self.lose(peer, reason)?;
                    }
                }
            }
            pending = still_pending;
            if pending.is_empty() {
                return Ok(());
            }
            let waited_for: Vec<usize> = pending.iter().map(|&(peer, _)| peer).collect();
            let Some(slice) = wait.slice() else { return self.lose_late(&waited_for, &wait) };
            self.poll(&waited_for, PollFlags::OUT | PollFlags::RDHUP, slice, operation)?;
            self.check_alive(&waited_for, operation)?;
        }
    }

    /// A peer that ended the job may have said why before its connection broke.
    fn reason_before_end(&mut self, peer: usize, lost: Error) -> Error {
        let Some(connection) = &mut self.peers[peer] else { return lost };
        match connection.receive(Kind::Abort, 0, "abort", &mut self.scratch) {
            Err(said @ (Error::Aborted { .. } | Error::Dismissed { .. })) => said,
            _ => lost,
        }
    }

    /// Finds peers that closed their end: they read no more, though the first write to them still succeeds.
    fn check_alive(&mut self, peers: &[usize], operation: &'static str) -> Result<(), Error> {
        let ended = self.poll(peers, PollFlags::RDHUP, Duration::ZERO, operation)?;
        for (&peer, _) in peers.iter().zip(ended).filter(|(_, ended)| *ended) {
            let reason = "the connection was closed".to_owned();
            let lost = Error::Lost { operation, rank: self.rank_of(peer), reason };
            let reason = self.reason_before_end(peer, lost);
            self.lose(peer, reason)?;
        }
        Ok(())
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
            let mut senders = group.present();
            senders.retain(|&peer| participants[group.rank_of(peer)]);
            group.receive_all(Kind::Gather, group.sequence, senders, wait)?;
            frames.push(payload);
            for (peer, takes_part) in group.peers.iter_mut().zip(&participants[1..]) {
                match peer {
                    Some(peer) if *takes_part => {
                        frames.push(peer.payload());
                        peer.consume();
                    }
                    _ => frames.push(&[]),
                }
            }
            Ok(())
        })
    }

    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        self.operate("broadcast", |group| {
            let wait = Wait::begin("broadcast", deadline);
            if group.rank == ROOT {
                group.check_alive(&group.present(), "broadcast")?;
                return group.send_all(Kind::Broadcast, buffer, wait);
            }
            *buffer = group.receive_from_root(Kind::Broadcast, group.sequence, wait)?;
            Ok(())
        })
    }

    fn go_on_without_lost(&mut self, notice: Vec<u8>) -> Result<(), Error> {
        let parts = match &mut self.way_back {
            WayBack::Open(door) => {
                door.set_notice(Secret(notice));
                return Ok(());
            }
            WayBack::Closed(parts) => parts.take(),
            WayBack::Ended | WayBack::Returning(_) => None,
        };
        if let Some((listener, job)) = parts {
            let others = self.peers.iter().map(|peer| peer.as_ref().map(|peer| Arc::clone(peer.stream())));
            let places = std::iter::once(None).chain(others).collect();
            self.way_back = WayBack::Open(Door::open(listener, job, places, Secret(notice), self.files.take())?);
        }
        Ok(())
    }

    fn receive_files(&mut self, places: Arc<dyn FilePlaces>) {
        self.files = Some(places);
    }

    fn let_nobody_back(&mut self) {
        if let WayBack::Open(door) = &self.way_back {
            for mut asking in std::mem::take(&mut self.asking).into_iter().chain(door.returned()) {
                asking.send_dismissal("the run has ended");
            }
            self.way_back = WayBack::Ended;
        }
    }

    fn attendance(&mut self) -> Attendance {
        let returned = if let WayBack::Open(door) = &self.way_back { door.returned() } else { Vec::new() };
        // Who comes back has its place only because the process that had it is gone.
        for returned in &returned {
            let (rank, reason) = (returned.rank(), "its process was started again".to_owned());
            // In an open group that is no error.
            let _ = self.lose(rank - 1, Error::Lost { operation: "coming back", rank, reason });
        }
        let back = returned.iter().map(|back| (back.rank(), back.payload().to_vec())).collect();
        self.asking.extend(returned);
        Attendance { left: std::mem::take(&mut self.left), back }
    }

    fn admit(&mut self, rank: Rank, verdict: Result<(), String>) -> bool {
        let Some(place) = self.asking.iter().position(|asking| asking.rank() == rank) else { return false };
        let mut asking = self.asking.swap_remove(place);
        asking.consume();
        if let Err(reason) = verdict {
            asking.send_dismissal(&reason);
            self.leave_place(&asking);
            return false;
        }
        let told = connection::frame(Kind::Back, 1, &self.sequence.to_le_bytes(), "coming back")
            .and_then(|welcome| asking.send(&welcome, &mut 0, "coming back"));
        match told {
            Ok(true) => {
                self.peers[rank - 1] = Some(asking);
                return true;
            }
            Ok(false) => asking.send_dismissal("it does not read what it is told"),
            // It has gone again, and was not here.
            Err(_) => {}
        }
        self.leave_place(&asking);
        false
    }

    fn notice(&mut self) -> Option<Vec<u8>> {
        match &mut self.way_back {
            WayBack::Returning(notice) => notice.take().map(|Secret(notice)| notice),
            WayBack::Closed(_) | WayBack::Open(_) | WayBack::Ended => None,
        }
    }

    fn come_back(&mut self, statement: &[u8], deadline: &Deadline) -> Result<(), Error> {
        let wait = || Wait::begin("coming back", deadline);
        self.send_all(Kind::Back, statement, wait())?;
        let sequence = self.receive_from_root(Kind::Back, 1, wait())?;
        let what = || format!("{} bytes that are no sequence", sequence.len());
        let sequence = <[u8; 8]>::try_from(sequence.as_slice()).map_err(|_| Error::Protocol {
            operation: "coming back",
            rank: ROOT,
            what: what(),
        })?;
        self.sequence = u64::from_le_bytes(sequence);
        self.way_back = WayBack::Closed(None);
        Ok(())
    }

    fn abort(&mut self, reason: &str) {
        self.peers.iter_mut().flatten().for_each(|peer| peer.send_abort(self.rank, reason));
        self.failed.get_or_insert_with(|| format!("ended by this rank: {reason}"));
    }
}

/// Bytes read from a socket at once.
const SCRATCH: usize = 64 << 10;

//! The connections of one rank, waited for together.
//!
//! `tcp` states what to send or receive; this file sleeps until it is done, enforces the deadline
//! and names the ranks that are late or gone. Each socket is registered once and the system reports
//! the ready ones, so a wake-up costs as much for a thousand ranks as for two.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFlags, Timespec, epoll};

use super::connection::Connection;
use super::frame::{Hashed, Kind, Leaving};
use super::sockets::poll_sockets;
use crate::{Error, ROOT, Rank, SideWork, Traffic, Wait};

/// The connections of a rank.
#[derive(Debug)]
pub(super) struct Peers {
    /// The rank.
    rank: Rank,
    /// At the root: ranks 1 and up, in order; `None` for those that have left. Elsewhere: only the
    /// root.
    list: Vec<Option<Connection>>,
    epoll: Arc<OwnedFd>,
    losses: Losses,
    /// Peers that have left since the last query.
    gone: Vec<Gone>,
    /// Traffic of closed connections.
    past: Traffic,
    /// Work done while an operation waits, and when it was done last.
    work: Option<(Arc<dyn SideWork>, Instant)>,
}

/// A peer that has left.
#[derive(Debug)]
pub(super) struct Gone {
    pub rank: Rank,
    pub connection: Connection,
    /// Error that showed that it is gone.
    pub error: Error,
}

/// How operations handle a lost or late peer.
#[derive(Copy, Clone, Debug)]
pub(super) enum Losses {
    /// The operation ends.
    End,
    /// It continues; the peer is told, with this advice.
    GoOn(&'static str),
    /// It continues without telling the peer, which the root does.
    Pass,
}

impl Peers {
    /// Creates the list of connections of `rank`.
    ///
    /// # Errors
    /// Returns an error if the system cannot wait for them.
    pub fn new(rank: Rank, connections: Vec<Connection>) -> Result<Self, Error> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(unwatchable)?);
        let list = (0..connections.len()).map(|_| None).collect();
        let mut peers =
            Self { rank, list, epoll, losses: Losses::End, gone: Vec::new(), past: Traffic::default(), work: None };
        for (place, connection) in connections.into_iter().enumerate() {
            peers.put(place, connection)?;
        }
        Ok(peers)
    }

    /// Returns all places.
    pub fn list(&self) -> &[Option<Connection>] {
        &self.list
    }

    /// Returns the connection at a place, if any.
    pub fn at(&mut self, place: usize) -> Option<&mut Connection> {
        self.list.get_mut(place)?.as_mut()
    }

    /// Returns all connections.
    pub fn all(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.list.iter_mut().flatten()
    }

    /// Returns the places with a connection.
    pub fn present(&self) -> Vec<usize> {
        (0..self.list.len()).filter(|&place| self.list[place].is_some()).collect()
    }

    /// Returns the rank of a place: at the root all others, elsewhere the root and, in a tree, a
    /// rank's children at the places of their numbers.
    pub fn rank_of(&self, place: usize) -> Rank {
        match &self.list[place] {
            Some(there) => there.rank(),
            None if self.rank == ROOT => place + 1,
            None => ROOT,
        }
    }

    /// Puts a connection in a place.
    ///
    /// # Errors
    /// Returns an error if the system cannot watch it.
    pub fn put(&mut self, place: usize, mut connection: Connection) -> Result<(), Error> {
        connection.watch(&self.epoll, place as u64).map_err(unwatchable)?;
        self.list[place] = Some(connection);
        Ok(())
    }

    /// Makes room for this many places.
    pub fn widen(&mut self, places: usize) {
        self.list.resize_with(places, || None);
    }

    /// Wakes a sleeping rank when `bell` is readable.
    ///
    /// # Errors
    /// Returns an error if the system cannot watch it.
    pub fn wake_by(&mut self, bell: impl AsFd) -> Result<(), Error> {
        let data = epoll::EventData::new_u64(BELL);
        epoll::add(&self.epoll, bell, data, epoll::EventFlags::IN | epoll::EventFlags::ET).map_err(unwatchable)
    }

    /// Closes a connection that is no longer needed.
    pub fn remove(&mut self, place: usize) {
        if let Some(mut gone) = self.list.get_mut(place).and_then(Option::take) {
            gone.unwatch();
            self.past = self.past.plus(gone.traffic());
        }
    }

    /// Sets how operations handle a lost or late peer.
    pub fn on_loss(&mut self, losses: Losses) {
        self.losses = losses;
    }

    /// Returns true if an operation continues without lost peers.
    pub fn goes_on(&self) -> bool {
        !matches!(self.losses, Losses::End)
    }

    /// Removes and returns the peers that have left since the previous call.
    pub fn gone(&mut self) -> Vec<Gone> {
        std::mem::take(&mut self.gone)
    }

    /// Returns the traffic of all connections.
    pub fn traffic(&self) -> Traffic {
        self.list.iter().flatten().fold(self.past, |sum, connection| sum.plus(connection.traffic()))
    }

    /// Handles a failed peer: the operation ends unless the group continues without it.
    ///
    /// # Errors
    /// The error, if it ends the operation.
    pub fn lose(&mut self, place: usize, error: Error) -> Result<(), Error> {
        if !self.goes_on() {
            return Err(error);
        }
        let rank = self.rank_of(place);
        if let Some(mut gone) = self.list[place].take() {
            gone.unwatch();
            if let Losses::GoOn(advice) = self.losses {
                gone.send_dismissal(&format!("rank {} continued after this: {error}{advice}", self.rank));
            }
            self.past = self.past.plus(gone.traffic());
            self.gone.push(Gone { rank, connection: gone, error });
        }
        Ok(())
    }

    /// Waits until a frame of `kind` has arrived from each of the peers at the places `senders`,
    /// except those without which the group continues.
    ///
    /// # Errors
    /// Names the late or lost peer, if that ends the operation.
    pub fn receive(&mut self, kind: Kind, sequence: u64, senders: &[usize], mut wait: Wait<'_>) -> Result<(), Error> {
        let operation = wait.operation();
        let mut pending = vec![false; self.list.len()];
        senders.iter().for_each(|&place| pending[place] = true);
        let mut left = senders.len();
        // What came together with the frame before it has been read already: the system does not
        // tell of it again.
        let mut ready = senders.to_vec();
        loop {
            for place in ready.drain(..) {
                // Both sockets of a place may have had something.
                if !pending[place] {
                    continue;
                }
                let done = match self.list[place].as_mut().map(|peer| peer.receive(kind, sequence, operation)) {
                    Some(Ok(done)) => done,
                    Some(Err(error)) => self.lose(place, error).map(|()| true)?,
                    None => true,
                };
                pending[place] = !done;
                left -= usize::from(done);
            }
            if left == 0 {
                return Ok(());
            }
            let Some(slice) = wait.slice() else {
                let late: Vec<usize> = (0..pending.len()).filter(|&place| pending[place]).collect();
                return self.lose_late(&late, &wait);
            };
            // Where ranks come close together the next is there sooner than a sleep ends; ranks
            // that share cores take turns meanwhile.
            while ready.is_empty() && wait.may_look(true) {
                rustix::thread::sched_yield();
                self.look_for(&mut ready, operation)?;
            }
            if ready.is_empty() {
                self.sleep_and_work(slice, &mut ready, operation)?;
            }
        }
    }

    /// Sends a frame to each of the peers at these places. While a socket is full, it is also
    /// watched for an abort or the peer's end.
    ///
    /// # Errors
    /// Names the late or lost peer, if that ends the operation.
    pub fn send<'a>(
        &mut self,
        kind: Kind,
        sequence: u64,
        places: &[usize],
        payload: impl Fn(usize) -> &'a [u8],
        mut wait: Wait<'_>,
    ) -> Result<(), Error> {
        let (operation, mut hashed) = (wait.operation(), Hashed::default());
        let mut pending: Vec<(usize, &[u8], Leaving)> = Vec::with_capacity(places.len());
        for &place in places {
            if let Some(peer) = &mut self.list[place] {
                let payload = payload(place);
                pending.push((place, payload, peer.begin(kind, sequence, (payload, &mut hashed), operation)?));
            }
        }
        loop {
            let mut still_pending = Vec::new();
            for (place, payload, mut frame) in pending {
                let Some(peer) = &mut self.list[place] else { continue };
                match peer.send(&mut frame, payload, operation) {
                    Ok(true) => {}
                    Ok(false) => still_pending.push((place, payload, frame)),
                    Err(lost) => {
                        let reason = self.reason_before_end(place, lost);
                        self.lose(place, reason)?;
                    }
                }
            }
            pending = still_pending;
            if pending.is_empty() {
                return Ok(());
            }
            let waited_for: Vec<usize> = pending.iter().map(|(place, ..)| *place).collect();
            let Some(slice) = wait.slice() else { return self.lose_late(&waited_for, &wait) };
            let writable = PollFlags::OUT | PollFlags::RDHUP;
            let streams = waited_for.iter().filter_map(|&place| Some(self.list[place].as_ref()?.outward()));
            poll_sockets(&streams.map(|stream| (stream, writable)).collect::<Vec<_>>(), slice, operation)?;
            self.check_alive(operation)?;
        }
    }

    /// Finds peers that closed their end: they read no more, although the first write to them still
    /// succeeds.
    ///
    /// # Errors
    /// Names the lost peer, if that ends the operation.
    pub fn check_alive(&mut self, operation: &'static str) -> Result<(), Error> {
        self.look(operation)?;
        for place in 0..self.list.len() {
            if self.list[place].as_ref().is_some_and(Connection::has_ended) {
                let reason = "the connection was closed".to_owned();
                let lost = Error::Lost { operation, rank: self.rank_of(place), reason };
                let reason = self.reason_before_end(place, lost);
                self.lose(place, reason)?;
            }
        }
        Ok(())
    }

    /// Checks what has arrived, without sleeping.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn look(&mut self, operation: &'static str) -> Result<(), Error> {
        self.look_for(&mut Vec::new(), operation)
    }

    fn look_for(&mut self, ready: &mut Vec<usize>, operation: &'static str) -> Result<(), Error> {
        self.sleep(Duration::ZERO, ready, operation)
    }

    /// Sends and receives messages; returns those received with the senders' places.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn words(&mut self) -> Result<Vec<(usize, Vec<u8>)>, Error> {
        self.look("calls")?;
        let spoken = self.list.iter_mut().enumerate().filter_map(|(place, peer)| Some((place, peer.as_mut()?)));
        Ok(spoken.flat_map(|(place, peer)| peer.words().into_iter().map(move |word| (place, word))).collect())
    }

    /// Sleeps until something has arrived, at most for `limit`; adds the indices of the peers it
    /// came from.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn sleep(&mut self, limit: Duration, ready: &mut Vec<usize>, operation: &'static str) -> Result<(), Error> {
        let mut limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; EVENTS];
        // Bounded: each event is told once.
        loop {
            let count = match epoll::wait(&self.epoll, &mut events, Some(&limit)) {
                Ok(count) => count,
                Err(rustix::io::Errno::INTR) => return Ok(()),
                Err(error) => return Err(Error::Backend { operation, reason: format!("epoll_wait: {error}") }),
            };
            for event in &events[..count] {
                let place = event.data.u64() as usize;
                let (flags, end) = (event.flags, epoll::EventFlags::RDHUP | epoll::EventFlags::HUP);
                if let Some(peer) = self.at(place) {
                    peer.tell(flags.intersects(end | epoll::EventFlags::ERR));
                    ready.push(place);
                }
            }
            if count < EVENTS {
                return Ok(());
            }
            limit = Timespec { tv_sec: 0, tv_nsec: 0 };
        }
    }

    /// Sets the work to be done while an operation waits.
    pub fn work_while_waiting(&mut self, work: Arc<dyn SideWork>) {
        self.work = Some((work, Instant::now()));
    }

    /// Sleeps like [`Peers::sleep`], exchanging messages now and then. Only while nothing is being
    /// sent, since a message within a frame would corrupt it.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn sleep_and_work(
        &mut self,
        limit: Duration,
        ready: &mut Vec<usize>,
        operation: &'static str,
    ) -> Result<(), Error> {
        self.sleep(limit, ready, operation)?;
        let Some((work, last)) = &mut self.work else { return Ok(()) };
        if last.elapsed() < WORK_EVERY {
            return Ok(());
        }
        *last = Instant::now();
        let work = Arc::clone(work);
        let (rank, control) = (self.rank, 0);
        let mut heard = Vec::new();
        for place in 0..self.list.len() {
            let from = self.rank_of(place);
            // In a tree a rank has other connections as well, which carry no words.
            let speaks = rank == ROOT || place == control;
            if let Some(peer) = self.at(place).filter(|_| speaks) {
                heard.extend(peer.words().into_iter().map(|word| (from, word)));
            }
        }
        for word in work.turn(heard) {
            let all = if rank == ROOT { self.present() } else { vec![control] };
            for place in all {
                if let Some(peer) = self.at(place) {
                    peer.say(Kind::Word, 0, &word, operation)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the operation for peers that are late, unless the group continues without them.
    ///
    /// # Errors
    /// States that they are late, if that ends the operation.
    pub fn lose_late(&mut self, places: &[usize], wait: &Wait<'_>) -> Result<(), Error> {
        if !self.goes_on() {
            return Err(wait.late(places.iter().map(|&place| self.rank_of(place)).collect()));
        }
        places.iter().try_for_each(|&place| self.lose(place, wait.late(vec![self.rank_of(place)])))
    }

    /// Returns the reason of a peer that ended the job, if it was sent before its connection broke.
    fn reason_before_end(&mut self, place: usize, lost: Error) -> Error {
        let Some(peer) = self.at(place) else { return lost };
        peer.tell(false);
        match peer.receive(Kind::Abort, 0, "abort") {
            Err(said @ (Error::Aborted { .. } | Error::Dismissed { .. })) => said,
            _ => lost,
        }
    }
}

fn unwatchable(error: rustix::io::Errno) -> Error {
    Error::Setup { what: "watching the connections of the ranks".to_owned(), reason: error.to_string() }
}

/// Number of a bell, which no place has.
const BELL: u64 = u64::MAX;

/// Interval of the work done while an operation waits.
const WORK_EVERY: Duration = Duration::from_millis(100);

/// Most events processed at once.
const EVENTS: usize = 128;

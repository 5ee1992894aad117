//! A group whose root may be lost; the remaining ranks then form a group around another root.
//!
//! This is the public interface of the TCP backend. It holds a [`Group`], which has a single root
//! for its whole life, and replaces it by another when that root is lost. A `Group`'s root is
//! labelled 0, so a rank that takes rank 0's place exchanges labels with it, and everything below
//! this file (rendezvous, greeting, door) works as at the start.
//!
//! Ranks that may take the root's place listen from the start ([`Collective::stand_by`]), and all
//! know them, in their order ([`Collective::line_up`]). When the root is lost each rank goes down
//! that line: where it stands itself it hosts, else it joins. A rank at whose port nobody listens
//! is passed over at once, one that does not answer after half of the time that is left, and so is
//! one that did not take part last. Who hosts waits for all that took part last; when the time is
//! over, more than half of them suffice, and fewer are told so and part. Whoever else comes is
//! refused: the root had gone on without it, and may lead the others still. Then the host says that
//! the group stands. So of those who were told the same round there cannot be two groups: a rank is
//! in one at a time, and more than half is in at most one.
//!
//! By hand, 5 ranks, line 1, 2, 3. Rank 0 is lost, and rank 1 hangs. Ranks 2, 3 and 4 join rank 1,
//! in vain; then rank 2 hosts, 3 and 4 join: 3 of 5, and rank 2 is the root. A rank 1 that wakes
//! hosts alone: 1 of 5.
//!
//! A rank that is started again comes back to the new root by what its earlier process was told of
//! the line ([`Tcp::join_or_return`]).
//!
//! Rank 0 that is started again comes back as an ordinary rank ([`Tcp::return_as_rank_0`]).
//!
//! It does not carry files to a new root.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;

use super::connection::Connection;
use super::earlier_run::EarlierRun;
use super::frame::Kind;
use super::greeting::{Errand, Verdict};
use super::joining::Way;
use super::newcomers::{Expected, Newcomers};
use super::options::TcpOptions;
use super::rendezvous::{bind, bind_everywhere};
use super::sockets::{LOOK, has_hung_up, poll_sockets, somebody_listens};
use super::{Group, JobKey};
use crate::labels::{self, exchanged, renamed};
use crate::{Attendance, Call, Collective, Deadline, Error, FilePlaces, Frames, ROOT, Rank, SideWork, Traffic, Wait};

/// One rank of a group whose connections form a star, or additionally a tree
/// ([`TcpOptions::fan_out`]).
#[derive(Debug)]
pub struct Tcp {
    group: Group,
    rank: Rank,
    /// Rank whose label is exchanged with rank 0's.
    root: Rank,
    expected: Expected,
    /// Listener of this rank for those that lose the root.
    standing: Option<TcpListener>,
    successors: Vec<(Rank, Vec<SocketAddr>)>,
}

impl Tcp {
    /// Hosts the group as rank 0: waits on `listener` until the `size - 1` others have joined.
    /// Foreign connections and duplicates are refused and otherwise ignored. The options are those
    /// of the environment.
    ///
    /// # Errors
    /// [`Error::Late`] names the ranks that did not join.
    pub fn host(listener: TcpListener, size: usize, job: JobKey, deadline: &Deadline) -> Result<Self, Error> {
        Self::host_with(listener, size, job, TcpOptions::from_environment()?, deadline)
    }

    /// Hosts the group like [`Tcp::host`], with these options.
    ///
    /// # Errors
    /// Errors of [`Tcp::host`].
    pub fn host_with(
        listener: TcpListener,
        size: usize,
        job: JobKey,
        options: TcpOptions,
        deadline: &Deadline,
    ) -> Result<Self, Error> {
        Ok(Self::of(Group::host_with(listener, size, job, options, deadline)?, ROOT, Expected::new(size, job, options)))
    }

    /// Joins as any other rank: connects to the root at `address` (`host:port`), retrying until the
    /// root has started. The options are those of the environment.
    ///
    /// # Errors
    /// [`Error::Setup`] if the root cannot be reached in time or refuses this rank; the text states
    /// which. [`Error::Late`] if the wait was interrupted.
    pub fn join(address: &str, rank: Rank, size: usize, job: JobKey, deadline: &Deadline) -> Result<Self, Error> {
        Self::join_any(&[address.to_owned()], rank, size, job, TcpOptions::from_environment()?, deadline)
    }

    /// Joins like [`Tcp::join`], if the root has several addresses, some of which may be
    /// unreachable from here, with these options.
    ///
    /// # Errors
    /// Errors of [`Tcp::join`].
    pub fn join_any(
        addresses: &[String],
        rank: Rank,
        size: usize,
        job: JobKey,
        options: TcpOptions,
        deadline: &Deadline,
    ) -> Result<Self, Error> {
        Self::join_or_return(addresses, &EarlierRun::default(), rank, size, job, options, deadline)
    }

    /// Joins like [`Tcp::join_any`], for a rank that may have been restarted: if rank 0 does not
    /// answer, or begins another run than the `earlier` one, it asks each of the ranks that may
    /// have taken over there. In that case this rank returns to that one's group
    /// ([`Collective::notice`]).
    ///
    /// # Errors
    /// Errors of [`Tcp::join`].
    pub fn join_or_return(
        addresses: &[String],
        earlier: &EarlierRun,
        rank: Rank,
        size: usize,
        job: JobKey,
        options: TcpOptions,
        deadline: &Deadline,
    ) -> Result<Self, Error> {
        let expected = Expected::new(size, job, options);
        let (group, root) = Group::join_or_return(addresses, earlier, rank, expected, deadline)?;
        Ok(Self { root, ..Self::of(group, rank, expected) })
    }

    /// For a rank 0 that may have been restarted, before it listens: if its `earlier` run continues
    /// under another rank, it returns to that one's group like the others ([`Collective::notice`]).
    /// `None` if no rank that may have taken over is alive, so that a new run may begin.
    ///
    /// # Errors
    /// [`Error::Setup`] if a rank is alive but does not admit it until the deadline; the text
    /// states which. [`Error::Late`] if the wait was interrupted.
    pub fn return_as_rank_0(
        earlier: &EarlierRun,
        size: usize,
        job: JobKey,
        options: TcpOptions,
        deadline: &Deadline,
    ) -> Result<Option<Self>, Error> {
        let expected = Expected::new(size, job, options);
        let returned = Group::return_as_rank_0(earlier, expected, deadline)?;
        Ok(returned.map(|(group, root)| Self { root, ..Self::of(group, ROOT, expected) }))
    }

    fn of(group: Group, rank: Rank, expected: Expected) -> Self {
        Self { group, rank, root: ROOT, expected, standing: None, successors: Vec::new() }
    }

    /// Returns this machine's address on the connection to the root; at the root, the one by which
    /// the others reached it.
    pub fn local_ip(&self) -> IpAddr {
        self.group.local_ip()
    }

    #[cfg(feature = "suite")]
    pub(super) fn into_group(self) -> Group {
        self.group
    }

    #[cfg(feature = "suite")]
    pub(super) fn group_mut(&mut self) -> &mut Group {
        &mut self.group
    }

    /// Converts between a rank and its label in the group, in both directions.
    fn label(&self, rank: Rank) -> Rank {
        exchanged(self.root, rank)
    }

    /// Converts the ranks in the group's errors from labels.
    fn own<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| renamed(error, self.root))
    }

    /// Waits for the other ranks at this rank's listener, and becomes their root.
    fn host_the_rest(
        &self,
        listener: TcpListener,
        there: &[bool],
        late_by: Duration,
        limit: &Deadline,
    ) -> Result<Group, Error> {
        let of = voices(there);
        let expected = self.expected.around(self.rank);
        // Those who join wait until the limit: the word that the group stands must reach them
        // before.
        let mut wait = Wait::begin_early(OPERATION, limit);
        let setup = |error: io::Error| Error::Setup { what: "waiting for ranks".to_owned(), reason: error.to_string() };
        listener.set_nonblocking(true).map_err(setup)?;
        let (mut newcomers, mut joined) = (Newcomers::new(expected), Vec::<Connection>::new());
        // All but the root that is lost and this one.
        while joined.len() + 2 < of {
            let enough = 2 * (joined.len() + 1) > of && wait.elapsed() >= late_by;
            let Some(slice) = wait.slice().filter(|_| !enough) else { break };
            let sockets: Vec<_> =
                std::iter::once((listener.as_fd(), PollFlags::IN)).chain(newcomers.sockets()).collect();
            let ready = poll_sockets(&sockets, slice, OPERATION)?;
            for proven in newcomers.advance(&ready[1..], |_| false)? {
                match proven.errand {
                    Errand::Place if was_there(there, self.rank_beside(proven.rank)) => {}
                    // Its voice is not one of those that were there last.
                    Errand::Place | Errand::Return | Errand::Look => {
                        proven.refuse(Verdict::NotUnderWay);
                        continue;
                    }
                    Errand::File | Errand::Child => {
                        proven.refuse(Verdict::NoFiles);
                        continue;
                    }
                }
                // Who comes twice has given its first connection up.
                joined.retain(|there| there.rank() != proven.rank);
                joined.extend(proven.welcome(Verdict::Welcome));
            }
            if ready[0] {
                newcomers.accept(&listener)?;
            }
            joined.retain(|there| !has_hung_up(there.stream()));
        }
        joined.retain(|there| !has_hung_up(there.stream()));
        let present = joined.len() + 1;
        if 2 * present <= of {
            let minority = Error::Minority { operation: OPERATION, present, of };
            joined.iter_mut().for_each(|there| there.send_dismissal(&minority.to_string()));
            return Err(minority);
        }
        let local = listener.local_addr().map_err(setup)?.ip();
        let mut group = Group::of_the_rest(expected, joined, listener, local)?;
        group.say_it_stands(Wait::begin(OPERATION, limit))?;
        if expected.options.local {
            group.offer_local()?;
        }
        Ok(group)
    }

    /// Returns the rank with this label in a group led by this rank.
    fn rank_beside(&self, label: Rank) -> Rank {
        exchanged(self.rank, label)
    }

    /// Joins the rank that takes over as root, and waits until it confirms the group.
    fn join_the_rest(&self, successor: Rank, addresses: &[SocketAddr], limit: &Deadline) -> Result<Group, Error> {
        let expected = self.expected.around(successor);
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let label = exchanged(successor, self.rank);
        let mut group = Group::join_any(&addresses, label, expected, limit)?;
        group.hear_it_stands(Wait::begin(OPERATION, limit))?;
        Ok(group)
    }
}

impl Collective for Tcp {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.size()
    }

    fn root(&self) -> Rank {
        self.root
    }

    fn backend(&self) -> &'static str {
        self.group.backend()
    }

    fn gather(
        &mut self,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        labels::gather(&mut self.group, self.root, participants, payload, frames, deadline)
    }

    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        let told = self.group.broadcast(buffer, deadline);
        self.own(told)
    }

    fn scatter(&mut self, frames: &Frames, own: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        labels::scatter(&mut self.group, self.root, frames, own, deadline)
    }

    fn call(&mut self, word: &[u8]) -> Result<(), Error> {
        let said = self.group.call(word);
        self.own(said)
    }

    fn calls(&mut self) -> Result<Vec<Call>, Error> {
        labels::calls(&mut self.group, self.root)
    }

    fn work_while_waiting(&mut self, work: Arc<dyn SideWork>) {
        self.group.work_while_waiting(labels::work_by_rank(work, self.root));
    }

    fn traffic(&self) -> Traffic {
        self.group.traffic()
    }

    fn missing(&self) -> Vec<Rank> {
        self.group.missing().into_iter().map(|label| self.label(label)).collect()
    }

    fn go_on_without_lost(&mut self, notice: Vec<u8>) -> Result<(), Error> {
        self.group.go_on_without_lost(notice)
    }

    fn receive_files(&mut self, places: Arc<dyn FilePlaces>) {
        self.group.receive_files(places);
    }

    fn let_nobody_back(&mut self) {
        self.group.let_nobody_back();
    }

    fn attendance(&mut self) -> Attendance {
        labels::attendance(&mut self.group, self.root)
    }

    fn admit(&mut self, rank: Rank, verdict: Result<(), String>) -> bool {
        self.group.admit(self.label(rank), verdict)
    }

    fn notice(&mut self) -> Option<Vec<u8>> {
        self.group.notice()
    }

    fn come_back(&mut self, statement: &[u8], deadline: &Deadline) -> Result<(), Error> {
        self.group.come_back(statement, deadline)
    }

    fn stand_by(&mut self) -> Result<Option<Vec<SocketAddr>>, Error> {
        if self.rank == ROOT {
            return Ok(Some(Vec::new()));
        }
        let own = self.local_ip();
        let listener = if own.is_loopback() { bind(SocketAddr::new(own, 0))? } else { bind_everywhere(0)? };
        let port = listener.local_addr().map(|address| address.port()).unwrap_or(0);
        self.standing = Some(listener);
        Ok((port != 0).then(|| vec![SocketAddr::new(own, port)]))
    }

    fn line_up(&mut self, successors: &[(Rank, Vec<SocketAddr>)]) {
        self.successors = successors.to_vec();
        if !successors.iter().any(|(rank, _)| *rank == self.rank) {
            self.standing = None;
        }
    }

    fn root_has_gone(&mut self) -> bool {
        self.group.root_has_hung_up()
    }

    fn superseded_by(&mut self) -> Option<Rank> {
        let nobodys = Deadline::new(2 * LOOK, None);
        // A group that would let this rank come back has another root than this rank knows.
        let other = |(rank, addresses): &&(Rank, Vec<SocketAddr>)| {
            let way = Way::to_successor((*rank, addresses), self.rank, 0, self.expected.around(*rank));
            *rank != self.rank && matches!(way.ask_back(&mut Wait::begin(OPERATION, &nobodys)), Ok(Ok(_)))
        };
        self.successors.iter().find(other).map(|(rank, _)| *rank)
    }

    fn succeed(&mut self, there: &[bool], late_by: Duration, deadline: &Deadline) -> Result<Rank, Error> {
        let lost = self.root;
        let mut why = Error::Minority { operation: OPERATION, present: 1, of: voices(there) };
        // A rank that finds nobody now may look for them again.
        let line = self.successors.clone();
        let after = line.iter().position(|(rank, _)| *rank == lost).map_or(0, |place| place + 1);
        for (place, (successor, addresses)) in line.iter().enumerate().skip(after) {
            // So that time is left for the next.
            let limit = deadline.halved();
            let attempt = if *successor == self.rank {
                self.standing.take().map(|listener| self.host_the_rest(listener, there, late_by, &limit))
            } else if !was_there(there, *successor) {
                // It would count those of an earlier round, whom the root had gone on with.
                None
            } else {
                somebody_listens(addresses).then(|| self.join_the_rest(*successor, addresses, &limit))
            };
            match attempt {
                Some(Ok(group)) => {
                    (self.group, self.root) = (group, *successor);
                    self.successors = line[place..].to_vec();
                    return Ok(*successor);
                }
                Some(Err(error)) => {
                    let error = renamed(error, *successor);
                    tracing::info!("rank {successor} cannot take over from rank {lost}: {error}");
                    if let Error::Minority { .. } | Error::Dismissed { .. } = error {
                        why = error;
                    }
                }
                None => {}
            }
        }
        Err(why)
    }

    fn root_is_there(&mut self) -> bool {
        self.group.root_is_there(&Deadline::new(2 * LOOK, None))
    }

    fn reconnect(&mut self, deadline: &Deadline) -> Result<bool, Error> {
        // The others pass this rank over from now on, as they do a process that was started again.
        self.standing = None;
        let found = self.group.reconnect(self.rank, self.root, self.expected, &self.successors, deadline)?;
        let Some((group, root)) = found else { return Ok(false) };
        (self.group, self.root) = (group, root);
        Ok(true)
    }

    fn abort(&mut self, reason: &str) {
        self.group.abort(reason);
    }
}

fn was_there(there: &[bool], rank: Rank) -> bool {
    there.get(rank) == Some(&true)
}

/// Returns the number of ranks that took part last.
fn voices(there: &[bool]) -> usize {
    there.iter().filter(|there| **there).count()
}

impl Group {
    /// Returns the root of the remaining ranks of a group of this size, with its labels.
    fn of_the_rest(
        expected: Expected,
        joined: Vec<Connection>,
        listener: TcpListener,
        local: IpAddr,
    ) -> Result<Self, Error> {
        let reached = joined.iter().find_map(|there| Some(there.stream().local_addr().ok()?.ip().to_canonical()));
        let way_back = super::WayBack::Closed(Some((listener, expected)));
        let mut group = Self::new(ROOT, expected.size, reached.unwrap_or(local), Vec::new(), way_back)?;
        group.peers.widen(expected.size - 1);
        let mut missing: Vec<Rank> = (1..expected.size).collect();
        for there in joined {
            missing.retain(|label| *label != there.rank());
            group.peers.put(there.rank() - 1, there)?;
        }
        let lost = |rank| Error::Lost { operation: OPERATION, rank, reason: NOT_THERE.to_owned() };
        group.left = missing.into_iter().map(|label| (label, lost(label))).collect();
        Ok(group)
    }

    /// Tells the remaining ranks that they are enough.
    fn say_it_stands(&mut self, wait: Wait<'_>) -> Result<(), Error> {
        let present = self.peers.present();
        self.peers.on_loss(super::Losses::GoOn(""));
        self.peers.send(Kind::Broadcast, 0, &present, |_| STANDS, wait)?;
        self.note_gone();
        Ok(())
    }

    /// Returns true if the root has closed its connection.
    fn root_has_hung_up(&mut self) -> bool {
        self.rank != ROOT && self.peers.at(super::CONTROL).is_some_and(|root| has_hung_up(root.stream()))
    }

    fn hear_it_stands(&mut self, wait: Wait<'_>) -> Result<(), Error> {
        let said = self.receive_from_root(Kind::Broadcast, 0, wait)?;
        if said == STANDS {
            return Ok(());
        }
        let what = format!("{} bytes in place of its word that the group stands", said.len());
        Err(Error::Protocol { operation: OPERATION, rank: ROOT, what })
    }
}

const OPERATION: &str = "succession";
const STANDS: &[u8] = b"the group stands";
const NOT_THERE: &str = "it was absent when the remaining ranks reconnected";

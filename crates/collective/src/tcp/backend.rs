//! [`Tcp`], the public interface of the TCP backend.
//!
//! It holds a [`Group`], which has a single root for its whole life, and replaces it by another
//! when that root is lost (`succession`) or when this rank reconnects. A `Group`'s root is labelled
//! 0, so a rank that takes rank 0's place exchanges labels with it, and everything below this file
//! (rendezvous, greeting, door) works as at the start.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;

use super::earlier_run::EarlierRun;
use super::joining::Way;
use super::newcomers::Expected;
use super::options::TcpOptions;
use super::sockets::LOOK;
use super::{Group, JobKey};
use crate::labels::{self, exchanged, renamed};
use crate::{
    Admission, Attendance, Call, Collective, Deadline, Error, FaultTolerance, FilePlaces, Frames, ROOT, Rank, SideWork,
    Succession, Traffic, Wait,
};

/// One rank of a group whose connections form a star, or additionally a tree
/// ([`TcpOptions::fan_out`]).
#[derive(Debug)]
pub struct Tcp {
    pub(super) group: Group,
    pub(super) rank: Rank,
    /// Rank whose label is exchanged with rank 0's.
    pub(super) root: Rank,
    pub(super) expected: Expected,
    /// Listener of this rank for those that lose the root.
    pub(super) standing: Option<TcpListener>,
    pub(super) successors: Vec<(Rank, Vec<SocketAddr>)>,
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
    /// ([`Admission::notice`]).
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
    /// under another rank, it returns to that one's group like the others ([`Admission::notice`]).
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

    fn work_while_waiting(&mut self, work: Arc<dyn SideWork>) -> bool {
        self.group.work_while_waiting(labels::work_by_rank(work, self.root))
    }

    fn traffic(&self) -> Traffic {
        self.group.traffic()
    }

    fn abort(&mut self, reason: &str) {
        self.group.abort(reason);
    }

    fn fault_tolerance(&mut self) -> Option<&mut dyn FaultTolerance> {
        Some(self)
    }

    fn admission(&mut self) -> Option<&mut dyn Admission> {
        Some(self)
    }

    fn succession(&mut self) -> Option<&mut dyn Succession> {
        Some(self)
    }
}

impl FaultTolerance for Tcp {
    fn continue_without_lost(&mut self, notice: Vec<u8>) -> Result<(), Error> {
        self.group.continue_without_lost(notice)
    }

    fn attendance(&mut self) -> Attendance {
        labels::attendance(self.group.attendance(), self.root)
    }
}

impl Admission for Tcp {
    fn missing(&mut self) -> Vec<Rank> {
        self.group.missing().into_iter().map(|label| self.label(label)).collect()
    }

    fn receive_files(&mut self, places: Arc<dyn FilePlaces>) {
        self.group.receive_files(places);
    }

    fn admit(&mut self, rank: Rank, verdict: Result<(), String>) -> bool {
        self.group.admit(self.label(rank), verdict)
    }

    fn end_admission(&mut self) {
        self.group.end_admission();
    }

    fn superseding_root(&mut self) -> Option<Rank> {
        let nobodys = Deadline::new(2 * LOOK, None);
        // A group that would let this rank come back has another root than this rank knows.
        let other = |(rank, addresses): &&(Rank, Vec<SocketAddr>)| {
            let way = Way::to_successor((*rank, addresses), self.rank, 0, self.expected.around(*rank));
            *rank != self.rank && matches!(way.ask_back(&mut Wait::begin("succession", &nobodys)), Ok(Ok(_)))
        };
        self.successors.iter().find(other).map(|(rank, _)| *rank)
    }

    fn notice(&mut self) -> Option<Vec<u8>> {
        self.group.notice()
    }

    fn rejoin(&mut self, statement: &[u8], deadline: &Deadline) -> Result<(), Error> {
        self.group.rejoin(statement, deadline)
    }

    fn root_is_alive(&mut self) -> bool {
        self.group.root_is_alive(&Deadline::new(2 * LOOK, None))
    }

    fn reconnect(&mut self, deadline: &Deadline) -> Result<(), Error> {
        // The others pass this rank over from now on, as they do a process that was started again.
        self.standing = None;
        (self.group, self.root) =
            self.group.reconnect(self.rank, self.root, self.expected, &self.successors, deadline)?;
        Ok(())
    }
}

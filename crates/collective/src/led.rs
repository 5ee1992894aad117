//! A group led from the start by a rank other than 0.
//!
//! It wraps any backend, for `--master RANK`. Every backend gathers at the process it calls rank 0;
//! here that process is rank `master` of the run, and rank 0 of the run has the number that the
//! backend would have given the master. Nothing else changes, so everything a backend supports (the
//! return of a rank, another root) works for any master.
//!
//! By hand, 4 ranks, master 2: ranks 0, 1, 2, 3 of the run have the places 2, 1, 0, 3 in the
//! backend's group. Rank 2 is lost and the backend's place 3 takes over: rank 3 of the run.
//!
//! The alternative, a master in every backend, was rejected: each constructor of each backend would
//! take it (those of `Tcp`, its meetings and stores, MPI), and each backend would convert the ranks
//! of all its methods, which happens here once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use probe_sync_files::OwnFolder;

use crate::labels::{self, exchanged, renamed};
use crate::{
    Admission, Attendance, Call, Collective, Deadline, Error, FaultTolerance, FilePlaces, Frames, ROOT, Rank, SideWork,
    Succession, Traffic,
};

/// One rank of a group in which rank `master` has the backend's place 0.
#[derive(Debug)]
pub struct Led<C>(Renumbered<C>);

impl<C: Collective> Led<C> {
    /// Wraps `inner`, this process's end, whose place is that given by [`Self::place`]. All ranks
    /// name the same master. A nonexistent master is treated as rank 0; the handshake, which all
    /// ranks then reach, refuses it.
    pub fn new(inner: C, master: Rank) -> Self {
        let master = if master < inner.size() { master } else { ROOT };
        Self(Renumbered { inner, master })
    }

    /// Returns the backend's end, and the master.
    pub fn into_parts(self) -> (C, Rank) {
        (self.0.inner, self.0.master)
    }

    /// Returns the backend's end.
    pub fn inner(&self) -> &C {
        &self.0.inner
    }
}

impl Led<()> {
    /// Returns the place that `rank` of a group of `size` has in the backend: the master's is 0.
    pub fn place(master: Rank, rank: Rank, size: usize) -> Rank {
        if master < size { exchanged(master, rank) } else { rank }
    }

    /// Converts the ranks in the error of a group that could not be formed.
    pub fn named(master: Rank, size: usize, error: Error) -> Error {
        if master < size { renamed(error, master) } else { error }
    }
}

impl<C: Collective> Collective for Led<C> {
    fn rank(&self) -> Rank {
        self.0.exchanged(self.0.inner.rank())
    }

    fn size(&self) -> usize {
        self.0.inner.size()
    }

    fn root(&self) -> Rank {
        self.0.exchanged(self.0.inner.root())
    }

    fn backend(&self) -> &'static str {
        self.0.inner.backend()
    }

    fn signals_reach_all(&self) -> bool {
        self.0.inner.signals_reach_all()
    }

    fn gather(
        &mut self,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        labels::gather(&mut self.0.inner, self.0.master, participants, payload, frames, deadline)
    }

    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        let told = self.0.inner.broadcast(buffer, deadline);
        self.0.own(told)
    }

    fn scatter(&mut self, frames: &Frames, own: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        labels::scatter(&mut self.0.inner, self.0.master, frames, own, deadline)
    }

    fn allgather(&mut self, payload: &[u8], frames: &mut Frames, deadline: &Deadline) -> Result<(), Error> {
        let gathered = self.0.inner.allgather(payload, frames, deadline);
        self.0.own(gathered)?;
        if self.0.master != ROOT {
            *frames = labels::swapped(frames, self.0.master);
        }
        Ok(())
    }

    fn call(&mut self, word: &[u8]) -> Result<(), Error> {
        let said = self.0.inner.call(word);
        self.0.own(said)
    }

    fn calls(&mut self) -> Result<Vec<Call>, Error> {
        labels::calls(&mut self.0.inner, self.0.master)
    }

    fn work_while_waiting(&mut self, work: Arc<dyn SideWork>) -> bool {
        self.0.inner.work_while_waiting(labels::work_by_rank(work, self.0.master))
    }

    fn traffic(&self) -> Traffic {
        self.0.inner.traffic()
    }

    fn abort(&mut self, reason: &str) {
        self.0.inner.abort(reason);
    }

    fn fault_tolerance(&mut self) -> Option<&mut dyn FaultTolerance> {
        let has_part = self.0.inner.fault_tolerance().is_some();
        has_part.then_some(&mut self.0)
    }

    fn admission(&mut self) -> Option<&mut dyn Admission> {
        let has_part = self.0.inner.admission().is_some();
        has_part.then_some(&mut self.0)
    }

    fn succession(&mut self) -> Option<&mut dyn Succession> {
        let has_part = self.0.inner.succession().is_some();
        has_part.then_some(&mut self.0)
    }
}

/// The backend's end and the conversion of its ranks. This type is separate, and private, so that
/// its optional parts can be used only through the accessors of [`Led`], which check that the
/// backend has them.
#[derive(Debug)]
struct Renumbered<C> {
    inner: C,
    master: Rank,
}

impl<C: Collective> Renumbered<C> {
    fn own<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| renamed(error, self.master))
    }

    fn exchanged(&self, rank: Rank) -> Rank {
        exchanged(self.master, rank)
    }

    fn fault_tolerance(&mut self) -> &mut dyn FaultTolerance {
        self.inner.fault_tolerance().expect(HAS_PART)
    }

    fn admission(&mut self) -> &mut dyn Admission {
        self.inner.admission().expect(HAS_PART)
    }

    fn succession(&mut self) -> &mut dyn Succession {
        self.inner.succession().expect(HAS_PART)
    }
}

impl<C: Collective> FaultTolerance for Renumbered<C> {
    fn continue_without_lost(&mut self, notice: Vec<u8>) -> Result<(), Error> {
        let begun = self.fault_tolerance().continue_without_lost(notice);
        self.own(begun)
    }

    fn attendance(&mut self) -> Attendance {
        labels::attendance(self.fault_tolerance().attendance(), self.master)
    }
}

impl<C: Collective> Admission for Renumbered<C> {
    fn missing(&mut self) -> Vec<Rank> {
        let places = self.admission().missing();
        places.into_iter().map(|place| self.exchanged(place)).collect()
    }

    fn receive_files(&mut self, places: Arc<dyn FilePlaces>) {
        let master = self.master;
        self.admission().receive_files(Arc::new(PlacesOfRanks { places, master }));
    }

    fn admit(&mut self, rank: Rank, verdict: Result<(), String>) -> bool {
        let place = self.exchanged(rank);
        self.admission().admit(place, verdict)
    }

    fn end_admission(&mut self) {
        self.admission().end_admission();
    }

    fn superseding_root(&mut self) -> Option<Rank> {
        let place = self.admission().superseding_root()?;
        Some(self.exchanged(place))
    }

    fn notice(&mut self) -> Option<Vec<u8>> {
        self.admission().notice()
    }

    fn rejoin(&mut self, statement: &[u8], deadline: &Deadline) -> Result<(), Error> {
        let rejoined = self.admission().rejoin(statement, deadline);
        self.own(rejoined)
    }

    fn root_is_alive(&mut self) -> bool {
        self.admission().root_is_alive()
    }

    fn reconnect(&mut self, deadline: &Deadline) -> Result<(), Error> {
        let connected = self.admission().reconnect(deadline);
        self.own(connected)
    }
}

impl<C: Collective> Succession for Renumbered<C> {
    fn stand_by(&mut self) -> Result<Vec<SocketAddr>, Error> {
        let standing = self.succession().stand_by();
        self.own(standing)
    }

    fn set_successors(&mut self, successors: &[(Rank, Vec<SocketAddr>)]) {
        let placed = |(rank, addresses): &(Rank, Vec<SocketAddr>)| (self.exchanged(*rank), addresses.clone());
        let line: Vec<_> = successors.iter().map(placed).collect();
        self.succession().set_successors(&line);
    }

    fn root_has_disconnected(&mut self) -> bool {
        self.succession().root_has_disconnected()
    }

    fn succeed(&mut self, there: &[bool], late_by: Duration, deadline: &Deadline) -> Result<Rank, Error> {
        let by_place: Vec<bool> =
            (0..there.len()).map(|place| there.get(self.exchanged(place)) == Some(&true)).collect();
        let successor = self.succession().succeed(&by_place, late_by, deadline);
        Ok(self.exchanged(self.own(successor)?))
    }
}

/// Chooses the places of ranks' files, by the backend's numbers.
#[derive(Debug)]
struct PlacesOfRanks {
    places: Arc<dyn FilePlaces>,
    master: Rank,
}

impl FilePlaces for PlacesOfRanks {
    fn place(&self, rank: Rank, name: &str) -> Result<Option<(OwnFolder, String)>, String> {
        self.places.place(exchanged(self.master, rank), name)
    }
}

const HAS_PART: &str = "`Led` hands out only the parts that its backend has";

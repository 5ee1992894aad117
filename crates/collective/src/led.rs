//! A group led from the start by a rank other than 0.
//!
//! It wraps any backend, for `--master RANK`. Every backend gathers at the process it calls rank 0;
//! here that process is rank `master` of the run, and rank 0 of the run has the number that the
//! backend would have given the master. Nothing else changes, so everything a backend supports (the
//! return of a rank, another root) works for any master.
//!
//! By hand, 4 ranks, master 2: ranks 0, 1, 2, 3 of the run have the places 2, 1, 0, 3 in the
//! backend's group. Rank 2 is lost and the backend's place 3 takes over: rank 3 of the run.

use std::net::SocketAddr;
use std::sync::Arc;

use probe_sync_files::OwnFolder;

use crate::labels::{self, exchanged, renamed};
use crate::{Attendance, Call, Collective, Deadline, Error, FilePlaces, Frames, ROOT, Rank, SideWork, Traffic};

/// One rank of a group in which rank `master` has the backend's place 0.
#[derive(Debug)]
pub struct Led<C> {
    inner: C,
    master: Rank,
}

impl<C: Collective> Led<C> {
    /// Wraps `inner`, this process's end, whose place is that given by [`Self::place`]. All ranks
    /// name the same master. A nonexistent master is treated as rank 0; the handshake, which all
    /// ranks then reach, refuses it.
    pub fn new(inner: C, master: Rank) -> Self {
        let master = if master < inner.size() { master } else { ROOT };
        Self { inner, master }
    }

    /// Returns the backend's end, and the master.
    pub fn into_parts(self) -> (C, Rank) {
        (self.inner, self.master)
    }

    /// Returns the backend's end.
    pub fn inner(&self) -> &C {
        &self.inner
    }

    fn own<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| renamed(error, self.master))
    }

    fn exchanged(&self, rank: Rank) -> Rank {
        exchanged(self.master, rank)
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
        self.exchanged(self.inner.rank())
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn root(&self) -> Rank {
        self.exchanged(self.inner.root())
    }

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    fn signals_reach_all(&self) -> bool {
        self.inner.signals_reach_all()
    }

    fn gather(
        &mut self,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        labels::gather(&mut self.inner, self.master, participants, payload, frames, deadline)
    }

    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        let told = self.inner.broadcast(buffer, deadline);
        self.own(told)
    }

    fn scatter(&mut self, frames: &Frames, own: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        labels::scatter(&mut self.inner, self.master, frames, own, deadline)
    }

    fn allgather(&mut self, payload: &[u8], frames: &mut Frames, deadline: &Deadline) -> Result<(), Error> {
        let gathered = self.inner.allgather(payload, frames, deadline);
        self.own(gathered)?;
        if self.master != ROOT {
            *frames = labels::swapped(frames, self.master);
        }
        Ok(())
    }

    fn call(&mut self, word: &[u8]) -> Result<(), Error> {
        let said = self.inner.call(word);
        self.own(said)
    }

    fn calls(&mut self) -> Result<Vec<Call>, Error> {
        labels::calls(&mut self.inner, self.master)
    }

    fn work_while_waiting(&mut self, work: Arc<dyn SideWork>) {
        self.inner.work_while_waiting(labels::work_by_rank(work, self.master));
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }

    fn missing(&self) -> Vec<Rank> {
        self.inner.missing().into_iter().map(|place| self.exchanged(place)).collect()
    }

    fn go_on_without_lost(&mut self, notice: Vec<u8>) -> Result<(), Error> {
        let begun = self.inner.go_on_without_lost(notice);
        self.own(begun)
    }

    fn receive_files(&mut self, places: Arc<dyn FilePlaces>) {
        self.inner.receive_files(Arc::new(PlacesOfRanks { places, master: self.master }));
    }

    fn let_nobody_back(&mut self) {
        self.inner.let_nobody_back();
    }

    fn attendance(&mut self) -> Attendance {
        labels::attendance(&mut self.inner, self.master)
    }

    fn admit(&mut self, rank: Rank, verdict: Result<(), String>) -> bool {
        self.inner.admit(self.exchanged(rank), verdict)
    }

    fn notice(&mut self) -> Option<Vec<u8>> {
        self.inner.notice()
    }

    fn come_back(&mut self, statement: &[u8], deadline: &Deadline) -> Result<(), Error> {
        let back = self.inner.come_back(statement, deadline);
        self.own(back)
    }

    fn stand_by(&mut self) -> Result<Option<Vec<SocketAddr>>, Error> {
        let standing = self.inner.stand_by();
        self.own(standing)
    }

    fn line_up(&mut self, successors: &[(Rank, Vec<SocketAddr>)]) {
        let placed = |(rank, addresses): &(Rank, Vec<SocketAddr>)| (self.exchanged(*rank), addresses.clone());
        let line: Vec<_> = successors.iter().map(placed).collect();
        self.inner.line_up(&line);
    }

    fn succeed(&mut self, there: &[bool], late_by: std::time::Duration, deadline: &Deadline) -> Result<Rank, Error> {
        let by_place: Vec<bool> =
            (0..there.len()).map(|place| there.get(self.exchanged(place)) == Some(&true)).collect();
        let successor = self.inner.succeed(&by_place, late_by, deadline);
        Ok(self.exchanged(self.own(successor)?))
    }

    fn root_has_gone(&mut self) -> bool {
        self.inner.root_has_gone()
    }

    fn root_is_there(&mut self) -> bool {
        self.inner.root_is_there()
    }

    fn reconnect(&mut self, deadline: &Deadline) -> Result<bool, Error> {
        let connected = self.inner.reconnect(deadline);
        self.own(connected)
    }

    fn superseded_by(&mut self) -> Option<Rank> {
        self.inner.superseded_by().map(|place| self.exchanged(place))
    }

    fn abort(&mut self, reason: &str) {
        self.inner.abort(reason);
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

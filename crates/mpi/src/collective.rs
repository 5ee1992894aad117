//! [`MpiCollective`]: the ranks of a host on their board, the leaders between hosts, behind the one trait.
//!
//! Place in the flow: what a program under `mpirun` gets in place of the TCP backend.
//! On the normal path all ranks drop their end together: they first meet once more, asleep, and only then enter MPI's own
//! collective clean-up, which spins. After any error nothing is freed and MPI is not finalised, because that would wait
//! for ranks that may be gone; the caller ends the job with [`Collective::abort`].
//! What it does not do: choose who takes part, or what the bytes mean; or run beside a launcher, whose MPI it is (`beside`).

use std::time::Duration;

use mpi::ffi;
use mpi::topology::{Communicator as _, SimpleCommunicator};
use mpi::traits::{AsRaw as _, FromRaw as _};
use probe_sync_collective::{Collective, Deadline, Error, Frames, ROOT, Rank, Wait, check_participants};

use crate::board::Board;
use crate::layout::Layout;
use crate::leaders::{Leaders, Report};
use crate::meeting;
use crate::raw::Communicator;
use crate::session::{self, Session};
use crate::window::Window;

/// What can be chosen about the MPI backend.
#[derive(Copy, Clone, Debug, Default)]
pub struct MpiOptions {
    /// Every that many ranks of a host count as a host of their own, so that one machine can play several.
    pub ranks_per_host: Option<usize>,
}

/// One rank of a job under `mpirun`. The thread that makes it owns MPI; the type cannot leave that thread.
pub struct MpiCollective {
    rank: Rank,
    size: usize,
    layout: Layout,
    /// Taken out when the end is dropped, like the following ones.
    parts: Option<PartsOfRank>,
    session: Option<Session>,
    failed: Option<String>,
}

/// What this rank holds of MPI.
struct PartsOfRank {
    comm: Communicator,
    host: Communicator,
    board: Board,
    window: Window,
    /// On a host's leader, when there are several hosts.
    leaders: Option<Leaders>,
}

impl MpiCollective {
    /// Initialises MPI and joins all ranks. Call it before anything in the program can exit, even before arguments are
    /// read: a rank that leaves earlier can hang `mpirun`. If MPI is initialised already, its world is duplicated.
    ///
    /// # Errors
    /// [`Error::Setup`] or [`Error::Backend`] with what MPI says; [`Error::Late`] with the ranks that do not answer.
    pub fn init() -> Result<Self, Error> {
        let session = Session::start()?;
        if session.owns_mpi() {
            meeting::meet()?;
        }
        // SAFETY: MPI is initialised, and the world is valid as long as it is.
        let comm = unsafe { Communicator::duplicate(ffi::RSMPI_COMM_WORLD) }?;
        let mut group = Self::on(comm, MpiOptions::default())?;
        group.session = Some(session);
        Ok(group)
    }

    /// Another group of the same ranks, independent of this one. It must be dropped before this one is.
    ///
    /// # Errors
    /// As [`MpiCollective::init`].
    pub fn duplicate(&self, options: MpiOptions) -> Result<Self, Error> {
        // SAFETY: the communicator is valid as long as `self`.
        Self::on(unsafe { Communicator::duplicate(self.comm()?.handle()) }?, options)
    }

    /// The communicator of all ranks, for calls beside this crate's own.
    ///
    /// # Errors
    /// [`Error::Backend`] after the group has failed.
    pub fn comm(&self) -> Result<&Communicator, Error> {
        match (&self.parts, &self.failed) {
            (Some(parts), None) => Ok(&parts.comm),
            _ => Err(self.unusable("MPI")),
        }
    }

    fn on(comm: Communicator, options: MpiOptions) -> Result<Self, Error> {
        let node = split_by_host(&comm)?;
        let mut lowest = (comm.rank() as u64).to_le_bytes();
        node.broadcast(&mut lowest, 0)?;
        let layout = Layout::new(&comm.allgather(u64::from_le_bytes(lowest))?, options.ranks_per_host);
        let (rank, size) = (comm.rank(), comm.size());
        let own_host = layout.host_of()[rank];
        let Some(host) = node.split(Some(own_host))? else {
            return Err(Error::Backend {
                operation: "MPI_Comm_split",
                reason: "no communicator for a host".to_owned(),
            });
        };
        node.free()?;
        let leaders = comm.split((host.rank() == 0).then_some(0))?;
        let (window, memory) = Window::open(&host)?;
        let mut board = Board::new(memory, layout.ranks(own_host).to_vec(), host.rank());
        let leaders = match leaders {
            Some(leaders) if layout.hosts() > 1 => {
                let handle = leaders.handle();
                // SAFETY: the same communicator; only `progress` is called on this copy, and the board, which calls
                // it, is gone before the communicator is freed.
                let copy = unsafe { Communicator::own(handle) }?;
                // Messages of the last broadcast to other hosts may still need MPI's attention while this leader
                // sleeps until its own ranks come.
                board.work_while_waiting(PROGRESS_EVERY, move || copy.progress());
                Some(Leaders::new(leaders, layout.clone()))
            }
            Some(single) => {
                single.free()?;
                None
            }
            None => None,
        };
        let parts = Some(PartsOfRank { comm, host, board, window, leaders });
        Ok(Self { rank, size, layout, parts, session: None, failed: None })
    }

    /// Runs one operation; afterwards the group is unusable if it failed.
    fn operate(
        &mut self,
        operation: &'static str,
        run: impl FnOnce(&mut PartsOfRank, &Layout, Rank) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (Some(parts), None) = (&mut self.parts, &self.failed) else { return Err(self.unusable(operation)) };
        let result = run(parts, &self.layout, self.rank);
        if let Err(error) = &result {
            self.failed = Some(error.to_string());
        }
        result
    }

    fn unusable(&self, operation: &'static str) -> Error {
        let before = self.failed.as_deref().unwrap_or("it is being dropped");
        Error::Backend { operation, reason: format!("the group had failed before: {before}") }
    }
}

impl PartsOfRank {
    fn gather(
        &mut self,
        layout: &Layout,
        rank: Rank,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        frames.clear();
        let members = layout.ranks(layout.host_of()[rank]);
        if rank != members[0] {
            let takes_part = participants[rank];
            return if takes_part { self.board.publish(payload, &mut Wait::begin("gather", deadline)) } else { Ok(()) };
        }
        let Some(leaders) = &mut self.leaders else {
            return collect(&mut self.board, members, participants, payload, frames, Wait::begin("gather", deadline));
        };
        let mut own = Frames::default();
        // Early, so that the leaders' reports about missing ranks still reach the root within its deadline.
        let wait = Wait::begin_early("gather", deadline);
        let report = match collect(&mut self.board, members, participants, payload, &mut own, wait) {
            Ok(()) => Report::Frames(own),
            Err(Error::Late { missing, .. }) => Report::Missing(missing),
            Err(other) => return Err(other),
        };
        let all = leaders.gather(participants, &report, deadline)?;
        if rank == ROOT {
            merge(layout, &all, frames);
        }
        Ok(())
    }

    fn broadcast(
        &mut self,
        layout: &Layout,
        rank: Rank,
        buffer: &mut Vec<u8>,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        if rank != layout.ranks(layout.host_of()[rank])[0] {
            return self.board.listen(buffer, &mut Wait::begin("broadcast", deadline));
        }
        if let Some(leaders) = &mut self.leaders {
            self.board.leader_waits();
            leaders.broadcast(buffer, deadline)?;
        }
        self.board.announce(buffer, &mut Wait::begin("broadcast", deadline))
    }

    /// Everyone's payload to everyone: to the leaders, between them by `MPI_Iallgatherv`, and from them to their ranks.
    fn allgather(
        &mut self,
        layout: &Layout,
        rank: Rank,
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        let members = layout.ranks(layout.host_of()[rank]);
        let mut encoded = Vec::new();
        if rank != members[0] {
            self.board.publish(payload, &mut Wait::begin("allgather", deadline))?;
            self.board.listen(&mut encoded, &mut Wait::begin("allgather", deadline))?;
            let whole = frames.decode(&encoded) && frames.len() == layout.host_of().len();
            let what = format!("{} bytes that are not everyone's frames", encoded.len());
            return if whole {
                Ok(())
            } else {
                Err(Error::Protocol { operation: "allgather", rank: members[0], what })
            };
        }
        let everyone = vec![true; layout.host_of().len()];
        let wait = Wait::begin_early("allgather", deadline);
        if let Some(leaders) = &mut self.leaders {
            let mut own = Frames::default();
            let report = match collect(&mut self.board, members, &everyone, payload, &mut own, wait) {
                Ok(()) => Report::Frames(own),
                Err(Error::Late { missing, .. }) => Report::Missing(missing),
                Err(other) => return Err(other),
            };
            self.board.leader_waits();
            merge(layout, &leaders.allgather(&report, deadline)?, frames);
        } else {
            collect(&mut self.board, members, &everyone, payload, frames, wait)?;
        }
        frames.encode(&mut encoded);
        self.board.announce(&encoded, &mut Wait::begin("allgather", deadline))
    }

    /// Collective: gives back what MPI lent. The board goes first, because it lies in the window.
    fn free(self) -> Result<(), Error> {
        drop(self.board);
        self.window.free()?;
        if let Some(leaders) = self.leaders {
            leaders.into_comm().free()?;
        }
        self.host.free()?;
        self.comm.free()
    }
}

impl Collective for MpiCollective {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn signals_reach_all(&self) -> bool {
        true
    }

    fn backend(&self) -> &'static str {
        "mpi"
    }

    fn gather(
        &mut self,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        check_participants(self.rank, self.size, participants)?;
        self.operate("gather", |parts, layout, rank| {
            parts.gather(layout, rank, participants, payload, frames, deadline)
        })
    }

    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        self.operate("broadcast", |parts, layout, rank| parts.broadcast(layout, rank, buffer, deadline))
    }

    fn allgather(&mut self, payload: &[u8], frames: &mut Frames, deadline: &Deadline) -> Result<(), Error> {
        self.operate("allgather", |parts, layout, rank| parts.allgather(layout, rank, payload, frames, deadline))
    }

    fn abort(&mut self, reason: &str) {
        self.failed.get_or_insert_with(|| reason.to_owned());
        tracing::error!(rank = self.rank, reason, "ending the job");
        session::abort_job();
    }
}

impl Drop for MpiCollective {
    fn drop(&mut self) {
        if self.failed.is_some() || std::thread::panicking() {
            // The window and the communicators stay until the process ends.
            std::mem::forget(self.parts.take());
            return;
        }
        let deadline = Deadline::new(LAST_ROUND_LIMIT, None);
        let (mut frames, mut nothing) = (Frames::default(), Vec::new());
        let met = self
            .gather(&vec![true; self.size], &[], &mut frames, &deadline)
            .and_then(|()| self.broadcast(&mut nothing, &deadline));
        let freed = met.and_then(|()| self.parts.take().map_or(Ok(()), PartsOfRank::free));
        match (freed, self.session.take()) {
            (Ok(()), Some(session)) => session.finish(),
            (Ok(()), None) => {}
            (Err(error), _) => {
                tracing::warn!(rank = self.rank, %error, "the last gather and broadcast failed; MPI is not finalised");
                std::mem::forget(self.parts.take());
            }
        }
    }
}

/// The ranks that share this host's memory.
fn split_by_host(comm: &Communicator) -> Result<Communicator, Error> {
    // SAFETY: the communicator is valid; `forget` below keeps rsmpi from freeing it.
    let view = unsafe { SimpleCommunicator::from_raw(comm.handle()) };
    let node = view.split_shared(view.rank());
    let handle = node.as_raw();
    std::mem::forget((view, node));
    // SAFETY: made by the split above, and forgotten by rsmpi.
    unsafe { Communicator::own(handle) }
}

/// Leader: the frames of its host's ranks in order, its own payload first.
fn collect(
    board: &mut Board,
    members: &[Rank],
    participants: &[bool],
    payload: &[u8],
    frames: &mut Frames,
    mut wait: Wait<'_>,
) -> Result<(), Error> {
    frames.clear();
    let others: Vec<usize> = (1..members.len()).filter(|&member| participants[members[member]]).collect();
    frames.push(if participants[members[0]] { payload } else { &[] });
    let deliver = |member, bytes: &[u8]| {
        while frames.len() < member {
            frames.push(&[]);
        }
        frames.push(bytes);
    };
    board.collect(&others, deliver, &mut wait)?;
    while frames.len() < members.len() {
        frames.push(&[]);
    }
    Ok(())
}

/// The frames of all hosts in order of rank. A host that took no part has none.
fn merge(layout: &Layout, hosts: &[Frames], frames: &mut Frames) {
    frames.clear();
    let mut next = vec![0; layout.hosts()];
    for &host in layout.host_of() {
        let place = next[host];
        next[host] += 1;
        match hosts.get(host) {
            Some(of_host) if place < of_host.len() => frames.push(of_host.frame(place)),
            _ => frames.push(&[]),
        }
    }
}

/// How long the gather and broadcast before the end may take.
const LAST_ROUND_LIMIT: Duration = Duration::from_secs(60);

/// How often a sleeping leader lets MPI move messages to other hosts.
const PROGRESS_EVERY: Duration = Duration::from_millis(10);

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
use probe_sync_collective::{
    Call, Collective, Deadline, Error, Frames, Rank, Traffic, check_frames, check_participants, check_word,
};

use crate::layout::Layout;
use crate::meeting;
use crate::operation::{Kind, Operation};
use crate::parts::PartsOfRank;
use crate::raw::Communicator;
use crate::session::{self, Session};

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
    /// Operations so far; equal on all ranks.
    operations: u64,
    failed: Option<String>,
    /// Of the words; the operations' are counted where they are carried.
    traffic: Traffic,
}

impl MpiCollective {
    /// Initialises MPI and joins all ranks. Call it before anything in the program can exit, even before arguments are
    /// read: a rank that leaves earlier can hang `mpirun`. If MPI is initialised already, its world is duplicated; then this is the
    /// thread that initialised it, or its level is `MPI_THREAD_MULTIPLE`, and no panic of this process ends the job. Where MPI is ours, a panic that
    /// unwinds past this value ends it.
    ///
    /// # Errors
    /// [`Error::Setup`], also where this thread may not call MPI, or [`Error::Backend`] with what MPI says; [`Error::Late`] with the ranks that do not answer.
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
        let parts = Some(PartsOfRank::new(comm, host, leaders, &layout)?);
        Ok(Self { rank, size, layout, parts, session: None, operations: 0, failed: None, traffic: Traffic::default() })
    }

    /// Runs one operation; afterwards the group is unusable if it failed.
    fn operate(
        &mut self,
        kind: Kind,
        run: impl FnOnce(&mut PartsOfRank, Operation, &Layout) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let operation = Operation::new(self.operations, kind);
        self.operations += 1;
        let (Some(parts), None) = (&mut self.parts, &self.failed) else { return Err(self.unusable(operation.name())) };
        let result = run(parts, operation, &self.layout);
        if let Err(error) = &result {
            self.failed = Some(error.to_string());
        }
        result
    }

    /// What is said or heard beside the operations; afterwards the group is unusable if it failed.
    fn speak<T>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(&mut PartsOfRank, &mut Traffic) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (Some(parts), None) = (&mut self.parts, &self.failed) else { return Err(self.unusable(name)) };
        let result = run(parts, &mut self.traffic);
        if let Err(error) = &result {
            self.failed = Some(error.to_string());
        }
        result
    }

    /// All ranks let go of their ends: they meet once more, asleep, so that nobody spins in MPI's own clean-up for long.
    fn part(&mut self) -> Result<(), Error> {
        let deadline = Deadline::new(LAST_ROUND_LIMIT, None);
        let everyone = vec![true; self.size];
        self.speak("end of the group", |parts, _| parts.flush())?;
        self.operate(Kind::Farewell, |parts, operation, layout| {
            parts.gather(operation, layout, &everyone, &[], &mut Frames::default(), &deadline)?;
            parts.broadcast(operation, layout, &mut Vec::new(), &deadline)
        })?;
        self.parts.take().map_or(Ok(()), PartsOfRank::free)
    }

    fn unusable(&self, operation: &'static str) -> Error {
        let before = self.failed.as_deref().unwrap_or("it is being dropped");
        Error::Backend { operation, reason: format!("the group had failed before: {before}") }
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
        self.operate(Kind::Gather, |parts, operation, layout| {
            parts.gather(operation, layout, participants, payload, frames, deadline)
        })
    }

    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        self.operate(Kind::Broadcast, |parts, operation, layout| parts.broadcast(operation, layout, buffer, deadline))
    }

    fn scatter(&mut self, frames: &Frames, own: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        check_frames((self.rank, self.root()), self.size, frames)?;
        self.operate(Kind::Scatter, |parts, operation, layout| parts.scatter(operation, layout, frames, own, deadline))
    }

    fn allgather(&mut self, payload: &[u8], frames: &mut Frames, deadline: &Deadline) -> Result<(), Error> {
        self.operate(Kind::Allgather, |parts, operation, layout| {
            parts.allgather(operation, layout, payload, frames, deadline)
        })
    }

    fn call(&mut self, word: &[u8]) -> Result<bool, Error> {
        check_word(self.rank, word)?;
        self.speak("call", |parts, traffic| parts.call(word, traffic))?;
        Ok(true)
    }

    fn calls(&mut self) -> Result<Vec<Call>, Error> {
        self.speak("calls", |parts, traffic| parts.calls(traffic))
    }

    fn traffic(&self) -> Traffic {
        let mut sum = self.parts.as_ref().map_or_else(Traffic::default, PartsOfRank::traffic);
        sum.messages_sent += self.traffic.messages_sent;
        sum.messages_received += self.traffic.messages_received;
        sum.bytes_sent += self.traffic.bytes_sent;
        sum.bytes_received += self.traffic.bytes_received;
        sum
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
        let parted = self.part();
        match (parted, self.session.take()) {
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

/// How long the gather and broadcast before the end may take.
const LAST_ROUND_LIMIT: Duration = Duration::from_secs(60);

//! [`MpiCollective`]: the ranks of a host on their board, the leaders between hosts, behind the one trait.
//!
//! Normally all ranks drop their end together: they first meet once more, asleep, and only then
//! enter MPI's own collective clean-up, which spins. After an error nothing is freed and MPI is not
//! finalised, because that would wait for ranks that may be gone; the caller ends the job with
//! [`Collective::abort`]. If a rank is lost and MPI continues (`survival`), the operations in
//! progress are repeated, and again nothing is freed and MPI is not finalised. If the root is lost,
//! the caller asks for another ([`Succession::succeed`]) and repeats its operation. It does not run
//! inside a launcher that owns MPI (`beside`).

use std::net::SocketAddr;
use std::time::Duration;

use mpi::ffi;
use mpi::topology::{Communicator as _, SimpleCommunicator};
use mpi::traits::{AsRaw as _, FromRaw as _};
use probe_sync_collective::{
    Call, Collective, Deadline, Error, FaultTolerance, Frames, ROOT, Rank, Succession, Traffic, check_frames,
    check_participants, check_word,
};

use crate::kept::Part;
use crate::layout::Layout;
use crate::meeting;
use crate::operation::Kind;
use crate::parts::PartsOfRank;
use crate::raw::Communicator;
use crate::session::{self, Session};
use crate::survival::Survival;
use crate::ulfm::Ulfm;

/// Options of the MPI backend.
#[derive(Copy, Clone, Debug, Default)]
pub struct MpiOptions {
    /// Number of ranks of a host that count as a host of their own, so that one machine can act as
    /// several.
    pub ranks_per_host: Option<usize>,
}

/// One rank of a job under `mpirun`. The thread that creates it owns MPI; the type cannot leave
/// that thread.
pub struct MpiCollective {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    pub(crate) layout: Layout,
    /// The layout when all ranks were present.
    pub(crate) whole: Layout,
    /// Taken out on drop, as are the following ones.
    pub(crate) parts: Option<PartsOfRank>,
    pub(crate) session: Option<Session>,
    /// Present if MPI continues after a rank is lost.
    pub(crate) survival: Option<Survival>,
    /// Operations so far; equal on all ranks.
    pub(crate) operations: u64,
    pub(crate) failed: Option<String>,
    /// The root is lost, and no other rank has taken over yet.
    pub(crate) rootless: bool,
    /// The others continue without this rank.
    pub(crate) dismissed: bool,
    /// Traffic of the messages outside operations, and of parts that ranks were lost from; that of
    /// operations is counted where it is carried.
    pub(crate) traffic: Traffic,
}

impl MpiCollective {
    /// Initialises MPI and joins all ranks. Call it before anything in the program can exit, even
    /// before arguments are read: a rank that leaves earlier can hang `mpirun`. If MPI is
    /// initialised already, its world is duplicated; this must then be the thread that initialised
    /// it, or its level must be `MPI_THREAD_MULTIPLE`, and a panic of this process does not end the
    /// job. If MPI was initialised here, a panic that unwinds past this value ends the job.
    ///
    /// # Errors
    /// [`Error::Setup`], also if this thread may not call MPI, or [`Error::Backend`] with MPI's
    /// error; [`Error::Late`] with the ranks that do not answer.
    pub fn init() -> Result<Self, Error> {
        Self::init_placed(|rank, _| rank)
    }

    /// As [`MpiCollective::init`], with the rank of a process in this group given by `place(r, n)`,
    /// where r is its rank among the n of MPI's world; ranks with the same place keep their order
    /// in the world.
    ///
    /// # Errors
    /// As [`MpiCollective::init`].
    pub fn init_placed(place: impl FnOnce(Rank, usize) -> Rank) -> Result<Self, Error> {
        let session = Session::start()?;
        if session.owns_mpi() {
            meeting::meet()?;
        }
        // SAFETY: MPI is initialised, and the world is valid as long as it is.
        let comm = unsafe { Communicator::placed(ffi::RSMPI_COMM_WORLD, place) }?;
        let mut group = Self::on(comm, MpiOptions::default())?;
        group.session = Some(session);
        Ok(group)
    }

    /// Creates another group of the same ranks, independent of this one. It must be dropped before
    /// this one.
    ///
    /// # Errors
    /// As [`MpiCollective::init`].
    pub fn duplicate(&self, options: MpiOptions) -> Result<Self, Error> {
        // SAFETY: the communicator is valid as long as `self`.
        Self::on(unsafe { Communicator::duplicate(self.comm()?.handle()) }?, options)
    }

    /// The communicator of all ranks, for calls outside this crate.
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
        let survival = match Ulfm::find() {
            Some(ulfm) => {
                // SAFETY: the communicator is valid, and all its ranks were started by one mpirun,
                // with the same parameters.
                let [base, all] = [(); 2].map(|()| unsafe { Communicator::duplicate(comm.handle()) });
                Some(Survival::new(ulfm, base?, all?))
            }
            None => None,
        };
        let survives = survival.as_ref().map(|survival| (survival.ulfm(), survival.watch()));
        let parts = Some(PartsOfRank::new(comm, host, leaders, &layout, survives)?);
        let traffic = Traffic::default();
        Ok(Self {
            rank,
            size,
            whole: layout.clone(),
            layout,
            parts,
            session: None,
            survival,
            operations: 0,
            failed: None,
            rootless: false,
            dismissed: false,
            traffic,
        })
    }

    /// Sends or receives outside the operations; the group is unusable afterwards if it failed.
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

    /// All ranks leave: they meet once more, asleep, so that none spins in MPI's own clean-up for
    /// long.
    fn part(&mut self) -> Result<(), Error> {
        let deadline = Deadline::new(LAST_ROUND_LIMIT, None);
        let everyone = vec![true; self.size];
        self.speak("end of the group", |parts, _| parts.flush())?;
        self.operate(
            Kind::Farewell,
            &deadline,
            || Part::Farewell,
            |parts, operation, layout, _, deadline| {
                parts.gather(operation, layout, &everyone, &[], &mut Frames::default(), deadline)?;
                parts.broadcast(operation, layout, &mut Vec::new(), deadline)
            },
        )?;
        if self.lost_any() {
            if let Some(survival) = &self.survival {
                survival.linger();
            }
            // To free is collective over ranks that are gone.
            std::mem::forget(self.parts.take());
        }
        self.parts.take().map_or(Ok(()), PartsOfRank::free)
    }

    /// Leaves the group, as dropping it does. The launcher waits for all processes of the job, so a
    /// hung process keeps it from ending: at the root, if MPI was initialised here and continues
    /// after a loss, this returns the ranks that hang once all others have ended, or seconds later.
    /// When the caller has nothing more to do or print, it ends the job with its own status
    /// ([`crate::end_job`]).
    pub fn leave(mut self) -> Vec<Rank> {
        self.let_go(true)
    }

    /// Leaves the others, on the normal path; returns which ranks hang then, if requested.
    fn let_go(&mut self, asks_who_hangs: bool) -> Vec<Rank> {
        if self.parts.is_none() {
            return Vec::new();
        }
        if self.failed.is_some() || self.rootless || std::thread::panicking() {
            // The window and the communicators stay until the process ends.
            std::mem::forget(self.parts.take());
            return Vec::new();
        }
        let parted = self.part();
        match (parted, self.session.take()) {
            // MPI_Finalize would wait for ranks that are gone (Open MPI 5.0.11 does).
            (Ok(()), Some(session)) if self.lost_any() => {
                let asks = asks_who_hangs && session.owns_mpi() && self.rank == self.root();
                let survival = self.survival.as_ref().filter(|_| asks);
                return survival.map(|survival| survival.alone_with_hung(LEAVING_LIMIT)).unwrap_or_default();
            }
            (Ok(()), Some(session)) => session.finish(),
            (Ok(()), None) => {}
            (Err(error), _) => {
                tracing::warn!(rank = self.rank, %error, "the last gather and broadcast failed; MPI is not finalised");
                std::mem::forget(self.parts.take());
            }
        }
        Vec::new()
    }

    /// Whether ranks were lost without which the group continues.
    fn lost_any(&self) -> bool {
        self.survival.as_ref().is_some_and(Survival::lost_any)
    }

    pub(crate) fn unusable(&self, operation: &'static str) -> Error {
        let before = self.failed.as_deref().unwrap_or("it is being dropped");
        Error::Backend { operation, reason: format!("the group had already failed: {before}") }
    }
}

impl Collective for MpiCollective {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn root(&self) -> Rank {
        self.survival.as_ref().map_or(ROOT, Survival::root)
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
        check_participants((self.rank, self.root()), self.size, participants)?;
        let brings = || Part::Gather { participants: participants.to_vec(), payload: payload.to_vec() };
        self.operate(Kind::Gather, deadline, brings, |parts, operation, layout, _, deadline| {
            parts.gather(operation, layout, participants, payload, frames, deadline)
        })
    }

    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        // A broadcast that ends half-way leaves the root's buffer half empty.
        let own = if self.rank == self.root() && self.survival.is_some() { buffer.clone() } else { Vec::new() };
        let (brings, kept) = (|| Part::Broadcast(own.clone()), &own);
        self.operate(Kind::Broadcast, deadline, brings, |parts, operation, layout, _, deadline| {
            if !kept.is_empty() {
                buffer.clone_from(kept);
            }
            parts.broadcast(operation, layout, buffer, deadline)
        })
    }

    fn scatter(&mut self, frames: &Frames, own: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        check_frames((self.rank, self.root()), self.size, frames)?;
        let at_root = self.rank == self.root();
        let brings = || Part::Scatter(if at_root { frames.clone() } else { Frames::default() });
        self.operate(Kind::Scatter, deadline, brings, |parts, operation, layout, _, deadline| {
            parts.scatter(operation, layout, frames, own, deadline)
        })
    }

    fn allgather(&mut self, payload: &[u8], frames: &mut Frames, deadline: &Deadline) -> Result<(), Error> {
        let (root, size) = (self.root(), self.size);
        let brings = || Part::Allgather;
        self.operate(Kind::Allgather, deadline, brings, |parts, operation, layout, holder, deadline| {
            let Some(holder) = holder else { return parts.allgather(operation, layout, payload, frames, deadline) };
            let mut encoded = Vec::new();
            parts.pass_on(operation, layout, holder, &mut encoded, deadline)?;
            if frames.decode(&encoded) && frames.len() == size {
                return Ok(());
            }
            let what = format!("{} bytes that are not everyone's frames", encoded.len());
            Err(Error::Protocol { operation: operation.name(), rank: root, what })
        })?;
        if let Some(survival) = &mut self.survival {
            survival.kept().keep_result(frames);
        }
        Ok(())
    }

    fn call(&mut self, word: &[u8]) -> Result<(), Error> {
        check_word(self.rank, word)?;
        self.speak("call", |parts, traffic| parts.call(word, traffic))
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
        if self.dismissed {
            tracing::error!(rank = self.rank, reason, "this rank ends; the others continue without it");
            return;
        }
        self.failed.get_or_insert_with(|| reason.to_owned());
        tracing::error!(rank = self.rank, reason, "ending the job");
        session::abort_job();
    }

    fn fault_tolerance(&mut self) -> Option<&mut dyn FaultTolerance> {
        self.survival.as_mut().map(|survival| survival as _)
    }

    fn succession(&mut self) -> Option<&mut dyn Succession> {
        if self.survival.is_some() { Some(self) } else { None }
    }
}

impl Succession for MpiCollective {
    fn stand_by(&mut self) -> Result<Vec<SocketAddr>, Error> {
        // It is reached over MPI.
        Ok(Vec::new())
    }

    fn set_successors(&mut self, successors: &[(Rank, Vec<SocketAddr>)]) {
        if let Some(survival) = &mut self.survival {
            survival.line_up(successors.iter().map(|(rank, _)| *rank).collect());
        }
    }

    fn root_has_disconnected(&mut self) -> bool {
        self.rootless || self.survival.as_ref().is_some_and(Survival::root_has_failed)
    }

    fn succeed(&mut self, there: &[bool], late_by: Duration, deadline: &Deadline) -> Result<Rank, Error> {
        let (Some(survival), None) = (&mut self.survival, &self.failed) else {
            return Err(self.unusable("succession"));
        };
        let settled = survival.succeed(self.operations, there, late_by, deadline);
        let (root, next) = settled.map_err(|error| self.remember(error))?;
        (self.operations, self.rootless) = (next, false);
        let rebuilt = self.rebuild(deadline).and_then(|rebuilt| {
            // Another is lost already; nobody has begun an operation that the others had not.
            if rebuilt { Ok(()) } else { self.go_on(next, deadline).map(|_| ()) }
        });
        rebuilt.map_err(|error| self.remember(error))?;
        Ok(root)
    }
}

impl Drop for MpiCollective {
    fn drop(&mut self) {
        self.let_go(false);
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
/// How long the others may take to end when everything is done.
const LEAVING_LIMIT: Duration = Duration::from_secs(5);

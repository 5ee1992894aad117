//! [`MpiCollective`]: the ranks of a host on their board, the leaders between hosts, behind the one trait.
//!
//! Place in the flow: what a program under `mpirun` gets in place of the TCP backend.
//! On the normal path all ranks drop their end together: they first meet once more, asleep, and only then enter MPI's own
//! collective clean-up, which spins. After any error nothing is freed and MPI is not finalised, because that would wait
//! for ranks that may be gone; the caller ends the job with [`Collective::abort`].
//! Where a rank is lost and MPI goes on (`survival`), what was under way is repeated; then, too, nothing is freed and MPI is not finalised. Where it is the root, the caller asks for
//! another ([`Collective::succeed`]) and repeats it.
//! What it does not do: choose who takes part, or what the bytes mean; or run beside a launcher, whose MPI it is (`beside`).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mpi::ffi;
use mpi::topology::{Communicator as _, SimpleCommunicator};
use mpi::traits::{AsRaw as _, FromRaw as _};
use probe_sync_collective::{
    Attendance, Call, Collective, Deadline, Error, Frames, ROOT, Rank, Traffic, check_frames, check_participants,
    check_word,
};

use crate::layout::Layout;
use crate::meeting;
use crate::operation::{Kind, Operation};
use crate::parts::PartsOfRank;
use crate::raw::Communicator;
use crate::session::{self, Session};
use crate::survival::{Part, Resume, Survival};
use crate::ulfm::Ulfm;

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
    /// As it was when all were there.
    whole: Layout,
    /// Taken out when the end is dropped, like the following ones.
    parts: Option<PartsOfRank>,
    session: Option<Session>,
    /// Where MPI goes on after a rank is lost.
    survival: Option<Survival>,
    /// Operations so far; equal on all ranks.
    operations: u64,
    failed: Option<String>,
    /// The root is lost, and no other has taken its place yet.
    rootless: bool,
    /// The others go on without this rank.
    dismissed: bool,
    /// Of the words, and of parts that ranks were lost from; the operations' are counted where they are carried.
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
        Self::init_placed(|rank, _| rank)
    }

    /// As [`MpiCollective::init`], where a process of rank r among n of MPI's world has the rank `place(r, n)` in this group; ranks that name the same place
    /// follow each other there as in the world.
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
        let survival = match Ulfm::find() {
            Some(ulfm) => {
                // SAFETY: the communicator is valid, and all its ranks were started by one mpirun, with the same parameters.
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

    /// Runs one operation, again where a rank was lost meanwhile; afterwards the group is unusable if it failed. `brings` is what this rank must bring once
    /// more where others lack it. `run` is told the rank that has finished the operation already, if there is one.
    fn operate(
        &mut self,
        kind: Kind,
        deadline: &Deadline,
        brings: impl FnOnce() -> Part,
        mut run: impl FnMut(&mut PartsOfRank, Operation, &Layout, Option<Rank>, &Deadline) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.rootless {
            let reason = "the root is lost, and no other has taken its place".to_owned();
            return Err(Error::Lost { operation: kind.name(), rank: self.root(), reason });
        }
        let (operation, begun) = (Operation::new(self.operations, kind), Instant::now());
        self.operations += 1;
        if let Some(survival) = &mut self.survival {
            survival.keep(operation, brings());
        }
        let mut resume = Resume { at: operation.number(), holder: None };
        let mut limit = deadline.clone();
        // Bounded: every time round there is one rank less, or one that was late has come.
        let mut rounds = 0..2 * self.size + LATE_MAX;
        let result = loop {
            let result = self.repeat_until(operation, &mut resume, &limit).and_then(|holder| {
                let (Some(parts), None) = (&mut self.parts, &self.failed) else {
                    return Err(self.unusable(operation.name()));
                };
                run(parts, operation, &self.layout, holder, &limit)
            });
            match result {
                Err(error) if self.may_go_on_after(&error) && rounds.next().is_some() => {
                    tracing::debug!(rank = self.rank, %error, "a rank is lost or late");
                    match self.go_on(operation.number(), &limit) {
                        Ok(agreed) => resume = agreed,
                        Err(error) => break Err(error),
                    }
                    // What has failed may have taken all of the time.
                    limit = deadline.extended(begun.elapsed() + REPEAT_LIMIT);
                }
                result => break result,
            }
        };
        result.map_err(|error| self.remember(error))
    }

    /// What an error leaves of the group: another root may take a lost one's place, and a rank without which the others go on ends nobody's run but its own.
    fn remember(&mut self, error: Error) -> Error {
        let root = self.root();
        let root_lost = match &error {
            Error::Lost { rank, .. } => *rank == root,
            Error::Late { missing, interrupted: false, .. } => *missing == [root],
            _ => false,
        };
        self.dismissed |= matches!(error, Error::Dismissed { .. });
        if root_lost && self.rank != root && self.survival.as_ref().is_some_and(Survival::has_line) {
            self.rootless = true;
        } else {
            self.failed.get_or_insert_with(|| error.to_string());
        }
        error
    }

    /// Whether what has failed is repeated by those who are left.
    fn may_go_on_after(&self, error: &Error) -> bool {
        let (Some(survival), None) = (&self.survival, &self.failed) else { return false };
        let watch = survival.watch();
        match error {
            Error::Late { interrupted: false, .. } if survival.leaves_late_ranks_out() => true,
            // MPI may refuse a message to a rank before it says that this rank has failed.
            Error::Backend { .. } => {
                let begun = Instant::now();
                while !watch.sees_loss() && begun.elapsed() < NEWS_LIMIT {
                    std::thread::sleep(NEWS_PAUSE);
                }
                watch.sees_loss()
            }
            _ => watch.sees_loss(),
        }
    }

    /// Brings once more what others lack of the operations before this one; `resume` keeps count. The rank that has finished this one already.
    fn repeat_until(
        &mut self,
        operation: Operation,
        resume: &mut Resume,
        deadline: &Deadline,
    ) -> Result<Option<Rank>, Error> {
        while resume.at < operation.number() {
            let (Some(parts), Some(survival)) = (&mut self.parts, &self.survival) else {
                return Err(self.unusable(operation.name()));
            };
            let (missed, part) = survival.kept(resume.at)?;
            let layout = &self.layout;
            match (part, resume.holder) {
                (Part::Gather { participants, payload }, _) => {
                    parts.gather(missed, layout, &participants, &payload, &mut Frames::default(), deadline)?;
                }
                (Part::Broadcast(mut bytes), _) => parts.broadcast(missed, layout, &mut bytes, deadline)?,
                (Part::Scatter(frames), _) => parts.scatter(missed, layout, &frames, &mut Vec::new(), deadline)?,
                (Part::Allgathered(mut encoded), Some(holder)) => {
                    parts.pass_on(missed, layout, holder, &mut encoded, deadline)?;
                }
                (Part::Allgathered(_) | Part::Allgather | Part::Farewell, _) => {
                    let reason = format!("operation {} cannot be repeated", resume.at);
                    return Err(Error::Backend { operation: missed.name(), reason });
                }
            }
            *resume = Resume { at: resume.at + 1, holder: None };
        }
        Ok(resume.holder)
    }

    /// All ranks that are left agree where they are, `at` on this one, and make of what they have a group without those who are lost.
    fn go_on(&mut self, at: u64, deadline: &Deadline) -> Result<Resume, Error> {
        // Bounded: every time round there is one rank less.
        loop {
            let Some(survival) = &mut self.survival else {
                return Err(self.unusable("going on without lost ranks"));
            };
            let begun = Instant::now();
            let resume = survival.agree(at, deadline)?;
            let (agreed, rebuilt) = (begun.elapsed(), self.rebuild(deadline)?);
            tracing::debug!(rank = self.rank, at, resume.at, ?agreed, took = ?begun.elapsed(), rebuilt, "ranks were lost");
            if rebuilt {
                return Ok(resume);
            }
        }
    }

    /// Makes what the group needs without those who are lost; false when another is lost meanwhile.
    fn rebuild(&mut self, deadline: &Deadline) -> Result<bool, Error> {
        let (Some(parts), Some(survival)) = (&mut self.parts, &self.survival) else {
            return Err(self.unusable("going on without lost ranks"));
        };
        let before = parts.traffic();
        self.layout = self.whole.without(survival.lost(), survival.hung(), survival.root());
        match parts.leave_out(&self.layout, survival, &deadline.extended(REBUILD_LIMIT)) {
            Ok(()) => {
                self.traffic = self.traffic.plus(before);
                Ok(true)
            }
            Err(_) if survival.watch().sees_loss() => Ok(false),
            Err(error) => Err(error),
        }
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

    /// The launcher waits for all processes of the job: one that hangs would keep it from ending.
    fn end_those_who_hang(&self, session: &Session) {
        let Some(survival) = self.survival.as_ref().filter(|_| session.owns_mpi() && self.rank == self.root()) else {
            return;
        };
        let hung = survival.alone_with_hung(LEAVING_LIMIT);
        if !hung.is_empty() {
            let numbers = hung.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            tracing::warn!("all is done; the process of rank(s) {numbers} still hangs, and the job is ended for that");
            session::end_job(0);
        }
    }

    /// Ranks are gone without which the group goes on.
    fn lost_any(&self) -> bool {
        self.survival.as_ref().is_some_and(Survival::lost_any)
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
            survival.keep_result(frames);
        }
        Ok(())
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

    fn go_on_without_lost(&mut self, _notice: Vec<u8>) -> Result<(), Error> {
        if let Some(survival) = &mut self.survival {
            survival.go_on();
        }
        Ok(())
    }

    fn attendance(&mut self) -> Attendance {
        let left = self.survival.as_mut().map(Survival::take_left).unwrap_or_default();
        Attendance { left, back: Vec::new() }
    }

    fn stand_by(&mut self) -> Result<Option<Vec<SocketAddr>>, Error> {
        // It is reached over MPI.
        Ok(self.survival.is_some().then(Vec::new))
    }

    fn line_up(&mut self, successors: &[(Rank, Vec<SocketAddr>)]) {
        if let Some(survival) = &mut self.survival {
            survival.line_up(successors.iter().map(|(rank, _)| *rank).collect());
        }
    }

    fn root_has_gone(&mut self) -> bool {
        self.rootless || self.survival.as_ref().is_some_and(Survival::root_has_failed)
    }

    fn succeed(&mut self, of: usize, late_by: Duration, deadline: &Deadline) -> Result<Rank, Error> {
        let (Some(survival), None) = (&mut self.survival, &self.failed) else {
            return Err(self.unusable("succession"));
        };
        let settled = survival.succeed(self.operations, of, late_by, deadline);
        let (root, next) = settled.map_err(|error| self.remember(error))?;
        (self.operations, self.rootless) = (next, false);
        let rebuilt = self.rebuild(deadline).and_then(|rebuilt| {
            // Another is lost already; nobody has begun an operation that the others had not.
            if rebuilt { Ok(()) } else { self.go_on(next, deadline).map(|_| ()) }
        });
        rebuilt.map_err(|error| self.remember(error))?;
        Ok(root)
    }

    fn abort(&mut self, reason: &str) {
        if self.dismissed {
            tracing::error!(rank = self.rank, reason, "this rank ends; the others go on without it");
            return;
        }
        self.failed.get_or_insert_with(|| reason.to_owned());
        tracing::error!(rank = self.rank, reason, "ending the job");
        session::abort_job();
    }
}

impl Drop for MpiCollective {
    fn drop(&mut self) {
        if self.failed.is_some() || self.rootless || std::thread::panicking() {
            // The window and the communicators stay until the process ends.
            std::mem::forget(self.parts.take());
            return;
        }
        let parted = self.part();
        match (parted, self.session.take()) {
            // MPI_Finalize would wait for ranks that are gone (Open MPI 5.0.11 does).
            (Ok(()), Some(session)) if self.lost_any() => {
                self.end_those_who_hang(&session);
                drop(session);
            }
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

/// Beyond what an operation has taken already, for its repetition.
const REPEAT_LIMIT: Duration = Duration::from_secs(5);
/// How long the ranks of a host may wait for the one that makes their board anew; where it is lost they learn of that.
const REBUILD_LIMIT: Duration = Duration::from_secs(30);
/// How long the others may take to end when all is done.
const LEAVING_LIMIT: Duration = Duration::from_secs(5);
/// Repetitions because somebody was late and came then.
const LATE_MAX: usize = 16;
/// How long news of a failed process may take.
const NEWS_LIMIT: Duration = Duration::from_secs(1);
const NEWS_PAUSE: Duration = Duration::from_millis(1);

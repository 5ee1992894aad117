//! The remainder of a group after ranks are lost, and how it continues, with Open MPI 5 and
//! `mpirun --with-ft ulfm`.
//!
//! [`crate::MpiCollective`] calls [`Survival::agree`] when a wait has ended because a rank is lost,
//! or at the root because one is late. The root calls all ranks, and each reports its current
//! operation, in point-to-point messages ([`crate::watch`]). A rank whose process has failed or
//! that does not answer is lost; the root announces this to the others, together with the operation
//! from which they repeat. Ranks are at most a few operations apart: a rank that has published its
//! part of a gather continues, and the root continues once it has announced. Therefore every rank
//! keeps its contributions to the last operations ([`Kept`]), and all repeat, in order, those that
//! any rank lacks. Data that a rank has already received is not delivered again. An allgather that
//! one rank has finished is not repeated but its result is passed on, because all ranks must get
//! the same result.
//!
//! Where the root is lost ([`Survival::succeed`]) every rank that is left comes to the first of the
//! line that is left, which is the root from then on. What failed is not repeated here but by the
//! caller, with the new root; so operations are counted on from the greatest number.
//!
//! No call of MPI is made that waits for everybody: a shrunk communicator would need one, and it
//! waits for ranks that hang.

use std::time::{Duration, Instant};

use probe_sync_collective::{Attendance, Deadline, Error, FaultTolerance, ROOT, Rank, Wait};

use crate::kept::{Kept, Resume, resume};
use crate::raw::Communicator;
use crate::ulfm::Ulfm;
use crate::watch::Watch;
use crate::way::Way;

/// One rank's part in surviving losses.
pub(crate) struct Survival {
    ulfm: Ulfm,
    rank: Rank,
    watch: Watch,
    /// All ranks that ever were, for the leaders' messages after a loss.
    all: Communicator,
    lost: Vec<bool>,
    /// Lost ranks whose processes have not failed, and may wake.
    hung: Vec<bool>,
    root: Rank,
    /// Potential successors of the root, in this order.
    line: Vec<Rank>,
    /// At the root: lost ranks that have not been reported yet.
    left: Vec<(Rank, Error)>,
    /// At the root: the group continues without lost ranks.
    goes_on: bool,
    /// Number of losses; equal on all remaining ranks.
    losses: u64,
    kept: Kept,
}

impl Survival {
    /// Creates it; `base` and `all` must be for its exclusive use.
    pub fn new(ulfm: Ulfm, base: Communicator, all: Communicator) -> Self {
        let (rank, nobody) = (base.rank(), vec![false; base.size()]);
        Self {
            ulfm,
            rank,
            watch: Watch::new(ulfm, base),
            all,
            lost: nobody.clone(),
            hung: nobody,
            root: ROOT,
            line: Vec::new(),
            left: Vec::new(),
            goes_on: false,
            losses: 0,
            kept: Kept::default(),
        }
    }

    /// What waits check.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    pub fn ulfm(&self) -> Ulfm {
        self.ulfm
    }

    /// The connection between the remaining leaders.
    pub fn way(&self) -> Way {
        Way::OfAll(self.all.same(), self.losses)
    }

    /// Which ranks are lost.
    pub fn lost(&self) -> &[bool] {
        &self.lost
    }

    /// Whether any rank is lost.
    pub fn lost_any(&self) -> bool {
        self.lost.contains(&true)
    }

    /// Which of them hang.
    pub fn hung(&self) -> &[bool] {
        &self.hung
    }

    /// When the group has ended: lets MPI send the last messages, which it otherwise does when it
    /// is finalised.
    pub fn linger(&self) {
        let begun = Instant::now();
        while begun.elapsed() < LINGER {
            self.watch.sees_loss();
            std::thread::sleep(PAUSE);
        }
    }

    /// At the root, when the group has ended: returns the ranks that hang, once the processes of
    /// all others have ended, or the time is over.
    pub fn alone_with_hung(&self, limit: Duration) -> Vec<Rank> {
        let hung: Vec<Rank> = (0..self.hung.len()).filter(|rank| self.hung[*rank]).collect();
        let begun = Instant::now();
        while !hung.is_empty() && begun.elapsed() < limit {
            let ended = self.watch.failed();
            if self.others().iter().all(|rank| ended.contains(rank)) {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        let ended = self.watch.failed();
        hung.into_iter().filter(|rank| !ended.contains(rank)).collect()
    }

    /// Number of losses.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// The rank that gathers.
    pub fn root(&self) -> Rank {
        self.root
    }

    /// Sets the potential successors of the root, in this order.
    pub fn line_up(&mut self, line: Vec<Rank>) {
        self.line = line;
    }

    /// Whether another rank takes over if the root is lost.
    pub fn has_line(&self) -> bool {
        !self.line.is_empty()
    }

    /// Whether the group continues without lost or late ranks, and this rank is the one to decide
    /// it.
    pub fn leaves_late_ranks_out(&self) -> bool {
        self.goes_on && self.rank == self.root
    }

    /// This rank's contributions to the last operations.
    pub fn kept(&mut self) -> &mut Kept {
        &mut self.kept
    }

    /// Agrees with the others on which ranks are lost, and where the remaining ones continue. This
    /// rank is at operation `at`.
    ///
    /// # Errors
    /// [`Error::Lost`] if the root is lost, or if the group does not continue without the lost
    /// ranks. [`Error::Late`] naming the ranks that do not arrive. [`Error::Dismissed`] if the
    /// others continue without this rank.
    pub fn agree(&mut self, at: u64, deadline: &Deadline) -> Result<Resume, Error> {
        if self.rank == self.root {
            return self.call_all(at, &deadline.extended(ANSWER_LIMIT));
        }
        // The root knows who is missing, and speaks first.
        self.watch.tell(self.root, &self.own_position(at));
        self.hear_root(self.root, &deadline.extended(3 * ANSWER_LIMIT), deadline)
    }

    /// Whether the root's process has failed.
    pub fn root_has_failed(&self) -> bool {
        self.rank != self.root && self.watch.failed().contains(&self.root)
    }

    /// The root is lost: agrees with the remaining ranks on its successor. More than half of the
    /// ranks that were `there` last must arrive; ranks missing `late_by` after that are lost, too.
    /// All state the number of their next operation; returns the new root and the number of the
    /// first operation with it.
    ///
    /// # Errors
    /// [`Error::Minority`] if too few arrive, [`Error::Dismissed`] if the others continue without
    /// this rank.
    pub fn succeed(
        &mut self,
        at: u64,
        there: &[bool],
        late_by: Duration,
        deadline: &Deadline,
    ) -> Result<(Rank, u64), Error> {
        let lost_root = self.root;
        let of = there.iter().filter(|there| **there).count();
        let mut why = Error::Minority { operation: SUCCESSION, present: 1, of };
        let after = self.line.iter().position(|rank| *rank == lost_root).map_or(0, |place| place + 1);
        // The line is kept: the next root may be lost, too.
        let line = self.line.clone();
        for &successor in line.iter().skip(after) {
            if self.lost[successor] || self.watch.failed().contains(&successor) {
                continue;
            }
            // So that time is left for the next.
            let limit = deadline.halved();
            let attempt = if successor == self.rank {
                self.host_the_rest(at, there, late_by, &limit)
            } else {
                self.watch.tell(successor, &self.own_position(at));
                self.hear_root(successor, &limit, &limit)
            };
            match attempt {
                Ok(agreed) => {
                    self.kept.clear();
                    return Ok((self.root, agreed.at));
                }
                Err(error @ Error::Dismissed { .. }) => return Err(error),
                Err(error) => {
                    tracing::info!("rank {successor} cannot take over from rank {lost_root}: {error}");
                    if let Error::Minority { .. } = error {
                        why = error;
                    }
                }
            }
        }
        Err(why)
    }

    /// At the root: calls all present ranks, collects where each is, and tells them where they
    /// continue.
    fn call_all(&mut self, at: u64, deadline: &Deadline) -> Result<Resume, Error> {
        for rank in self.others() {
            self.watch.tell(rank, &[CALL, self.losses]);
        }
        let mut heard = self.hear_all(at, deadline, |_, missing, _| missing == 0)?;
        let missing = self.missing(&heard);
        if !self.goes_on {
            return match (0..self.lost.len()).find(|rank| heard.failed[*rank] && !self.lost[*rank]) {
                Some(rank) => Err(Error::Lost { operation: RECOVERY, rank, reason: FAILED.to_owned() }),
                None if missing.is_empty() => Ok(self.settle(&heard, resume(heard.positions()))),
                None => Err(Wait::begin(RECOVERY, deadline).late(missing)),
            };
        }
        let present = heard.positions().count();
        let of = present + missing.len();
        if 2 * present < of {
            // It is this rank that was away, and the others look for another root, or have one.
            let others_say = Deadline::new(MINORITY_LIMIT, None);
            let more =
                self.hear_all(at, &others_say, |heard, _, _| 2 * (heard.positions().count() + present - 1) >= of)?;
            heard.join(more);
            let present = heard.positions().count();
            if 2 * present < of {
                return Err(Error::Minority { operation: RECOVERY, present, of });
            }
        }
        Ok(self.settle(&heard, resume(heard.positions())))
    }

    /// At the first potential successor: takes over from the lost root.
    fn host_the_rest(
        &mut self,
        at: u64,
        there: &[bool],
        late_by: Duration,
        deadline: &Deadline,
    ) -> Result<Resume, Error> {
        let voices = |heard: &Heard| heard.positions().filter(|(rank, _)| there.get(*rank) == Some(&true)).count();
        let of = there.iter().filter(|there| **there).count();
        let enough = |heard: &Heard, missing: usize, waited: Duration| {
            missing == 0 || (2 * voices(heard) > of && waited >= late_by)
        };
        let heard = self.hear_all(at, deadline, enough)?;
        let present = voices(&heard);
        if 2 * present <= of {
            return Err(Error::Minority { operation: SUCCESSION, present, of });
        }
        self.root = self.rank;
        let newest = heard.positions().map(|(_, position)| position).max().unwrap_or(at);
        self.losses = self.losses.max(heard.losses);
        Ok(self.settle(&heard, Resume { at: newest, holder: None }))
    }

    /// The ranks that are not lost, except this one.
    fn others(&self) -> Vec<Rank> {
        (0..self.lost.len()).filter(|rank| *rank != self.rank && !self.lost[*rank]).collect()
    }

    /// Ranks that have neither arrived nor failed, without the lost root.
    fn missing(&self, heard: &Heard) -> Vec<Rank> {
        let missing = |rank: &Rank| *rank != self.root && !heard.failed[*rank] && heard.position[*rank].is_none();
        self.others().into_iter().filter(missing).collect()
    }

    /// Listens to the others until `enough(heard, missing, waited)` returns true, or the time is
    /// over.
    fn hear_all(
        &self,
        at: u64,
        deadline: &Deadline,
        enough: impl Fn(&Heard, usize, Duration) -> bool,
    ) -> Result<Heard, Error> {
        let (begun, mut wait) = (Instant::now(), Wait::begin(RECOVERY, deadline));
        let size = self.lost.len();
        let mut heard = Heard { position: vec![None; size], failed: vec![false; size], losses: self.losses };
        heard.position[self.rank] = Some(at);
        loop {
            while let Some((rank, said)) = self.watch.next() {
                match said[..] {
                    [PRESENT, losses, at, ref known @ ..] => {
                        heard.position[rank] = Some(at);
                        heard.losses = heard.losses.max(losses);
                        for known in known {
                            *heard.failed.get_mut(*known as Rank).ok_or_else(|| unknown(rank))? = true;
                        }
                    }
                    [DISMISSED, ..] => return Err(dismissed(rank)),
                    // From a root that was lost then.
                    [CALL | GO, ..] => {}
                    _ => return Err(unknown(rank)),
                }
            }
            self.watch.failed().into_iter().for_each(|rank| heard.failed[rank] = true);
            if enough(&heard, self.missing(&heard).len(), begun.elapsed()) {
                return Ok(heard);
            }
            let Some(slice) = wait.slice() else { return Ok(heard) };
            std::thread::sleep(slice.min(PAUSE));
        }
    }

    /// Records which ranks are lost, and tells the others.
    fn settle(&mut self, heard: &Heard, resume: Resume) -> Resume {
        let begun = self.losses;
        self.losses += 1;
        for rank in self.others().into_iter().filter(|rank| heard.failed[*rank] || heard.position[*rank].is_none()) {
            self.lost[rank] = true;
            self.hung[rank] = !heard.failed[rank];
            let reason = if heard.failed[rank] { FAILED } else { "it does not answer" };
            self.left.push((rank, Error::Lost { operation: "MPI", rank, reason: reason.to_owned() }));
            if self.hung[rank] {
                self.watch.tell(rank, &[DISMISSED, begun]);
            }
        }
        let holder = resume.holder.map_or(NOBODY, |rank| rank as u64);
        let lost = (0..self.lost.len()).filter(|rank| self.lost[*rank]);
        let lost = lost.map(|rank| 2 * rank as u64 + u64::from(self.hung[rank]));
        let told: Vec<u64> = [GO, self.losses, resume.at, holder].into_iter().chain(lost).collect();
        for rank in self.others() {
            self.watch.tell(rank, &told);
        }
        self.watch.forget(&self.lost);
        resume
    }

    /// What this rank sends when it is called, or has seen a loss itself.
    fn own_position(&self, at: u64) -> Vec<u64> {
        let known = self.watch.failed().into_iter().map(|rank| rank as u64);
        [PRESENT, self.losses, at].into_iter().chain(known).collect()
    }

    /// Waits for the message of `root`, only until `given_up` if others have given it up and turned
    /// to this rank, which is then the root.
    fn hear_root(&mut self, root: Rank, deadline: &Deadline, given_up: &Deadline) -> Result<Resume, Error> {
        let [mut wait, mut shorter] = [deadline, given_up].map(|limit| Wait::begin(RECOVERY, limit));
        // Said by ranks that have given the root up before this one has.
        let mut to_successor = Vec::new();
        let why = loop {
            while let Some((rank, said)) = self.watch.next() {
                match said[..] {
                    [GO, losses, at, holder, ref lost @ ..] if rank == root => {
                        return self.follow(root, losses, lost).map(|()| {
                            let holder = (holder != NOBODY).then_some(holder as Rank);
                            Resume { at, holder }
                        });
                    }
                    [PRESENT, ..] => to_successor.push((rank, said)),
                    [DISMISSED, ..] => return Err(dismissed(rank)),
                    // It has been answered, or is of a root that is lost.
                    [CALL | GO, ..] => {}
                    _ => return Err(unknown(rank)),
                }
            }
            if self.watch.failed().contains(&root) {
                break Error::Lost { operation: RECOVERY, rank: root, reason: FAILED.to_owned() };
            }
            let wait = if to_successor.is_empty() { &mut wait } else { &mut shorter };
            let Some(slice) = wait.slice() else { break wait.late(vec![root]) };
            std::thread::sleep(slice.min(PAUSE));
        };
        self.watch.put_back(to_successor);
        Err(why)
    }

    /// Records what `root` has decided.
    fn follow(&mut self, root: Rank, losses: u64, lost: &[u64]) -> Result<(), Error> {
        self.losses = losses;
        for lost in lost {
            let rank = (lost / 2) as Rank;
            let known = self.lost.get_mut(rank).zip(self.hung.get_mut(rank));
            let (known_lost, known_hung) = known.ok_or_else(|| unknown(root))?;
            (*known_lost, *known_hung) = (true, lost % 2 == 1);
        }
        self.root = root;
        self.watch.forget(&self.lost);
        Ok(())
    }
}

impl FaultTolerance for Survival {
    /// No rank returns over MPI, so there is no use for a notice.
    fn continue_without_lost(&mut self, _notice: Vec<u8>) -> Result<(), Error> {
        self.goes_on = true;
        Ok(())
    }

    fn attendance(&mut self) -> Attendance {
        Attendance { left: std::mem::take(&mut self.left), back: Vec::new() }
    }
}

/// What the root has received.
struct Heard {
    /// The operation of each rank that has arrived.
    position: Vec<Option<u64>>,
    failed: Vec<bool>,
    /// The largest number of losses that any of them knows.
    losses: u64,
}

impl Heard {
    /// Adds what was received later.
    fn join(&mut self, later: Self) {
        for (rank, position) in later.position.into_iter().enumerate() {
            self.position[rank] = position.or(self.position[rank]);
            self.failed[rank] |= later.failed[rank];
        }
    }

    /// Ranks that have arrived and have not failed since.
    fn positions(&self) -> impl Iterator<Item = (Rank, u64)> + Clone {
        let there = |rank: usize| self.position[rank].filter(|_| !self.failed[rank]).map(|position| (rank, position));
        (0..self.position.len()).filter_map(there)
    }
}

fn unknown(rank: Rank) -> Error {
    Error::Protocol { operation: RECOVERY, rank, what: "a message that belongs to no loss of ranks".to_owned() }
}

fn dismissed(by: Rank) -> Error {
    let reason = format!("it did not answer, and the others continue without it, led by rank {by}");
    Error::Dismissed { reason }
}

const RECOVERY: &str = "continuing without lost ranks";
const SUCCESSION: &str = "succession";
const FAILED: &str = "its process has failed (ULFM)";

/// How long a rank may take to answer beyond the deadline of the operation. A waiting rank checks
/// 20 times a second whether it is called.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_micros(200);

/// How long a process that does not finalise MPI lets it make progress.
const LINGER: Duration = Duration::from_millis(250);

/// How long a root in the minority waits for the ranks that have found another root.
const MINORITY_LIMIT: Duration = Duration::from_secs(60);

/// From the root: asks for the present operation.
const CALL: u64 = 1;
/// To the root: the number of losses, the sender's operation, and the ranks that it knows to have
/// failed.
const PRESENT: u64 = 2;
/// From the root: the number of losses, the first operation, the rank that has finished it, and for
/// each lost rank twice its number, plus 1 if it hangs.
const GO: u64 = 3;
/// To a hung rank: the others continue without it.
const DISMISSED: u64 = 4;
const NOBODY: u64 = u64::MAX;

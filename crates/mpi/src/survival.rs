//! What is left of a group after ranks are lost, and how it goes on: with `mpirun --with-ft ulfm` of Open MPI 5.
//!
//! Place in the flow: under [`crate::MpiCollective`], which asks [`Survival::agree`] when a wait has ended because a rank is lost.
//! All ranks that are left tell the root at which operation they are; the root waits for all of them, with a deadline, and says from which operation they
//! repeat. Only then do they shrink the communicator, a call without a deadline. Ranks are at most a few operations apart: whoever publishes its
//! part of a gather goes on, and the root goes on once it has announced. So every rank keeps what it brought to the last [`KEPT`] operations, and all repeat those that anybody lacks, in order.
//! What a rank has been given already it is not given again. An allgather that one rank has finished is not repeated but passed on, because all must have the same.
//! These messages go over a communicator of their own that nobody revokes.
//! What it does not do: go on without the root, or without a rank that hangs: it has not failed, and a shrink would wait for it.

use std::collections::VecDeque;
use std::time::Duration;

use probe_sync_collective::{Deadline, Error, Frames, ROOT, Rank, Wait};

use crate::mail::Mail;
use crate::operation::Operation;
use crate::raw::Communicator;
use crate::ulfm::{Ulfm, Watch};

/// One rank's part of it.
#[derive(Debug)]
pub(crate) struct Survival {
    ulfm: Ulfm,
    /// All ranks that ever were; never revoked.
    base: Communicator,
    mail: Mail,
    lost: Vec<bool>,
    /// At the root: those of whom nobody has heard yet.
    left: Vec<Rank>,
    /// At the root: the group goes on without those who are lost.
    goes_on: bool,
    /// How often ranks were lost; equal on all ranks that are left.
    losses: u64,
    kept: VecDeque<(Operation, Part)>,
}

/// What a rank brought to an operation.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Gather {
        participants: Vec<bool>,
        payload: Vec<u8>,
    },
    /// The root's bytes.
    Broadcast(Vec<u8>),
    /// The root's frames.
    Scatter(Frames),
    /// An allgather that this rank has not finished.
    Allgather,
    /// Everyone's frames of an allgather that this rank has finished.
    Allgathered(Vec<u8>),
    /// The last meeting of the group.
    Farewell,
}

/// Where the group goes on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resume {
    /// The first operation that anybody lacks.
    pub at: u64,
    /// A rank that has finished it, if there is one.
    pub holder: Option<Rank>,
}

impl Survival {
    /// `base` is for this alone.
    pub fn new(ulfm: Ulfm, base: Communicator) -> Self {
        let lost = vec![false; base.size()];
        let (mail, kept) = (Mail::new(), VecDeque::new());
        Self { ulfm, base, mail, lost, left: Vec::new(), goes_on: false, losses: 0, kept }
    }

    /// What waits on `comm` ask.
    pub fn watch(&self, comm: &Communicator) -> Watch {
        self.ulfm.watch(comm, &self.base, &self.lost)
    }

    pub fn ulfm(&self) -> Ulfm {
        self.ulfm
    }

    /// Which ranks are lost.
    pub fn lost(&self) -> &[bool] {
        &self.lost
    }

    /// Whether any rank is.
    pub fn lost_any(&self) -> bool {
        self.losses > 0
    }

    /// At the root: from now on the group goes on without those who are lost.
    pub fn go_on(&mut self) {
        self.goes_on = true;
    }

    /// At the root: who was lost since this was last asked.
    pub fn take_left(&mut self) -> Vec<(Rank, Error)> {
        let reason = |rank| Error::Lost { operation: "MPI", rank, reason: "its process has failed (ULFM)".to_owned() };
        self.left.drain(..).map(|rank| (rank, reason(rank))).collect()
    }

    /// Keeps what this rank brings to an operation.
    pub fn keep(&mut self, operation: Operation, part: Part) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((operation, part));
    }

    /// The last operation was an allgather, and this is what came of it.
    pub fn keep_result(&mut self, frames: &Frames) {
        let mut encoded = Vec::new();
        frames.encode(&mut encoded);
        if let Some((_, part)) = self.kept.back_mut() {
            *part = Part::Allgathered(encoded);
        }
    }

    /// What this rank brought to an operation.
    ///
    /// # Errors
    /// When that is too long ago.
    pub fn kept(&self, number: u64) -> Result<(Operation, Part), Error> {
        let found = self.kept.iter().find(|(operation, _)| operation.number() == number);
        found.cloned().ok_or_else(|| {
            let reason = format!("a rank lacks operation {number}, and only the last {KEPT} can be repeated");
            Error::Backend { operation: RECOVERY, reason }
        })
    }

    /// Tells the others at which operation this rank is; returns when all who are left have done so.
    ///
    /// # Errors
    /// [`Error::Lost`] when the root is lost, or the group does not go on without those who are. [`Error::Late`] names the ranks that do not come.
    pub fn agree(&mut self, at: u64, deadline: &Deadline) -> Result<Resume, Error> {
        self.losses += 1;
        if self.base.rank() == ROOT {
            self.hear_all(at, &deadline.extended(RECOVERY_LIMIT))
        } else {
            // The root knows who is missing, and speaks first.
            self.ask_root(at, &deadline.extended(2 * RECOVERY_LIMIT))
        }
    }

    /// Collective over those who are left, after [`Self::agree`]: the communicator without those who are lost.
    ///
    /// # Errors
    /// What MPI says.
    pub fn shrink(&mut self, comm: &Communicator) -> Result<Communicator, Error> {
        let (smaller, present) = self.ulfm.shrink(comm, &self.base)?;
        for rank in 0..self.lost.len() {
            if !self.lost[rank] && !present.contains(&rank) {
                self.lost[rank] = true;
                if self.base.rank() == ROOT {
                    self.left.push(rank);
                }
            }
        }
        Ok(smaller)
    }

    fn hear_all(&mut self, at: u64, deadline: &Deadline) -> Result<Resume, Error> {
        let mut wait = Wait::begin(RECOVERY, deadline);
        let size = self.lost.len();
        let (mut position, mut failed) = (vec![None; size], vec![false; size]);
        position[ROOT] = Some(at);
        loop {
            while let Some((rank, heard)) = self.hear()? {
                let [PRESENT, at, known @ ..] = heard.as_slice() else { return Err(unknown(rank)) };
                position[rank] = Some(*at);
                for known in known {
                    *failed.get_mut(*known as Rank).ok_or_else(|| unknown(rank))? = true;
                }
            }
            self.ulfm.failed(self.base.handle())?.into_iter().for_each(|rank| failed[rank] = true);
            let news = (0..size).find(|rank| failed[*rank] && !self.lost[*rank]);
            if let (Some(rank), false) = (news, self.goes_on) {
                return Err(Error::Lost { operation: RECOVERY, rank, reason: "its process has failed".to_owned() });
            }
            let missing: Vec<Rank> =
                (0..size).filter(|rank| !self.lost[*rank] && !failed[*rank] && position[*rank].is_none()).collect();
            if missing.is_empty() && news.is_some() {
                break;
            }
            let Some(slice) = wait.slice() else { return Err(wait.late(missing)) };
            std::thread::sleep(slice.min(PAUSE));
        }
        let present = |rank: &Rank| !self.lost[*rank] && !failed[*rank];
        let resume = resume((0..size).filter(present).filter_map(|rank| Some((rank, position[rank]?))));
        let holder = resume.holder.map_or(NOBODY, |rank| rank as u64);
        for rank in (0..size).filter(|rank| *rank != ROOT && position[*rank].is_some() && !failed[*rank]) {
            self.tell(rank, &[GO, resume.at, holder]);
        }
        Ok(resume)
    }

    fn ask_root(&mut self, at: u64, deadline: &Deadline) -> Result<Resume, Error> {
        let mut wait = Wait::begin(RECOVERY, deadline);
        let known = self.ulfm.failed(self.base.handle())?;
        let own: Vec<u64> = [PRESENT, at].into_iter().chain(known.into_iter().map(|rank| rank as u64)).collect();
        self.tell(ROOT, &own);
        loop {
            if let Some((rank, heard)) = self.hear()? {
                let [GO, at, holder] = heard[..] else { return Err(unknown(rank)) };
                return Ok(Resume { at, holder: (holder != NOBODY).then_some(holder as Rank) });
            }
            if self.ulfm.failed(self.base.handle())?.contains(&ROOT) {
                let reason = "its process has failed; over MPI nobody takes its place".to_owned();
                return Err(Error::Lost { operation: RECOVERY, rank: ROOT, reason });
            }
            let Some(slice) = wait.slice() else { return Err(wait.late(vec![ROOT])) };
            std::thread::sleep(slice.min(PAUSE));
        }
    }

    /// Says something to `rank`; whether it has failed meanwhile shows elsewhere.
    fn tell(&mut self, rank: Rank, numbers: &[u64]) {
        let message = [self.losses].iter().chain(numbers).flat_map(|number| number.to_le_bytes()).collect();
        if self.mail.send(&self.base, rank, message).is_err() {
            self.ulfm.acknowledge(&self.base);
        }
    }

    /// What was said of the loss under way.
    fn hear(&mut self) -> Result<Option<(Rank, Vec<u64>)>, Error> {
        let Ok(heard) = self.mail.next(&self.base) else {
            // A message from or to a rank that has failed, or a look that MPI refuses until that is known.
            self.mail = Mail::new();
            self.ulfm.acknowledge(&self.base);
            return Ok(None);
        };
        let Some((rank, message)) = heard else { return Ok(None) };
        let (words, rest) = message.as_chunks::<8>();
        let numbers: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        match numbers.split_first() {
            Some((losses, numbers)) if *losses == self.losses && rest.is_empty() => Ok(Some((rank, numbers.to_vec()))),
            // Said before its sender was lost, too.
            Some((losses, _)) if *losses < self.losses => Ok(None),
            _ => Err(unknown(rank)),
        }
    }
}

/// Where ranks at these operations go on together.
fn resume(positions: impl Iterator<Item = (Rank, u64)> + Clone) -> Resume {
    let at = positions.clone().map(|(_, at)| at).min().unwrap_or(0);
    let mut finished = positions.filter(|(_, position)| *position > at);
    Resume { at, holder: finished.next().map(|(rank, _)| rank) }
}

fn unknown(rank: Rank) -> Error {
    Error::Protocol { operation: RECOVERY, rank, what: "a message that belongs to no loss of ranks here".to_owned() }
}

const RECOVERY: &str = "going on without lost ranks";

/// Operations that can be repeated. The board's ring lets the root be four announcements ahead of a rank, and each has a gather before it.
const KEPT: usize = 16;

/// A rank comes at the end of its window, for which the operation's deadline allows; this is for the rest.
const RECOVERY_LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_micros(200);

const PRESENT: u64 = 1;
const GO: u64 = 2;
const NOBODY: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(positions: &[(Rank, u64)], at: u64, holder: Option<Rank>) {
        assert_eq!(resume(positions.iter().copied()), Resume { at, holder });
    }

    #[test]
    fn all_go_on_where_the_last_one_is() {
        check(&[(0, 7), (1, 7), (3, 7)], 7, None);
        check(&[(0, 7), (1, 8), (3, 8)], 7, Some(1));
        check(&[(0, 9), (1, 8), (3, 7)], 7, Some(0));
        check(&[(0, 9)], 9, None);
    }
}

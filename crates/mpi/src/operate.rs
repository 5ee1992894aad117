//! One operation of the group, and its recovery if a rank is lost in the meantime.
//!
//! After a loss the remaining ranks agree on their state (`survival`), rebuild the group without
//! the lost ones, and repeat every operation that any of them lacks. It does not take a lost root's
//! place; the caller requests that.

use std::time::{Duration, Instant};

use probe_sync_collective::{Collective as _, Deadline, Error, Frames, Rank};

use crate::collective::MpiCollective;
use crate::kept::{Part, Resume};
use crate::layout::Layout;
use crate::operation::{Kind, Operation};
use crate::parts::PartsOfRank;
use crate::survival::Survival;

impl MpiCollective {
    /// Runs one operation, again if a rank was lost meanwhile; the group is unusable afterwards if
    /// it failed. `brings` is this rank's contribution, which it must repeat if others lack it.
    /// `run` is told the rank that has finished the operation already, if any.
    pub(crate) fn operate(
        &mut self,
        kind: Kind,
        deadline: &Deadline,
        brings: impl FnOnce() -> Part,
        mut run: impl FnMut(&mut PartsOfRank, Operation, &Layout, Option<Rank>, &Deadline) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.rootless {
            let reason = "the root is lost, and no other rank has taken over".to_owned();
            return Err(Error::Lost { operation: kind.name(), rank: self.root(), reason });
        }
        let (operation, begun) = (Operation::new(self.operations, kind), Instant::now());
        self.operations += 1;
        if let Some(survival) = &mut self.survival {
            survival.kept().keep(operation, brings());
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

    /// Determines what an error leaves of the group: another rank may take over as root, and a rank
    /// without which the others continue ends only its own run.
    pub(crate) fn remember(&mut self, error: Error) -> Error {
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

    /// Whether a failed operation is repeated by the remaining ranks.
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

    /// Repeats the contributions that others lack for operations before this one; `resume` keeps
    /// count. Returns the rank that has finished this one already.
    fn repeat_until(
        &mut self,
        operation: Operation,
        resume: &mut Resume,
        deadline: &Deadline,
    ) -> Result<Option<Rank>, Error> {
        while resume.at < operation.number() {
            let (Some(parts), Some(survival)) = (&mut self.parts, &mut self.survival) else {
                return Err(self.unusable(operation.name()));
            };
            let (missed, part) = survival.kept().of(resume.at)?;
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

    /// All remaining ranks agree on the operation to continue with, `at` on this one, and form a
    /// group without the lost ranks.
    pub(crate) fn go_on(&mut self, at: u64, deadline: &Deadline) -> Result<Resume, Error> {
        let begun = Instant::now();
        // Each turn that does not return has lost another rank.
        for _turn in 0..self.size {
            // A rank that hangs may use up the time of one agreement, not that of the next.
            let limit = deadline.postponed(begun.elapsed());
            let Some(survival) = &mut self.survival else {
                return Err(self.unusable("continuing without lost ranks"));
            };
            let turn_begun = Instant::now();
            let resume = survival.agree(at, &limit)?;
            let (agreed, rebuilt) = (turn_begun.elapsed(), self.rebuild(&limit)?);
            let took = turn_begun.elapsed();
            tracing::debug!(rank = self.rank, at, resume.at, ?agreed, ?took, rebuilt, "ranks were lost");
            if rebuilt {
                return Ok(resume);
            }
        }
        let reason = format!("the remaining ranks found no group after {} attempts", self.size);
        Err(Error::Backend { operation: "continuing without lost ranks", reason })
    }

    /// Rebuilds the group without the lost ranks; returns false if another is lost meanwhile.
    pub(crate) fn rebuild(&mut self, deadline: &Deadline) -> Result<bool, Error> {
        let (Some(parts), Some(survival)) = (&mut self.parts, &self.survival) else {
            return Err(self.unusable("continuing without lost ranks"));
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
}

/// Additional time for the repetition of an operation.
const REPEAT_LIMIT: Duration = Duration::from_secs(5);
/// How long the ranks of a host may wait for the one that recreates their board; if it is lost,
/// they learn that.
const REBUILD_LIMIT: Duration = Duration::from_secs(30);
/// Most repetitions because of late ranks that arrived then.
const LATE_MAX: usize = 16;
/// How long the news of a failed process may take.
const NEWS_LIMIT: Duration = Duration::from_secs(1);
const NEWS_PAUSE: Duration = Duration::from_millis(1);

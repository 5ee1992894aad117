//! Exchanged labels, which present a group whose inner root is labelled 0 under the ranks' own
//! numbers.
//!
//! Rank `root` has label 0, and rank 0 has the label of `root`; all other ranks keep their numbers.
//! The mapping is its own inverse. [`gather`] to [`attendance`] are the operations of such a group;
//! if `root` is rank 0 they are those of the inner group.

use std::sync::Arc;

use crate::{
    Attendance, Call, Collective, Deadline, Error, Frames, ROOT, Rank, SideWork, check_frames, check_participants,
};

/// Converts between a rank and its label, in both directions.
pub(crate) fn exchanged(root: Rank, rank: Rank) -> Rank {
    match rank {
        ROOT => root,
        rank if rank == root => ROOT,
        rank => rank,
    }
}

/// Reorders frames from labels to ranks, or vice versa.
pub(crate) fn swapped(frames: &Frames, root: Rank) -> Frames {
    let mut own = Frames::default();
    (0..frames.len()).for_each(|rank| own.push(frames.frame(exchanged(root, rank))));
    own
}

/// Converts the ranks in a group's error from labels.
pub(crate) fn renamed(mut error: Error, root: Rank) -> Error {
    match &mut error {
        Error::Late { missing, .. } => {
            missing.iter_mut().for_each(|rank| *rank = exchanged(root, *rank));
            missing.sort_unstable();
        }
        Error::Lost { rank, .. }
        | Error::Aborted { rank, .. }
        | Error::File { rank, .. }
        | Error::Protocol { rank, .. } => *rank = exchanged(root, *rank),
        _ => {}
    }
    error
}

/// Returns this process's rank and that of the inner group's root: both are 0 only if they are the
/// same.
fn ends(inner: &impl Collective, root: Rank) -> (Rank, Rank) {
    (exchanged(root, inner.rank()), exchanged(root, inner.root()))
}

/// Runs [`Collective::gather`] of `inner`, by rank.
pub(crate) fn gather(
    inner: &mut impl Collective,
    root: Rank,
    participants: &[bool],
    payload: &[u8],
    frames: &mut Frames,
    deadline: &Deadline,
) -> Result<(), Error> {
    if root == ROOT {
        return inner.gather(participants, payload, frames, deadline);
    }
    check_participants(ends(inner, root), inner.size(), participants)?;
    let mut labelled = participants.to_vec();
    labelled.swap(ROOT, root);
    inner.gather(&labelled, payload, frames, deadline).map_err(|error| renamed(error, root))?;
    *frames = swapped(frames, root);
    Ok(())
}

/// Runs [`Collective::scatter`] of `inner`, by rank.
pub(crate) fn scatter(
    inner: &mut impl Collective,
    root: Rank,
    frames: &Frames,
    own: &mut Vec<u8>,
    deadline: &Deadline,
) -> Result<(), Error> {
    let (rank, at) = ends(inner, root);
    if root == ROOT || rank != at {
        return inner.scatter(frames, own, deadline).map_err(|error| renamed(error, root));
    }
    check_frames((rank, at), inner.size(), frames)?;
    inner.scatter(&swapped(frames, root), own, deadline).map_err(|error| renamed(error, root))
}

/// Runs [`Collective::calls`] of `inner`, by rank.
pub(crate) fn calls(inner: &mut impl Collective, root: Rank) -> Result<Vec<Call>, Error> {
    let heard = inner.calls().map_err(|error| renamed(error, root))?;
    Ok(heard.into_iter().map(|(label, word)| (exchanged(root, label), word)).collect())
}

/// Converts the ranks in an attendance from labels.
pub(crate) fn attendance(by_label: Attendance, root: Rank) -> Attendance {
    let Attendance { left, back } = by_label;
    Attendance {
        left: left.into_iter().map(|(label, error)| (exchanged(root, label), renamed(error, root))).collect(),
        back: back.into_iter().map(|(label, statement)| (exchanged(root, label), statement)).collect(),
    }
}

/// Returns work that receives messages by rank, for a group that uses labels.
pub(crate) fn work_by_rank(work: Arc<dyn SideWork>, root: Rank) -> Arc<dyn SideWork> {
    if root == ROOT { work } else { Arc::new(WorkByRank { work, root }) }
}

#[derive(Debug)]
struct WorkByRank {
    work: Arc<dyn SideWork>,
    root: Rank,
}

impl SideWork for WorkByRank {
    fn turn(&self, heard: Vec<Call>) -> Vec<Vec<u8>> {
        self.work.turn(heard.into_iter().map(|(label, word)| (exchanged(self.root, label), word)).collect())
    }
}

//! Ranks and their labels in a group: the root's label is 0, and rank 0 has the root's number.
//!
//! Place in the flow: `succession` exchanges them for whoever uses the backend; files below it exchange them only in what they log, so that a log names
//! the run's ranks.
//!
//! What it does not do: know who the root is.

use crate::{Error, Frames, ROOT, Rank};

/// A rank's label where `root` is the root, and a label's rank.
pub(super) fn exchanged(root: Rank, rank: Rank) -> Rank {
    match rank {
        ROOT => root,
        rank if rank == root => ROOT,
        rank => rank,
    }
}

/// Frames by label, of frames by rank; and the other way.
pub(super) fn swapped(frames: &Frames, root: Rank) -> Frames {
    let mut own = Frames::default();
    (0..frames.len()).for_each(|rank| own.push(frames.frame(exchanged(root, rank))));
    own
}

/// A group's error with the ranks' own numbers.
pub(super) fn renamed(mut error: Error, root: Rank) -> Error {
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

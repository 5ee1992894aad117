//! Exchanged labels: a group whose inner root is labelled 0, seen with the ranks' own numbers.
//!
//! Place in the flow: below [`crate::Led`] and the TCP backend's succession. Rank `root` has label 0 and rank 0 has its label; all others keep
//! their numbers. So a label's rank is found as a rank's label is. What it does not do: talk to anybody.

use crate::{Error, Frames, ROOT, Rank};

/// A rank's label, and a label's rank.
pub(crate) fn exchanged(root: Rank, rank: Rank) -> Rank {
    match rank {
        ROOT => root,
        rank if rank == root => ROOT,
        rank => rank,
    }
}

/// The same frames, by rank where they were by label, and the other way round.
pub(crate) fn swapped(frames: &Frames, root: Rank) -> Frames {
    let mut own = Frames::default();
    (0..frames.len()).for_each(|rank| own.push(frames.frame(exchanged(root, rank))));
    own
}

/// A group's error with the ranks' own numbers.
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

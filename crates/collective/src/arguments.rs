//! Checks of the arguments that every backend makes, so that all refuse the same mistakes.

use crate::{Error, Frames, Rank};

/// Checks the requirements of every backend's gather on its list of participants.
///
/// # Errors
/// [`Error::Protocol`] with `rank`, which passed the list.
pub fn check_participants((rank, root): (Rank, Rank), size: usize, participants: &[bool]) -> Result<(), Error> {
    let what = if participants.len() != size {
        format!("a list of {} participants in a group of {size}", participants.len())
    } else if !participants[root] {
        format!("a list of participants without the root, rank {root}")
    } else {
        return Ok(());
    };
    Err(Error::Protocol { operation: "gather", rank, what })
}

/// Checks the requirements of every backend's scatter on the root's frames.
///
/// # Errors
/// [`Error::Protocol`] with `rank`, which passed the frames.
pub fn check_frames((rank, root): (Rank, Rank), size: usize, frames: &Frames) -> Result<(), Error> {
    if rank != root || frames.len() == size {
        return Ok(());
    }
    let what = format!("{} frames to a group of {size}", frames.len());
    Err(Error::Protocol { operation: "scatter", rank, what })
}

/// Checks the length of a message outside of the operations.
///
/// # Errors
/// [`Error::Protocol`] with `rank`, the sender.
pub fn check_word(rank: Rank, word: &[u8]) -> Result<(), Error> {
    if word.len() <= WORD_MAX {
        return Ok(());
    }
    let what = format!("a word of {} bytes; at most {WORD_MAX} are allowed", word.len());
    Err(Error::Protocol { operation: "call", rank, what })
}

/// Longest message outside of the operations, bytes.
pub const WORD_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn participants_must_match_the_group() {
        assert!(check_participants((1, 0), 2, &[true, false]).is_ok());
        assert!(check_participants((1, 0), 2, &[true]).is_err());
        assert!(check_participants((1, 0), 2, &[false, true]).is_err());
        assert!(check_participants((0, 1), 2, &[false, true]).is_ok());
    }
}

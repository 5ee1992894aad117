//! A rank's contributions to the last operations, and the choice of operations to repeat after
//! ranks were lost.

use std::collections::VecDeque;

use probe_sync_collective::{Error, Frames, Rank};

use crate::operation::Operation;

/// What this rank contributed to the last operations, newest last.
#[derive(Debug, Default)]
pub(crate) struct Kept(VecDeque<(Operation, Part)>);

/// A rank's contribution to an operation.
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
    /// All frames of an allgather that this rank has finished.
    Allgathered(Vec<u8>),
    /// The last operation of the group.
    Farewell,
}

/// Where the group continues.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resume {
    /// The first operation that some rank has not finished.
    pub at: u64,
    /// A rank that has finished it, if any.
    pub holder: Option<Rank>,
}

impl Kept {
    /// Keeps this rank's contribution to an operation.
    pub fn keep(&mut self, operation: Operation, part: Part) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((operation, part));
    }

    /// Keeps the result of the last operation, an allgather.
    pub fn keep_result(&mut self, frames: &Frames) {
        let mut encoded = Vec::new();
        frames.encode(&mut encoded);
        if let Some((_, part)) = self.0.back_mut() {
            *part = Part::Allgathered(encoded);
        }
    }

    /// Returns this rank's contribution to an operation.
    ///
    /// # Errors
    /// Returns an error if that is too long ago.
    pub fn of(&self, number: u64) -> Result<(Operation, Part), Error> {
        let found = self.0.iter().find(|(operation, _)| operation.number() == number);
        found.cloned().ok_or_else(|| {
            let reason = format!("a rank lacks operation {number}, but only the last {KEPT} can be repeated");
            Error::Backend { operation: "continuing without lost ranks", reason }
        })
    }

    /// Nothing will be repeated any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Determines where ranks at these operations continue together.
pub(crate) fn resume(positions: impl Iterator<Item = (Rank, u64)> + Clone) -> Resume {
    let at = positions.clone().map(|(_, at)| at).min().unwrap_or(0);
    let mut finished = positions.filter(|(_, position)| *position > at);
    Resume { at, holder: finished.next().map(|(rank, _)| rank) }
}

/// Operations that can be repeated. The board's ring lets the root be four announcements ahead of a
/// rank, and each is preceded by a gather.
const KEPT: usize = 16;

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

//! The operation to which a piece belongs: its number and its kind, in one word that travels with
//! every piece.
//!
//! A rank counts all operations, including those in which it does not take part, so equal numbers
//! mean the same call on all ranks. The last meeting of a group has its own kind, so that a rank
//! that has dropped its end is never mistaken for a rank without data.

use probe_sync_collective::{Error, Rank};

/// Kinds of operations.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gather = 1,
    Broadcast = 2,
    Allgather = 3,
    Scatter = 4,
    /// All ranks leave.
    Farewell = 5,
}

/// One call on all ranks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    number: u64,
    kind: Kind,
}

impl Operation {
    pub(crate) fn new(number: u64, kind: Kind) -> Self {
        Self { number, kind }
    }

    /// Its index among the operations of the group.
    pub(crate) fn number(self) -> u64 {
        self.number
    }

    /// Its name, for errors.
    pub(crate) fn name(self) -> &'static str {
        self.kind.name()
    }

    /// The value sent; never 0.
    pub(crate) fn tag(self) -> u64 {
        (self.number << KIND_BITS) | self.kind as u64
    }

    /// Checks that what `rank` sent belongs to this operation.
    ///
    /// # Errors
    /// [`Error::Protocol`] with the operation that it belongs to.
    pub(crate) fn check(self, tag: u64, rank: Rank) -> Result<(), Error> {
        if tag == self.tag() {
            return Ok(());
        }
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u64 == tag & KIND_MASK);
        let sent = match kind {
            Some(Kind::Farewell) => "its farewell: it has let go of its end".to_owned(),
            Some(kind) => format!("a part of operation {}, {}", tag >> KIND_BITS, kind.name()),
            None => format!("a part of no operation (tag {tag:#x})"),
        };
        let what = format!("{sent}, where operation {}, {}, was under way", self.number, self.name());
        Err(Error::Protocol { operation: self.name(), rank, what })
    }
}

impl Kind {
    const ALL: [Self; 5] = [Self::Gather, Self::Broadcast, Self::Allgather, Self::Scatter, Self::Farewell];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gather => "gather",
            Self::Broadcast => "broadcast",
            Self::Allgather => "allgather",
            Self::Scatter => "scatter",
            Self::Farewell => "end of the group",
        }
    }
}

const KIND_BITS: u32 = 4;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_another_operation_names_its_rank() {
        let own = Operation::new(7, Kind::Gather);
        own.check(own.tag(), 3).expect("its own");
        let complaint = |tag: u64| own.check(tag, 3).expect_err("another's").to_string();
        assert!(complaint(Operation::new(7, Kind::Farewell).tag()).contains("rank 3 sent its farewell"));
        assert!(complaint(Operation::new(8, Kind::Gather).tag()).contains("operation 8, gather"));
        assert!(complaint(Operation::new(7, Kind::Scatter).tag()).contains("operation 7, scatter"));
        assert!(complaint(0).contains("no operation"));
    }
}

//! Kinds of events, and sets of kinds.
//!
//! Every [`Site`](crate::Site) has a kind; a session records the kinds that it asks for.

use serde::{Deserialize, Serialize};

/// Kind of an event.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A function or an operator of a framework.
    Function,
    /// The backward pass of a function or an operator.
    Backward,
    /// A user-defined event, such as a step or a phase.
    User,
    /// A collective operation or a message.
    Collective,
    /// A runtime call, such as a kernel launch.
    Runtime,
    /// Reading or writing.
    Io,
    /// Allocating or freeing memory.
    Memory,
    /// Anything else.
    Custom,
}

impl Kind {
    /// All kinds, in the order of their numbers in files.
    pub const ALL: [Self; 8] = [
        Self::Function,
        Self::Backward,
        Self::User,
        Self::Collective,
        Self::Runtime,
        Self::Io,
        Self::Memory,
        Self::Custom,
    ];

    /// Returns its name in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Backward => "backward",
            Self::User => "user",
            Self::Collective => "collective",
            Self::Runtime => "runtime",
            Self::Io => "io",
            Self::Memory => "memory",
            Self::Custom => "custom",
        }
    }

    /// Returns the kind with a number in a file.
    pub(crate) fn of_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    pub(crate) const fn number(self) -> u32 {
        self as u32
    }
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|kind| kind.as_str()).collect();
            format!("`{text}` is not an event kind; use one of {}", names.join(", "))
        })
    }
}

/// A set of kinds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Kinds(u32);

impl Kinds {
    /// No kind.
    pub const NONE: Self = Self(0);
    /// Every kind.
    pub const ALL: Self = Self((1 << Kind::ALL.len()) - 1);

    /// Creates a set of these kinds.
    pub fn of(kinds: &[Kind]) -> Self {
        Self(kinds.iter().fold(0, |bits, kind| bits | Self::bit(*kind)))
    }

    /// Returns true if the set contains a kind.
    pub fn contains(self, kind: Kind) -> bool {
        self.0 & Self::bit(kind) != 0
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the kinds, in the order of [`Kind::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }

    /// Returns the set with or without a kind.
    pub(crate) fn with(self, kind: Kind, wanted: bool) -> Self {
        Self(if wanted { self.0 | Self::bit(kind) } else { self.0 & !Self::bit(kind) })
    }

    pub(crate) const fn bit(kind: Kind) -> u32 {
        1 << kind as u32
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_a_number_a_name_and_a_bit_each() {
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind.number() as usize, number);
            assert_eq!(Kind::of_number(kind.number()), Some(kind));
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert!(Kinds::ALL.contains(kind) && !Kinds::NONE.contains(kind));
        }
        assert_eq!(Kind::of_number(8), None);
        let some = Kinds::of(&[Kind::Io, Kind::User]);
        assert_eq!(some.iter().collect::<Vec<_>>(), [Kind::User, Kind::Io]);
        assert!("steps".parse::<Kind>().unwrap_err().contains("`steps` is not an event kind"));
    }
}

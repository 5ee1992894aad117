//! Groups of what events carry in addition to names and times; a session records each or not.
//!
//! An argument belongs to a group by its key, `shapes`, `stack` or `module`, and otherwise to
//! `OTHER`.

use crate::typed::keys;

/// A set of groups.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Details(u8);

impl Details {
    pub const NONE: Self = Self(0);
    /// Dimensions of tensors.
    pub const SHAPES: Self = Self(1);
    /// Call stacks.
    pub const STACKS: Self = Self(1 << 1);
    /// Modules of the model.
    pub const MODULES: Self = Self(1 << 2);
    /// Floating-point operations, which exports compute from shapes.
    pub const FLOPS: Self = Self(1 << 3);
    /// All other arguments behind `||`.
    pub const OTHER: Self = Self(1 << 4);
    pub const ALL: Self = Self((1 << 5) - 1);

    /// Returns the set with or without the groups of another.
    pub const fn with(self, other: Self, wanted: bool) -> Self {
        Self(if wanted { self.0 | other.0 } else { self.0 & !other.0 })
    }

    /// Returns the groups of either.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if the set has any of the groups of another.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the group of an argument.
    pub fn of_key(key: &str) -> Self {
        match key {
            keys::SHAPES => Self::SHAPES,
            keys::STACK => Self::STACKS,
            keys::MODULE => Self::MODULES,
            _ => Self::OTHER,
        }
    }

    /// Returns the names of the groups in files.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().filter(move |(group, _)| self.has(*group)).map(|(_, name)| name)
    }
}

const NAMES: [(Details, &str); 5] = [
    (Details::SHAPES, "shapes"),
    (Details::STACKS, "stacks"),
    (Details::MODULES, "modules"),
    (Details::FLOPS, "flops"),
    (Details::OTHER, "other"),
];

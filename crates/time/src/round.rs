//! [`RoundId`]: which round.
//!
//! The round loop assigns it to a window when the window begins; the window's cuts, the round's
//! solution and the records in the files carry it. It does not state when the round took place; its
//! window's timestamps do.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A round of a run, counted from 0. Each round solves one window, so this is also the window's
/// number, and the sequence number in files.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct RoundId(pub u64);

impl RoundId {
    /// Returns the next round.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for RoundId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
impl fmt::Debug for RoundId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_a_bare_number_in_files_and_messages() {
        let third = RoundId::default().next().next();
        assert_eq!((third, format!("{third}|{third:>3}|{third:?}")), (RoundId(2), "2|  2|round 2".to_owned()));
        assert_eq!(serde_json::to_string(&third).expect("a number"), "2");
        assert_eq!(serde_json::from_str::<RoundId>("2").expect("a number"), third);
    }
}

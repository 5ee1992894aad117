//! The position of a time relative to the knots of a map.

/// Where a time lies, seen from the knots.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Between the first and the last.
    Inside,
    /// Before the first: extrapolated.
    Before,
    /// After the last: extrapolated.
    After,
}

impl Place {
    /// The place of a time that has gone through two maps.
    pub(super) fn and(self, other: Place) -> Place {
        if self == Place::Inside { other } else { self }
    }
}

//! The position of a time relative to the knots of a map.

/// Place of a time relative to the knots.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Between the first and the last knot.
    Inside,
    /// Before the first knot: extrapolated.
    Before,
    /// After the last knot: extrapolated.
    After,
}

impl Place {
    /// The place of a time that went through two maps.
    pub(super) fn and(self, other: Place) -> Place {
        if self == Place::Inside { other } else { self }
    }
}

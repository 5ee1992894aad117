//! The errors that virtual clocks can have in addition to an offset and a rate.

/// Errors of virtual clocks in addition to an offset and a rate.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum SkewModel {
    /// None.
    #[default]
    Constant,
    /// Oscillation: amplitude 5 to 50 µs, period 20 to 60 s, any phase. Rates vary by up to 16 ppm
    /// and change by up to 5 ppm per second, more than any room's temperature causes in a quartz.
    Sinusoid,
    /// One or two steps of 5 µs to 1 ms in either direction, at least a window after the start and
    /// before the end of the run (without `--duration`: of its first ten windows).
    Steps,
}

impl SkewModel {
    /// All models, with their names in configurations.
    pub const ALL: [(&str, Self); 3] =
        [("constant", Self::Constant), ("sinusoid", Self::Sinusoid), ("steps", Self::Steps)];

    /// Returns the name used in configurations.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, model)| *model == self).map_or("?", |(name, _)| name)
    }

    /// Returns the smallest number of windows that a run needs for this model: steps keep a
    /// window's distance from both ends.
    pub fn fewest_windows(self) -> i64 {
        if self == Self::Steps { 3 } else { 0 }
    }
}

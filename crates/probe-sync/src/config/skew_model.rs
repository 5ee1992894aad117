//! The errors that virtual clocks can have in addition to an offset and a rate.

/// What virtual clocks do beside being wrong by an offset and a rate.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum SkewModel {
    /// Nothing.
    #[default]
    Constant,
    /// They swing: amplitude 5 to 50 µs, period 20 to 60 s, any phase. Rates vary by up to 16 ppm
    /// and change by up to 5 ppm per second, more than any room's temperature does to a quartz.
    Sinusoid,
    /// They jump, once or twice, by 5 µs to 1 ms in either direction, at least a window after the
    /// start and before the end of the run (without `--duration`: of its first ten windows).
    Steps,
}

impl SkewModel {
    /// All of them, with the names that they have in configurations.
    pub const ALL: [(&str, Self); 3] =
        [("constant", Self::Constant), ("sinusoid", Self::Sinusoid), ("steps", Self::Steps)];

    /// The name that it has in configurations.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, model)| *model == self).map_or("?", |(name, _)| name)
    }

    /// The fewest windows that a run must have for it: steps keep a window's distance from both
    /// ends.
    pub fn fewest_windows(self) -> i64 {
        if self == Self::Steps { 3 } else { 0 }
    }
}

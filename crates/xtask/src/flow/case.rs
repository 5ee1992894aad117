//! A case of the flow: its clocks, machine and duration, and the results it must show.

use clap::ValueEnum;

/// One run's conditions.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What the virtual clocks do.
    pub model: Model,
    /// Whether all cores are kept busy beside it.
    pub loaded: bool,
    /// Of the virtual clocks.
    pub seed: u32,
    /// How long to measure, s.
    pub seconds: u32,
}

/// What the virtual clocks do, as `--skew-model` takes it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// Wrong by an offset and a rate
    Constant,
    /// They swing beside that
    Sinusoid,
    /// They jump beside that
    Steps,
}

impl Model {
    /// Its name for `probe_sync` and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Sinusoid => "sinusoid",
            Self::Steps => "steps",
        }
    }

    /// No time of an aligned trace may be further from the true one, ns; about a step nothing is
    /// asked.
    pub fn bar_ns(self) -> f64 {
        match self {
            Self::Constant => 100.0,
            Self::Sinusoid => 200.0,
            Self::Steps => 300.0,
        }
    }
}

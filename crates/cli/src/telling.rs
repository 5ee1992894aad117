//! The verbosity flags that all commands share.

use std::sync::OnceLock;

use clap::{Args, ValueEnum};

/// What is told on standard error: flags of every command.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Messages")]
pub struct Telling {
    /// Print only warnings and errors, and no progress
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print every part of a run's rounds with its time, and details of a check
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Write messages as text, or as JSON with one object per line
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

/// How messages are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

impl Telling {
    /// Whether progress may be drawn in place.
    pub fn draws(self) -> bool {
        !self.quiet && self.log_format == LogFormat::Text
    }
}

/// Sets what the command line requested.
pub fn ask(asked: Telling) -> Telling {
    *TELLING.get_or_init(|| asked)
}

/// Returns what the command line requested.
pub fn telling() -> Telling {
    TELLING.get().copied().unwrap_or_default()
}

static TELLING: OnceLock<Telling> = OnceLock::new();

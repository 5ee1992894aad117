//! What the command tells on standard error, and where spans go.
//!
//! Place in the flow: as soon as the command line is read. Flags or `PROBE_SYNC_LOG` choose what is told (`debug` shows every part of every round with its time).
//! With the feature `otlp` spans go to a collector too. What it does not do: colour, since logs end in files.

use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::{launch, progress};

/// What is told on standard error: flags of every command.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Messages")]
pub struct Telling {
    /// Tell warnings and errors only, and draw no progress
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Tell every part of a run's rounds, with the time that it took
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// How messages are written: text, or one JSON object a line
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

/// How messages are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

impl Telling {
    /// Whether progress may be drawn in place.
    pub fn draws(self) -> bool {
        !self.quiet && self.log_format == LogFormat::Text
    }
}

/// What the command line asked for.
pub fn telling() -> Telling {
    TELLING.get().copied().unwrap_or_default()
}

static TELLING: OnceLock<Telling> = OnceLock::new();

/// Starts it; what is returned lives as long as the command. A flag wins over the variable.
pub fn start(asked: Telling) -> impl Sized {
    let telling = *TELLING.get_or_init(|| asked);
    let default = match telling {
        Telling { quiet: true, .. } => Some("warn"),
        Telling { verbose: true, .. } => Some("debug"),
        _ => None,
    };
    let usual = if launch::speaks() { "info" } else { "warn" };
    let of_variable = || EnvFilter::try_from_env("PROBE_SYNC_LOG").unwrap_or_else(|_| EnvFilter::new(usual));
    let filter = default.map_or_else(of_variable, EnvFilter::new);
    let text = tracing_subscriber::fmt::layer()
        .with_writer(|| progress::AboveTheLine)
        .with_target(false)
        // At the level debug every part of a round says how long it took.
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        // A closed standard error (`| head`) must not end a run.
        .log_internal_errors(false);
    let text = match telling.log_format {
        LogFormat::Text => text.boxed(),
        LogFormat::Json => text.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    };
    let text = text.with_filter(filter);
    let registry = tracing_subscriber::registry().with(text);
    #[cfg(feature = "otlp")]
    {
        let (spans, sender, problem) = crate::otlp::layer();
        registry.with(spans).init();
        if let Some(problem) = problem {
            tracing::warn!("spans are not exported: {problem}");
        }
        sender
    }
    #[cfg(not(feature = "otlp"))]
    registry.init();
}

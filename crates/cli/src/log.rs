//! What the command tells on standard error, and where spans go.
//!
//! Place in the flow: first of all, before MPI can fail. `PROBE_SYNC_LOG` chooses what is told (`debug` shows every part of every round with its time).
//! With the feature `otlp` spans go to a collector too. What it does not do: colour, since logs end in files.

use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::{launch, progress};

/// Starts it; what is returned lives as long as the command.
pub fn start() -> impl Sized {
    let default = if launch::speaks() { "info" } else { "warn" };
    let filter = EnvFilter::try_from_env("PROBE_SYNC_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let text = tracing_subscriber::fmt::layer()
        .with_writer(|| progress::AboveTheLine)
        .with_target(false)
        // At the level debug every part of a round says how long it took.
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        // A closed standard error (`| head`) must not end a run.
        .log_internal_errors(false)
        .with_filter(filter);
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

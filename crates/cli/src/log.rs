//! Logging to standard error, and the destination of spans.
//!
//! Flags or `PROBE_SYNC_LOG` choose the level (`debug` shows every part of every round with its
//! time). With the feature `otlp`, spans also go to a collector. Output is not coloured, because
//! logs end up in files.

use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::telling::{self, LogFormat, Telling};
use crate::{launch, progress};

/// Starts logging; the returned guard must live as long as the command. A flag takes precedence
/// over the variable.
pub fn start(asked: Telling) -> impl Sized {
    let telling = telling::ask(asked);
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
            tracing::warn!("cannot export spans: {problem}");
        }
        sender
    }
    #[cfg(not(feature = "otlp"))]
    registry.init();
}

//! `record start`: sessions on demand begin, now or at a time that all nodes agree on.

use anyhow::Context as _;
use clap::Args;
use probe_sync_record::control::{self, Request};

use super::asking::Asked;
use crate::output::Usage;

/// Flags of `record start`.
#[derive(Args, Debug)]
pub struct StartArgs {
    /// Reference time at which to start: ns since the Unix epoch, or +2s from now. Nodes given the
    /// same time record the same interval
    #[arg(long, value_name = "TIME", requires = "span", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// How long to record, for example 200ms
    #[arg(long = "for", id = "span", value_name = "DURATION", requires = "at")]
    pub span: Option<String>,
    /// Whom.
    #[command(flatten)]
    pub asked: Asked,
}

/// Sends the request, and prints each answer.
///
/// # Errors
/// States what is wrong with the times; names the sessions that refuse.
pub fn run(arguments: &StartArgs) -> anyhow::Result<()> {
    let window_ns = arguments.at.as_deref().zip(arguments.span.as_deref());
    let window_ns = window_ns.map(|(at, span)| window(at, span, &arguments.asked)).transpose()?;
    arguments.asked.ask(&Request::Start { window_ns }, |answer| match answer.window_ns {
        Some([from, to]) => format!("records from {from} to {to} ns of the reference clock"),
        None => "records".into(),
    })
}

fn window(at: &str, span: &str, asked: &Asked) -> anyhow::Result<[i64; 2]> {
    let span = duration(span, "--for")?;
    let from = match at.strip_prefix('+') {
        Some(later) => reference(asked)?.saturating_add(duration(later, "--at")?),
        None => at.parse().map_err(|_| {
            anyhow::anyhow!("--at: `{at}` is not a time; give ns since the Unix epoch, or +2s").context(Usage)
        })?,
    };
    Ok([from, from.saturating_add(span)])
}

fn duration(text: &str, flag: &str) -> anyhow::Result<i64> {
    let parsed =
        probe_sync::config::duration(text).map_err(|reason| anyhow::anyhow!("{flag}: {reason}").context(Usage))?;
    anyhow::ensure!(parsed.as_ns() > 0, anyhow::anyhow!("{flag}: {text} is not greater than zero").context(Usage));
    Ok(parsed.as_ns())
}

/// Present reference time, from the first of the sessions.
fn reference(asked: &Asked) -> anyhow::Result<i64> {
    let sockets = asked.sockets()?;
    let first = sockets.first().context("nobody is asked")?;
    let answer = control::ask(first, &Request::Status)?;
    answer.reference_ns.with_context(|| {
        format!(
            "{}: this session has no reference clock yet; give its builder one, or give --at a time in ns",
            first.display()
        )
    })
}

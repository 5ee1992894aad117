//! `probe_sync ctl`, which sends a request to a run in progress.
//!
//! The request travels through the socket in the run's directory. It cannot reach a run on another
//! host.

use probe_sync::Request;

use crate::args::{Ask, CtlArgs};
use crate::{documents, output};

/// Sends the request, and prints the first round to which it applies.
pub fn run(arguments: &CtlArgs) -> anyhow::Result<()> {
    let request = match &arguments.ask {
        Ask::Pause => Request::Pause,
        Ask::Resume => Request::Resume,
        Ask::Phase { name: None } => Request::Phase(None),
        Ask::Phase { name: Some(name) } => Request::phase(name).map_err(anyhow::Error::msg)?,
        Ask::EndRound => Request::EndRound,
        Ask::Stop => Request::Stop,
    };
    let since = probe_sync::ask(&arguments.run_dir, &request)?;
    if arguments.json {
        let (round, start_ns) = (since.round.0, since.start.as_ns());
        return output::json(&documents::Ctl { schema: 1, round, start_ns });
    }
    output::tell(&match request {
        Request::Stop => format!("the run ends with round {}\n", since.round),
        _ => format!(
            "from round {} on, which begins at {} ns of the reference clock\n",
            since.round,
            since.start.as_ns()
        ),
    })
}

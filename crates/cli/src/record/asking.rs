//! Requests to sessions of processes on this host, either one session or all that listen in a
//! folder, and their answers.
//!
//! It does not reach other hosts; use `--at` to start on all of them at once.

use std::path::{Path, PathBuf};

use probe_sync_record::control::{self, Answer, Request};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output;

/// Whom to ask, and how to print.
#[derive(clap::Args, Debug)]
pub struct Asked {
    /// Folders that hold the sockets of sessions (the command goes to all of them), or single
    /// sockets
    #[arg(required = true, value_name = "DIR")]
    pub paths: Vec<PathBuf>,
    /// Print JSON, one line per session
    #[arg(long)]
    pub json: bool,
}

impl Asked {
    /// Returns the sockets of all sessions.
    ///
    /// # Errors
    /// Returns an error if no session is listening.
    pub fn sockets(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for path in &self.paths {
            found.extend(control::sockets(path)?);
        }
        found.dedup();
        Ok(found)
    }

    /// Sends the request to all sessions, some at a time, and prints each answer.
    ///
    /// # Errors
    /// Lists the sessions that refuse or do not answer; the others have carried it out.
    pub fn ask(&self, request: &Request, say: impl Fn(&Answer) -> String) -> anyhow::Result<()> {
        let sockets = self.sockets()?;
        let mut failed = Vec::new();
        for some in sockets.chunks(AT_ONCE) {
            let answers: Vec<_> = std::thread::scope(|threads| {
                let asking: Vec<_> =
                    some.iter().map(|socket| threads.spawn(|| control::ask(socket, request))).collect();
                asking.into_iter().map(|asking| asking.join().expect("asking does not panic")).collect()
            });
            for (socket, answer) in some.iter().zip(answers) {
                match answer {
                    Ok(answer) => self.tell(socket, &answer, &say)?,
                    Err(error) => failed.push(error.to_string()),
                }
            }
        }
        let others = sockets.len() - failed.len();
        match failed.as_slice() {
            [] => Ok(()),
            [one] if others == 0 => anyhow::bail!("{one}"),
            several => {
                anyhow::bail!(
                    "{} of {} failed, the others succeeded:\n{}",
                    several.len(),
                    sockets.len(),
                    several.join("\n")
                )
            }
        }
    }

    fn tell(&self, socket: &Path, answer: &Answer, say: impl Fn(&Answer) -> String) -> anyhow::Result<()> {
        if self.json {
            return output::json_line(&Answered { schema: 1, socket, answer });
        }
        let facts = &answer.standing.facts;
        let rank = facts.rank.map_or_else(String::new, |rank| format!("rank {rank}, "));
        output::tell(&format!("{rank}{} {}: {}\n", facts.program, facts.pid, say(answer)))
    }
}

/// One line of the output of `record start`, `stop` and `snapshot` with `--json`: the answer of a
/// session.
#[derive(Serialize, JsonSchema)]
pub struct Answered<'a> {
    schema: u32,
    /// Socket of the session.
    socket: &'a Path,
    answer: &'a Answer,
}

/// Sessions asked concurrently.
const AT_ONCE: usize = 16;

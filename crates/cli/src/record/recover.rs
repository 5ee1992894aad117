//! `record recover`, which shows where a process hangs, or where it was when it was killed.
//!
//! It prints the open scopes of every thread as text or JSON; a scope reaches the file before
//! anything else happens in it. It works on the file of a running process and on the file that a
//! killed process has left. It does not explain why a process hangs.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use probe_sync_formats::words::counted;
use probe_sync_record::export::{Format, OnSystem};
use probe_sync_record::read::{ArgumentValue, OpenScope, Thread};
use probe_sync_record::{Facts, Recording};
use schemars::JsonSchema;
use serde::Serialize;

/// Flags of `record recover`.
#[derive(Args, Debug)]
pub struct RecoverArgs {
    /// The recording of a process that is running, hangs, or was killed
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write everything that was recovered as a trace; the file name's ending selects the format:
    /// .pt.trace.json, .pftrace or .json, with or without .gz
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Reads the recording and prints its open scopes.
///
/// # Errors
/// Names the file and the problem.
pub fn run(arguments: &RecoverArgs) -> anyhow::Result<()> {
    if let Some(output) = &arguments.output {
        crate::output::keep_apart(output, arguments.json)?;
    }
    let recording = Recording::open(&arguments.file)?;
    // Without a clock everything but how long it took is known.
    let system = recording.on_system();
    let recovered = Recovered::of(&recording, system.as_ref().ok());
    match arguments.json {
        true => crate::output::json_line(&recovered)?,
        false => crate::output::tell(&recovered.text())?,
    }
    let Some(output) = &arguments.output else { return Ok(()) };
    let exported = system?.write(format_of(output), output)?;
    if arguments.json {
        return Ok(());
    }
    crate::output::tell(&format!("{}: {}\n", output.display(), counted(exported.events, "event")))
}

/// Returns the format for a file name's ending; the writer rejects unknown ones.
fn format_of(path: &Path) -> Format {
    let name = path.to_string_lossy();
    if name.contains(".pt.trace.json") {
        Format::Kineto
    } else if name.contains(".json") {
        Format::ChromeJson
    } else {
        Format::Perfetto
    }
}

/// Output of `probe_sync record recover --json`.
#[derive(Serialize, JsonSchema)]
pub struct Recovered<'a> {
    schema: u32,
    program: &'a str,
    pid: u32,
    host: &'a str,
    rank: Option<u32>,
    state: State,
    threads: Vec<OfThread<'a>>,
}

/// State of the recorded process.
#[derive(Copy, Clone, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum State {
    /// The recording ended normally.
    Finished,
    /// A process with this pid has been running on this machine since before the recording began.
    Running,
    /// No such process exists.
    Gone,
    /// The recording is from another machine, or from before this machine's last boot.
    Elsewhere,
}

/// A thread and its open scopes, outermost first.
#[derive(Serialize, JsonSchema)]
struct OfThread<'a> {
    tid: u64,
    name: &'a str,
    events: u64,
    lost: u64,
    inside: Vec<OfScope<'a>>,
}

/// A scope that was not left.
#[derive(Serialize, JsonSchema)]
struct OfScope<'a> {
    name: &'a str,
    kind: &'static str,
    /// Start, ns since 1970 on the machine's system clock.
    since_ns: Option<i64>,
    /// Duration until now, or until the last known time of a process that is gone, s.
    for_s: Option<f64>,
    arguments: serde_json::Map<String, serde_json::Value>,
}

impl<'a> Recovered<'a> {
    fn of(recording: &'a Recording, system: Option<&OnSystem<'_>>) -> Self {
        let facts = recording.facts();
        let status = recording.status();
        let state = if status.finished { State::Finished } else { State::of_process(facts) };
        let at = |ticks| system.map(|system| system.clock().at(ticks).0);
        let until = if state == State::Running { now_ns() } else { at(status.end) };
        let scope = |scope: &'a OpenScope| {
            let since_ns = at(scope.start);
            let for_s = until.zip(since_ns).map(|(until, since)| (until - since).max(0) as f64 * 1e-9);
            let arguments = scope.arguments.iter().map(|(key, value)| (key.clone(), json(value))).collect();
            OfScope { name: &scope.name, kind: scope.kind.as_str(), since_ns, for_s, arguments }
        };
        let thread = |thread: &'a Thread| OfThread {
            tid: thread.tid,
            name: &thread.name,
            events: thread.events,
            lost: thread.lost.events,
            inside: thread.open.iter().map(scope).collect(),
        };
        let threads = recording.threads().iter().map(thread).collect();
        Self { schema: 1, program: &facts.program, pid: facts.pid, host: &facts.host, rank: facts.rank, state, threads }
    }

    fn text(&self) -> String {
        let rank = self.rank.map(|rank| format!(" rank {rank}")).unwrap_or_default();
        let state = match self.state {
            State::Finished => "the recording was finished",
            State::Running => "the process is running",
            State::Gone => "the process is gone: it was killed, or ended without finishing the recording",
            State::Elsewhere => {
                "the recording was not finished, and its process is from another machine or an earlier boot of this one"
            }
        };
        let mut text = format!("{}{rank} pid {} {}: {state}\n", self.host, self.pid, self.program);
        for thread in &self.threads {
            let name = if thread.name.is_empty() { "without a name" } else { thread.name };
            let inside = if thread.inside.is_empty() { " is outside every scope" } else { " is inside" };
            text.push_str(&format!(
                "thread {} {name}{inside} ({} before)\n",
                thread.tid,
                counted(thread.events, "event")
            ));
            for (depth, scope) in thread.inside.iter().enumerate() {
                let length = scope.for_s.map_or_else(|| "?".to_owned(), |seconds| format!("{seconds:.3} s"));
                let arguments: Vec<String> =
                    scope.arguments.iter().map(|(key, value)| format!(" {key}={value}")).collect();
                text.push_str(&format!(
                    "{:indent$}{} for {length}{}\n",
                    "",
                    scope.name,
                    arguments.concat(),
                    indent = 2 * depth + 2
                ));
            }
        }
        text
    }
}

impl State {
    fn of_process(facts: &Facts) -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        if boot.trim().is_empty() || boot.trim() != facts.boot_id {
            return Self::Elsewhere;
        }
        if Path::new("/proc").join(facts.pid.to_string()).exists() { Self::Running } else { Self::Gone }
    }
}

fn now_ns() -> Option<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_nanos()).ok()
}

fn json(value: &ArgumentValue) -> serde_json::Value {
    match value {
        ArgumentValue::Integer(value) => (*value).into(),
        ArgumentValue::Unsigned(value) => (*value).into(),
        ArgumentValue::Float(value) => (*value).into(),
        ArgumentValue::Boolean(value) => (*value).into(),
        ArgumentValue::Text(text) => text.clone().into(),
        ArgumentValue::Json(text) => serde_json::from_str(text).unwrap_or_else(|_| text.clone().into()),
        ArgumentValue::Addresses(all) => all.iter().map(|address| format!("{address:#x}")).collect::<Vec<_>>().into(),
    }
}

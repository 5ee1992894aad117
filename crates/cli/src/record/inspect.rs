//! `record inspect`, which describes the contents of recordings.
//!
//! It prints a recording's properties, counts and clock as a table or as a line of JSON.

use std::path::{Path, PathBuf};

use clap::Args;
use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use probe_sync_formats::words::counted;
use probe_sync_record::export::SystemClock;
use probe_sync_record::read::Thread;
use probe_sync_record::{Facts, Kind, Recording};
use schemars::JsonSchema;
use serde::Serialize;

use crate::table::unsigned;

/// Flags of `record inspect`.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// Recordings: finished, in progress, or left by a process that was killed
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print JSON, one line per file
    #[arg(long)]
    pub json: bool,
}

/// Reads and prints each file.
///
/// # Errors
/// Names the file, the byte offset and the problem.
pub fn run(arguments: &InspectArgs) -> anyhow::Result<()> {
    for path in &arguments.files {
        let recording = Recording::open(path)?;
        let found = Inspected::of(path, &recording);
        match arguments.json {
            true => crate::output::json_line(&found)?,
            false => crate::output::tell(&found.text())?,
        }
    }
    Ok(())
}

/// One line of `probe_sync record inspect --json`: one recording.
#[derive(Serialize, JsonSchema)]
pub struct Inspected<'a> {
    schema: u32,
    file: &'a Path,
    facts: &'a Facts,
    finished: bool,
    length_ns: Option<i64>,
    start_ns: Option<i64>,
    events: u64,
    lost: u64,
    unfinished_scopes: usize,
    sites: usize,
    definitions_lost: u64,
    pauses: u64,
    omitted: OfFilters,
    /// For example on backends that were absent.
    notes: &'a [String],
    clock: Clock,
    threads: Vec<OfThread<'a>>,
}

/// Events that filters omitted.
#[derive(Serialize, JsonSchema)]
struct OfFilters {
    /// Events of other kinds; null if they were not counted.
    kinds: Option<u64>,
    /// Scopes whose turn it was not.
    one_in: u64,
    /// Scopes that were too short.
    longer_than: u64,
    /// Events outside of windows.
    windows: u64,
}

/// Clock of the recording.
#[derive(Serialize, JsonSchema)]
struct Clock {
    pairs: usize,
    /// 95th percentile of the distance between the pairs and the map fitted to them, ns.
    residual_p95_ns: Option<f64>,
    steps: usize,
    failed: bool,
    problem: Option<String>,
}

/// One thread.
#[derive(Serialize, JsonSchema)]
struct OfThread<'a> {
    serial: u32,
    tid: u64,
    name: &'a str,
    events: u64,
    lost: u64,
    interrupted: u64,
    arguments_lost: u64,
    too_deep: u64,
    open: Vec<&'a str>,
}

impl<'a> Inspected<'a> {
    fn of(file: &'a Path, recording: &'a Recording) -> Self {
        let status = recording.status();
        let threads: Vec<OfThread<'a>> = recording.threads().iter().map(OfThread::of).collect();
        let system = recording.on_system();
        let times =
            system.as_ref().ok().map(|system| [status.start, status.end].map(|ticks| system.clock().at(ticks).0));
        let residuals = system.as_ref().ok().map(|system| SystemClock::residuals(system.clock()));
        Self {
            schema: 1,
            file,
            facts: recording.facts(),
            finished: status.finished,
            length_ns: times.map(|[start, end]| end - start),
            start_ns: times.map(|[start, _]| start),
            events: threads.iter().map(|thread| thread.events).sum(),
            lost: threads.iter().map(|thread| thread.lost).sum::<u64>() + status.lost.events,
            unfinished_scopes: threads.iter().map(|thread| thread.open.len()).sum(),
            sites: recording.sites().count(),
            definitions_lost: status.definitions_lost,
            pauses: status.pauses,
            omitted: OfFilters {
                kinds: recording.facts().counts_omitted.then_some(status.omitted.kinds),
                one_in: status.omitted.one_in,
                longer_than: status.omitted.longer_than,
                windows: status.outside,
            },
            notes: recording.notes(),
            clock: Clock {
                pairs: recording.pairs().len(),
                residual_p95_ns: residuals.map(|residuals| residuals.p95_ns),
                steps: residuals.map_or(0, |residuals| residuals.steps),
                failed: status.clock_failed > 0,
                problem: system.as_ref().err().map(ToString::to_string),
            },
            threads,
        }
    }

    fn text(&self) -> String {
        let Facts { program, pid, host, rank, policy, reach, clock, kinds, .. } = self.facts;
        let rank = rank.map(|rank| format!(", rank {rank}")).unwrap_or_default();
        let state = if self.finished { "finished" } else { "in progress, or its process was killed" };
        let length = self.length_ns.map(|ns| format!(", {} long", unsigned(ns as f64))).unwrap_or_default();
        let residual = self.clock.residual_p95_ns.map(|ns| format!(", within {} of the fitted curve", unsigned(ns)));
        let mut text = format!(
            "{}: {program}, pid {pid} on {host}{rank}; {state}{length}\n  {} events from {} places in the program, {} lost; kinds {}; \
            {policy}, {reach}\n  clock {clock}, \
             {} pairs with the system clock{}\n",
            self.file.display(),
            self.events,
            self.sites,
            self.lost,
            kinds.join(" "),
            self.clock.pairs,
            residual.unwrap_or_default(),
        );
        let mut note = |holds: bool, note: String| {
            if holds {
                text.push_str(&format!("  {note}\n"));
            }
        };
        note(self.clock.steps > 0, format!("the system clock was set {}", counted(self.clock.steps, "time")));
        note(self.clock.failed, "the counter became unusable as a clock".into());
        note(self.definitions_lost > 0, format!("no space for {}", counted(self.definitions_lost, "definition")));
        note(self.pauses > 0, format!("paused and resumed {}", counted(self.pauses, "time")));
        note(self.clock.problem.is_some(), self.clock.problem.clone().unwrap_or_default());
        self.omitted.texts(self.facts).into_iter().for_each(|(holds, text)| note(holds, text));
        self.notes.iter().for_each(|text| note(true, text.clone()));
        text + &crate::table::fitted(table(&self.threads), &[5, 4])
    }
}

impl OfFilters {
    /// Returns a note for each filter, and whether it holds.
    fn texts(&self, facts: &Facts) -> [(bool, String); 5] {
        let events = |count: u64| counted(count, "event");
        let scopes = |count: u64| counted(count, "scope");
        let longer_than = unsigned(facts.longer_than_ns as f64);
        let uncounted = "the filter kinds omitted other kinds; count_omitted would count their events".to_owned();
        let all = facts.kinds.len() == Kind::ALL.len();
        [
            (
                self.kinds.is_some_and(|count| count > 0),
                format!("the filter kinds omitted {}", events(self.kinds.unwrap_or(0))),
            ),
            (self.kinds.is_none() && !all, uncounted),
            (self.one_in > 0, format!("the filter one_in {} omitted {}", facts.every, scopes(self.one_in))),
            (
                self.longer_than > 0,
                format!("the filter longer_than {longer_than} omitted {}", scopes(self.longer_than)),
            ),
            (self.windows > 0, format!("{} outside of windows were omitted", events(self.windows))),
        ]
    }
}

impl<'a> OfThread<'a> {
    fn of(thread: &'a Thread) -> Self {
        Self {
            serial: thread.serial,
            tid: thread.tid,
            name: &thread.name,
            events: thread.events,
            lost: thread.lost.events,
            interrupted: thread.interrupted,
            arguments_lost: thread.arguments_lost,
            too_deep: thread.too_deep,
            open: thread.open.iter().map(|scope| scope.name.as_str()).collect(),
        }
    }
}

fn table(threads: &[OfThread<'_>]) -> Table {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["thread", "name", "events", "lost", "in signals", "arguments lost", "inside of"]);
    for thread in threads {
        table.add_row([
            thread.tid.to_string(),
            thread.name.to_owned(),
            thread.events.to_string(),
            thread.lost.to_string(),
            thread.interrupted.to_string(),
            thread.arguments_lost.to_string(),
            thread.open.join(" > "),
        ]);
    }
    for column in table.column_iter_mut() {
        if (2..=5).contains(&column.index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

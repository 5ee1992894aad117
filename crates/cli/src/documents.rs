//! The documents that commands print with `--json`: one per command on standard output, with a
//! schema number and with units in the field names.
//!
//! `docs/schemas/COMMAND.vN.json` are the JSON Schemas of these types, as `probe_sync json-schemas`
//! prints them; a test compares the two and validates the output of every command. Removing a field
//! or changing its meaning increments the number of its document, and the old schema stays in its
//! file.

use std::path::PathBuf;

use probe_sync::late::LateRecord;
use probe_sync::solve::Solved;
use probe_sync::standing::Standing;
use probe_sync_alignment::{
    AlignmentStats, Calibrated, ConvertReport, MergeReport, Omitted, Outcome, Verdict, VerdictDocument,
};
use probe_sync_analysis::Lateness;
use probe_sync_page::{Mood, Page};
use probe_sync_record::export::Exported;
use probe_sync_sys::doctor::{Fact, Level};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

/// Of `align`.
#[derive(Serialize, JsonSchema)]
pub struct Align {
    schema: u32,
    /// The traces that were written.
    traces: Vec<AlignedTrace>,
    /// What of the traces is in no output.
    omitted: Omitted,
    /// With --validate: what the check came to.
    outcome: Option<Outcome>,
}

/// A trace and what became of it.
#[derive(Serialize, JsonSchema)]
pub struct AlignedTrace {
    /// The input.
    pub path: PathBuf,
    /// The file that was written.
    pub output: PathBuf,
    /// What was done to its times.
    pub alignment: AlignmentStats,
}

impl Align {
    pub fn new(traces: Vec<AlignedTrace>, calibrated: &Calibrated, verdict: Option<&Verdict<'_>>) -> Self {
        Self { schema: 2, traces, omitted: calibrated.omitted(), outcome: verdict.map(Verdict::outcome) }
    }
}

/// Of `merge`.
#[derive(Serialize, JsonSchema)]
pub struct Merge<'a> {
    schema: u32,
    /// The file that was written.
    output: PathBuf,
    /// The inputs, in the order of `traces`.
    inputs: Vec<PathBuf>,
    /// What of the traces is not in it.
    omitted: Omitted,
    #[serde(flatten)]
    report: &'a MergeReport,
    /// With --validate: what the check came to.
    outcome: Option<Outcome>,
}

impl<'a> Merge<'a> {
    pub fn new(
        output: PathBuf,
        calibrated: &Calibrated,
        report: &'a MergeReport,
        verdict: Option<&Verdict<'_>>,
    ) -> Self {
        let inputs = report.written.iter().map(|place| calibrated.traces[*place].trace.path.clone()).collect();
        let omitted = calibrated.omitted();
        Self { schema: 2, output, inputs, omitted, report, outcome: verdict.map(Verdict::outcome) }
    }
}

/// Of `convert`.
#[derive(Serialize, JsonSchema)]
pub struct Convert {
    schema: u32,
    /// What was written but CSV; none where only that was asked for.
    report: Option<ConvertReport>,
    /// The CSV files.
    csv: Vec<CsvFile>,
    /// What of the traces is in no output but CSV.
    omitted: Omitted,
}

/// A CSV file.
#[derive(Serialize, JsonSchema)]
pub struct CsvFile {
    /// Its name.
    pub path: PathBuf,
    /// Its rows, without the header.
    pub rows: u64,
}

impl Convert {
    pub fn new(report: Option<ConvertReport>, csv: Vec<CsvFile>, omitted: Omitted) -> Self {
        Self { schema: 2, report, csv, omitted }
    }
}

/// Of `solve`.
#[derive(Serialize, JsonSchema)]
pub struct Solve {
    schema: u32,
    /// The file of offsets.
    output: PathBuf,
    /// Exchanges used; of windows, those that their fits had used; of packets, the packets.
    exchanges: usize,
    nodes: usize,
    rounds: usize,
    /// Lines of offsets.
    lines: usize,
    skipped_lines: usize,
    skipped_rounds: usize,
    /// Exchanges that no fit used: their stamps came from another source than their window's best.
    left_out_exchanges: u64,
    /// Rounds after the reference was there for the last time, in which another node carried its
    /// timeline on.
    carried_rounds: usize,
    /// Median half-width of the 95 % intervals, ns.
    half_width_95_ns: Option<f64>,
    /// Standard deviation of a median path's asymmetry, ns.
    asymmetry_sd_ns: f64,
    /// Times at which a clock was stepped or restarted.
    breaks: usize,
    /// Faults of clocks and paths, in the order in which they showed.
    faults: Vec<String>,
    notes: Vec<String>,
}

impl Solve {
    pub fn new(output: PathBuf, solved: &Solved) -> Self {
        let Solved { exchanges, nodes, rounds, lines, skipped_lines, left_out_exchanges, .. } = *solved;
        Self {
            schema: 1,
            output,
            exchanges,
            nodes,
            rounds,
            lines,
            skipped_lines,
            skipped_rounds: solved.skipped_rounds,
            left_out_exchanges,
            carried_rounds: solved.carried_rounds,
            half_width_95_ns: solved.half_width_95_ns,
            asymmetry_sd_ns: solved.asymmetry_sd_ns,
            breaks: solved.breaks,
            faults: solved.faults.iter().map(ToString::to_string).collect(),
            notes: solved.notes.clone(),
        }
    }
}

/// Of `export`.
#[derive(Serialize, JsonSchema)]
pub struct Export {
    schema: u32,
    /// The file that was written.
    output: PathBuf,
    /// How large it is; none where it is no file.
    bytes: Option<u64>,
}

impl Export {
    pub fn new(output: PathBuf) -> Self {
        let bytes = std::fs::metadata(&output).ok().filter(std::fs::Metadata::is_file).map(|found| found.len());
        Self { schema: 1, output, bytes }
    }
}

/// Of `clock`.
#[derive(Serialize, JsonSchema)]
pub struct Clock {
    pub schema: u32,
    /// The reference's time, ns since 1970.
    pub time_ns: i64,
    /// The earliest that it may be, and the latest.
    pub earliest_ns: i64,
    pub latest_ns: i64,
    /// Half of the 95 % interval.
    pub bound95_ns: i64,
    /// `unsynchronised`, `synchronised`, `holdover` or `failed`.
    pub status: &'static str,
    /// Raised when the timeline begins anew.
    pub epoch: u64,
    /// This host's system clock, read just before.
    pub system_ns: i64,
    /// This host's node, and the reference.
    pub node: Option<u32>,
    pub reference: Option<u32>,
}

/// Of `ctl`.
#[derive(Serialize, JsonSchema)]
pub struct Ctl {
    pub schema: u32,
    /// The round from which on it holds.
    pub round: u64,
    /// Where its window begins on the reference clock, ns.
    pub start_ns: i64,
}

/// Of `doctor`.
#[derive(Serialize, JsonSchema)]
pub struct Doctor<'a> {
    schema: u32,
    /// What was found out of this machine.
    facts: Vec<DoctorFact<'a>>,
}

/// One thing found out.
#[derive(Serialize, JsonSchema)]
struct DoctorFact<'a> {
    topic: &'a str,
    /// `ok`, `warn`, or `fail`: it prevents a measurement.
    level: &'static str,
    finding: &'a str,
    advice: Option<&'a str>,
}

impl<'a> Doctor<'a> {
    pub fn new(facts: &'a [Fact]) -> Self {
        let level = |level: Level| match level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        let fact = |fact: &'a Fact| DoctorFact {
            topic: &fact.topic,
            level: level(fact.level),
            finding: &fact.finding,
            advice: fact.advice.as_deref(),
        };
        Self { schema: 1, facts: facts.iter().map(fact).collect() }
    }
}

/// Of `compose`, and of a job of regions.
#[derive(Serialize, JsonSchema)]
pub struct Compose {
    pub schema: u32,
    /// Lines of offsets.
    pub lines: usize,
    pub reference: u32,
    pub regions: Vec<ComposedRegion>,
    pub notes: Vec<String>,
}

/// A region on the timeline of all.
#[derive(Serialize, JsonSchema)]
pub struct ComposedRegion {
    pub name: String,
    /// Its first node's number among all, and how many it has.
    pub first_node: u32,
    pub nodes: usize,
    /// Which node of the masters' run its reference is.
    pub master: u32,
    /// Median standard deviations, ns: within the region, and on the timeline of all.
    pub sigma_ns_within: Option<f64>,
    pub sigma_ns: Option<f64>,
    pub left_out_lines: usize,
}

/// Of `query`. It is written as its rows come, so nothing holds it whole.
#[derive(Serialize, JsonSchema)]
pub struct Query<'a> {
    pub schema: u32,
    /// The clock of times.
    pub timeline: &'a str,
    /// The names of columns, in the statement's order.
    pub columns: &'a [String],
    /// Rows by their columns' names; bytes as hexadecimal digits.
    pub rows: &'a [serde_json::Map<String, serde_json::Value>],
}

/// Of `report`.
#[derive(Serialize, JsonSchema)]
pub struct Report {
    schema: u32,
    /// The page.
    output: PathBuf,
    bytes: usize,
    /// The run in words.
    verdict: Vec<ReportSentence>,
    /// What could not be read, and what the page leaves out.
    notes: Vec<String>,
}

/// A sentence of the verdict.
#[derive(Serialize, JsonSchema)]
struct ReportSentence {
    /// `good`: as it should be. `plain`: worth knowing. `bad`: somebody should look.
    mood: &'static str,
    text: String,
}

impl Report {
    pub fn new(page: &Page, output: PathBuf, bytes: usize) -> Self {
        let sentence = |(mood, text): (Mood, &str)| ReportSentence {
            mood: match mood {
                Mood::Good => "good",
                Mood::Plain => "plain",
                Mood::Bad => "bad",
            },
            text: text.to_owned(),
        };
        Self { schema: 1, output, bytes, verdict: page.verdict().map(sentence).collect(), notes: page.notes().to_vec() }
    }
}

/// Of `record convert`, a line a trace.
#[derive(Serialize, JsonSchema)]
pub struct RecordConvert<'a> {
    schema: u32,
    #[serde(flatten)]
    exported: &'a Exported,
}

impl<'a> RecordConvert<'a> {
    pub fn new(exported: &'a Exported) -> Self {
        Self { schema: 1, exported }
    }
}

/// Every document: its command, its number and its schema.
pub fn schemas() -> Vec<(&'static str, u32, Schema)> {
    fn of<T: JsonSchema>() -> Schema {
        let mut settings = SchemaSettings::draft2020_12();
        // What is written is described, not what would be read.
        settings.contract = schemars::generate::Contract::Serialize;
        let settings = settings.with_transform(schemars::transform::RecursiveTransform(or_null));
        settings.into_generator().into_root_schema_for::<T>()
    }
    vec![
        ("align", 2, of::<Align>()),
        ("check", 2, of::<VerdictDocument<'static>>()),
        ("clock", 1, of::<Clock>()),
        ("compose", 1, of::<Compose>()),
        ("convert", 2, of::<Convert>()),
        ("ctl", 1, of::<Ctl>()),
        ("doctor", 1, of::<Doctor<'static>>()),
        ("doctor_peers", 1, of::<crate::peers::Survey>()),
        ("doctor_strict", 1, of::<crate::peers::Gate>()),
        ("export", 1, of::<Export>()),
        ("hang", 1, of::<probe_sync_hang::Verdict>()),
        ("late", 1, of::<LateRecord>()),
        ("merge", 2, of::<Merge<'static>>()),
        ("query", 1, of::<Query<'static>>()),
        ("record_convert", 1, of::<RecordConvert<'static>>()),
        ("record_inspect", 1, of::<crate::record::Inspected<'static>>()),
        ("record_recover", 1, of::<crate::record::Recovered<'static>>()),
        ("record_session", 1, of::<crate::record::Answered<'static>>()),
        ("report", 1, of::<Report>()),
        ("run", probe_sync::report::SCHEMA, of::<probe_sync::report::RunReport>()),
        ("sim", 1, of::<crate::sim::Document>()),
        ("solve", 1, of::<Solve>()),
        ("status", 3, of::<Standing>()),
        ("stragglers", 4, of::<Lateness>()),
    ]
}

/// A number that is not known, as an infinite one, is null in JSON.
fn or_null(schema: &mut Schema) {
    if schema.get("type").is_some_and(|kind| kind == "number") {
        schema.insert("type".to_owned(), serde_json::json!(["number", "null"]));
    }
}

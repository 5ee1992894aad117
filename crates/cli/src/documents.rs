//! The documents that commands print with `--json`: one per command on standard output, with a
//! schema number and with units in the field names.
//!
//! `docs/schemas/COMMAND.vN.json` are the JSON Schemas of these types, as `probe_sync json-schemas`
//! prints them; a test compares the two and validates the output of every command. Removing a field
//! or changing its meaning increments the number of its document; a schema that was released stays in
//! its file.

use std::path::PathBuf;

use probe_sync::late::LateRecord;
use probe_sync::solve::Solved;
use probe_sync::standing::Standing;
use probe_sync_alignment::{AlignDocument, ConvertDocument, MergeDocument, VerdictDocument};
use probe_sync_analysis::Lateness;
use probe_sync_page::{Mood, Page};
use probe_sync_record::export::Exported;
use probe_sync_sys::doctor::{Fact, Level};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

/// Output of `probe_sync solve --json`.
#[derive(Serialize, JsonSchema)]
pub struct Solve {
    schema: u32,
    /// The offsets file written.
    output: PathBuf,
    /// Exchanges used: for recorded windows, those that their fits used; for recorded packets, the
    /// packets.
    exchanges: usize,
    nodes: usize,
    rounds: usize,
    /// Lines of offsets written.
    lines: usize,
    skipped_lines: usize,
    skipped_rounds: usize,
    /// Exchanges that no fit used because their stamp source differs from the best one in their
    /// window.
    left_out_exchanges: u64,
    /// Rounds after the reference was last present, in which another node carried its timeline on.
    carried_rounds: usize,
    /// Median half-width of the 95 % intervals, ns.
    half_width_95_ns: Option<f64>,
    /// Standard deviation of the asymmetry of a median path, ns.
    asymmetry_sd_ns: f64,
    /// Number of times that a clock was stepped or restarted.
    breaks: usize,
    /// Faults of clocks and paths, in order of appearance.
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

/// Output of `probe_sync export --json`.
#[derive(Serialize, JsonSchema)]
pub struct Export {
    schema: u32,
    /// The file written.
    output: PathBuf,
    /// Size of the file; null if the output is not a regular file.
    bytes: Option<u64>,
}

impl Export {
    pub fn new(output: PathBuf) -> Self {
        let bytes = std::fs::metadata(&output).ok().filter(std::fs::Metadata::is_file).map(|found| found.len());
        Self { schema: 1, output, bytes }
    }
}

/// Output of `probe_sync clock --json`.
#[derive(Serialize, JsonSchema)]
pub struct Clock {
    pub schema: u32,
    /// Reference time, ns since 1970.
    pub time_ns: i64,
    /// Earliest possible reference time, ns since 1970; `latest_ns` is the latest.
    pub earliest_ns: i64,
    pub latest_ns: i64,
    /// Half-width of the 95 % interval, ns.
    pub bound95_ns: i64,
    /// `unsynchronised`, `synchronised`, `holdover` or `failed`.
    pub status: &'static str,
    /// Incremented when the timeline restarts.
    pub epoch: u64,
    /// System clock of this host, read just before, ns since 1970.
    pub system_ns: i64,
    /// Node of this host; `reference` is the reference node.
    pub node: Option<u32>,
    pub reference: Option<u32>,
}

/// Output of `probe_sync ctl --json`.
#[derive(Serialize, JsonSchema)]
pub struct Ctl {
    pub schema: u32,
    /// First round to which the change applies.
    pub round: u64,
    /// Start of that round's window on the reference clock, ns.
    pub start_ns: i64,
}

/// Output of `probe_sync doctor --json`.
#[derive(Serialize, JsonSchema)]
pub struct Doctor<'a> {
    schema: u32,
    /// Findings about this machine.
    facts: Vec<DoctorFact<'a>>,
}

/// One finding.
#[derive(Serialize, JsonSchema)]
struct DoctorFact<'a> {
    topic: &'a str,
    /// `ok`, `warn`, or `fail` (prevents a measurement).
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

/// Output of `probe_sync compose --json`, and of a job with regions.
#[derive(Serialize, JsonSchema)]
pub struct Compose {
    pub schema: u32,
    /// Lines of offsets written.
    pub lines: usize,
    pub reference: u32,
    pub regions: Vec<ComposedRegion>,
    pub notes: Vec<String>,
}

/// A region on the common timeline.
#[derive(Serialize, JsonSchema)]
pub struct ComposedRegion {
    pub name: String,
    /// Global number of the region's first node; `nodes` is the number of its nodes.
    pub first_node: u32,
    pub nodes: usize,
    /// Node of the masters' run that is the region's reference.
    pub master: u32,
    /// Median standard deviation within the region, ns; `sigma_ns` is that on the common timeline.
    pub sigma_ns_within: Option<f64>,
    pub sigma_ns: Option<f64>,
    pub left_out_lines: usize,
}

/// Output of `probe_sync query --json`. Rows are written as they arrive; the document is never held
/// in memory as a whole.
#[derive(Serialize, JsonSchema)]
pub struct Query<'a> {
    pub schema: u32,
    /// Clock of the times.
    pub timeline: &'a str,
    /// Column names, in the order of the statement.
    pub columns: &'a [String],
    /// Rows as objects keyed by column name; bytes are hexadecimal strings.
    pub rows: &'a [serde_json::Map<String, serde_json::Value>],
}

/// Output of `probe_sync report --json`.
#[derive(Serialize, JsonSchema)]
pub struct Report {
    schema: u32,
    /// The HTML page written.
    output: PathBuf,
    bytes: usize,
    /// Verdict on the run, sentence by sentence.
    verdict: Vec<ReportSentence>,
    /// Files that could not be read, and content that the page omits.
    notes: Vec<String>,
}

/// One sentence of the verdict.
#[derive(Serialize, JsonSchema)]
struct ReportSentence {
    /// `good`: as expected. `plain`: worth knowing. `bad`: needs attention.
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

/// One line of `probe_sync record convert --json`: one trace.
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

/// Returns every document's command, version and schema.
pub fn schemas() -> Vec<(&'static str, u32, Schema)> {
    fn of<T: JsonSchema>() -> Schema {
        let mut settings = SchemaSettings::draft2020_12();
        // What is written is described, not what would be read.
        settings.contract = schemars::generate::Contract::Serialize;
        let settings = settings.with_transform(schemars::transform::RecursiveTransform(or_null));
        settings.into_generator().into_root_schema_for::<T>()
    }
    vec![
        ("align", 2, of::<AlignDocument>()),
        ("check", 2, of::<VerdictDocument<'static>>()),
        ("clock", 1, of::<Clock>()),
        ("compose", 1, of::<Compose>()),
        ("convert", 2, of::<ConvertDocument>()),
        ("ctl", 1, of::<Ctl>()),
        ("doctor", 1, of::<Doctor<'static>>()),
        ("doctor_peers", 1, of::<crate::peers::Survey>()),
        ("doctor_strict", 1, of::<crate::peers::Gate>()),
        ("export", 1, of::<Export>()),
        ("hang", 1, of::<probe_sync_hang::Verdict>()),
        ("late", 1, of::<LateRecord>()),
        ("merge", 2, of::<MergeDocument<'static>>()),
        ("query", 1, of::<Query<'static>>()),
        ("record_convert", 1, of::<RecordConvert<'static>>()),
        ("record_inspect", 1, of::<crate::record::Inspected<'static>>()),
        ("record_recover", 1, of::<crate::record::Recovered<'static>>()),
        ("record_session", 1, of::<crate::record::Answered<'static>>()),
        ("report", 1, of::<Report>()),
        ("run", probe_sync::report::SCHEMA, of::<probe_sync::report::RunReport>()),
        ("sim", 2, of::<crate::sim::Document>()),
        ("solve", 1, of::<Solve>()),
        ("status", 3, of::<Standing>()),
        ("stragglers", 4, of::<Lateness>()),
    ]
}

/// Unknown numbers, such as infinities, are null in JSON.
fn or_null(schema: &mut Schema) {
    if schema.get("type").is_some_and(|kind| kind == "number") {
        schema.insert("type".to_owned(), serde_json::json!(["number", "null"]));
    }
}

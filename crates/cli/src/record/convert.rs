//! `record convert`, which converts recordings into traces.
//!
//! It writes one file per recording. To combine several recordings into one file, use
//! `probe_sync merge` on the results.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use probe_sync_alignment::ClockSource;
use probe_sync_alignment::nodes::NodeList;
use probe_sync_files::NewFolders;
use probe_sync_formats::words::counted;
use probe_sync_record::Recording;
use probe_sync_record::export::{Exported, Format, Reference, WithTrace, write_each};
use probe_sync_record::hook::{Hooks, Metadata};
use probe_sync_record::read::ArgumentValue;

use crate::documents;
use crate::output::{self, Usage};

/// Flags of `record convert`.
#[derive(Args, Debug)]
// As clap writes it, a line would have more than 80 letters.
#[command(override_usage = "probe_sync record convert -f <FORMAT> -o <PATH> [OPTIONS] <FILE>...")]
pub struct ConvertArgs {
    /// Recordings
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Output format: kineto (PyTorch's JSON: HolisticTraceAnalysis, TensorBoard), xspace (xprof),
    /// pftrace (Perfetto), json (Chrome), rocpd (a rocprofv3 database)
    #[arg(short, long, value_name = "FORMAT", value_parser = clap::builder::ValueParser::new(|text: &str| text.parse::<Format>()))]
    pub format: Format,
    /// The file to write, or the directory for several recordings
    #[arg(short, long, value_name = "PATH")]
    pub output: PathBuf,
    /// The directory of a probe_sync run: converts times to its reference clock, as `align` does.
    /// Without it, times are on each machine's system clock
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Offsets to use instead of --run-dir: offsets.jsonl of a run, or a CSV of node, node time,
    /// offset
    #[arg(long, value_name = "FILE", conflicts_with = "run_dir")]
    pub offsets: Option<PathBuf>,
    /// The node that wrote each recording, in the order of the files: 0 1 2 3, 0,1,2,3 or 0-3
    /// [default: found from the host or rank in each recording]
    #[arg(long, visible_alias = "node", num_args = 1.., value_name = "N")]
    pub nodes: Vec<NodeList>,
    /// How far outside the measured time events may lie (2s, 500ms); clocks are extrapolated there
    /// [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = probe_sync::config::duration)]
    pub extrapolate: Option<probe_sync_time::Duration>,
    /// A trace of the same process and time by another profiler, one for each recording in their
    /// order: the events of its devices are added
    #[arg(long, num_args = 1.., value_name = "TRACE")]
    pub with: Vec<PathBuf>,
    /// The argument of those events, such as `External id`, that holds the id that `correlate` gave
    /// their launch: arrows join launches and events. Without it they only share the clock
    #[arg(long, value_name = "ARGUMENT", requires = "with")]
    pub with_ids: Option<String>,
    /// An argument for all scopes and instants of the traces; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = metadata)]
    pub metadata: Vec<(String, String)>,
    /// Print JSON, one line per trace
    #[arg(long)]
    pub json: bool,
}

/// Writes each recording.
///
/// # Errors
/// Names the recording, or the output; recordings already written are kept.
pub fn run(arguments: &ConvertArgs) -> anyhow::Result<()> {
    let nodes = NodeList::joined(&arguments.nodes);
    if !nodes.is_empty() && nodes.len() != arguments.files.len() {
        let problem = format!("--nodes gives {} nodes for {} recordings", nodes.len(), arguments.files.len());
        return Err(anyhow::anyhow!(problem).context(Usage));
    }
    let outputs = outputs(arguments)?;
    output::keep_apart(&arguments.output, arguments.json)?;
    let recordings: Vec<Recording> =
        arguments.files.iter().map(|path| Recording::open(path)).collect::<Result<_, _>>()?;
    let hooks = |recording: &Recording| {
        let values = arguments.metadata.iter().cloned().map(|(name, value)| (name, ArgumentValue::Text(value)));
        Hooks::with_standard(recording, vec![Box::new(Metadata::of(values))])
    };
    let reference = reference(arguments);
    for exported in write_each(&recordings, &hooks, &with(arguments)?, reference.as_ref(), arguments.format, &outputs)?
    {
        match arguments.json {
            true => output::json_line(&documents::RecordConvert::new(&exported))?,
            false => output::tell(&text(&exported))?,
        }
    }
    Ok(())
}

/// The other traces of the recorded processes.
fn with(arguments: &ConvertArgs) -> anyhow::Result<Vec<WithTrace>> {
    let (given, recordings) = (arguments.with.len(), arguments.files.len());
    if given != 0 && given != recordings {
        let problem =
            format!("--with gives {} for {}", counted(given as u64, "trace"), counted(recordings as u64, "recording"));
        return Err(anyhow::anyhow!(problem).context(Usage));
    }
    let ids = &arguments.with_ids;
    Ok(arguments.with.iter().map(|path| WithTrace { path: path.clone(), ids: ids.clone() }).collect())
}

/// The requested reference clock; `None`: the clock of each machine.
fn reference(arguments: &ConvertArgs) -> Option<Reference> {
    let clocks = match (&arguments.run_dir, &arguments.offsets) {
        (Some(directory), _) => ClockSource::Run(directory.clone()),
        (None, Some(file)) => ClockSource::Offsets(file.clone()),
        (None, None) => return None,
    };
    let extrapolate = arguments.extrapolate.unwrap_or_default();
    Some(Reference { clocks, nodes: NodeList::joined(&arguments.nodes), extrapolate })
}

/// One file for one recording, a folder for several, with a trace named after each recording.
fn outputs(arguments: &ConvertArgs) -> anyhow::Result<Vec<PathBuf>> {
    if arguments.files.len() == 1 && !arguments.output.is_dir() {
        return Ok(vec![arguments.output.clone()]);
    }
    NewFolders::create(&arguments.output)
        .with_context(|| format!("cannot create {}", arguments.output.display()))?
        .keep();
    let mut outputs: Vec<PathBuf> = Vec::new();
    for path in &arguments.files {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let output = arguments.output.join(format!("{stem}{}", arguments.format.endings()[0]));
        if outputs.contains(&output) {
            let problem = format!("two recordings would both be written to {}; rename one", output.display());
            return Err(anyhow::anyhow!(problem).context(Usage));
        }
        outputs.push(output);
    }
    Ok(outputs)
}

/// Parses `NAME=VALUE`.
fn metadata(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("give NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn text(exported: &Exported) -> String {
    let Exported { path, events, scopes, .. } = exported;
    let events = counted(*events, "event");
    let mut text = format!("{}: {events} ({}), {} bytes\n", path.display(), counted(*scopes, "scope"), exported.bytes);
    if let Some(pairs) = &exported.pairs {
        text.push_str(&format!(
            "  times are on the machine's boot clock; pairs for align --snapshots are in {}\n",
            pairs.display()
        ));
    }
    exported.notes.iter().for_each(|note| text.push_str(&format!("  {note}\n")));
    text
}

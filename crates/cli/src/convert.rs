//! `convert`, which turns arguments into a library request and prints its report as text.
//!
//! Clocks are learnt as `align` learns them.

use std::path::PathBuf;

use probe_sync_alignment::{
    Calibrated, CollectiveFlows, ConvertDocument, ConvertReport, ConvertSettings, Converted, CsvFile, NodeTrace,
    Omitted, Output, convert,
};
#[cfg(feature = "rocpd")]
use probe_sync_analysis::query::{CsvSettings, Query, QuerySettings};
use probe_sync_formats::AgentIndex;
use probe_sync_formats::words::counted;

use crate::progress::Reading;
use crate::trace_args::ConvertArgs;
use crate::trace_notes::TraceNotes;
use crate::traces::{as_they_are, calibrate_for, request};

/// Writes all traces in every requested format.
///
/// # Errors
/// Names the trace or the output; no output appears then. CSV files are written after the others
/// have appeared.
pub fn run(arguments: &ConvertArgs) -> anyhow::Result<()> {
    let outputs = outputs(arguments)?;
    let settings = settings(arguments);
    let (mut report, mut omitted) = (None, Omitted::default());
    if !outputs.is_empty() {
        let paths: Vec<PathBuf> = outputs.iter().map(|output| output.path.clone()).collect();
        let request = as_they_are(request(&arguments.input, &paths)?, &arguments.as_they_are);
        let progress = Reading::begin("convert", &request);
        let calibrated = calibrate_for(&request, arguments.json)?;
        let converted = convert(&calibrated, &outputs, &settings)?;
        drop(progress);
        if !arguments.json {
            crate::output::tell(&text(&converted, &calibrated))?;
        }
        (report, omitted) = (Some(converted), calibrated.omitted());
    }
    let wants_csv = arguments.output_format.iter().any(|name| name == CSV);
    let csv = if wants_csv { write_csv(arguments, &settings)? } else { Vec::new() };
    if arguments.json { crate::output::json(&ConvertDocument::new(report, csv, omitted)) } else { Ok(()) }
}

fn settings(arguments: &ConvertArgs) -> ConvertSettings {
    let agent_index = match arguments.agent_index_value.as_str() {
        "absolute" => AgentIndex::Absolute,
        "type-relative" => AgentIndex::TypeRelative,
        _ => AgentIndex::Relative,
    };
    ConvertSettings {
        window: arguments.window.window(),
        collective_flows: arguments.collective_flows,
        machines: arguments.machines,
        as_they_are: arguments.as_they_are.no_correction,
        without_args: arguments.without_args,
        group_by_queue: arguments.group_by_queue,
        agent_index,
    }
}

/// Writes databases as CSV files. Without a clock their times stay unchanged, if all are of one
/// host or if this was requested.
#[cfg(feature = "rocpd")]
fn write_csv(arguments: &ConvertArgs, settings: &ConvertSettings) -> anyhow::Result<Vec<CsvFile>> {
    let request = request(&arguments.input, &[])?;
    let own_clocks = settings.as_they_are;
    let window = settings.window.clone();
    let query = Query::open(&request, &QuerySettings { own_clocks, window, ..QuerySettings::default() })?;
    for warning in &query.warnings {
        tracing::warn!("{warning}");
    }
    let (plain_columns, raw_cells) = (arguments.plain_columns, arguments.raw_cells);
    let csv = CsvSettings { agent_index: settings.agent_index, plain_columns, raw_cells };
    let written = query.write_csv(&arguments.output_path, &arguments.output_file, &csv)?;
    if arguments.json {
        return Ok(written);
    }
    let lines = written.iter().map(|file| format!("{}: {}\n", file.path.display(), counted(file.rows, "row")));
    let none = || "the databases contain no events, so no CSV file was written\n".to_owned();
    let lines = lines.reduce(|all, line| all + &line).unwrap_or_else(none);
    crate::output::tell(&format!("{lines}times are on {}\n", query.timeline))?;
    Ok(written)
}

/// Only databases have these columns.
#[cfg(not(feature = "rocpd"))]
fn write_csv(_: &ConvertArgs, _: &ConvertSettings) -> anyhow::Result<Vec<CsvFile>> {
    Err(anyhow::anyhow!("-f csv: this program was built without databases (feature rocpd)")
        .context(crate::output::Usage))
}

/// One output per format; repeated formats are written once.
fn outputs(arguments: &ConvertArgs) -> anyhow::Result<Vec<Output>> {
    let mut outputs: Vec<Output> = Vec::new();
    for name in arguments.output_format.iter().filter(|name| *name != CSV) {
        // The command line accepts no unknown names.
        let output = Output::named(&arguments.output_path, &arguments.output_file, name)
            .ok_or_else(|| anyhow::anyhow!(NO_OTF2).context(crate::output::Usage))?;
        if !outputs.contains(&output) {
            outputs.push(output);
        }
    }
    Ok(outputs)
}

/// The library is part of the system, so not every build has it.
const NO_OTF2: &str = "-f otf2: this program was built without OTF2; install libotf2 3.0 or newer with its headers (Debian: \
                       libotf2-trace-dev) and build with --features otf2";

fn text(report: &ConvertReport, calibrated: &Calibrated) -> String {
    let mut text = String::new();
    if let Some([from, until]) = report.window_ns {
        text.push_str(&format!("window: {from} to {until} ns\n"));
    }
    let mut notes = TraceNotes::default();
    for converted in &report.traces {
        let trace = calibrated.traces.iter().map(|of| &of.trace).find(|trace| trace.path == converted.path);
        text_of_trace(converted, trace, &mut notes, &mut text);
    }
    text.push_str(&notes.text());
    if let Some(joined) = &report.collective_flows {
        let CollectiveFlows { operations, parts, without_slice, not_joined } = joined;
        let [parts, others] = [parts, not_joined].map(|parts| counted(*parts, "part"));
        text.push_str(&format!("collectives: {} of {parts} joined by flows", counted(*operations, "operation")));
        text.push_str(&format!("; not joined because their operation is ambiguous: {others}\n"));
        if *without_slice > 0 {
            text.push_str(&format!("  {without_slice} of the joined parts have no slice in the outputs\n"));
        }
    }
    for written in &report.outputs {
        let found = &written.report;
        text.push_str(&format!(
            "{}: {}, {}, {} on {}, {} bytes\n",
            written.path.display(),
            counted(found.slices, "slice"),
            counted(found.instants, "instant"),
            counted(found.flow_ends - found.unbound_flow_ends, "flow end"),
            counted(found.tracks, "track"),
            found.bytes
        ));
        if found.collectives > 0 {
            let (parts, communicators) = (found.collectives, found.communicators);
            let [parts, communicators] = [counted(parts, "part"), counted(communicators, "communicator")];
            text.push_str(&format!("  {parts} of collectives in {communicators}\n"));
        }
        written.notes().iter().for_each(|note| text.push_str(&format!("  {note}\n")));
    }
    text
}

fn text_of_trace(converted: &Converted, trace: Option<&NodeTrace>, notes: &mut TraceNotes, text: &mut String) {
    let Converted { path, alignment, read, outside } = converted;
    let known = alignment.correction_ns.filter(|_| alignment.tied_by.is_some());
    let moved = known.map_or_else(String::new, |[least, median, most]| {
        let signed = crate::table::signed;
        format!(", moved by {} (median {}, to {})", signed(least), signed(median), signed(most))
    });
    let outside = if *outside > 0 { format!(", {outside} outside the window") } else { String::new() };
    text.push_str(&format!("{}: {}{outside}{moved}\n", path.display(), counted(read.events, "event")));
    text.push_str(&notes.take(path, trace, &alignment.notes));
}

/// One file for each kind of event of databases.
const CSV: &str = "csv";

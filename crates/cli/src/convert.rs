//! `convert`: arguments into a request to the library, and its report as text.
//!
//! Clocks are learnt as `align` learns them. What it does not do: read or write a trace (crate `trace`).

use std::path::PathBuf;

use probe_sync_trace::write::OutputFormat;
use probe_sync_trace::{
    AgentIndex, Bound, CollectiveFlows, ConvertReport, ConvertSettings, Converted, Output, Window, convert,
};

use crate::trace_args::ConvertArgs;
use crate::traces::{calibrate, request};

/// Writes all traces in every format asked for.
///
/// # Errors
/// Names the trace or the output; no output appears then.
pub fn run(arguments: &ConvertArgs) -> anyhow::Result<()> {
    let outputs = outputs(arguments);
    let paths: Vec<PathBuf> = outputs.iter().map(|output| output.path.clone()).collect();
    let calibrated = calibrate(&request(&arguments.input, &paths)?)?;
    let bound = |time: &Option<Bound>, marker: &Option<String>| match (time, marker) {
        (Some(time), _) => time.clone(),
        (None, Some(name)) => Bound::Marker(name.clone()),
        (None, None) => Bound::Open,
    };
    let window = Window {
        start: bound(&arguments.start, &arguments.start_marker),
        end: bound(&arguments.end, &arguments.end_marker),
        inclusive: arguments.inclusive,
    };
    let agent_index = match arguments.agent_index_value.as_str() {
        "absolute" => AgentIndex::Absolute,
        "type-relative" => AgentIndex::TypeRelative,
        _ => AgentIndex::Relative,
    };
    let settings = ConvertSettings {
        window,
        collective_flows: arguments.collective_flows,
        without_args: arguments.without_args,
        group_by_queue: arguments.group_by_queue,
        agent_index,
    };
    let report = convert(&calibrated, &outputs, &settings)?;
    crate::output::print(&text(&report))
}

/// One file per format; a format that is named twice is written once.
fn outputs(arguments: &ConvertArgs) -> Vec<Output> {
    let mut outputs: Vec<Output> = Vec::new();
    for name in &arguments.output_format {
        let (ending, format) = format_of(name);
        let path = arguments.output_path.join(format!("{}_results.{ending}", arguments.output_file));
        if !outputs.iter().any(|output| output.path == path) {
            outputs.push(Output { path, format });
        }
    }
    outputs
}

/// What a format's name means; the command line lets no other name through.
fn format_of(name: &str) -> (&'static str, OutputFormat) {
    match name {
        "json" => ("json", OutputFormat::ChromeJson),
        "json.gz" => ("json.gz", OutputFormat::ChromeJson),
        _ => ("pftrace", OutputFormat::Perfetto),
    }
}

fn text(report: &ConvertReport) -> String {
    let mut text = String::new();
    if let Some([from, until]) = report.window_ns {
        text.push_str(&format!("window: {from} to {until} ns\n"));
    }
    report.traces.iter().for_each(|trace| text_of_trace(trace, &mut text));
    if let Some(joined) = &report.collective_flows {
        let CollectiveFlows { operations, parts, without_slice, not_joined } = joined;
        text.push_str(&format!("collectives: {operations} operations of {parts} parts joined by flows"));
        text.push_str(&format!("; {not_joined} parts belong together with none for certain\n"));
        if *without_slice > 0 {
            text.push_str(&format!("  {without_slice} of the joined parts are no slice of the outputs\n"));
        }
    }
    for written in &report.outputs {
        let found = &written.report;
        text.push_str(&format!(
            "{}: {} slices, {} instants, {} ends of flows on {} tracks, {} bytes\n",
            written.path.display(),
            found.slices,
            found.instants,
            found.flow_ends - found.unbound_flow_ends,
            found.tracks,
            found.bytes
        ));
        written.notes().iter().for_each(|note| text.push_str(&format!("  {note}\n")));
    }
    text
}

fn text_of_trace(trace: &Converted, text: &mut String) {
    let known = trace.alignment.correction_ns.filter(|_| trace.alignment.uncertainty_ns.is_finite());
    let moved = known.map_or_else(String::new, |[least, median, most]| {
        let signed = crate::table::signed;
        format!(", moved by {} (median {}, to {})", signed(least), signed(median), signed(most))
    });
    let outside = if trace.outside > 0 { format!(", {} outside of the window", trace.outside) } else { String::new() };
    text.push_str(&format!("{}: {} events{outside}{moved}\n", trace.path.display(), trace.read.events));
    for note in &trace.alignment.notes {
        text.push_str(&format!("  {note}\n"));
    }
}

//! `convert`: all traces in other formats.

use std::path::PathBuf;

use probe_sync_alignment::{ConvertSettings, Output, Request};
use probe_sync_analysis::query::{CsvSettings, Query, QuerySettings};
use probe_sync_formats::AgentIndex;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::errors::Failure;
use crate::traces::{Asked, Span, calibrate, result};
use crate::waiting;

/// Writes all traces in other formats; returns the result as JSON.
#[pyfunction]
#[pyo3(signature = (asked, output, *, name, formats, no_correction, collective_flows, machines, without_args, group_by_queue, agent_index, span))]
#[expect(clippy::needless_pass_by_value, reason = "Python's arguments are made for the call")]
#[expect(clippy::too_many_arguments, reason = "the keywords of the Python function")]
pub fn convert(
    py: Python<'_>,
    asked: Asked,
    output: PathBuf,
    name: String,
    formats: Vec<String>,
    no_correction: bool,
    collective_flows: bool,
    machines: bool,
    without_args: bool,
    group_by_queue: bool,
    agent_index: &str,
    span: Span,
) -> PyResult<String> {
    let agent_index = match agent_index {
        "absolute" => AgentIndex::Absolute,
        "relative" => AgentIndex::Relative,
        "type-relative" => AgentIndex::TypeRelative,
        other => {
            let text = format!("agent_index={other:?}: give \"absolute\", \"relative\" or \"type-relative\"");
            return Err(Failure::config(text).into());
        }
    };
    let settings = ConvertSettings {
        window: span.window()?,
        collective_flows,
        machines,
        without_args,
        as_they_are: no_correction,
        group_by_queue,
        agent_index,
    };
    let mut outputs: Vec<Output> = Vec::new();
    for format in formats.iter().filter(|format| *format != CSV) {
        let known = Output::named(&output, &name, format);
        let known = known.ok_or_else(|| Failure::config(format!("formats: {format:?} is unknown; give {FORMATS}")))?;
        if !outputs.contains(&known) {
            outputs.push(known);
        }
    }
    let csv = formats.iter().any(|format| format == CSV).then_some((output, name));
    let request = asked.request(outputs.iter().map(|output| output.path.clone()).collect())?;
    let told: Result<String, Failure> =
        waiting::run(py, None, move |_| converted(&request, &outputs, &settings, csv.as_ref()))?;
    Ok(told?)
}

fn converted(
    request: &Request,
    outputs: &[Output],
    settings: &ConvertSettings,
    csv: Option<&(PathBuf, String)>,
) -> Result<String, Failure> {
    let (mut files, mut own) = (Vec::new(), json!({"traces": [], "window_ns": null, "collective_flows": null}));
    let mut calibrated = None;
    if !outputs.is_empty() {
        let calibrated = calibrated.insert(calibrate(request)?);
        let report = probe_sync_alignment::convert(calibrated, outputs, settings).map_err(Failure::of_traces)?;
        let traces = report.traces.iter().map(|trace| json!({"path": trace.path, "stats": trace.alignment}));
        files.extend(report.outputs.iter().map(|written| {
            let found = &written.report;
            let rows = found.slices + found.instants + found.flow_ends;
            json!({"path": written.path, "rows": rows, "bytes": found.bytes, "notes": written.notes()})
        }));
        let traces: Vec<Value> = traces.collect();
        let flows = &report.collective_flows;
        own = json!({"traces": traces, "window_ns": report.window_ns, "collective_flows": flows});
    }
    let query = csv.map(|csv| write_csv(request, settings, csv, &mut files)).transpose()?;
    own["files"] = Value::Array(files);
    match (&calibrated, &query) {
        (Some(calibrated), _) => Ok(result(calibrated, &own, false)),
        (None, Some(query)) => Ok(result(query.calibrated(), &own, false)),
        (None, None) => Err(Failure::config(format!("formats is empty; give {FORMATS}"))),
    }
}

/// Writes databases as CSV files, and adds these to `files`.
fn write_csv(
    request: &Request,
    settings: &ConvertSettings,
    (folder, name): &(PathBuf, String),
    files: &mut Vec<Value>,
) -> Result<Query, Failure> {
    let (own_clocks, window) = (settings.as_they_are, settings.window.clone());
    let query = Query::open(request, &QuerySettings { own_clocks, window, ..QuerySettings::default() });
    let query = query.map_err(Failure::of_traces)?;
    let csv = CsvSettings { agent_index: settings.agent_index, ..CsvSettings::default() };
    for file in query.write_csv(folder, name, &csv).map_err(Failure::of_traces)? {
        files.push(json!({"path": file.path, "rows": file.rows, "bytes": null, "notes": []}));
    }
    Ok(query)
}

/// The format whose files `query` writes.
const CSV: &str = "csv";
const FORMATS: &str = "pftrace, json, json.gz, kineto, kineto.gz, xspace, csv or, if built with it, otf2";

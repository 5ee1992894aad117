//! `report`, which renders a run as one page of HTML; the same page is written at the end of a run.
//!
//! With traces, the page includes the analysis of the crate `analysis`.

use std::path::Path;

use probe_sync_alignment::nodes::NodeList;
use probe_sync_alignment::{Calibrated, ClockSource, Request, StepNames, check};
use probe_sync_analysis::lateness;
use probe_sync_files::no_more_open_than;
use probe_sync_page::{Limit, Page, REPORT_PAGE, Traces, page_of_run, write_at_end};

use crate::args::ReportArgs;
use crate::documents;
use crate::output::{Usage, is_standard_output, print, write_whole};

/// Writes the page.
///
/// # Errors
/// Names the directory without a run, the trace, or the output.
pub fn run(arguments: &ReportArgs) -> anyhow::Result<()> {
    if arguments.json && arguments.output.as_deref().is_some_and(is_standard_output) {
        let problem = "--json: the page goes to standard output; write it to a file instead";
        return Err(anyhow::anyhow!(problem).context(Usage));
    }
    let output = arguments.output.clone().unwrap_or_else(|| arguments.run_dir.join(REPORT_PAGE));
    refuse_records(&arguments.run_dir, &output)?;
    no_more_open_than(&[arguments.run_dir.join("run.json")], &[&output]);
    let mut page = page_of_run(&arguments.run_dir, Limit::None)?;
    if !arguments.traces.is_empty() {
        add_traces(&mut page, arguments, &output)?;
    }
    let collected = || crate::hang::latest_evidence(&arguments.run_dir);
    if !arguments.hang.is_empty() {
        page.add_hang(crate::hang::section(&arguments.hang, &arguments.run_dir)?);
    } else if let Some(Ok(section)) = collected().map(|evidence| crate::hang::section(&evidence, &arguments.run_dir)) {
        page.add_hang(section);
    }
    let html = page.html()?;
    if is_standard_output(&output) {
        return print(&html);
    }
    write_whole(&output, html.as_bytes())?;
    match arguments.json {
        true => crate::output::json(&documents::Report::new(&page, output, html.len())),
        // A path as it is, for `$(…)`.
        false => print(&format!("{}\n", output.display())),
    }
}

fn add_traces(page: &mut Page, arguments: &ReportArgs, output: &Path) -> anyhow::Result<()> {
    let settings = arguments.steps.settings()?;
    let request = Request {
        traces: arguments.traces.clone(),
        nodes: NodeList::joined(&arguments.nodes),
        assume_order: arguments.assume_order,
        clocks: ClockSource::Run(arguments.run_dir.clone()),
        extrapolate: arguments.extrapolate.unwrap_or_default(),
        outputs: vec![output.to_owned()],
        ..Request::default()
    };
    let calibrated = crate::traces::calibrate_for(&request, false)?;
    calibrated.refuse_overwriting(&[output.to_owned()])?;
    add_calibrated(page, &calibrated, &settings);
    Ok(())
}

/// Adds the corrections of these traces, the check of their collectives, and the lateness analysis.
pub fn add_calibrated(page: &mut Page, calibrated: &Calibrated, settings: &StepNames) {
    let verdict = check(calibrated);
    // Traces whose ranks cannot be compared still have edges, and times that move.
    let late = lateness(calibrated, settings).map_err(|error| error.to_string());
    page.add_traces(Traces::new(calibrated, &verdict, late.as_ref().map_err(Clone::clone)));
}

/// Refuses an output that is a record of the run.
fn refuse_records(run_dir: &Path, output: &Path) -> anyhow::Result<()> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let is_inside = real(output).zip(real(run_dir)).is_some_and(|(file, folder)| file.starts_with(folder));
    let is_record =
        output.extension().is_some_and(|ending| ["json", "jsonl", "prom", "pb"].iter().any(|own| ending == *own));
    if is_inside && is_record {
        let text =
            format!("--output: {} is one of the run's own files; write the page to another file", output.display());
        return Err(anyhow::anyhow!(text).context(Usage));
    }
    Ok(())
}

/// Writes the page of a run that has ended.
pub fn at_end(report: &probe_sync::RunReport) {
    if let Err(problem) = write_at_end(Path::new(&report.out)) {
        tracing::warn!("{problem}");
    }
}

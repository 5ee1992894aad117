//! `probe_sync demo`: the whole way from wrong clocks to a verdict on one machine, judged against
//! the truth.
//!
//! Four processes measure each other on clocks that are wrong on purpose. A recorded job, part of
//! this program, is stamped with those clocks; then the ordinary commands mend its traces, and
//! every time is compared with the true one.

pub mod args;
mod recorded;
mod text;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use probe_sync::{RunReport, Truth};
use probe_sync_alignment::{
    AlignSettings, Calibrated, ClockSource, MergeSettings, Request, StepNames, align, calibrate, check, merge,
};
use probe_sync_analysis::lateness;
use probe_sync_files::NewFolders;

use crate::output::{tell, write_whole};
use args::DemoArgs;
use recorded::{Recorded, TraceSet};
use text::Shown;

/// Runs the demonstration.
///
/// # Errors
/// Returns an error if the measurement fails, or if a file cannot be written.
pub fn run(arguments: &DemoArgs) -> anyhow::Result<()> {
    let folder = &arguments.output;
    NewFolders::create(folder).with_context(|| format!("cannot create {}", folder.display()))?.keep();
    tell(&text::opening(SECONDS))?;
    let run_dir = folder.join("run");
    measure(arguments.seed, &run_dir)?;
    let report = RunReport::read(&run_dir)?.context("the measurement wrote no report")?;
    let truth = Truth::read(&run_dir)?.context("the measurement wrote no truth.json")?;
    tell(&text::clocks(&report))?;

    let set = TraceSet::read()?;
    let host = report.nodes.first().map_or("localhost", |node| node.host.as_str());
    let traces = set.stamped(&truth, host, middle_ns(&run_dir)?, &folder.join("recorded"))?;
    let request = Request { traces: traces.files(), clocks: ClockSource::Run(run_dir.clone()), ..Request::default() };
    let calibrated = calibrate(&request)?;
    let verdict = check(&calibrated);
    let late = lateness(&calibrated, &StepNames::default())?;
    let error = mended(&calibrated, &traces, &folder.join("aligned"))?;
    merge(&calibrated, &folder.join("one_clock.pftrace"), MergeSettings::default())?;
    let page = page(&run_dir, &calibrated, &folder.join("report.html"))?;
    tell(&text::traces(&Shown { verdict: &verdict, late: &late, error, folder, page: &page }))
}

/// Measures with processes of this program, which inherit nothing from the caller's environment.
fn measure(seed: u64, run_dir: &Path) -> anyhow::Result<()> {
    let binary = std::env::current_exe().context("cannot find this program's executable")?;
    let mut command = Command::new(binary);
    let seconds = format!("{SECONDS}s");
    command.args(["run", "--local", "4", "--fixed", "--window", "1s", "--duration", &seconds, "--quiet"]);
    command.args(["--inject-skew", &seed.to_string(), "--out"]).arg(run_dir);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PROBE_SYNC_") {
            command.env_remove(name);
        }
    }
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().context("cannot start the measurement")?;
    if !status.success() {
        bail!("the measurement failed; run `probe_sync doctor` to see what this machine lacks");
    }
    Ok(())
}

/// Middle of the measured span, ns since 1970.
fn middle_ns(run_dir: &Path) -> anyhow::Result<i64> {
    let path = run_dir.join("run.json");
    let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let run: serde_json::Value = serde_json::from_slice(&text)?;
    let start_ns = run["start_ns"].as_i64().with_context(|| format!("{} has no start_ns", path.display()))?;
    Ok(start_ns + i64::from(SECONDS) * 500_000_000)
}

/// Aligns the traces and compares every time in them with the true one.
fn mended(calibrated: &Calibrated, traces: &Recorded, folder: &Path) -> anyhow::Result<text::TimeError> {
    let mut files = Vec::new();
    for aligned in align(calibrated, folder, AlignSettings::default())? {
        let aligned = aligned?;
        files.push((aligned.calibrated.trace.path.clone(), aligned.output));
    }
    traces.compare(&files)
}

/// Writes the report page.
fn page(run_dir: &Path, calibrated: &Calibrated, output: &Path) -> anyhow::Result<PathBuf> {
    let mut page = probe_sync_page::page_of_run(run_dir, probe_sync_page::Limit::None)?;
    crate::report::add_calibrated(&mut page, calibrated, &StepNames::default());
    write_whole(output, page.html()?.as_bytes())?;
    Ok(output.to_owned())
}

/// Length of the measurement, s.
const SECONDS: u32 = 6;

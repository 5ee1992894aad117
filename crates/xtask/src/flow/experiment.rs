//! One run of the flow: the job and the measurement in parallel, followed by bending, aligning and
//! judging.
//!
//! The result is an [`Outcome`]. Rank k of the job is node k of the measurement: all share the
//! machine's host name, so the rank that each trace states determines its node, as the run recorded
//! it. The job prepares first and waits, because a program that imports JAX and compiles is silent
//! for seconds. Then the measurement starts, and the job is traced from its first packets until
//! shortly before its last, because a trace is used right up to its ends. All waiting is bounded,
//! and every process ends with the run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::case::Case;
use super::helpers::{Load, Processes};
use super::outcome::{Checked, Outcome};
use crate::demo::fresh_directory;
use crate::steps;

/// What to run.
#[derive(Copy, Clone, Debug)]
pub struct Experiment<'a> {
    /// A Python that has JAX.
    pub python: &'a Path,
    /// `probe_sync`.
    pub program: &'a Path,
    /// Under which conditions.
    pub case: Case,
}

impl Experiment<'_> {
    /// Runs it; its files stay in a folder of `target/flow`.
    ///
    /// # Errors
    /// Names the program that failed or was late.
    pub fn perform(&self, root: &Path) -> Result<Outcome> {
        let folder = fresh_directory(&root.join("target/flow/runs"))?;
        println!(
            "\n{} clocks{}, seed {}: a JAX job of {RANKS} ranks is traced while probe_sync measures for {} s",
            self.case.model.name(),
            if self.case.loaded { ", all cores busy" } else { "" },
            self.case.seed,
            self.case.seconds
        );
        let load = self.case.loaded.then(Load::start);
        self.measure(root, &folder)?;
        drop(load);
        self.bend(root, &folder)?;
        let traces = |within: &str| traces(&folder.join(within));
        let run = folder.join("run");
        let true_times = self.check(&folder, "true", &traces(""), None)?;
        let recorded = self.check(&folder, "recorded", &traces("recorded"), None)?;
        let through_run = self.check(&folder, "through_run", &traces("recorded"), Some(&run))?;
        self.align(&folder, &traces("recorded"), &run)?;
        let aligned = self.check(&folder, "aligned", &traces("aligned"), None)?;
        let judged = self.judge(root, &folder)?;
        let folder = folder.strip_prefix(root).unwrap_or(&folder).to_owned();
        Outcome::new(self.case, folder, [true_times, recorded, through_run, aligned], &judged)
    }

    /// The job's ranks, and `probe_sync` beside them.
    fn measure(&self, root: &Path, folder: &Path) -> Result<()> {
        let mut processes = Processes::default();
        let port = steps::free_port()?.to_string();
        for rank in 0..RANKS {
            let mut job = Command::new(self.python);
            job.arg(root.join("bench/flow/job.py")).args([rank.to_string(), RANKS.to_string(), port.clone()]);
            processes.start(&format!("job{rank}"), job.arg(folder), folder)?;
        }
        let ready = || (0..RANKS).all(|rank| folder.join(format!("rank{rank}.ready")).exists()).then_some(());
        processes.wait_for("job that is ready", PREPARATION, ready)?;

        let mut run = Command::new(self.program);
        run.args([
            "run",
            "--local",
            &RANKS.to_string(),
            "--duration",
            &format!("{}s", self.case.seconds),
            "--fixed",
            "--window",
            &format!("{WINDOW_S}s"),
        ]);
        run.args(["--inject-skew", &self.case.seed.to_string(), "--skew-model", self.case.model.name()]);
        processes.start("probe_sync-run", run.arg("--out").arg(folder.join("run")), folder)?;
        let document = folder.join("run/run.json");
        let start = || serde_json::from_slice::<Value>(&std::fs::read(&document).ok()?).ok()?["start_ns"].as_i64();
        let start_ns = processes.wait_for("start of the measurement", PREPARATION, start)?;
        let until_ns = start_ns + i64::from(self.case.seconds) * SECOND_NS - BEFORE_END_NS;
        // It must appear whole.
        let (fresh, go) = (folder.join("go.tmp"), folder.join("go.json"));
        std::fs::write(&fresh, json!({ "from_ns": start_ns, "until_ns": until_ns }).to_string())?;
        std::fs::rename(&fresh, &go).with_context(|| format!("writing {}", go.display()))?;
        processes.finish(Duration::from_secs(self.case.seconds.into()) + PREPARATION)
    }

    fn bend(&self, root: &Path, folder: &Path) -> Result<()> {
        let mut bend = Command::new(self.python);
        bend.arg(root.join("bench/flow/bend.py")).arg(folder.join("run/truth.json")).arg(folder.join("recorded"));
        succeeds(bend.args(traces(folder)), &folder.join("bend.log"))
    }

    /// Counts the broken edges of `traces` as they stand, or seen through what `run` measured. The
    /// verdict is in the file; the exit status repeats it.
    fn check(&self, folder: &Path, name: &str, traces: &[PathBuf], run: Option<&Path>) -> Result<Checked> {
        let (json, log) = (folder.join(format!("{name}.json")), folder.join(format!("{name}.log")));
        let mut check = Command::new(self.program);
        check.arg("check").arg("--traces").args(traces).arg("--json").arg(&json);
        if let Some(run) = run {
            check.arg("--run-dir").arg(run);
        }
        let status = steps::logged(&mut check, &log, PREPARATION)?;
        let text = std::fs::read_to_string(&json).unwrap_or_default();
        let checked =
            Checked::read(&text).with_context(|| format!("check ended with {status}; see {}", log.display()))?;
        ensure!(
            status.success() == (checked.violations() == 0),
            "check ended with {status}, but {} of {} edges are violated; see {}",
            checked.violations(),
            checked.edges,
            log.display()
        );
        Ok(checked)
    }

    fn align(&self, folder: &Path, traces: &[PathBuf], run: &Path) -> Result<()> {
        let mut align = Command::new(self.program);
        align.arg("align").arg("--traces").args(traces);
        align.arg("--run-dir").arg(run).arg("--output").arg(folder.join("aligned"));
        succeeds(&mut align, &folder.join("align.log"))
    }

    fn judge(&self, root: &Path, folder: &Path) -> Result<Value> {
        let judged = folder.join("judged.json");
        let mut judge = Command::new(self.python);
        judge.arg(root.join("bench/flow/judge.py")).arg(folder);
        judge.args([AROUND_STEP_NS.to_string(), (i64::from(WINDOW_S) * SECOND_NS).to_string()]).arg(&judged);
        succeeds(&mut judge, &folder.join("judge.log"))?;
        let text = std::fs::read_to_string(&judged).with_context(|| format!("reading {}", judged.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not JSON", judged.display()))
    }
}

fn traces(folder: &Path) -> Vec<PathBuf> {
    (0..RANKS).map(|rank| folder.join(format!("rank{rank}.xplane.pb"))).collect()
}

fn succeeds(command: &mut Command, log: &Path) -> Result<()> {
    let status = steps::logged(command, log, PREPARATION)?;
    let output = std::fs::read_to_string(log).unwrap_or_default();
    ensure!(status.success(), "{} ended with {status}:\n{}", steps::shown(command), steps::tail(&output));
    Ok(())
}

/// Ranks of the job, and nodes of the measurement.
pub const RANKS: u32 = 4;

/// A loaded machine needs half a minute to import JAX four times.
const PREPARATION: Duration = Duration::from_secs(120);

const SECOND_NS: i64 = 1_000_000_000;

/// The last step's end and the profiler's stop must still be measured.
const BEFORE_END_NS: i64 = 800_000_000;

/// Of the measurement.
const WINDOW_S: u32 = 2;

/// Two bursts of a node: four exchanges each, one per 800 µs and host of four ranks.
const AROUND_STEP_NS: u32 = 2 * 4 * RANKS * 800_000;

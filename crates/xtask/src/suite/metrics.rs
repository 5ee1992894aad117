//! What Prometheus' own tool says of our metrics and alert rules.
//!
//! Place in the flow: a part of `cargo xtask test`, after the programs are built: a run of four ranks leaves its `metrics.prom`, and `promtool` reads it and the rules
//! of `docs/grafana`. It is taken from `PATH`, or out of Debian's package `prometheus`, which is unpacked under `target/` and not installed.
//!
//! What it does not do: fail because there is no network.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::selection::{BUILD, everything};
use crate::setup::Tools;
use crate::steps::{self, Count, Runner};

/// Checks metrics and rules.
pub fn run(runner: &mut Runner, root: &Path, tools: Tools) {
    if ![METRICS, RULES].iter().any(|name| runner.wants(name)) {
        return;
    }
    let promtool = match promtool(root) {
        Ok(promtool) => promtool,
        Err(reason) => {
            return [METRICS, RULES].iter().for_each(|name| runner.skip(name, &format!("no promtool: {reason:#}")));
        }
    };
    let mut rules = Command::new(&promtool);
    runner.command(
        RULES,
        Count::Step,
        SHORT,
        rules.args(["check", "rules"]).arg(root.join("docs/grafana/alerts.yaml")),
    );
    let mut build = everything(root, tools, &["build", "--bins", "--tests"]);
    if runner.wants(METRICS) && !runner.prerequisite("build programs for metrics", Count::Step, BUILD, &mut build) {
        return runner.skip(METRICS, "the programs do not build");
    }
    runner.check(METRICS, || check_metrics(root, &promtool));
}

fn check_metrics(root: &Path, promtool: &Path) -> Result<()> {
    let folder = steps::target(root).join("xtask/metrics");
    let mut run = Command::new(steps::target(root).join("debug/probe_sync"));
    run.args(["run", "--local", "4", "--per-rank", "--duration", "2s", "--window", "500ms", "--out"])
        .arg(folder.join("out"));
    steps::visible(run.stdout(Stdio::null()), SHORT)?;
    let metrics = folder.join("out/metrics.prom");
    let text = std::fs::File::open(&metrics).with_context(|| format!("reading {}", metrics.display()))?;
    let mut check = Command::new(promtool);
    steps::visible(check.args(["check", "metrics"]).stdin(text), SHORT)
}

/// The program, from where it can be had.
fn promtool(root: &Path) -> Result<PathBuf> {
    if steps::answer("promtool", &["--version"]).is_some() {
        return Ok("promtool".into());
    }
    let folder = steps::target(root).join("xtask/prometheus");
    let program = folder.join("usr/bin/promtool");
    if !program.exists() {
        ensure!(
            steps::answer("apt-get", &["--version"]).is_some(),
            "not installed, and no apt-get to fetch Debian's package prometheus"
        );
        std::fs::create_dir_all(&folder)?;
        let mut download = Command::new("apt-get");
        download.args(["--quiet", "-o", "Acquire::http::Timeout=30", "download", "prometheus"]).current_dir(&folder);
        steps::visible(&mut download, FETCH).context("fetching Debian's package prometheus")?;
        let package = std::fs::read_dir(&folder)?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|end| end == "deb"));
        let package = package.context("apt-get has left no package")?;
        let mut unpack = Command::new("dpkg-deb");
        steps::visible(unpack.arg("-x").arg(&package).arg(&folder), FETCH).context("unpacking it")?;
    }
    ensure!(program.exists(), "{} is not there", program.display());
    Ok(program)
}

const METRICS: &str = "promtool, metrics";
const RULES: &str = "promtool, alert rules";
const SHORT: Duration = Duration::from_secs(60);
const FETCH: Duration = Duration::from_secs(120);

//! Checks our metrics and alert rules with Prometheus' own tool.
//!
//! A run of four ranks leaves its `metrics.prom`; `promtool` reads it and the rules of
//! `docs/grafana` and tests the rules with their own samples. Then a Prometheus server scrapes a
//! run, and every query of the dashboard must return data. Both programs are taken from `PATH`, or
//! from Debian's package `prometheus`, which is unpacked under `target/` and not installed.
//!
//! A missing network is not a failure.

mod dashboard;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::selection::{BUILD, everything};
use crate::setup::Tools;
use crate::steps::{self, Count, Runner};

/// Checks metrics and rules.
pub fn run(runner: &mut Runner, root: &Path, tools: Tools) {
    let steps = [METRICS, RULES, RULE_SAMPLES, DASHBOARD];
    if !steps.iter().any(|name| runner.wants(name)) {
        return;
    }
    let [promtool, prometheus] = match programs(root) {
        Ok(programs) => programs,
        Err(reason) => {
            return steps.iter().for_each(|name| runner.skip(name, &format!("no Prometheus: {reason:#}")));
        }
    };
    let mut rules = Command::new(&promtool);
    runner.command(
        RULES,
        Count::Step,
        SHORT,
        rules.args(["check", "rules"]).arg(root.join("docs/grafana/alerts.yaml")),
    );
    let mut samples = Command::new(&promtool);
    runner.command(
        RULE_SAMPLES,
        Count::Step,
        SHORT,
        samples.args(["test", "rules"]).arg(root.join("docs/grafana/alerts_test.yaml")),
    );
    let mut build = everything(root, tools, &["build", "--bins", "--tests"]);
    let runs = [METRICS, DASHBOARD];
    if !runs.iter().any(|name| runner.wants(name)) {
        return;
    }
    if !runner.prerequisite("build programs for metrics", Count::Step, BUILD, &mut build) {
        return runs.iter().for_each(|name| runner.skip(name, "the programs do not build"));
    }
    runner.check(METRICS, || check_metrics(root, &promtool));
    runner.check(DASHBOARD, || dashboard::check(root, &promtool, &prometheus));
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

/// promtool and the server, from where they can be had.
///
/// # Errors
/// They are not there and cannot be fetched.
pub fn programs(root: &Path) -> Result<[PathBuf; 2]> {
    let names = ["promtool", "prometheus"];
    if names.iter().all(|name| steps::answer(name, &["--version"]).is_some()) {
        return Ok(names.map(PathBuf::from));
    }
    let folder = steps::target(root).join("xtask/prometheus");
    let programs = names.map(|name| folder.join("usr/bin").join(name));
    if !programs.iter().all(|program| program.exists()) {
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
    for program in &programs {
        ensure!(program.exists(), "{} is not there", program.display());
    }
    Ok(programs)
}

const METRICS: &str = "promtool, metrics";
const RULES: &str = "promtool, alert rules";
const RULE_SAMPLES: &str = "promtool, alert rules on samples";
const DASHBOARD: &str = "Prometheus, queries of the dashboard";
const SHORT: Duration = Duration::from_secs(60);
const FETCH: Duration = Duration::from_secs(120);

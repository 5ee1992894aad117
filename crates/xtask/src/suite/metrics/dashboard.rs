//! A test in which a Prometheus server scrapes a run of four ranks over HTTP and answers every
//! query of the dashboard; each must return data.
//!
//! Grafana itself is not started.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::steps;

/// Runs both and asks.
pub fn check(root: &Path, promtool: &Path, prometheus: &Path) -> Result<()> {
    let folder = steps::target(root).join("xtask/metrics/server");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder)?;
    let [metrics, server] = [steps::free_port()?, steps::free_port()?].map(|port| format!("127.0.0.1:{port}"));
    let config = folder.join("prometheus.yml");
    std::fs::write(&config, CONFIG.replace("@TARGET@", &metrics)).context("writing its configuration")?;
    let mut run = Command::new(steps::target(root).join("debug/probe_sync"));
    // Clocks that step, so that there is something to tell.
    run.args([
        "run",
        "--local",
        "4",
        "--duration",
        "5min",
        "--window",
        "500ms",
        "--inject-skew",
        "3",
        "--skew-model",
        "steps",
    ]);
    run.args(["--metrics-listen", &metrics, "--out"]).arg(folder.join("out")).stdout(Stdio::null());
    let mut run = steps::started(&mut run, &folder.join("run.log"))?;
    let mut scrape = Command::new(prometheus);
    scrape.arg(format!("--config.file={}", config.display())).arg(format!("--web.listen-address={server}"));
    scrape.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
    let scrape = steps::started(&mut scrape, &folder.join("prometheus.log"));
    let asked = scrape.and_then(|mut scrape| {
        let asked = ask(root, promtool, &server);
        steps::end(&mut scrape)?;
        asked
    });
    steps::end(&mut run)?;
    asked.with_context(|| format!("logs are in {}", folder.display()))
}

/// Asks again and again until all queries find something.
fn ask(root: &Path, promtool: &Path, server: &str) -> Result<()> {
    let queries = queries(&root.join("docs/grafana/dashboard.json"))?;
    let deadline = Instant::now() + LIMIT;
    let mut left: Vec<&String> = queries.iter().collect();
    loop {
        left.retain(|query| !finds(promtool, server, query));
        if left.is_empty() {
            println!("{} queries of the dashboard found something", queries.len());
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{} of {} queries found nothing, the first: {}",
            left.len(),
            queries.len(),
            left[0]
        );
        std::thread::sleep(AGAIN);
    }
}

fn finds(promtool: &Path, server: &str, query: &str) -> bool {
    let url = format!("http://{server}");
    let mut ask = Command::new(promtool);
    let answer = ask.args(["query", "instant", &url, query]).stderr(Stdio::null()).output();
    answer.is_ok_and(|answer| {
        let lines = String::from_utf8_lossy(&answer.stdout).into_owned();
        // "{labels} => value @[time]"; a quantile of nothing is no number.
        answer.status.success() && lines.lines().any(|line| line.contains("=>") && !line.contains("=> NaN"))
    })
}

/// What the panels ask, of all runs.
fn queries(dashboard: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(dashboard).with_context(|| format!("reading {}", dashboard.display()))?;
    let dashboard: serde_json::Value = serde_json::from_str(&text).context("the dashboard")?;
    let panels = dashboard["panels"].as_array().context("a dashboard without panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries = targets.filter_map(|target| target["expr"].as_str()).map(|text| text.replace("$instance", ".*"));
    let queries: Vec<String> = queries.collect();
    ensure!(queries.len() > 20, "only {} queries", queries.len());
    Ok(queries)
}

const CONFIG: &str = "\
global: { scrape_interval: 1s, evaluation_interval: 1s }
scrape_configs:
  - job_name: probe_sync
    static_configs: [{ targets: ['@TARGET@'] }]
";
const LIMIT: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_secs(1);

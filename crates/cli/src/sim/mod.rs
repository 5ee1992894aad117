//! `probe_sync sim`: how accurate offsets will be, told by simulation, where the truth is known.
//!
//! Place in the flow: arguments become a scenario and a plan for `probe_sync_sim::accuracy`; `seeds` runs the seeds on all
//! cores, `tables` prints, `files` and `plot` write. Without `--cells` it answers a planner: what error, which bounds, at what
//! cost. With `--cells` it compares all methods in the twelve cells and judges the demands.
//!
//! What it does not do: simulate or judge itself; and the files it writes hold nothing that another run would change.

mod adaptive;
mod faults;
mod files;
mod plot;
mod seeds;
mod tables;

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use probe_sync_sim::accuracy::cells::{Cell, CellOutcome, Outcome, demands, with_stamps};
use probe_sync_sim::accuracy::{Cost, Method, Plan, SeedRun, Tuning};
use probe_sync_sim::{Scenario, Simulation};
use probe_sync_time::{Duration, StampSource};

use crate::{Usage, launch};
use seeds::Seeds;

/// Flags of `sim`.
#[derive(Args, Debug)]
pub struct SimArgs {
    /// Compare all methods in the twelve cells (rate, stamps, load) and judge the demands
    #[arg(long, conflicts_with_all = ["scenario", "nodes", "neighbors", "load", "rate", "stamps"])]
    cells: bool,
    /// Put each fault of the list into the scenario: what is named, when, and what it costs the healthy nodes
    #[arg(long, conflicts_with_all = ["cells", "adaptive", "methods", "truth"])]
    faults: bool,
    /// Compare the fixed cadence with adaptive probing at --target-error: packets, and errors against the target
    #[arg(long, conflicts_with_all = ["cells", "methods", "truth", "rate", "stamps"])]
    adaptive: bool,
    /// The target of --adaptive [default: 200ns]
    #[arg(long, value_name = "DURATION", value_parser = probe_sync::config::duration, requires = "adaptive")]
    target_error: Option<Duration>,
    /// Start from a scenario file (TOML, see bench/scenarios); the flags below change it
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Number of nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    nodes: Option<u32>,
    /// Edges per node in the probing graph
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    neighbors: Option<u32>,
    /// Share of the time in which a packet finds a queue, 0 to 0.95
    #[arg(long, value_name = "SHARE", value_parser = share)]
    load: Option<f64>,
    /// Coded pairs per second, edge and direction [default: the cadence of a real run, 800us per host]
    #[arg(long, value_name = "PAIRS_PER_S", value_parser = rate)]
    rate: Option<f64>,
    /// Timestamps: hw (8 ns noise) or sw (0.5 us, one-sided)
    #[arg(long, value_name = "KIND")]
    stamps: Option<StampKind>,
    /// Simulated time [default: the scenario file's; without one 64s, beyond 64 nodes 16s]
    #[arg(long, value_parser = probe_sync::config::duration)]
    duration: Option<Duration>,
    /// Length of a window [default: the scenario's, 4s without a file]
    #[arg(long, value_parser = probe_sync::config::duration)]
    window: Option<Duration>,
    /// How many seeds, from 1 [default: 50 with --cells, 20 with --faults, 5 with --adaptive, otherwise 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000), conflicts_with = "seed")]
    seeds: Option<u64>,
    /// This seed alone
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Methods of ntp, ntp+, huygens, huygens+, svm, svm+, mean, hull, live, smooth, ours, separated by commas [default: all with
    /// --cells, otherwise ours per window (hull), round by round (live), over the run (smooth), and from all its packets (ours, up to 64 nodes)]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = method)]
    methods: Vec<Method>,
    /// Largest change of a pair's gap that huygens' filter lets pass with hardware stamps, ns
    #[arg(long, value_name = "NS", default_value_t = Tuning::default().huygens_hardware_ns, value_parser = positive)]
    huygens_hw_ns: f64,
    /// The same with software stamps
    #[arg(long, value_name = "NS", default_value_t = Tuning::default().huygens_software_ns, value_parser = positive)]
    huygens_sw_ns: f64,
    /// Unit of length, in halves of the smallest round trip, in which svm+ and huygens+ have C = 1
    #[arg(long, value_name = "X", default_value_t = Tuning::default().svm_unit, value_parser = positive)]
    svm_unit: f64,
    /// Write accuracy.csv, plots and, with --cells, accuracy.md into this directory; with --faults or --adaptive faults.csv or
    /// adaptive.csv alone
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// With --out: also truth.csv, every estimate beside the true offset
    #[arg(long, requires = "out")]
    truth: bool,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum StampKind {
    Hw,
    Sw,
}

/// Runs the command.
///
/// # Errors
/// Names the argument, the file or the field that is wrong, and tells when a signal ended the work.
pub fn run(arguments: &SimArgs) -> anyhow::Result<()> {
    let numbers = match (arguments.seed, arguments.seeds) {
        (Some(seed), _) => vec![seed],
        (None, Some(count)) => (1..=count).collect(),
        (None, None) if arguments.adaptive => (1..=adaptive::SEEDS).collect(),
        (None, None) if arguments.faults => (1..=faults::SEEDS).collect(),
        (None, None) => (1..=if arguments.cells { CELL_SEEDS } else { 1 }).collect(),
    };
    if let Some(out) = &arguments.out {
        std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    }
    let mut seeds = Seeds::new(numbers, launch::stop_on_signals()?);
    match (arguments.cells, arguments.faults) {
        (true, _) => compare(arguments, &mut seeds),
        (_, true) => faults::run(arguments, &mut seeds),
        _ if arguments.adaptive => adaptive::run(arguments, &mut seeds),
        _ => plan(arguments, &mut seeds),
    }
}

/// The twelve cells.
fn compare(arguments: &SimArgs, seeds: &mut Seeds) -> anyhow::Result<()> {
    let base = Scenario::from_toml(CELL_SCENARIO).context("the built-in scenario of the cells")?;
    let plan = arguments.plan(&Method::ALL, &base);
    check(&plan, &base)?;
    let mut outcomes = Vec::new();
    let mut truths = files::Truths::new(arguments.truth);
    seeds.expect(Cell::all().len());
    for cell in Cell::all() {
        let scenario = cell.scenario(&base);
        let Some(runs) = seeds.run(&cell.name(), &scenario, &plan)? else { break };
        truths.add(&cell.name(), &runs);
        outcomes.push(CellOutcome { cell, outcome: pooled(&runs) });
    }
    seeds.finish();
    crate::print(&tables::cells(&outcomes, &plan.methods))?;
    if outcomes.len() < Cell::all().len() {
        bail!("stopped by a signal after {} of {} cells; nothing was written", outcomes.len(), Cell::all().len());
    }
    let demands = demands(&outcomes);
    crate::print(&tables::demands(&demands))?;
    if let Some(out) = &arguments.out {
        let text = tables::markdown(&outcomes, &plan.methods, &demands);
        probe_sync::files::write_whole(&out.join("accuracy.md"), text.as_bytes())?;
    }
    let named: Vec<(String, Outcome)> = outcomes.into_iter().map(|of| (of.cell.name(), of.outcome)).collect();
    write(arguments, &named, &truths)
}

/// One scenario.
fn plan(arguments: &SimArgs, seeds: &mut Seeds) -> anyhow::Result<()> {
    // One message: of a usage error only the root cause is printed, and that would not name the file.
    let scenario = arguments.scenario().map_err(|error| anyhow::anyhow!("{error:#}").context(Usage))?;
    let plan = arguments.plan(if scenario.nodes > LARGE { &LARGE_METHODS } else { &PLANNER_METHODS }, &scenario);
    check(&plan, &scenario)?;
    seeds.expect(1);
    let name = "scenario";
    let Some(runs) = seeds.run(name, &scenario, &plan)? else { bail!("stopped by a signal; nothing was written") };
    seeds.finish();
    let outcome = pooled(&runs);
    let seconds = Duration::from_ns(plan.duration.as_ns().saturating_mul(runs.len() as i64));
    let cost = Cost::new(outcome.packets, scenario.nodes, seconds).context("a scenario without nodes or time")?;
    crate::print(&tables::planner(&scenario, &plan, &outcome, &cost))?;
    let mut truths = files::Truths::new(arguments.truth);
    truths.add(name, &runs);
    write(arguments, &[(name.to_owned(), outcome)], &truths)
}

/// What is wrong is said before the work begins.
fn check(plan: &Plan, scenario: &Scenario) -> anyhow::Result<()> {
    let refused = |error: anyhow::Error| Err(error.context(Usage));
    if plan.window.as_ns() <= 0 || plan.window > plan.duration {
        return refused(anyhow::anyhow!("--window must be positive and fit into --duration"));
    }
    if plan.duration > DURATION_MAX {
        return refused(anyhow::anyhow!("--duration is longer than a day; simulate less"));
    }
    Simulation::new(scenario.clone(), 0).map(drop).or_else(|error| refused(error.into()))
}

fn pooled(runs: &[SeedRun]) -> Outcome {
    let mut outcome = Outcome::default();
    runs.iter().for_each(|run| outcome.add(run));
    outcome
}

fn write(arguments: &SimArgs, named: &[(String, Outcome)], truths: &files::Truths) -> anyhow::Result<()> {
    let Some(out) = &arguments.out else { return Ok(()) };
    files::write(out, named, truths)?;
    plot::write(out, named)?;
    crate::print(&format!("files in {}\n", out.display()))
}

impl SimArgs {
    fn plan(&self, methods: &[Method], scenario: &Scenario) -> Plan {
        let mut chosen = if self.methods.is_empty() { methods.to_vec() } else { self.methods.clone() };
        chosen.sort_unstable();
        chosen.dedup();
        let own = scenario.duration();
        let short = self.scenario.is_none() && scenario.nodes > LARGE && own > LARGE_DURATION;
        Plan {
            duration: self.duration.unwrap_or(if short { LARGE_DURATION } else { own }),
            window: self.window.unwrap_or(scenario.window()),
            methods: chosen,
            tuning: Tuning {
                huygens_hardware_ns: self.huygens_hw_ns,
                huygens_software_ns: self.huygens_sw_ns,
                svm_unit: self.svm_unit,
            },
        }
    }

    /// The file, or the base of the cells at the cadence of a real run with software stamps; changed by the flags.
    fn scenario(&self) -> anyhow::Result<Scenario> {
        let mut scenario = match &self.scenario {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
                Scenario::from_toml(&text).with_context(|| path.display().to_string())?
            }
            None => {
                let base = Scenario::from_toml(CELL_SCENARIO).context("the built-in scenario of the cells")?;
                let base = Scenario { pairs_per_second: None, gap: probe_sync::Config::default().cadence, ..base };
                with_stamps(&base, StampSource::Kernel)
            }
        };
        scenario.nodes = self.nodes.unwrap_or(scenario.nodes);
        scenario.neighbors = self.neighbors.unwrap_or(scenario.neighbors);
        scenario.network.load = self.load.unwrap_or(scenario.network.load);
        scenario.pairs_per_second = self.rate.or(scenario.pairs_per_second);
        Ok(match self.stamps {
            Some(StampKind::Hw) => with_stamps(&scenario, StampSource::Hardware),
            Some(StampKind::Sw) => with_stamps(&scenario, StampSource::Kernel),
            None => scenario,
        })
    }
}

fn share(text: &str) -> Result<f64, String> {
    number(text).filter(|share| (0.0..=0.95).contains(share)).ok_or_else(|| "must be a number from 0 to 0.95".into())
}

fn rate(text: &str) -> Result<f64, String> {
    let message = "must be a number from 0.001 to 100000 pairs per second";
    number(text).filter(|rate| (1e-3..=1e5).contains(rate)).ok_or_else(|| message.into())
}

fn positive(text: &str) -> Result<f64, String> {
    number(text).filter(|value| *value > 0.0 && value.is_finite()).ok_or_else(|| "must be a positive number".into())
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

fn method(text: &str) -> Result<Method, String> {
    let names = Method::ALL.map(Method::as_str).join(", ");
    Method::from_name(text.trim()).ok_or_else(|| format!("no such method; there are {names}"))
}

/// The base of the twelve cells.
const CELL_SCENARIO: &str = include_str!("../../../../bench/scenarios/cell.toml");

/// Seeds of `--cells`.
const CELL_SEEDS: u64 = 50;

/// Above this many nodes a run is shorter by default, because it has packets enough.
const LARGE: u32 = 64;

const LARGE_DURATION: Duration = Duration::from_ms(16_000);

/// The clocks' wander is drawn for the whole run before it begins.
const DURATION_MAX: Duration = Duration::from_ms(86_400_000);

/// What a planner wants to know: the error live, and after the run.
const PLANNER_METHODS: [Method; 4] = [Method::Hull, Method::Live, Method::Smooth, Method::Ours];

/// Large runs have too many packets to keep them all.
const LARGE_METHODS: [Method; 3] = [Method::Hull, Method::Live, Method::Smooth];

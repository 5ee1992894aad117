//! `probe_sync sim`, which predicts the accuracy of offsets by simulation, where the truth is
//! known.
//!
//! `args` become a scenario and a plan for `probe_sync_sim::accuracy`; `seeds` runs the seeds on
//! all cores, `tables` prints, and `files`, `plot` and `page` write. Without `--cells` it serves as
//! a planner: it reports the expected error, the bounds and the cost. With `--cells` it compares
//! all methods in the twelve cells and checks the requirements.
//!
//! It does not simulate or judge; its output files contain nothing that would differ in another run
//! with the same input.

mod adaptive;
mod args;
mod document;
mod faults;
mod files;
mod page;
mod plot;
mod seeds;
mod tables;

use std::path::PathBuf;

use anyhow::{Context, bail};
use probe_sync_files::NewFolders;
use probe_sync_sim::accuracy::cells::{Cell, CellOutcome, Outcome, demands};
use probe_sync_sim::accuracy::{Cost, Method, Plan, SeedRun};
use probe_sync_sim::{Scenario, Simulation};
use probe_sync_time::Duration;

pub use self::args::SimArgs;
use self::args::{LARGE, cell_scenario};
pub use self::document::Document;
use self::document::{MethodRow, Simulated};
use self::seeds::Seeds;
use crate::output::Usage;
use crate::signals;

/// Runs the command.
///
/// # Errors
/// Names the invalid argument, file or field, and tells if a signal interrupted the work.
pub fn run(arguments: &SimArgs) -> anyhow::Result<()> {
    let numbers = match (arguments.seed, arguments.seeds) {
        (Some(seed), _) => vec![seed],
        (None, Some(count)) => (1..=count).collect(),
        (None, None) if arguments.adaptive => (1..=adaptive::SEEDS).collect(),
        (None, None) if arguments.faults => (1..=faults::SEEDS).collect(),
        (None, None) => (1..=if arguments.cells { CELL_SEEDS } else { 1 }).collect(),
    };
    // Before the work, which may take hours; gone again if nothing comes into it.
    let create = |out: &PathBuf| NewFolders::create(out).with_context(|| format!("cannot create {}", out.display()));
    let _folders = arguments.out.as_ref().map(create).transpose()?;
    let mut seeds = Seeds::new(numbers, signals::stop_on_signals()?);
    match (arguments.cells, arguments.faults) {
        (true, _) => compare(arguments, &mut seeds),
        (_, true) => faults::run(arguments, &mut seeds),
        _ if arguments.adaptive => adaptive::run(arguments, &mut seeds),
        _ => plan(arguments, &mut seeds),
    }
}

/// The twelve cells.
fn compare(arguments: &SimArgs, seeds: &mut Seeds) -> anyhow::Result<()> {
    let base = cell_scenario()?;
    let plan = arguments.plan(&Method::ALL, &base);
    check(&plan, &base)?;
    let mut outcomes = Vec::new();
    let mut truths = files::Truths::new(arguments.truth);
    let mut first = None;
    seeds.expect(Cell::all().len());
    for cell in Cell::all() {
        let scenario = cell.scenario(&base);
        let Some(runs) = seeds.run(&cell.name(), &scenario, &plan)? else { break };
        truths.add(&cell.name(), &runs);
        outcomes.push(CellOutcome { cell, outcome: pooled(&runs) });
        first = first.or_else(|| runs.into_iter().next());
    }
    seeds.finish();
    let table = tables::cells(&outcomes, &plan.methods);
    if outcomes.len() < Cell::all().len() {
        if !arguments.json {
            crate::output::tell(&table)?;
        }
        bail!("stopped by a signal after {} of {} cells; nothing was written", outcomes.len(), Cell::all().len());
    }
    let demands = demands(&outcomes);
    let markdown = tables::markdown(&outcomes, &plan.methods, &demands);
    let named: Vec<(String, Outcome)> = outcomes.into_iter().map(|of| (of.cell.name(), of.outcome)).collect();
    let mut document = Document::new("cells", seeds.count());
    let edges = named.first().map_or(0, |(_, outcome)| outcome.edges);
    document.scenario = Some(Simulated::new(&base, &plan, edges));
    document.methods = MethodRow::all(&named);
    document.demands = demands;
    document.tell(arguments, &(table + &tables::demands(&document.demands)))?;
    if let Some(out) = &arguments.out {
        crate::output::write_whole(&out.join("accuracy.md"), markdown.as_bytes())?;
    }
    let simulation = page::Simulation {
        facts: facts(&base, &plan, seeds),
        reference: base.reference,
        first: first.as_ref(),
        named: &named,
        demands: &document.demands,
        cost: None,
    };
    write(arguments, &simulation, &document, &truths)
}

/// One scenario.
fn plan(arguments: &SimArgs, seeds: &mut Seeds) -> anyhow::Result<()> {
    let scenario = arguments.scenario().map_err(|error| error.context(Usage))?;
    let plan = arguments.plan(if scenario.nodes > LARGE { &LARGE_METHODS } else { &PLANNER_METHODS }, &scenario);
    check(&plan, &scenario)?;
    seeds.expect(1);
    let name = "scenario";
    let Some(runs) = seeds.run(name, &scenario, &plan)? else { bail!("stopped by a signal; nothing was written") };
    seeds.finish();
    let outcome = pooled(&runs);
    let seconds = Duration::from_ns(plan.duration.as_ns().saturating_mul(runs.len() as i64));
    let cost = Cost::new(outcome.packets, scenario.nodes, seconds).context("a scenario without nodes or time")?;
    let table = tables::planner(&scenario, &plan, &outcome, &cost);
    let mut document = Document::new("scenario", seeds.count());
    document.scenario = Some(Simulated::alone(&scenario, &plan, outcome.edges));
    document.cost = Some(cost);
    let named = [(name.to_owned(), outcome)];
    document.methods = MethodRow::all(&named);
    document.tell(arguments, &table)?;
    let mut truths = files::Truths::new(arguments.truth);
    truths.add(name, &runs);
    let simulation = page::Simulation {
        facts: facts(&scenario, &plan, seeds),
        reference: scenario.reference,
        first: runs.first(),
        named: &named,
        demands: &[],
        cost: Some(cost),
    };
    write(arguments, &simulation, &document, &truths)
}

/// What was simulated, for display.
fn facts(scenario: &Scenario, plan: &Plan, seeds: &Seeds) -> Vec<(&'static str, String)> {
    let [duration, window] = [plan.duration, plan.window].map(|time| crate::table::unsigned(time.as_ns_f64()));
    vec![
        ("nodes", scenario.nodes.to_string()),
        ("reference", format!("node {}", scenario.reference)),
        ("simulated", format!("{duration} in windows of {window}")),
        ("seeds", seeds.count().to_string()),
    ]
}

/// Checks the settings before the work begins.
fn check(plan: &Plan, scenario: &Scenario) -> anyhow::Result<()> {
    let refused = |error: anyhow::Error| Err(error.context(Usage));
    if plan.window.as_ns() <= 0 || plan.window > plan.duration {
        return refused(anyhow::anyhow!("--window must be positive and fit into --duration"));
    }
    if plan.duration > DURATION_MAX {
        return refused(anyhow::anyhow!("--duration is longer than a day; choose a shorter one"));
    }
    Simulation::new(scenario.clone(), 0).map(drop).or_else(|error| refused(error.into()))
}

fn pooled(runs: &[SeedRun]) -> Outcome {
    let mut outcome = Outcome::default();
    runs.iter().for_each(|run| outcome.add(run));
    outcome
}

fn write(
    arguments: &SimArgs,
    simulation: &page::Simulation<'_>,
    document: &Document,
    truths: &files::Truths,
) -> anyhow::Result<()> {
    let Some(out) = &arguments.out else { return Ok(()) };
    files::write(out, &document.methods, truths)?;
    plot::write(out, simulation.named)?;
    page::write(out, simulation)?;
    document::written(arguments, out)
}

/// Seeds of `--cells`.
const CELL_SEEDS: u64 = 50;

/// The wander of the clocks is drawn for the whole run before it begins.
const DURATION_MAX: Duration = Duration::from_ms(86_400_000);

/// Methods for planning: the error live, and after the run.
const PLANNER_METHODS: [Method; 4] = [Method::Hull, Method::Live, Method::Smooth, Method::Ours];

/// Large runs have too many packets to keep them all.
const LARGE_METHODS: [Method; 3] = [Method::Hull, Method::Live, Method::Smooth];

//! The flags of `probe_sync sim`, and the scenario and plan they select.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use probe_sync_sim::Scenario;
use probe_sync_sim::accuracy::cells::{BASE, with_stamps};
use probe_sync_sim::accuracy::{Method, Plan};
use probe_sync_time::{Duration, NodeId, StampSource};

/// Flags of `sim`.
#[derive(Args, Debug)]
pub struct SimArgs {
    /// Compare all methods in twelve cells (rate, timestamps, load) and check the requirements
    #[arg(long, conflicts_with_all = ["scenario", "nodes", "neighbors", "load", "rate", "stamps"])]
    pub cells: bool,
    /// Inject each fault of a list into the scenario; report which faults are detected, when, and
    /// what they cost the healthy nodes
    #[arg(long, conflicts_with_all = ["cells", "adaptive", "methods", "truth"])]
    pub faults: bool,
    /// Compare a fixed cadence with adaptive probing at --target-error: packets, and errors
    /// relative to the target
    #[arg(long, conflicts_with_all = ["cells", "methods", "truth", "rate", "stamps"])]
    pub adaptive: bool,
    /// The target of --adaptive [default: 200ns]
    #[arg(long, value_name = "DURATION", value_parser = probe_sync::config::duration, requires = "adaptive")]
    pub target_error: Option<Duration>,
    /// Start from a scenario file (TOML, see bench/scenarios); the flags below override it
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// Number of nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub nodes: Option<u32>,
    /// The node whose offset is zero
    #[arg(long, value_name = "NODE", conflicts_with = "cells")]
    pub reference: Option<u32>,
    /// Edges per node in the probing graph
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub neighbors: Option<u32>,
    /// Fraction of the time during which a packet meets a queue, 0 to 0.95
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub load: Option<f64>,
    /// Coded pairs per second, per edge and direction [default: the cadence of a real run, 800us
    /// per host]
    #[arg(long, value_name = "PAIRS_PER_S", value_parser = rate)]
    pub rate: Option<f64>,
    /// Timestamps: hw (8 ns noise) or sw (0.5 us, one-sided)
    #[arg(long, value_name = "KIND")]
    pub stamps: Option<StampKind>,
    /// Simulated time [default: that of the scenario file; without one 64s, or 16s for more than 16
    /// nodes]
    #[arg(long, value_parser = probe_sync::config::duration)]
    pub duration: Option<Duration>,
    /// Length of a window [default: that of the scenario file; 4s without one]
    #[arg(long, value_parser = probe_sync::config::duration)]
    pub window: Option<Duration>,
    /// Number of seeds, counting from 1 [default: 50 with --cells, 20 with --faults, 5 with
    /// --adaptive, otherwise 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000), conflicts_with = "seed")]
    pub seeds: Option<u64>,
    /// Run only this seed
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
    /// Methods, separated by commas: ntp, ntp+, huygens, huygens+, svm, svm+, mean, hull, live,
    /// smooth, probe_sync [default: all with --cells; otherwise probe_sync per window (hull), round
    /// by round (live), over the run (smooth), and from all packets of the run (probe_sync, up to
    /// 64 nodes)]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = method)]
    pub methods: Vec<Method>,
    /// Write accuracy.csv, plots, the page report.html and, with --cells, accuracy.md to this
    /// directory; with --faults or --adaptive, write faults.csv or adaptive.csv and a page instead
    #[arg(short = 'o', long = "output", visible_alias = "out", value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the result as JSON, with a schema number (docs/schemas)
    #[arg(long)]
    pub json: bool,
    /// With --out: also write truth.csv, with every estimate next to the true offset
    #[arg(long, requires = "out")]
    pub truth: bool,
}

/// Where timestamps are taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum StampKind {
    /// In the network interface
    Hw,
    /// In the kernel
    Sw,
}

impl SimArgs {
    /// What to judge; `methods` if none were named.
    pub fn plan(&self, methods: &[Method], scenario: &Scenario) -> Plan {
        let mut chosen = if self.methods.is_empty() { methods.to_vec() } else { self.methods.clone() };
        chosen.sort_unstable();
        chosen.dedup();
        let own = scenario.duration();
        let short = self.scenario.is_none() && scenario.nodes > MANY && own > LARGE_DURATION;
        Plan {
            duration: self.duration.unwrap_or(if short { LARGE_DURATION } else { own }),
            window: self.window.unwrap_or(scenario.window()),
            methods: chosen,
        }
    }

    /// The file, or the base of the cells at the cadence of a real run with software stamps;
    /// modified by the flags.
    ///
    /// # Errors
    /// Names the invalid file or field.
    pub fn scenario(&self) -> anyhow::Result<Scenario> {
        let mut scenario = match &self.scenario {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
                Scenario::from_toml(&text).with_context(|| path.display().to_string())?
            }
            None => {
                let base = cell_scenario()?;
                let base = Scenario { pairs_per_second: None, gap: probe_sync::Config::default().cadence(), ..base };
                with_stamps(&base, StampSource::Kernel)
            }
        };
        self.change(&mut scenario)?;
        Ok(match self.stamps {
            Some(StampKind::Hw) => with_stamps(&scenario, StampSource::Hardware),
            Some(StampKind::Sw) => with_stamps(&scenario, StampSource::Kernel),
            None => scenario,
        })
    }

    /// Applies the flags for nodes, edges, load and rate.
    ///
    /// # Errors
    /// Returns an error if the scenario then contradicts itself.
    pub fn change(&self, scenario: &mut Scenario) -> anyhow::Result<()> {
        scenario.nodes = self.nodes.unwrap_or(scenario.nodes);
        scenario.reference = self.reference.map_or(scenario.reference, NodeId);
        scenario.neighbors = self.neighbors.unwrap_or(scenario.neighbors);
        scenario.network.load = self.load.unwrap_or(scenario.network.load);
        scenario.pairs_per_second = self.rate.or(scenario.pairs_per_second);
        Ok(scenario.check()?)
    }
}

/// The built-in base of the twelve cells.
///
/// # Errors
/// Returns an error only if the built-in file is invalid.
pub fn cell_scenario() -> anyhow::Result<Scenario> {
    Scenario::from_toml(BASE).context("the built-in scenario of the cells")
}

fn share(text: &str) -> Result<f64, String> {
    number(text).filter(|share| (0.0..=0.95).contains(share)).ok_or_else(|| "must be a number from 0 to 0.95".into())
}

fn rate(text: &str) -> Result<f64, String> {
    let message = "must be a number from 0.001 to 100000 pairs per second";
    number(text).filter(|rate| (1e-3..=1e5).contains(rate)).ok_or_else(|| message.into())
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

fn method(text: &str) -> Result<Method, String> {
    let names = Method::ALL.map(Method::as_str).join(", ");
    Method::from_name(text.trim()).ok_or_else(|| format!("unknown method; known methods: {names}"))
}

/// Above this many nodes not all packets are kept.
pub const LARGE: u32 = 64;

/// Above this many nodes a run is shorter by default: it has enough nodes and packets, and the user
/// waits for the result.
const MANY: u32 = 16;

const LARGE_DURATION: Duration = Duration::from_ms(16_000);

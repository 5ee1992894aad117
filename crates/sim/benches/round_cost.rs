//! What rounds of up to 10 000 hosts cost by topology, simulated:
//! `cargo bench -p probe-sync-sim --bench round_cost [-- COSTS.toml [--csv]]`.
//!
//! COSTS.toml is what `bench/scale/run.py` has measured on a machine (`bench/scale/costs.toml`
//! without it). First the model is compared with the rounds that were measured there; then come
//! tables for several networks, and from how many hosts on a tree is faster than a star. With
//! `--csv` one line per round.

use std::error::Error;

use probe_sync_sim::round_cost::{Costs, Mode, Network, RoundCost, RoundModel, Sizes, Topology};
use serde::Deserialize;

/// Results of the calibration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Calibration {
    /// Description of the machine.
    machine: String,
    /// Cores of the machine on which all ranks ran.
    cores: usize,
    sizes: Sizes,
    tcp: Costs,
    mpi: Costs,
    #[serde(default)]
    measured: Vec<Measured>,
}

/// A round of ranks on one host.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    ranks: usize,
    topology: Name,
    /// Fan-out of a tree; 0 otherwise.
    fan_out: usize,
    timed: bool,
    /// Bytes of a window and of an estimate in this round.
    window: usize,
    estimate: usize,
    /// Median, µs.
    us: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Name {
    Star,
    Tree,
    Leaders,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let file = arguments.iter().find(|argument| !argument.starts_with('-'));
    let text = match file {
        Some(file) => std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?,
        None => include_str!("../../../bench/scale/costs.toml").to_owned(),
    };
    let calibration: Calibration = toml::from_str(&text)?;
    if arguments.iter().any(|argument| argument == "--csv") {
        return csv(&calibration);
    }
    println!("Costs measured on: {}\n", calibration.machine);
    against_measured(&calibration)?;
    for (name, network) in NETWORKS {
        table(&calibration, name, network)?;
    }
    crossings(&calibration)?;
    ranks_of_hosts(&calibration)
}

/// Compares the model with the rounds that were measured on one host.
fn against_measured(calibration: &Calibration) -> Result<(), Box<dyn Error>> {
    println!("Measured on one host, and simulated there:\n");
    println!(
        "| ranks | topology | mode | measured µs | simulated µs | simulated / measured |\n|---|---|---|---|---|---|"
    );
    let mut ratios = Vec::new();
    for measured in &calibration.measured {
        let topology = match measured.topology {
            Name::Star => Topology::Star,
            Name::Tree => Topology::Tree { fan_out: measured.fan_out },
            Name::Leaders => Topology::Leaders,
        };
        let sizes = Sizes {
            window: measured.window,
            estimate: measured.estimate,
            shared_estimates_max: usize::MAX,
            ..calibration.sizes
        };
        let model = RoundModel {
            ranks: measured.ranks,
            ranks_per_host: measured.ranks,
            cores: calibration.cores,
            topology,
            mode: if measured.timed { Mode::Timed } else { Mode::Master },
            costs: if topology == Topology::Leaders { calibration.mpi } else { calibration.tcp },
            network: NETWORKS[0].1,
            sizes,
        };
        let simulated = model.round(1)?.round_us;
        let (ratio, mode) = (simulated / measured.us, if measured.timed { "timed" } else { "master" });
        ratios.push(ratio);
        println!(
            "| {} | {} | {mode} | {:.0} | {simulated:.0} | {ratio:.2} |",
            measured.ranks,
            name_of(topology),
            measured.us
        );
    }
    ratios.sort_by(f64::total_cmp);
    if let (Some(least), Some(most)) = (ratios.first(), ratios.last()) {
        println!("\nsimulated / measured: {least:.2} to {most:.2}, median {:.2}\n", ratios[ratios.len() / 2]);
    }
    Ok(())
}

/// One host per rank.
fn hosts(calibration: &Calibration, ranks: usize, topology: Topology, mode: Mode, network: Network) -> RoundModel {
    let costs = if topology == Topology::Leaders { calibration.mpi } else { calibration.tcp };
    RoundModel { ranks, ranks_per_host: 1, cores: 1, topology, mode, costs, network, sizes: calibration.sizes }
}

fn topologies(ranks: usize) -> [Topology; 5] {
    let regions = ((ranks as f64).sqrt().ceil() as usize).max(2);
    [
        Topology::Star,
        Topology::Tree { fan_out: 8 },
        Topology::Tree { fan_out: 16 },
        Topology::Regions { ranks: regions },
        Topology::Leaders,
    ]
}

fn table(calibration: &Calibration, name: &str, network: Network) -> Result<(), Box<dyn Error>> {
    println!("{name}; ms of a round, hosts of one rank:\n");
    println!(
        "| hosts | star | tree of 8 | tree of 16 | regions of √N | MPI leaders | timed: star | timed: tree of 16 | timed: MPI |\n|---|---|---|---|---|---|---|---|---|"
    );
    for ranks in HOSTS {
        let mut cells = Vec::new();
        for topology in topologies(ranks) {
            cells.push(median(&hosts(calibration, ranks, topology, Mode::Master, network))?);
        }
        for topology in [Topology::Star, Topology::Tree { fan_out: 16 }, Topology::Leaders] {
            cells.push(if ranks > TIMED_MAX {
                f64::NAN
            } else {
                median(&hosts(calibration, ranks, topology, Mode::Timed, network))?
            });
        }
        let cells: Vec<String> =
            cells.iter().map(|us| if us.is_nan() { "—".to_owned() } else { format!("{:.2}", us * 1e-3) }).collect();
        println!("| {ranks} | {} |", cells.join(" | "));
    }
    println!();
    Ok(())
}

/// The number of hosts from which on the tree is always faster.
fn crossings(calibration: &Calibration) -> Result<(), Box<dyn Error>> {
    println!(
        "From how many hosts on a tree is faster than a star:\n\n| network | tree of 8 | tree of 16 | tree of 32 |\n|---|---|---|---|"
    );
    for (name, network) in NETWORKS {
        let mut cells = Vec::new();
        for fan_out in [8, 16, 32] {
            cells.push(
                crossing(calibration, network, fan_out)?
                    .map_or_else(|| "none up to 4096".to_owned(), |ranks| ranks.to_string()),
            );
        }
        println!("| {name} | {} |", cells.join(" | "));
    }
    println!();
    Ok(())
}

fn crossing(calibration: &Calibration, network: Network, fan_out: usize) -> Result<Option<usize>, Box<dyn Error>> {
    let mut since = None;
    // Without the tail, so that one round tells it.
    let network = Network { tail_probability: 0.0, ..network };
    let mut ranks = 4;
    while ranks <= 4096 {
        let of = |topology| hosts(calibration, ranks, topology, Mode::Master, network).round(1);
        let faster = of(Topology::Tree { fan_out })?.round_us < of(Topology::Star)?.round_us;
        since = if faster { since.or(Some(ranks)) } else { None };
        ranks += (ranks / 16).max(1);
    }
    Ok(since)
}

/// 1000 hosts of 8 ranks.
fn ranks_of_hosts(calibration: &Calibration) -> Result<(), Box<dyn Error>> {
    let (name, network) = NETWORKS[0];
    println!(
        "1000 hosts of 8 ranks; {name}:\n\n| topology | mode | ms | messages | MB in all | root: messages | root: MB | root: processor ms | hops |\n|---|---|---|---|---|---|---|---|---|"
    );
    for mode in [Mode::Master, Mode::Timed] {
        for topology in topologies(8000) {
            if mode == Mode::Timed && matches!(topology, Topology::Regions { .. }) {
                continue;
            }
            let model = RoundModel { ranks_per_host: 8, cores: 8, ..hosts(calibration, 8000, topology, mode, network) };
            let RoundCost { round_us, messages, bytes, root_messages, root_bytes, root_cpu_us, hops, .. } =
                model.round(1)?;
            let (ms, megabytes) = (|us: f64| us * 1e-3, |bytes: u64| bytes as f64 * 1e-6);
            println!(
                "| {} | {} | {:.1} | {messages} | {:.1} | {root_messages} | {:.1} | {:.1} | {hops} |",
                name_of(topology),
                if mode == Mode::Timed { "timed" } else { "master" },
                ms(round_us),
                megabytes(bytes),
                megabytes(root_bytes),
                ms(root_cpu_us)
            );
        }
    }
    Ok(())
}

fn csv(calibration: &Calibration) -> Result<(), Box<dyn Error>> {
    println!(
        "network,hosts,topology,mode,round_us,gather_us,messages,bytes,root_messages,root_bytes,root_cpu_us,cpu_us,hops"
    );
    for (name, network) in NETWORKS {
        for ranks in HOSTS {
            for topology in topologies(ranks) {
                let model = hosts(calibration, ranks, topology, Mode::Master, network);
                let cost = model.round(1)?;
                println!(
                    "{name},{ranks},{},master,{:.1},{:.1},{},{},{},{},{:.1},{:.1},{}",
                    name_of(topology),
                    median(&model)?,
                    cost.gather_us,
                    cost.messages,
                    cost.bytes,
                    cost.root_messages,
                    cost.root_bytes,
                    cost.root_cpu_us,
                    cost.cpu_us,
                    cost.hops
                );
            }
        }
    }
    Ok(())
}

/// Median over several seeds if there is a tail.
fn median(model: &RoundModel) -> Result<f64, Box<dyn Error>> {
    let seeds = if model.network.tail_probability > 0.0 { SEEDS } else { 1 };
    let mut rounds =
        (0..seeds).map(|seed| Ok(model.round(seed)?.round_us)).collect::<Result<Vec<f64>, Box<dyn Error>>>()?;
    rounds.sort_by(f64::total_cmp);
    Ok(rounds[rounds.len() / 2])
}

fn name_of(topology: Topology) -> String {
    match topology {
        Topology::Star => "star".to_owned(),
        Topology::Tree { fan_out } => format!("tree of {fan_out}"),
        Topology::Regions { ranks } => format!("regions of {ranks}"),
        Topology::Leaders => "MPI leaders".to_owned(),
    }
}

const HOSTS: [usize; 11] = [8, 16, 32, 64, 128, 256, 512, 1000, 2000, 5000, 10_000];

/// Sending all windows to all ranks needs 100 GB beyond this.
const TIMED_MAX: usize = 2000;

const SEEDS: u64 = 9;

/// Names and values.
const NETWORKS: [(&str, Network); 4] = [
    ("one room: 10 µs; 100 Gbit/s", Network { latency_us: 10.0, gigabits: 100.0, tail_probability: 0.0, tail_us: 0.0 }),
    ("one site: 50 µs; 25 Gbit/s", Network { latency_us: 50.0, gigabits: 25.0, tail_probability: 0.0, tail_us: 0.0 }),
    (
        "one site with 1 % of messages 1 ms later",
        Network { latency_us: 50.0, gigabits: 25.0, tail_probability: 0.01, tail_us: 1000.0 },
    ),
    ("two sites: 5 ms; 1 Gbit/s", Network { latency_us: 5000.0, gigabits: 1.0, tail_probability: 0.0, tail_us: 0.0 }),
];

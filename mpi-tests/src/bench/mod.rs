//! Benchmark of one sync round: direct MPI calls as in a C program, our wrapper, our default round,
//! messages as used alongside a launcher, and TCP.
//!
//! `mpirun -n N probe-sync-mpi-tests bench` runs on one machine, because it compares clocks of the
//! ranks. All candidates run interleaved in the same processes, in blocks whose order rotates;
//! before each block all ranks meet in `MPI_Barrier`, and its first rounds are not counted. In each
//! counted round every rank records when it enters and when it leaves (`CLOCK_MONOTONIC`, shared by
//! the processes). A round lasts from the last entry to the last exit if ranks arrive apart
//! (`--skewed-rounds`), and from the root's entry to its next entry if rounds follow back to back.
//! Ratios compare adjacent blocks; the reported ratio is their median. It does not compare with
//! figures of other runs.

mod candidates;

use std::time::Duration;

use clap::Args;
use probe_sync_collective::{Collective as _, Deadline, Frames};
use probe_sync_mpi::{MpiCollective, MpiOptions};
use rustix::time::{ClockId, clock_gettime};

use crate::behaviour::cpu_seconds;
use crate::group::GroupExt as _;
use candidates::{Candidate, Sizes, TIMEOUT, candidates};

/// How to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Blocks per candidate.
    #[arg(long, default_value_t = 20)]
    blocks: usize,
    /// Counted rounds per block.
    #[arg(long, default_value_t = 200)]
    rounds: usize,
    /// Bytes that each rank contributes.
    #[arg(long, default_value_t = 1024)]
    payload: usize,
    /// Bytes of the decision for each rank that there is.
    #[arg(long, default_value_t = 24)]
    decision: usize,
    /// How many ranks each passes on for in the TCP tree.
    #[arg(long, default_value_t = 8)]
    fan_out: usize,
    /// Also measure with ranks that arrive after sleeping 1 to 5 ms, this many rounds per block.
    #[arg(long, default_value_t = 10)]
    skewed_rounds: usize,
    /// Let every that many ranks play a host.
    #[arg(long)]
    ranks_per_host: Option<usize>,
    /// Measure only the candidates whose names contain one of these words, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

impl Options {
    fn sizes(&self) -> Sizes {
        Sizes { payload: self.payload, decision: self.decision, fan_out: self.fan_out }
    }
}

/// Measures and prints.
pub(crate) fn run(mut group: MpiCollective, options: &Options) -> Result<(), String> {
    let text = |error: probe_sync_collective::Error| error.to_string();
    let layout = MpiOptions { ranks_per_host: options.ranks_per_host };
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|word| name.contains(word.as_str()));
    let mut candidates = candidates(&mut group, layout, options.sizes(), wanted).map_err(text)?;
    if candidates.is_empty() {
        return Err(format!("--only {}: no candidate has such a name", options.only.join(",")));
    }
    let mut reports = Vec::new();
    for (variant, rounds) in [(Variant::BackToBack, options.rounds), (Variant::Skewed, options.skewed_rounds)] {
        if rounds > 0 {
            let blocks = measure(&mut group, &mut candidates, variant, options.blocks, rounds).map_err(text)?;
            reports.push((variant, blocks));
        }
    }
    if group.is_root() {
        let names: Vec<&str> = candidates.iter().map(Candidate::name).collect();
        if options.json {
            println!("{}", json(&names, &reports, group.size(), options));
        } else {
            reports.iter().for_each(|(variant, blocks)| print_table(&names, *variant, blocks, group.size()));
        }
    }
    Ok(())
}

/// How rounds follow each other.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Variant {
    BackToBack,
    Skewed,
}

/// One block of one candidate.
#[derive(Copy, Clone, Default)]
struct Block {
    median_us: f64,
    mean_us: f64,
    /// Processor time of all ranks per round.
    cpu_us: f64,
    /// Part of that used by the root.
    root_cpu_us: f64,
}

/// `[candidate][block]`; meaningful at the root.
fn measure(
    group: &mut MpiCollective,
    candidates: &mut [Candidate],
    variant: Variant,
    blocks: usize,
    rounds: usize,
) -> Result<Vec<Vec<Block>>, probe_sync_collective::Error> {
    let mut results = vec![Vec::with_capacity(blocks); candidates.len()];
    let mut random = Random(group.rank() as u64 + 1);
    for block in 0..blocks {
        for turn in 0..candidates.len() {
            let chosen = (block + turn) % candidates.len();
            group.comm()?.barrier()?;
            for _ in 0..WARM_UP {
                candidates[chosen].round()?;
            }
            let cpu = cpu_seconds();
            let mut times = Vec::with_capacity(2 * rounds);
            for _ in 0..rounds {
                if variant == Variant::Skewed {
                    std::thread::sleep(Duration::from_micros(1000 + random.next() % 4000));
                }
                times.push(now_ns());
                candidates[chosen].round()?;
                times.push(now_ns());
            }
            let cpu = cpu_seconds() - cpu;
            results[chosen].push(summarise(group, variant, &times, cpu)?);
        }
    }
    Ok(results)
}

/// Brings the ranks' notes together at the root.
fn summarise(
    group: &mut MpiCollective,
    variant: Variant,
    times: &[i64],
    cpu_seconds: f64,
) -> Result<Block, probe_sync_collective::Error> {
    let mut notes: Vec<u8> = cpu_seconds.to_le_bytes().to_vec();
    times.iter().for_each(|time| notes.extend_from_slice(&time.to_le_bytes()));
    let (everyone, mut frames) = (vec![true; group.size()], Frames::default());
    group.gather(&everyone, &notes, &mut frames, &Deadline::new(TIMEOUT, None))?;
    if !group.is_root() {
        return Ok(Block::default());
    }
    let ranks: Vec<Vec<i64>> = frames
        .iter()
        .map(|notes| notes[8..].as_chunks::<8>().0.iter().map(|n| i64::from_le_bytes(*n)).collect())
        .collect();
    let used: Vec<f64> =
        frames.iter().filter_map(|notes| notes.first_chunk()).map(|used| f64::from_le_bytes(*used)).collect();
    let rounds = times.len() / 2;
    let last = |round: usize, place: usize| ranks.iter().map(|rank| rank[2 * round + place]).max().unwrap_or(0);
    let mut took_us: Vec<f64> = match variant {
        Variant::Skewed => (0..rounds).map(|round| (last(round, 1) - last(round, 0)) as f64 * 1e-3).collect(),
        Variant::BackToBack => {
            (1..rounds).map(|round| (times[2 * round] - times[2 * round - 2]) as f64 * 1e-3).collect()
        }
    };
    let mean_us = match variant {
        Variant::Skewed => took_us.iter().sum::<f64>() / rounds as f64,
        // To the last exit of all, so that a root that runs ahead of the others gains nothing.
        Variant::BackToBack => (last(rounds - 1, 1) - times[0]) as f64 * 1e-3 / rounds as f64,
    };
    let per_round_us = |seconds: f64| seconds * 1e6 / rounds as f64;
    let (cpu_us, root_cpu_us) = (per_round_us(used.iter().sum()), per_round_us(cpu_seconds));
    Ok(Block { median_us: median(&mut took_us), mean_us, cpu_us, root_cpu_us })
}

fn print_table(names: &[&str], variant: Variant, blocks: &[Vec<Block>], size: usize) {
    println!("{size} ranks, {variant:?}: µs per round");
    println!("{:<44} {:>10} {:>10} {:>12}", "", "median", "mean", "CPU, all");
    for (name, blocks) in names.iter().zip(blocks) {
        let of = |pick: fn(&Block) -> f64| median(&mut blocks.iter().map(pick).collect::<Vec<_>>());
        let (median_us, mean_us, cpu_us) = (of(|b| b.median_us), of(|b| b.mean_us), of(|b| b.cpu_us));
        println!("{name:<44} {median_us:>10.2} {mean_us:>10.2} {cpu_us:>12.1}");
    }
    for (ours, other) in RATIOS {
        if let Some([by_median, by_mean]) = ratios(names, blocks, ours, other) {
            println!("{ours} / {other}: {by_median:.3} (medians), {by_mean:.3} (means)");
        }
    }
}

fn json(names: &[&str], reports: &[(Variant, Vec<Vec<Block>>)], size: usize, options: &Options) -> String {
    let variants = reports.iter().map(|(variant, blocks)| {
        let rows = names.iter().zip(blocks).map(|(name, blocks)| {
            let of = |pick: fn(&Block) -> f64| median(&mut blocks.iter().map(pick).collect::<Vec<_>>());
            serde_json::json!({ "name": name, "median_us": of(|b| b.median_us), "mean_us": of(|b| b.mean_us),
                "cpu_us": of(|b| b.cpu_us),
                "root_cpu_us": of(|b| b.root_cpu_us), "block_medians_us": blocks.iter().map(|b| b.median_us).collect::<Vec<_>>() })
        });
        let ratios = RATIOS.iter().filter_map(|(ours, other)| {
            let [by_median, by_mean] = ratios(names, blocks, ours, other)?;
            Some(serde_json::json!({ "of": ours, "to": other, "median": by_median, "mean": by_mean }))
        });
        serde_json::json!({ "variant": format!("{variant:?}"), "candidates": rows.collect::<Vec<_>>(),
            "ratios": ratios.collect::<Vec<_>>() })
    });
    let variants: Vec<_> = variants.collect();
    serde_json::json!({ "ranks": size, "ranks_per_host": options.ranks_per_host,
        "payload": options.payload, "decision": options.decision, "fan_out": options.fan_out, "blocks": options.blocks, "variants": variants })
    .to_string()
}

/// Median over the blocks of the ratio of medians, and of the ratio of means.
fn ratios(names: &[&str], blocks: &[Vec<Block>], ours: &str, other: &str) -> Option<[f64; 2]> {
    let find = |wanted: &str| names.iter().position(|name| *name == wanted).and_then(|place| blocks.get(place));
    let pairs: Vec<_> = find(ours)?.iter().zip(find(other)?).collect();
    let by = |pick: fn(&Block) -> f64| median(&mut pairs.iter().map(|(a, b)| pick(a) / pick(b)).collect::<Vec<_>>());
    Some([by(|b| b.median_us), by(|b| b.mean_us)])
}

/// A reading that all processes of this machine share.
fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A small generator for pauses (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Ratios that the targets speak of: ours against the direct calls.
const RATIOS: [(&str, &str); 10] = [
    (candidates::WRAPPER, candidates::RAW_ALLGATHERV),
    (candidates::DEFAULT, candidates::RAW_GATHER),
    (candidates::DEFAULT, candidates::RAW_ALLGATHER),
    (candidates::MESSAGES, candidates::RAW_GATHER),
    (candidates::TCP, candidates::RAW_GATHER),
    (candidates::TCP_TREE, candidates::RAW_GATHER),
    (candidates::TCP_TREE, candidates::TCP),
    (candidates::TIMED, candidates::RAW_GATHER),
    (candidates::TIMED, candidates::DEFAULT),
    (candidates::TCP_TIMED, candidates::TCP),
];

/// Rounds before each block that do not count.
const WARM_UP: usize = 5;

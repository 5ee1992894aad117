//! Jobs of which everything is known, made from random numbers, against what is said of them: ranks
//! in three parallel dimensions, windows that are shifted, ranks without a trace, ranks that are
//! numbered anew, clocks known to 1 µs, to 1 ms and not at all. The jobs are written as PyTorch's
//! profiler, JAX's and rocprofv3 write them, with nothing of the readers.

mod kineto;
#[cfg(feature = "rocpd")]
mod rocpd;
mod xspace;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use probe_sync_alignment::{Calibrated, ClockSource, Request, StepNames, calibrate, check};

use super::Draws;
use crate::lateness;

/// An operation: its group, its members, and when each began and ended it, ns of truth.
struct Done {
    group: usize,
    step: i64,
    stays: BTreeMap<usize, (i64, i64)>,
}

impl Done {
    fn last(&self) -> usize {
        *self.stays.iter().max_by_key(|(_, stay)| stay.0).expect("members").0
    }
}

/// A job and its traces.
struct Job {
    groups: Vec<Vec<usize>>,
    done: Vec<Done>,
    /// Of each rank: when each step began and ended.
    steps: Vec<Vec<(i64, i64)>>,
    /// The steps that each rank recorded.
    recorded: Vec<std::ops::Range<i64>>,
    /// Ranks with a trace.
    present: Vec<usize>,
    /// By how much each rank's clock is ahead, and is said to be, ns.
    ahead: Vec<i64>,
    said: Vec<i64>,
    /// How well that is known, ns; None: not at all.
    sigma_ns: Option<f64>,
    states_steps: bool,
    /// Two ranks that exchanged their nodes.
    renamed: Option<(usize, usize)>,
    format: Format,
    seed: u64,
}

/// Who writes a job's traces.
#[derive(Copy, Clone, Debug)]
enum Format {
    Kineto,
    XSpace(xspace::Style),
    #[cfg(feature = "rocpd")]
    Rocpd(rocpd::Style),
}

impl Format {
    /// Writes the trace of a rank of the job.
    fn write(self, job: &Job, rank: usize, folder: &Path) -> PathBuf {
        match self {
            Self::Kineto => kineto::write(job, rank, folder),
            Self::XSpace(style) => xspace::write(job, style, rank, folder),
            #[cfg(feature = "rocpd")]
            Self::Rocpd(style) => rocpd::write(job, style, rank, folder),
        }
    }
}

const BASE_NS: i64 = 1_767_189_312_000_000_000;

fn below(draws: &mut Draws, limit: usize) -> usize {
    (draws.uniform() * limit as f64) as usize
}

fn between(draws: &mut Draws, low: f64, high: f64) -> f64 {
    low + (high - low) * draws.uniform()
}

/// Groups of ranks in three dimensions, each of more than one rank, and one of all.
fn groups([tensor, pipe, data]: [usize; 3]) -> Vec<Vec<usize>> {
    let ranks = tensor * pipe * data;
    let of = |rank: usize| [rank % tensor, rank / tensor % pipe, rank / tensor / pipe];
    let mut found = vec![(0..ranks).collect::<Vec<_>>()];
    for dimension in 0..3 {
        let mut by_others: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
        for rank in 0..ranks {
            let mut others = of(rank).to_vec();
            others.remove(dimension);
            by_others.entry(others).or_default().push(rank);
        }
        found.extend(by_others.into_values().filter(|members| members.len() > 1 && members.len() < ranks));
    }
    found
}

impl Job {
    fn new(seed: u64, format: Format) -> Self {
        let mut draws = Draws(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let draws = &mut draws;
        let sizes = [[2, 1, 1], [3, 1, 1], [2, 1, 2], [2, 2, 1], [4, 1, 1], [2, 2, 2]][below(draws, 6)];
        let ranks: usize = sizes.iter().product();
        let groups = groups(sizes);
        let length = 3 + below(draws, 10) as i64;
        let (steps, done) = Self::run(draws, ranks, &groups, length + 3);
        let shifted = draws.uniform() < 0.5;
        let from = (0..ranks).map(|_| if shifted { below(draws, 4) as i64 } else { 0 });
        let recorded = from.collect::<Vec<i64>>().into_iter().map(|from| from..from + length).collect();
        let sigma_ns = [Some(1e3), Some(1e6), None][below(draws, 3)];
        let ahead: Vec<i64> = (0..ranks).map(|_| between(draws, -8e6, 8e6) as i64).collect();
        let error = |draws: &mut Draws| sigma_ns.unwrap_or(0.0) * draws.normal().clamp(-2.0, 2.0);
        let mut said: Vec<i64> = ahead.iter().map(|ahead| ahead + error(draws) as i64).collect();
        said[0] = 0;
        let renamed = (sigma_ns == Some(1e3) && draws.uniform() < 0.3).then(|| (0, 1 + below(draws, ranks - 1)));
        let mut ahead = ahead;
        ahead[0] = 0;
        if let Some((one, other)) = renamed {
            // Far enough apart for its operations to tell.
            let apart = ahead[one] - ahead[other];
            if apart.abs() < 3_000_000 {
                (ahead[other], said[other]) = (ahead[other] + 4_000_000, said[other] + 4_000_000);
            }
        }
        let mut present: Vec<usize> = (0..ranks).collect();
        if renamed.is_none() && draws.uniform() < 0.3 {
            while present.len() > 2 && draws.uniform() < 0.6 {
                present.remove(below(draws, present.len()));
            }
        }
        let states_steps = draws.uniform() < 0.5;
        Self { groups, done, steps, recorded, present, ahead, said, sigma_ns, states_steps, renamed, format, seed }
    }

    /// What the clock of a rank's trace shows more than another's, ns.
    fn own_clock(&self, rank: usize) -> i64 {
        match self.format {
            #[cfg(feature = "rocpd")]
            Format::Rocpd(_) => rocpd::boot_ns(rank),
            _ => self.ahead[rank],
        }
    }

    /// The dimension of each group, in order.
    fn dimensions(&self) -> Vec<usize> {
        let mut dimensions: Vec<usize> = Vec::new();
        for (place, members) in self.groups.iter().enumerate() {
            let last = dimensions.last().copied().unwrap_or(0);
            let shared = (0..place)
                .filter(|other| dimensions[*other] == last)
                .any(|other| self.groups[other].iter().any(|rank| members.contains(rank)));
            dimensions.push(last + usize::from(shared));
        }
        dimensions
    }

    /// Runs the operations of all steps: each rank does what it has to in order, and waits.
    fn run(draws: &mut Draws, ranks: usize, groups: &[Vec<usize>], length: i64) -> (Vec<Vec<(i64, i64)>>, Vec<Done>) {
        let jitter = [0.0, 20e3, 1e6][below(draws, 3)];
        let late = (draws.uniform() < 0.5).then(|| below(draws, ranks));
        let compute: Vec<f64> = (0..groups.len()).map(|_| between(draws, 1e6, 6e6)).collect();
        let mut now = vec![0_i64; ranks];
        let (mut steps, mut done) = (vec![Vec::new(); ranks], Vec::new());
        for step in 0..length {
            let begun = now.clone();
            for (group, members) in groups.iter().enumerate() {
                let delay = if draws.uniform() < 0.8 { 2e6 } else { 0.0 };
                let mut arrive = |rank: usize| {
                    let late = if late == Some(rank) { delay } else { 0.0 };
                    now[rank] + (compute[group] + jitter * draws.uniform() + 20e3 * draws.uniform() + late) as i64
                };
                let starts: Vec<(usize, i64)> = members.iter().map(|rank| (*rank, arrive(*rank))).collect();
                let moved = starts.iter().map(|(_, start)| *start).max().unwrap_or(0) + between(draws, 1e5, 4e5) as i64;
                let mut stays = BTreeMap::new();
                for (rank, start) in starts {
                    let end = moved + between(draws, 0.0, 5e3) as i64;
                    stays.insert(rank, (start, end));
                    now[rank] = end;
                }
                done.push(Done { group, step, stays });
            }
            for rank in 0..ranks {
                now[rank] += 1_000_000;
                steps[rank].push((begun[rank], now[rank] - 1000));
            }
        }
        (steps, done)
    }

    fn write(&self, folder: &Path) -> (Vec<PathBuf>, PathBuf) {
        let mut offsets = "{\"meta\":true,\"reference\":0,\"nodes\":[],\"ranks\":[]}\n".to_owned();
        for (node, said) in self.said.iter().enumerate() {
            for at in [-5_000_000_000_i64, 20_000_000_000] {
                let (at, sigma) = (BASE_NS + at, self.sigma_ns.filter(|_| node > 0).unwrap_or(0.0));
                writeln!(offsets, r#"{{"node_id": {node}, "midpoint_sys_ns": {at}, "offset_ns": {said}, "drift_ppm": 0, "drift_sigma_ppm": 0, "sigma_ns": {sigma}, "reachable": true}}"#).expect("a string");
            }
        }
        let path = folder.join("offsets.jsonl");
        std::fs::write(&path, offsets).expect("written");
        (self.present.iter().map(|rank| self.format.write(self, *rank, folder)).collect(), path)
    }
}

/// What came of many jobs.
#[derive(Debug, Default)]
struct Sums {
    jobs: usize,
    /// Operations of which two ranks or more have a part in the traces, and those that were judged.
    shown: usize,
    judged: usize,
    /// Names.
    named: usize,
    refused: usize,
    renamed: usize,
    /// Jobs whose operations were judged by clocks that were learnt from the other half of them.
    held_out: usize,
    /// What was said and is not so.
    wrong: Vec<String>,
}

impl Sums {
    fn take(&mut self, seed: u64, format: Format) {
        let job = Job::new(seed, format);
        let folder = tempfile::tempdir().expect("a folder");
        let (mut traces, offsets) = job.write(folder.path());
        self.jobs += 1;
        let nodes: Vec<u32> = job.present.iter().map(|rank| *rank as u32).collect();
        let stated = if matches!(format, Format::XSpace(_)) { nodes.clone() } else { Vec::new() };
        let request = Request { traces: traces.clone(), nodes: stated, ..Request::default() };
        if job.sigma_ns.is_none() {
            let request = Request { clocks: ClockSource::Collectives, ..request };
            return match calibrate(&request) {
                Ok(calibrated) => self.bounds(seed, &job, &calibrated),
                Err(error) => {
                    assert!(error.to_string().contains("certainly shared"), "job {seed}: {error}");
                    self.refused += 1;
                }
            };
        }
        let clocks = ClockSource::Offsets(offsets);
        if let Some((one, other)) = job.renamed {
            traces.swap(one, other);
            self.renamed += 1;
            let request = Request { traces, assume_order: true, clocks, ..Request::default() };
            match calibrate(&request) {
                Err(error) => {
                    let mut right = nodes;
                    right.swap(one, other);
                    let right: Vec<String> = right.iter().map(u32::to_string).collect();
                    let told = error.to_string();
                    if !told.contains(&format!("give --nodes {},", right.join(" "))) {
                        self.wrong.push(format!("job {seed}, renamed {:?}: {told}", job.renamed));
                    }
                    self.refused += 1;
                }
                Ok(calibrated) => self.names(seed, &job, &calibrated),
            }
            return;
        }
        let calibrated = calibrate(&Request { nodes, clocks, ..request }).expect("clocks");
        let verdict = check(&calibrated);
        if verdict.result.violations() > 0 {
            self.wrong.push(format!("job {seed}: {}", verdict.text()));
        }
        self.names(seed, &job, &calibrated);
    }

    /// Each operation has to be one of the job's, and who is named the last of all its members.
    fn names(&mut self, seed: u64, job: &Job, calibrated: &Calibrated) {
        let found = lateness(calibrated, &StepNames::default()).expect("lateness");
        if found.impossible_instances > 0 {
            // On clocks that are another's: that is said, and nobody is named.
            if job.renamed.is_none() || found.instances.iter().any(|instance| instance.last_rank.is_some()) {
                self.wrong.push(format!("job {seed}: {}", found.warnings.join("; ")));
            }
            return;
        }
        let in_trace = |done: &&Done| {
            let recorded = |rank: &&usize| done.stays.contains_key(rank) && job.recorded[**rank].contains(&done.step);
            job.present.iter().filter(recorded).count() > 1
        };
        self.shown += job.done.iter().filter(in_trace).count();
        self.judged += found.instances.len();
        for instance in &found.instances {
            let of = |rank: u32, arrival_ns: i64| {
                let rank = rank as usize;
                let node = match job.renamed {
                    Some((one, other)) if rank == one => other,
                    Some((one, other)) if rank == other => one,
                    _ => rank,
                };
                let truth = arrival_ns - BASE_NS - 1_000_000_000 - job.ahead[rank] + job.said[node];
                let is_it = |done: &&Done| done.stays.get(&rank).is_some_and(|stay| (stay.0 - truth).abs() < 100);
                job.done.iter().find(is_it)
            };
            let done: Vec<Option<&Done>> =
                instance.arrivals.iter().map(|line| of(line.rank, line.arrival_ns)).collect();
            let one =
                done[0].filter(|first| done.iter().all(|done| done.is_some_and(|done| std::ptr::eq(done, *first))));
            let Some(one) = one else {
                self.wrong.push(format!("job {seed}: {} is made of different operations", instance.instance));
                continue;
            };
            self.named += usize::from(instance.last_rank.is_some());
            if instance.last_rank.is_some_and(|named| named as usize != one.last()) {
                self.wrong.push(format!(
                    "job {seed}: rank {:?} is named in {}, and {} was last",
                    instance.last_rank,
                    instance.instance,
                    one.last()
                ));
            }
        }
    }

    /// What is claimed of the clocks has to hold.
    fn bounds(&mut self, seed: u64, job: &Job, calibrated: &Calibrated) {
        let found = calibrated.collectives.as_ref().expect("asked");
        let reference = job.own_clock(found.reference as usize);
        for node in found.windows.iter().flat_map(|window| &window.nodes).filter(|node| node.reachable) {
            let truth = (job.own_clock(node.node as usize) - reference) as f64;
            let bounds = node.bound_lo_ns.zip(node.bound_hi_ns);
            if bounds.is_some_and(|(low, high)| truth < low - 2.0 || truth > high + 2.0) {
                self.wrong.push(format!("job {seed}: node {} is {truth} ns ahead, not {bounds:?}", node.node));
            }
        }
        // What is judged by clocks that were learnt from the other half of the operations has to
        // hold.
        let verdict = check(calibrated);
        self.held_out += usize::from(verdict.remarks().iter().any(|remark| remark.contains("the other half")));
        if verdict.result.violations() > 0 {
            self.wrong.push(format!("job {seed}: {}", verdict.text()));
        }
        self.names_by_learnt_clocks(seed, job, calibrated);
    }

    /// The same of names, whose times are on clocks that were learnt.
    fn names_by_learnt_clocks(&mut self, seed: u64, job: &Job, calibrated: &Calibrated) {
        // Of a rank that no operation joins to the others nothing is known.
        let Ok(found) = lateness(calibrated, &StepNames::default()) else { return };
        self.named += found.instances.iter().filter(|instance| instance.last_rank.is_some()).count();
        if found.stragglers.iter().any(|straggler| {
            straggler.rank.is_some_and(|rank| job.done.iter().all(|done| done.last() != rank as usize))
        }) {
            self.wrong.push(format!("job {seed}: {:?}", found.stragglers));
        }
    }
}

/// Who writes a job's traces, with the ways of each drawn from its seed.
fn kineto(_: u64) -> Format {
    Format::Kineto
}

fn xspace(seed: u64) -> Format {
    Format::XSpace(xspace::Style::new(&mut Draws(seed.wrapping_mul(0xD6E8_FEB8_6659_FD93) | 1)))
}

#[cfg(feature = "rocpd")]
fn rocpd(seed: u64) -> Format {
    Format::Rocpd(rocpd::Style::new(&mut Draws(seed.wrapping_mul(0xD6E8_FEB8_6659_FD93) | 1)))
}

fn of_jobs(format: fn(u64) -> Format, jobs: impl Iterator<Item = u64>) -> Sums {
    let mut sums = Sums::default();
    jobs.for_each(|seed| sums.take(seed, format(seed)));
    let Sums { jobs, shown, judged, named, refused, renamed, held_out, wrong } = &sums;
    println!(
        "{jobs} jobs: {judged} of {shown} operations judged with known clocks, {named} named, {refused} jobs refused, {renamed} renamed, {held_out} judged by halves, {} wrong",
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    sums
}

/// Jobs of the long tests: with debug assertions fewer, which take three minutes in place of twelve.
const JOBS: u64 = if cfg!(debug_assertions) { 500 } else { 2000 };

#[test]
fn nothing_wrong_is_said_of_jobs_of_which_everything_is_known() {
    // The last ones were judged wrongly once.
    let sums = of_jobs(kineto, (0..60).chain([408, 741, 772, 850, 888, 1329, 1802, 1814, 1952]));
    assert!(2 * sums.judged > sums.shown && sums.named > 100 && sums.renamed > 2, "{sums:?}");
}

#[test]
fn nothing_wrong_is_said_of_jobs_whose_traces_are_xspaces() {
    let sums = of_jobs(xspace, 0..60);
    assert!(3 * sums.judged > sums.shown && sums.named > 100, "{sums:?}");
}

#[cfg(feature = "rocpd")]
#[test]
fn nothing_wrong_is_said_of_jobs_whose_traces_are_databases() {
    // The last ones were judged wrongly once.
    let sums = of_jobs(rocpd, (0..40).chain([258, 283, 506, 1678]));
    assert!(10 * sums.judged > sums.shown && sums.named > 20, "{sums:?}");
}

#[test]
#[ignore = "long: hundreds of generated jobs"]
fn nothing_wrong_is_said_of_many_jobs() {
    let sums = of_jobs(kineto, 0..JOBS);
    assert!(2 * sums.judged > sums.shown, "{sums:?}");
}

#[test]
#[ignore = "long: hundreds of generated jobs"]
fn nothing_wrong_is_said_of_many_jobs_whose_traces_are_xspaces() {
    let sums = of_jobs(xspace, 0..JOBS);
    assert!(3 * sums.judged > sums.shown, "{sums:?}");
}

#[cfg(feature = "rocpd")]
#[test]
#[ignore = "long: hundreds of generated jobs"]
fn nothing_wrong_is_said_of_many_jobs_whose_traces_are_databases() {
    let sums = of_jobs(rocpd, 0..JOBS);
    assert!(10 * sums.judged > sums.shown, "{sums:?}");
}

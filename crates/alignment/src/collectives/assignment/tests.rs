//! Jobs with parallel dimensions, made up with the communicators known: what is called certain is
//! right.

use super::*;

/// A generator of its own (xorshift), so that nothing of the reader is in it.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// How a job is, and what is known of it.
#[derive(Copy, Clone, Debug)]
struct Job {
    tensor: u32,
    pipeline: u32,
    data: u32,
    /// A second communicator of all ranks, and a second one of each data-parallel group.
    doubled: bool,
    /// Communicators are made one after the other, as where `new_group` waits for all ranks.
    in_turn: bool,
    hosts: u32,
    /// How well hosts' clocks are known, ns; None: not at all.
    known_ns: Option<i64>,
    /// The process of this rank is started again when all communicators are there, and all are made
    /// a second time.
    restarted: Option<u32>,
    /// There is a trace of its first life.
    first_life: bool,
}

/// The ranks of each communicator, in the order in which a program makes them.
fn layout(job: Job) -> Vec<Vec<Vec<u32>>> {
    let Job { tensor, pipeline, data, doubled, .. } = job;
    let all = tensor * pipeline * data;
    let at = |p: u32, d: u32, t: u32| (p * data + d) * tensor + t;
    let tensors = (0..pipeline).flat_map(|p| (0..data).map(move |d| (0..tensor).map(|t| at(p, d, t)).collect()));
    let datas: Vec<Vec<u32>> =
        (0..pipeline).flat_map(|p| (0..tensor).map(move |t| (0..data).map(|d| at(p, d, t)).collect())).collect();
    let pipelines = (0..data).flat_map(|d| (0..tensor).map(move |t| (0..pipeline).map(|p| at(p, d, t)).collect()));
    let mut kinds = vec![vec![(0..all).collect()], tensors.collect(), datas.clone(), pipelines.collect()];
    if doubled {
        kinds.push(datas);
        kinds.push(vec![(0..all).collect()]);
    }
    kinds.iter_mut().for_each(|kind: &mut Vec<Vec<u32>>| kind.retain(|group| group.len() > 1));
    kinds
}

/// What all processes know, and the true communicator of each handle.
fn made(job: Job, dice: &mut Dice) -> (Vec<Handle>, Vec<usize>) {
    let all = job.tensor * job.pipeline * job.data;
    let mut free: Vec<i64> = (0..all).map(|_| dice.below(1_000_000) as i64).collect();
    let (mut handles, mut truth) = (Vec::new(), Vec::new());
    let offsets: Vec<i64> = (0..job.hosts).map(|_| dice.below(3_600_000_000_000) as i64).collect();
    let lives = if job.restarted.is_some() { 2 } else { 1 };
    let kinds = layout(job);
    let counts: Vec<u64> = kinds.iter().map(|_| dice.below(3)).collect();
    let mut communicator = 0;
    for life in 0..lives {
        for (kind, groups) in kinds.iter().enumerate() {
            for group in groups {
                if job.in_turn {
                    let last = free.iter().copied().max().unwrap_or(0);
                    free.fill(last);
                }
                let starts: Vec<i64> =
                    group.iter().map(|rank| free[*rank as usize] + 1_000 + dice.below(50_000) as i64).collect();
                let last = starts.iter().copied().max().unwrap_or(0);
                for ((place, rank), start) in (0..).zip(group).zip(&starts) {
                    let end = last + 20_000 + dice.below(5_000) as i64;
                    free[*rank as usize] = end;
                    let again = job.restarted == Some(*rank);
                    if again && life == 0 && !job.first_life {
                        continue;
                    }
                    let host = rank * job.hosts / all;
                    let ps = |ns: i64| i128::from(ns) * 1000;
                    let off = job.known_ns.map(|known| known - dice.below(2 * known as u64 + 1) as i64);
                    let seen = match (off, job.known_ns) {
                        (Some(off), Some(known)) => (0, ps(start + off - known), ps(end + off + known)),
                        _ => (1 + host, ps(start + offsets[host as usize]), ps(end + offsets[host as usize])),
                    };
                    // A pipeline's first stage does one more of each; a trace may end before all
                    // are done.
                    let stage = rank / (job.tensor * job.data);
                    let done = counts[kind] + u64::from(stage == 0 && kind == 1);
                    let uses: Vec<u32> = (0..done.saturating_sub(dice.below(2))).map(|_| 7).collect();
                    handles.push(Handle {
                        process: *rank as usize + if again { life * all as usize } else { 0 },
                        job_rank: *rank,
                        rank: place,
                        size: group.len() as u32,
                        made: Some((ps(start + offsets[host as usize]), ps(end + offsets[host as usize]))),
                        seen: Some(seen),
                        uses: Some(uses.into()),
                    });
                    truth.push(communicator);
                }
                communicator += 1;
            }
        }
    }
    (handles, truth)
}

/// How many handles are in communicators that are certain, of how many; all of these are right.
fn solved(job: Job, seed: u64) -> (usize, usize) {
    let (handles, truth) = made(job, &mut Dice(seed * 2_654_435_761 + 88_172_645_463_325_252));
    let found = assign(&handles);
    for group in &found.certain {
        assert!(group.iter().all(|handle| truth[*handle] == truth[group[0]]), "{job:?}, seed {seed}: {group:?}");
        assert!((0..).zip(group).all(|(rank, handle)| handles[*handle].rank == rank), "{job:?}: in order of rank");
    }
    let certain = found.certain.iter().map(Vec::len).sum();
    let open: usize = found.open.iter().map(Vec::len).sum();
    assert!(certain + open <= handles.len(), "{job:?}");
    (certain, handles.len())
}

const MEGATRON: Job = Job {
    tensor: 4,
    pipeline: 2,
    data: 4,
    doubled: true,
    in_turn: true,
    hosts: 4,
    known_ns: None,
    restarted: None,
    first_life: true,
};

#[test]
fn three_parallel_dimensions_are_told_apart_where_times_tell() {
    let check = |job: Job, least: usize| {
        let (certain, all) = solved(job, 1);
        assert!(certain * 100 >= least * all && (least > 0 || certain < all), "{job:?}: {certain} of {all}");
    };
    // On one clock every communicator is made at a time of its own.
    check(Job { hosts: 1, ..MEGATRON }, 100);
    check(Job { known_ns: Some(1_000), ..MEGATRON }, 100);
    // Two of all ranks are told apart by their order, whatever the clocks.
    check(Job { hosts: 32, tensor: 1, pipeline: 1, data: 32, ..MEGATRON }, 100);
    check(Job { hosts: 32, tensor: 1, pipeline: 1, data: 32, in_turn: false, ..MEGATRON }, 100);
    // What was made before tells of clocks that are not known.
    check(Job { hosts: 32, tensor: 1, pipeline: 4, data: 4, ..MEGATRON }, 30);
    // Those of part of the ranks are not, where they were made at once.
    check(Job { in_turn: false, ..MEGATRON }, 0);
    check(Job { known_ns: Some(1_000_000_000), ..MEGATRON }, 0);
}

#[test]
fn a_restarted_process_is_in_the_communicators_that_it_made() {
    for first_life in [false, true] {
        let job = Job { hosts: 1, restarted: Some(5), first_life, ..MEGATRON };
        let (certain, all) = solved(job, 3);
        // Without a trace of its first life only what was made since all processes are here.
        assert_eq!(certain, if first_life { all } else { 6 * 32 }, "{job:?}");
    }
}

#[test]
fn no_generated_job_is_solved_wrongly() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (mut certain, mut all) = (0, 0);
    for seed in 1..=2000 {
        let mut one = |most: u64| dice.below(most) as u32 + 1;
        let (tensor, pipeline, data) = (one(4), one(2), one(4));
        let ranks = tensor * pipeline * data;
        let hosts = one(u64::from(ranks));
        let job = Job {
            tensor,
            pipeline,
            data,
            hosts,
            doubled: dice.chance(50),
            in_turn: dice.chance(50),
            known_ns: [None, Some(1_000), Some(1_000_000), Some(1_000_000_000)][dice.below(4) as usize],
            restarted: dice.chance(20).then(|| dice.below(u64::from(ranks)) as u32),
            first_life: dice.chance(50),
        };
        if ranks > 1 {
            let (solved, handles) = solved(job, seed);
            (certain, all) = (certain + solved, all + handles);
        }
    }
    println!("{certain} of {all} handles are in communicators that are certain");
    assert!(certain * 3 > all, "{certain} of {all}");
}

//! Jobs in which nobody is a straggler, and lateness lasts: how often somebody is named. And how
//! often a straggler is.

use super::super::ranks::Ranks;
use super::super::summary::{Tests, host_units, rank_units};
use super::super::verdict::{Chance, recurrent};
use super::*;

/// A job of one operation in each step. Lateness keeps a share `kept` of itself from each step to
/// the next, but for the share `new` of its variance, which is new in each step.
#[derive(Copy, Clone)]
struct Job {
    ranks: usize,
    per_host: usize,
    steps: usize,
    kept: f64,
    new: f64,
    /// Rank 0 is this many standard deviations later, in this share of the steps.
    late: (f64, f64),
    /// Standard deviation of the clocks' errors, which last for the job, in standard deviations of
    /// lateness.
    clocks: f64,
}

const LATENESS_NS: f64 = 100_000.0;

impl Job {
    /// The operations, and the errors of the clocks in standard deviations of lateness.
    fn held(self, draws: &mut Draws) -> (Vec<Held>, Vec<f64>) {
        let clocks: Vec<f64> = (0..self.ranks).map(|_| self.clocks * draws.normal()).collect();
        let mut late: Vec<f64> = (0..self.ranks).map(|_| draws.normal()).collect();
        let step = |step: usize| {
            let is_late = draws.uniform() < self.late.1;
            let arrival = |(rank, late): (usize, &mut f64)| {
                *late = self.kept * *late + (1.0 - self.kept * self.kept).sqrt() * draws.normal();
                let more = if rank == 0 && is_late { self.late.0 } else { 0.0 };
                let own = (1.0 - self.new).sqrt() * *late
                    + if self.new > 0.0 { self.new.sqrt() * draws.normal() } else { 0.0 };
                let start_ns = 10_000_000 * step as i64 + (LATENESS_NS * (own + more + clocks[rank])) as i64;
                let error =
                    ClockError { clock: rank as u32, sigma_ns: LATENESS_NS * self.clocks, ..ClockError::default() };
                let end_ns = 10_000_000 * step as i64 + 5_000_000;
                let [launch_ns, begun_ns] = [None; 2];
                Arrival { rank, start_ns, first_end_ns: end_ns, end_ns, launch_ns, begun_ns, error }
            };
            let arrivals: Vec<Arrival> = late.iter_mut().enumerate().map(arrival).collect();
            let judged = judge(&Waits::All, &arrivals);
            Held {
                name: String::new(),
                instance: String::new(),
                evidence: Evidence::Label,
                step: Some(step as i64),
                waits: Waits::All,
                arrivals,
                recorded: (0, 0),
                missing: 0,
                judged,
            }
        };
        let held = (0..self.steps).map(step).collect();
        (held, clocks)
    }

    /// Whether a member is named, and whether one was before dependence and ties were counted.
    fn named(self, draws: &mut Draws) -> [bool; 2] {
        let (held, _) = self.held(draws);
        let ranks = Ranks {
            numbers: (0..self.ranks as u32).collect(),
            hosts: (0..self.ranks).map(|rank| format!("host{}", rank / self.per_host)).collect(),
        };
        let tests = Tests::new(&ranks, &held);
        let (of_ranks, of_hosts) = (rank_units(&held), host_units(&ranks, &tests, &held));
        let now = !recurrent(&of_ranks, tests.ranks).is_empty() || !recurrent(&of_hosts, tests.hosts).is_empty();
        let known: Vec<_> = of_ranks.into_iter().filter(|unit| unit.member.is_some()).collect();
        let before = !recurrent(&known, Chance { members: self.ranks, tests: 1, dependence: 1.0 }).is_empty();
        [now, before]
    }

    /// How many of `jobs` jobs name a member, by the present test and by the earlier one.
    fn times(self, jobs: usize, seed: u64) -> [usize; 2] {
        let mut draws = Draws(seed);
        let mut times = [0; 2];
        for _ in 0..jobs {
            let named = self.named(&mut draws);
            times = [0, 1].map(|of| times[of] + usize::from(named[of]));
        }
        times
    }
}

const ALIKE: Job = Job { ranks: 2, per_host: 1, steps: 100, kept: 0.0, new: 0.0, late: (0.0, 0.0), clocks: 0.0 };

/// Jobs of each kind in the long tests: with debug assertions fewer, which take a quarter of six minutes.
const JOBS: usize = if cfg!(debug_assertions) { 500 } else { 2000 };

/// At most 1 % of this many jobs name a rank.
fn names_nobody(job: Job, jobs: usize) {
    names_at_most(job, jobs, 1);
}

/// At most `per_cent` per cent of this many jobs name a rank.
fn names_at_most(job: Job, jobs: usize, per_cent: usize) {
    let Job { ranks, per_host, steps, kept, new, clocks, .. } = job;
    let [now, before] = job.times(jobs, 1 + ranks as u64);
    let kind = format!(
        "{ranks} ranks, {per_host} on a host, {steps} steps, {kept} kept, {new} new, clocks {clocks}: {now} of {jobs}"
    );
    println!("{kind}, {before} before");
    assert!(100 * now <= per_cent * jobs, "{kind}");
}

/// What lasts lies under what is new in each step: neighbours hardly show it.
fn slow_part(jobs: usize) {
    for (ranks, steps, new, per_cent) in SLOW_PARTS {
        names_at_most(Job { ranks, steps, kept: 0.98, new, ..ALIKE }, jobs, per_cent);
    }
}

/// Ranks, steps, the share of the variance that is new in each step, and the per cent of jobs that
/// may name somebody. Two ranks say too little: what lasts half as long as the job is nearly a
/// constant.
const SLOW_PARTS: [(usize, usize, f64, usize); 8] = [
    (2, 100, 0.9, 22),
    (2, 100, 0.7, 29),
    (8, 100, 0.9, 5),
    (8, 100, 0.7, 1),
    (32, 100, 0.9, 1),
    (2, 400, 0.7, 2),
    (8, 400, 0.9, 1),
    (8, 400, 0.7, 1),
];

#[test]
#[ignore = "long: hundreds of jobs of each kind"]
fn a_slow_part_under_noise_names_nobody_where_ranks_and_steps_show_it() {
    slow_part(JOBS);
}

/// What decays by this factor, under what is new in each step: (ranks, steps, kept, new, per cent
/// of jobs that may name somebody). Of two ranks 100 steps are too few to show a slow part that
/// makes the longest of them last: a test that saw it nineteen times in twenty would take
/// independent steps for slow ones as often.
const UNDER_NOISE: [(usize, usize, f64, f64, usize); 17] = [
    (2, 100, 0.3, 0.3, 1),
    (2, 100, 0.3, 0.7, 1),
    (2, 100, 0.5, 0.3, 1),
    (2, 100, 0.5, 0.7, 2),
    (2, 100, 0.7, 0.3, 2),
    (2, 100, 0.7, 0.7, 3),
    (2, 100, 0.9, 0.3, 5),
    (2, 100, 0.9, 0.7, 8),
    (2, 400, 0.7, 0.3, 2),
    (2, 400, 0.7, 0.7, 3),
    (2, 400, 0.9, 0.3, 1),
    (2, 400, 0.9, 0.7, 2),
    (8, 100, 0.3, 0.7, 1),
    (8, 100, 0.5, 0.7, 1),
    (8, 100, 0.7, 0.7, 1),
    (8, 100, 0.9, 0.3, 1),
    (8, 100, 0.9, 0.7, 1),
];

#[test]
#[ignore = "long: hundreds of jobs of each kind"]
fn what_lasts_under_noise_names_nobody_but_of_two_ranks_some() {
    for (ranks, steps, kept, new, per_cent) in UNDER_NOISE {
        names_at_most(Job { ranks, steps, kept, new, ..ALIKE }, JOBS, per_cent);
    }
}

#[test]
fn ranks_that_are_alike_are_not_named_however_long_lateness_lasts() {
    for kept in [0.0, 0.5, 0.9] {
        for ranks in [2, 8] {
            names_nobody(Job { ranks, kept, ..ALIKE }, 300);
        }
    }
    names_nobody(Job { ranks: 8, per_host: 2, kept: 0.7, ..ALIKE }, 300);
    // A tenth of the variance lasts 50 steps.
    names_nobody(Job { ranks: 8, steps: 400, kept: 0.98, new: 0.9, ..ALIKE }, 300);
}

#[test]
fn a_clock_error_that_lasts_the_job_names_nobody() {
    for clocks in [0.2, 0.5, 1.0] {
        names_nobody(Job { clocks, ..ALIKE }, 300);
    }
}

#[test]
#[ignore = "long: hundreds of jobs of each kind"]
fn one_job_of_a_hundred_names_a_rank_by_chance_at_most() {
    for kept in [0.0, 0.1, 0.3, 0.5, 0.7, 0.9] {
        for (ranks, per_host) in [(2, 1), (3, 1), (8, 1), (8, 4), (32, 1), (32, 8)] {
            names_nobody(Job { ranks, per_host, kept, ..ALIKE }, JOBS);
        }
        for clocks in [0.1, 0.3, 1.0] {
            names_nobody(Job { kept, clocks, ..ALIKE }, JOBS);
        }
    }
}

/// A straggler is named in so many jobs, of those in which it was before.
fn power(job: Job, jobs: usize) {
    power_of(job, jobs, 80);
}

fn power_of(job: Job, jobs: usize, per_cent: usize) {
    let [now, before] = job.times(jobs, 5);
    println!("{} ranks, late {:?}: {now} of {jobs}, {before} before", job.ranks, job.late);
    assert!(before * 4 > jobs, "a straggler that nobody saw before: {before} of {jobs}");
    assert!(
        100 * now >= per_cent * before,
        "{} ranks, late {:?}: {now} of {jobs}, {before} before",
        job.ranks,
        job.late
    );
}

#[test]
fn a_straggler_is_named_nearly_as_often_as_if_steps_were_known_to_be_independent() {
    for (ranks, late) in [(2, (0.7, 1.0)), (2, (3.0, 0.3)), (8, (0.8, 1.0)), (8, (3.0, 0.2))] {
        power(Job { ranks, late, ..ALIKE }, 200);
    }
}

#[test]
#[ignore = "long: hundreds of jobs of each kind"]
fn power_is_four_fifths_of_that_without_dependence() {
    for ranks in [2, 4, 8, 32] {
        let lates = match ranks {
            2 => [(0.35, 1.0), (0.5, 1.0), (1.0, 1.0), (3.0, 0.2), (3.0, 0.3)],
            4 => [(0.45, 1.0), (0.7, 1.0), (1.0, 1.0), (3.0, 0.15), (3.0, 0.3)],
            8 => [(0.6, 1.0), (0.8, 1.0), (1.0, 1.0), (3.0, 0.1), (3.0, 0.2)],
            _ => [(0.8, 1.0), (1.0, 1.0), (1.5, 1.0), (3.0, 0.1), (3.0, 0.2)],
        };
        for late in lates {
            // Jobs of 32 ranks take long; of so few the share itself is uncertain by some per cent.
            let (jobs, per_cent) = if ranks < 32 { (JOBS, 80) } else { (JOBS.min(400), 75) };
            power_of(Job { ranks, late, ..ALIKE }, jobs, per_cent);
        }
    }
}

/// Over this many jobs: the number in which a pair of clocks is off by more than 3σ, and the number
/// with a wrong name. In no other job is a name wrong, or is a rank last less often than it is
/// counted, or more often than with its ties.
fn jobs_with_wrong_names(ranks: usize, jobs: usize) -> [usize; 2] {
    let mut draws = Draws(3);
    let (mut off, mut wrong) = (0, 0);
    for _ in 0..jobs {
        // Lateness is as uncertain as it is long: the hardest case.
        let (held, clocks) = Job { ranks, clocks: 0.5, steps: 50, ..ALIKE }.held(&mut draws);
        let [low, high] = [f64::min, f64::max].map(|pick| clocks.iter().copied().reduce(pick).expect("clocks"));
        let is_off = high - low > 3.0 * 0.5 * std::f64::consts::SQRT_2;
        let (mut names_wrong, mut last, mut known, mut tied) = (0, vec![0; ranks], vec![0; ranks], vec![0; ranks]);
        for Held { arrivals, judged, .. } in &held {
            let truth = |place: &usize| arrivals[*place].start_ns - (LATENESS_NS * clocks[*place]) as i64;
            let truly = (0..ranks).max_by_key(truth).expect("ranks");
            last[truly] += 1;
            names_wrong += usize::from(judged.named().is_some_and(|named| named != truly));
            judged.named().iter().for_each(|named| known[*named] += 1);
            if !judged.tied.is_empty() {
                judged.tied.iter().chain(&judged.latest).for_each(|place| tied[*place] += 1);
            }
        }
        off += usize::from(is_off);
        wrong += usize::from(names_wrong > 0);
        let counted = |rank: usize| (known[rank]..=known[rank] + tied[rank]).contains(&last[rank]);
        assert!(is_off || (names_wrong == 0 && (0..ranks).all(counted)), "{known:?} and {tied:?} for {last:?}");
    }
    [off, wrong]
}

#[test]
fn names_and_counts_are_right_in_every_job_whose_clocks_are_within_3_sigma() {
    // Clock errors are normal: 2.7 of 1000 pairs are off. With more ranks there are more pairs, but
    // a name has to hold against all others.
    for ranks in [2, 8, 32] {
        let [off, wrong] = jobs_with_wrong_names(ranks, 1000);
        println!("{ranks} ranks: clocks off by more than 3σ in {off} of 1000 jobs, a wrong name in {wrong}");
        assert!(off > 0 && wrong <= off && wrong <= 8, "{off}, {wrong}");
    }
}

//! Scenarios of single operations, of chains of them, and what a name is worth against known truth.

mod by_chance;
mod filtered;
mod generated;
mod gpu;
mod incomplete;
mod inspector;
mod real;
mod reports;
mod spans;
mod windows;

use probe_sync_alignment::collectives::{Evidence, Order};
use probe_sync_lateness::operation::{Arrival, Class, ClockError, Judged, LateIn, Waits, judge};

use super::history::{Held, History};
use super::waits::waits_of;

/// Arrival of a rank, µs, with σ of its own clock; the operation ends for all at `end`.
fn arrivals(starts_us: &[i64], sigma_us: f64, end_us: i64) -> Vec<Arrival> {
    let arrival = |(rank, start): (usize, &i64)| Arrival {
        rank,
        start_ns: start * 1000,
        first_end_ns: end_us * 1000,
        end_ns: end_us * 1000,
        launch_ns: None,
        begun_ns: None,
        error: ClockError { clock: rank as u32, sigma_ns: sigma_us * 1000.0, ..ClockError::default() },
    };
    starts_us.iter().enumerate().map(arrival).collect()
}

fn judged(order: &Order, arrivals: &[Arrival]) -> Judged {
    judge(&waits_of(order, arrivals), arrivals)
}

/// The named rank, the tied ones, lead, spread and transfer, µs.
fn check(order: &Order, starts_us: &[i64], sigma_us: f64, expected: (Option<usize>, &[usize], [i64; 3])) {
    let found = judged(order, &arrivals(starts_us, sigma_us, 1000));
    let times = [found.lead_ns, found.spread_ns, found.transfer_ns].map(|time| time / 1000);
    assert_eq!((found.named(), &found.tied[..], times), expected, "{order:?} {starts_us:?}");
}

#[test]
fn the_last_is_named_unless_clocks_explain_its_lead() {
    let all = Order::AllToAll;
    check(&all, &[100, 400], 3.0, (Some(1), &[], [300, 300, 600]));
    // 3σ of the difference of two clocks, each known to 3 µs, is 12.7 µs.
    check(&all, &[100, 112], 3.0, (None, &[0], [12, 12, 888]));
    check(&all, &[100, 113], 3.0, (Some(1), &[], [13, 13, 887]));
    check(&all, &[500, 100, 495, 494], 1.0, (Some(0), &[], [5, 400, 500]));
    check(&all, &[500, 100, 497, 496], 1.0, (None, &[2, 3], [3, 400, 500]));
    // Clocks of which nothing is known name nobody.
    check(&all, &[0, 900, 500], f64::INFINITY, (None, &[0, 2], [400, 900, 100]));
}

#[test]
fn who_is_waited_for_by_some_alone_is_late_only_if_somebody_waited() {
    // A root of a broadcast that came last makes all wait; one that came first makes nobody.
    check(&Order::From(1), &[100, 400, 300], 1.0, (Some(1), &[], [300, 300, 600]));
    check(&Order::From(1), &[400, 100, 300], 1.0, (None, &[], [0, 0, 0]));
    // The root of a reduce waits for all, and nobody for it.
    check(&Order::To(0), &[100, 400, 300], 1.0, (Some(1), &[], [100, 300, 600]));
    check(&Order::To(0), &[500, 400, 300], 1.0, (None, &[], [0, 0, 0]));
    check(&Order::Between { source: 0, destination: 1 }, &[500, 400], 1.0, (Some(0), &[], [100, 100, 500]));
    check(&Order::Between { source: 0, destination: 1 }, &[400, 500], 1.0, (None, &[], [0, 0, 0]));
    // Rank 2 is last, but only rank 1 waits, and for rank 0.
    check(
        &Order::Exchange(vec![(0, vec![]), (1, vec![0]), (2, vec![])]),
        &[300, 100, 900],
        1.0,
        (Some(0), &[], [200, 200, 700]),
    );
    let waits = judged(&Order::From(1), &arrivals(&[100, 400, 300], 1.0, 1000)).waits_ns;
    assert_eq!(waits, [300_000, 0, 100_000]);
}

#[test]
fn ranks_of_one_node_share_what_is_wrong_about_its_clock() {
    let mut of = arrivals(&[100, 105], 50.0, 1000);
    assert_eq!(judged(&Order::AllToAll, &of).named(), None);
    of.iter_mut().for_each(|arrival| arrival.error.clock = 7);
    assert_eq!(judged(&Order::AllToAll, &of).named(), Some(1));
    of.iter_mut().for_each(|arrival| arrival.error.own_sigma_ns = 2000.0);
    assert_eq!(judged(&Order::AllToAll, &of).named(), None);
    // A trace that only markers tie may be early by up to 40 µs: two of them differ by σ = 16.3 µs.
    let mut of = arrivals(&[100, 145], 0.0, 1000);
    of.iter_mut().for_each(|arrival| arrival.error.early_by_ns = 40_000.0);
    let found = judged(&Order::AllToAll, &of);
    assert!((found.lead_sigma_ns - 16_329.9).abs() < 0.1 && found.named().is_none(), "{found:?}");
}

#[test]
fn time_goes_to_waiting_or_to_the_transfer_where_that_is_certain() {
    let check = |starts_us: &[i64], sigma_us: f64, end_us: i64, expected: Class| {
        let found = judged(&Order::AllToAll, &arrivals(starts_us, sigma_us, end_us));
        assert_eq!(found.class, Some(expected), "{starts_us:?} to {end_us}");
    };
    check(&[100, 400], 1.0, 500, Class::Skew);
    check(&[100, 200], 1.0, 500, Class::Transfer);
    check(&[100, 300], 1.0, 500, Class::Mixed);
    check(&[100, 302], 10.0, 400, Class::Undecided);
    check(&[100, 400], 1000.0, 500, Class::Undecided);
}

#[test]
fn a_late_kernel_was_launched_late_or_waited_for_its_device() {
    let check = |launches_us: [i64; 3], expected: Option<LateIn>| {
        let mut of = arrivals(&[100, 100, 400], 0.1, 1000);
        of.iter_mut().zip(launches_us).for_each(|(arrival, launch)| arrival.launch_ns = Some(launch * 1000));
        assert_eq!(judged(&Order::AllToAll, &of).late_in, expected, "{launches_us:?}");
    };
    check([50, 60, 390], Some(LateIn::Cpu));
    check([50, 60, 55], Some(LateIn::Gpu));
    check([50, 60, 210], Some(LateIn::Both));
    // No name, no cause.
    let mut of = arrivals(&[100, 100, 100], 0.1, 1000);
    of.iter_mut().for_each(|arrival| arrival.launch_ns = Some(0));
    assert_eq!(judged(&Order::AllToAll, &of).late_in, None);
}

/// Numbers between 0 and 1 that look random, the same each time.
struct Draws(u64);

impl Draws {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[test]
fn a_named_rank_is_wrong_no_more_often_than_sigma_says() {
    const OPERATIONS: usize = 40_000;
    const SIGMA_NS: f64 = 1000.0;
    const EARLY_NS: f64 = 5000.0;
    for (ranks, early_ns) in [(4, 0.0), (4, EARLY_NS), (32, 0.0)] {
        let mut draws = Draws(7);
        let (mut named, mut wrong, mut ties_right) = (0, 0, 0);
        let (mut normed, mut within) = (0.0, 0);
        for _ in 0..OPERATIONS {
            // True arrivals lie as near as the clocks are uncertain: the hardest case.
            let truth: Vec<i64> =
                (0..ranks).map(|_| (-(draws.uniform().ln()) * 3.0 * SIGMA_NS.max(early_ns)) as i64).collect();
            let seen =
                |draws: &mut Draws, truth: i64| truth + (SIGMA_NS * draws.normal() - early_ns * draws.uniform()) as i64;
            let error = ClockError { sigma_ns: SIGMA_NS, early_by_ns: early_ns, ..ClockError::default() };
            let of: Vec<Arrival> = truth
                .iter()
                .zip(arrivals(&vec![0; ranks], 0.0, 100_000))
                .map(|(truth, arrival)| Arrival {
                    start_ns: seen(&mut draws, *truth),
                    error: ClockError { clock: arrival.rank as u32, ..error },
                    ..arrival
                })
                .collect();
            let last = (0..ranks).max_by_key(|rank| truth[*rank]).expect("ranks");
            let found = judged(&Order::AllToAll, &of);
            match found.named() {
                Some(rank) => {
                    named += 1;
                    wrong += usize::from(rank != last);
                }
                None => ties_right += usize::from(found.latest == Some(last) || found.tied.contains(&last)),
            }
            // Of a fixed pair: its difference is wrong by what σ says.
            let error = (of[1].start_ns - of[0].start_ns) - (truth[1] - truth[0]);
            let z = error as f64 / of[0].error.with(of[1].error);
            normed += z * z;
            within += usize::from(z.abs() <= 3.0);
        }
        let ties = OPERATIONS - named;
        println!(
            "{ranks} ranks, early by {early_ns} ns: {named} named, {wrong} wrong; {ties} ties, {ties_right} with the last among them"
        );
        assert!(named > OPERATIONS / 5 && ties > OPERATIONS / 20, "{named}, {ties}");
        assert!(wrong as f64 <= 0.00135 * named as f64, "{wrong} of {named}");
        assert!(ties_right as f64 >= 0.995 * ties as f64, "{ties_right} of {ties}");
        let variance = normed / OPERATIONS as f64;
        assert!((variance - 1.0).abs() < 0.03, "σ² is off by {variance}");
        assert!(within as f64 > 0.996 * OPERATIONS as f64, "{within}");
    }
}

/// Operations of a job, all of all ranks: starts in µs, and the end for all.
fn history(operations: &[(&[i64], i64)]) -> Vec<Held> {
    let held = |(step, (starts, end)): (usize, &(&[i64], i64))| {
        let arrivals = arrivals(starts, 0.1, *end);
        Held {
            name: "psum".to_owned(),
            instance: String::new(),
            evidence: Evidence::Label,
            step: Some(step as i64),
            waits: Waits::All,
            judged: judge(&Waits::All, &arrivals),
            recorded: (0, 0),
            missing: 0,
            arrivals,
        }
    };
    operations.iter().enumerate().map(held).collect()
}

#[test]
fn the_path_leads_through_who_was_last() {
    // Rank 1 is last in the second operation by 300 µs, rank 0 in the third by 50 µs; transfers
    // take 10 µs.
    let held = history(&[(&[0, 0, 1], 11), (&[111, 411, 111], 421), (&[571, 521, 521], 581)]);
    let path = History::new(&held).critical_path(|rank| rank as u32 + 10).expect("a path");
    let shares: Vec<(u32, i64)> = path.ranks.iter().map(|share| (share.rank, share.compute_ns / 1000)).collect();
    assert_eq!(shares, [(11, 400), (10, 150)], "{path:?}");
    assert_eq!((path.operations, path.tied_operations, path.transfer_ns), (3, 0, 30_000));
    assert_eq!((path.from_ns, path.to_ns), (1000, 581_000));
}

#[test]
fn a_job_without_a_rank_s_delays_ends_sooner() {
    let held = history(&[(&[0, 0, 1], 11), (&[111, 411, 111], 421), (&[571, 521, 521], 581)]);
    let history = History::new(&held);
    let check = |rank: usize, expected: [i64; 3]| {
        let saving = history.without_delays_of(&[rank].into());
        let by_step: Vec<i64> = saving.by_step.values().map(|saved| saved / 1000).collect();
        assert_eq!(by_step, expected, "rank {rank}");
        assert_eq!(saving.total_ns / 1000, expected.iter().sum::<i64>());
    };
    // Rank 1 needs 400 µs where the others need 100; nothing of the third operation changes but its
    // time.
    check(1, [0, 300, 0]);
    check(0, [0, 0, 50]);
    check(2, [0, 0, 0]);
}

#[test]
fn the_first_operation_of_a_trace_counts_from_the_start_of_its_step() {
    let mut held = history(&[(&[100, 100, 400], 410)]);
    assert_eq!(History::new(&held).without_delays_of(&[2].into()).total_ns, 0);
    held[0].arrivals.iter_mut().for_each(|arrival| arrival.begun_ns = Some(0));
    let history = History::new(&held);
    assert_eq!(history.without_delays_of(&[2].into()).total_ns, 300_000);
    let path = history.critical_path(|rank| rank as u32).expect("a path");
    assert_eq!((path.from_ns, path.ranks[0].rank, path.ranks[0].compute_ns), (0, 2, 400_000));
}

#[test]
fn hostile_times_neither_hang_nor_fail() {
    // Ends before starts, parts of no length, equal times.
    let held = history(&[(&[5, 5], 5), (&[5, 5], 5), (&[9, 2], 1), (&[0, 0], 100)]);
    let history = History::new(&held);
    assert!(history.critical_path(|rank| rank as u32).is_some());
    assert!(history.without_delays_of(&[0].into()).total_ns >= 0);
    assert!(History::new(&[]).critical_path(|rank| rank as u32).is_none());
    assert_eq!(judged(&Order::AllToAll, &[]).latest, None);
}

//! The ranks that are late repeatedly and beyond chance.
//!
//! It is based on the losses of each step and on `history`.
//!
//! In every step somebody is last, so being last proves nothing. Let each step have the member
//! (rank or host) that lost most of it, with this loss. Of the steps take those with the largest
//! losses that together hold four fifths of all losses: K steps, out of which a member is the one m
//! times. Were all n members alike and all steps independent, each would be it with probability 1/n
//! in each step, and the probability that any of them is it m times or more would be at most n·P, P
//! = P(Bin(K, 1/n) ≥ m). Steps are seldom independent: τ of them count as one (`dependence`). P
//! falls off exponentially with the number of independent steps, so P^(1/τ) stands for it; for
//! normal deviations this is a little more than the probability of the deviation of K/τ steps.
//! Where ranks and whole hosts are tested both, the chance of either is twice that. A member is
//! named where this is below 1 %, and where the job would have been shorter by 1 % or more without
//! its delays. One long step alone names nobody: it comes to n·(1/n) = 1. Nor may it hide the
//! others: a step that lost more than all others together, as the first one does where ranks begin
//! to record one after the other, is set aside, and so is the next of the rest. What is set aside
//! goes by the loss alone and says nothing of whose it is, so the probabilities stay. Two such
//! steps of nearly one length are not told from steps that recur.
//!
//! Steps are taken and not operations, since a delay may show in several operations that were under
//! way at once. Where steps are not known, operations stand for them.
//!
//! Clocks may be wrong for the whole job, and then favour one member in every step: its leads look
//! longer and are certain more often. So with c the smallest loss that is certain (the lead less
//! 3σ) in any of these steps, the m are the steps in which the member lost c for certain, and the K
//! are all in which anybody may have lost c (the lead and 3σ), whether it is known who or not.
//! Whatever a clock error within 3σ does, the m are then no more than the member's true ones and
//! the K no fewer than the true ones, of which each member has one in n where all are alike.

/// A step, or an operation if steps are unknown: the member that lost most, and how much, ns.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Unit {
    pub(super) step: Option<i64>,
    /// `None` if clocks do not tell which it was.
    pub(super) member: Option<usize>,
    pub(super) lost_ns: i64,
    /// The least that the member lost and the most that any member lost, if no clock is wrong by
    /// more than 3σ, ns.
    pub(super) bounds_ns: [i64; 2],
}

/// What chance explains.
#[derive(Copy, Clone, Debug)]
pub(super) struct Chance {
    /// Members that could be it.
    pub(super) members: usize,
    /// Tests that share one budget.
    pub(super) tests: usize,
    /// Units that count as one independent.
    pub(super) dependence: f64,
}

impl Chance {
    /// Probability that any member is the one in this many of the units, if all were alike.
    fn of(self, times: usize, units: usize) -> f64 {
        let one = at_least(times, units, 1.0 / self.members as f64);
        ((self.tests * self.members) as f64 * one.powf(1.0 / self.dependence)).min(1.0)
    }
}

/// A member that is named.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Recurrent {
    pub(super) member: usize,
    /// Indices of the units in which it lost most.
    pub(super) units: Vec<usize>,
    pub(super) chance: f64,
}

/// Indices of the units by their loss, largest first, and how many of them are set aside: each lost
/// more than all after it together.
pub(super) fn by_loss(units: &[Unit]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_by_key(|place| (std::cmp::Reverse(units[*place].lost_ns), *place));
    let mut rest: i128 = units.iter().map(|unit| i128::from(unit.lost_ns)).sum();
    let exceeds = |place: &&usize| {
        let lost = i128::from(units[**place].lost_ns);
        rest -= lost;
        lost > rest
    };
    let aside = order.iter().take_while(exceeds).count();
    // The last ones always exceed what is left: of a few units none stands out.
    let aside = aside.min(units.len().saturating_sub(REST_MIN));
    (order, aside)
}

/// Members that recur among the costly units more often than chance explains; `units` have a loss.
pub(super) fn recurrent(units: &[Unit], chance: Chance) -> Vec<Recurrent> {
    let (order, aside) = by_loss(units);
    let order = &order[aside..];
    let total: i128 = order.iter().map(|place| i128::from(units[*place].lost_ns)).sum();
    let mut sum = 0;
    let costly: Vec<usize> = order
        .iter()
        .copied()
        .take_while(|place| {
            let before = sum;
            sum += i128::from(units[*place].lost_ns);
            5 * before < 4 * total
        })
        .collect();
    let mut found = Vec::new();
    let named = |place: &&usize| units[**place].member.is_some();
    let Some(least) = costly.iter().filter(named).map(|place| units[*place].bounds_ns[0]).min() else { return found };
    let may_be = order.iter().filter(|place| units[**place].bounds_ns[1] >= least).count();
    let is_certain = |place: &&usize| units[**place].bounds_ns[0] >= least;
    let mut seen: Vec<usize> = order.iter().filter(is_certain).filter_map(|place| units[*place].member).collect();
    seen.sort_unstable();
    for of_member in seen.chunk_by(|a, b| a == b) {
        let (member, times) = (of_member[0], of_member.len());
        let chance = chance.of(times, may_be);
        if chance >= CHANCE_MAX {
            continue;
        }
        let own: Vec<i64> = costly
            .iter()
            .map(|place| units[*place])
            .filter(|unit| unit.member == Some(member))
            .map(|unit| unit.lost_ns)
            .collect();
        let typical = probe_sync_lateness::operation::median(own).unwrap_or(0);
        let is_its = |place: &usize| units[*place].member == Some(member) && 2 * units[*place].lost_ns >= typical;
        let mut own: Vec<usize> = order.iter().copied().filter(is_its).collect();
        own.sort_unstable();
        found.push(Recurrent { member, units: own, chance });
    }
    found
}

/// Probability that one of `members` is the one in all of `units` independent units: the smallest
/// value for any.
pub(super) fn chance_of_always(units: f64, members: usize) -> f64 {
    let members = members as f64;
    (members * members.powf(-units)).min(1.0)
}

/// P(Bin(`trials`, `p`) ≥ `times`).
fn at_least(times: usize, trials: usize, p: f64) -> f64 {
    if times == 0 || p >= 1.0 {
        return 1.0;
    }
    // Terms in logarithms: (1 − p)^K is 0 in f64 for a few thousand trials.
    let odds = (p / (1.0 - p)).ln();
    let mut term = trials as f64 * (1.0 - p).ln();
    let mut sum = 0.0;
    for count in 0..=trials {
        if count >= times {
            sum += term.exp();
        }
        term += ((trials - count) as f64 / (count + 1) as f64).ln() + odds;
    }
    sum.min(1.0)
}

/// Fewest units that must remain when others are set aside.
const REST_MIN: usize = 4;
/// A member is named below this probability of chance.
pub(super) const CHANCE_MAX: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(member: usize, lost_ns: i64) -> Unit {
        Unit { step: None, member: Some(member), lost_ns, bounds_ns: [lost_ns; 2] }
    }

    fn independent(members: usize) -> Chance {
        Chance { members, tests: 1, dependence: 1.0 }
    }

    fn check(units: &[Unit], members: usize, expected: &[(usize, usize)]) {
        let found: Vec<(usize, usize)> =
            recurrent(units, independent(members)).iter().map(|found| (found.member, found.units.len())).collect();
        assert_eq!(found, expected, "{units:?}");
    }

    #[test]
    fn one_is_named_who_recurs_and_nobody_whom_chance_explains() {
        // Member 2 of 4 loses 5 ms in every third of 30 steps; in the others somebody loses 50 µs.
        let of = |step: usize| if step.is_multiple_of(3) { unit(2, 5_000_000) } else { unit(step % 4, 50_000) };
        check(&(0..30).map(of).collect::<Vec<_>>(), 4, &[(2, 10)]);
        check(&(0..30).map(|step| unit(step % 4, 50_000)).collect::<Vec<_>>(), 4, &[]);
        // A single hiccup, however long.
        let hiccup: Vec<Unit> = (0..30).map(|step| unit(step % 4, if step == 7 { 1_000_000_000 } else { 1 })).collect();
        check(&hiccup, 4, &[]);
        // It does not hide who is late again and again, and neither do two.
        let hidden = |step: usize| match step {
            0 => unit(0, 300_000_000),
            1 => unit(1, 100_000_000),
            _ => of(step),
        };
        check(&(0..32).map(hidden).collect::<Vec<_>>(), 4, &[(2, 10)]);
        // A chain that goes on to the end leaves four.
        let lost = [300, 50, 1, 1, 1].map(|lost_ns| unit(0, lost_ns));
        assert_eq!((by_loss(&lost).1, by_loss(&lost[..4]).1, by_loss(&[]).1), (1, 0, 0));
        // Nor does it count where it is the same one's.
        let own = |step: usize| if step == 0 { unit(2, 300_000_000) } else { of(step) };
        check(&(0..30).map(own).collect::<Vec<_>>(), 4, &[(2, 9)]);
        // Two of a thousand, in turn.
        check(&(0..40).map(|step| unit(7 + step % 2, 1000)).collect::<Vec<_>>(), 1000, &[(7, 20), (8, 20)]);
        check(&[], 4, &[]);
        check(&[unit(0, 0), unit(0, 0)], 2, &[]);
    }

    #[test]
    fn what_lasts_and_what_clocks_leave_open_is_weaker_evidence() {
        let units: Vec<Unit> = (0..40).map(|step| unit(usize::from(step % 8 == 0), 1000)).collect();
        let of = |units: &[Unit], chance: Chance| recurrent(units, chance).first().map(|found| found.chance);
        // Member 0 is it in 35 of 40.
        let alone = of(&units, independent(2)).expect("named");
        let both = of(&units, Chance { tests: 2, ..independent(2) }).expect("named");
        assert!((both / alone - 2.0).abs() < 1e-9, "{both} {alone}");
        assert_eq!(of(&units, Chance { dependence: 5.0, ..independent(2) }), None);
        // A clock that is 1.6 of its standard deviations off makes member 0 certain in 36 steps and
        // member 1 in 5; of the others nobody knows.
        let open = |step: usize| match step {
            0..36 => Unit { bounds_ns: [900, 4000], ..unit(0, 1500) },
            36..41 => Unit { bounds_ns: [900, 4000], ..unit(1, 1500) },
            _ => Unit { member: None, bounds_ns: [0, 2000], ..unit(0, 900) },
        };
        let known: Vec<Unit> = (0..41).map(open).map(|of| Unit { bounds_ns: [of.lost_ns; 2], ..of }).collect();
        let all: Vec<Unit> = (0..100).map(open).collect();
        assert!(of(&known, independent(2)).is_some() && of(&all, independent(2)).is_none());
        // One that loses far more than clocks explain is named.
        let far = |step: usize| {
            if step < 20 { Unit { bounds_ns: [99_000, 101_000], ..unit(0, 100_000) } } else { open(step) }
        };
        assert!(of(&(0..100).map(far).collect::<Vec<_>>(), independent(2)).is_some());
    }

    #[test]
    fn tails_of_the_binomial_distribution() {
        let check = |times, trials, p, expected: f64| {
            let found = at_least(times, trials, p);
            assert!((found - expected).abs() <= 1e-9 * expected, "{found} for {expected}");
        };
        check(0, 10, 0.5, 1.0);
        check(10, 10, 0.5, 1.0 / 1024.0);
        check(9, 10, 0.5, 11.0 / 1024.0);
        check(1, 3, 0.25, 1.0 - 0.421_875);
        check(1, 1, 1.0, 1.0);
        // About half of many: no term may vanish.
        assert!((at_least(50_000, 100_000, 0.5) - 0.5).abs() < 0.01);
    }
}

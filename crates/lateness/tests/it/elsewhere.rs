//! Who is named where ranks are late because they waited for others in another group.

use std::collections::BTreeSet;

use probe_sync_lateness::live::{Batch, Clocks, Event, GroupArrivals, Member, Place, Stamp, Watch};

const MS: i64 = 1_000_000;

/// Clocks that are right, to 1 µs.
struct Right;

impl Clocks for Right {
    fn on_reference(&self, _: u32, at_ns: i64) -> Option<(i64, f64)> {
        Some((at_ns, 1000.0))
    }
}

/// Four ranks: 0 and 1, 2 and 3 are tensor groups, and so are the data groups, or 0 and 2, 1 and 3.
/// In each step a rank computes, meets its tensor group, computes, and meets its data group; `slow`
/// says how much longer it computes before the first (0) and the second (1), ns. Returns who was
/// named, by group.
fn named(is_crossed: bool, slow: impl Fn(u32, usize) -> i64) -> BTreeSet<(String, u32)> {
    let data = if is_crossed { [[0, 2], [1, 3]] } else { TENSOR };
    let group_of = |groups: &[[usize; 2]; 2], rank: u32| usize::from(groups[1].contains(&(rank as usize)));
    let place = |rank: u32| Place { host: rank, clock: rank };
    let mut watch = Watch::new((0..4).map(place).collect());
    let mut at_ns = [1_800_000_000_000_000_000_i64; 4];
    let mut found = BTreeSet::new();
    let mut unsaid = vec![Vec::<(String, Stamp)>::new(); 4];
    let mut reported_ns = at_ns[0];
    for step in 0..2000 {
        for part in 0..2 {
            for rank in 0..4_u32 {
                // 30 µs of difference by chance, that repeats late.
                let noise_ns = i64::from((rank * 7919 + step * 104_729 + part as u32 * 31) % 30_011);
                let at_ns = &mut at_ns[rank as usize];
                *at_ns += 10 * MS + slow(rank, part) + noise_ns;
                let group = match part {
                    0 => format!("tp_{}", group_of(&TENSOR, rank)),
                    _ => format!("dp_{}", group_of(&data, rank)),
                };
                unsaid[rank as usize].push((group, Stamp { step: u64::from(step), at_ns: *at_ns }));
            }
            // Members of a group leave together.
            for pair in if part == 0 { TENSOR } else { data } {
                let last = pair.map(|rank: usize| at_ns[rank]).into_iter().max().unwrap_or(0);
                for rank in pair {
                    at_ns[rank] = last;
                }
            }
        }
        let now_ns = at_ns.into_iter().max().unwrap_or(0);
        if now_ns - reported_ns < 1000 * MS {
            continue;
        }
        reported_ns = now_ns;
        for (rank, unsaid) in unsaid.iter_mut().enumerate() {
            let mut groups = Vec::<GroupArrivals>::new();
            for (name, stamp) in unsaid.drain(..) {
                match groups.iter_mut().find(|group| group.name == name) {
                    Some(group) => group.arrivals.push(stamp),
                    None => groups.push(GroupArrivals { name, arrivals: vec![stamp] }),
                }
            }
            watch.take(rank as u32, Batch { as_of_ns: now_ns, is_whole: true, dropped: 0, groups }, now_ns);
        }
        for event in watch.advance(now_ns, &Right) {
            if let Event::LateBegun(late) = event {
                let Member::Rank(rank) = late.member else { panic!("no host has several ranks: {late:?}") };
                found.insert((late.group, rank));
            }
        }
    }
    found
}

const TENSOR: [[usize; 2]; 2] = [[0, 1], [2, 3]];

fn check(is_crossed: bool, slow: impl Fn(u32, usize) -> i64, expected: &[(&str, u32)]) {
    let expected = expected.iter().map(|(group, rank)| ((*group).to_owned(), *rank)).collect();
    assert_eq!(named(is_crossed, slow), expected);
}

#[test]
fn the_first_of_a_chain_is_named_and_not_whom_it_keeps_from_coming() {
    // Rank 1 is slow before its tensor group: 0 waits for it there, and both come late to their
    // data groups, 0 by no doing of its own.
    check(true, |rank, part| if (rank, part) == (1, 0) { 3 * MS } else { 0 }, &[("dp_1", 1), ("tp_0", 1)]);
}

#[test]
fn a_rank_that_is_slow_by_itself_is_named_though_it_has_waited_too() {
    // Rank 1 as above; and rank 0, which waits for it, is slow by 1 ms before its data group.
    let slow = |rank, part| match (rank, part) {
        (1, 0) => 3 * MS,
        (0, 1) => MS,
        _ => 0,
    };
    check(true, slow, &[("dp_0", 0), ("dp_1", 1), ("tp_0", 1)]);
}

#[test]
fn a_wait_that_all_members_have_had_excuses_nobody() {
    let slow = |rank, part| match (rank, part) {
        (1, 0) | (0, 1) => 3 * MS,
        _ => 0,
    };
    check(false, slow, &[("dp_0", 0), ("tp_0", 1)]);
}

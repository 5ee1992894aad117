//! Cuts a trace into windows, and tells what is certainly before and after a moment on clocks that
//! are not known yet.
//!
//! An operation orders events on different clocks whatever these show: a rank ends its part after
//! every rank has begun it. So if node m ended an operation before the moment, node i had begun it
//! before the moment, and i's own clock then showed the start of i's part. Chains of operations
//! carry this from the reference to every node ([`fences`]).

use super::used::{Ordered, Used, Visit};

/// The operations of one window.
#[derive(Debug)]
pub(super) struct Window {
    /// The middle of the reference's part in it, on the reference's clock.
    pub(super) middle_ns: i64,
    /// Length of the reference's part in it.
    pub(super) length_ns: i64,
    pub(super) visits: Vec<Vec<Visit>>,
    pub(super) directed: Vec<Ordered>,
}

/// Distributes the operations over windows of equal length on the reference's clock. Also returns
/// the first start and the last end there, and `None` if the reference takes part in no operation.
pub(super) fn cut(used: Used, nodes: usize, reference: usize) -> Option<([i64; 2], Vec<Window>)> {
    let Used { visits, directed, .. } = used;
    let span = span(&visits, reference)?;
    let length = span[1].saturating_sub(span[0]);
    let count = visits.iter().flatten().filter(|visit| visit.node == reference).count();
    let windows = (length / WINDOW_NS).min((count / OPERATIONS_MIN) as i64).clamp(1, WINDOWS_MAX);
    let before = |border: i64| -> Vec<i64> {
        let at = span[0] + (i128::from(length) * i128::from(border) / i128::from(windows)) as i64;
        fences(&visits, nodes, reference, at).iter().map(|[before, _]| *before).collect()
    };
    let borders: Vec<Vec<i64>> = (1..windows).map(before).collect();
    let place = |stays: &[Visit]| {
        let begun = |border: &Vec<i64>| stays.first().is_some_and(|stay| stay.start > border[stay.node]);
        borders.partition_point(begun)
    };
    let mut found: Vec<Window> =
        (0..windows).map(|_| Window { middle_ns: 0, length_ns: 0, visits: Vec::new(), directed: Vec::new() }).collect();
    for stays in visits {
        found[place(&stays)].visits.push(stays);
    }
    for ordered in directed {
        found[place(&ordered.stays)].directed.push(ordered);
    }
    let found = found.into_iter().filter_map(|window| {
        let [first, last] = self::span(&window.visits, reference)?;
        let middle_ns = i128::midpoint(first.into(), last.into()) as i64;
        Some(Window { middle_ns, length_ns: last.saturating_sub(first), ..window })
    });
    Some((span, found.collect()))
}

/// First start and last end on the reference's clock.
fn span(visits: &[Vec<Visit>], reference: usize) -> Option<[i64; 2]> {
    let stays = || visits.iter().flatten().filter(|visit| visit.node == reference);
    Some([stays().map(|visit| visit.start).min()?, stays().map(|visit| visit.end).max()?])
}

/// For each node a time of its own clock that is certainly not after the moment at which the
/// reference's clock shows `at_ns`, and one that is certainly not before it. If no operation tells,
/// they are the ends of all time.
pub(super) fn fences(visits: &[Vec<Visit>], nodes: usize, reference: usize, at_ns: i64) -> Vec<[i64; 2]> {
    let mut fences = vec![[i64::MIN, i64::MAX]; nodes];
    fences[reference] = [at_ns; 2];
    // A chain has fewer links than there are nodes.
    for _ in 0..nodes {
        let mut moved = false;
        for stays in visits {
            let ended = stays.iter().any(|stay| stay.end <= fences[stay.node][0]);
            let not_begun = stays.iter().any(|stay| stay.start >= fences[stay.node][1]);
            for stay in stays {
                let [before, after] = &mut fences[stay.node];
                if ended && stay.start > *before {
                    (*before, moved) = (stay.start, true);
                }
                if not_begun && stay.end < *after {
                    (*after, moved) = (stay.end, true);
                }
            }
        }
        if !moved {
            break;
        }
    }
    fences
}

/// Whether readings that go back within the window have moved a fence past another one. What is
/// before and after the moment is not known then. While readings are in order the reference's
/// fences stay at the moment itself, and no node's cross.
pub(super) fn contradict(fences: &[[i64; 2]], reference: usize, at_ns: i64) -> bool {
    fences[reference] != [at_ns; 2] || fences.iter().any(|[before, after]| before > after)
}

/// Length of a window: short, so that clocks that swing over minutes are straight within it, and
/// long enough to average.
const WINDOW_NS: i64 = 10_000_000_000;

/// Operations of the reference that a window has on average at least.
const OPERATIONS_MIN: usize = 32;

/// A trace of hours has longer windows.
const WINDOWS_MAX: i64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(node: usize, start: i64, end: i64) -> Visit {
        Visit { node, start, end }
    }

    #[test]
    fn what_is_before_and_after_a_moment_passes_along_chains() {
        // Node 1 is 1000 ahead, node 2 is 5000 behind and meets node 1 alone, node 3 meets nobody.
        let visits = vec![
            vec![visit(0, 0, 20), visit(1, 1005, 1020)],
            vec![visit(1, 1000 + 1, 1000 + 4), visit(2, -4998, -4996)],
            vec![visit(0, 50, 60), visit(1, 1052, 1061)],
            vec![visit(1, 1070, 1080), visit(2, -4928, -4919)],
        ];
        let found = fences(&visits, 4, 0, 40);
        // Node 1 began the first at 1005: its operation with node 2 had ended by then, so node 2
        // had begun it.
        assert_eq!(found, [[40, 40], [1005, 1061], [-4998, -4919], [i64::MIN, i64::MAX]]);
    }

    #[test]
    fn a_long_trace_has_windows_and_a_short_one_is_one() {
        let used = |every_ns: i64, count: i64| {
            let mut used = Used::new(usize::MAX);
            used.visits = (0..count)
                .map(|k| {
                    vec![visit(0, k * every_ns, k * every_ns + 100), visit(1, 7 + k * every_ns, 90 + k * every_ns)]
                })
                .collect();
            used
        };
        let check = |every_ns: i64, count: i64, expected: usize| {
            let (span, windows) = cut(used(every_ns, count), 2, 0).expect("operations");
            assert_eq!(span, [0, (count - 1) * every_ns + 100]);
            assert_eq!(windows.len(), expected, "{count} operations every {every_ns} ns");
            assert_eq!(windows.iter().map(|window| window.visits.len()).sum::<usize>(), count as usize);
            assert!(windows.is_sorted_by_key(|window| window.middle_ns));
        };
        check(1_000_000, 500, 1);
        check(200_000_000, 1500, 29);
        // Operations are too rare for windows of 10 s.
        check(10_000_000_000, 100, 3);
        check(100_000_000_000, 10, 1);
        check(1_000_000_000_000, 100_000, 64);
    }
}

//! Distributes overlapping slices of a row over as many lanes as they need to nest.
//!
//! Formats that know only nested slices on a row need this. A slice goes to the first lane on which
//! it nests into the open slices or begins after all of them, otherwise to a new lane; none is
//! dropped or shortened. Memory holds the open slices and how far each lane has been written. A
//! slice that arrives out of order goes to a lane that has not been written that far. It does not
//! sort.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// All lanes of all rows.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    rows: Vec<Vec<u32>>,
    lanes: Vec<Lane>,
    /// Ends of open events, earliest first, and their lanes.
    open: BinaryHeap<Reverse<(i64, u32)>>,
}

#[derive(Debug)]
struct Lane {
    /// Ends of open events, innermost last.
    ends: Vec<i64>,
    /// The latest time written.
    written: i64,
}

/// Lane of a slice.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The lane's number over all rows.
    pub(super) lane: u32,
    /// Its number on the row, from 0.
    pub(super) of_row: u32,
    /// It was unused before.
    pub(super) new: bool,
}

impl Lanes {
    /// Makes room for rows.
    pub(super) fn add_rows(&mut self, count: usize) {
        self.rows.resize_with(self.rows.len() + count, Vec::new);
    }

    /// The next slice that ends until `time`, as its end and its lane.
    #[inline]
    pub(super) fn ended(&mut self, time: i64) -> Option<(i64, u32)> {
        let Reverse((end, lane)) = *self.open.peek().filter(|open| open.0.0 <= time)?;
        self.open.pop();
        let lane_state = &mut self.lanes[lane as usize];
        lane_state.ends.pop();
        lane_state.written = end;
        Some((end, lane))
    }

    /// A place for a slice. What has ended before its start must have been taken with
    /// [`Self::ended`].
    #[inline]
    pub(super) fn place(&mut self, row: u32, start: i64, end: i64) -> Place {
        let lanes = &mut self.rows[row as usize];
        for (index, &lane) in lanes.iter().enumerate() {
            let state = &mut self.lanes[lane as usize];
            if state.written <= start && state.ends.last().is_none_or(|outer| *outer >= end) {
                state.ends.push(end);
                state.written = start;
                self.open.push(Reverse((end, lane)));
                return Place { lane, of_row: index as u32, new: false };
            }
        }
        let lane = self.lanes.len() as u32;
        let of_row = lanes.len() as u32;
        lanes.push(lane);
        self.lanes.push(Lane { ends: vec![end], written: start });
        self.open.push(Reverse((end, lane)));
        Place { lane, of_row, new: true }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The lanes of the slices of one row, as a viewer reconstructs them: per slice lane, start and
    /// end.
    fn read_back(slices: &[(i64, i64)]) -> Vec<(u32, i64, i64)> {
        let mut lanes = Lanes::default();
        lanes.add_rows(1);
        let mut events: Vec<(u32, i64, bool)> = Vec::new();
        for &(start, end) in slices {
            while let Some((at, lane)) = lanes.ended(start) {
                events.push((lane, at, false));
            }
            let place = lanes.place(0, start, end);
            assert_eq!(place.lane, place.of_row, "one row only");
            events.push((place.lane, start, true));
        }
        while let Some((at, lane)) = lanes.ended(i64::MAX) {
            events.push((lane, at, false));
        }
        // A viewer sorts by time and keeps the order at one time; an end closes what was opened
        // last.
        events.sort_by_key(|event| event.1);
        let mut stacks: std::collections::BTreeMap<u32, Vec<i64>> = std::collections::BTreeMap::new();
        let mut found = Vec::new();
        for (lane, at, begins) in events {
            let stack = stacks.entry(lane).or_default();
            if begins {
                stack.push(at);
            } else {
                found.push((lane, stack.pop().expect("something is open"), at));
            }
        }
        assert!(stacks.values().all(Vec::is_empty));
        found
    }

    #[test]
    fn nested_slices_share_a_lane_and_overlapping_ones_do_not() {
        let check = |slices: &[(i64, i64)], lanes: u32| {
            let found = read_back(slices);
            assert_eq!(found.iter().map(|slice| slice.0 + 1).max(), Some(lanes), "{slices:?}: {found:?}");
        };
        check(&[(0, 10), (1, 5), (2, 3), (5, 9), (10, 12)], 1);
        check(&[(0, 10), (5, 15)], 2);
        check(&[(0, 10), (5, 15), (7, 9), (10, 20), (11, 14)], 2);
        check(&[(0, 5), (5, 5), (5, 5), (5, 9)], 1);
        // Out of order: the outer one comes after what it holds.
        check(&[(2, 3), (0, 10)], 2);
    }

    proptest! {
        #[test]
        fn none_is_dropped_and_none_is_shortened(raw in proptest::collection::vec((0_i64..40, 0_i64..20), 1..60), sort: bool) {
            let mut slices: Vec<(i64, i64)> = raw.into_iter().map(|(start, length)| (start, start + length)).collect();
            if sort {
                slices.sort_by_key(|slice| (slice.0, Reverse(slice.1)));
            }
            let mut found: Vec<(i64, i64)> = read_back(&slices).into_iter().map(|(_, start, end)| (start, end)).collect();
            found.sort_unstable();
            slices.sort_unstable();
            prop_assert_eq!(found, slices);
        }
    }
}

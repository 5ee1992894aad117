//! The position of each event of a thread in the tree: its parent, its depth, and times that nest.
//!
//! Events pass through [`Placer::place`] one by one in the order of their ends, as
//! [`crate::Recording::visit`] returns them; the placer keeps one entry per depth. A record at
//! depth d owns the preceding records at depth d+1, so a parent needs a number before its own
//! record arrives and receives it with its first child. A number whose record never arrives belongs
//! to a lost scope.
//!
//! Times are made to nest after whatever map and rounding they have gone through, because viewers
//! drop slices that overlap:
//!
//! * an event begins no earlier than what ended before it began, and a scope holds all of its
//!   children;
//! * no two events begin together: a scope begins before its first child, and what comes after one
//!   without length begins after it. Readers of JSON take what begins together for nested;
//! * a scope ends after its last child begins, so that one without length at a scope's end is still
//!   within.
//!
//! Times of one thread are in order as they are recorded, so that all this moves them only where a
//! map holds them back, or a clock is coarser than events are short; by 1 ns each then.

/// Place of an event.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Number on its thread; a parent's number is less than its children's, except the first of
    /// them.
    pub number: u64,
    /// The enclosing scope.
    pub parent: Option<u64>,
    /// Number of enclosing open scopes.
    pub depth: u32,
    /// Start, on the clock of the times given.
    pub start: i64,
    /// End, on the clock of the times given.
    pub end: i64,
    /// Length without that of its children.
    pub own: i64,
}

/// An event to be placed.
#[derive(Copy, Clone, Debug)]
pub struct Unplaced {
    /// Number of enclosing open scopes.
    pub depth: u32,
    /// Start and end, ticks.
    pub ticks: [u64; 2],
    /// Start and end on the requested clock.
    pub times: [i64; 2],
    /// True if it can have children.
    pub is_scope: bool,
}

/// Places the events of one thread.
#[derive(Debug, Default)]
pub struct Placer {
    /// By depth of the enclosing scope: children whose scope's own record has not come.
    waiting: Vec<Children>,
    /// End of the last placed event.
    end: Option<i64>,
    /// It had no length.
    was_moment: bool,
    next: u64,
}

/// Children of one scope.
#[derive(Copy, Clone, Debug)]
struct Children {
    /// The scope's number.
    parent: u64,
    /// The scope begins no earlier.
    floor: i64,
    /// Start and end of the first; `None` before it comes.
    first: Option<(i64, u64)>,
    /// Start of the last; `None` before it comes.
    last_start: Option<i64>,
    /// End of the last event within, ticks.
    last_ticks: u64,
    /// Their lengths together.
    length: i64,
}

impl Placer {
    /// Places the next event.
    pub fn place(&mut self, event: Unplaced) -> Placed {
        let depth = event.depth.min(DEPTH_MAX) as usize;
        let children = self.children(depth, &event);
        self.open(depth);
        let mut placed = Placed {
            number: children.map_or(self.next, |children| children.parent),
            parent: depth.checked_sub(1).map(|around| self.waiting[around].parent),
            depth: event.depth,
            start: event.times[0],
            end: event.times[1].max(event.times[0]),
            own: 0,
        };
        match children {
            Some(children) => {
                let first = children.first.map_or(i64::MAX, |(start, _)| start);
                placed.start = placed.start.min(first.saturating_sub(1)).max(children.floor);
                let after_last = children.last_start.map_or(i64::MIN, |start| start.saturating_add(1));
                placed.end = placed.end.max(self.end.unwrap_or(i64::MIN)).max(after_last);
            }
            None => {
                self.next += 1;
                placed.start = placed.start.max(self.floor());
            }
        }
        placed.end = placed.end.max(placed.start);
        let length = placed.end.saturating_sub(placed.start);
        placed.own = length.saturating_sub(children.map_or(0, |children| children.length)).max(0);
        if let Some(around) = depth.checked_sub(1) {
            let siblings = &mut self.waiting[around];
            siblings.first = siblings.first.or(Some((placed.start, event.ticks[1])));
            (siblings.last_start, siblings.last_ticks) = (Some(placed.start), event.ticks[1]);
            siblings.length = siblings.length.saturating_add(if event.is_scope { length } else { 0 });
        }
        (self.end, self.was_moment) = (Some(placed.end), length == 0);
        placed
    }

    /// Places an event that takes no room among the others, such as a counter value or the mark of
    /// a loss.
    pub fn aside(&mut self, event: Unplaced) -> Placed {
        let depth = event.depth.min(DEPTH_MAX) as usize;
        self.waiting.truncate(depth);
        self.open(depth);
        let number = self.next;
        self.next += 1;
        let around = depth.checked_sub(1).map(|around| &mut self.waiting[around]);
        let parent = around.map(|children| {
            children.last_ticks = event.ticks[1];
            children.parent
        });
        let [start, end] = event.times;
        Placed { number, parent, depth: event.depth, start, end: end.max(start), own: 0 }
    }

    /// What waits for a scope at this depth; deeper ones that still wait have lost theirs.
    fn children(&mut self, depth: usize, event: &Unplaced) -> Option<Children> {
        self.waiting.truncate(depth + 1);
        let children = if self.waiting.len() > depth { self.waiting.pop() } else { None };
        // What had ended before it began was in another, whose record was lost.
        let mut children = children.filter(|children| event.is_scope && children.last_ticks >= event.ticks[0])?;
        let [start, _] = event.times;
        if children.first.is_some_and(|(_, ended)| ended < event.ticks[0]) {
            children.first = Some((start.saturating_add(1), event.ticks[1]));
        }
        Some(children)
    }

    /// Gives the enclosing scopes at this depth their numbers, and a time before everything within.
    fn open(&mut self, depth: usize) {
        while self.waiting.len() < depth {
            let floor = self.floor();
            let parent = self.next;
            self.next += 1;
            self.waiting.push(Children { parent, floor, first: None, last_start: None, last_ticks: 0, length: 0 });
        }
    }

    /// Earliest start of an event: after the last one, and after the start of the enclosing scope.
    fn floor(&self) -> i64 {
        let before = self.end.map_or(i64::MIN, |end| end.saturating_add(i64::from(self.was_moment)));
        let around = self.waiting.last().filter(|children| children.first.is_none());
        around.map_or(before, |children| children.floor.saturating_add(1).max(before))
    }
}

/// Deeper events are children of the scope at this depth: records count no further.
const DEPTH_MAX: u32 = 0xffff;

#[cfg(test)]
mod tests {
    use super::*;

    /// Events as depth, start, end, in the order of their ends; scopes, unless marked as instants.
    /// The expected result, with parents.
    fn check(events: &[(u32, i64, i64, bool)], expected: &[(i64, i64, Option<usize>)]) {
        let mut placer = Placer::default();
        let place = |&(depth, start, end, is_scope): &(u32, i64, i64, bool)| {
            placer.place(Unplaced { depth, ticks: [start as u64, end as u64], times: [start, end], is_scope })
        };
        let placed: Vec<Placed> = events.iter().map(place).collect();
        let at = |number: u64| placed.iter().position(|placed| placed.number == number);
        let found: Vec<_> =
            placed.iter().map(|placed| (placed.start, placed.end, placed.parent.and_then(at))).collect();
        assert_eq!(found, expected, "{events:?}");
        for (one, event) in placed.iter().zip(events) {
            let Some(around) = one.parent.and_then(at).map(|at| placed[at]) else { continue };
            // What had ended before was in another scope, whose record was lost.
            if one.end < around.start {
                continue;
            }
            assert!(around.start <= one.start && one.end <= around.end && one.start < around.end, "{event:?}");
        }
    }

    #[test]
    fn parents_come_after_their_children_and_hold_them() {
        // (depth, begin, end, scope)
        check(&[(0, 5, 9, true), (0, 9, 12, true)], &[(5, 9, None), (9, 12, None)]);
        check(&[(1, 2, 3, true), (1, 3, 4, true), (0, 1, 5, true)], &[(2, 3, Some(2)), (3, 4, Some(2)), (1, 5, None)]);
        check(&[(2, 3, 3, false), (1, 2, 4, true), (0, 1, 5, true)], &[(3, 3, Some(1)), (2, 4, Some(2)), (1, 5, None)]);
        // All at one time after another: each begins after what is around it, and ends after what
        // is within begins.
        check(
            &[(0, 5, 5, true), (2, 5, 5, true), (1, 5, 5, true), (0, 5, 5, true)],
            &[(5, 5, None), (8, 8, Some(2)), (7, 9, Some(3)), (6, 9, None)],
        );
        // A moment before a scope is not within it.
        check(&[(0, 5, 5, false), (1, 5, 6, true), (0, 5, 7, true)], &[(5, 5, None), (7, 7, Some(2)), (6, 8, None)]);
        // One without length at a scope's end, and what comes next.
        check(&[(1, 8, 8, true), (0, 5, 8, true), (0, 8, 9, true)], &[(8, 8, Some(1)), (5, 9, None), (9, 9, None)]);
    }

    #[test]
    fn what_was_lost_owns_its_children_and_moves_nothing() {
        // A moment in a scope whose record was lost, then a scope of its own.
        check(&[(1, 3, 3, false), (0, 10, 20, true)], &[(3, 3, None), (10, 20, None)]);
        check(
            &[(1, 3, 3, false), (1, 15, 16, true), (0, 10, 20, true)],
            &[(3, 3, Some(2)), (15, 16, Some(2)), (10, 20, None)],
        );
        check(&[(2, 3, 4, true), (0, 10, 20, true)], &[(3, 4, None), (10, 20, None)]);
    }
}

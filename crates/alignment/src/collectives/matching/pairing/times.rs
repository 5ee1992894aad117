//! The shifts that the clocks allow.
//!
//! Assume that a rank performs its operations one after the other, and let S and E be the start and
//! end of its part. In an operation in which all ranks wait, no rank ends before all have begun: S
//! of one ≤ E of the other. Let both ranks perform operation a before operation b. If all wait in
//! b, then E(a) of the one ≤ S(b) of the one ≤ E(b) of the other; if all wait in a, then S(a) of
//! the one ≤ E(a) of the other ≤ S(b) of the other. These conditions constrain the border even if
//! one trace begins before the other or the two have nothing in common. All of them hold up to the
//! possible clock error ([`Class::room_ps`]). It does not conclude that a clock is wrong.

use super::sequence::{Class, Seen, Sequence, overlap};

/// What the clocks say about two windows.
pub(super) struct Times {
    /// The shifts that hold.
    pub(super) allowed: Vec<i64>,
    /// It is possible that all of the one precede all of the other.
    pub(super) disjoint: bool,
    /// The shift that breaks the smallest share, the smallest of several.
    pub(super) least: Option<i64>,
    /// A clock is unknown: everything is possible.
    pub(super) unknown: bool,
}

impl Times {
    /// Examines every shift.
    pub(super) fn new(class: &Class<'_>, windows: [&Sequence<'_>; 2], shifts: &[i64]) -> Self {
        let room_ps = class.room_ps(windows);
        let order = Order { all: &class.all, room_ps };
        let broken = shifts.iter().map(|shift| (*shift, order.broken(windows, *shift)));
        let broken: Vec<(i64, usize)> = broken.collect();
        let lengths = windows.map(|window| window.parts.len());
        let share = |shift: i64, broken: usize| broken as f64 / overlap(lengths, shift).len() as f64;
        let least = broken.iter().min_by(|(one, a), (other, b)| {
            share(*one, *a).total_cmp(&share(*other, *b)).then(one.unsigned_abs().cmp(&other.unsigned_abs()))
        });
        let [one, other] = windows;
        Self {
            allowed: broken.iter().filter(|(_, broken)| *broken == 0).map(|(shift, _)| *shift).collect(),
            disjoint: order.precedes(one, other) || order.precedes(other, one),
            least: least.map(|(shift, _)| *shift),
            unknown: room_ps.is_infinite(),
        }
    }

    /// Whether a shift holds.
    pub(super) fn allow(&self, shift: i64) -> bool {
        self.allowed.binary_search(&shift).is_ok()
    }

    /// Whether nothing holds: a clock is wrong.
    pub(super) fn refuted(&self) -> bool {
        self.allowed.is_empty() && !self.disjoint
    }
}

struct Order<'a> {
    all: &'a [bool],
    room_ps: f64,
}

impl Order<'_> {
    /// Number of orders that a shift violates.
    fn broken(&self, [one, other]: [&Sequence<'_>; 2], shift: i64) -> usize {
        let places = overlap([one.parts.len(), other.parts.len()], shift);
        let beside = |place: usize| &other.parts[(place as i64 + shift) as usize];
        let mut broken = 0;
        for place in places.clone().filter(|place| self.all[one.parts[*place].kind]) {
            let (own, beside) = (&one.parts[place], beside(place));
            broken += usize::from(self.is_after(own.start.at, beside.end.at));
            broken += usize::from(self.is_after(beside.start.at, own.end.at));
        }
        let (Some(first), Some(last)) = (places.clone().next(), places.last()) else { return broken };
        if !(one.serial && other.serial) {
            return broken;
        }
        let at = |place: usize| (place as i64 + shift) as usize;
        let borders = [
            first.checked_sub(1).map(|before| (&one.parts[before], beside(first))),
            at(first).checked_sub(1).map(|before| (&other.parts[before], &one.parts[first])),
            one.parts.get(last + 1).map(|after| (beside(last), after)),
            other.parts.get(at(last) + 1).map(|after| (&one.parts[last], after)),
        ];
        broken + borders.into_iter().flatten().filter(|(a, b)| !self.follows(a, b)).count()
    }

    /// Whether all operations of the one may precede all of the other.
    fn precedes(&self, one: &Sequence<'_>, other: &Sequence<'_>) -> bool {
        let Some((last, first)) = one.parts.last().zip(other.parts.first()) else { return true };
        if one.serial && other.serial {
            self.follows(last, first)
        } else {
            !(self.all[last.kind] && self.is_after(last.start.at, first.end.at))
        }
    }

    /// Whether the operation b of one rank may follow the operation a of another.
    fn follows(&self, a: &Seen, b: &Seen) -> bool {
        let ends = self.all[b.kind] && self.is_after(a.end.at, b.end.at);
        let starts = self.all[a.kind] && self.is_after(a.start.at, b.start.at);
        !(ends || starts)
    }

    /// Whether a time is later than another for certain.
    fn is_after(&self, one: i128, other: i128) -> bool {
        (one - other) as f64 > self.room_ps
    }
}

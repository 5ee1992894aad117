//! The shift that numbered steps imply.
//!
//! A shift remains possible if every operation can be in a step of the same number on both traces.
//! The steps decide if only one shift remains. It does not know at which step a profiler starts
//! counting.

use super::sequence::{Sequence, overlap};

/// What the steps of two traces say.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) enum Stated {
    /// Nothing, or contradictory statements of different series.
    Nothing,
    /// Only this shift remains.
    Shift(i64),
    /// The traces cover different steps.
    Disjoint,
}

/// Compares every series that both traces have.
pub(super) fn by_steps([one, other]: [&Sequence<'_>; 2], shifts: &[i64]) -> Stated {
    let mut found = Stated::Nothing;
    for series in one.steps.series().filter(|series| other.steps.series().any(|own| own == *series)) {
        let numbers = |sequence: &Sequence<'_>| -> Vec<Option<i64>> {
            sequence.parts.iter().map(|part| sequence.steps.number(series, part.start_ps, part.end_ps)).collect()
        };
        match (by_numbers(&numbers(one), &numbers(other), shifts), found) {
            (Stated::Nothing, _) => {}
            (stated, Stated::Nothing) => found = stated,
            (stated, _) if stated != found => return Stated::Nothing,
            _ => {}
        }
    }
    found
}

fn by_numbers(one: &[Option<i64>], other: &[Option<i64>], shifts: &[i64]) -> Stated {
    let span = |numbers: &[Option<i64>]| {
        let known = || numbers.iter().flatten();
        known().min().copied().zip(known().max().copied())
    };
    let Some((first, second)) = span(one).zip(span(other)) else { return Stated::Nothing };
    let lengths = [one.len(), other.len()];
    let (one, other) = (bounds(one), bounds(other));
    let agrees = |shift: &i64| {
        overlap(lengths, *shift).all(|place| {
            let (one, other) = (one[place], other[(place as i64 + shift) as usize]);
            one.0 <= other.1 && other.0 <= one.1
        })
    };
    let mut left = shifts.iter().copied().filter(agrees);
    let disjoint = first.1 < second.0 || second.1 < first.0;
    match (left.next(), left.next(), disjoint) {
        (Some(shift), None, false) => Stated::Shift(shift),
        (None, None, true) => Stated::Disjoint,
        _ => Stated::Nothing,
    }
}

/// The steps between which each operation is: steps never go back.
fn bounds(numbers: &[Option<i64>]) -> Vec<(i64, i64)> {
    let mut found = vec![(i64::MIN, i64::MAX); numbers.len()];
    let mut known = i64::MIN;
    for (number, bounds) in numbers.iter().zip(&mut found) {
        known = number.unwrap_or(known);
        bounds.0 = known;
    }
    let mut known = i64::MAX;
    for (number, bounds) in numbers.iter().zip(&mut found).rev() {
        known = number.unwrap_or(known);
        bounds.1 = known;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shift_alone_has_to_be_left() {
        let check = |one: &[i64], other: &[i64], expected: Stated| {
            let known = |numbers: &[i64]| -> Vec<Option<i64>> {
                numbers.iter().map(|number| Some(*number).filter(|number| *number >= 0)).collect()
            };
            let shifts: Vec<i64> = (1 - one.len() as i64..other.len() as i64).collect();
            assert_eq!(by_numbers(&known(one), &known(other), &shifts), expected, "{one:?} {other:?}");
        };
        check(&[0, 1, 2], &[1, 2, 3], Stated::Shift(-1));
        check(&[0, 0, 1, 1], &[0, 0, 1, 1], Stated::Shift(0));
        // The first of the second trace was issued before its first step began.
        check(&[4, 4, 5, 5, 6, 6], &[-1, 5, 5, 6, 6, 7], Stated::Shift(-1));
        check(&[0, 1, 2], &[3, 4, 5], Stated::Disjoint);
        check(&[0, 1, 1, 2], &[0, 1, 2], Stated::Nothing);
        check(&[-1, -1], &[0, 1], Stated::Nothing);
    }
}

//! Readings that may lie on either side of a step, as pieces of a map with larger uncertainty.
//!
//! `map` cuts its segments at these boundaries. Around a boundary, wherever a reading may belong to
//! either side, the uncertainty includes the jump.

use super::piece::Piece;

/// Readings that may be from before or from after a step.
pub(super) struct Doubt {
    from_ps: i128,
    until_ps: i128,
    jump_ns: f64,
}

impl Doubt {
    /// Between the last reading before a step and the first after it, ps, where the correction
    /// jumps by `jump`. A clock set back shows some readings twice: before the step up to
    /// `last − jump`, after it from `first + jump` on.
    pub(super) fn between(last: i128, first: i128, jump: i128) -> Self {
        Self {
            from_ps: last.min(last.saturating_add(jump)).saturating_add(1),
            until_ps: first.max(first.saturating_sub(jump)),
            jump_ns: jump.unsigned_abs() as f64 * 1e-3,
        }
    }
}

/// The pieces cut at the doubts' ends, and less sure between them.
pub(super) fn with_doubts(flat: &[Piece], doubts: &[Doubt]) -> Vec<Piece> {
    let mut cuts: Vec<i128> = doubts.iter().flat_map(|doubt| [doubt.from_ps, doubt.until_ps]).collect();
    cuts.sort_unstable();
    let mut cuts = cuts.into_iter().peekable();
    let mut pieces: Vec<Piece> = Vec::with_capacity(flat.len() + 2 * doubts.len());
    for (index, piece) in flat.iter().enumerate() {
        let until = flat.get(index + 1).map_or(i128::MAX, |next| next.from_ps);
        pieces.push(*piece);
        while let Some(cut) = cuts.next_if(|cut| *cut < until) {
            if pieces.last().is_some_and(|last| last.from_ps < cut) {
                pieces.push(Piece { from_ps: cut, ..*piece });
            }
        }
    }
    for doubt in doubts {
        let place = |t: i128| pieces.partition_point(|piece| piece.from_ps < t);
        let range = place(doubt.from_ps)..place(doubt.until_ps);
        for piece in pieces.get_mut(range).into_iter().flatten() {
            piece.sigma_ns += doubt.jump_ns;
        }
    }
    pieces
}

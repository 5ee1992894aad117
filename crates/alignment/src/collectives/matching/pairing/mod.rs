//! Determines which positions in the sequences of two ranks correspond, and on what evidence.
//!
//! It applies to operations of which only the order is known. Two ranks of a group perform its
//! operations in one order, but their traces may begin at different operations, because a profiler
//! was started on request or a trace was cut. Equal numbers of operations therefore prove nothing.
//! Three kinds of evidence prove that the k-th operation of one trace is the (k + s)-th of another:
//!
//! 1. **The pattern of ends** (`pattern`). All members leave an operation nearly together, so the
//!    times between successive ends agree whatever the clocks show.
//! 2. **Steps** (`stated`): both traces state numbered steps, and one shift alone puts each
//!    operation into the same step on both.
//! 3. **Times** (`times`): within what the clocks may be wrong by one shift alone lets no rank
//!    leave an operation before another has begun it.
//!
//! Proofs that contradict each other prove nothing: a shift by steps is none where the pattern has
//! another, or where times refute it and allow another. Where the clocks allow no shift at all,
//! disjoint traces included, a clock is wrong, and the shift that breaks least stands for all.
//! Everything is looked at in windows of [`WINDOW`] operations at the beginning and at the end of
//! what two traces share: an operation that a trace lost in between would move all that follow.

mod pattern;
mod sequence;
mod stated;
mod times;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use sequence::Sequence;
pub(super) use sequence::{Class, Kinds};
use stated::Stated;
use times::Times;

/// How the sequences of a class's nodes are aligned.
#[derive(Debug, Default)]
pub(super) struct Aligned {
    /// Nodes whose operations are the same, by place: the place of their first operation in the
    /// common sequence.
    pub(super) sets: Vec<BTreeMap<usize, u64>>,
    /// The others, and why; `None`: they share no operation with any.
    pub(super) others: BTreeMap<usize, Option<&'static str>>,
    /// Number of nodes joined by each kind of proof.
    pub(super) proofs: Vec<Proof>,
}

impl Aligned {
    /// For a group whose operations all traces contain from its creation on.
    pub(super) fn from_making(class: &Class<'_>) -> Self {
        let set: BTreeMap<usize, u64> = class.places().map(|place| (place, 0)).collect();
        let proofs = vec![Proof::Making; set.len().saturating_sub(1)];
        Self { sets: vec![set], others: BTreeMap::new(), proofs }
    }
}

/// Why a shift is taken.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) enum Proof {
    /// The traces contain the creation of the group.
    Making,
    /// The pattern of ends makes it more likely than every other shift by this power of ten.
    Pattern(f64),
    /// Numbered steps.
    Steps,
    /// Times within the bounds of the clocks.
    Times,
    /// No shift holds on these clocks; this one violates least.
    LeastBroken,
}

/// Result for two sequences.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Verdict {
    /// The k-th of the first is the (k + shift)-th of the second.
    Shift(i64, Proof),
    /// They have no operation in common.
    Disjoint,
    /// Nothing is proven.
    Open(&'static str),
}

/// Aligns the sequences of a class.
pub(super) fn align(class: &Class<'_>) -> Aligned {
    let places: Vec<usize> = class.places().collect();
    let heads: BTreeMap<usize, Sequence<'_>> =
        places.iter().map(|place| (*place, class.read(*place, 0, WINDOW))).collect();
    let mut found = Aligned::default();
    // Each set with the place of every member's first operation, the first member's being 0.
    let mut sets: Vec<BTreeMap<usize, i64>> = Vec::new();
    for &place in &places {
        let (mut reason, mut tries) = (None, 0);
        let joined = sets.iter_mut().any(|set| {
            let members: Vec<(usize, i64)> = set.iter().map(|(member, first)| (*member, *first)).collect();
            members.into_iter().take(TRIES_MAX).any(|(member, first)| {
                if tries == TRIES_MAX {
                    return false;
                }
                tries += 1;
                match between(class, [member, place], [&heads[&member], &heads[&place]]) {
                    Verdict::Shift(shift, proof) => {
                        set.insert(place, first - shift);
                        found.proofs.push(proof);
                        true
                    }
                    Verdict::Disjoint => false,
                    Verdict::Open(why) => {
                        reason = Some(why);
                        false
                    }
                }
            })
        });
        if !joined {
            sets.push(BTreeMap::from([(place, 0)]));
            found.others.insert(place, reason);
        }
    }
    for set in sets.into_iter().filter(|set| set.len() > 1) {
        let first = set.values().min().copied().unwrap_or(0);
        set.keys().for_each(|place| {
            found.others.remove(place);
        });
        found.sets.push(set.into_iter().map(|(place, at)| (place, at.abs_diff(first))).collect());
    }
    // The first of all has nobody to be compared with: what the others say of it is its reason.
    let why = found.others.values().flatten().next().copied();
    found.others.values_mut().for_each(|reason| *reason = reason.or(why));
    found
}

/// For each node of a set and each kind of operation, how many of it precede the node's first in
/// the common sequence.
pub(super) fn firsts(class: &Class<'_>, set: &BTreeMap<usize, u64>) -> BTreeMap<usize, Vec<u64>> {
    let until = set.values().max().copied().unwrap_or(0);
    let mut kinds: Vec<usize> = Vec::new();
    let mut by_first: Vec<(u64, usize)> = set.iter().map(|(place, first)| (*first, *place)).collect();
    by_first.sort_unstable();
    for (first, place) in by_first {
        let known = kinds.len() as u64;
        if (first..until).contains(&known) {
            kinds.extend(class.read(place, known - first, until - known).parts.iter().map(|part| part.kind));
        }
    }
    let before = |first: u64| {
        let mut counts = vec![0; class.all.len()];
        kinds.iter().take(first as usize).for_each(|kind| counts[*kind] += 1);
        counts
    };
    set.iter().map(|(place, first)| (*place, before(*first))).collect()
}

/// Compares two nodes at the beginning of their traces, and at the end of what they share.
fn between(class: &Class<'_>, places: [usize; 2], heads: [&Sequence<'_>; 2]) -> Verdict {
    let at_first = judge(class, heads);
    let Verdict::Shift(shift, proof) = at_first else {
        let whole = heads.iter().all(|head| head.is_whole());
        return if whole || at_first != Verdict::Disjoint { at_first } else { Verdict::Open(TOO_FAR) };
    };
    if heads.iter().all(|head| head.is_whole()) {
        return at_first;
    }
    let [one, other] = places.map(|place| class.count(place) as i64);
    let end = one.min(other - shift);
    let tail = |place: usize, end: i64| {
        let from = (end - WINDOW as i64).max(0) as u64;
        class.read(place, from, end.max(0) as u64 - from)
    };
    let tails = [tail(places[0], end), tail(places[1], end + shift)];
    let moved = tails[1].first as i64 - tails[0].first as i64;
    match judge(class, [&tails[0], &tails[1]]) {
        Verdict::Shift(at_last, _) if at_last + moved == shift => Verdict::Shift(shift, proof),
        Verdict::Shift(..) | Verdict::Disjoint => Verdict::Open(LOST),
        open @ Verdict::Open(_) => open,
    }
}

/// Compares two windows, by shifts from the first of each.
fn judge(class: &Class<'_>, windows: [&Sequence<'_>; 2]) -> Verdict {
    let shifts = sequence::consistent(windows);
    let times = Times::new(class, windows, &shifts);
    let pattern = pattern::likeliest(class, windows, &shifts);
    match (stated::by_steps(windows, &shifts), pattern) {
        (Stated::Nothing, Some((shift, margin))) => return Verdict::Shift(shift, Proof::Pattern(margin)),
        (Stated::Shift(shift), Some((likeliest, _))) if shift == likeliest => {
            return Verdict::Shift(shift, Proof::Steps);
        }
        (_, Some(_)) => return Verdict::Open(OTHER_PATTERN),
        (Stated::Shift(shift), None) if times.allow(shift) || times.refuted() => {
            return Verdict::Shift(shift, Proof::Steps);
        }
        (Stated::Disjoint, None) if times.disjoint || times.refuted() => return Verdict::Disjoint,
        (Stated::Shift(_) | Stated::Disjoint, None) => return Verdict::Open(CONTRADICTED),
        (Stated::Nothing, None) => {}
    }
    match (&times.allowed[..], times.disjoint) {
        ([shift], false) => Verdict::Shift(*shift, Proof::Times),
        ([], true) => Verdict::Disjoint,
        ([], false) => times.least.map_or(Verdict::Open(UNLIKE), |shift| Verdict::Shift(shift, Proof::LeastBroken)),
        _ if times.unknown => Verdict::Open(NO_PROOF),
        _ => Verdict::Open(SEVERAL),
    }
}

/// Operations of a rank that are examined at once.
const WINDOW: u64 = 1024;
/// Nodes with which one is compared before it is given up.
const TRIES_MAX: usize = 4;
const NO_PROOF: &str = "only their order is known, and the traces may begin with different ones: sequence and step numbers, clocks \
    and end times do not determine which belong together";
const SEVERAL: &str = "only their order is known, and several pairings are possible within the clocks' uncertainty";
const CONTRADICTED: &str = "matching steps by number contradicts the clocks: the traces count steps from different starting points, \
    or a clock is wrong";
const OTHER_PATTERN: &str = "matching steps by number contradicts the pattern of the operations' end times: the traces count steps \
    from different starting points";
const UNLIKE: &str = "the ranks issued different operations in its process group and do not agree on their order";
const LOST: &str =
    "the start and the end of the traces imply different pairings, so a trace lacks some operations in between";
const TOO_FAR: &str = "the traces share none of the first thousand operations";

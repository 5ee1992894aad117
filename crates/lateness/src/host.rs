//! A host that was last as a whole: all of its ranks, two or more, came after all others.

use crate::operation::{Arrival, DEVIATIONS, Judged, Waits};

/// A host that was last as a whole.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LateHost {
    /// Index, in the list of arrivals, of its rank that came last.
    pub last: usize,
    /// From the last arrival elsewhere to the first arrival of this host, ns.
    pub lead_ns: i64,
    /// Standard deviation of `lead_ns`, ns.
    pub lead_sigma_ns: f64,
    /// True if no clock error within 3σ explains the lead.
    pub is_certain: bool,
}

/// Finds the host that was last as a whole in an operation in which all wait for all; `host_of`
/// returns the host of a rank.
pub fn late_host<H: PartialEq>(
    waits: &Waits,
    judged: &Judged,
    arrivals: &[Arrival],
    host_of: impl Fn(usize) -> H,
) -> Option<LateHost> {
    let last = judged.latest.filter(|_| waits.is_all() && !judged.is_open)?;
    let host = host_of(arrivals[last].rank);
    let (own, others): (Vec<&Arrival>, Vec<&Arrival>) =
        arrivals.iter().partition(|arrival| host_of(arrival.rank) == host);
    let first = own.iter().min_by_key(|arrival| arrival.start_ns).filter(|_| own.len() > 1)?;
    let before = others.iter().max_by_key(|arrival| arrival.start_ns)?;
    let lead_ns = first.start_ns - before.start_ns;
    if lead_ns <= 0 {
        return None;
    }
    let certain = |own: &&Arrival| {
        others.iter().all(|other| (own.start_ns - other.start_ns) as f64 > DEVIATIONS * own.error.with(other.error))
    };
    // Most operations have ended above: comparing all pairs is for those that are late.
    Some(LateHost { last, lead_ns, lead_sigma_ns: first.error.with(before.error), is_certain: own.iter().all(certain) })
}

//! What is known of the ranks' system clocks when times of two ranks are compared.

use std::collections::BTreeMap;

/// Clocks of the ranks: which ranks share one, the offsets of the others, and their bounds.
///
/// # Examples
/// Two ranks on two hosts. Rank 1's clock is 5 ms ahead, known to 400 ns: what rank 1 stamped 1 ms
/// after rank 0 happened 4 ms before it.
/// ```
/// use probe_sync_hang::Clocks;
///
/// let mut clocks = Clocks::default();
/// clocks.set(0, 0, 0).set(1, 5_000_000, 400);
/// assert_eq!(clocks.difference((0, 0), (1, 1_000_000)), Some((-4_000_000, 400)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    /// Offset from the reference clock and its bound, ns.
    offsets: BTreeMap<u32, (i64, i64)>,
    hosts: BTreeMap<u32, String>,
    /// Largest difference between the clocks of two hosts, as stated by the user, ns.
    assumed: Option<i64>,
}

impl Clocks {
    /// Sets a rank's offset (its clock − the reference) and the offset's bound, both in ns.
    pub fn set(&mut self, rank: u32, offset_ns: i64, bound_ns: i64) -> &mut Self {
        self.offsets.insert(rank, (offset_ns, bound_ns));
        self
    }

    /// Sets the host of a rank. Ranks of one host share its clock.
    pub fn set_host(&mut self, rank: u32, host: &str) -> &mut Self {
        self.hosts.insert(rank, host.to_owned());
        self
    }

    /// Sets the largest difference between the clocks of two hosts, used if nothing better is
    /// known, ns.
    pub fn assume(&mut self, error_ns: i64) -> &mut Self {
        self.assumed = Some(error_ns);
        self
    }

    /// Returns a rank's offset from the reference clock, ns.
    pub(crate) fn offset_ns(&self, rank: u32) -> Option<i64> {
        self.offsets.get(&rank).map(|(offset_ns, _)| *offset_ns)
    }

    /// Returns by how much the second rank's time is later, and the bound of that, ns; `None` if
    /// the two clocks cannot be compared.
    pub fn difference(&self, (first, from_ns): (u32, i64), (second, to_ns): (u32, i64)) -> Option<(i64, i64)> {
        let raw = to_ns.saturating_sub(from_ns);
        let host = self.host(first);
        if first == second || (host.is_some() && host == self.host(second)) {
            return Some((raw, 0));
        }
        match (self.offsets.get(&first), self.offsets.get(&second)) {
            (Some((first, bound)), Some((second, other))) => {
                let corrected = raw.saturating_sub(second.saturating_sub(*first));
                Some((corrected, bound.saturating_add(*other)))
            }
            _ => self.assumed.map(|assumed| (raw, assumed)),
        }
    }

    /// Returns the host of a rank.
    pub fn host(&self, rank: u32) -> Option<&str> {
        self.hosts.get(&rank).map(String::as_str)
    }
}

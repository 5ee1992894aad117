//! Which ranks share a host.
//!
//! Place in the flow: computed once at start-up from what MPI says, equal on all ranks.
//! Hosts are numbered by their lowest rank, which is also their leader; so the root leads host 0.
//! What it does not do: call MPI.

use probe_sync_collective::Rank;

/// The ranks of each host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    host_of: Vec<usize>,
    ranks: Vec<Vec<Rank>>,
}

impl Layout {
    /// From the lowest rank on each rank's host. With `ranks_per_host`, every that many ranks of a host count as a host
    /// of their own, so that one machine can play several.
    pub(crate) fn new(lowest: &[u64], ranks_per_host: Option<usize>) -> Self {
        let mut layout = Self { host_of: Vec::with_capacity(lowest.len()), ranks: Vec::new() };
        let mut open: Vec<(u64, usize)> = Vec::new();
        for (rank, &lowest) in lowest.iter().enumerate() {
            let found = open.iter().position(|&(of, _)| of == lowest);
            let host = match found {
                Some(position) if layout.has_room(open[position].1, ranks_per_host) => open[position].1,
                _ => {
                    layout.ranks.push(Vec::new());
                    open.retain(|&(of, _)| of != lowest);
                    open.push((lowest, layout.ranks.len() - 1));
                    layout.ranks.len() - 1
                }
            };
            layout.ranks[host].push(rank);
            layout.host_of.push(host);
        }
        layout
    }

    /// The same hosts without those ranks, renumbered; hosts of which nobody is left are gone.
    pub(crate) fn without(&self, lost: &[bool]) -> Self {
        let left = |ranks: &Vec<Rank>| ranks.iter().copied().filter(|rank| !lost[*rank]).collect::<Vec<_>>();
        let mut ranks: Vec<Vec<Rank>> = self.ranks.iter().map(left).filter(|ranks| !ranks.is_empty()).collect();
        ranks.sort_unstable();
        let mut host_of = vec![NOWHERE; self.host_of.len()];
        for (host, members) in ranks.iter().enumerate() {
            members.iter().for_each(|rank| host_of[*rank] = host);
        }
        Self { host_of, ranks }
    }

    /// The host of each rank; no host's number for a rank that is lost.
    pub(crate) fn host_of(&self) -> &[usize] {
        &self.host_of
    }

    /// How many hosts there are.
    pub(crate) fn hosts(&self) -> usize {
        self.ranks.len()
    }

    /// The ranks of a host in ascending order; the first is its leader.
    pub(crate) fn ranks(&self, host: usize) -> &[Rank] {
        &self.ranks[host]
    }

    fn has_room(&self, host: usize, ranks_per_host: Option<usize>) -> bool {
        ranks_per_host.is_none_or(|limit| self.ranks[host].len() < limit.max(1))
    }
}

/// The host of a rank that is lost.
const NOWHERE: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lowest: &[u64], ranks_per_host: Option<usize>, expected: &[usize]) {
        let layout = Layout::new(lowest, ranks_per_host);
        assert_eq!(layout.host_of(), expected);
        for host in 0..layout.hosts() {
            let ranks: Vec<Rank> = (0..lowest.len()).filter(|&rank| expected[rank] == host).collect();
            assert_eq!(layout.ranks(host), ranks);
        }
    }

    #[test]
    fn hosts_are_numbered_by_their_lowest_rank() {
        check(&[0, 0, 0], None, &[0, 0, 0]);
        check(&[0, 0, 2, 2], None, &[0, 0, 1, 1]);
        check(&[0, 1, 0, 1], None, &[0, 1, 0, 1]);
        check(&[0; 5], Some(2), &[0, 0, 1, 1, 2]);
        check(&[0; 3], Some(0), &[0, 1, 2]);
        check(&[0, 1, 0, 1, 0, 1], Some(2), &[0, 1, 0, 1, 2, 3]);
    }

    #[test]
    fn hosts_without_a_rank_are_gone_and_the_others_renumbered() {
        let lost = |of: &[Rank]| (0..6).map(|rank| of.contains(&rank)).collect::<Vec<_>>();
        // Hosts {0, 3}, {1, 4}, {2, 5}.
        let layout = Layout::new(&[0, 1, 2, 0, 1, 2], None);
        let left = layout.without(&lost(&[1, 4]));
        assert_eq!(left.host_of(), [0, NOWHERE, 1, 0, NOWHERE, 1]);
        assert_eq!((left.hosts(), left.ranks(1)), (2, &[2, 5][..]));
        // Its lowest rank is what a host is numbered by.
        let left = layout.without(&lost(&[1]));
        assert_eq!(left.host_of(), [0, NOWHERE, 1, 0, 2, 1]);
    }
}

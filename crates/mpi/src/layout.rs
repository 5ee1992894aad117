//! Which ranks share a host.
//!
//! It is computed once at start-up from MPI's information and is identical on all ranks. Hosts are
//! numbered by their lowest rank, which is also their leader, so the root leads host 0. If another
//! rank has become the root, it comes before all others.

use probe_sync_collective::Rank;

/// The ranks of each host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    host_of: Vec<usize>,
    ranks: Vec<Vec<Rank>>,
    /// The index of each rank among those of its host.
    place: Vec<usize>,
}

impl Layout {
    /// Creates the layout from the lowest rank on each rank's host. With `ranks_per_host`, that
    /// many ranks of a host count as a host of their own, so that one machine can act as several.
    pub(crate) fn new(lowest: &[u64], ranks_per_host: Option<usize>) -> Self {
        let mut layout = Self { host_of: Vec::with_capacity(lowest.len()), ranks: Vec::new(), place: Vec::new() };
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
            layout.place.push(layout.ranks[host].len());
            layout.ranks[host].push(rank);
            layout.host_of.push(host);
        }
        layout
    }

    /// Returns the same hosts without those ranks, led by `root` and renumbered; hosts without
    /// remaining ranks are removed. If a rank hangs, the others of its host each become a host of
    /// their own: it may wake and write into their shared memory.
    pub(crate) fn without(&self, lost: &[bool], hung: &[bool], root: Rank) -> Self {
        let mut ranks = Vec::new();
        for of_host in &self.ranks {
            let left: Vec<Rank> = of_host.iter().copied().filter(|rank| !lost[*rank]).collect();
            if of_host.iter().any(|rank| hung[*rank]) {
                ranks.extend(left.into_iter().map(|rank| vec![rank]));
            } else if !left.is_empty() {
                ranks.push(left);
            }
        }
        ranks.iter_mut().for_each(|of_host| of_host.sort_by_key(|rank| (*rank != root, *rank)));
        ranks.sort_by_key(|of_host| (of_host[0] != root, of_host[0]));
        let (mut host_of, mut place) = (vec![NOWHERE; self.host_of.len()], vec![NOWHERE; self.host_of.len()]);
        for (host, members) in ranks.iter().enumerate() {
            for (index, rank) in members.iter().enumerate() {
                (host_of[*rank], place[*rank]) = (host, index);
            }
        }
        Self { host_of, ranks, place }
    }

    /// The rank that leads host 0.
    pub(crate) fn root(&self) -> Rank {
        self.ranks[0][0]
    }

    /// The index of a rank among those of its host; `usize::MAX` for a lost rank.
    pub(crate) fn place(&self, rank: Rank) -> usize {
        self.place[rank]
    }

    /// The host of each rank; `usize::MAX` for a lost rank.
    pub(crate) fn host_of(&self) -> &[usize] {
        &self.host_of
    }

    /// Number of hosts.
    pub(crate) fn hosts(&self) -> usize {
        self.ranks.len()
    }

    /// The ranks of a host in ascending order, except that the root comes first; the first is its
    /// leader.
    pub(crate) fn ranks(&self, host: usize) -> &[Rank] {
        &self.ranks[host]
    }

    fn has_room(&self, host: usize, ranks_per_host: Option<usize>) -> bool {
        ranks_per_host.is_none_or(|limit| self.ranks[host].len() < limit.max(1))
    }
}

/// The host of a lost rank.
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
        let nobody = lost(&[]);
        let left = layout.without(&lost(&[1, 4]), &nobody, 0);
        assert_eq!(left.host_of(), [0, NOWHERE, 1, 0, NOWHERE, 1]);
        assert_eq!((left.hosts(), left.ranks(1)), (2, &[2, 5][..]));
        // Its lowest rank is what a host is numbered by.
        let left = layout.without(&lost(&[1]), &nobody, 0);
        assert_eq!(left.host_of(), [0, NOWHERE, 1, 0, 2, 1]);
        assert_eq!((left.place(3), left.place(4)), (1, 0));
    }

    #[test]
    fn another_root_leads_the_first_host() {
        let lost = |of: &[Rank]| (0..6).map(|rank| of.contains(&rank)).collect::<Vec<_>>();
        let layout = Layout::new(&[0, 1, 2, 0, 1, 2], None).without(&lost(&[0]), &lost(&[]), 4);
        assert_eq!(layout.host_of(), [NOWHERE, 0, 1, 2, 0, 1]);
        assert_eq!((layout.root(), layout.ranks(0), layout.place(1)), (4, &[4, 1][..], 1));
    }

    #[test]
    fn the_host_of_a_rank_that_hangs_falls_apart() {
        let lost = |of: &[Rank]| (0..6).map(|rank| of.contains(&rank)).collect::<Vec<_>>();
        let layout = Layout::new(&[0, 0, 0, 3, 3, 3], None).without(&lost(&[1, 4]), &lost(&[1]), 0);
        assert_eq!(layout.host_of(), [0, NOWHERE, 1, 2, NOWHERE, 2]);
    }
}

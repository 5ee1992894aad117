//! The tree: which rank forwards for which.
//!
//! The root (`trunk`) builds the tree, changes it when ranks leave or return, and distributes it;
//! every rank (`branch`) reads its own place.
//!
//! The ranks are put in order, those of one host together. The first of a list is the parent of the
//! first of each of its K parts, and so on within the parts. So a host's ranks are one below the
//! other, and the height is about log_K of the number of ranks.
//!
//! As bytes, little-endian: ranks: u32; for each its parent: u32, [`ABSENT`] for one without a
//! place; then for each that has children its rank: u32, port: u16, and address, 16 bytes.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::{ROOT, Rank};

/// A tree of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Parents by rank; that of the root is itself.
    parents: Vec<Option<Rank>>,
    children: Vec<Vec<Rank>>,
    /// Addresses of ranks with children.
    addresses: HashMap<Rank, SocketAddr>,
}

impl Shape {
    /// Creates the tree of all ranks; `hosts` contains by rank the address on which each listens.
    pub fn new(hosts: &[Option<SocketAddr>], fan_out: usize) -> Self {
        let size = hosts.len();
        let mut order: Vec<Rank> = (1..size).collect();
        order.sort_by_key(|&rank| (hosts[rank].map(|address| address.ip()), rank));
        order.insert(0, ROOT);
        let mut parents = vec![Some(ROOT); size];
        let mut lists = vec![&order[..]];
        while let Some((head, rest)) = lists.pop().and_then(<[Rank]>::split_first) {
            for part in rest.chunks(rest.len().div_ceil(fan_out.max(1)).max(1)) {
                // One that nobody could reach has no children.
                parents[part[0]] = Some(*head);
                lists.push(part);
            }
        }
        let addresses = hosts.iter().enumerate().filter_map(|(rank, host)| Some((rank, (*host)?))).collect();
        Self::of(parents, addresses)
    }

    /// Creates a tree with one rank of `size` right below the root, and no others.
    pub fn alone(rank: Rank, size: usize) -> Self {
        let parents = (0..size).map(|other| (other == ROOT || other == rank).then_some(ROOT)).collect();
        Self::of(parents, HashMap::new())
    }

    fn of(parents: Vec<Option<Rank>>, addresses: HashMap<Rank, SocketAddr>) -> Self {
        let mut children = vec![Vec::new(); parents.len()];
        for (rank, parent) in parents.iter().enumerate().skip(1) {
            if let Some(parent) = parent {
                children[*parent].push(rank);
            }
        }
        Self { parents, children, addresses }
    }

    pub fn size(&self) -> usize {
        self.parents.len()
    }

    /// Returns true if a rank has a place.
    pub fn has(&self, rank: Rank) -> bool {
        self.parents[rank].is_some()
    }

    /// Returns the parent of a rank.
    pub fn parent(&self, rank: Rank) -> Rank {
        self.parents[rank].unwrap_or(ROOT)
    }

    pub fn children(&self, rank: Rank) -> &[Rank] {
        &self.children[rank]
    }

    /// Returns the address on which a rank listens.
    pub fn address(&self, rank: Rank) -> Option<SocketAddr> {
        self.addresses.get(&rank).copied()
    }

    /// Returns the rank and all below it.
    pub fn subtree(&self, rank: Rank) -> Vec<Rank> {
        self.reach(rank, &|_| true)
    }

    /// Returns the rank and all below it that are reached through `present` ranks.
    pub fn reach(&self, rank: Rank, present: &dyn Fn(Rank) -> bool) -> Vec<Rank> {
        let (mut found, mut next) = (vec![rank], 0);
        while let Some(&rank) = found.get(next) {
            found.extend(self.children[rank].iter().filter(|&&child| present(child)));
            next += 1;
        }
        found
    }

    /// Returns the highest present ranks without the root: its children, and in place of an absent
    /// child that child's.
    pub fn tops(&self, present: &dyn Fn(Rank) -> bool) -> Vec<Rank> {
        let (mut tops, mut list) = (Vec::new(), self.children[ROOT].clone());
        while let Some(rank) = list.pop() {
            if present(rank) { tops.push(rank) } else { list.extend(&self.children[rank]) }
        }
        tops.sort_unstable();
        tops
    }

    /// Returns the number of levels below `rank`.
    pub fn height(&self, rank: Rank) -> usize {
        let below = self.subtree(rank);
        below.iter().map(|&rank| self.depth(rank)).max().unwrap_or(0) - self.depth(rank)
    }

    /// Returns the number of ranks between `rank` and the root, including the root.
    pub fn depth(&self, mut rank: Rank) -> usize {
        let mut depth = 0;
        while rank != ROOT && depth < self.size() {
            rank = self.parent(rank);
            depth += 1;
        }
        depth
    }

    /// Removes a rank; its parent takes over its children.
    pub fn remove(&mut self, rank: Rank) {
        let parent = self.parent(rank);
        for below in self.parents.iter_mut().skip(1).filter(|below| **below == Some(rank)) {
            *below = Some(parent);
        }
        self.parents[rank] = None;
        self.addresses.remove(&rank);
        self.rebuild();
    }

    /// Moves a rank right below the root, with its children.
    pub fn raise(&mut self, rank: Rank) {
        self.parents[rank] = Some(ROOT);
        self.rebuild();
    }

    fn rebuild(&mut self) {
        *self = Self::of(std::mem::take(&mut self.parents), std::mem::take(&mut self.addresses));
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = (self.size() as u32).to_le_bytes().to_vec();
        for parent in &self.parents {
            bytes.extend_from_slice(&parent.map_or(ABSENT, |parent| parent as u32).to_le_bytes());
        }
        for rank in (1..self.size()).filter(|&rank| !self.children[rank].is_empty()) {
            let Some(address) = self.address(rank) else { continue };
            let ip = match address.ip() {
                IpAddr::V4(four) => four.to_ipv6_mapped(),
                IpAddr::V6(six) => six,
            };
            bytes.extend_from_slice(&(rank as u32).to_le_bytes());
            bytes.extend_from_slice(&address.port().to_le_bytes());
            bytes.extend_from_slice(&ip.octets());
        }
        bytes
    }

    /// Decodes a tree of `size` ranks.
    pub fn decode(bytes: &[u8], size: usize) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*count) as usize != size {
            return None;
        }
        let (list, rest) = rest.split_at_checked(size.checked_mul(4)?)?;
        let mut parents = Vec::with_capacity(size);
        for parent in list.as_chunks::<4>().0 {
            let parent = u32::from_le_bytes(*parent);
            parents.push((parent != ABSENT).then_some(parent as usize));
        }
        if parents.first() != Some(&Some(ROOT)) || parents.iter().flatten().any(|&parent| parent >= size) {
            return None;
        }
        let (entries, rest) = rest.as_chunks::<ENTRY>();
        let mut addresses = HashMap::with_capacity(entries.len());
        for [a, b, c, d, low, high, ip @ ..] in entries {
            let rank = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            let ip = IpAddr::V6(Ipv6Addr::from(*ip)).to_canonical();
            addresses.insert(rank, SocketAddr::new(ip, u16::from_le_bytes([*low, *high])));
        }
        let shape = Self::of(parents, addresses);
        // Every rank with a place leads to the root, so that nobody waits in a circle.
        let placed = (0..size).filter(|&rank| shape.has(rank)).count();
        (rest.is_empty() && shape.subtree_bounded() == Some(placed)).then_some(shape)
    }

    /// Returns the number of ranks reached from the root; `None` if there is a cycle.
    fn subtree_bounded(&self) -> Option<usize> {
        let mut seen = vec![false; self.size()];
        let mut list = vec![ROOT];
        while let Some(rank) = list.pop() {
            if std::mem::replace(&mut seen[rank], true) {
                return None;
            }
            list.extend(&self.children[rank]);
        }
        Some(seen.into_iter().filter(|seen| *seen).count())
    }
}

/// Marks a rank without a place, instead of a parent.
const ABSENT: u32 = u32::MAX;

/// Length of an address, bytes.
const ENTRY: usize = 4 + 2 + 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `size` ranks, `per_host` to a host, assigned in turn.
    fn hosts(size: usize, per_host: usize) -> Vec<Option<SocketAddr>> {
        let hosts = size.div_ceil(per_host);
        let address = |rank: usize| SocketAddr::from(([10, 0, 0, (rank % hosts) as u8], 1000 + rank as u16));
        (0..size).map(|rank| (rank > 0).then(|| address(rank))).collect()
    }

    proptest! {
        #[test]
        fn every_rank_has_one_way_to_the_root(size in 1usize..200, fan_out in 1usize..9, gone in proptest::collection::vec(1usize..200, 0..20)) {
            let mut shape = Shape::new(&hosts(size, 3), fan_out);
            prop_assert_eq!(shape.subtree(ROOT).len(), size);
            prop_assert!((0..size).all(|rank| shape.children(rank).len() <= fan_out));
            for rank in gone.into_iter().filter(|rank| *rank < size) {
                if shape.has(rank) { shape.remove(rank) } else { shape.raise(rank) }
                let placed = (0..size).filter(|&rank| shape.has(rank)).count();
                prop_assert_eq!(shape.subtree(ROOT).len(), placed);
                let told = Shape::decode(&shape.encode(), size).expect("our own");
                prop_assert_eq!(&told.parents, &shape.parents);
                for rank in (1..size).filter(|&rank| !shape.children(rank).is_empty() && shape.parent(rank) != rank) {
                    prop_assert_eq!(told.address(rank), shape.address(rank));
                }
            }
        }

        #[test]
        fn other_bytes_are_refused_or_are_a_tree(bytes in proptest::collection::vec(0u8..6, 0..60)) {
            if let Some(shape) = Shape::decode(&bytes, 3) {
                prop_assert!((0..3).all(|rank| shape.depth(rank) < 3));
            }
        }
    }

    #[test]
    fn ranks_of_a_host_are_one_below_the_other() {
        let (hosts, shape) = (hosts(64, 8), Shape::new(&hosts(64, 8), 8));
        let host = |rank: Rank| hosts[rank].map(|address| address.ip());
        let between =
            (1..64).filter(|&rank| shape.parent(rank) != ROOT && host(rank) != host(shape.parent(rank))).count();
        assert!(between <= 8, "{between} ranks have a parent on another host");
        assert!((1..64).all(|rank| shape.depth(rank) <= 2));
    }

    #[test]
    fn who_was_below_a_lost_rank_is_reached_past_it() {
        let shape = Shape::new(&hosts(15, 1), 2);
        let lost = shape.children(ROOT)[0];
        let tops = shape.tops(&|rank| rank != lost);
        let mut expected = [shape.children(lost), &shape.children(ROOT)[1..]].concat();
        expected.sort_unstable();
        assert_eq!(tops, expected);
        assert_eq!((shape.height(ROOT), shape.height(lost), shape.depth(lost)), (3, 2, 1));
        assert!(!shape.reach(ROOT, &|rank| rank != lost).contains(&shape.children(lost)[0]));
    }
}

//! Infers by elimination over counts which process group an operation ran in when the operation
//! does not say.
//!
//! This applies to events that carry only a name and a shape. With n_g operations of one signature
//! in group g, rank r must have seen c_r = Σ n_g over the groups g that contain r. A rank with one
//! unknown group determines it (n_g is the rest of c_r), a rank with no operations left determines
//! all its groups (n_g = 0), and this repeats until nothing changes. Example: groups [0,1,2,3] and
//! [0,2]. With counts 10, 10, 10, 10, ranks 1 and 3 are only in the world group, so it performed 10
//! and none remain for [0,2]; the operations are paired by order. With counts 20, 10, 20, 10, the
//! world group performed 10 and [0,2] performed 10, but nothing says WHICH of rank 0's twenty
//! belong to the world group: they are ambiguous.
//!
//! It does not guess an interleaving from times: two patterns can both be causally feasible, and a
//! wrong one would blame correct clocks.

use std::collections::{BTreeMap, BTreeSet};

use super::NodeCollectives;

/// A process group, as nodes of the list that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Name and ranks, for display.
    label: String,
    /// Indexes into the list of nodes, ascending; members without a trace are left out.
    members: Vec<usize>,
}

/// All groups that the traces list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Groups {
    groups: Vec<Group>,
    /// The members of some group are unknown.
    incomplete: bool,
    nodes: usize,
}

impl Groups {
    /// The union of the groups that all nodes list.
    pub(super) fn new(nodes: &[NodeCollectives<'_>]) -> Self {
        let place: BTreeMap<u32, usize> = nodes.iter().enumerate().map(|(at, node)| (node.rank(), at)).collect();
        let mut seen = BTreeSet::new();
        let mut found = Self { nodes: nodes.len(), ..Self::default() };
        for (at, node) in nodes.iter().enumerate() {
            for key in node.groups {
                let members = match (&key.ranks, key.size) {
                    (Some(ranks), _) if !ranks.is_empty() => {
                        ranks.iter().filter_map(|r| place.get(r).copied()).collect()
                    }
                    (_, Some(1)) => vec![at],
                    (_, Some(size)) if size as usize == nodes.len() => (0..nodes.len()).collect(),
                    _ => {
                        found.incomplete = true;
                        continue;
                    }
                };
                let members: BTreeSet<usize> = members.into_iter().collect();
                // Groups of one that only their size tells apart are as many as their ranks.
                let single = if key.ranks.is_none() && key.size == Some(1) { Some(at) } else { None };
                if seen.insert((&key.name, key.ranks.as_ref(), single)) {
                    let ranks = key.ranks.as_ref().map_or_else(String::new, |ranks| format!(" {ranks:?}"));
                    found
                        .groups
                        .push(Group { label: format!("{}{ranks}", key.name), members: members.into_iter().collect() });
                }
            }
        }
        found
    }

    /// Whether an operation without a group can only have run in the one existing group.
    pub(super) fn only_one(&self) -> bool {
        self.groups.len() == 1 && !self.incomplete
    }

    /// The members of the one existing group, as indices of nodes.
    pub(super) fn only(&self) -> Option<&[usize]> {
        self.only_one().then(|| &self.groups[0].members[..])
    }

    /// The groups in which operations of one signature can be paired by order, as places of nodes;
    /// or why they cannot.
    pub(super) fn assign(&self, counts: &[usize]) -> Result<Vec<Vec<usize>>, String> {
        if self.groups.is_empty() || self.incomplete {
            let even = counts.iter().all(|count| *count == counts[0]);
            return if self.incomplete {
                Err("the members of some process group are not listed".to_owned())
            } else if even {
                Ok(vec![(0..self.nodes).collect()])
            } else {
                Err(format!("{}, so some belong to a group that no trace names", told(counts)))
            };
        }
        let Some(settled) = self.settle(counts) else {
            return Err(format!("{}, which the listed process groups cannot explain", told(counts)));
        };
        let busy = |group: &usize| settled[*group] != Some(0);
        let active: Vec<usize> = (0..self.groups.len()).filter(busy).collect();
        for node in 0..self.nodes {
            let mixed: Vec<usize> =
                active.iter().copied().filter(|&g| self.groups[g].members.contains(&node)).collect();
            if mixed.len() > 1 {
                let labels: Vec<&str> = mixed.iter().map(|&g| self.groups[g].label.as_str()).collect();
                let groups = labels.join(" and ");
                return Err(format!("{}: any of the process groups {groups} may have issued it", told(counts)));
            }
        }
        Ok(active.into_iter().map(|group| self.groups[group].members.clone()).collect())
    }

    /// The number of operations of each group, if the counts determine it; `None` if they
    /// contradict the groups.
    fn settle(&self, counts: &[usize]) -> Option<Vec<Option<usize>>> {
        let mut left = counts.to_vec();
        let mut settled: Vec<Option<usize>> = vec![None; self.groups.len()];
        let mut of_node: Vec<Vec<usize>> = vec![Vec::new(); self.nodes];
        for (group, Group { members, .. }) in self.groups.iter().enumerate() {
            members.iter().for_each(|&node| of_node[node].push(group));
        }
        // Each pass settles a group or ends the search.
        for _ in 0..=self.groups.len() {
            let mut moved = false;
            for node in 0..self.nodes {
                let unknown: Vec<usize> = of_node[node].iter().copied().filter(|&g| settled[g].is_none()).collect();
                if unknown.is_empty() || (unknown.len() > 1 && left[node] > 0) {
                    continue;
                }
                moved = true;
                for group in unknown {
                    let done = left[node];
                    settled[group] = Some(done);
                    for &member in &self.groups[group].members {
                        left[member] = left[member].checked_sub(done)?;
                    }
                }
            }
            if !moved {
                break;
            }
        }
        let open = |node: usize| of_node[node].iter().any(|&group| settled[group].is_none());
        (0..self.nodes).all(|node| left[node] == 0 || open(node)).then_some(settled)
    }
}

/// The counts in words.
fn told(counts: &[usize]) -> String {
    let shown: Vec<String> = counts.iter().take(COUNTS_SHOWN).map(usize::to_string).collect();
    let more = if counts.len() > COUNTS_SHOWN { ", …" } else { "" };
    format!("the nodes issued {}{more} of them", shown.join(", "))
}

/// Counts that a reason spells out.
const COUNTS_SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(nodes: usize, members: &[&[usize]]) -> Groups {
        let group = |m: &&[usize]| Group { label: format!("{m:?}"), members: m.to_vec() };
        Groups { groups: members.iter().map(group).collect(), incomplete: false, nodes }
    }

    fn check(groups: &Groups, counts: &[usize], expected: Option<&[&[usize]]>) {
        let found = groups.assign(counts);
        let expected = expected.map(|sets| sets.iter().map(|set| set.to_vec()).collect::<Vec<_>>());
        assert_eq!(found.clone().ok(), expected, "{counts:?}: {found:?}");
    }

    #[test]
    fn counts_settle_groups_or_leave_them_open() {
        let world: &[usize] = &[0, 1, 2, 3];
        let pair: &[usize] = &[0, 2];
        let trap = groups(4, &[world, pair]);
        check(&trap, &[10, 10, 10, 10], Some(&[world]));
        check(&trap, &[10, 0, 10, 0], Some(&[pair]));
        check(&trap, &[20, 10, 20, 10], None);
        check(&trap, &[20, 10, 10, 10], None);
        check(&trap, &[5, 10, 5, 10], None);
        let halves = groups(4, &[world, &[0, 1], &[2, 3]]);
        check(&halves, &[10, 10, 10, 10], None);
        check(&halves, &[10, 10, 0, 0], Some(&[&[0, 1]]));
        check(&halves, &[10, 10, 7, 7], None);
        let twins = groups(2, &[&[0, 1], &[0, 1]]);
        check(&twins, &[4, 4], None);
        check(&groups(2, &[&[0, 1], &[0]]), &[5, 5], Some(&[&[0, 1]]));
        check(&groups(2, &[&[0, 1], &[0]]), &[6, 5], None);
        check(&groups(3, &[]), &[3, 3, 3], Some(&[&[0, 1, 2]]));
        check(&groups(3, &[]), &[3, 2, 3], None);
        check(&Groups { incomplete: true, ..groups(2, &[&[0, 1]]) }, &[3, 3], None);
    }
}

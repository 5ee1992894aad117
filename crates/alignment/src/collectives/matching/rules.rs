//! The assumptions of matching about groups and kinds, and its degree of caution.

use probe_sync_formats::model::{CollectiveKind, GroupKey};

use crate::collectives::NodeCollectives;

/// How cautious matching is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MatchOptions {
    /// Pair all-reduces without a group by count, although several groups may exist.
    pub reductions_by_count: bool,
    /// Most parts of one execution or number held at once.
    pub held_max: usize,
}

impl Default for MatchOptions {
    fn default() -> Self {
        Self { reductions_by_count: false, held_max: PARTS_MAX }
    }
}

/// The members of a group, from the event or otherwise from the lists of the ranks that show it, if
/// they agree.
pub(super) fn members<'c>(
    nodes: &'c [NodeCollectives<'_>],
    group: &'c GroupKey,
    places: &[usize],
) -> Option<&'c [u32]> {
    let listed = |place: usize| {
        let of_name = nodes[place].groups.iter().find(|listed| listed.name == group.name);
        of_name.and_then(|listed| listed.ranks.as_deref())
    };
    let (first, rest) = places.split_first()?;
    let members = group.ranks.as_deref().or_else(|| listed(*first))?;
    let agreed = group.ranks.is_some() || rest.iter().all(|place| listed(*place) == Some(members));
    agreed.then_some(members)
}

/// Whether the nodes that show a group's operation can be that group.
pub(super) fn membership(
    nodes: &[NodeCollectives<'_>],
    group: &GroupKey,
    places: &[usize],
) -> Result<(), &'static str> {
    match (members(nodes, group, places), group.size) {
        (Some(ranks), _) => {
            let outside = places.iter().any(|&place| !ranks.contains(&nodes[place].rank()));
            if outside { Err("it appears on ranks outside its process group") } else { Ok(()) }
        }
        // Groups of one name may exist side by side; only a full one is surely one.
        (None, Some(size)) if size as usize == places.len() => Ok(()),
        (None, None) if places.len() == nodes.len() => Ok(()),
        (None, _) => Err("the members of its process group are not listed"),
    }
}

/// Whether a kind implies an order.
pub(super) fn is_ordered(kind: &CollectiveKind) -> bool {
    match kind {
        CollectiveKind::AllToAll | CollectiveKind::FromRoot(Some(_)) | CollectiveKind::ToRoot(Some(_)) => true,
        CollectiveKind::PointToPoint { source, destination } => source.is_some() && destination.is_some(),
        CollectiveKind::FromRoot(None) | CollectiveKind::ToRoot(None) | CollectiveKind::Unknown => false,
    }
}

/// `all_reduce`, `AllReduce`, `all-reduce`.
pub(super) fn is_reduction(signature: &str) -> bool {
    let plain: String = signature.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).collect();
    plain.to_ascii_lowercase().contains("allreduce")
}

/// Most parts of one execution or number held at once: 400 MB.
const PARTS_MAX: usize = 1 << 22;

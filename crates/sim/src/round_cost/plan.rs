//! The message plan of a round for every topology: who sends how much to whom.
//!
//! Every rank sends at most one message towards the root, once it has those of all ranks below it,
//! and passes on what it receives.
//!
//! The tree is that of `probe_sync_collective`: the first of a list is the parent of the first of
//! each of its K parts, and so on within the parts.

use super::model::{FRAME, Mode, RoundModel, Topology};

/// Who sends how much to whom. Rank 0 is the root.
pub(super) struct Plan {
    /// By rank: the rank it sends its part to; itself at the root, and if it sends none.
    pub gather_to: Vec<usize>,
    /// By rank: number of parts it receives.
    pub gather_from: Vec<usize>,
    /// By rank: the bytes of its part, including those of all ranks below it.
    pub gather_bytes: Vec<usize>,
    /// By rank: the ranks it passes the decision on to.
    pub deliver_to: Vec<Vec<usize>>,
    /// By rank: the bytes it receives, including those for all ranks below it.
    pub deliver_bytes: Vec<usize>,
}

impl Plan {
    pub fn new(model: &RoundModel) -> Self {
        let up = parents(model);
        let down = match model.topology {
            Topology::Leaders => leaders_back(model),
            Topology::Star | Topology::Tree { .. } | Topology::Regions { .. } => up.clone(),
        };
        let (gather_to, gather_from, gather_bytes) = gather(model, &up);
        let mut deliver_to = vec![Vec::new(); model.ranks];
        (1..model.ranks).for_each(|rank| deliver_to[down[rank]].push(rank));
        let deliver_bytes = deliver(model, &down);
        Self { gather_to, gather_from, gather_bytes, deliver_to, deliver_bytes }
    }

    /// The longest path from the root to a rank.
    pub fn hops(&self) -> usize {
        let mut ahead = vec![(0, 0)];
        let mut longest = 0;
        while let Some((rank, hops)) = ahead.pop() {
            longest = longest.max(hops);
            ahead.extend(self.deliver_to[rank].iter().map(|&below| (below, hops + 1)));
        }
        longest
    }
}

/// By rank: its parent on the way to the root.
fn parents(model: &RoundModel) -> Vec<usize> {
    let ranks = model.ranks;
    match model.topology {
        Topology::Star => vec![0; ranks],
        Topology::Tree { fan_out } => tree(ranks, fan_out),
        Topology::Regions { ranks: of_region } => {
            (0..ranks).map(|rank| if rank % of_region == 0 { 0 } else { rank - rank % of_region }).collect()
        }
        Topology::Leaders => (0..ranks).map(|rank| if leads(model, rank) { 0 } else { leader(model, rank) }).collect(),
    }
}

fn tree(ranks: usize, fan_out: usize) -> Vec<usize> {
    let mut parents = vec![0; ranks];
    let mut lists = vec![(0, ranks)];
    while let Some((head, end)) = lists.pop() {
        let rest = end - head - 1;
        let part = rest.div_ceil(fan_out).max(1);
        for first in (head + 1..end).step_by(part) {
            parents[first] = head;
            lists.push((first, (first + part).min(end)));
        }
    }
    parents
}

/// A binomial tree of the leaders, with each host's ranks below its leader.
fn leaders_back(model: &RoundModel) -> Vec<usize> {
    let per_host = model.ranks_per_host;
    let back = |rank: usize| {
        let host = rank / per_host;
        // Without the highest bit, as MPI_Bcast does from rank 0.
        let above = if host == 0 { 0 } else { host & !(1 << host.ilog2()) };
        if leads(model, rank) { above * per_host } else { leader(model, rank) }
    };
    (0..model.ranks).map(back).collect()
}

fn leads(model: &RoundModel, rank: usize) -> bool {
    rank.is_multiple_of(model.ranks_per_host)
}

fn leader(model: &RoundModel, rank: usize) -> usize {
    rank - rank % model.ranks_per_host
}

/// Whether a rank has a window to send: one rank of a node, unless every rank is asked, as in a
/// round without a master over these backends.
fn takes_part(model: &RoundModel, rank: usize) -> bool {
    model.mode == Mode::Timed || model.ranks_per_host >= model.ranks || leads(model, rank)
}

/// Plans the data sent towards the root.
fn gather(model: &RoundModel, parents: &[usize]) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
    let ranks = model.ranks;
    let window = |rank: usize| {
        let of_node = model.ranks_per_host >= ranks || leads(model, rank);
        if of_node { model.sizes.window } else { 0 }
    };
    let bundles = matches!(model.topology, Topology::Tree { .. });
    let (mut bytes, mut parts): (Vec<usize>, Vec<bool>) =
        ((0..ranks).map(window).collect(), (0..ranks).map(|rank| takes_part(model, rank)).collect());
    let (mut to, mut from) = ((0..ranks).collect::<Vec<_>>(), vec![0; ranks]);
    // Parents have lower numbers than their children in every topology.
    for rank in (1..ranks).rev() {
        let parent = parents[rank];
        if !parts[rank] {
            continue;
        }
        to[rank] = parent;
        from[parent] += 1;
        parts[parent] = true;
        if bundles {
            bytes[parent] += bytes[rank] + FRAME;
        }
    }
    if matches!(model.topology, Topology::Leaders) && model.mode == Mode::Timed {
        // A leader sends what its host's ranks have put side by side.
        (0..ranks).filter(|&rank| leads(model, rank)).for_each(|rank| bytes[rank] += from[rank] * FRAME);
    }
    bytes.iter_mut().for_each(|bytes| *bytes += model.sizes.header);
    (to, from, bytes)
}

/// Plans the parts of the decision sent to each rank.
fn deliver(model: &RoundModel, parents: &[usize]) -> Vec<usize> {
    let told = model.told();
    let mut bytes = vec![told; model.ranks];
    // In a tree each rank's own frame passes through those above it; what is the same for all
    // passes once.
    if matches!(model.topology, Topology::Tree { .. }) && model.mode == Mode::Master {
        for rank in (1..model.ranks).rev() {
            if parents[rank] != 0 {
                bytes[parents[rank]] += bytes[rank] + FRAME;
            }
        }
    }
    bytes.iter_mut().for_each(|bytes| *bytes += model.sizes.header);
    bytes
}

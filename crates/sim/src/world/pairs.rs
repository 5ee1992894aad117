//! A map from ordered pairs of nodes: per sender a short list, sorted by receiver.
//!
//! Nodes talk to some ten others; a binary search in such a list beats hashing the pair, and the
//! order of iteration is the pairs' own.

use probe_sync_time::NodeId;

/// Values for ordered pairs of nodes.
#[derive(Clone, Debug)]
pub(crate) struct PairMap<T> {
    by_sender: Vec<Vec<(NodeId, T)>>,
}

impl<T> PairMap<T> {
    /// An empty map for `nodes` nodes.
    pub(crate) fn new(nodes: u32) -> Self {
        Self { by_sender: (0..nodes).map(|_| Vec::new()).collect() }
    }

    /// The value of the pair, created on first use.
    pub(crate) fn entry(&mut self, from: NodeId, to: NodeId, make: impl FnOnce() -> T) -> &mut T {
        let list = &mut self.by_sender[from.index()];
        let place = match list.binary_search_by_key(&to, |(receiver, _)| *receiver) {
            Ok(place) => place,
            Err(place) => {
                list.insert(place, (to, make()));
                place
            }
        };
        &mut list[place].1
    }

    /// All values, in order of the pairs.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = ((NodeId, NodeId), T)> {
        let lists = (0..).map(NodeId).zip(self.by_sender);
        lists.flat_map(|(from, list)| list.into_iter().map(move |(to, value)| ((from, to), value)))
    }
}

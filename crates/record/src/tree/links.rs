//! Links between related events of different threads: a launch and its work on a device, a forward
//! call and its backward call.
//!
//! A device's event identifies its launch by the correlation id; a backward call identifies its
//! forward call by the sequence number and the forward call's thread. It does not compare times.

use std::collections::HashMap;

use super::{FORWARD_THREAD, SEQUENCE_NUMBER, Tree};
use crate::kind::Kind;
use crate::read::What;

/// An event on another track than that of a thread, such as of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Foreign {
    /// Name of the track, such as "GPU 0 stream 7".
    pub track: String,
    /// Name of the event.
    pub name: String,
    /// Start and end, on the clock of the trees.
    pub span: [i64; 2],
    /// Id of its launch.
    pub correlation: u64,
}

/// A node: the index of its tree, and its own.
pub type At = (usize, usize);

/// Pairs of events across threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Links {
    /// For each device event, in the order given: the innermost scope with its id.
    pub launches: Vec<Option<At>>,
    /// For device events in the recording itself: the launch, and the event.
    pub device_events: Vec<(At, At)>,
    /// Number of device events without a launch in the recording.
    pub device_alone: u64,
    /// Forward and backward calls.
    pub backward: Vec<(At, At)>,
    /// Number of backward calls without a forward call in the recording.
    pub backward_alone: u64,
}

impl Links {
    /// Finds all links of a recording.
    pub fn of(trees: &[Tree], foreign: &[Foreign]) -> Self {
        let mut by_id: HashMap<u64, At> = HashMap::new();
        let mut forward: HashMap<(u64, i64), At> = HashMap::new();
        for (tree_at, tree) in trees.iter().enumerate().filter(|(_, tree)| tree.device.is_none()) {
            for (at, node) in tree.nodes.iter().enumerate() {
                let What::Scope { id, .. } = node.what else { continue };
                // Children come before the scope around them, which may have the same id.
                by_id.entry(id).or_insert((tree_at, at));
                if node.kind != Kind::Backward
                    && let Some(sequence) = node.number(&SEQUENCE_NUMBER)
                {
                    // The outermost call with the number is the one that the user wrote.
                    forward.insert((tree.tid, sequence), (tree_at, at));
                }
            }
        }
        let launches = foreign.iter().map(|event| by_id.get(&event.correlation).copied()).collect();
        let mut links = Self { launches, ..Self::default() };
        for (tree_at, tree) in trees.iter().enumerate().filter(|(_, tree)| tree.device.is_some()) {
            for (at, node) in tree.nodes.iter().enumerate() {
                let What::Scope { id: id @ 1.., .. } = node.what else { continue };
                match by_id.get(&id) {
                    Some(launch) => links.device_events.push((*launch, (tree_at, at))),
                    None => links.device_alone += 1,
                }
            }
        }
        for (tree_at, tree) in trees.iter().enumerate() {
            for (at, node) in tree.nodes.iter().enumerate().filter(|(_, node)| node.kind == Kind::Backward) {
                let Some(sequence) = node.number(&SEQUENCE_NUMBER) else { continue };
                let thread = node.number(&FORWARD_THREAD).and_then(|tid| u64::try_from(tid).ok()).unwrap_or(tree.tid);
                match forward.get(&(thread, sequence)) {
                    Some(found) => links.backward.push((*found, (tree_at, at))),
                    None => links.backward_alone += 1,
                }
            }
        }
        links
    }
}

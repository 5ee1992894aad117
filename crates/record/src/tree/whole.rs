//! A whole thread's tree in memory, for consumers that need random access.
//!
//! Exporters need each event only once and use [`super::walk`] instead.

use std::collections::HashMap;

use super::{Item, Placed, walk};
use crate::error::Error;
use crate::kind::Kind;
use crate::read::{ArgumentValue, Recording, Thread, Track, What};

/// An event in a tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name of the event.
    pub name: String,
    /// Kind of the event.
    pub kind: Kind,
    /// Content of the event, in ticks.
    pub what: What,
    /// True if the recording ended before the event did.
    pub open: bool,
    /// Its place, on the caller's clock.
    pub placed: Placed,
    /// Index of the enclosing scope in [`Tree::nodes`]; `None` at the outermost level, or if that
    /// scope was lost.
    pub parent: Option<usize>,
    /// Arguments of the event.
    pub arguments: Vec<(String, ArgumentValue)>,
}

/// All events of a thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// Serial number of the thread in the recording.
    pub serial: u32,
    /// Thread id of the system.
    pub tid: u64,
    /// The device queue that it represents, if it is not a thread of the program.
    pub device: Option<Track>,
    /// Events in the order of their ends: children before the enclosing scope.
    pub nodes: Vec<Node>,
}

impl Tree {
    /// Reads all events of a thread. `clock` maps ticks to the requested clock, and must keep their
    /// order.
    ///
    /// # Errors
    /// Errors of [`Recording::visit`].
    pub fn of(recording: &Recording, thread: &Thread, clock: impl FnMut(u64) -> i64) -> Result<Self, Error> {
        let device = thread.device.clone();
        let mut tree = Self { serial: thread.serial, tid: thread.tid, device, nodes: Vec::new() };
        walk(recording, thread, clock, |item, placed| {
            let mut arguments = Vec::new();
            item.each_argument(|key, value| arguments.push((key.to_owned(), value.clone())));
            let open = matches!(item, Item::Open(..));
            let (name, kind, what) = (item.name().to_owned(), item.kind(), item.what());
            tree.nodes.push(Node { name, kind, what, open, placed: *placed, parent: None, arguments });
            Ok::<(), Error>(())
        })?;
        let places: HashMap<u64, usize> =
            tree.nodes.iter().enumerate().map(|(at, node)| (node.placed.number, at)).collect();
        for node in &mut tree.nodes {
            node.parent = node.placed.parent.and_then(|number| places.get(&number).copied());
        }
        Ok(tree)
    }

    /// Returns the direct children of a scope, or the outermost level, as indices into
    /// [`Self::nodes`].
    pub fn children(&self, parent: Option<usize>) -> impl Iterator<Item = usize> {
        self.nodes.iter().enumerate().filter(move |(_, node)| node.parent == parent).map(|(at, _)| at)
    }
}

impl Node {
    /// Returns the value of the first argument that has one of these names, as an integer.
    pub fn number(&self, names: &[&str]) -> Option<i64> {
        let found = self.arguments.iter().find(|(key, _)| names.contains(&key.as_str()))?;
        match &found.1 {
            ArgumentValue::Integer(value) => Some(*value),
            ArgumentValue::Unsigned(value) => i64::try_from(*value).ok(),
            _ => None,
        }
    }
}

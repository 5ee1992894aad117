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
    /// What it is called.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// What happened, in ticks.
    pub what: What,
    /// The recording ended before it did.
    pub open: bool,
    /// Where it stands, on the caller's clock.
    pub placed: Placed,
    /// The scope around it, by its place in [`Tree::nodes`]; None at the outermost level, or where
    /// that scope was lost.
    pub parent: Option<usize>,
    /// Its arguments.
    pub arguments: Vec<(String, ArgumentValue)>,
}

/// All events of a thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// The thread, by its number in the recording.
    pub serial: u32,
    /// The system's number of it.
    pub tid: u64,
    /// The queue of a device that it stands for, if it is no thread of the program.
    pub device: Option<Track>,
    /// Events in the order of their ends: children before the scope around them.
    pub nodes: Vec<Node>,
}

impl Tree {
    /// Reads a thread whole. `clock` puts ticks on the wanted clock, and must not turn their order
    /// round.
    ///
    /// # Errors
    /// Those of [`Recording::visit`].
    pub fn of(recording: &Recording, thread: &Thread, clock: impl FnMut(u64) -> i64) -> Result<Self, Error> {
        let device = thread.device.clone();
        let mut tree = Self { serial: thread.serial, tid: thread.tid, device, nodes: Vec::new() };
        walk(recording, thread, clock, |item, placed| {
            let mut arguments = Vec::new();
            item.each_argument(|key, value| arguments.push((key.to_owned(), value.clone())));
            let open = matches!(item, Item::Open(_));
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

    /// What is directly within a scope, or on the outermost level, by places in [`Self::nodes`].
    pub fn children(&self, parent: Option<usize>) -> impl Iterator<Item = usize> {
        self.nodes.iter().enumerate().filter(move |(_, node)| node.parent == parent).map(|(at, _)| at)
    }
}

impl Node {
    /// The value of the first argument that has one of these names, as a whole number.
    pub fn number(&self, names: &[&str]) -> Option<i64> {
        let found = self.arguments.iter().find(|(key, _)| names.contains(&key.as_str()))?;
        match &found.1 {
            ArgumentValue::Integer(value) => Some(*value),
            ArgumentValue::Unsigned(value) => i64::try_from(*value).ok(),
            _ => None,
        }
    }
}

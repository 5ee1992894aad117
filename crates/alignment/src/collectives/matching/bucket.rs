//! Buckets: the parts of all nodes that may belong together, as streams.
//!
//! A bucket holds the parts of one instance and kind whose programs state the same replica groups.
//! Each node has one lane in it, or one per device if its trace distinguishes devices. Lanes are
//! read in step, so only one number or one turn is held at a time.

use std::collections::BTreeMap;

use probe_sync_formats::model::parts::{Cursor, StoredPart};
use probe_sync_formats::model::{CollectiveKind, Device, Instance, Label, Replicas};

use super::operation::Part;
use crate::collectives::NodeCollectives;

/// What the parts of a bucket have in common.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key<'a> {
    pub(super) instance: &'a Instance,
    pub(super) kind: &'a CollectiveKind,
}

/// Lanes that are not open yet: by node and device, their labels and how many parts they have.
#[derive(Default)]
pub(super) struct Lanes(BTreeMap<(usize, Option<Device>), (Vec<u32>, u64)>);

/// All buckets, in order: by the replica groups that the programs state.
pub(super) fn buckets<'a>(nodes: &'a [NodeCollectives<'a>]) -> BTreeMap<Key<'a>, BTreeMap<&'a Replicas, Lanes>> {
    let mut found: BTreeMap<Key<'a>, BTreeMap<&'a Replicas, Lanes>> = BTreeMap::new();
    for (place, node) in nodes.iter().enumerate() {
        for (number, label, count) in node.parts.labels() {
            let of_key = found.entry(Key { instance: &label.instance, kind: &label.kind }).or_default();
            let lanes = of_key.entry(&label.replicas).or_default();
            let (numbers, parts) = lanes.0.entry((place, label.device)).or_default();
            numbers.push(number);
            *parts += count;
        }
    }
    found
}

impl Lanes {
    /// Number of parts of all lanes.
    pub(super) fn parts(&self) -> u64 {
        self.0.values().map(|(_, parts)| parts).sum()
    }

    /// The nodes and devices that have a lane, in order.
    pub(super) fn devices(&self) -> impl Iterator<Item = (usize, Option<Device>)> {
        self.0.keys().copied()
    }

    /// Every lane with the numbers of its labels, and its number of parts.
    pub(super) fn labels(&self) -> impl Iterator<Item = ((usize, Option<Device>), &[u32], u64)> {
        self.0.iter().map(|(lane, (labels, parts))| (*lane, &labels[..], *parts))
    }

    /// The nodes that have parts, in order.
    pub(super) fn places(&self) -> Vec<usize> {
        let mut places: Vec<usize> =
            self.labels().filter(|(.., parts)| *parts > 0).map(|((place, _), ..)| place).collect();
        places.dedup();
        places
    }

    /// Number of operations that a node shows: parts on the lane with the most.
    pub(super) fn count(&self, place: usize) -> usize {
        self.labels().filter(|((of, _), ..)| *of == place).map(|(.., parts)| parts as usize).max().unwrap_or(0)
    }

    /// Opens every lane.
    pub(super) fn open<'a>(&self, nodes: &'a [NodeCollectives<'a>]) -> Bucket<'a> {
        let lanes = self.0.iter().map(|((place, _), (labels, parts))| Lane {
            place: *place,
            parts: *parts as usize,
            turn: 0,
            labels: labels.iter().map(|&number| nodes[*place].parts.label(number)).collect(),
            cursor: nodes[*place].parts.cursor(labels),
        });
        Bucket { nodes, lanes: lanes.collect() }
    }
}

/// Lanes being read.
pub(super) struct Bucket<'a> {
    nodes: &'a [NodeCollectives<'a>],
    /// In order of node, then device.
    lanes: Vec<Lane<'a>>,
}

struct Lane<'a> {
    place: usize,
    /// Number of parts at the beginning.
    parts: usize,
    /// Position of the next part in the common order.
    turn: u64,
    labels: Vec<&'a Label>,
    cursor: Cursor<'a>,
}

impl<'a> Bucket<'a> {
    /// The smallest remaining number.
    pub(super) fn smallest(&self) -> Option<i64> {
        self.lanes.iter().filter_map(|lane| lane.cursor.peek()).map(|part| part.number).min()
    }

    /// All parts of a number, unless there are more than `most`: then some are left.
    pub(super) fn take(&mut self, number: i64, most: usize) -> Option<Vec<Part<'a>>> {
        let mut parts = Vec::new();
        for lane in &mut self.lanes {
            while lane.cursor.peek().is_some_and(|part| part.number == number) {
                if parts.len() == most {
                    return None;
                }
                parts.extend(lane.cursor.next().map(|part| named(self.nodes, lane.place, &part)));
            }
        }
        Some(parts)
    }

    /// Skips the rest of a number, after [`Self::take`] gave up. Returns the most on one node, and
    /// the total, including those taken.
    pub(super) fn skip(&mut self, number: i64, taken: usize) -> (usize, usize) {
        let (mut most, mut all) = (taken, taken);
        for lane in &mut self.lanes {
            let mut of_lane = 0;
            while lane.cursor.peek().is_some_and(|part| part.number == number) {
                lane.cursor.next();
                of_lane += 1;
            }
            (most, all) = (most.max(of_lane), all + of_lane);
        }
        (most, all)
    }

    /// The nodes that have parts, in order.
    pub(super) fn places(&self) -> Vec<usize> {
        let mut places: Vec<usize> = self.lanes.iter().filter(|lane| lane.parts > 0).map(|lane| lane.place).collect();
        places.dedup();
        places
    }

    /// Labels of the parts.
    pub(super) fn labels(&self) -> impl Iterator<Item = &'a Label> {
        self.lanes.iter().flat_map(|lane| lane.labels.iter().copied())
    }

    /// Number of operations that a node shows, at the beginning: parts on the lane with the most.
    pub(super) fn count(&self, place: usize) -> usize {
        self.lanes.iter().filter(|lane| lane.place == place).map(|lane| lane.parts).max().unwrap_or(0)
    }

    /// The lanes of these nodes, taken out.
    pub(super) fn split(&mut self, places: &[usize]) -> Bucket<'a> {
        let of_set = |lane: &mut Lane<'a>| places.contains(&lane.place);
        let lanes = self.lanes.extract_if(.., of_set).collect();
        Bucket { nodes: self.nodes, lanes }
    }

    /// Sets the position in the common order of each node's first part.
    pub(super) fn begin_at(&mut self, firsts: &BTreeMap<u32, u64>) {
        for lane in &mut self.lanes {
            lane.turn = firsts.get(&self.nodes[lane.place].node).copied().unwrap_or(0);
        }
    }

    /// The next position in the common order, its parts, and whether on some lane the following
    /// part begins before it has ended; `None` at the end.
    pub(super) fn next_turn(&mut self) -> Option<(u64, Vec<Part<'a>>, bool)> {
        let open = self.lanes.iter().filter(|lane| lane.cursor.peek().is_some());
        let turn = open.map(|lane| lane.turn).min()?;
        let (mut parts, mut overlaps) = (Vec::new(), false);
        for lane in self.lanes.iter_mut().filter(|lane| lane.turn == turn) {
            let Some(part) = lane.cursor.next() else { continue };
            lane.turn += 1;
            overlaps |= lane.cursor.peek().is_some_and(|next| next.start_ps < part.end_ps);
            parts.push(named(self.nodes, lane.place, &part));
        }
        Some((turn, parts, overlaps))
    }

    /// Skips the rest and returns how many there were.
    pub(super) fn drain(&mut self) -> usize {
        let mut passed = 0;
        for lane in &mut self.lanes {
            while lane.cursor.next().is_some() {
                passed += 1;
            }
        }
        passed
    }

    /// Parts that could not be read back.
    pub(super) fn unread(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.cursor.unread()).sum()
    }
}

/// A part of a node, with its label.
fn named<'a>(nodes: &'a [NodeCollectives<'a>], node: usize, part: &StoredPart) -> Part<'a> {
    let StoredPart { label, start_ps, end_ps, ordinal, recipients, .. } = *part;
    Part { node, label: nodes[node].parts.label(label), start_ps, end_ps, ordinal, recipients }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::testing::{Node, all, hlo, with};

    #[test]
    fn more_parts_of_one_number_than_are_held_are_passed_over_and_counted() {
        let of = |numbers: &[i64]| Node::new(numbers.iter().map(|&number| all(hlo("psum.7", number), 0, 5)).collect());
        with(&[of(&[1, 1, 1, 2]), of(&[2, 1, 1, 1, 1])], |nodes| {
            let found = buckets(nodes);
            assert_eq!((found.len(), found.values().map(BTreeMap::len).sum::<usize>()), (1, 1));
            let lanes = found.values().flat_map(BTreeMap::values).next().expect("lanes");
            assert_eq!((lanes.parts(), lanes.devices().collect::<Vec<_>>()), (9, vec![(0, None), (1, None)]));
            let mut bucket = lanes.open(nodes);
            assert_eq!((bucket.smallest(), bucket.places()), (Some(1), vec![0, 1]));
            assert_eq!((bucket.count(0), bucket.count(1), bucket.labels().count()), (4, 5, 2));
            // Two are taken, then one is left on the first node and four on the second.
            assert_eq!(bucket.take(1, 2), None);
            assert_eq!(bucket.skip(1, 2), (4, 7));
            assert_eq!((bucket.smallest(), bucket.skip(7, 1)), (Some(2), (1, 1)));
            let last = bucket.take(2, 2).expect("no more than two");
            assert_eq!(last.iter().map(|part| part.node).collect::<Vec<_>>(), [0, 1]);
            assert_eq!((bucket.smallest(), bucket.drain(), bucket.unread()), (None, 0, 0));
        });
    }
}

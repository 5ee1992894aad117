//! The operations from which offsets are estimated, as each node's start and end on its own clock.

use std::collections::BTreeMap;

use probe_sync_formats::model::{PS_PER_NS, Picoseconds};

use crate::collectives::NodeCollectives;
use crate::collectives::matching::{Operation, Order};

/// One node's stay in an operation on its own clock, ns.
#[derive(Copy, Clone, Debug)]
pub(super) struct Visit {
    pub(super) node: usize,
    /// The latest start of its parts, rounded down.
    pub(super) start: i64,
    /// The earliest end, rounded up.
    pub(super) end: i64,
}

/// The operations used: all, or evenly spread ones if all would not fit into memory. Bounds remain
/// certain with fewer of them; they only become wider.
pub(super) struct Used {
    /// Most stays held.
    pub(super) most: usize,
    pub(super) visits: Vec<Vec<Visit>>,
    /// Operations that imply less order; those that would not fit into memory are left out.
    pub(super) directed: Vec<Ordered>,
    held_directed: usize,
    pub(super) held: usize,
    pub(super) seen: usize,
    /// One in this many is used, a power of two.
    pub(super) step: u32,
}

impl Used {
    pub(super) fn new(most: usize) -> Self {
        Self { most, visits: Vec::new(), directed: Vec::new(), held_directed: 0, held: 0, seen: 0, step: 0 }
    }

    pub(super) fn take(&mut self, nodes: &[NodeCollectives<'_>], operation: &Operation<'_>) {
        if operation.order != Order::AllToAll {
            if let Some(stays) = visits(nodes, operation).filter(|_| self.held_directed < self.most) {
                self.held_directed += stays.len();
                self.directed.push(Ordered { order: operation.order.clone(), stays });
            }
            return;
        }
        self.seen += 1;
        if !(self.seen - 1).is_multiple_of(1 << self.step) {
            return;
        }
        let Some(stays) = visits(nodes, operation) else { return };
        self.held += stays.len();
        self.visits.push(stays);
        if self.held > self.most {
            self.step += 1;
            let mut place = 0;
            self.visits.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.held = self.visits.iter().map(Vec::len).sum();
        }
    }
}

/// Which ranks must not end before which have begun, and all stays.
#[derive(Clone, Debug)]
pub(super) struct Ordered {
    pub(super) order: Order,
    pub(super) stays: Vec<Visit>,
}

/// The stays of an operation's nodes; `None` if a time is out of range.
fn visits(nodes: &[NodeCollectives<'_>], operation: &Operation<'_>) -> Option<Vec<Visit>> {
    let mut found: BTreeMap<usize, (Picoseconds, Picoseconds)> = BTreeMap::new();
    for part in &operation.parts {
        let map = nodes[part.node].map;
        let (start, end) = (map(part.start_ps).at, map(part.end_ps).at);
        let stay = found.entry(part.node).or_insert((start, end));
        *stay = (stay.0.max(start), stay.1.min(end));
    }
    let visit = |(node, (start, end)): (usize, (Picoseconds, Picoseconds))| {
        let end = -((-end).div_euclid(PS_PER_NS));
        Some(Visit { node, start: bounded(start.div_euclid(PS_PER_NS))?, end: bounded(end)? })
    };
    found.into_iter().map(visit).collect()
}

/// Times whose differences fit into i64.
fn bounded(ns: i128) -> Option<i64> {
    i64::try_from(ns).ok().filter(|ns| ns.unsigned_abs() < TIME_MAX_NS)
}

/// Times beyond this many ns from the epoch (146 years) are refused, so that differences fit into
/// i64.
const TIME_MAX_NS: u64 = 1 << 62;

/// Most stays held: 100 MB.
pub(super) const VISITS_MAX: usize = 1 << 22;

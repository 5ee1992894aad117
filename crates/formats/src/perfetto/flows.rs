//! Flows: which event of one is the first and which the last, and what tells it from the flows of other
//! traces.
//!
//! The events of a flow are connected in the order of their times, which is not that of the file: a
//! thread's events stand together. After an event that ends a flow, its number stands for another one; an
//! event that ends a flow that has not begun has no arrow. Launches are connected to stages of GPUs by
//! numbers of their own.

use std::collections::HashSet;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::chunk::{Flow, FlowEnd};

/// The flows of a trace. Both passes over it show the same events in the same order.
#[derive(Debug, Default)]
pub(super) struct Flows {
    /// In the first pass: number, time, place in the file, and whether it ends the flow.
    stated: Vec<(u64, i64, u32, bool)>,
    /// By place in the file: which use of the number it is, and which end; `None` without an arrow.
    ends: Vec<Option<(u32, FlowEnd)>>,
    next: usize,
    launched: HashSet<u64, FixedState>,
    pub(super) left_out: u64,
}

impl Flows {
    /// Adds an event of a flow in the first pass.
    pub(super) fn add(&mut self, (number, is_last): (u64, bool), at_ns: i64) {
        if self.stated.len() < FLOWS_MAX {
            self.stated.push((number, at_ns, self.stated.len() as u32, is_last));
        } else {
            self.left_out += 1;
        }
    }

    /// Adds a launch of the stage of a GPU in the first pass.
    pub(super) fn launch(&mut self, stage: u64) {
        if stage != 0 && self.launched.len() < FLOWS_MAX {
            self.launched.insert(stage);
        }
    }

    /// Ends the first pass.
    pub(super) fn connect(&mut self) {
        let mut stated = std::mem::take(&mut self.stated);
        self.ends = vec![None; stated.len()];
        stated.sort_unstable_by_key(|(number, at_ns, place, _)| (*number, *at_ns, *place));
        for flow in stated.chunk_by(|one, other| one.0 == other.0) {
            let (mut uses, mut last) = (0, None);
            for (_, _, place, is_last) in flow {
                let place = *place as usize;
                self.ends[place] = match (last, is_last) {
                    (None, true) => continue,
                    (None, false) => Some((uses, FlowEnd::Out)),
                    (Some(_), true) => Some((uses, FlowEnd::In)),
                    (Some(_), false) => Some((uses, FlowEnd::Step)),
                };
                last = Some(place).filter(|_| !is_last);
                uses += u32::from(*is_last);
            }
            // A flow that nothing ends does so at its last event.
            if let Some((_, end @ FlowEnd::Step)) = last.and_then(|place| self.ends[place].as_mut()) {
                *end = FlowEnd::In;
            }
        }
    }

    /// Returns the end of a flow that the next event has in the second pass.
    pub(super) fn end(&mut self, part: u32, number: u64) -> Option<Flow> {
        let end = self.ends.get(self.next).copied().flatten();
        self.next += 1;
        end.map(|(uses, end)| Flow { id: FixedState::with_seed(0).hash_one((part, number, uses)).max(1), end })
    }

    /// Returns an end of the flow from a launch to the stage of a GPU with this number, if there is one.
    pub(super) fn of_stage(&self, part: u32, stage: u64, end: FlowEnd) -> Option<Flow> {
        let id = || FixedState::with_seed(0).hash_one((part, "stage", stage)).max(1);
        self.launched.contains(&stage).then(|| Flow { id: id(), end })
    }
}

/// Events of flows that are remembered, and launches: 24 bytes each.
const FLOWS_MAX: usize = 1 << 24;

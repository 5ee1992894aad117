//! Flows: which event of one is the first and which the last, and what tells it from the flows of other
//! traces.
//!
//! The events of a flow are connected in the order of their times. After an event that ends a flow, its
//! number stands for another one.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::chunk::{Flow, FlowEnd};

/// The flows of a trace. Both passes over it show the same events in the same order.
#[derive(Debug, Default)]
pub(super) struct Flows {
    /// How often a number was used before.
    uses: HashMap<u64, u32, FixedState>,
    /// By number and use: the first and the last time, ns.
    spans: HashMap<(u64, u32), (i64, i64), FixedState>,
}

impl Flows {
    /// Adds an event of a flow in the first pass.
    pub(super) fn add(&mut self, flow: (u64, bool), at_ns: i64) {
        let key = self.key(flow);
        if let Some((first_ns, last_ns)) = self.spans.get_mut(&key) {
            (*first_ns, *last_ns) = ((*first_ns).min(at_ns), (*last_ns).max(at_ns));
        } else if self.spans.len() < FLOWS_MAX {
            self.spans.insert(key, (at_ns, at_ns));
        }
    }

    /// Begins the second pass.
    pub(super) fn restart(&mut self) {
        self.uses.clear();
    }

    /// Returns the end of a flow that an event has in the second pass.
    pub(super) fn end(&mut self, part: u32, flow: (u64, bool), at_ns: i64) -> Flow {
        let key = self.key(flow);
        let end = match self.spans.get(&key) {
            Some((first_ns, last_ns)) if first_ns < last_ns && at_ns == *first_ns => FlowEnd::Out,
            Some((_, last_ns)) if at_ns == *last_ns => FlowEnd::In,
            _ if flow.1 => FlowEnd::In,
            _ => FlowEnd::Step,
        };
        Flow { id: FixedState::with_seed(0).hash_one((part, key)).max(1), end }
    }

    /// The number of a flow, and which use of it this is.
    fn key(&mut self, (number, is_last): (u64, bool)) -> (u64, u32) {
        let uses = self.uses.get(&number).copied().unwrap_or_default();
        if is_last {
            self.uses.insert(number, uses + 1);
        }
        (number, uses)
    }
}

/// Returns an end of the flow from a launch to the stage of a GPU with this number.
pub(super) fn of_stage(part: u32, stage: u64, end: FlowEnd) -> Flow {
    Flow { id: FixedState::with_seed(0).hash_one((part, "stage", stage)).max(1), end }
}

/// Flows whose first and last events are remembered.
const FLOWS_MAX: usize = 1 << 24;

//! Flows in Kineto's form: small numbers, and a category that says what they join.
//!
//! Readers join ends of the same number and category, and the category depends on both ends: `ac2g`
//! from the host to a device, `fwdbwd` between a call and its backward call, `flow` otherwise. The
//! first end of a flow therefore waits for the second. Numbers count from 1, because readers and
//! `merge` expect small ones. If there are many flows, waiting ends and numbers are forgotten,
//! oldest first, which bounds the memory; an end that arrives later then belongs to a new flow.

use probe_sync_formats::chunk::FlowEnd;

use super::remembered::Remembered;

/// One end of a flow, on its slice.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// Which end.
    pub(super) end: FlowEnd,
    /// Start of the slice, ns.
    pub(super) at: i64,
    /// Pid and tid of the slice.
    pub(super) on: (i64, i64),
    /// Kind of its slice.
    pub(super) side: Side,
}

/// Kind of the slice of an end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// An event on the host.
    Host,
    /// A host call that launches or enqueues.
    Runtime,
    /// A backward call on the host.
    Backward,
    /// An event on a device.
    Device,
}

/// A flow as it is written.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// Its number.
    pub(super) number: u32,
    /// Its category and its name.
    pub(super) category: &'static str,
}

/// All flows that are remembered.
#[derive(Debug, Default)]
pub(super) struct Flows {
    known: Remembered<Known>,
    numbered: u32,
}

#[derive(Copy, Clone, Debug)]
enum Known {
    /// One end was seen, and is not written yet.
    Waiting(u32, End),
    /// Its category is known.
    Decided(Written),
}

impl Flows {
    /// Adds an end; passes everything that can be written now to `write`.
    pub(super) fn take(&mut self, id: u64, end: End, write: &mut impl FnMut(Written, &End)) {
        match self.known.get_mut(id) {
            Some(Known::Decided(flow)) => write(*flow, &end),
            Some(known) => {
                let Known::Waiting(number, first) = *known else { return };
                let flow = Written { number, category: category(first.side, end.side) };
                *known = Known::Decided(flow);
                write(flow, &first);
                write(flow, &end);
            }
            None => {
                self.numbered = self.numbered.wrapping_add(1).max(1);
                if let Some(forgotten) = self.known.insert(id, Known::Waiting(self.numbered, end)) {
                    forgotten.alone(write);
                }
            }
        }
    }

    /// Passes all ends that still wait to `write`.
    pub(super) fn finish(&mut self, write: &mut impl FnMut(Written, &End)) {
        while let Some(known) = self.known.forget() {
            known.alone(write);
        }
    }
}

impl Known {
    /// Passes on an end without a counterpart.
    fn alone(self, write: &mut impl FnMut(Written, &End)) {
        if let Self::Waiting(number, end) = self {
            write(Written { number, category: category(end.side, end.side) }, &end);
        }
    }
}

/// Category of a flow between these; for a single end both are the same.
fn category(first: Side, second: Side) -> &'static str {
    match (first, second) {
        (Side::Device, Side::Device) => "flow",
        (Side::Device, _) | (_, Side::Device) | (Side::Runtime, Side::Runtime) => "ac2g",
        (Side::Backward, _) | (_, Side::Backward) => "fwdbwd",
        _ => "flow",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids and sides of ends, and the output: number, category, time.
    fn check(known_max: usize, ends: &[(u64, Side)], expected: &[(u32, &str, i64)]) {
        let mut flows = Flows { known: Remembered::with_bound(known_max), numbered: 0 };
        let mut found = Vec::new();
        let mut write = |flow: Written, end: &End| found.push((flow.number, flow.category, end.at));
        for (at, (id, side)) in (0..).zip(ends) {
            flows.take(*id, End { end: FlowEnd::Out, at, on: (0, 0), side: *side }, &mut write);
        }
        flows.finish(&mut write);
        assert_eq!(found, expected, "{ends:?}");
    }

    #[test]
    fn the_second_end_says_what_a_flow_joins() {
        use Side::*;
        check(9, &[(7, Host), (7, Device)], &[(1, "ac2g", 0), (1, "ac2g", 1)]);
        check(9, &[(7, Host), (8, Host), (8, Backward)], &[(2, "fwdbwd", 1), (2, "fwdbwd", 2), (1, "flow", 0)]);
        check(9, &[(7, Runtime), (7, Host), (7, Device)], &[(1, "flow", 0), (1, "flow", 1), (1, "flow", 2)]);
        check(9, &[(7, Device), (7, Device), (u64::MAX, Runtime)], &[(1, "flow", 0), (1, "flow", 1), (2, "ac2g", 2)]);
    }

    #[test]
    fn the_oldest_is_forgotten_and_still_written() {
        use Side::*;
        let ends = [(1, Runtime), (2, Runtime), (3, Runtime), (1, Device), (3, Device)];
        let expected = [(1, "ac2g", 0), (2, "ac2g", 1), (3, "ac2g", 2), (3, "ac2g", 4), (4, "flow", 3)];
        check(2, &ends, &expected);
    }
}

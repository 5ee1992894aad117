//! Held-out clocks for checking clocks that were estimated from the operations themselves: each
//! operation is judged by clocks estimated from the other half of them.
//!
//! `check` uses them with `--from-collectives`. Operations that hold on clocks estimated from them
//! prove little; operations that hold on clocks estimated without them do. `align` and `merge`
//! still use clocks estimated from all operations.

use std::collections::HashSet;

use probe_sync_formats::model::Picoseconds;

use crate::calibrate::{as_offsets, offsets_of_collectives};
use crate::calibrated::{Calibrated, CalibratedTrace};
use crate::clocks::{NodeClock, Snapshots, Timeline, node_clock};
use crate::collectives::{Half, MapTime, MatchOptions, Pairing, match_operations};
use crate::nodes::{self, NodeTrace};

/// What each half of the operations says about the clocks.
pub(crate) struct HeldOut {
    /// By half, then in the order of the traces.
    clocks: [Vec<NodeClock>; 2],
    /// Starts and ends of the operations of the other half, on their own timelines.
    others: HashSet<Picoseconds>,
}

impl HeldOut {
    /// Learns the clocks from each half; `None` if they were not learned from collectives, or if
    /// one half is insufficient for all traces.
    pub(crate) fn learn(calibrated: &Calibrated, pairing: &Pairing) -> Option<Self> {
        let found = calibrated.collectives.as_ref()?;
        let traces: Vec<&NodeTrace> = calibrated.traces.iter().map(|of| &of.trace).collect();
        let snapshots: Vec<Option<&Snapshots>> = calibrated.traces.iter().map(|of| of.snapshots.as_ref()).collect();
        let learnt = |half: Half| -> Option<Vec<NodeClock>> {
            let found =
                offsets_of_collectives(&traces, &snapshots, Some(found.max_rate_change_ppm), Some(half)).ok()?;
            let offsets = as_offsets(&found);
            let clock = |(trace, pairs): (&&NodeTrace, &Option<&Snapshots>)| {
                node_clock(&trace.facts, &offsets, trace.rank_part, *pairs, Timeline::Host).ok()
            };
            traces.iter().zip(&snapshots).map(clock).collect()
        };
        let clocks = [learnt(Half::One)?, learnt(Half::Other)?];
        let maps: Vec<_> = calibrated.traces.iter().map(CalibratedTrace::look).collect();
        let mut others = HashSet::new();
        nodes::with_collectives(&traces, &maps, |nodes| {
            match_operations(nodes, pairing, MatchOptions::default(), &mut |operation| {
                if Half::Other.holds(operation) && others.len() < TIMES_MAX {
                    others.extend(operation.parts.iter().flat_map(|part| [part.start_ps, part.end_ps]));
                }
            })
        });
        (others.len() < TIMES_MAX).then_some(Self { clocks, others })
    }

    /// Maps the times of a trace, by its index, to the clock that was learned without their
    /// operation.
    pub(crate) fn look(&self, place: usize) -> Box<MapTime<'_>> {
        Box::new(move |at| self.clocks[usize::from(!self.others.contains(&at))][place].look(at))
    }
}

/// Most times held: 128 MB.
const TIMES_MAX: usize = 1 << 22;

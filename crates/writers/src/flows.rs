//! Flow ends that wait for the slice they belong to.
//!
//! A flow end that was recorded separately belongs to the innermost slice that begins at its time
//! on its track. Only ends of one time wait, so little is stored. It does not join the two ends of
//! a flow.

use probe_sync_formats::chunk::{Chunk, Flow, Slices, TrackId};

/// Ends of one time.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    time_ns: i64,
    ends: Vec<(TrackId, Flow)>,
    /// Ends at a time at which no slice began on their track.
    unbound: u64,
}

impl Waiting {
    /// Sets the present time: ends at an earlier time get no slice any more.
    #[inline]
    pub(super) fn at(&mut self, time_ns: i64) {
        if time_ns != self.time_ns {
            self.unbound += self.ends.len() as u64;
            self.ends.clear();
            self.time_ns = time_ns;
        }
    }

    /// Adds one.
    pub(super) fn add(&mut self, chunk: &Chunk, row: usize) {
        self.ends.push((chunk.flows.track[row], chunk.flows.flow[row]));
    }

    /// Moves the ends of a slice to `taken`, including its own; none of the others if a slice
    /// within it begins with it.
    #[inline]
    pub(super) fn take(&mut self, slices: &Slices, row: usize, taken: &mut Vec<Flow>) {
        taken.clear();
        if slices.flow[row].id != 0 {
            taken.push(slices.flow[row]);
        }
        if !self.ends.is_empty() && is_innermost(slices, row) {
            let track = slices.track[row];
            self.ends.retain(|(of, flow)| {
                if *of == track {
                    taken.push(*flow);
                }
                *of != track
            });
        }
    }

    /// Number of ends without a slice.
    pub(super) fn finish(&mut self) -> u64 {
        self.unbound += self.ends.len() as u64;
        self.ends.clear();
        self.unbound
    }
}

/// Whether no later slice of the track begins at the same time.
fn is_innermost(slices: &Slices, row: usize) -> bool {
    let (track, start) = (slices.track[row], slices.start_ns[row]);
    let same_start = (row + 1..slices.track.len()).take_while(|&later| slices.start_ns[later] == start);
    same_start.into_iter().all(|later| slices.track[later] != track)
}

//! Removes rows from a chunk's tables.
//!
//! Texts and arguments that no remaining row uses stay in the chunk.

use super::{Counters, FlowPoints, Instants, Slices};

impl Slices {
    /// Keeps the rows for which `stays` is true.
    pub fn retain(&mut self, stays: &[bool]) {
        let Self { track, start_ns, end_ns, name, category, flow, args } = self;
        column(track, stays);
        column(start_ns, stays);
        column(end_ns, stays);
        column(name, stays);
        column(category, stays);
        column(flow, stays);
        column(args, stays);
    }
}

impl Instants {
    /// As [`Slices::retain`].
    pub fn retain(&mut self, stays: &[bool]) {
        let Self { track, time_ns, name, category, args } = self;
        column(track, stays);
        column(time_ns, stays);
        column(name, stays);
        column(category, stays);
        column(args, stays);
    }
}

impl Counters {
    /// As [`Slices::retain`].
    pub fn retain(&mut self, stays: &[bool]) {
        let Self { track, time_ns, value } = self;
        column(track, stays);
        column(time_ns, stays);
        column(value, stays);
    }
}

impl FlowPoints {
    /// As [`Slices::retain`].
    pub fn retain(&mut self, stays: &[bool]) {
        let Self { track, time_ns, flow } = self;
        column(track, stays);
        column(time_ns, stays);
        column(flow, stays);
    }
}

fn column<T>(values: &mut Vec<T>, stays: &[bool]) {
    let mut rows = stays.iter();
    values.retain(|_| rows.next().copied().unwrap_or(false));
}

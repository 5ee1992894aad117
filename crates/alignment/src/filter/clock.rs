//! The position of a trace's times on the reference clock.
//!
//! Unlike the times that are written, the times it maps do not enter the statistics.

use probe_sync_estimate::series::TimeMap;
use probe_sync_formats::model::{Picoseconds, UNIX_TIME_MIN_PS, nearest_ns};

use crate::calibrated::CalibratedTrace;

/// From a trace's timeline to the reference clock.
#[derive(Debug)]
pub(super) struct Clock {
    map: TimeMap,
    raw: Option<TimeMap>,
}

impl Clock {
    pub(super) fn of(trace: &CalibratedTrace) -> Self {
        let raw = trace.clock.as_ref().and_then(|clock| clock.raw.as_ref()).map(|raw| raw.map.clone());
        Self { map: trace.map.clone().unwrap_or_else(TimeMap::identity), raw }
    }

    pub(super) fn ps(&self, time: Picoseconds) -> Picoseconds {
        let raw = self.raw.as_ref().filter(|_| time < UNIX_TIME_MIN_PS);
        raw.unwrap_or(&self.map).map(time).time_ps
    }

    pub(super) fn ns(&self, time: Picoseconds) -> Option<i64> {
        nearest_ns(self.ps(time))
    }
}

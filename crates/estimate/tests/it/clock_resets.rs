//! Two streams of 115 clock offsets with a reset of the streams' clock (xdf-modules example file,
//! MIT): the machine that was measured restarted its clock between two readings, and the series
//! must say between which.

use probe_sync_estimate::series::smooth::{Reading, smooth};
use probe_sync_estimate::series::{Axis, KnownBreaks, OffsetSample, TimeMap};

use crate::support::measured;
use crate::xdf::{ClockOffset, clock_offsets};

/// Readings before the reset.
const BEFORE: usize = 82;

fn streams() -> Option<Vec<Vec<ClockOffset>>> {
    let streams: Vec<_> = clock_offsets(&measured("clock_resets.xdf")?).into_values().collect();
    assert_eq!(streams.iter().map(Vec::len).collect::<Vec<_>>(), [115, 115]);
    for stream in &streams {
        // The file itself: the stream's clock goes back here and nowhere else.
        let back: Vec<_> = (1..stream.len()).filter(|k| stream[*k].time < stream[*k - 1].time).collect();
        assert_eq!(back, [BEFORE]);
    }
    Some(streams)
}

fn ns(seconds: f64) -> f64 {
    seconds * 1e9
}

/// Finds the only break and returns between which of the clock's own readings it lies.
fn check(stream: &[ClockOffset], axis: Axis) {
    let samples: Vec<OffsetSample> = stream
        .iter()
        .map(|reading| {
            let at_ns = ns(if axis == Axis::Own { reading.time } else { reading.time + reading.offset }) as i64;
            // The stream's clock minus the recorder's.
            OffsetSample::bare(at_ns, ns(-reading.offset))
        })
        .collect();
    let found = TimeMap::from_offsets(&samples, axis, &KnownBreaks::default()).expect("offsets");
    let breaks = found.map.breaks();
    // Half of the readings repeat the one before to the digit, the others scatter by fifty
    // microseconds.
    assert_eq!((found.used, found.dropped, breaks.len()), (115, 0, 1), "{axis:?} {breaks:?}");
    let microseconds = |ps: i128, seconds: f64| (ps as f64 * 1e-6 - seconds * 1e6).abs();
    let (last, first) = (stream[BEFORE - 1].time, stream[BEFORE].time);
    assert!(microseconds(breaks[0].last_before_ps, last) < 1.0, "{axis:?} {breaks:?}");
    assert!(microseconds(breaks[0].first_after_ps, first) < 1.0, "{axis:?} {breaks:?}");
}

#[test]
fn the_reset_is_found_between_the_right_readings_of_both_streams() {
    for stream in streams().iter().flatten() {
        check(stream, Axis::Own);
        check(stream, Axis::Reference);
    }
}

#[test]
fn the_smoothed_curve_breaks_at_the_reset_too() {
    for stream in streams().iter().flatten() {
        let start = stream[0];
        let readings: Vec<Reading> = stream
            .iter()
            .map(|reading| Reading {
                x_ns: ns(reading.time + reading.offset - start.time - start.offset),
                value_ns: ns(start.offset - reading.offset),
                relative_sigma: 1.0,
                one_sided: false,
            })
            .collect();
        let found = smooth(&readings).expect("readings");
        let lengths: Vec<_> = found.stretches.iter().map(Vec::len).collect();
        assert_eq!(lengths, [BEFORE, 115 - BEFORE]);
    }
}

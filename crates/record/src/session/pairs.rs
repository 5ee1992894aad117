//! Clock pairs, which record the counter and the system clock at one moment.
//!
//! Pairs are taken when a session starts, every period by its helper, before a copy, and at the
//! end. The exporter builds its time map from them.

use std::sync::atomic::Ordering;

use crate::active::core::Core;
use crate::clock::{self, ClockPair, Ticks};
use crate::layout::{MAGIC, PAIR_WORDS, WORD, header};

/// Reads both clocks now, and writes the pair.
pub(super) fn write_now(core: &Core, ticks: Ticks) {
    write(core, clock::pair_on(ticks, &core.virtual_clock));
}

/// Writes a pair into the recording. If there is no room left, every other pair is removed; after a
/// kill meanwhile pairs may be out of order or duplicated, but all are correct.
fn write(core: &Core, pair: ClockPair) {
    // The session's thread, and who takes a copy.
    let _alone = core.pairs.lock();
    let capacity = core.layout.pairs;
    let written = core.header(header::PAIRS_WRITTEN);
    let mut at = written.load(Ordering::Acquire) as usize;
    if at >= capacity {
        for kept in 1..capacity / 2 {
            for place in 0..PAIR_WORDS {
                let moved = word(core, 2 * kept, place).load(Ordering::Relaxed);
                word(core, kept, place).store(moved, Ordering::Relaxed);
            }
        }
        at = capacity / 2;
        written.store(at as u64, Ordering::Release);
    }
    let words = [pair.ticks, pair.system_ns as u64, pair.bracket_ticks];
    let check = words.iter().fold(MAGIC, |check, word| check ^ word);
    for (place, value) in words.into_iter().chain([check]).enumerate() {
        word(core, at, place).store(value, Ordering::Relaxed);
    }
    written.store(at as u64 + 1, Ordering::Release);
}

fn word(core: &Core, pair: usize, place: usize) -> &std::sync::atomic::AtomicU64 {
    core.region.word(core.layout.pairs_at() + (pair * PAIR_WORDS + place) * WORD)
}

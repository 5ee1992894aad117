//! A computing loop with a scope around each piece of work, with and without recording.
//!
//! It measures the effect of recording on real work, including caches and branch predictors. Passes
//! with and without a session alternate in pairs; the figure is the median of the ratios within
//! pairs.

use std::hint::black_box;

use anyhow::Result;
use probe_sync_record::scope;

use crate::measure::{self, Effort, thread_ns};
use crate::ours;
use crate::table::Table;

/// Fills in the rows.
///
/// # Errors
/// A session does not start.
pub fn measure(table: &mut Table, effort: Effort) -> Result<()> {
    let mut data: Vec<u64> = (0..DATA_WORDS as u64).collect();
    let one = per_word(&mut data);
    for (per_second, name, ask) in [(1e5, "work, 10^5 scopes/s", 0.5), (1e6, "work, 10^6 scopes/s", 4.0)] {
        let words = (1e9 / per_second / one) as usize;
        let pieces = (PASS_NS / (1e9 / per_second)) as usize;
        let mut ratios = Vec::new();
        for pair in 0..4 * effort.passes {
            let mut took = [0.0; 2];
            for turn in 0..2 {
                // Which comes first turns round.
                let recorded = (pair + turn) % 2 == 0;
                // Begun for both, since taking memory empties caches.
                let session = Some(ours::session()?).filter(|_| recorded);
                // Both find the data where it was, and the thread its part of the session.
                run(&mut data, words, pieces / 10);
                took[usize::from(recorded)] = run(&mut data, words, pieces);
                drop(session);
            }
            ratios.push(took[1] / took[0]);
        }
        table.percent(name, (measure::median(ratios) - 1.0) * 100.0, ask);
    }
    Ok(())
}

/// Time of `pieces` pieces of work, ns.
fn run(data: &mut [u64], words: usize, pieces: usize) -> f64 {
    let before = thread_ns();
    for _ in 0..pieces {
        let _piece = scope!("piece");
        compute(data, words);
    }
    thread_ns() - before
}

/// Mixes words of a table that fits the second cache.
pub fn compute(data: &mut [u64], words: usize) {
    let mut state = data[0];
    for number in 0..words {
        state =
            (state ^ data[(state as usize ^ number) % DATA_WORDS]).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        data[number % DATA_WORDS] = state;
    }
    black_box(state);
}

/// Time of a word, ns.
pub fn per_word(data: &mut [u64]) -> f64 {
    const TRIED: usize = 200_000;
    let pass = |_| {
        let before = thread_ns();
        compute(data, TRIED);
        (thread_ns() - before) / TRIED as f64
    };
    measure::median((0..15).map(pass).collect())
}

/// 64 KiB.
pub const DATA_WORDS: usize = 8 << 10;
/// A pass, ns.
const PASS_NS: f64 = 1e7;

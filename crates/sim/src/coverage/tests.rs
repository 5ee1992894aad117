//! Cells of the coverage table that hold, with fewer runs than the bench `coverage` takes.

use super::*;

/// Many seeds of a cell.
fn pooled(cell: &Cell, seeds: u64) -> Judged {
    let mut pool = Judged::default();
    (1..=seeds).for_each(|seed| pool.pool(&run(cell, seed)));
    pool
}

/// Every edge of a host errs alike: no loop shows it, and no number of edges averages it out.
#[test]
fn what_a_host_adds_one_way_is_within_what_is_stated() {
    let cell = Cell { host: HostAsymmetry::Deviation(0.01), windows: 3, ..Cell::PLAIN };
    let Judged { live, fits, solved } = pooled(&cell, 8);
    for (name, tally) in [("live", live), ("fits", fits), ("solved", solved)] {
        assert!(tally.rms_ns() > 50.0, "{name}: hosts of 50 ns each: {} ns", tally.rms_ns());
        assert!(tally.covered() >= 92.0 && tally.far() <= 0.6, "{name}: {tally:?}");
    }
}

/// A servo that sets a rate each second leaves no line of 4 s; half a minute has packets enough
/// where 4 s have one. Quiet clocks gain nothing and lose nothing.
#[test]
fn a_whole_run_chooses_its_own_windows() {
    let steered = Cell { clock: ClockKind::Steered(0.2), ..Cell::PLAIN };
    let few = Cell { pace_hz: 0.25, windows: 15, ..Cell::PLAIN };
    for (name, cell, times) in [("steered", steered, 3.0), ("few", few, 2.0), ("quiet", Cell::PLAIN, 0.95)] {
        let Judged { fits, solved, .. } = pooled(&cell, 4);
        let [before, after] = [fits, solved].map(|tally| tally.rms_ns());
        assert!(
            before > times * after,
            "{name}: {before} ns from the rounds' own windows, {after} ns from chosen ones"
        );
        assert_eq!(solved.outside, 0, "{name}: hard intervals are those of the rounds");
    }
}

/// Few exchanges: a line through four of them does not know its own error, nor do a few such lines
/// know how asymmetric paths are.
#[test]
fn few_exchanges_state_what_they_do_not_know() {
    let cell = Cell { pace_hz: 0.5, windows: 15, pair_asymmetry_ns: 50.0, ..Cell::PLAIN };
    let Judged { live, fits, solved } = pooled(&cell, 30);
    for (name, tally) in [("live", live), ("fits", fits), ("solved", solved)] {
        assert!(tally.covered() >= 92.0 && tally.far() <= 1.0, "{name}: {tally:?}");
    }
}

/// A servo moves its clock within a window and back before the next: no window's line shows it, the
/// lines of several do.
#[test]
fn clocks_that_are_steered_within_windows_state_it() {
    for ppm in [0.05, 0.2, 1.0] {
        let cell = Cell { clock: ClockKind::Steered(ppm), ..Cell::PLAIN };
        let Judged { live, fits, solved } = pooled(&cell, 6);
        for (name, tally) in [("live", live), ("fits", fits), ("solved", solved)] {
            assert!(tally.covered() >= 92.0 && tally.far() <= 2.5, "{ppm} ppm, {name}: {tally:?}");
        }
    }
}

/// Beyond the last line nothing shows where a clock begins to warm up; that it did so once within
/// the run is what there is to go by.
#[test]
fn beyond_the_last_line_the_chance_of_an_onset_is_stated() {
    for (clock, pace_hz) in [(ClockKind::Onset(1.0), 20.0), (ClockKind::Onset(1.0), 2.0), (ClockKind::Quiet, 20.0)] {
        let cell = Cell { clock, pace_hz, ..Cell::PLAIN };
        let mut tallies = [Tally::default(); 4];
        for seed in 1..=20 {
            let run = run_beyond(&cell, seed, BEYOND_S);
            tallies.iter_mut().zip(&run).for_each(|(tally, other)| tally.pool(other));
        }
        for (after, tally) in BEYOND_S.into_iter().zip(tallies) {
            let [rms, sigma] = [tally.rms_ns(), tally.sigma_ns()];
            println!("{clock:?} {pace_hz} Hz, {after} s: {:.1} %, {rms:.0} ns, sigma {sigma:.0} ns", tally.covered());
        }
        assert!(tallies.iter().all(|tally| tally.covered() >= 92.0), "{clock:?} {pace_hz} Hz: {tallies:?}");
    }
}

const BEYOND_S: [f64; 4] = [0.5, 2.0, 4.0, 8.0];

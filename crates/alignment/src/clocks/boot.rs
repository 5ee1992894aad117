//! Traces on CLOCK_BOOTTIME or CLOCK_MONOTONIC: checks whether the available pairs are of that clock
//! and of the same boot.
//!
//! rocprofiler stamps with CLOCK_BOOTTIME, rocmProfileData with CLOCK_MONOTONIC; both count from
//! boot. Only pairs relate them to wall-clock time, so such a trace is never used unmapped: if no
//! pairs fit, it is refused with advice. Pairs that name another clock are rejected, however close
//! their times are: the two differ by the time that the machine was suspended, the raw clocks by the
//! slew of the system clock. Pairs far from the trace belong to another boot.

use probe_sync_formats::model::{ClockPair, Picoseconds, TraceClock, TraceFacts};

use super::snapshots::Snapshots;

/// Whether the pairs given with a trace on this clock tie it to the system clock; false if there are
/// none.
///
/// # Errors
/// Returns an error if they are of another clock, or far from the trace, with both names or both
/// ranges.
pub(super) fn fit(
    of_trace: TraceClock,
    given: Option<&Snapshots>,
    span: Option<(Picoseconds, Picoseconds)>,
) -> Result<bool, String> {
    let Some(Snapshots { pairs, clock, unrelated, .. }) = given.filter(|given| !given.pairs.is_empty()) else {
        return Ok(false);
    };
    let (kernel, tracer) = (of_trace.kernel_name(), of_trace.tracer_clocks());
    if let Some(clock) = clock.as_ref().filter(|clock| !tracer.contains(&clock.as_str())) {
        return Err(format!(
            "the snapshot pairs are for the clock {clock}, but its times are on {kernel} ({})",
            tracer[0]
        ));
    }
    if let Some(reason) = unrelated {
        return Err(reason.clone());
    }
    let Some(span) = span else { return Ok(true) };
    let readings = || pairs.iter().map(|pair: &ClockPair| pair.tracer_ps);
    let (first, last) = (readings().min().unwrap_or(span.0), readings().max().unwrap_or(span.1));
    let near = span.0 >= first.saturating_sub(REACH_PS) && span.1 <= last.saturating_add(REACH_PS);
    near.then_some(true).ok_or_else(|| {
        format!(
            "its events are from {} on {kernel}, but the snapshot pairs are from {} (and extend {} s further): they are from \
            another boot of the machine or another clock",
            seconds(span),
            seconds((first, last)),
            REACH_PS / SECOND_PS
        )
    })
}

/// Why a trace whose times nothing ties to the system clock is refused; `None` if they are the
/// system clock's, or if there are none.
pub(super) fn refusal(facts: &TraceFacts) -> Option<String> {
    facts.span?;
    match facts.clock {
        TraceClock::System => None,
        clock @ (TraceClock::Boot | TraceClock::Monotonic) => Some(format!(
            "its times are on {}, and nothing relates them to the system clock. {}",
            clock.kernel_name(),
            remedy(clock)
        )),
        TraceClock::SeveralBoot => Some(SEVERAL.to_owned()),
    }
}

fn seconds((first, last): (Picoseconds, Picoseconds)) -> String {
    format!("{:.3} to {:.3} s", first as f64 * 1e-12, last as f64 * 1e-12)
}

/// What would tie such a trace.
pub(super) fn remedy(clock: TraceClock) -> String {
    format!(
        "Give --run-dir of a run with --tracer-clock {}, --snapshots with pairs of that clock, or a trace that contains markers from the \
        program (probe_sync.clock#<ns>); or relate the nodes with --from-collectives alone",
        clock.tracer_clocks()[0]
    )
}

const SEVERAL: &str = "it contains rows from several machines, each on its own CLOCK_BOOTTIME, so no single map fits; give the \
    databases that were merged into it";
/// How far the boot clock is extrapolated beyond the first and last pair: its rate may be off by
/// ppm, which the map states.
const REACH_PS: Picoseconds = 600 * SECOND_PS;
const SECOND_PS: Picoseconds = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use probe_sync_formats::model::PairKind;

    fn pairs(first_s: i128, last_s: i128, clock: Option<&str>) -> Snapshots {
        let pair = |at: i128| ClockPair { tracer_ps: at * SECOND_PS, system_ns: 0, kind: PairKind::Bracketed(100.0) };
        Snapshots { pairs: vec![pair(first_s), pair(last_s)], clock: clock.map(str::to_owned), ..Snapshots::default() }
    }

    #[test]
    fn pairs_of_the_boot_clock_and_of_its_boot_fit() {
        let span = Some((7000 * SECOND_PS, 7010 * SECOND_PS));
        for clock in [None, Some("boottime"), Some("rocprofiler")] {
            assert_eq!(fit(TraceClock::Boot, Some(&pairs(6999, 7011, clock)), span), Ok(true));
        }
        for (first, last, expected) in
            [(6400, 6410, true), (6399, 6409, false), (7600, 7700, true), (7601, 7700, false)]
        {
            assert_eq!(
                fit(TraceClock::Boot, Some(&pairs(first, last, None)), span).is_ok(),
                expected,
                "{first} {last}"
            );
        }
        assert_eq!(fit(TraceClock::Boot, None, span), Ok(false));
        assert_eq!(fit(TraceClock::Boot, Some(&Snapshots::default()), span), Ok(false));
        assert_eq!(fit(TraceClock::Boot, Some(&pairs(1, 2, None)), None), Ok(true));
    }

    #[test]
    fn the_monotonic_clock_needs_pairs_of_its_own() {
        let span = Some((7000 * SECOND_PS, 7010 * SECOND_PS));
        let of = |clock| fit(TraceClock::Monotonic, Some(&pairs(6999, 7011, clock)), span);
        assert_eq!((of(None), of(Some("monotonic"))), (Ok(true), Ok(true)));
        let refused = of(Some("boottime")).expect_err("another clock");
        assert!(refused.ends_with("on CLOCK_MONOTONIC (monotonic)"), "{refused}");
    }

    #[test]
    fn others_are_refused_with_both_names_or_both_ranges() {
        let span = Some((7000 * SECOND_PS, 7010 * SECOND_PS));
        for clock in ["monotonic", "monotonic_raw", "tsc", "cupti"] {
            let refused =
                fit(TraceClock::Boot, Some(&pairs(6999, 7011, Some(clock))), span).expect_err("another clock");
            assert!(refused.contains(&format!("for the clock {clock},")) && refused.contains("boottime"), "{refused}");
        }
        let refused = fit(TraceClock::Boot, Some(&pairs(1, 20, Some("boottime"))), span).expect_err("another boot");
        assert!(refused.contains("7000.000 to 7010.000 s") && refused.contains("1.000 to 20.000 s"), "{refused}");
    }
}

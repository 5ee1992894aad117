//! Planes of a trace that are on a raw clock, which counts from boot: checks whether the available
//! pairs locate that clock in time.
//!
//! A profiler converts its device's times to Unix time before it writes them; if it did not, a
//! plane says 6686 s and means this morning (`formats::xspace` recognizes such planes by their
//! spans). Snapshot pairs of the same clock complete the chain raw clock → system clock →
//! reference. Pairs in the file take precedence over pairs of the run.
//!
//! Three things have to agree before pairs are believed: they are of a clock that profilers stamp
//! devices with, where the file names it; they were taken while the plane was recorded (within
//! [`REACH_PS`]); and they put the plane inside the session that the file states. Raw clocks differ
//! by what one of them was slewed since the machine's start, seconds in a day, and pairs of another
//! one may put a short plane into a long session all the same, at a wrong place: so the name is
//! asked first. Pairs that name no clock (those of the file, and of other samplers) are the
//! profiler's own by their format. Anything else is refused: a note beside times that are decades
//! away is no warning.

use probe_sync_formats::model::{ClockPair, PairKind, Picoseconds, TraceFacts, UNIX_TIME_MIN_PS};

use super::snapshots::Snapshots;

/// The pairs that tie the raw clock of a trace's planes to the system clock, and the name of that
/// clock; none if all planes are on Unix time.
///
/// # Errors
/// Names the plane, its span, the pairs' clock and span, and what to do.
pub(super) fn pairs(facts: &TraceFacts, given: Option<&Snapshots>) -> Result<Snapshots, String> {
    let (Some(first), Some(last)) = (
        facts.since_boot.iter().min_by_key(|plane| plane.span.0),
        facts.since_boot.iter().max_by_key(|plane| plane.span.1),
    ) else {
        return Ok(Snapshots::default());
    };
    let span = (first.span.0, last.span.1);
    let raw = |pairs: &[ClockPair], clock| Snapshots {
        pairs: pairs.iter().filter(|pair| is_raw(pair)).copied().collect(),
        clock,
        ..Snapshots::default()
    };
    let own = raw(&facts.pairs, None);
    let given = given.map_or_else(Snapshots::default, |given| Snapshots {
        unrelated: given.unrelated.clone(),
        ..raw(&given.pairs, given.clock.clone())
    });
    let mut reasons = Vec::new();
    for set in [&own, &given].into_iter().filter(|set| !set.pairs.is_empty()) {
        match unfit(set, span, facts.session) {
            None => return Ok(set.clone()),
            Some(reason) => reasons.push(reason),
        }
    }
    let plane = if [&own, &given].iter().any(|set| covers(&set.pairs, first.span)) { last } else { first };
    let why = if reasons.is_empty() { NO_PAIRS.to_owned() } else { reasons.join(", and ") };
    Err(format!(
        "the plane {} does not use Unix time but a clock that counts from boot ({}), and {why}; give the snapshot pairs of a run that \
        measured that clock at the same time (--run-dir or --snapshots), or trace again with a profiler that converts its times",
        plane.plane,
        seconds(plane.span)
    ))
}

/// Why pairs cannot be of the planes' clock.
fn unfit(
    set: &Snapshots,
    span: (Picoseconds, Picoseconds),
    session: Option<(Picoseconds, Picoseconds)>,
) -> Option<String> {
    let taken = seconds(extent(&set.pairs));
    if let Some(clock) = set.clock.as_ref().filter(|clock| !is_of_profilers(clock)) {
        return Some(format!(
            "the snapshot pairs are for the clock {clock}, but profilers write such planes only on one of {}",
            OF_PROFILERS.join(", ")
        ));
    }
    if set.unrelated.is_some() {
        return set.unrelated.clone();
    }
    if !covers(&set.pairs, span) {
        let reach = REACH_PS / SECOND_PS;
        return Some(format!("the snapshot pairs are from another time ({taken}; they extend {reach} s further)"));
    }
    let is_inside = session.is_some_and(|session| inside(&set.pairs, span, session));
    (!is_inside).then(|| {
        let slack = SESSION_SLACK_PS * 1000 / SECOND_PS;
        format!(
            "the pairs ({taken}) would place it more than {slack} ms outside the session recorded in the file: they are for another \
            clock, or the system clock was stepped in between"
        )
    })
}

/// Whether profilers stamp devices with a clock of this name.
pub(crate) fn is_of_profilers(clock: &str) -> bool {
    OF_PROFILERS.contains(&clock)
}

/// Whether a pair ties a raw clock to the system clock.
pub(super) fn is_raw(pair: &ClockPair) -> bool {
    pair.tracer_ps < UNIX_TIME_MIN_PS && matches!(pair.kind, PairKind::Bracketed(_))
}

/// First and last reading of the raw clock.
fn extent(pairs: &[ClockPair]) -> (Picoseconds, Picoseconds) {
    let readings = || pairs.iter().map(|pair| pair.tracer_ps);
    (readings().min().unwrap_or(0), readings().max().unwrap_or(0))
}

fn covers(pairs: &[ClockPair], span: (Picoseconds, Picoseconds)) -> bool {
    let (first, last) = extent(pairs);
    !pairs.is_empty() && span.0 >= first.saturating_sub(REACH_PS) && span.1 <= last.saturating_add(REACH_PS)
}

/// Whether the pairs put the span into the session, within the usual differences of clocks and
/// profilers.
fn inside(pairs: &[ClockPair], span: (Picoseconds, Picoseconds), session: (Picoseconds, Picoseconds)) -> bool {
    let system = |at: Picoseconds| {
        let nearest = pairs.iter().min_by_key(|pair| (pair.tracer_ps - at).abs());
        nearest.map_or(at, |pair| i128::from(pair.system_ns) * 1000 + at - pair.tracer_ps)
    };
    system(span.0) >= session.0 - SESSION_SLACK_PS && system(span.1) <= session.1 + SESSION_SLACK_PS
}

fn seconds((first, last): (Picoseconds, Picoseconds)) -> String {
    format!("{:.3} to {:.3} s", first as f64 * 1e-12, last as f64 * 1e-12)
}

/// How far a raw clock is extrapolated beyond the first and last pair: its rate may be off by ppm,
/// which the map states.
const REACH_PS: Picoseconds = 600 * SECOND_PS;
/// Possible distance between a plane and its session if the clock is the right one. Beyond the
/// pairs both clocks are assumed to run alike, and the kernel usually slews by no more than 100 ppm
/// relative to a crystal: 60 ms at the reach. The profiler reads the ends of the session some ms
/// from the first and the last event. A clock that differs by more is not the plane's: 30 ppm, as
/// NTP corrects for an ordinary crystal, make 100 ms in an hour since boot.
const SESSION_SLACK_PS: Picoseconds = SECOND_PS / 10;
const SECOND_PS: Picoseconds = 1_000_000_000_000;
/// Clocks by their names in `tracer_clock`: rocprofiler's is CLOCK_BOOTTIME. CLOCK_MONOTONIC stops
/// while the machine sleeps, and CLOCK_MONOTONIC_RAW and the counter are not slewed: seconds apart
/// after some days.
const OF_PROFILERS: [&str; 3] = ["boottime", "rocprofiler", "cupti"];
const NO_PAIRS: &str = "there are no snapshot pairs to convert its times";

#[cfg(test)]
mod tests {
    use super::*;
    use probe_sync_formats::model::PlaneSpan;

    const START_NS: i64 = 1_700_000_000_000_000_000;

    /// The machine was started 3600 s before the session, which lasts 20 s.
    fn facts(first_s: i128, last_s: i128, pairs: Vec<ClockPair>) -> TraceFacts {
        let start = i128::from(START_NS) * 1000;
        let plane = PlaneSpan { plane: "/device:GPU:3".to_owned(), span: (first_s * SECOND_PS, last_s * SECOND_PS) };
        let session = Some((start, start + 20 * SECOND_PS));
        TraceFacts { session, since_boot: vec![plane], pairs, ..TraceFacts::default() }
    }

    fn pair(boot_s: i64, system_s: i64) -> ClockPair {
        let kind = PairKind::Bracketed(100.0);
        let tracer_ps = i128::from(boot_s) * SECOND_PS;
        ClockPair { tracer_ps, system_ns: START_NS + system_s * 1_000_000_000, kind }
    }

    fn of_clock(pairs: &[ClockPair], clock: Option<&str>) -> Snapshots {
        Snapshots { pairs: pairs.to_vec(), clock: clock.map(str::to_owned), ..Snapshots::default() }
    }

    /// The result for pairs of the file and given pairs of a clock; a refusal must contain all
    /// parts.
    fn check(facts: &TraceFacts, given: &Snapshots, expected: Result<&[ClockPair], &[&str]>) {
        match (pairs(facts, Some(given)), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found.pairs, expected),
            (Err(said), Err(parts)) => {
                assert!(parts.iter().all(|part| said.contains(part)), "{said}");
                assert!(said.contains("/device:GPU:3") && said.contains("3601.000 to 3615.000 s"), "{said}");
                assert!(said.contains("--run-dir"), "{said}");
            }
            (found, expected) => panic!("{found:?} for {expected:?}"),
        }
    }

    #[test]
    fn pairs_are_believed_where_they_close_the_loop() {
        let check = |facts: &TraceFacts, given: &[ClockPair], expected: Result<&[ClockPair], &[&str]>| {
            check(facts, &of_clock(given, None), expected);
        };
        let good = [pair(3600, 0), pair(3620, 20)];
        let plane = |pairs: &[ClockPair]| facts(3601, 3615, pairs.to_vec());
        check(&plane(&[]), &good, Ok(&good));
        check(&plane(&good), &[], Ok(&good));
        check(&plane(&good), &[pair(3610, 10)], Ok(&good));
        check(&plane(&[pair(9_000_000, 0)]), &good, Ok(&good));
        // Pairs of the file that contradict the session do not hide those that agree with it.
        check(&plane(&[pair(3600, 9), pair(3620, 29)]), &good, Ok(&good));
        check(&plane(&[]), &[], Err(&["there are no snapshot pairs"]));
        let reach = "from another time (9000.000 to 9000.000 s; they extend 600 s further)";
        check(&plane(&[]), &[pair(9_000, 0)], Err(&[reach]));
        check(
            &plane(&[pair(9_000, 0)]),
            &[pair(3600, 9)],
            Err(&[reach, ", and the pairs (3600.000 to 3600.000 s) would"]),
        );
        check(&plane(&[]), &[pair(3000, -600)], Err(&["from another time"]));
        check(&plane(&[]), &[pair(3016, -584), pair(3020, -580)], Ok(&[pair(3016, -584), pair(3020, -580)]));
        check(&plane(&[]), &[pair(3015, -585)], Ok(&[pair(3015, -585)]));
        check(&plane(&[]), &[pair(3014, -586)], Err(&["from another time"]));
        check(&plane(&[]), &[pair(4201, 601)], Ok(&[pair(4201, 601)]));
        check(&plane(&[]), &[pair(4202, 602)], Err(&["from another time"]));
        let unix = ClockPair { tracer_ps: i128::from(START_NS) * 1000, ..pair(0, 0) };
        check(&plane(&[unix]), &[], Err(&["there are no snapshot pairs"]));
        assert_eq!(pairs(&TraceFacts::default(), Some(&of_clock(&good, None))), Ok(Snapshots::default()));
        let no_session = TraceFacts { session: None, ..plane(&[]) };
        check(&no_session, &good, Err(&["outside the session"]));
    }

    #[test]
    fn pairs_put_a_plane_inside_its_session_to_within_100_ms() {
        let late = |ms: i64| {
            let by = |pair: ClockPair| ClockPair { system_ns: pair.system_ns + ms * 1_000_000, ..pair };
            [by(pair(3600, 0)), by(pair(3620, 20))]
        };
        // From 1 to 15 s of the session of 20 s.
        let plane = facts(3601, 3615, Vec::new());
        for ms in [-1_100, -1_000, 0, 5_000, 5_100] {
            check(&plane, &of_clock(&late(ms), None), Ok(&late(ms)));
        }
        for ms in [-1_101, 5_101, 9_000, 16_000, -12_000] {
            let parts = ["3600.000 to 3620.000 s", "more than 100 ms outside the session", "for another clock"];
            check(&plane, &of_clock(&late(ms), None), Err(&parts));
        }
    }

    #[test]
    fn pairs_of_another_raw_clock_tie_no_plane_however_they_fall() {
        // MONOTONIC_RAW, a day and 2.6 s behind: the plane would lie inside of the session all the
        // same.
        let near = [pair(3600, 3), pair(3620, 23)];
        let plane = facts(3601, 3615, Vec::new());
        for clock in ["boottime", "rocprofiler", "cupti"] {
            check(&plane, &of_clock(&near, Some(clock)), Ok(&near));
            let found = pairs(&plane, Some(&of_clock(&near, Some(clock)))).expect("of a profiler");
            assert_eq!(found.clock.as_deref(), Some(clock));
        }
        for clock in ["monotonic_raw", "monotonic", "tsc", "something new"] {
            let of = format!(
                "for the clock {clock}, but profilers write such planes only on one of boottime, rocprofiler, cupti"
            );
            check(&plane, &of_clock(&near, Some(clock)), Err(&[&of]));
            // The file's own pairs are the profiler's.
            let own = [pair(3600, 0)];
            check(&facts(3601, 3615, own.to_vec()), &of_clock(&near, Some(clock)), Ok(&own));
        }
    }
}

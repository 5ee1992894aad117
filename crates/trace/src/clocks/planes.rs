//! Planes of a trace that are on a raw clock, which counts from the machine's start: whether the pairs at hand tell where it is.
//!
//! Place in the flow: under [`super::node_clock`]. A profiler converts its device's times to Unix time before it writes them;
//! where it did not, a plane says 6686 s and means this morning (`formats::xspace` tells such planes by their spans). Snapshot
//! pairs of the same clock close the loop: raw clock → system clock → reference. Pairs of the file come before pairs of the run.
//!
//! Two things have to agree before pairs are believed: they were taken while the plane was recorded (within [`REACH_PS`]), and
//! they put the plane inside the session that the file states. Anything else is refused: a note beside times that are decades
//! away is no warning. What it does not do: make the map.

use crate::model::{ClockPair, PairKind, Picoseconds, TraceFacts, UNIX_TIME_MIN_PS};

/// The pairs that tie the raw clock of a trace's planes to the system clock; none where all planes are on Unix time.
///
/// # Errors
/// Names the plane, its span, the pairs' span, and what to do.
pub(super) fn pairs(facts: &TraceFacts, given: Option<&[ClockPair]>) -> Result<Vec<ClockPair>, String> {
    let (Some(first), Some(last)) = (
        facts.since_boot.iter().min_by_key(|plane| plane.span.0),
        facts.since_boot.iter().max_by_key(|plane| plane.span.1),
    ) else {
        return Ok(Vec::new());
    };
    let span = (first.span.0, last.span.1);
    let own: Vec<ClockPair> = facts.pairs.iter().filter(|pair| is_raw(pair)).copied().collect();
    let given: Vec<ClockPair> = given.unwrap_or_default().iter().filter(|pair| is_raw(pair)).copied().collect();
    let refuse = |why: &str| {
        let plane = if [&own, &given].iter().any(|pairs| covers(pairs, first.span)) { last } else { first };
        Err(format!(
            "the plane {} is not on Unix time but on a clock that counts from the machine's start ({}), and {why}; give the \
             snapshot pairs of a run that measured beside it on that clock (--run-dir or --snapshots), or trace again with a \
             profiler that converts its times",
            plane.plane,
            seconds(plane.span)
        ))
    };
    match ([&own, &given].into_iter().find(|pairs| covers(pairs, span)), facts.session) {
        (Some(pairs), Some(session)) if !inside(pairs, span, session) => {
            return refuse(&format!(
                "the pairs ({}) would put it outside the session that the file states: they are of another clock",
                seconds(extent(pairs))
            ));
        }
        (Some(pairs), _) => return Ok(pairs.clone()),
        (None, _) => {}
    }
    match [&own[..], &given].concat() {
        none if none.is_empty() => refuse("no snapshot pairs tell what the time was"),
        elsewhere => refuse(&format!("the snapshot pairs are of another time ({})", seconds(extent(&elsewhere)))),
    }
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

/// Whether the pairs put the span into the session, to within what clocks and profilers differ in.
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

/// A raw clock is followed for so long beyond the first and last pair: its rate may be off by ppm, which the map states.
const REACH_PS: Picoseconds = 600_000_000_000_000;
/// Sessions are stated on the system clock, which may be stepped while they last.
const SESSION_SLACK_PS: Picoseconds = 10_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PlaneSpan;

    const SECOND_PS: Picoseconds = 1_000_000_000_000;
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

    #[test]
    fn pairs_are_believed_where_they_close_the_loop() {
        let check = |facts: &TraceFacts, given: &[ClockPair], expected: Result<&[ClockPair], &[&str]>| match (
            pairs(facts, Some(given)),
            expected,
        ) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(said), Err(parts)) => {
                assert!(parts.iter().all(|part| said.contains(part)), "{said}");
                assert!(said.contains("/device:GPU:3") && said.contains("3601.000 to 3615.000 s"), "{said}");
                assert!(said.contains("--run-dir"), "{said}");
            }
            (found, expected) => panic!("{found:?} for {expected:?}"),
        };
        let good = [pair(3600, 0), pair(3620, 20)];
        let plane = |pairs: &[ClockPair]| facts(3601, 3615, pairs.to_vec());
        check(&plane(&[]), &good, Ok(&good));
        check(&plane(&good), &[], Ok(&good));
        check(&plane(&good), &[pair(3610, 10)], Ok(&good));
        check(&plane(&[pair(9_000_000, 0)]), &good, Ok(&good));
        check(&plane(&[]), &[], Err(&["no snapshot pairs tell"]));
        check(&plane(&[]), &[pair(9_000, 0)], Err(&["of another time (9000.000 to 9000.000 s)"]));
        check(&plane(&[]), &[pair(3000, -600)], Err(&["of another time"]));
        check(&plane(&[]), &[pair(3016, -584), pair(3020, -580)], Ok(&[pair(3016, -584), pair(3020, -580)]));
        check(&plane(&[]), &[pair(3600, 9), pair(3620, 29)], Ok(&[pair(3600, 9), pair(3620, 29)]));
        check(&plane(&[]), &[pair(3600, 16), pair(3620, 36)], Err(&["outside the session", "3600.000 to 3620.000 s"]));
        check(&plane(&[]), &[pair(3600, -12), pair(3620, 8)], Err(&["outside the session"]));
        let unix = ClockPair { tracer_ps: i128::from(START_NS) * 1000, ..pair(0, 0) };
        check(&plane(&[unix]), &[], Err(&["no snapshot pairs tell"]));
        assert_eq!(pairs(&TraceFacts::default(), Some(&good)), Ok(Vec::new()));
    }
}

//! A node's time map: tracer clock R → system clock S → reference clock (→ a tracer clock again).
//!
//! [`node_clock`] builds a [`NodeClock`] from facts of a trace, offsets of a run and snapshot
//! pairs; `align` and `merge` send every time through its chain. Signs: `t_ref = t_i − offset_i`.
//!
//! Where brackets around marks show that R is S (`brackets`), that is the map. Where nothing ties R
//! to S, R is taken as S all the same: Kineto's absolute times and XSpace's Unix start are on
//! CLOCK_REALTIME as long as that clock ran evenly during the trace. Kineto fits ONE straight line
//! from the TSC to CLOCK_REALTIME, so under wander or a step only pairs can tell. A trace on the
//! boot clock is never taken so (`boot`).

mod boot;
mod brackets;
mod lines;
mod marks;
mod offsets;
mod pairs;
mod planes;
mod run_directory;
mod snapshots;
mod stretch;
mod survey;
mod wanted;

pub use brackets::MarkBounds;
pub use marks::MarkFiles;
pub(crate) use marks::process;
pub use offsets::Offsets;
pub use pairs::{PairMap, Residuals, map_of_pairs};
pub(crate) use planes::is_of_profilers;
pub use run_directory::RunDirectory;
pub use snapshots::{Snapshots, read_snapshots};
pub use stretch::Span;
pub use survey::Survey;
pub use wanted::Wanted;

use crate::Error;
use probe_sync_estimate::series::{Certainty, MapChain, OffsetMap, Place, TimeMap};
use probe_sync_formats::model::{
    ClockPair, MappedTime, PairKind, Picoseconds, TraceClock, TraceFacts, UNIX_TIME_MIN_PS,
};
use serde::Serialize;

use brackets::Judged;
use pairs::tracer_map;

/// Clock of the aligned times.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub enum Timeline<'a> {
    /// The reference node's system clock.
    #[default]
    Host,
    /// A tracer clock: the one whose map R → S is given (the reference node's, shared by all
    /// nodes), otherwise the node's own, on which nodes are comparable only if their tracer clocks
    /// are.
    Tracer(Option<&'a TimeMap>),
}

/// What ties the trace's timeline to the system clock.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tie {
    /// No evidence; R is taken as S.
    Assumed,
    /// Times read from S itself, as the format says, or brackets around marks of the trace, all
    /// consistent with R = S; R is taken as S.
    SameClock,
    /// Brackets around marks of the trace, all consistent with S plus a constant other than 0.
    SteadyClock,
    /// Snapshot pairs from a sampler's file.
    Snapshots,
    /// Snapshot pairs inside the trace.
    Trace,
    /// Snapshot pairs from both a file and the trace.
    SnapshotsAndTrace,
}

/// Uncertainty of a node's times, ns.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Uncertainty {
    /// Standard deviation in the middle of the trace, ns.
    pub middle_ns: f64,
    /// Largest of the standard deviations at nine points from the beginning to the end of the
    /// trace, ns.
    pub largest_ns: f64,
    /// Amount by which all times may be early, equally on all nodes, ns.
    pub early_by_up_to_ns: f64,
}

/// One node's time map and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeClock {
    /// The node.
    pub node: u32,
    /// Map from the trace's timeline to the requested one.
    pub chain: MapChain,
    /// Map R → S, if pairs gave one.
    pub tracer: Option<TimeMap>,
    /// Map for planes of the trace on a raw clock.
    pub raw: Option<RawClock>,
    /// What ties R to S.
    pub tie: Tie,
    /// Residuals of the pairs.
    pub residuals: Option<Residuals>,
    /// Bounds from the brackets around the trace's marks.
    pub marks: Option<MarkBounds>,
    /// Basis of the offsets' standard deviations; `None` for the reference, which has none.
    pub certainty: Option<Certainty>,
    /// Uncertainty of the times; `None` for a trace without events.
    pub uncertainty: Option<Uncertainty>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The step that is extrapolated in mapping a time to the requested clock.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extrapolated {
    Nothing,
    /// From the trace's clock to its node's system clock, known from pairs.
    Pairs,
    /// From the node's system clock to the reference.
    Offsets,
}

/// Map of planes whose clock counts from boot.
#[derive(Clone, Debug, PartialEq)]
pub struct RawClock {
    /// Map from that clock to the requested one.
    pub map: TimeMap,
    /// Map from that clock to the system clock.
    pub tie: TimeMap,
}

impl NodeClock {
    /// Returns the map for the clock of a time of the trace.
    pub(crate) fn map_of(&self, time: Picoseconds) -> &TimeMap {
        match &self.raw {
            Some(raw) if time < UNIX_TIME_MIN_PS => &raw.map,
            _ => self.chain.whole(),
        }
    }

    /// Returns the map from the clock of a time of the trace to the node's own system clock; `None`
    /// if it is that clock.
    fn tie_of(&self, time: Picoseconds) -> Option<&TimeMap> {
        let raw = self.raw.as_ref().filter(|_| time < UNIX_TIME_MIN_PS);
        raw.map(|raw| &raw.tie).or(self.tracer.as_ref())
    }

    /// Maps a time of the trace to its node's own system clock.
    pub(crate) fn system_ps(&self, time: Picoseconds) -> Picoseconds {
        self.tie_of(time).map_or(time, |tie| tie.map(time).time_ps)
    }

    /// Returns what is extrapolated for a time outside the map's knots. `measured` is the node's
    /// measured span on its own system clock. An offset line stands at the middle of its window, so
    /// half a window before the first and after the last was measured too. A trace on the system
    /// clock, or at a constant from it, needs no extrapolation to get there; beyond its marks it is
    /// only less certain.
    pub(crate) fn extrapolated(&self, time: Picoseconds, measured: Option<Span>) -> Extrapolated {
        let tied = self.tie_of(time).map(|tie| tie.map(time));
        let system_ps = tied.map_or(time, |tied| tied.time_ps);
        let steady = matches!(self.tie, Tie::SameClock | Tie::SteadyClock);
        let tied_there = steady || tied.is_none_or(|tied| tied.place == Place::Inside);
        // The reference has no offsets that could end.
        let measured_there = self.certainty.is_none() || measured.is_some_and(|measured| measured.covers_ps(system_ps));
        match (measured_there, tied_there) {
            (true, true) => Extrapolated::Nothing,
            (true, false) => Extrapolated::Pairs,
            (false, _) => Extrapolated::Offsets,
        }
    }

    /// Returns the standard deviation of a time, given that of the map, ns.
    pub(crate) fn sigma_ns(&self, of_map_ns: f64) -> f64 {
        sigma_ns(self.certainty, of_map_ns)
    }

    /// Maps a time of the trace to the requested clock.
    pub(crate) fn look(&self, time: Picoseconds) -> MappedTime {
        let mapped = self.map_of(time).map(time);
        let raw = self.raw.is_some() && time < UNIX_TIME_MIN_PS;
        let early = self.uncertainty.filter(|_| !raw);
        MappedTime {
            at: mapped.time_ps,
            sigma_ns: self.sigma_ns(mapped.sigma_ns),
            own_sigma_ns: self.tie_of(time).map_or(0.0, |tie| tie.map(time).sigma_ns),
            early_by_ns: early.map_or(0.0, |uncertainty| uncertainty.early_by_up_to_ns),
        }
    }
}

/// Creates a node's map. `snapshots` are pairs from a source other than the trace.
///
/// # Errors
/// [`Error::NoOffsets`] for a node other than the reference without offsets; [`Error::Clock`] if no
/// map fits its offsets or pairs; [`Error::Planes`] for planes on a raw clock that no pairs tie to
/// the system clock; [`Error::Untied`] for a trace on the boot clock that nothing ties to it,
/// unless the offsets are those of the traces' own clocks.
pub fn node_clock(
    facts: &TraceFacts,
    offsets: &Offsets,
    node: u32,
    snapshots: Option<&Snapshots>,
    timeline: Timeline<'_>,
) -> Result<NodeClock, Error> {
    let mut notes = Vec::new();
    let of_planes = planes::pairs(facts, snapshots).map_err(|problem| Error::Planes { node, problem })?;
    let untied = |problem| Error::Untied { node, problem };
    let (pairs, tie) = usable_pairs(facts, snapshots, &mut notes).map_err(untied)?;
    if tie == Tie::Assumed
        && !(offsets.of_own_clocks && facts.clock.counts_from_boot())
        && let Some(problem) = boot::refusal(facts)
    {
        return Err(untied(problem));
    }
    let offset_map = offsets.map(node)?;
    let steps = offset_map.as_ref().map(|found| found.map.breaks()).unwrap_or_default();
    let steady = match brackets::judge(&facts.brackets) {
        Judged::Steady { ahead_ps } => brackets::steady(&facts.brackets, ahead_ps),
        Judged::Nothing | Judged::Apart(_) => None,
    };
    let (tracer, residuals) = match (steady, tracer_map(&pairs, &steps).map_err(Error::clock(node))?) {
        (Some(map), _) => (Some(map), None),
        (None, fitted) => fitted.map(|PairMap { map, residuals }| (map, residuals)).unzip(),
    };
    let tie = if tracer.is_some() || facts.is_read_from_clock { tie } else { Tie::Assumed };
    let marks = tracer.as_ref().and_then(|map| MarkBounds::of(&facts.brackets, map));
    let raw_tie = tracer_map(&of_planes.pairs, &steps).map_err(Error::clock(node))?.map(|tie| tie.map);
    let mut raw = raw_tie.clone().map(MapChain::new);
    let mut chain = MapChain::new(tracer.clone().unwrap_or_else(TimeMap::identity));
    let certainty = offset_map.as_ref().map(|found| found.certainty);
    if let Some(found) = offset_map {
        note_offsets(&found, &mut notes);
        // Steps are large beside how well either map knows the clock; 50 µs where both know it
        // well.
        let spread = residuals.as_ref().map_or(0.0, |residuals| residuals.p95_ns);
        raw = raw.map(|raw| raw.then(found.map.clone(), SMALLEST_TOLERANCE_NS));
        chain = chain.then(found.map, (STEP_SIGMAS * spread).max(SMALLEST_TOLERANCE_NS));
        // Where R is S, it is stepped with it.
        note_join(&chain, residuals.is_some(), &mut notes);
    }
    if let Timeline::Tracer(reference) = timeline {
        let back = reference.or(tracer.as_ref()).or(raw_tie.as_ref());
        match back {
            Some(map) => {
                let inverse = map.inverse().map_err(Error::clock(node))?;
                raw = raw.map(|raw| raw.then(inverse.clone(), SMALLEST_TOLERANCE_NS));
                chain = chain.then(inverse, SMALLEST_TOLERANCE_NS);
            }
            None => {
                notes.push("the tracer timeline is the system clock's, because no pairs distinguish them".to_owned());
            }
        }
    }
    if let Some(plane) = facts.since_boot.first() {
        let (count, name) = (facts.since_boot.len(), &plane.plane);
        let pairs = of_planes.pairs.len();
        let clock = of_planes.clock.map_or_else(|| UNNAMED_CLOCK.to_owned(), |clock| format!("of the clock {clock}"));
        notes.push(format!("{count} planes (the first is {name}) are on a raw clock; {pairs} pairs {clock} relate it to the system clock"));
    }
    if tie == Tie::Assumed && facts.span.is_some() && facts.clock == TraceClock::System {
        notes.push(
            "assuming that the trace's times are CLOCK_REALTIME, because nothing in or next to it indicates otherwise"
                .to_owned(),
        );
    }
    let early = residuals.as_ref().map_or(0.0, |residuals| residuals.early_by_up_to_ns);
    let uncertainty = facts.span.map(|span| uncertainty(&chain, certainty, span, early));
    let raw = raw.zip(raw_tie).map(|(raw, tie)| RawClock { map: raw.whole().clone(), tie });
    Ok(NodeClock { node, chain, tracer, raw, tie, residuals, marks, certainty, uncertainty, notes })
}

/// Returns the approximate span of a trace on its node's system clock, before any map exists, in
/// order to choose the offsets.
pub(crate) fn own_span(facts: &TraceFacts, snapshots: Option<&Snapshots>) -> Option<Span> {
    let (pairs, _) = usable_pairs(facts, snapshots, &mut Vec::new()).ok()?;
    let ahead = |pair: &ClockPair| i128::from(pair.system_ns) * 1000 - pair.tracer_ps;
    let least = pairs.iter().map(ahead).min().unwrap_or(0);
    let most = pairs.iter().map(ahead).max().unwrap_or(0);
    let of_file = facts.span.map(|(first, last)| (first.saturating_add(least), last.saturating_add(most)));
    // Planes on a raw clock lie in the session, or are refused.
    let of_planes = facts.session.filter(|_| !facts.since_boot.is_empty());
    let (first, last) = of_file.into_iter().chain(of_planes).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    Some(Span { first_ns: first.div_euclid(1000), last_ns: last.div_euclid(1000) })
}

/// Returns the pairs on the file's own timeline. Pairs of another clock say nothing about it; a
/// trace on Unix time with a run's pairs of a raw clock is a common case.
///
/// # Errors
/// Returns the pairs of [`boot::fit`] if the trace has none of its own.
fn usable_pairs(
    facts: &TraceFacts,
    snapshots: Option<&Snapshots>,
    notes: &mut Vec<String>,
) -> Result<(Vec<ClockPair>, Tie), String> {
    if facts.is_read_from_clock {
        return Ok((Vec::new(), Tie::SameClock));
    }
    let of_marks = match brackets::judge(&facts.brackets) {
        // What other pairs say of R is less.
        Judged::Steady { ahead_ps: 0 } => return Ok((Vec::new(), Tie::SameClock)),
        Judged::Steady { .. } => return Ok((Vec::new(), Tie::SteadyClock)),
        Judged::Nothing => Vec::new(),
        Judged::Apart(pairs) => pairs,
    };
    let (mut markers, bracketed): (Vec<ClockPair>, Vec<ClockPair>) =
        facts.pairs.iter().partition(|pair| pair.kind == PairKind::Marker);
    let bracketed = if applies(facts, &bracketed) { bracketed } else { Vec::new() };
    let near = markers.iter().chain(&bracketed).all(near_system);
    if !markers.is_empty() && markers.len() < pairs::FEWEST_MARKERS && near {
        let count = markers.len();
        notes.push(format!("ignored its {count} markers: too few to distinguish a delay from the clock"));
        markers.clear();
    }
    let mut pairs = [markers, bracketed, of_marks].concat();
    let of_trace = !pairs.is_empty();
    let given = snapshots.map_or(&[][..], |snapshots| &snapshots.pairs);
    let of_snapshots = match boot::fit(facts.clock, snapshots, facts.span) {
        _ if facts.clock == TraceClock::System => applies(facts, given),
        Ok(fit) => fit,
        Err(reason) if of_trace => {
            notes.push(format!("{reason}; using the trace's own markers"));
            false
        }
        Err(reason) => return Err(format!("{reason}. {}", boot::remedy(facts.clock))),
    };
    if of_snapshots {
        pairs.extend_from_slice(given);
    }
    let tie = match (of_trace, of_snapshots) {
        (false, false) => Tie::Assumed,
        (true, false) => Tie::Trace,
        (false, true) => Tie::Snapshots,
        (true, true) => Tie::SnapshotsAndTrace,
    };
    Ok((pairs, tie))
}

/// Returns true if the pairs are on the file's timeline.
fn applies(facts: &TraceFacts, pairs: &[ClockPair]) -> bool {
    match facts.span {
        Some(span) => !pairs.is_empty() && !is_elsewhere(pairs, span),
        // All planes are on a raw clock: the pairs are theirs.
        None => !pairs.is_empty() && facts.since_boot.is_empty(),
    }
}

fn near_system(pair: &ClockPair) -> bool {
    pair.tracer_ps.saturating_sub(i128::from(pair.system_ns) * 1000).saturating_abs() < SECOND_PS
}

fn is_elsewhere(pairs: &[ClockPair], span: (Picoseconds, Picoseconds)) -> bool {
    let first = pairs.iter().map(|pair| pair.tracer_ps).min().unwrap_or(span.0);
    let last = pairs.iter().map(|pair| pair.tracer_ps).max().unwrap_or(span.1);
    first.saturating_sub(span.1) > DAY_PS || span.0.saturating_sub(last) > DAY_PS
}

fn note_offsets(found: &OffsetMap, notes: &mut Vec<String>) {
    if found.disturbed > 0 {
        notes.push(format!(
            "{} of {} offsets are from windows in which a clock was disturbed; they are interpolated, with larger uncertainty",
            found.disturbed,
            found.used + found.dropped + found.disturbed
        ));
    }
    if found.dropped > 0 {
        notes.push(format!("{} of {} offsets were ignored", found.dropped, found.used + found.dropped));
    }
    match found.certainty {
        Certainty::Stated => {}
        Certainty::Scatter => notes.push(
            "the offsets have no uncertainty: using their scatter (at least 100 ns) instead, which does not include an error common to all"
                .to_owned(),
        ),
        Certainty::Unknown => notes.push(format!(
            "the offsets have no uncertainty, and {} are too few to estimate their scatter, so the uncertainty of the times is \
            unknown; add sigma_ns or residual_ns",
            found.used
        )),
    }
}

fn note_join(chain: &MapChain, tied: bool, notes: &mut Vec<String>) {
    let Some(join) = chain.joins().last() else { return };
    if join.matched > 0 {
        notes.push(format!(
            "{} steps of the system clock, visible in pairs and in offsets, are accounted for",
            join.matched
        ));
    }
    if join.only_first > 0 {
        notes.push(format!("{} steps in the pairs have no counterpart in the offsets", join.only_first));
    }
    if join.only_second > 0 && tied {
        notes.push(format!("{} steps in the offsets have no counterpart in the pairs", join.only_second));
    } else if join.only_second > 0 {
        let count = join.only_second;
        notes.push(format!(
            "{count} steps in the offsets, but no pairs to locate them: times near a step may be wrong by its size"
        ));
    }
}

/// Returns the standard deviation of a map, ns; infinite if the uncertainty of the offsets is
/// unknown.
fn sigma_ns(certainty: Option<Certainty>, of_map_ns: f64) -> f64 {
    if certainty == Some(Certainty::Unknown) { f64::INFINITY } else { of_map_ns }
}

fn uncertainty(
    chain: &MapChain,
    certainty: Option<Certainty>,
    span: (Picoseconds, Picoseconds),
    early_by_up_to_ns: f64,
) -> Uncertainty {
    let length = span.1.saturating_sub(span.0);
    let at = |eighth: i128| sigma_ns(certainty, chain.map(span.0.saturating_add(length / 8 * eighth)).sigma_ns);
    Uncertainty { middle_ns: at(4), largest_ns: (0..=8).map(at).fold(0.0, f64::max), early_by_up_to_ns }
}

/// Two observations of a step agree if they differ by less than this many standard deviations of
/// the pairs,
const STEP_SIGMAS: f64 = 6.0;
/// or by less than this.
const SMALLEST_TOLERANCE_NS: f64 = 50_000.0;
const SECOND_PS: Picoseconds = 1_000_000_000_000;
const DAY_PS: Picoseconds = 86_400 * SECOND_PS;
const UNNAMED_CLOCK: &str = "without a clock name, assumed to be the profiler's,";

#[cfg(test)]
mod tests;

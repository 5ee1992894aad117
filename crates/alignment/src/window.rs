//! The window of requested events, on the clock of the outputs.
//!
//! A bound is a time, a fraction of the traces' span, or a marker: the start of an event of the
//! given name. It does not cut events; an event is either in the window or not.

use crate::Error;
use probe_sync_estimate::series::TimeMap;
use probe_sync_formats::ChunkOptions;
use probe_sync_formats::chunk::{Chunk, StringId};
use probe_sync_formats::model::{PS_PER_NS, Picoseconds};

use crate::calibrated::CalibratedTrace;
use crate::chunk_options::chunk_options;

/// One end of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Bound {
    /// The end of the traces.
    #[default]
    Open,
    /// A time, ns.
    At(i64),
    /// Time since the first event of all traces, ns.
    After(i64),
    /// Fraction of the common span of all traces, 0 to 1.
    Share(f64),
    /// The start of the event of this name: if every trace has one, the earliest for a start and
    /// the latest for an end.
    Marker(String),
}

impl std::str::FromStr for Bound {
    type Err = String;

    /// Nanoseconds, a time after the first event, or a percentage: `1795187183203286272`, `+1.5s`,
    /// `12.5%`.
    fn from_str(text: &str) -> Result<Bound, String> {
        if let Some(after) = text.strip_prefix('+') {
            let unit = after.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').unwrap_or(after.len());
            let (number, unit) = after.split_at(unit);
            let ns = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ns)| *ns);
            let after = number.trim().parse::<f64>().ok().filter(|number| (0.0..1e15).contains(number));
            let wrong = || format!("{text} is not a time after the first event, such as +1.5s or +20ms");
            return ns.zip(after).map(|(ns, after)| Bound::After((ns * after).round() as i64)).ok_or_else(wrong);
        }
        if let Some(percent) = text.strip_suffix('%') {
            let share = percent.parse::<f64>().ok().map(|percent| percent / 100.0);
            return match share.filter(|share| (0.0..=1.0).contains(share)) {
                Some(share) => Ok(Bound::Share(share)),
                None => Err(format!("{text} is not a percentage between 0% and 100%")),
            };
        }
        text.parse().map(Bound::At).map_err(|_| {
            format!("{text} is neither nanoseconds, nor a time after the first event (+1.5s), nor a percentage")
        })
    }
}

/// As it is said.
impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open => f.write_str("open"),
            Self::At(ns) => write!(f, "{ns}"),
            Self::After(ns) => write!(f, "+{ns}ns"),
            Self::Share(share) => write!(f, "{}%", share * 100.0),
            Self::Marker(name) => f.write_str(name),
        }
    }
}

/// Which events are wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Start of the window.
    pub start: Bound,
    /// End of the window.
    pub end: Bound,
    /// Only events entirely within the window are wanted; otherwise also those that overlap it.
    pub inclusive: bool,
}

impl Default for Window {
    fn default() -> Self {
        Self { start: Bound::Open, end: Bound::Open, inclusive: true }
    }
}

/// Whether an event is wanted.
#[inline]
pub fn keeps([from, until]: [i64; 2], inclusive: bool, start: i64, end: i64) -> bool {
    if inclusive { start >= from && end <= until } else { start <= until && end >= from }
}

/// The window in ns; `None` if everything is wanted.
pub fn resolve(window: &Window, traces: &[CalibratedTrace]) -> Result<Option<[i64; 2]>, Error> {
    if window.start == Bound::Open && window.end == Bound::Open {
        return Ok(None);
    }
    let spans: Vec<(Picoseconds, Picoseconds)> = traces.iter().filter_map(mapped_span).collect();
    let first = spans.iter().map(|span| span.0).min().unwrap_or(0) / PS_PER_NS;
    let last = spans.iter().map(|span| span.1).max().unwrap_or(0) / PS_PER_NS;
    let share = |share: f64| i64::try_from(first + ((last - first) as f64 * share) as i128).unwrap_or(i64::MAX);
    let after = |ns: i64| i64::try_from(first + Picoseconds::from(ns)).unwrap_or(i64::MAX);
    let from = match &window.start {
        Bound::Open => i64::MIN,
        Bound::At(time) => *time,
        Bound::After(ns) => after(*ns),
        Bound::Share(part) => share(*part),
        Bound::Marker(name) => markers(name, "--start-marker", traces)?.into_iter().min().unwrap_or(i64::MIN),
    };
    let until = match &window.end {
        Bound::Open => i64::MAX,
        Bound::At(time) => *time,
        Bound::After(ns) => after(*ns),
        Bound::Share(part) => share(*part),
        Bound::Marker(name) => markers(name, "--end-marker", traces)?.into_iter().max().unwrap_or(i64::MAX),
    };
    if until <= from {
        let problem = format!("the window ends at {until} ns, which is not after its start at {from} ns");
        return Err(Error::Request { problem });
    }
    Ok(Some([from, until]))
}

/// Span of a trace's events on the clock of the outputs.
pub(crate) fn mapped_span(calibrated: &CalibratedTrace) -> Option<(Picoseconds, Picoseconds)> {
    let (first, last) = calibrated.trace.facts.span?;
    let through = |map: &TimeMap| (map.map(first).time_ps, map.map(last).time_ps);
    Some(calibrated.map.as_ref().map_or((first, last), through))
}

/// Start of the marker, in each trace that has it.
fn markers(name: &str, flag: &str, traces: &[CalibratedTrace]) -> Result<Vec<i64>, Error> {
    let mut found = Vec::new();
    for (part, calibrated) in traces.iter().enumerate() {
        let identity = TimeMap::identity();
        let map = calibrated.map.as_ref().unwrap_or(&identity);
        let mut times = Vec::new();
        let trace = &calibrated.trace;
        let options = chunk_options(calibrated, part, &ChunkOptions::default());
        trace.format.read_chunks(&trace.path, &options, &mut |time| map.map(time).time_ps, &mut |chunk| {
            collect(chunk, name, &mut times);
            Ok(())
        })?;
        if times.len() > 1 {
            let problem = format!(
                "{flag}: {} has {} events named {name}; choose a name that occurs once",
                trace.path.display(),
                times.len()
            );
            return Err(Error::Request { problem });
        }
        found.extend(times);
    }
    if found.is_empty() {
        return Err(Error::Request { problem: format!("{flag}: no trace has an event named {name}") });
    }
    Ok(found)
}

/// Starts of events of this name; copies of annotations on a device's timeline do not count.
fn collect(chunk: &Chunk, name: &str, times: &mut Vec<i64>) {
    let is = |id: StringId, category: StringId| {
        chunk.strings.text(id) == name && chunk.strings.text(category) != "gpu_user_annotation"
    };
    let (slices, instants) = (&chunk.slices, &chunk.instants);
    let of_slices = (0..slices.track.len()).filter(|&row| is(slices.name[row], slices.category[row]));
    times.extend(of_slices.map(|row| slices.start_ns[row]));
    let of_instants = (0..instants.track.len()).filter(|&row| is(instants.name[row], instants.category[row]));
    times.extend(of_instants.map(|row| instants.time_ns[row]));
    times.truncate(MARKERS_MAX);
}

/// Units of times after the first event, in ns.
const UNITS: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
/// More than one is too many already.
const MARKERS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use crate::window::*;

    #[test]
    fn bounds_are_nanoseconds_or_percentages() {
        let check = |text: &str, expected: Result<Bound, &str>| match (text.parse::<Bound>(), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
            (Err(said), Err(part)) => assert!(said.contains(part), "{text}: {said}"),
            (found, _) => panic!("{text}: {found:?}"),
        };
        check("1795187183203286272", Ok(Bound::At(1_795_187_183_203_286_272)));
        check("12.5%", Ok(Bound::Share(0.125)));
        check("100%", Ok(Bound::Share(1.0)));
        check("101%", Err("between 0% and 100%"));
        check("-1%", Err("between 0% and 100%"));
        check("5s", Err("neither nanoseconds, nor"));
        check("+1.5s", Ok(Bound::After(1_500_000_000)));
        check("+20 ms", Ok(Bound::After(20_000_000)));
        check("+5", Err("not a time after the first event"));
        check("+-5s", Err("not a time after the first event"));
    }

    #[test]
    fn events_are_in_a_window_whole_or_with_a_part() {
        for (start, end, whole, part) in [
            (10, 20, true, true),
            (9, 20, false, true),
            (10, 21, false, true),
            (0, 9, false, false),
            (21, 22, false, false),
        ] {
            assert_eq!(
                (keeps([10, 20], true, start, end), keeps([10, 20], false, start, end)),
                (whole, part),
                "{start}"
            );
        }
    }
}

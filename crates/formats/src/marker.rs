//! The clock and rank information in an event's name: the project's own markers, marks, and markers
//! that a pattern finds.
//!
//! A name with only ONE number, `clkmark#<true time>`, states no time of its node's clock and is
//! not a marker.

use probe_sync_lines::parse_mark_name;

use super::rank_marker;
use crate::model::{ClockPair, MarkStamp, MarkToken, PairKind, Picoseconds, TraceFacts};

/// Meaning of a name.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Marker {
    /// The system clock showed this many ns just before.
    Time(i64),
    /// It should state a time but does not.
    Unreadable,
    /// A mark of a process, and its number.
    Mark(MarkToken, u64),
    /// A rank and the number of ranks.
    Rank(u32, u32),
}

impl Marker {
    /// Parses a name as a marker; `pattern` has a group named `system_ns`.
    pub(crate) fn of(name: &[u8], pattern: Option<&regex::Regex>) -> Option<Marker> {
        if let Some((token, number)) = parse_mark_name(name) {
            return Some(Marker::Mark(token, number));
        }
        if let Some((rank, world_size)) = rank_marker(name) {
            return Some(Marker::Rank(rank, world_size));
        }
        let stated = if let Some(rest) = name.strip_prefix(MARKER) {
            rest
        } else if let Some(at) = name.strip_prefix(SET_MARKER).and_then(|rest| memchr::memchr(b'#', rest)) {
            &name[SET_MARKER.len() + at + 1..]
        } else {
            let captures = pattern?.captures(std::str::from_utf8(name).ok()?)?;
            captures.name("system_ns")?.as_str().as_bytes()
        };
        let time = std::str::from_utf8(stated).ok().and_then(|text| text.parse().ok());
        Some(time.map_or(Marker::Unreadable, Marker::Time))
    }
}

/// The markers of a trace.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    pub(crate) pairs: Vec<ClockPair>,
    pub(crate) marks: Vec<MarkStamp>,
    pub(crate) rank: Option<(u32, u32)>,
    left_out: u64,
    unreadable: u64,
}

impl Stamps {
    /// Adds a marker that was stamped at this time of the tracer's clock, in whole multiples of
    /// `unit_ps`.
    pub(crate) fn add(&mut self, marker: Marker, tracer_ps: Picoseconds, unit_ps: Picoseconds) {
        match marker {
            Marker::Rank(rank, world_size) => self.rank = self.rank.or(Some((rank, world_size))),
            Marker::Unreadable => self.unreadable += 1,
            _ if self.pairs.len() + self.marks.len() >= MARKERS_MAX => self.left_out += 1,
            Marker::Time(system_ns) => {
                self.pairs.push(ClockPair { tracer_ps, system_ns, kind: PairKind::Marker });
            }
            Marker::Mark(token, number) => self.marks.push(MarkStamp { token, number, tracer_ps, unit_ps }),
        }
    }

    /// Makes all times later by `base_ps`, the origin that the file states at its end.
    pub(crate) fn shift(&mut self, base_ps: Picoseconds) {
        self.pairs.iter_mut().for_each(|pair| pair.tracer_ps += base_ps);
        self.marks.iter_mut().for_each(|mark| mark.tracer_ps += base_ps);
    }

    /// What was not kept, in words.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> + use<> {
        let note = |count: u64, text: &str| (count > 0).then(|| format!("{count} {text}"));
        let left_out = note(self.left_out, "markers beyond the first million were ignored");
        left_out.into_iter().chain(note(self.unreadable, "clock markers have no readable time"))
    }
}

impl TraceFacts {
    /// Adds the information of markers; their rank only if the profiler states none.
    pub(crate) fn take_stamps(&mut self, stamps: Stamps) {
        self.identity.marked_rank = stamps.rank;
        if let (None, Some((rank, world_size))) = (self.identity.rank, stamps.rank) {
            (self.identity.rank, self.identity.world_size) = (Some(rank), Some(world_size));
        }
        self.pairs.extend(stamps.pairs);
        self.marks = stamps.marks;
    }
}

/// The markers of this project.
const MARKER: &[u8] = b"probe_sync.clock#";
/// The markers of the data sets: true time, then the node's.
const SET_MARKER: &[u8] = b"clkmark#";
/// Markers that are kept; a marker a millisecond for a quarter of an hour.
pub(crate) const MARKERS_MAX: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_state_a_time_or_a_rank_are_markers() {
        let pattern = regex::Regex::new(r"now=(?<system_ns>\S+)").expect("a pattern");
        for (name, expected) in [
            (&b"probe_sync.clock#1700000000000000001"[..], Some(Marker::Time(1_700_000_000_000_000_001))),
            (b"probe_sync.clock#soon", Some(Marker::Unreadable)),
            (b"clkmark#5#7", Some(Marker::Time(7))),
            (b"clkmark#5", None),
            (b"probe_sync.rank#3/8", Some(Marker::Rank(3, 8))),
            (b"it is now=12 ns", Some(Marker::Time(12))),
            (b"it is now=\xff", None),
            (b"step 1", None),
        ] {
            assert_eq!(Marker::of(name, Some(&pattern)), expected, "{}", String::from_utf8_lossy(name));
        }
        assert_eq!(Marker::of(b"now=12", None), None);
    }
}

//! The offsets that a set of traces needs, and the second pass over a file that collects them.
//!
//! From the nodes of the traces and their times, [`Wanted`] selects the samples of those nodes
//! during those traces, plus the [`NEIGHBOURS`] nearest before and after, which show how a clock
//! continues and how much its offsets scatter. A run of a week is thus read for a trace of a minute
//! in the memory that the minute takes: about 200 bytes per sample, and at most [`MOST_SAMPLES`] of
//! them.
//!
//! Lines may be in any order and are sorted by their times on the reference clock; they stay as
//! they are where times ascend on either clock, because a clock that was set back reads earlier and
//! its lines are not out of order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::Error;
use probe_sync_estimate::series::OffsetSample;

use super::offsets::{Found, Offsets, read_lines};
use super::stretch::{Span, Stretch};

/// The nodes and spans whose offsets are wanted.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    spans: BTreeMap<u32, Span>,
    most: Option<usize>,
}

impl Wanted {
    /// Adds the offsets of a node during a span of its own clock.
    pub fn add(&mut self, node: u32, span: Span) {
        self.spans.entry(node).and_modify(|known| *known = known.with(span)).or_insert(span);
    }

    /// Reads the wanted samples into `offsets` from the file that they name, up to `last_line`;
    /// `measured` is the span of each node's plausible lines.
    pub(super) fn read(
        self,
        measured: impl Fn(u32) -> Option<Span>,
        last_line: u64,
        offsets: &mut Offsets,
    ) -> Result<(), Error> {
        let most = self.most.unwrap_or(MOST_SAMPLES);
        let of_node = |(node, span)| Some((node, Near::new(span, measured(node)?)));
        let mut nodes: BTreeMap<u32, Near> = self.spans.into_iter().filter_map(of_node).collect();
        let mut kept = 0;
        read_lines(&offsets.path, offsets.axis, &mut |line, found| {
            let Found::Sample(node, sample, stretch) = found else { return Ok(()) };
            if line > last_line {
                return Ok(());
            }
            let Some(near) = nodes.get_mut(&node) else { return Ok(()) };
            kept += usize::from(near.take(line, sample, &stretch));
            if kept > most {
                let problem = format!("more than {most} offsets lie within the traces: align fewer traces at a time");
                return Err(Error::Line { path: offsets.path.clone(), line, problem });
            }
            Ok(())
        })?;
        let far: u64 = nodes.values().map(|near| near.far).sum();
        if far > 0 {
            offsets.notes.push(format!("ignored {far} offsets that lie more than a day from all others"));
        }
        let some = nodes.into_iter().map(|(node, near)| (node, near.samples()));
        offsets.nodes = some.filter(|(_, samples)| !samples.is_empty()).collect();
        Ok(())
    }
}

/// Samples kept for one node.
struct Near {
    wanted: Span,
    measured: Span,
    /// The nearest before, farthest on top.
    before: BinaryHeap<Reverse<Kept>>,
    inside: Vec<Kept>,
    /// The nearest after, farthest on top.
    after: BinaryHeap<Kept>,
    far: u64,
}

/// A sample and its place, in order of the node's own clock.
#[derive(Copy, Clone, Debug)]
struct Kept {
    own_ns: i128,
    line: u64,
    reference_ns: i128,
    sample: OffsetSample,
}

impl Near {
    fn new(wanted: Span, measured: Span) -> Self {
        let (before, after) = (BinaryHeap::new(), BinaryHeap::new());
        Self { wanted, measured, before, inside: Vec::new(), after, far: 0 }
    }

    /// Keeps a sample if it is near; returns true if there is one more than before.
    fn take(&mut self, line: u64, sample: OffsetSample, stretch: &Stretch) -> bool {
        let own_ns = stretch.own_ns;
        if self.measured.beyond_ns(own_ns) > 0 {
            self.far += 1;
            return false;
        }
        let reference_ns = stretch.reference.first_ns.midpoint(stretch.reference.last_ns);
        let kept = Kept { own_ns, line, reference_ns, sample };
        if own_ns < self.wanted.first_ns {
            self.before.push(Reverse(kept));
            self.before.len() <= NEIGHBOURS || self.before.pop().is_none()
        } else if own_ns > self.wanted.last_ns {
            self.after.push(kept);
            self.after.len() <= NEIGHBOURS || self.after.pop().is_none()
        } else {
            self.inside.push(kept);
            true
        }
    }

    /// The samples in order of true time.
    fn samples(self) -> Vec<OffsetSample> {
        let before = self.before.into_iter().map(|Reverse(kept)| kept);
        let mut all: Vec<Kept> = before.chain(self.inside).chain(self.after).collect();
        all.sort_unstable_by_key(|kept| kept.line);
        let ascends = |key: fn(&Kept) -> i128| all.is_sorted_by_key(key);
        if !(ascends(|kept| kept.own_ns) || ascends(|kept| kept.reference_ns)) {
            all.sort_by_key(|kept| kept.reference_ns);
        }
        all.into_iter().map(|kept| kept.sample).collect()
    }
}

impl Ord for Kept {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.own_ns, self.line).cmp(&(other.own_ns, other.line))
    }
}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Kept {}

/// Offsets kept on either side of a trace.
const NEIGHBOURS: usize = 64;
/// 4 million samples: less than a gigabyte.
const MOST_SAMPLES: usize = 1 << 22;

#[cfg(test)]
mod tests {
    //! What is kept of long files, in whatever order their lines are.

    use std::fmt::Write as _;

    use super::super::survey::Survey;
    use super::*;

    const SECOND: i128 = 1_000_000_000;

    /// A file of windows of 4 s from `rounds`, of nodes 0 to 3; node k is k·(1 ms + 1 µs/s) ahead.
    fn file(rounds: impl Iterator<Item = i64>) -> tempfile::NamedTempFile {
        let mut text = String::new();
        for round in rounds {
            for node in 0..4 {
                let (start, end) = (round * 4 * SECOND as i64, (round + 1) * 4 * SECOND as i64);
                let offset = node * (1_000_000 + (round * 4 + 2) * 1000);
                let _ = writeln!(
                    text,
                    "{{\"node_id\":{node},\"window_start_ns\":{start},\"window_end_ns\":{end},\"offset_ns\":{offset}}}"
                );
            }
        }
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("writable");
        file
    }

    fn read(file: &tempfile::NamedTempFile, node: u32, (first, last): (i128, i128)) -> Offsets {
        let survey = Survey::read(file.path()).expect("offsets");
        let mut wanted = Wanted::default();
        wanted.add(node, Span { first_ns: first * SECOND, last_ns: last * SECOND });
        survey.offsets(wanted).expect("few enough")
    }

    /// The middles of the windows that were kept of node 1, s.
    fn middles(offsets: &Offsets) -> Vec<i64> {
        assert_eq!(offsets.nodes.keys().collect::<Vec<_>>(), [&1], "of no other node");
        offsets.nodes[&1].iter().map(|sample| sample.at_ns / SECOND as i64).collect()
    }

    #[test]
    fn a_trace_needs_its_own_span_and_neighbours_of_its_own_node() {
        let file = file(0..1000);
        let kept = middles(&read(&file, 1, (2000, 2040)));
        // 2002 to 2038 are inside, and 64 on either side.
        let expected: Vec<i64> = (500 - 64..510 + 64).map(|round| round * 4 + 2).collect();
        assert_eq!(kept, expected);
        // On the node's own clock: the window at 2002 s reads 2002.003002 there.
        assert_eq!(middles(&read(&file, 1, (2003, 2003))).len(), 128);
        let early: Vec<i64> = (0..64).map(|round| round * 4 + 2).collect();
        assert_eq!(middles(&read(&file, 1, (-900, -800))), early);
        let late: Vec<i64> = (1000 - 64..1000).map(|round| round * 4 + 2).collect();
        assert_eq!(middles(&read(&file, 1, (90_000, 90_001))), late);
    }

    #[test]
    #[ignore = "long: reads a million offsets"]
    fn a_file_of_more_than_a_million_offsets_is_read() {
        // 2^20 were once the most, over all nodes.
        let count = (1_i64 << 20) + 10;
        let mut text = String::from("node,node_time_ns,offset_ns\n");
        for row in 0..count {
            let _ = writeln!(text, "{},{row},5", row % 2 + 1);
        }
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("writable");
        let survey = Survey::read(file.path()).expect("offsets");
        assert_eq!(survey.measured(2), Some(Span { first_ns: 1, last_ns: i128::from(count) - 1 }));
        let mut wanted = Wanted::default();
        wanted.add(2, Span { first_ns: 900_000, last_ns: 900_010 });
        let kept = survey.offsets(wanted).expect("few are wanted");
        assert_eq!(kept.nodes[&2].len(), 5 + 2 * NEIGHBOURS);
        assert_eq!(kept.nodes[&2][NEIGHBOURS].at_ns, 900_001);
    }

    #[test]
    fn lines_in_any_order_are_sorted() {
        let expected = read(&file(0..300), 1, (400, 800));
        for order in [(0..300).rev().collect::<Vec<i64>>(), (0..300).map(|k| k * 7 % 300).collect()] {
            let found = read(&file(order.into_iter()), 1, (400, 800));
            assert_eq!(found.nodes, expected.nodes);
        }
    }

    #[test]
    fn a_line_of_another_century_discards_no_other() {
        // Today every line after it would be dropped as out of order.
        let far = 1 << 29;
        let found = read(&file((0..20).chain([far]).chain(20..300)), 1, (400, 800));
        assert_eq!(found.nodes, read(&file(0..300), 1, (400, 800)).nodes);
        assert!(found.notes[0].contains("ignored 1 offsets that lie more than a day"), "{:?}", found.notes);
        assert_eq!(read(&file(0..300), 1, (400, 800)).notes, Vec::<String>::new());
    }

    #[test]
    fn a_clock_that_was_set_back_is_not_out_of_order() {
        let table = |rows: &[(i64, i64)]| {
            let rows: String = rows.iter().map(|(at, offset)| format!("1,{at},{offset}\n")).collect();
            let file = tempfile::NamedTempFile::new().expect("a temporary file");
            std::fs::write(file.path(), format!("node,node_time_ns,offset_ns\n{rows}")).expect("writable");
            let offsets = Offsets::read(file.path()).expect("a table");
            offsets.nodes[&1].iter().map(|sample| (sample.at_ns, sample.offset_ns as i64)).collect::<Vec<_>>()
        };
        // Set back by 50 after 40: in order of true time 0, 20, 40, 60, 80.
        let set_back = [(0, 0), (20, 0), (40, 0), (10, -50), (30, -50)];
        assert_eq!(table(&set_back), set_back);
        // One wild offset in rows whose times ascend moves none of them.
        let wild = [(0, 0), (20, 0), (40, 900), (60, 0)];
        assert_eq!(table(&wild), wild);
        assert_eq!(table(&[(40, 0), (0, 0), (20, 0)]), [(0, 0), (20, 0), (40, 0)]);
        assert_eq!(table(&[(30, -50), (0, 0), (40, 0), (10, -50), (20, 0)]), set_back);
    }

    #[test]
    fn more_than_memory_is_meant_to_hold_is_refused() {
        let file = file(0..300);
        let survey = Survey::read(file.path()).expect("offsets");
        let wanted = |most| {
            let spans = BTreeMap::from([(1, Span { first_ns: 401 * SECOND, last_ns: 801 * SECOND })]);
            Wanted { spans, most: Some(most) }
        };
        // 100 inside and 64 on either side.
        assert_eq!(survey.offsets(wanted(228)).expect("as many as fit").nodes[&1].len(), 228);
        let error = survey.offsets(wanted(227)).expect_err("one too many").to_string();
        assert!(error.contains("more than 227 offsets lie within the traces"), "{error}");
    }

    #[test]
    fn spans_of_one_node_are_joined() {
        let mut wanted = Wanted::default();
        for (first_ns, last_ns) in [(5, 9), (2, 4), (20, 30)] {
            wanted.add(3, Span { first_ns, last_ns });
        }
        assert_eq!(wanted.spans, BTreeMap::from([(3, Span { first_ns: 2, last_ns: 30 })]));
    }
}

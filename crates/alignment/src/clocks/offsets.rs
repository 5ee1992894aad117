//! Offsets of a run's nodes, read from `offsets.jsonl` or a table.
//!
//! They yield the map S_i → S_reference of each node ([`Offsets`]). Supported inputs are:
//! - JSON lines of this project: `window_start_ns`, `window_end_ns` (reference clock; the offset
//!   holds at the middle), `node_id`, `offset_ns`, `drift_ppm`, `reachable`, `sigma_ns`, after a
//!   first line `{"meta":true,"reference":0,"nodes":[…],"ranks":[…]}`;
//! - the same with older keys: `midpoint_sys_ns` (reference clock, like the window's times) and
//!   `slope_ppm`;
//! - CSV with a header: `node`, `node_realtime_ns` (the node's OWN clock), `offset_vs_node0_ns` and
//!   perhaps `sigma_ns`, in any order.
//!
//! Where `sigma_ns` is not stated `residual_ns` (or `residual`) is taken for it.
//!
//! Lines pass one by one ([`read_lines`]): `survey` learns what a file knows, `wanted` keeps what
//! some traces need of it. A last line cut short is left out and noted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::Error;
use probe_sync_estimate::series::{Axis, KnownBreaks, OffsetMap, OffsetSample, Step, TimeMap};
use probe_sync_lines::{OffsetRecord, OffsetsHeader};
use serde::Deserialize;

use super::lines::{Line, Lines};
use super::stretch::Stretch;

/// Offsets of some nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Offsets {
    /// The file they were read from, for messages.
    pub path: PathBuf,
    /// The node whose clock the offsets are relative to.
    pub reference: u32,
    /// The reference was lost and came back while another clock carried its timeline on: it has
    /// offsets like any other node.
    pub carried: bool,
    /// If `carried`: steps of the reference's clock while it was the timeline. Later steps are
    /// steps of its own clock only.
    pub timeline_steps: Vec<Step>,
    /// The clock of the samples' times.
    pub axis: Axis,
    /// They relate the clocks that the traces were written on, which nothing ties to system clocks.
    pub of_own_clocks: bool,
    /// Per node in order of time, reachable rounds only.
    pub nodes: BTreeMap<u32, Vec<OffsetSample>>,
    /// Steps of a node's clock that the run saw, in addition to those stated in its lines.
    pub steps: BTreeMap<u32, Vec<Step>>,
    /// Rounds before which a node's clock is interrupted, in addition to those stated in its lines.
    pub broken: BTreeMap<u32, BTreeSet<u64>>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Offsets {
    /// Creates an empty set of offsets, for offsets that come from elsewhere than a file; `origin`
    /// names their source.
    pub fn new(origin: impl Into<PathBuf>, axis: Axis) -> Self {
        Self {
            path: origin.into(),
            reference: 0,
            carried: false,
            timeline_steps: Vec::new(),
            axis,
            of_own_clocks: false,
            nodes: BTreeMap::new(),
            steps: BTreeMap::new(),
            broken: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Returns the map S_i → S_reference of a node; `None` for the reference, whose map is the
    /// identity unless its timeline was carried on without it.
    ///
    /// # Errors
    /// [`Error::NoOffsets`] if the node has none, [`Error::Clock`] if no map fits them.
    pub fn map(&self, node: u32) -> Result<Option<OffsetMap>, Error> {
        if node == self.reference && !self.carried {
            return Ok(None);
        }
        let samples = self.nodes.get(&node).ok_or_else(|| Error::NoOffsets { path: self.path.clone(), node })?;
        let known = KnownBreaks {
            of_node: self.steps_of(node),
            of_reference: match (self.carried, node == self.reference) {
                (true, true) => Vec::new(),
                (true, false) => self.timeline_steps.clone(),
                (false, _) => self.steps_of(self.reference),
            },
            rounds: self.broken_for(node, samples),
        };
        TimeMap::from_offsets(samples, self.axis, &known).map(Some).map_err(Error::clock(node))
    }

    fn steps_of(&self, node: u32) -> Vec<Step> {
        let of_lines = self.nodes.get(&node).into_iter().flatten().filter_map(|sample| sample.step);
        self.steps.get(&node).into_iter().flatten().copied().chain(of_lines).collect()
    }

    /// Rounds before which a node's map is interrupted. The reference's own map is interrupted
    /// between lines that are 0 because it is the timeline and lines that were measured: a curve
    /// between the two would claim the certainty of the zeros for the gap.
    fn broken_for(&self, node: u32, samples: &[OffsetSample]) -> BTreeSet<u64> {
        let mut rounds: BTreeSet<u64> =
            [node, self.reference].into_iter().flat_map(|node| self.broken_rounds(node)).collect();
        if node == self.reference {
            let measured = |pair: &[OffsetSample]| pair[0].offset_ns == 0.0 && pair[1].offset_ns != 0.0;
            rounds.extend(samples.windows(2).filter(|pair| measured(pair)).filter_map(|pair| pair[1].round));
        }
        rounds
    }

    fn broken_rounds(&self, node: u32) -> impl Iterator<Item = u64> {
        let of_lines = self.nodes.get(&node).into_iter().flatten().filter_map(|sample| sample.broken_into);
        self.broken.get(&node).into_iter().flatten().copied().chain(of_lines)
    }
}

/// The clock of the times in a file: JSON lines use the reference's, a table the nodes' own.
pub(super) fn axis_of(path: &Path) -> Result<Axis, Error> {
    let is_json = Lines::open(path)?.next()?.is_none_or(|first| first.text.starts_with(b"{"));
    Ok(if is_json { Axis::Reference } else { Axis::Own })
}

/// Content of a line.
#[derive(Debug)]
pub(super) enum Found {
    /// The header line of our own files.
    Header(OffsetsHeader),
    /// An offset of a node, and the stretch it covers.
    Sample(u32, OffsetSample, Stretch),
    /// A round in which a node was unreachable.
    Unreachable,
    /// A truncated last line.
    Cut,
}

/// Passes every line of a file to `take`, with its number.
///
/// # Errors
/// [`Error::Trace`]; [`Error::Line`] for lines that are not offsets or exceed 16 MiB; errors of
/// `take`.
pub(super) fn read_lines(
    path: &Path,
    axis: Axis,
    take: &mut dyn FnMut(u64, Found) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut lines = Lines::open(path)?;
    if axis == Axis::Own {
        return read_table(&mut lines, take);
    }
    while let Some(Line { number, text, may_be_cut }) = lines.next()? {
        match parse_json(text) {
            Ok(Found::Sample(_, OffsetSample { round: Some(round), .. }, _)) if lines.superseded(round) => {}
            Ok(found) => take(number, found)?,
            Err(_) if may_be_cut && number > 1 => take(number, Found::Cut)?,
            Err(problem) => return Err(lines.problem(number, problem)),
        }
    }
    Ok(())
}

fn read_table(lines: &mut Lines, take: &mut dyn FnMut(u64, Found) -> Result<(), Error>) -> Result<(), Error> {
    let Some(header) = lines.next()? else { return Ok(()) };
    let names: Vec<String> = header.text.split(|byte| *byte == b',').map(text).collect();
    let number = header.number;
    let column = |known: &[&str]| names.iter().position(|name| known.contains(&name.as_str()));
    let columns = (
        column(&["node"]),
        column(&["node_realtime_ns", "node_time_ns"]),
        column(&["offset_vs_node0_ns", "offset_ns"]),
    );
    let sigma = column(&["sigma_ns"]);
    let residual = column(&["residual_ns", "residual"]);
    let (Some(node), Some(time), Some(offset)) = columns else {
        let problem = "neither JSON lines nor a table with the columns node, node_realtime_ns and offset_vs_node0_ns";
        return Err(lines.problem(number, problem));
    };
    while let Some(Line { number, text: line, may_be_cut }) = lines.next()? {
        let cells: Vec<&[u8]> = line.split(|byte| *byte == b',').collect();
        let cell = |index: usize| cells.get(index).map(|cell| text(cell)).unwrap_or_default();
        let row = (cell(node).parse::<u32>(), cell(time).parse::<i64>(), cell(offset).parse::<f64>());
        match row {
            // A number cut short is still a number: only a line feed proves it whole.
            _ if may_be_cut => take(number, Found::Cut)?,
            (Ok(node), Ok(at_ns), Ok(offset_ns)) if offset_ns.is_finite() => {
                let stated = |index: Option<usize>| index.and_then(|index| cell(index).parse::<f64>().ok());
                let sigma_ns = stated(sigma).or(of_residual(stated(residual)));
                let sample = OffsetSample { sigma_ns, ..OffsetSample::bare(at_ns, offset_ns) };
                take(number, Found::Sample(node, sample, Stretch::on_own_clock(&sample)))?;
            }
            _ => return Err(lines.problem(number, "not a node, a time and an offset")),
        }
    }
    Ok(())
}

/// What lines of other tools and of earlier versions may contain. Lines of this version are
/// [`OffsetRecord`]s.
#[derive(Deserialize)]
struct OtherLine {
    #[serde(default)]
    meta: bool,
    node_id: Option<u32>,
    window_start_ns: Option<i64>,
    window_end_ns: Option<i64>,
    midpoint_sys_ns: Option<i64>,
    offset_ns: Option<f64>,
    #[serde(alias = "slope_ppm")]
    drift_ppm: Option<f64>,
    reachable: Option<bool>,
    sigma_ns: Option<f64>,
    #[serde(alias = "residual")]
    residual_ns: Option<f64>,
    drift_sigma_ppm: Option<f64>,
    #[serde(default)]
    clock_disturbed: bool,
}

/// Standard deviation from a line's fit residual, for a line that states none. A fit without
/// residual had nothing to compare.
fn of_residual(residual_ns: Option<f64>) -> Option<f64> {
    residual_ns.map(f64::abs).filter(|residual| residual.is_finite() && *residual > 0.0)
}

fn parse_json(text: &[u8]) -> Result<Found, String> {
    if let Ok(record) = serde_json::from_slice::<OffsetRecord>(text) {
        return Ok(of_record(&record));
    }
    let other: OtherLine = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if other.meta {
        return serde_json::from_slice(text).map(Found::Header).map_err(|error| error.to_string());
    }
    of_other(&other)
}

/// A line as this version writes it.
fn of_record(record: &OffsetRecord) -> Found {
    let estimate = &record.estimate;
    if !estimate.reachable {
        return Found::Unreachable;
    }
    let sample = OffsetSample {
        at_ns: record.window_start.midpoint(record.window_end).as_ns(),
        offset_ns: estimate.offset_ns,
        drift_ppm: Some(estimate.drift_ppm),
        sigma_ns: Some(estimate.sigma_ns).filter(|sigma| sigma.is_finite()).or(of_residual(Some(estimate.residual))),
        drift_sigma_ppm: Some(estimate.drift_sigma_ppm).filter(|sigma| sigma.is_finite()),
        offset_drift_covariance: record.offset_drift_covariance,
        wander: record.wander,
        disturbed: record.clock_disturbed,
        slew_ppm: record.slew_ppm,
        step: record.step.map(Into::into),
        round: Some(record.round_id.0),
        broken_into: record.broken_into.map(|round| round.0),
    };
    let window = (record.window_start.as_ns(), record.window_end.as_ns());
    Found::Sample(estimate.node_id.0, sample, Stretch::on_reference_clock(&sample, window))
}

fn of_other(line: &OtherLine) -> Result<Found, String> {
    let node = line.node_id.ok_or("no node_id")?;
    if line.reachable == Some(false) {
        return Ok(Found::Unreachable);
    }
    let window = line.window_start_ns.zip(line.window_end_ns);
    let middle = window.map(|(start, end)| ((i128::from(start) + i128::from(end)).div_euclid(2)) as i64);
    let at_ns =
        middle.or(line.midpoint_sys_ns).ok_or("neither window_start_ns and window_end_ns nor midpoint_sys_ns")?;
    let offset_ns = line.offset_ns.filter(|offset| offset.is_finite()).ok_or("no offset_ns")?;
    let sample = OffsetSample {
        drift_ppm: line.drift_ppm,
        sigma_ns: line.sigma_ns.or(of_residual(line.residual_ns)),
        drift_sigma_ppm: line.drift_sigma_ppm,
        disturbed: line.clock_disturbed,
        ..OffsetSample::bare(at_ns, offset_ns)
    };
    let stretch = Stretch::on_reference_clock(&sample, window.unwrap_or((at_ns, at_ns)));
    Ok(Found::Sample(node, sample, stretch))
}

fn text(cell: &[u8]) -> String {
    String::from_utf8_lossy(cell.trim_ascii()).into_owned()
}

#[cfg(test)]
mod tests {
    //! Every spelling of offsets that is read, and bad lines named by file and line.

    use probe_sync_lines::{Launcher, NodeEstimate, NodeRecord, RankRecord, StepRecord};
    use probe_sync_time::{NodeId, RoundId, Timestamp};

    use super::super::survey::Survey;
    use super::*;

    fn survey(content: &[u8]) -> Survey {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("offsets");
        std::fs::write(&path, content).expect("writable");
        Survey::read(&path).expect("a file of offsets")
    }

    fn read(content: &[u8]) -> Result<Offsets, String> {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("offsets");
        std::fs::write(&path, content).expect("writable");
        Offsets::read(&path).map_err(|error| error.to_string())
    }

    const META: &str =
        r#"{"meta":true,"nodes":[{"node_id":0,"hostname":"a","start_walltime_ns":1},{"node_id":1,"hostname":"b"}]}"#;
    const ROUND: &str = r#"{"round_id":0,"window_id":0,"window_start_ns":1000,"window_end_ns":3000,"node_id":1,"offset_ns":500.5,"drift_ppm":2.5,"residual":1,"reachable":true,"converged":true,"sigma_ns":7,"drift_sigma_ppm":0.125,"bound_lo_ns":null,"extra":[{}]}"#;

    #[test]
    fn own_lines_older_keys_and_tables() {
        let found = read(format!("{META}\n{ROUND}\n").as_bytes()).expect("offsets");
        assert_eq!(found.reference, 0);
        let other = META.replace("\"meta\":true,", "\"meta\":true,\"reference\":1,");
        assert_eq!(read(format!("{other}\n").as_bytes()).expect("offsets").reference, 1);
        let sample = OffsetSample {
            drift_ppm: Some(2.5),
            sigma_ns: Some(7.0),
            drift_sigma_ppm: Some(0.125),
            ..OffsetSample::bare(2000, 500.5)
        };
        assert_eq!((found.axis, &found.nodes[&1]), (Axis::Reference, &vec![sample]));

        let older = br#"{"node_id":1,"midpoint_sys_ns":2000,"offset_ns":500.5,"slope_ppm":2.5}"#;
        let found = read(older).expect("offsets");
        assert_eq!(found.nodes[&1], [OffsetSample { sigma_ns: None, drift_sigma_ppm: None, ..sample }]);

        let table = b"offset_vs_node0_ns,node,node_realtime_ns\r\n-3,2,77\r\n";
        let found = read(table).expect("offsets");
        assert_eq!((found.axis, found.nodes[&2][0].at_ns, found.nodes[&2][0].offset_ns), (Axis::Own, 77, -3.0));
    }

    #[test]
    fn what_a_run_writes_is_read_by_the_same_type() {
        let estimate = NodeEstimate {
            node_id: NodeId(1),
            offset_ns: -7.25,
            drift_ppm: 0.5,
            residual: 1.0,
            reachable: true,
            converged: true,
            sigma_ns: 3.5,
            asymmetry_sigma_ns: 1.0,
            drift_sigma_ppm: 0.125,
            bound_lo_ns: f64::NEG_INFINITY,
            bound_hi_ns: 90.0,
            edges_used: 3,
            edges_excluded: 0,
        };
        let record = OffsetRecord {
            round_id: RoundId(4),
            window_id: 4,
            window_start: Timestamp::from_ns(1_000),
            window_end: Timestamp::from_ns(3_000),
            estimate,
            clock_disturbed: true,
            offset_drift_covariance: Some(0.25),
            wander: Some(40.0),
            slew_ppm: 2.5,
            step: Some(StepRecord { after: Timestamp::from_ns(1_900), before: Timestamp::from_ns(2_100) }),
            broken_into: Some(RoundId(3)),
        };
        let node = |node, hostname: &str| NodeRecord {
            hostname: Some(hostname.to_owned()),
            node_id: NodeId(node),
            host: None,
        };
        let rank = RankRecord {
            rank: 8,
            world_size: 16,
            local_rank: Some(0),
            hostname: "b".to_owned(),
            node_id: NodeId(1),
            launcher: Some(Launcher::Slurm),
            time_namespace: None,
        };
        let header = OffsetsHeader {
            meta: true,
            nodes: vec![node(0, "a"), node(1, "b")],
            reference: NodeId(0),
            ranks: vec![rank.clone()],
        };
        let line = serde_json::to_string(&record).expect("our own type");
        let header = serde_json::to_string(&header).expect("our own type");
        // Keys of the profiler's session to other readers: the measurement knows nothing of it.
        assert!(!header.contains("start_walltime_ns") && !header.contains("start_gpu_ns"), "{header}");
        let content = format!("{header}\n{line}\n");
        let found = read(content.as_bytes()).expect("offsets");
        let known = survey(content.as_bytes());
        assert_eq!((known.hostnames[&1].as_str(), known.ranks), ("b", vec![rank]));
        let expected = OffsetSample {
            at_ns: 2_000,
            offset_ns: -7.25,
            drift_ppm: Some(0.5),
            sigma_ns: Some(3.5),
            drift_sigma_ppm: Some(0.125),
            offset_drift_covariance: Some(0.25),
            wander: Some(40.0),
            disturbed: true,
            slew_ppm: 2.5,
            step: Some(Step { after_ns: 1_900, before_ns: 2_100 }),
            round: Some(4),
            broken_into: Some(3),
        };
        assert_eq!(found.nodes[&1], [expected]);
    }

    #[test]
    fn unreachable_rounds_are_left_out_and_counted() {
        let unreachable = ROUND.replace("\"reachable\":true", "\"reachable\":false").replace("500.5", "0");
        let found = read(format!("{ROUND}\n{unreachable}\n").as_bytes()).expect("offsets");
        assert_eq!(found.nodes[&1].len(), 1);
        assert!(found.notes[0].contains("ignored 1 rounds"), "{:?}", found.notes);
    }

    #[test]
    fn a_last_line_cut_short_is_left_out_and_noted() {
        for end in [20, ROUND.len() - 1] {
            let found = read(format!("{ROUND}\n{}", &ROUND[..end]).as_bytes()).expect("offsets");
            assert_eq!((found.nodes[&1].len(), found.notes.len()), (1, 1));
        }
        // In a table a number cut short would look whole.
        let found = read(b"node,node_realtime_ns,offset_vs_node0_ns\n1,1000,5\n1,2000,50").expect("offsets");
        assert_eq!((found.nodes[&1].len(), found.notes.len()), (1, 1));
    }

    #[test]
    fn errors_name_the_line() {
        let spaces = vec![b' '; super::super::lines::LONGEST_LINE + 10];
        let cases: [(&[u8], &str); 8] = [
            (b"{\"node_id\":1}\n{}\n", "line 1: neither window_start_ns"),
            (b"{\"meta\":true}\n{\"node_id\":1,\n", "line 2: "),
            (b"{\"node_id\":1,\"midpoint_sys_ns\":5,\"offset_ns\":null}\n", "no offset_ns"),
            (b"{\"node_id\":-1,\"midpoint_sys_ns\":5,\"offset_ns\":1}\n", "line 1"),
            (b"time,offset\n1,2\n", "line 1: neither JSON lines nor a table"),
            (b"node,node_realtime_ns,offset_vs_node0_ns\n1,1000\n", "line 2: not a node"),
            (b"node,node_realtime_ns,offset_vs_node0_ns\n1,1000,inf\n", "line 2: not a node"),
            (&spaces, "line 1: longer than"),
        ];
        for (content, expected) in cases {
            let error = read(content).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
        let missing = Offsets::read(Path::new("/nonexistent/offsets.jsonl")).expect_err("no file");
        assert!(missing.to_string().contains("/nonexistent/offsets.jsonl"), "{missing}");
    }

    #[test]
    fn only_known_nodes_have_maps() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("offsets.jsonl");
        std::fs::write(&path, format!("{ROUND}\n{}\n", ROUND.replace("\"node_id\":1", "\"node_id\":2")))
            .expect("writable");
        let mut found = Offsets::read(&path).expect("offsets");
        assert!(found.map(0).expect("the reference needs none").is_none());
        assert!(matches!(found.map(3), Err(Error::NoOffsets { node: 3, .. })));
        // Node 2 reads M + offset = 2500.5; half a nanosecond is kept.
        let map = found.map(2).expect("offsets").expect("not the reference").map;
        assert_eq!(map.map(2_500_500).time_ps, 2_000_000);
        found.reference = 2;
        assert!(found.map(2).expect("the reference needs none").is_none());
        assert!(matches!(found.map(0), Err(Error::NoOffsets { node: 0, .. })));
    }
}

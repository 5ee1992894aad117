//! The contents of a file of offsets, surveyed in one pass that keeps no offset.
//!
//! The survey of `offsets.jsonl` or a table collects the nodes, their hosts and ranks, the
//! reference, and the span in which each node was measured. This is enough to determine each
//! trace's node and when it ran; only then does [`Survey::offsets`] read the file again for the
//! offsets that the traces need. Memory grows with nodes, not with lines: 1000 nodes take 1 MB.
//!
//! What was measured of a node is from the start of its first window to the end of its last, of
//! rounds that reached it; of the reference from the first of anybody's to the last. A reference
//! that was lost and came back while another clock carried its timeline on ([`Survey::carried`])
//! was measured as any node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Error;
use probe_sync_estimate::series::{Axis, Step};
use probe_sync_lines::RankRecord;

use super::offsets::{Found, Offsets, axis_of, read_lines};
use super::stretch::{Ends, Span};
use super::wanted::Wanted;

/// Summary of a file of offsets.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The file.
    pub path: PathBuf,
    /// The node whose clock the offsets are relative to.
    pub reference: u32,
    /// The clock of the offsets' times.
    pub axis: Axis,
    /// Host names by node, if stated.
    pub hostnames: BTreeMap<u32, String>,
    /// Ranks of the launcher, if the run recorded them.
    pub ranks: Vec<RankRecord>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The last line that was read completely. A run still in progress appends lines while its file
    /// is read again; those are not part of this survey.
    last_line: u64,
    nodes: BTreeMap<u32, Extent>,
    all: Ends,
    /// The header line of the file names the reference.
    stated: bool,
    /// Steps of the reference's clock while it was the timeline; the map of every node needs them.
    reference_steps: Vec<Step>,
}

/// Knowledge about one node's offsets.
#[derive(Clone, Debug, Default)]
struct Extent {
    ends: Ends,
    /// The first nonzero offset and its line, if any.
    moving: Option<(u64, f64)>,
    /// That line states its round, as lines of ours do.
    of_round: bool,
}

impl Survey {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Trace`]; [`Error::Line`] for lines that are not offsets, that exceed 16 MiB, or that
    /// add one node too many.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let axis = axis_of(path)?;
        let mut survey = Self {
            path: path.to_owned(),
            reference: 0,
            axis,
            hostnames: BTreeMap::new(),
            ranks: Vec::new(),
            notes: Vec::new(),
            last_line: 0,
            nodes: BTreeMap::new(),
            all: Ends::default(),
            stated: false,
            reference_steps: Vec::new(),
        };
        let mut unreachable = 0_u64;
        read_lines(path, axis, &mut |line, found| {
            if !matches!(found, Found::Cut) {
                survey.last_line = line;
            }
            match found {
                Found::Unreachable => unreachable += 1,
                Found::Cut => survey.notes.push(format!("ignored line {line}, the last, which is truncated")),
                other => survey.take(line, other)?,
            }
            Ok(())
        })?;
        if unreachable > 0 {
            survey.notes.push(format!("ignored {unreachable} rounds in which a node was unreachable"));
        }
        survey.refuse_moving_reference()?;
        if survey.carried() {
            survey.notes.push(format!(
                "node {}, the reference, was lost and came back while another clock maintained its timeline; its own times are mapped \
                by its offsets",
                survey.reference
            ));
        }
        Ok(survey)
    }

    /// The nodes that have offsets.
    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes.keys().copied()
    }

    /// The span over which a node was measured, on its own clock; `None` for a node without
    /// offsets.
    pub fn measured(&self, node: u32) -> Option<Span> {
        if node == self.reference && !self.carried() {
            return self.all.span();
        }
        self.nodes.get(&node)?.ends.span()
    }

    /// Whether the reference has nonzero offsets: its timeline was carried on without it, and it
    /// came back.
    pub fn carried(&self) -> bool {
        let moves = |extent: &Extent| extent.moving.is_some() && extent.of_round;
        self.stated && self.nodes.get(&self.reference).is_some_and(moves)
    }

    /// Requests all offsets in the file.
    pub fn everything(&self) -> Wanted {
        let mut wanted = Wanted::default();
        for node in self.nodes() {
            if let Some(span) = self.measured(node) {
                wanted.add(node, span);
            }
        }
        wanted
    }

    /// Reads the file again for the wanted offsets.
    ///
    /// # Errors
    /// As [`Self::read`]; an error if more are wanted than memory should hold.
    pub fn offsets(&self, wanted: Wanted) -> Result<Offsets, Error> {
        let mut offsets = Offsets::new(&self.path, self.axis);
        (offsets.reference, offsets.notes) = (self.reference, self.notes.clone());
        wanted.read(|node| self.measured(node), self.last_line, &mut offsets)?;
        if self.carried() {
            offsets.carried = true;
            offsets.timeline_steps.clone_from(&self.reference_steps);
        } else if !self.reference_steps.is_empty() {
            // Its own lines need not be among those that are wanted, and no step is stated twice.
            offsets.nodes.remove(&self.reference);
            offsets.steps.insert(self.reference, self.reference_steps.clone());
        }
        Ok(offsets)
    }

    fn take(&mut self, line: u64, found: Found) -> Result<(), Error> {
        match found {
            Found::Header(header) => {
                (self.reference, self.stated) = (header.reference.0, true);
                let named = header.nodes.into_iter().filter_map(|node| Some((node.node_id.0, node.hostname?)));
                self.hostnames.extend(named);
                self.ranks = header.ranks;
            }
            Found::Sample(node, sample, stretch) => {
                if !self.nodes.contains_key(&node) && self.nodes.len() == MOST_NODES {
                    let problem = format!("node {node} exceeds the limit of {MOST_NODES} nodes");
                    return Err(Error::Line { path: self.path.clone(), line, problem });
                }
                let extent = self.nodes.entry(node).or_default();
                extent.ends.add(stretch.own);
                if extent.moving.is_none() && sample.offset_ns != 0.0 {
                    (extent.moving, extent.of_round) = (Some((line, sample.offset_ns)), sample.round.is_some());
                }
                if node == self.reference && sample.offset_ns == 0.0 && self.reference_steps.len() < MOST_STEPS {
                    self.reference_steps.extend(sample.step);
                }
                self.all.add(stretch.reference);
            }
            Found::Unreachable | Found::Cut => {}
        }
        Ok(())
    }

    fn refuse_moving_reference(&self) -> Result<(), Error> {
        let reference = self.reference;
        match self.nodes.get(&reference).and_then(|extent| extent.moving) {
            None => Ok(()),
            // Our own files say who the reference is, and of which round each line is; elsewhere it
            // is a guess that this line disproves.
            Some(_) if self.carried() => Ok(()),
            Some((line, other)) => Err(Error::Line {
                path: self.path.clone(),
                line,
                problem: format!("node {reference} is the reference, but has an offset of {other} ns"),
            }),
        }
    }
}

impl Offsets {
    /// Reads all offsets of a file.
    ///
    /// # Errors
    /// Errors of [`Survey::read`] and [`Survey::offsets`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let survey = Survey::read(path)?;
        survey.offsets(survey.everything())
    }
}

/// Most steps of the reference that are kept: a clock stepped more often is useless.
const MOST_STEPS: usize = 10_000;

/// As many as `solve` takes.
const MOST_NODES: usize = 1 << 16;

#[cfg(test)]
mod tests {
    //! What one pass learns, and what the second keeps.

    use super::*;

    struct File(tempfile::NamedTempFile);

    impl File {
        fn new(lines: &[String]) -> Self {
            let file = tempfile::NamedTempFile::new().expect("a temporary file");
            std::fs::write(file.path(), lines.join("\n") + "\n").expect("writable");
            Self(file)
        }

        fn survey(&self) -> Result<Survey, Error> {
            Survey::read(self.0.path())
        }
    }

    /// A line of a node whose window of 4 s begins then; its offset grows by 1 µs a second.
    fn line(node: u32, start_s: i64) -> String {
        let (start, end) = (start_s * SECOND, (start_s + 4) * SECOND);
        let offset = f64::from(node) * (1e6 + start_s as f64 * 1e3);
        format!(
            "{{\"node_id\":{node},\"window_start_ns\":{start},\"window_end_ns\":{end},\"offset_ns\":{offset},\"drift_ppm\":0,\"reachable\":true}}"
        )
    }

    fn at(seconds: i128, offset_ns: i128) -> i128 {
        seconds * i128::from(SECOND) + offset_ns
    }

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_node_is_measured_from_its_first_window_to_its_last() {
        let out_of_reach = line(1, 12).replace("true}", "false}");
        let file = File::new(&[line(0, 0), line(1, 0), line(0, 4), line(1, 4), line(1, 8), line(0, 12), out_of_reach]);
        let survey = file.survey().expect("offsets");
        assert_eq!(survey.nodes().collect::<Vec<_>>(), [0, 1]);
        let expected = |first_ns, last_ns| Some(Span { first_ns, last_ns });
        assert_eq!(survey.measured(1), expected(at(0, 1_000_000), at(12, 1_008_000)));
        assert_eq!(survey.measured(0), expected(at(0, 0), at(16, 0)), "of anybody");
        assert_eq!(survey.measured(7), None);
        assert!(survey.notes[0].contains("ignored 1 rounds"), "{:?}", survey.notes);
        let table = ["node,node_realtime_ns,offset_vs_node0_ns", "1,1000,400", "1,3000,500", "0,900,0"];
        let survey = File::new(&table.map(str::to_owned)).survey().expect("a table");
        assert_eq!((survey.measured(1), survey.measured(0)), (expected(1000, 3000), expected(600, 2500)));
    }

    #[test]
    fn a_reference_that_moves_is_refused() {
        let moving = line(0, 0).replace("\"offset_ns\":0", "\"offset_ns\":5");
        let error = File::new(&[line(0, 0), moving, line(1, 0)]).survey().expect_err("no reference");
        assert!(error.to_string().contains("line 2: node 0 is the reference, but has an offset of 5 ns"), "{error}");
    }

    /// The truth: node 0 is the reference for 80 s and is away until 800 s. Node 1 carries its
    /// timeline 0.05 ppm too slow, so that node 0's clock is 50 ns ahead of it a second later, and
    /// 36 µs when it comes back.
    #[test]
    fn a_reference_that_came_back_is_mapped_by_its_lines_and_the_bounds_hold() {
        let ahead = |reference_s: f64| (reference_s - 80.0).max(0.0) * 50.0;
        let of_round = |round: i64| {
            let middle = (round * 4 + 2) as f64;
            let node = |node: u32, offset: f64, drift: f64, sigma: f64| {
                let (start, end) = (round * 4 * SECOND, (round + 1) * 4 * SECOND);
                format!(
                    "{{\"round_id\":{round},\"window_id\":{round},\"window_start_ns\":{start},\"window_end_ns\":{end},\"node_id\":{node},\
                     \"offset_ns\":{offset},\"drift_ppm\":{drift},\"residual\":1,\"reachable\":true,\"converged\":true,\"sigma_ns\":{sigma},\
                     \"asymmetry_sigma_ns\":0,\"drift_sigma_ppm\":0.001,\"bound_lo_ns\":null,\"bound_hi_ns\":null,\"edges_used\":1,\"edges_excluded\":0,\
                     \"clock_disturbed\":false}}"
                )
            };
            let zero = match round {
                0..20 => Some(node(0, 0.0, 0.0, 0.0)),
                200.. => Some(node(0, ahead(middle), 0.05, 20.0)),
                _ => None,
            };
            zero.into_iter().chain([node(1, 1e6, 0.0, 10.0)])
        };
        let header = "{\"meta\":true,\"reference\":0,\"nodes\":[]}".to_owned();
        let lines: Vec<String> = std::iter::once(header).chain((0..300).flat_map(of_round)).collect();
        let survey = File::new(&lines).survey().expect("offsets");
        assert!(survey.carried() && survey.notes.iter().any(|note| note.contains("node 0, the reference, was lost")));
        let ended = survey.measured(0).expect("measured").last_ns;
        assert!((ended - at(1200, ahead(1200.0) as i128)).abs() <= 1, "on its own clock: {ended}");
        let file = File::new(&lines);
        let offsets = file.survey().and_then(|survey| survey.offsets(survey.everything())).expect("offsets");
        let map = offsets.map(0).expect("a map").expect("not the identity").map;
        for (reference_s, widest) in
            [(3.0, 50.0), (41.5, 50.0), (100.0, 1e9), (440.0, 1e9), (780.0, 1e9), (900.0, 50.0)]
        {
            let own_ps = ((reference_s * 1e9 + ahead(reference_s)) * 1e3) as i128;
            let found = map.map(own_ps);
            let off_ns = (found.time_ps as f64 / 1e3 - reference_s * 1e9).abs();
            assert!(off_ns <= 2.0 * found.sigma_ns + 2.0, "{reference_s} s: {off_ns} ns off, sigma {}", found.sigma_ns);
            assert!(found.sigma_ns < widest, "{reference_s} s: sigma {}", found.sigma_ns);
        }
        let gap = map.map(at(440, 0) * 1000).sigma_ns;
        assert!(gap > 5_000.0, "nobody measured it there: {gap} ns");
        // Another node's map is not broken by it.
        let other = offsets.map(1).expect("a map").expect("not the identity").map.map(at(440, 1_000_000) * 1000);
        assert!(other.sigma_ns < 50.0 && (other.time_ps - at(440, 0) * 1000).abs() < 50_000, "{other:?}");
    }

    #[test]
    fn what_a_run_writes_while_its_file_is_read_is_not_this_readings() {
        let lines = |seconds: std::ops::Range<i64>| seconds.step_by(4).map(|at| line(1, at)).collect::<Vec<_>>();
        let file = File::new(&lines(0..40));
        let add = |text: &str| {
            let before = std::fs::read_to_string(file.0.path()).expect("readable");
            std::fs::write(file.0.path(), before + text).expect("writable");
        };
        let cut = line(1, 40);
        add(&cut[..50]);
        let survey = file.survey().expect("offsets");
        assert!(survey.notes[0].contains("ignored line 11, the last, which is truncated"), "{:?}", survey.notes);
        // The cut line is whole now, more have come, and the last is not whole yet.
        add(&format!("{}\n{}\n{{\"node", &cut[50..], lines(44..80).join("\n")));
        let offsets = survey.offsets(survey.everything()).expect("the same");
        assert_eq!(offsets.nodes[&1].len(), 10);
        assert_eq!(offsets.notes, survey.notes, "nothing is said of lines that are simply new");
        let whole = file.survey().expect("offsets");
        assert_eq!(whole.offsets(whole.everything()).expect("more").nodes[&1].len(), 20);
    }

    #[test]
    fn steps_of_the_reference_are_known_though_its_own_lines_are_not_wanted() {
        use probe_sync_lines::{NodeEstimate, OffsetRecord, StepRecord};
        use probe_sync_time::{NodeId, RoundId, Timestamp};
        let stepped = |node: u32, after: i64| {
            let estimate = NodeEstimate {
                node_id: NodeId(node),
                offset_ns: 0.0,
                drift_ppm: 0.0,
                residual: 0.0,
                reachable: true,
                converged: true,
                sigma_ns: 4.0,
                asymmetry_sigma_ns: 0.0,
                drift_sigma_ppm: 5.0,
                bound_lo_ns: -9.0,
                bound_hi_ns: 9.0,
                edges_used: 1,
                edges_excluded: 0,
            };
            let record = OffsetRecord {
                round_id: RoundId(1),
                window_id: 1,
                window_start: Timestamp::from_ns(0),
                window_end: Timestamp::from_ns(4 * SECOND),
                estimate,
                clock_disturbed: false,
                offset_drift_covariance: None,
                wander: None,
                slew_ppm: 0.0,
                step: Some(StepRecord { after: Timestamp::from_ns(after), before: Timestamp::from_ns(after + 10) }),
                broken_into: None,
            };
            serde_json::to_string(&record).expect("our own type")
        };
        let file = File::new(&[stepped(0, 700), stepped(1, 900), line(1, 4)]);
        let survey = file.survey().expect("offsets");
        let mut wanted = Wanted::default();
        wanted.add(1, Span { first_ns: 0, last_ns: i128::from(SECOND) });
        let offsets = survey.offsets(wanted).expect("few");
        assert_eq!(offsets.steps.into_iter().collect::<Vec<_>>(), [(0, vec![Step { after_ns: 700, before_ns: 710 }])]);
    }

    #[test]
    fn nodes_without_end_are_refused_at_their_line() {
        let rows = (0..=MOST_NODES).map(|node| format!("{node},5,0"));
        let lines: Vec<String> = std::iter::once("node,node_time_ns,offset_ns".to_owned()).chain(rows).collect();
        let error = File::new(&lines).survey().expect_err("one too many");
        assert!(error.to_string().contains("line 65538: node 65536 exceeds the limit of 65536"), "{error}");
        File::new(&lines[..=MOST_NODES]).survey().expect("as many as fit");
    }

    #[test]
    fn all_of_a_file_is_all_of_it() {
        let file = File::new(&[line(1, 0), line(2, 0), line(1, 4)]);
        let offsets = Offsets::read(file.0.path()).expect("offsets");
        assert_eq!((offsets.nodes[&1].len(), offsets.nodes[&2].len(), offsets.nodes.len()), (2, 1, 2));
    }
}

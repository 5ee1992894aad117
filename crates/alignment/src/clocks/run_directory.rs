//! The directory of a run of `probe_sync`, as alignment reads it.
//!
//! `--run-dir` supplies offsets with hosts and ranks, snapshot pairs by node, and the moments at
//! which the run saw a system clock step (`global_windows.jsonl`). Only `offsets.jsonl` is
//! required.

use std::path::{Path, PathBuf};

use crate::Error;
use probe_sync_files::{continuations, segments};
use probe_sync_formats::model::{ClockPair, Picoseconds};
use probe_sync_lines::{ClockBreak, ClockEvent, SMOOTHED_OFFSETS, StepRecord};
use probe_sync_time::NodeId;
use serde::Deserialize;

use super::lines::{Line, Lines};
use super::marks::MarkFiles;
use super::offsets::Offsets;
use super::snapshots::{Snapshots, read_snapshots};
use super::survey::Survey;
use super::wanted::Wanted;

/// Directory of a run.
#[derive(Clone, Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Survey of its offsets.
    pub survey: Survey,
    /// The offsets are smoothed over the whole run.
    is_smoothed: bool,
}

impl RunDirectory {
    /// Surveys `offsets.smoothed.jsonl` or, if that does not exist, `offsets.jsonl`.
    ///
    /// # Errors
    /// Errors of [`Survey::read`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        // The run as a whole, where it ended in order or `solve` has looked at it since: its lines
        // know of its steps.
        let smoothed = path.join(SMOOTHED_OFFSETS);
        // Where a rank took the place of a lost one nobody looked at the run as a whole.
        let is_smoothed = smoothed.exists() && continuations(&path.join("offsets.jsonl")).is_empty();
        let file = if is_smoothed { smoothed } else { path.join("offsets.jsonl") };
        Ok(Self { path: path.to_path_buf(), survey: Survey::read(&file)?, is_smoothed })
    }

    /// Reads the wanted offsets. If the run was not smoothed, `global_windows.jsonl` adds what it
    /// says about clocks, if it exists.
    ///
    /// # Errors
    /// Errors of [`Survey::offsets`]; [`Error::Line`] naming file and line.
    pub fn offsets(&self, wanted: Wanted) -> Result<Offsets, Error> {
        let mut offsets = self.survey.offsets(wanted)?;
        if self.is_smoothed {
            return Ok(offsets);
        }
        let windows = self.path.join("global_windows.jsonl");
        if segments(&windows).iter().any(|file| file.exists()) {
            read_steps(&windows, &mut offsets)?;
        }
        Ok(offsets)
    }

    /// A note if the run was not smoothed as a whole.
    pub(crate) fn live_only(&self) -> Option<&'static str> {
        (!self.is_smoothed).then_some(LIVE_ONLY)
    }

    /// The marks of its processes.
    ///
    /// # Errors
    /// Errors of [`MarkFiles::in_run`].
    pub fn marks(&self) -> Result<MarkFiles, Error> {
        MarkFiles::in_run(&self.path)
    }

    /// Reads the snapshot pairs of a node around a trace; `None` if there is no file. Of the JSON
    /// lines, which a run writes as it goes, and the document, which holds the last 2^18 pairs of a
    /// run that ended normally, the one that covers more of the trace is used. Documents of earlier
    /// versions do not name the clock; the lines do.
    ///
    /// # Errors
    /// Errors of [`read_snapshots`] if neither file can be read; an error if the two files are of
    /// different clocks.
    pub fn snapshots(&self, node: u32, near: Option<(Picoseconds, Picoseconds)>) -> Result<Option<Snapshots>, Error> {
        let [lines, document] = ["jsonl", "pb"]
            .map(|ending| self.path.join(format!("snapshots/node{node}.snapshot_pairs.{ending}")))
            .map(|path| path.is_file().then(|| read_snapshots(&path, near)));
        match (lines, document) {
            (None, None) => Ok(None),
            (Some(only), None) | (None, Some(only)) => only.map(Some),
            (Some(Ok(lines)), Some(Ok(document))) => self.fuller(node, near, lines, document).map(Some),
            (Some(Err(error)), Some(Ok(other))) | (Some(Ok(other)), Some(Err(error))) => {
                let notes = vec![format!("{error}; using the run's other snapshot file")];
                Ok(Some(Snapshots { notes, ..other }))
            }
            (Some(Err(error)), Some(Err(_))) => Err(error),
        }
    }

    /// Of a node's two files the one that covers more of a trace, with the clock name that either
    /// states.
    fn fuller(
        &self,
        node: u32,
        near: Option<(Picoseconds, Picoseconds)>,
        lines: Snapshots,
        document: Snapshots,
    ) -> Result<Snapshots, Error> {
        if let (Some(one), Some(other)) = (&lines.clock, &document.clock)
            && one != other
        {
            let path = self.path.join(format!("snapshots/node{node}.snapshot_pairs.pb"));
            let problem = format!(
                "pairs of the tracer clock {other}, but the adjacent JSON lines are for {one}: remove one of the files"
            );
            return Err(Error::malformed(&path, 0, problem));
        }
        let clock = lines.clock.clone().or_else(|| document.clock.clone());
        let namespaces = lines.namespaces.union(&document.namespaces).copied().collect();
        let fuller = if covered(&document.pairs, near) > covered(&lines.pairs, near) { document } else { lines };
        Ok(Snapshots { clock, namespaces, ..fuller })
    }
}

/// How much of a trace is between the first and the last pair, and the number of pairs.
fn covered(pairs: &[ClockPair], near: Option<(Picoseconds, Picoseconds)>) -> (Picoseconds, usize) {
    let (first, last) = near.unwrap_or((0, 0));
    let overlap = |time: fn(&ClockPair) -> Picoseconds| {
        let (from, until) =
            (pairs.iter().map(time).min().unwrap_or(last), pairs.iter().map(time).max().unwrap_or(first));
        last.min(until).saturating_sub(first.max(from))
    };
    // The trace may be on either clock.
    let length = overlap(|pair| pair.tracer_ps).max(overlap(|pair| i128::from(pair.system_ns) * 1000));
    (length.max(0), pairs.len())
}

/// The part of a line of `global_windows.jsonl` that matters here, in the writer's own types. The
/// complete round is not required: a run of an earlier version states the same about its clocks.
#[derive(Deserialize)]
struct WindowLine {
    #[serde(default)]
    round_id: u64,
    #[serde(default)]
    carried_by: Option<NodeId>,
    #[serde(default)]
    clock_events: Vec<(NodeId, ClockEvent)>,
    #[serde(default)]
    watch: WatchPart,
}

#[derive(Default, Deserialize)]
struct WatchPart {
    #[serde(default)]
    breaks: Vec<ClockBreak>,
}

fn read_steps(path: &Path, offsets: &mut Offsets) -> Result<(), Error> {
    let mut lines = Lines::open(path)?;
    let mut kept = 0;
    while let Some(Line { number, text, may_be_cut }) = lines.next()? {
        match serde_json::from_slice::<WindowLine>(text) {
            Ok(window) if lines.superseded(window.round_id) => {}
            Ok(window) => {
                let of_event = |(node, event): &(NodeId, ClockEvent)| Some((*node, StepRecord::of_event(event)?));
                for (node, step) in window.clock_events.iter().filter_map(of_event) {
                    kept += 1;
                    if kept <= MOST_STEPS {
                        offsets.steps.entry(node.0).or_default().push(step.into());
                        if node.0 == offsets.reference && window.carried_by.is_none() {
                            offsets.timeline_steps.push(step.into());
                        }
                    }
                }
                for broken in &window.watch.breaks {
                    offsets.broken.entry(broken.node.0).or_default().insert(broken.round.0);
                }
            }
            // The file may go on in the next one.
            Err(_) if may_be_cut => {}
            Err(error) => return Err(lines.problem(number, error.to_string())),
        }
    }
    if kept > MOST_STEPS {
        offsets.notes.push(format!("using only the first {MOST_STEPS} of {kept} steps of system clocks"));
    }
    Ok(())
}

const MOST_STEPS: usize = 10_000;
const LIVE_ONLY: &str = "using the run's offsets.jsonl, whose estimates only include earlier data: offsets.smoothed.jsonl does not \
    exist, because the run is still in progress or did not end normally; create it with probe_sync solve --probes or --windows";

#[cfg(test)]
mod tests {
    //! A run's directory: hosts, steps that the run saw, snapshot files.

    use probe_sync_estimate::series::Step;
    use probe_sync_formats::Error as TraceError;

    use super::*;

    struct Run(tempfile::TempDir);

    impl Run {
        fn new() -> Self {
            let run = Self(tempfile::tempdir().expect("a temporary directory"));
            std::fs::create_dir(run.0.path().join("snapshots")).expect("writable");
            run.write(
                "offsets.jsonl",
                b"{\"meta\":true,\"nodes\":[{\"node_id\":0,\"hostname\":\"a\"},{\"node_id\":1,\"hostname\":\"b\"},\
                 {\"node_id\":2,\"hostname\":\"b\"}],\"ranks\":[{\"rank\":8,\"world_size\":16,\"hostname\":\"b\",\"node_id\":1}]}\n\
                 {\"node_id\":1,\"window_start_ns\":0,\"window_end_ns\":8,\"offset_ns\":5,\"reachable\":true}\n",
            );
            run
        }

        fn write(&self, name: &str, content: &[u8]) {
            std::fs::write(self.0.path().join(name), content).expect("writable");
        }

        fn open(&self) -> Result<RunDirectory, Error> {
            RunDirectory::open(self.0.path())
        }

        fn steps(&self) -> Result<Offsets, Error> {
            let run = self.open()?;
            run.offsets(run.survey.everything())
        }
    }

    #[test]
    fn a_run_gives_hosts_ranks_offsets_and_steps() {
        let run = Run::new();
        let bare = run.open().expect("offsets are enough");
        assert_eq!((bare.survey.hostnames[&1].as_str(), bare.survey.hostnames.get(&7)), ("b", None));
        assert_eq!(
            (bare.survey.ranks[0].rank, bare.survey.ranks[0].node_id, bare.survey.ranks.len()),
            (8, NodeId(1), 1)
        );
        assert_eq!(run.steps().expect("offsets").nodes[&1].len(), 1);
        run.write(
            "global_windows.jsonl",
            b"{\"round_id\":3,\"clock_events\":[[1,{\"step_ns\":-900,\"slew_ppm\":0.0,\"at_ns\":77}],\
              [2,{\"step_ns\":0,\"slew_ppm\":30.0,\"at_ns\":78}],\
              [4,{\"step_ns\":5,\"slew_ppm\":0.0,\"at_ns\":79,\"step_between_ns\":[60,70]}]],\"watch\":{\"breaks\":[{\"node\":2,\"round\":3}]},\"decision\":{}}\n{\"round_id\":4}\n{\"clock_ev",
        );
        let offsets = run.steps().expect("a run");
        assert_eq!(
            offsets.steps.get(&1),
            Some(&vec![StepRecord::seen(probe_sync_time::Timestamp::from_ns(77), -900).into()])
        );
        assert_eq!(offsets.steps.get(&2), None, "a change of rate is no step");
        assert_eq!(offsets.steps.get(&4), Some(&vec![Step { after_ns: 60, before_ns: 70 }]), "as the event says");
        assert_eq!(offsets.broken.get(&2), Some(&[3].into()), "but its clock does not go on");
        run.write("global_windows.jsonl", b"{\"clock_events\":7}\n");
        assert!(run.steps().expect_err("not a list").to_string().contains("line 1"));
        std::fs::remove_file(run.0.path().join("offsets.jsonl")).expect("it was there");
        assert!(matches!(run.open(), Err(Error::Trace(TraceError::Io { .. }))));
    }

    #[test]
    fn segments_are_one_recording_and_the_first_may_be_gone() {
        let run = Run::new();
        let line = |at: i64| {
            format!(
                "{{\"node_id\":1,\"window_start_ns\":{at},\"window_end_ns\":{},\"offset_ns\":{at},\"reachable\":true}}\n",
                at + 8
            )
        };
        let header = "{\"meta\":true,\"nodes\":[{\"node_id\":1,\"hostname\":\"b\"}]}\n";
        run.write("offsets.000002.jsonl", format!("{header}{}{}", line(10), line(20)).as_bytes());
        // Its end was cut off when the machine went down.
        run.write("offsets.000003.jsonl", format!("{header}{}{}", line(30), &line(35)[..20]).as_bytes());
        run.write("offsets.jsonl", format!("{header}{}", line(40)).as_bytes());
        let event = |at: i64| format!("{{\"clock_events\":[[1,{{\"step_ns\":5,\"slew_ppm\":0.0,\"at_ns\":{at}}}]]}}\n");
        run.write("global_windows.000002.jsonl", event(12).as_bytes());
        run.write("global_windows.jsonl", event(42).as_bytes());
        let offsets = run.steps().expect("one recording");
        let at: Vec<i64> = offsets.nodes[&1].iter().map(|sample| sample.at_ns).collect();
        assert_eq!(at, [14, 24, 34, 44]);
        assert_eq!(offsets.steps[&1].len(), 2);
        // Between closing a segment and beginning the next there is no other file.
        std::fs::remove_file(run.0.path().join("offsets.jsonl")).expect("it was there");
        assert_eq!(run.steps().expect("three segments").nodes[&1].len(), 3);
        run.write("offsets.jsonl", b"{\"node_id\":\n{}\n");
        let complaint = run.open().expect_err("no offsets").to_string();
        assert!(complaint.contains("offsets.jsonl") && complaint.contains("line 1"), "{complaint}");
    }

    #[test]
    fn what_another_rank_went_on_with_counts_from_its_first_round_on() {
        let run = Run::new();
        let line = |round: i64, offset: i64| {
            let (start, end) = (round * 10, round * 10 + 8);
            format!(
                "{{\"round_id\":{round},\"window_id\":{round},\"window_start_ns\":{start},\"window_end_ns\":{end},\"node_id\":1,\
                 \"offset_ns\":{offset},\"drift_ppm\":0.0,\"residual\":0.0,\"reachable\":true,\"converged\":true,\"sigma_ns\":1.0,\
                 \"drift_sigma_ppm\":0.1,\"bound_lo_ns\":null,\"bound_hi_ns\":null,\"edges_used\":1,\"edges_excluded\":0}}\n"
            )
        };
        let header = "{\"meta\":true,\"nodes\":[{\"node_id\":1,\"hostname\":\"b\"}]}\n";
        // The old master woke and wrote round 3 once more, of another solution.
        run.write("offsets.jsonl", format!("{header}{}{}{}", line(1, 1), line(2, 2), line(3, 333)).as_bytes());
        std::fs::create_dir(run.0.path().join("rank2-from-round3")).expect("writable");
        run.write("rank2-from-round3/offsets.jsonl", format!("{header}{}{}", line(3, 3), line(4, 4)).as_bytes());
        let event = |round: i64, at: i64| {
            format!(
                "{{\"round_id\":{round},\"clock_events\":[[1,{{\"step_ns\":5,\"slew_ppm\":0.0,\"at_ns\":{at}}}]]}}\n"
            )
        };
        run.write("global_windows.jsonl", format!("{}{}", event(2, 22), event(3, 33)).as_bytes());
        run.write("rank2-from-round3/global_windows.jsonl", event(3, 34).as_bytes());
        // Of the first master's rounds alone.
        run.write("offsets.smoothed.jsonl", format!("{header}{}", line(1, 1)).as_bytes());
        let offsets = run.steps().expect("one recording");
        let of = |field: fn(&probe_sync_estimate::series::OffsetSample) -> f64| -> Vec<f64> {
            offsets.nodes[&1].iter().map(field).collect()
        };
        assert_eq!(of(|sample| sample.offset_ns), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(offsets.steps[&1].len(), 2);
    }

    /// The lines of pairs at these seconds; the tracer clock is an hour behind.
    fn lines(seconds: std::ops::Range<i64>) -> String {
        let pair = |at: i64| {
            let (system, tracer) = (at * 1_000_000_000, (at - 3600) * 1_000_000_000);
            format!("{{\"sys_clock_ns\":{system},\"tracer_clock_ns\":{tracer},\"bracket_ns\":100}}\n")
        };
        seconds.map(pair).collect()
    }

    #[test]
    fn the_run_names_the_clock_of_its_pairs_in_either_file() {
        let named = |clock: &str| {
            lines(0..3).replace(",\"bracket_ns\"", &format!(",\"tracer_clock\":\"{clock}\",\"bracket_ns\""))
        };
        let of_clock = |seconds, clock: &str| {
            let mut all = document(seconds);
            probe_sync_formats::protobuf::put_bytes(&mut all, 3, clock.as_bytes());
            all
        };
        let check = |lines: &str, document: &[u8], expected: Result<(usize, Option<&str>), &str>| {
            let run = Run::new();
            run.write("snapshots/node1.snapshot_pairs.jsonl", lines.as_bytes());
            run.write("snapshots/node1.snapshot_pairs.pb", document);
            match (run.open().expect("a run").snapshots(1, None), expected) {
                (Ok(Some(found)), Ok(expected)) => assert_eq!((found.pairs.len(), found.clock.as_deref()), expected),
                (Err(said), Err(part)) => assert!(said.to_string().contains(part), "{said}"),
                (found, expected) => panic!("{found:?} instead of {expected:?}"),
            }
        };
        // The document has more pairs, and the lines alone name the clock, and the other way round.
        check(&named("boottime"), &document(0..5), Ok((5, Some("boottime"))));
        check(&lines(0..3), &of_clock(0..2, "tsc"), Ok((3, Some("tsc"))));
        check(&named("tsc"), &of_clock(0..2, "tsc"), Ok((3, Some("tsc"))));
        check(&lines(0..3), &document(0..2), Ok((3, None)));
        let two = "node1.snapshot_pairs.pb: byte 0: pairs of the tracer clock boottime, but the adjacent JSON lines are for tsc";
        check(&named("tsc"), &of_clock(0..2, "boottime"), Err(two));
    }

    #[test]
    fn a_run_without_the_smoothed_file_says_so() {
        let run = Run::new();
        assert!(
            run.open()
                .expect("a run")
                .live_only()
                .is_some_and(|note| note.contains("offsets.smoothed.jsonl does not exist"))
        );
        run.write(
            "offsets.smoothed.jsonl",
            b"{\"node_id\":1,\"window_start_ns\":0,\"window_end_ns\":8,\"offset_ns\":5}\n",
        );
        assert_eq!(run.open().expect("a run").live_only(), None);
    }

    /// The same as a document.
    fn document(seconds: std::ops::Range<i64>) -> Vec<u8> {
        let mut all = Vec::new();
        for at in seconds {
            let mut pair = Vec::new();
            probe_sync_formats::protobuf::put_number(&mut pair, 1, (at * 1_000_000_000) as u64);
            probe_sync_formats::protobuf::put_number(&mut pair, 2, ((at - 3600) * 1_000_000_000) as u64);
            probe_sync_formats::protobuf::put_bytes(&mut all, 1, &pair);
        }
        all
    }

    #[test]
    fn of_two_snapshot_files_counts_what_covers_the_trace() {
        let second = |at: i128| at * 1_000_000_000_000;
        let check = |lines_at: Option<std::ops::Range<i64>>,
                     document_at: Option<std::ops::Range<i64>>,
                     near,
                     expected: Option<usize>| {
            let run = Run::new();
            if let Some(at) = lines_at.clone() {
                run.write("snapshots/node1.snapshot_pairs.jsonl", lines(at).as_bytes());
            }
            if let Some(at) = document_at.clone() {
                run.write("snapshots/node1.snapshot_pairs.pb", &document(at));
            }
            let found = run.open().expect("a run").snapshots(1, near).expect("readable files");
            assert_eq!(found.map(|found| found.pairs.len()), expected, "{lines_at:?} {document_at:?} {near:?}");
        };
        let (on_system, on_tracer) = ((second(4010), second(4020)), (second(410), second(420)));
        check(None, None, Some(on_system), None);
        check(Some(4000..4100), None, Some(on_system), Some(100));
        check(None, Some(4000..4100), Some(on_system), Some(100));
        for near in [on_system, on_tracer] {
            // The ring has lost the beginning.
            check(Some(4000..4100), Some(4050..4100), Some(near), Some(100));
            check(Some(4000..4100), Some(4015..4200), Some(near), Some(100));
            // The lines end early: a full disk.
            check(Some(4000..4012), Some(4005..4100), Some(near), Some(95));
            check(Some(4000..4012), Some(3990..4100), Some(near), Some(110));
        }
        // Equal cover: the one with more pairs.
        check(Some(4000..4100), Some(4000..4090), Some(on_system), Some(100));
        check(Some(4000..4090), Some(4000..4100), Some(on_system), Some(100));
        check(Some(4000..4100), Some(4000..4090), None, Some(100));
        check(Some(5000..5100), Some(6000..6050), Some(on_system), Some(100));
    }

    #[test]
    fn a_damaged_snapshot_file_gives_way_to_the_other_and_is_named() {
        let run = Run::new();
        run.write("snapshots/node1.snapshot_pairs.jsonl", lines(0..3).as_bytes());
        run.write("snapshots/node1.snapshot_pairs.pb", b"");
        let notes = |pairs: usize, problem: &str| {
            let found = run.open().expect("a run").snapshots(1, None).expect("one is good").expect("files");
            assert_eq!(found.pairs.len(), pairs);
            assert!(found.notes.len() == 1 && found.notes[0].contains(problem), "{:?}", found.notes);
        };
        notes(3, "node1.snapshot_pairs.pb");
        run.write("snapshots/node1.snapshot_pairs.jsonl", b"{\"sys_clock_ns\":1}\n");
        run.write("snapshots/node1.snapshot_pairs.pb", &document(0..7));
        notes(7, "node1.snapshot_pairs.jsonl: line 1");
        run.write("snapshots/node1.snapshot_pairs.pb", b"");
        let error = run.open().expect("a run").snapshots(1, None).expect_err("both are damaged");
        assert!(error.to_string().contains("line 1"), "{error}");
    }
}

//! Traces that begin at different steps, of some ranks alone, on clocks that are wrong or hardly
//! known: as PyTorch's profiler writes them, with NCCL kernels that carry no number.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use probe_sync_alignment::Error;
use probe_sync_alignment::{
    AlignSettings, Calibrated, ClockSource, Outcome, Request, StepNames, align, calibrate, check,
};

use crate::{Lateness, lateness};

/// A job whose ranks add something up once in each step of 20 ms.
#[derive(Clone)]
struct Job {
    ranks: u32,
    /// The steps that each rank records.
    recorded: fn(u32) -> std::ops::Range<u32>,
    /// By how much each rank comes late, µs.
    late: fn(u32) -> i64,
    /// By how much each rank's clock is ahead, µs.
    ahead: fn(u32) -> i64,
    /// The traces say which step is which.
    steps: bool,
}

impl Default for Job {
    fn default() -> Self {
        Self { ranks: 2, recorded: |_| 0..30, late: |rank| i64::from(rank), ahead: |_| 0, steps: true }
    }
}

const BASE_NS: i64 = 1_767_189_312_000_000_000;

impl Job {
    fn document(&self, rank: u32) -> String {
        let all: Vec<String> = (0..self.ranks).map(|rank| rank.to_string()).collect();
        let (group, ranks) = (all.join(", "), self.ranks);
        let mut events = Vec::new();
        for step in (self.recorded)(rank) {
            let begun = 20_000 * i64::from(step) + (self.ahead)(rank);
            if self.steps {
                events.push(format!(
                    r#"{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 9, "tid": 9, "ts": {}, "dur": 19000}}"#,
                    begun - 3000
                ));
            }
            let last = (0..self.ranks).map(|rank| (self.late)(rank)).max().unwrap_or(0);
            let start = begun + (self.late)(rank);
            let end = begun + last + 300 + i64::from(rank + step) % 3;
            let args = format!(
                r#""External id": {step}, "Collective name": "allreduce", "In msg nelems": 1024, "Group size": {ranks}, "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[{group}]""#
            );
            events.push(format!(
                r#"{{"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 9, "tid": 9, "ts": {}, "dur": 20, "args": {{{args}}}}}"#,
                start - 50
            ));
            events.push(format!(
                r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "pid": 0, "tid": 7, "ts": {start}, "dur": {}, "args": {{"correlation": {step}, {args}}}}}"#,
                end - start
            ));
        }
        let events = events.join(", ");
        format!(
            r#"{{"distributedInfo": {{"rank": {rank}, "world_size": {ranks}, "pg_config": [{{"pg_name": "0", "pg_size": {ranks}, "ranks": [{group}]}}]}}, "baseTimeNanoseconds": {BASE_NS}, "traceEvents": [{events}]}}"#
        )
    }

    /// Writes the traces of some ranks, and offsets of their nodes: by how much their clocks are
    /// said to be ahead, µs.
    fn write(&self, folder: &Path, ranks: &[u32], said: fn(u32) -> i64) -> (Vec<PathBuf>, PathBuf) {
        let mut offsets = "node,node_realtime_ns,offset_vs_node0_ns\n".to_owned();
        for rank in 0..self.ranks {
            for at in [-1_000_000_000, 5_000_000_000] {
                let time = BASE_NS + at + 1000 * said(rank);
                writeln!(offsets, "{rank},{time},{}", 1000 * said(rank)).expect("a string");
            }
        }
        std::fs::write(folder.join("offsets.csv"), offsets).expect("written");
        let trace = |rank: &u32| {
            let path = folder.join(format!("rank{rank}.json"));
            std::fs::write(&path, self.document(*rank)).expect("written");
            path
        };
        (ranks.iter().map(trace).collect(), folder.join("offsets.csv"))
    }

    /// On clocks as they are said to be.
    fn calibrated(&self, folder: &Path, ranks: &[u32], said: fn(u32) -> i64) -> Result<Calibrated, Error> {
        let (traces, offsets) = self.write(folder, ranks, said);
        calibrate(&Request {
            traces,
            nodes: ranks.to_vec(),
            clocks: ClockSource::Offsets(offsets),
            ..Request::default()
        })
    }

    fn late_ranks(&self, ranks: &[u32], said: fn(u32) -> i64) -> Lateness {
        let folder = tempfile::tempdir().expect("a folder");
        let calibrated = self.calibrated(folder.path(), ranks, said).expect("clocks");
        lateness(&calibrated, &StepNames::default()).expect("lateness")
    }
}

#[test]
fn windows_that_are_shifted_by_a_step_accuse_neither_ranks_nor_clocks() {
    for steps in [true, false] {
        let job = Job { recorded: |rank| rank..rank + 3, steps, ..Job::default() };
        let folder = tempfile::tempdir().expect("a folder");
        let calibrated = job.calibrated(folder.path(), &[0, 1], |_| 0).expect("clocks");
        let verdict = check(&calibrated);
        let found = (verdict.outcome(), verdict.result.edges, verdict.result.unpaired_parts);
        assert_eq!(found, (Outcome::Holds, 4, 2), "{}", verdict.text());
        let found = lateness(&calibrated, &StepNames::default()).expect("lateness");
        assert_eq!(found.instances.len(), 2);
        assert!(found.instances.iter().all(|of| of.lead_ns < 20_000 && of.transfer_ns > 0), "{found:?}");
        // Without clocks the steps tell which belong together, and nothing does without them.
        let traces = calibrated.traces.iter().map(|of| of.trace.path.clone()).collect();
        let learnt = calibrate(&Request { traces, clocks: ClockSource::Collectives, ..Request::default() });
        match learnt {
            Ok(learnt) => {
                let offsets = learnt.collectives.expect("asked");
                let node = &offsets.windows[0].nodes[1];
                let bounds = node.bound_lo_ns.zip(node.bound_hi_ns).expect("bounds");
                assert!(steps && bounds.0 <= 0.0 && bounds.1 >= 0.0, "{}", offsets.text());
                assert!(!offsets.text().contains("certainly within 0 ns to 0 ns"), "{}", offsets.text());
            }
            Err(refused) => {
                assert!(!steps && refused.to_string().contains("may begin with different ones"), "{refused}");
            }
        }
    }
}

#[test]
fn some_ranks_of_a_job_name_nobody_where_a_missing_one_may_have_been_last() {
    // Rank 5 comes 10 ms late and is not recorded; rank 1 comes 2 ms late.
    let late = |rank| [0, 2000, 5, 3, 8, 10_000, 1, 12][rank as usize];
    let job = Job { ranks: 8, late, ..Job::default() };
    let found = job.late_ranks(&[0, 1], |_| 0);
    assert!(found.stragglers.is_empty() && found.instances.iter().all(|of| of.last_rank.is_none()), "{found:?}");
    assert_eq!((found.missing_ranks.as_slice(), found.instances[0].missing), (&[2, 3, 4, 5, 6, 7][..], 6));
    let text = found.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("The traces of 6 ranks are missing (2–7): any of them may have been last"), "{text}");
    assert!(!text.contains("Straggler: rank"), "{text}");
    let all = job.late_ranks(&[0, 1, 2, 3, 4, 5, 6, 7], |_| 0);
    let named: Vec<_> = all.stragglers.iter().map(|straggler| straggler.rank).collect();
    assert_eq!((named, all.missing_ranks.len()), (vec![Some(5)], 0), "{}", all.text());
}

#[test]
fn a_clock_that_is_wrong_comes_first_and_nobody_is_named() {
    // Rank 1's clock is 37 ms ahead, and is said to be as much behind.
    let job = Job { ahead: |rank| 37_000 * i64::from(rank), ..Job::default() };
    let right = job.late_ranks(&[0, 1], |rank| 37_000 * i64::from(rank));
    assert_eq!((right.impossible_instances, right.warnings.len()), (0, 0), "{}", right.text());
    let wrong = job.late_ranks(&[0, 1], |rank| -37_000 * i64::from(rank));
    assert_eq!(wrong.impossible_instances, 30, "{}", wrong.text());
    assert!(wrong.stragglers.is_empty() && wrong.instances.iter().all(|of| of.last_rank.is_none()));
    assert!(wrong.text().starts_with("30 of 30 operations ended before their last arrival"), "{}", wrong.text());
    assert!(wrong.warnings[0].contains("a clock is wrong") && wrong.notes[0] == wrong.warnings[0]);
    assert!(!wrong.text().contains("Straggler: rank"), "{}", wrong.text());
}

#[test]
fn traces_that_were_aligned_before_are_known_as_well_as_they_say() {
    let job = Job { late: |rank| 100 * i64::from(rank), ..Job::default() };
    let folder = tempfile::tempdir().expect("a folder");
    let calibrated = job.calibrated(folder.path(), &[0, 1], |_| 0).expect("clocks");
    let output = folder.path().join("aligned");
    let aligned = align(&calibrated, &output, AlignSettings::default()).expect("outputs");
    let traces: Vec<PathBuf> = aligned.map(|aligned| aligned.expect("aligned").output).collect();
    let stated = regex::Regex::new(r#""probe_sync_sigma_ns": *"[^"]*""#).expect("a pattern");
    // As if the files had stated this.
    let named = |statement: &str| {
        for trace in &traces {
            let text = std::fs::read_to_string(trace).expect("read");
            assert!(stated.is_match(&text) || text.contains("probe_sync_nothing"), "{text}");
            std::fs::write(trace, stated.replace(&text, statement).as_bytes()).expect("written");
        }
        let again = calibrate(&Request { traces: traces.clone(), ..Request::default() }).expect("facts");
        let found = lateness(&again, &StepNames::default()).expect("one clock");
        (found.instances.iter().filter(|of| of.last_rank.is_some()).count(), found)
    };
    let (count, found) = named(r#""probe_sync_sigma_ns": "1000.0""#);
    assert_eq!(count, 30, "{}", found.text());
    assert!(found.lead_sigma_median_ns.is_some_and(|sigma| sigma > 900.0), "{:?}", found.lead_sigma_median_ns);
    // Known to 100 µs only, 100 µs are nothing.
    let (count, found) = named(r#""probe_sync_sigma_ns": "100000""#);
    assert_eq!(count, 0, "{}", found.text());
    // A file that does not say.
    let (count, found) = named(r#""probe_sync_nothing": 1"#);
    assert_eq!(count, 0, "{}", found.text());
    assert!(found.text().lines().next().is_some_and(|head| head.contains("unknown")), "{}", found.text());
}

#[test]
fn ranks_that_were_numbered_anew_are_refused_with_the_nodes_that_fit() {
    // Rank 0 ran on node 1, whose clock is 9.7 ms ahead.
    let job = Job { ahead: |rank| if rank == 0 { 9_700 } else { 0 }, steps: false, ..Job::default() };
    let folder = tempfile::tempdir().expect("a folder");
    let (traces, offsets) = job.write(folder.path(), &[0, 1], |node| if node == 1 { 9_700 } else { 0 });
    let request = |traces: Vec<PathBuf>, nodes: Vec<u32>| Request {
        traces,
        assume_order: nodes.is_empty(),
        nodes,
        clocks: ClockSource::Offsets(offsets.clone()),
        ..Request::default()
    };
    let refused = calibrate(&request(traces.clone(), vec![])).expect_err("another launcher's numbers").to_string();
    assert!(refused.contains("All edges hold with rank 0") && refused.contains("give --nodes 1 0"), "{refused}");
    let right = calibrate(&request(traces.clone(), vec![1, 0])).expect("as the refusal says");
    assert_eq!(check(&right).outcome(), Outcome::Holds);
    let turned: Vec<PathBuf> = traces.into_iter().rev().collect();
    let right = calibrate(&request(turned, vec![])).expect("in the order of the nodes");
    assert_eq!(check(&right).outcome(), Outcome::Holds);
}

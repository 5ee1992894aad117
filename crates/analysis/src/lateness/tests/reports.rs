//! Inputs of public reports, with the right values of their descriptions; skipped with a message
//! where they are absent.

use std::path::{Path, PathBuf};

use probe_sync_alignment::{
    AlignSettings, ClockSource, ConvertSettings, MergeSettings, Output, OutputKind, Request, StepNames, align,
    calibrate, check, convert, merge,
};
use probe_sync_writers::OutputFormat;

use crate::lateness;

/// The folder of a report.
fn report(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/reports").join(name);
    let found = folder.is_dir();
    if !found {
        println!("skipped: {} is absent", folder.display());
    }
    found.then_some(folder)
}

/// Every command works on these traces; of operations `edges` hold, and `left_out` events of each
/// trace are in no output.
fn check_report(name: &str, traces: &[&str], edges: usize, left_out: u64) {
    let Some(folder) = report(name) else { return };
    let scratch = tempfile::tempdir().expect("a folder");
    let at = |name: &str| scratch.path().join(name);
    let nodes = if traces.len() == 2 { vec![0, 1] } else { vec![0, 0, 1, 1] };
    let request = Request {
        traces: traces.iter().map(|trace| folder.join(trace)).collect(),
        nodes,
        clocks: ClockSource::Offsets(folder.join("off.csv")),
        ..Request::default()
    };
    let calibrated = calibrate(&request).expect(name);
    assert_eq!(calibrated.warnings.len(), if left_out > 0 { traces.len() } else { 0 }, "{:?}", calibrated.warnings);
    let verdict = check(&calibrated);
    assert_eq!((verdict.result.edges, verdict.result.broken), (edges, 0), "{name}: {}", verdict.text());
    lateness(&calibrated, &StepNames::default()).expect(name);
    for aligned in align(&calibrated, &at("aligned"), AlignSettings::default()).expect(name) {
        let stats = aligned.expect(name).stats;
        assert_eq!((stats.left_out, stats.extrapolated_before, stats.extrapolated_after), (left_out, 0, 0), "{name}");
        assert!(stats.uncertainty_ns < 1e6, "{name}: {}", stats.uncertainty_ns);
    }
    for output in ["all.json", "all.pftrace"] {
        let merged = merge(&calibrated, &at(output), MergeSettings::default()).expect(name);
        assert!(merged.traces.iter().all(|stats| stats.left_out == left_out), "{name}: {output}");
    }
    let each = |format, ending| Output { path: at("each"), kind: OutputKind::FileOfEach { format, ending } };
    let outputs = [each(OutputFormat::Kineto, ".pt.trace.json"), each(OutputFormat::XSpace, ".xplane.pb")];
    let converted = convert(&calibrated, &outputs, &ConvertSettings::default()).expect(name);
    assert!(converted.traces.iter().all(|trace| trace.read.left_out == left_out), "{name}");
}

#[test]
fn an_odd_event_costs_itself_in_every_command() {
    check_report("ts_zero", &["r0.json", "r1.json"], 6, 1);
    check_report("negative_dur", &["r0.json", "r1.json"], 6, 1);
}

#[test]
fn kernels_of_earlier_versions_are_found() {
    check_report("old_kineto_categories", &["r0.json", "r1.json"], 6, 0);
}

#[test]
fn several_traces_of_a_rank_are_taken_by_every_command() {
    let traces = ["host_1000.178", "host_1000.179", "host_1001.178", "host_1001.179"];
    let traces = traces.map(|name| format!("{name}.pt.trace.json"));
    check_report("several_spans_per_rank", &traces.each_ref().map(String::as_str), 8, 0);
}

#[test]
fn a_folder_of_jax_is_its_xspaces() {
    let Some(folder) = report("jax_folder") else { return };
    let (traces, clocks) = (vec![folder.join("traces")], ClockSource::Run(folder.join("run")));
    let calibrated = calibrate(&Request { traces, clocks, ..Request::default() }).expect("two XSpaces");
    assert_eq!(calibrated.traces.len(), 2);
    assert!(calibrated.notes.iter().any(|note| note.starts_with("skipped 2 files")), "{:?}", calibrated.notes);
    let verdict = check(&calibrated);
    assert_eq!((verdict.result.edges, verdict.result.broken), (10, 0), "{}", verdict.text());
}

#[cfg(feature = "rocpd")]
#[test]
fn what_mpi_said_is_the_rank_of_a_database() {
    let Some(folder) = report("rocprofsys_mpi_rank") else { return };
    for kind in ["sysslurm", "sys", "flux"] {
        let traces = [0, 1].map(|rank| folder.join(format!("{kind}{rank}.db"))).into();
        let calibrated = calibrate(&Request { traces, ..Request::default() }).expect(kind);
        let ranks: Vec<_> = calibrated.traces.iter().map(|of| of.trace.facts.identity.rank).collect();
        assert_eq!(ranks, [Some(0), Some(1)], "{kind}");
        let sizes = calibrated.traces.iter().map(|of| of.trace.facts.identity.world_size);
        assert!(sizes.eq([Some(2); 2]), "{kind}");
    }
}

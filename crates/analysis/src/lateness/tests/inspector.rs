//! Synthetic logs of the NCCL Inspector of four ranks, in which rank 2 is 3 ms late.

use std::path::{Path, PathBuf};

use probe_sync_alignment::{ClockSource, Request, StepNames, calibrate};

use crate::{Lateness, lateness};

/// Offsets of the hosts' clocks in the logs, µs.
const OFFSETS_US: [i64; 4] = [0, 5_000, -2_000, 700];
/// CLOCK_REALTIME of the logs, µs.
const NOW_US: i64 = 1_767_225_600_000_000;

fn found(offsets_us: [i64; 4]) -> Lateness {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/src/nccl_inspector/made");
    let traces: Vec<PathBuf> = (0..4).map(|rank| made.join(format!("gpu-0{rank}-pid100{rank}.log"))).collect();
    let mut text = "node,node_realtime_ns,offset_vs_node0_ns\n".to_owned();
    for (node, offset) in offsets_us.iter().enumerate() {
        for at_us in [NOW_US - 60_000_000, NOW_US + 60_000_000] {
            text.push_str(&format!("{node},{},{}\n", at_us * 1000, offset * 1000));
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let offsets = folder.path().join("offsets.csv");
    std::fs::write(&offsets, text).expect("writable");
    let clocks = ClockSource::Offsets(offsets);
    let request = Request { traces, clocks, nodes: vec![0, 1, 2, 3], ..Request::default() };
    lateness(&calibrate(&request).expect("known clocks"), &StepNames::default()).expect("lateness")
}

#[test]
fn the_late_rank_of_inspector_logs_is_named() {
    let found = found(OFFSETS_US);
    assert_eq!(found.instances.len(), 8);
    for instance in &found.instances {
        assert_eq!(instance.last_rank, Some(2), "{instance:?}");
        assert_eq!((instance.lead_ns, instance.spread_ns, instance.transfer_ns), (2_990_000, 3_020_000, 420_000));
        assert_eq!(serde_json::to_value(instance).expect("JSON")["class"], "skew");
    }
    let named: Vec<_> = found.stragglers.iter().map(|straggler| straggler.rank).collect();
    assert_eq!(named, [Some(2)]);
}

/// Uncorrected, rank 1 would seem to be late: its clock is 5 ms ahead.
#[test]
fn the_late_rank_is_not_named_without_the_offsets() {
    let found = found([0; 4]);
    assert!(found.instances.iter().all(|instance| instance.last_rank != Some(2)));
    assert!(found.stragglers.iter().all(|straggler| straggler.rank != Some(2)));
}

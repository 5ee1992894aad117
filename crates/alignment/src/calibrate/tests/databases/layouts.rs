//! Databases of a job with three parallel dimensions, by a generator of their own: which
//! communicators are one.

use probe_sync_formats::model::{GroupKey, Instance};

use super::*;
use crate::{Calibrated, calibrate};

/// Tensor-parallel ranks beside each other, then data-parallel ones, then pipeline stages: 4 × 4 ×
/// 2, and all 32. Of each kind the groups in the order in which they are made.
fn groups() -> Vec<Vec<Vec<u32>>> {
    let tensor = (0..8).map(|group| (0..4).map(|place| 4 * group + place).collect()).collect();
    let data: Vec<Vec<u32>> =
        (0..8).map(|group| (0..4).map(|place| 16 * (group / 4) + group % 4 + 4 * place).collect()).collect();
    let pipeline = (0..16).map(|group| vec![group, group + 16]).collect();
    // Experts are spread as data is: a second communicator of the same ranks, made later.
    vec![vec![(0..32).collect()], tensor, data.clone(), pipeline, data]
}

/// Every rank's database; hosts of eight ranks count time from starts of their own. The groups of a
/// kind are made one after the other or all at once.
fn written(folder: &Path, hosts: u32, in_turn: bool) -> Vec<Database> {
    let mut databases: Vec<Database> = (0..32)
        .map(|rank: u32| process(folder, rank, &format!("host{}", rank * hosts / 32), &torch(rank, 32)))
        .collect();
    let boot = |rank: u32| 7_000_000_000_000 * i64::from(rank * hosts / 32) + 1_000_000_000;
    let mut now = 0;
    for (kind, groups) in groups().iter().enumerate() {
        for (turn, group) in groups.iter().enumerate() {
            let begin = if in_turn { now + 10_000_000 * turn as i64 } else { now };
            for (place, rank) in group.iter().enumerate() {
                let at = begin + boot(*rank) + 1_000 * place as i64;
                // One address on all ranks, of which nothing follows.
                let handle = format!("0x55d{kind}");
                let (size, own) = (group.len().to_string(), place.to_string());
                let made = [("comm", handle.as_str()), ("nranks", size.as_str()), ("myrank", own.as_str())];
                databases[*rank as usize].call("ncclCommInitRank", at, at + 1_000_000, &made);
                let later = at + 100_000_000_000;
                let what = [("count", "64"), ("datatype", "7"), ("comm", handle.as_str())];
                databases[*rank as usize].call("ncclAllReduce", later, later + 500_000, &what);
            }
        }
        now += 1_000_000_000;
    }
    databases
}

/// The groups that each rank's operations are said to be in.
fn joined(calibrated: &Calibrated) -> Vec<(u32, Vec<GroupKey>)> {
    let of = |trace: &crate::NodeTrace| {
        let labels = trace.facts.collectives.labels().filter_map(|(_, label, _)| match &label.instance {
            Instance::Order { group, .. } => group.clone(),
            _ => None,
        });
        (trace.facts.identity.rank.expect("stated"), labels.collect())
    };
    calibrated.traces.iter().map(|calibrated| of(&calibrated.trace)).collect()
}

#[test]
fn tensor_pipeline_and_data_parallel_groups_of_one_size_are_told_apart() {
    let all: usize = groups().iter().flatten().map(Vec::len).sum();
    for (hosts, in_turn, certain) in [(1, true, all), (4, true, all), (32, true, all), (32, false, 32)] {
        let folder = tempfile::tempdir().expect("a folder");
        let databases = written(folder.path(), hosts, in_turn);
        let traces = databases.iter().map(|database| database.path.clone()).collect();
        let calibrated = calibrate(&Request { traces, ..Request::default() }).expect("facts");
        let mut found = 0;
        for (rank, keys) in joined(&calibrated) {
            for (at, key) in keys.iter().enumerate() {
                let ranks = key.ranks.clone().expect("who is in it");
                let truths = groups();
                let of_rank = truths.iter().flatten().filter(|group| group.contains(&rank) && **group == ranks);
                assert!(of_rank.count() > 0, "rank {rank}: {key:?}");
                assert!(!keys[..at].contains(key), "rank {rank}: two of {key:?}");
            }
            found += keys.len();
        }
        assert!(found >= certain, "{hosts} hosts, in turn {in_turn}: {found} of {all}");
        let open = calibrated.notes.iter().filter(|note| note.contains("cannot be distinguished"));
        assert_eq!(open.count() > 0, certain < all, "{:?}", calibrated.notes);
    }
}

//! Runs the shared suite on MPI: every case, on every layout of hosts that the ranks can play.
//!
//! Place in the flow: `mpirun -n N probe-sync-mpi-tests suite`. Each case gets a group of its own, duplicated from the
//! job's; the job's group collects what the ranks complain about.
//! What it does not do: run the cases that end the job (`abort` does).

use std::time::{Duration, Instant};

use probe_sync_collective::suite::{CASES, Case};
use probe_sync_collective::{Collective as _, Deadline, Error, Frames};
use probe_sync_mpi::{MpiCollective, MpiOptions};

use crate::group::GroupExt as _;

/// Runs everything; an error when anything failed. The root prints one line per case and a summary.
pub(crate) fn run(mut group: MpiCollective) -> Result<(), String> {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for options in layouts(group.size()) {
        for case in &CASES {
            let name = format!("{}, {} ranks, {}", case.name, group.size(), describe(&options));
            if case.aborts || case.smallest_size > group.size() {
                skipped += 1;
                if group.is_root() {
                    let reason = if case.aborts { "ends the job" } else { "needs more ranks" };
                    println!("skip {name}: {reason}");
                }
                continue;
            }
            let started = Instant::now();
            let complaints = run_case(&mut group, case, options).map_err(|error| format!("{name}: {error}"))?;
            let outcome = if complaints.is_empty() { "ok  " } else { "FAIL" };
            if group.is_root() {
                println!("{outcome} {name} ({:.2?})", started.elapsed());
                complaints.iter().for_each(|complaint| println!("     {complaint}"));
            }
            if complaints.is_empty() {
                passed += 1;
            } else {
                failed += 1;
            }
        }
    }
    if group.is_root() {
        println!("{passed} passed, {failed} failed, {skipped} skipped");
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} cases failed")) }
}

/// Everyone's complaints, on all ranks.
fn run_case(group: &mut MpiCollective, case: &Case, options: MpiOptions) -> Result<Vec<String>, Error> {
    let mut fresh = group.duplicate(options)?;
    let complaint = (case.run)(&mut fresh).err().unwrap_or_default();
    if case.breaks_group {
        // Some ranks' ends still work and others' do not: the group cannot end in order.
        std::mem::forget(fresh);
    } else {
        drop(fresh);
    }
    let mut frames = Frames::default();
    group.allgather(complaint.as_bytes(), &mut frames, &Deadline::new(Duration::from_secs(60), None))?;
    let said = frames.iter().enumerate().filter(|(_, complaint)| !complaint.is_empty());
    Ok(said.map(|(rank, complaint)| format!("rank {rank}: {}", String::from_utf8_lossy(complaint))).collect())
}

/// One host, and every way to split it into hosts of 1, 2 or 3 ranks.
fn layouts(size: usize) -> Vec<MpiOptions> {
    let mut layouts = vec![MpiOptions::default()];
    let split = (1..=3).filter(|&ranks| ranks < size);
    layouts.extend(split.map(|ranks| MpiOptions { ranks_per_host: Some(ranks) }));
    layouts
}

fn describe(options: &MpiOptions) -> String {
    match options.ranks_per_host {
        None => "one host".to_owned(),
        Some(ranks) => format!("{ranks} per host"),
    }
}

//! Runs the shared suite on MPI: every case, on every host layout that the ranks can emulate, and
//! over messages as used alongside a launcher.
//!
//! Run it as `mpirun -n N probe-sync-mpi-tests suite`. Each case gets its own group, duplicated
//! from the job's; the job's group collects the ranks' complaints. It omits the cases that end the
//! job, which `abort` runs.

use std::time::{Duration, Instant};

use probe_sync_collective::suite::{CASES, Case};
use probe_sync_collective::{ByMessages, Collective as _, Deadline, Error, Frames, by_messages};
use probe_sync_mpi::{MpiCollective, MpiMessages, MpiOptions};

use crate::group::GroupExt as _;

/// Runs everything; an error when anything failed. The root prints one line per case and a summary.
pub(crate) fn run(mut group: MpiCollective) -> Result<(), String> {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for way in ways(group.size()) {
        for case in &CASES {
            let name = format!("{}, {} ranks, {}", case.name, group.size(), describe(way));
            let ends_job = case.aborts && matches!(way, Way::Hosts(_));
            if ends_job || case.smallest_size > group.size() {
                skipped += 1;
                if group.is_root() {
                    let reason = if ends_job { "ends the job" } else { "needs more ranks" };
                    println!("skip {name}: {reason}");
                }
                continue;
            }
            let started = Instant::now();
            let complaints = run_case(&mut group, case, way).map_err(|error| format!("{name}: {error}"))?;
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
fn run_case(group: &mut MpiCollective, case: &Case, way: Way) -> Result<Vec<String>, Error> {
    let complaint = match way {
        Way::Hosts(options) => {
            let mut fresh = group.duplicate(options)?;
            let complaint = (case.run)(&mut fresh).err();
            if case.breaks_group {
                // Some ranks' ends still work and others' do not: the group cannot end in order.
                std::mem::forget(fresh);
            } else {
                drop(fresh);
            }
            complaint
        }
        Way::Messages => {
            let mut fresh = messages(group)?;
            let complaint = (case.run)(&mut fresh).err();
            if !case.breaks_group {
                fresh.release()?;
            }
            complaint
        }
    };
    let complaint = complaint.unwrap_or_default();
    let mut frames = Frames::default();
    group.allgather(complaint.as_bytes(), &mut frames, &Deadline::new(Duration::from_secs(60), None))?;
    let said = frames.iter().enumerate().filter(|(_, complaint)| !complaint.is_empty());
    Ok(said.map(|(rank, complaint)| format!("rank {rank}: {}", String::from_utf8_lossy(complaint))).collect())
}

/// How the ranks of a case talk.
#[derive(Copy, Clone, Debug)]
enum Way {
    /// [`MpiCollective`], on these hosts.
    Hosts(MpiOptions),
    /// Messages over a communicator that this thread alone may use.
    Messages,
}

/// Messages over a duplicate of the group's communicator, moved by the waiting rank.
///
/// # Errors
/// What MPI says.
pub(crate) fn messages(group: &MpiCollective) -> Result<ByMessages, Error> {
    // SAFETY: the communicator is valid as long as the group, and all ranks come here.
    let messages = unsafe { MpiMessages::beside(group.comm()?.handle()) }?;
    let (group, carrier) = by_messages(Box::new(messages));
    Ok(group.carried_by(carrier))
}

/// One host, every way to split it into hosts of 1, 2 or 3 ranks, and messages.
fn ways(size: usize) -> Vec<Way> {
    let split = (1..=3).filter(|&ranks| ranks < size).map(|ranks| MpiOptions { ranks_per_host: Some(ranks) });
    let hosts = std::iter::once(MpiOptions::default()).chain(split).map(Way::Hosts);
    hosts.chain([Way::Messages]).collect()
}

fn describe(way: Way) -> String {
    match way {
        Way::Hosts(MpiOptions { ranks_per_host: None }) => "one host".to_owned(),
        Way::Hosts(MpiOptions { ranks_per_host: Some(ranks) }) => format!("{ranks} per host"),
        Way::Messages => "messages".to_owned(),
    }
}

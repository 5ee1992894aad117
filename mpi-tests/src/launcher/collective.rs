//! Launchers that create an `MpiCollective` on the MPI they have initialised: their own panics do
//! not end the job, and threads that may not call MPI are refused.
//!
//! Each case has its own thread level.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use mpi::environment::Threading;
use probe_sync::collective::{Collective as _, Deadline, Frames};
use probe_sync::mpi::MpiCollective;

use super::Case;

/// The launcher catches a panic of its own on another thread, and one on the thread that holds the
/// group; rounds continue.
pub(crate) fn panics() -> Result<(), String> {
    let mut group = MpiCollective::init().map_err(text)?;
    round(&mut group)?;
    let elsewhere = std::thread::spawn(|| panic!("a panic of the launcher's, on a thread of its own"));
    if elsewhere.join().is_ok() {
        return Err("the thread did not panic".into());
    }
    round(&mut group)?;
    let here = catch_unwind(|| panic!("a panic of the launcher's, caught on its thread"));
    if here.is_ok() {
        return Err("no panic was caught".into());
    }
    round(&mut group)?;
    // A panic that takes the group away takes no more than that: the job is the launcher's.
    let taken = catch_unwind(AssertUnwindSafe(|| {
        let _group = group;
        panic!("a panic of the launcher's, with the group");
    }));
    if taken.is_ok() {
        return Err("no panic took the group away".into());
    }
    let mut another = MpiCollective::init().map_err(text)?;
    round(&mut another)
}

/// Another thread may make a group at MULTIPLE alone; the thread that has initialised MPI always
/// may.
pub(crate) fn threads(case: Case, level: Threading) -> Result<(), String> {
    let elsewhere = std::thread::spawn(|| {
        let mut group = MpiCollective::init().map_err(text)?;
        round(&mut group)
    });
    let elsewhere = elsewhere.join().map_err(|_| "a panic")?;
    match (case, elsewhere) {
        (Case::ThreadsMultiple, answer) => answer?,
        (_, Err(error)) if error.contains("MPI_THREAD_MULTIPLE") && error.contains(&format!("{level:?}")) => {}
        (_, answer) => return Err(format!("at {level:?} another thread got {answer:?}")),
    }
    round(&mut MpiCollective::init().map_err(text)?)
}

fn round(group: &mut MpiCollective) -> Result<(), String> {
    let mut frames = Frames::default();
    group.allgather(&[7; 3], &mut frames, &Deadline::new(LIMIT, None)).map_err(text)?;
    if frames.len() == group.size() && frames.iter().all(|frame| frame == [7; 3]) {
        return Ok(());
    }
    Err(format!("{} frames of {}", frames.len(), group.size()))
}

#[expect(clippy::needless_pass_by_value, reason = "used as a function value for map_err")]
fn text(error: probe_sync::collective::Error) -> String {
    error.to_string()
}

const LIMIT: Duration = Duration::from_secs(40);

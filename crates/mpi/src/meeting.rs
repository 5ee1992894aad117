//! The first messages of a job: every rank reports to rank 0, and goes on when rank 0 has heard of all.
//!
//! Place in the flow: [`crate::MpiCollective::init`], before the first call of MPI that waits for everybody. Such a call has no
//! deadline and does not say who is missing, and MPI opens a connection when the first message goes over it: hundreds of hosts that
//! open theirs in one instant lose packets in full queues and in the kernel's table of neighbours, and wait for each other spinning.
//! Here the reports are spread over up to [`SPREAD_MAX`], ranks sleep while they wait, and rank 0 names who did not come.
//!
//! What it does not do: run on a communicator of a host program, whose own messages it could meet.

use std::ffi::c_int;
use std::time::Duration;

use mpi::ffi;
use probe_sync_collective::{Deadline, Error, ROOT, Wait};

use crate::leaders::complete;
use crate::raw::{Communicator, Requests};

/// Returns when all ranks of the job have come.
///
/// # Errors
/// [`Error::Late`] names the ranks that have not, at rank 0; elsewhere rank 0.
pub(crate) fn meet() -> Result<(), Error> {
    // SAFETY: MPI is initialised, by us; nobody else uses the world yet, and the handle is not freed.
    let world = unsafe { Communicator::own(ffi::RSMPI_COMM_WORLD) }?;
    let limit = Deadline::new(LIMIT, None);
    if world.rank() == ROOT {
        let others = || 1..world.size();
        let mut reports = Requests::new();
        for rank in others() {
            world.start_receive(vec![0; 1], rank, TAG, &mut reports)?;
        }
        all_done(reports, &limit, |index| index + 1)?;
        let mut replies = Requests::new();
        for rank in others() {
            world.start_send(vec![0; 1], rank, TAG, &mut replies)?;
        }
        return all_done(replies, &limit, |index| index + 1);
    }
    std::thread::sleep(turn(world.rank(), world.size()));
    let mut both = Requests::new();
    world.start_send(vec![0; 1], ROOT, TAG, &mut both)?;
    world.start_receive(vec![0; 1], ROOT, TAG, &mut both)?;
    // Rank 0 knows who is missing, and speaks first.
    all_done(both, &limit.extended(ROOT_SPEAKS_FIRST), |_| ROOT)
}

/// Waits until all requests are done. `rank_of` says whose is which.
fn all_done(mut requests: Requests, limit: &Deadline, rank_of: impl Fn(usize) -> usize) -> Result<(), Error> {
    let mut wait = Wait::begin("start of the job", limit);
    if complete(&mut requests, &mut wait, |_, _, _| Ok(()))? {
        return Ok(());
    }
    let mut missing: Vec<usize> = requests.pending().map(rank_of).collect();
    missing.dedup();
    Err(wait.late(missing))
}

/// How long a rank waits before it reports.
fn turn(rank: usize, size: usize) -> Duration {
    let step = TURN.min(SPREAD_MAX / u32::try_from(size.max(1)).unwrap_or(u32::MAX));
    step * u32::try_from(rank).unwrap_or(u32::MAX)
}

/// The ranks have been started already, all of them: `MPI_Init` waits for that.
const LIMIT: Duration = Duration::from_secs(60);
const ROOT_SPEAKS_FIRST: Duration = Duration::from_secs(5);

/// Time between the reports of two ranks.
const TURN: Duration = Duration::from_millis(2);

/// Time in which all ranks have reported.
const SPREAD_MAX: Duration = Duration::from_secs(2);

const TAG: c_int = 0x7073;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_report_in_turns_and_within_two_seconds() {
        assert_eq!(turn(1, 8), Duration::from_millis(2));
        assert_eq!(turn(99, 100), Duration::from_millis(198));
        assert!(turn(10_239, 10_240) <= SPREAD_MAX);
        assert!(turn(2, 10_240) > turn(1, 10_240));
    }
}

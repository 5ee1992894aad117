//! The first messages of a job: every rank reports to rank 0, continues once rank 0 has heard from
//! all, and then greets the ranks with which MPI's own collective calls will communicate.
//!
//! It runs in [`crate::MpiCollective::init`], before the first MPI call that waits for all ranks.
//! Such a call has no deadline and does not name the missing ranks. MPI opens a connection with the
//! first message over it: hundreds of hosts that open theirs at once lose packets in full queues
//! and in the kernel's neighbour table, and spin while they wait for each other. Here the reports
//! are spread over up to [`SPREAD_MAX`], ranks sleep while they wait, and rank 0 names the ranks
//! that did not report. The greetings go to the ranks at distances of powers of two and to those
//! whose number differs in one bit, because allreduce and allgather consist of these exchanges.
//! They run one step after the other, each with a deadline, so that a connection that cannot be
//! opened is named here.
//!
//! It must not run on a communicator of a host program, because its messages could mix with the
//! program's own.

use std::ffi::c_int;
use std::time::Duration;

use mpi::ffi;
use probe_sync_collective::{Deadline, Error, ROOT, Wait};

use crate::leaders::complete;
use crate::raw::{Communicator, Requests};

/// Returns when all ranks of the job have arrived.
///
/// # Errors
/// [`Error::Late`] naming the missing ranks, at rank 0; on other ranks naming rank 0.
pub(crate) fn meet() -> Result<(), Error> {
    // SAFETY: MPI is initialised, by us; nobody else uses the world yet, and the handle is not
    // freed.
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
        all_done(replies, &limit, |index| index + 1)?;
    } else {
        std::thread::sleep(turn(world.rank(), world.size()));
        let mut both = Requests::new();
        world.start_send(vec![0; 1], ROOT, TAG, &mut both)?;
        world.start_receive(vec![0; 1], ROOT, TAG, &mut both)?;
        // Rank 0 knows who is missing, and speaks first.
        all_done(both, &limit.extended(ROOT_SPEAKS_FIRST), |_| ROOT)?;
    }
    greet(&world)
}

/// Opens the connections that collective calls will use.
fn greet(world: &Communicator) -> Result<(), Error> {
    // Each step is a round trip; the limit is for all of them.
    let limit = Deadline::new(LIMIT, None);
    for (step, peers) in peers(world.rank(), world.size()).into_iter().enumerate() {
        let mut messages = Requests::new();
        for peer in &peers {
            world.start_send(vec![0; 1], *peer, TAG + 1 + step as c_int, &mut messages)?;
            world.start_receive(vec![0; 1], *peer, TAG + 1 + step as c_int, &mut messages)?;
        }
        all_done(messages, &limit, |index| peers[index / 2])?;
    }
    Ok(())
}

/// The peers that a rank greets in each step. Greetings are mutual.
fn peers(rank: usize, size: usize) -> Vec<Vec<usize>> {
    let distances = (0..usize::BITS).map(|bit| 1usize << bit).take_while(|distance| *distance < size);
    let of = |distance: usize| {
        let mut peers = vec![(rank + distance) % size, (rank + size - distance) % size, rank ^ distance];
        peers.retain(|peer| *peer < size && *peer != rank);
        peers.sort_unstable();
        peers.dedup();
        peers
    };
    distances.map(of).collect()
}

/// Waits until all requests are done. `rank_of` returns the rank of a request.
fn all_done(mut requests: Requests, limit: &Deadline, rank_of: impl Fn(usize) -> usize) -> Result<(), Error> {
    let mut wait = Wait::begin("start of the job", limit);
    if complete(&mut requests, &mut wait, None, |_, _, _| Ok(()))? {
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

/// All ranks have been started already: `MPI_Init` waits for that.
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
    fn who_greets_is_greeted_in_the_same_step() {
        for size in [1, 2, 3, 7, 8, 100] {
            let all: Vec<_> = (0..size).map(|rank| peers(rank, size)).collect();
            for (rank, steps) in all.iter().enumerate() {
                for (step, peers) in steps.iter().enumerate() {
                    assert!(
                        peers.iter().all(|peer| *peer != rank && all[*peer][step].contains(&rank)),
                        "{rank} of {size}"
                    );
                }
            }
        }
        assert_eq!(peers(0, 8), [vec![1, 7], vec![2, 6], vec![4]]);
        assert_eq!(peers(5, 8), [vec![4, 6], vec![3, 7], vec![1]]);
        assert!(peers(0, 1).is_empty());
    }

    #[test]
    fn ranks_report_in_turns_and_within_two_seconds() {
        assert_eq!(turn(1, 8), Duration::from_millis(2));
        assert_eq!(turn(99, 100), Duration::from_millis(198));
        assert!(turn(10_239, 10_240) <= SPREAD_MAX);
        assert!(turn(2, 10_240) > turn(1, 10_240));
    }
}

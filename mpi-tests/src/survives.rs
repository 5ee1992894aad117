//! Ranks whose processes are killed while all go through rounds: the others go on, and agree on everything.
//!
//! Place in the flow: `mpirun --with-ft ulfm -n 4 probe-sync-mpi-tests survives`, with Open MPI 5. A thread of each rank that is to be lost kills the process
//! at some moment, so it is lost in the middle of whatever is under way. Every round is a gather, a broadcast, a scatter and an allgather; each rank checks
//! what it is told, and tells the root what came of its last allgather, which must be the same everywhere.
//! What it does not do: lose rank 0, which ends the job.

use std::time::{Duration, Instant};

use clap::Args;
use probe_sync_collective::{Collective, Deadline, Error, Frames, Rank};
use probe_sync_mpi::{MpiCollective, MpiOptions};
use rustix::process::{Signal, getpid, kill_process};

use crate::group::GroupExt as _;

/// Who is lost when.
#[derive(Args)]
pub(crate) struct Options {
    /// Let every that many ranks play a host.
    #[arg(long)]
    ranks_per_host: Option<usize>,
    /// When rank 2 is killed, microseconds after the ranks have met. The last rank is killed after three times that.
    #[arg(long, default_value_t = 20_000)]
    after_us: u64,
}

/// Loses two ranks; an error where the others do not go on as they must.
pub(crate) fn run(group: &MpiCollective, options: &Options) -> Result<(), String> {
    let last = group.size() - 1;
    if last < 3 {
        return Err("rank 2 and the last rank are lost: start at least 4 ranks".to_owned());
    }
    let mut fresh = group.duplicate(MpiOptions { ranks_per_host: options.ranks_per_host }).map_err(text)?;
    fresh.go_on_without_lost(Vec::new()).map_err(text)?;
    fresh.allgather(b"", &mut Frames::default(), &deadline()).map_err(text)?;
    let after = Duration::from_micros(options.after_us);
    match fresh.rank() {
        2 => end_after(after),
        rank if rank == last => end_after(3 * after),
        _ => {}
    }
    let outcome = rounds(&mut fresh, [2, last], options);
    if let Err(reason) = &outcome {
        eprintln!("rank {}: {reason}", fresh.rank());
        fresh.abort(reason);
    }
    outcome
}

fn rounds(group: &mut MpiCollective, victims: [Rank; 2], options: &Options) -> Result<(), String> {
    let (started, everyone) = (Instant::now(), vec![true; group.size()]);
    let (mut left, mut rounds, mut more) = (Vec::new(), 0u64, 0u32);
    let (mut frames, mut gathered) = (Frames::default(), Vec::new());
    loop {
        let mut own = rounds.to_le_bytes().to_vec();
        own.extend_from_slice(&gathered);
        group.gather(&everyone, &own, &mut frames, &deadline()).map_err(text)?;
        let mut told = Vec::new();
        if group.is_root() {
            left.extend(group.attendance().left.into_iter().map(|(rank, _)| rank));
            for (rank, frame) in frames.iter().enumerate() {
                if frame != own && !(frame.is_empty() && victims.contains(&rank)) {
                    return Err(format!("round {rounds}: rank {rank} says {frame:?}, the root has {own:?}"));
                }
            }
            more += u32::from(victims.iter().all(|victim| left.contains(victim)));
            let over = more > ROUNDS_AFTER || started.elapsed() > LIMIT;
            told = vec![u8::from(over); LONG];
            told[..8].copy_from_slice(&rounds.to_le_bytes());
        }
        group.broadcast(&mut told, &deadline()).map_err(text)?;
        if told.len() != LONG || told[..8] != rounds.to_le_bytes() {
            return Err(format!("round {rounds}: {} bytes were broadcast, of another round", told.len()));
        }
        let mut mine = Vec::new();
        frames.clear();
        (0..group.size()).for_each(|rank| frames.push(&(rounds + rank as u64).to_le_bytes()));
        group.scatter(&frames, &mut mine, &deadline()).map_err(text)?;
        if mine != (rounds + group.rank() as u64).to_le_bytes() {
            return Err(format!("round {rounds}: rank {} was given {mine:?}", group.rank()));
        }
        group.allgather(&rounds.to_le_bytes(), &mut frames, &deadline()).map_err(text)?;
        gathered.clear();
        frames.encode(&mut gathered);
        rounds += 1;
        if told[LONG - 1] == 1 {
            break;
        }
    }
    if group.is_root() {
        left.sort_unstable();
        if left != victims {
            return Err(format!("ranks {left:?} have left, where {victims:?} were killed"));
        }
        println!("{rounds} rounds, ranks {left:?} lost, ranks per host {:?}", options.ranks_per_host);
    }
    Ok(())
}

/// Kills this process, whatever it is doing then.
fn end_after(after: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(after);
        // It cannot fail: a process may kill itself.
        let _ = kill_process(getpid(), Signal::KILL);
    });
}

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(20), None)
}

#[expect(clippy::needless_pass_by_value, reason = "used as a function value for map_err")]
fn text(error: Error) -> String {
    error.to_string()
}

/// More than one piece on the board, and more than the first part between leaders.
const LONG: usize = 100_000;

const ROUNDS_AFTER: u32 = 50;

/// Then the ranks end, and what is missing is said.
const LIMIT: Duration = Duration::from_secs(30);

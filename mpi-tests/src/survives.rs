//! Tests in which processes of ranks are killed during rounds: the other ranks continue and agree
//! on everything.
//!
//! Run it as `mpirun --with-ft ulfm -n 4 probe-sync-mpi-tests survives`, with Open MPI 5. A thread
//! of each rank to be lost kills the process at some moment, so the rank is lost in the middle of
//! an operation. Every round is a gather, a broadcast, a scatter and an allgather; each rank checks
//! what it receives and reports the result of its last allgather to the root, which must be the
//! same everywhere. Rank 0 may be lost as well (`--root`), and after it the rank that has taken its
//! place (`--second-root`). It does not restart a rank.

use std::time::{Duration, Instant};

use clap::Args;
use probe_sync_collective::{Collective, Deadline, Error, FaultTolerance, Frames, ROOT, Rank, Succession};
use probe_sync_mpi::{MpiCollective, MpiOptions};
use rustix::process::{Signal, getpid, kill_process};

/// Which ranks are lost, and when.
#[derive(Args)]
pub(crate) struct Options {
    /// Let every that many ranks play a host.
    #[arg(long)]
    ranks_per_host: Option<usize>,
    /// When rank 2 is killed, microseconds after the ranks have met. The last rank is killed after
    /// three times that.
    #[arg(long, default_value_t = 20_000)]
    after_us: u64,
    /// Kill rank 0 in place of rank 2.
    #[arg(long)]
    root: bool,
    /// Kill rank 0 in place of rank 2, and rank 1 in place of the last rank, as long after it has
    /// taken rank 0's place.
    #[arg(long)]
    second_root: bool,
}

/// Loses two ranks; returns an error if the others do not continue as required.
pub(crate) fn run(group: &MpiCollective, options: &Options) -> Result<(), String> {
    let last = group.size() - 1;
    if last < 3 {
        return Err("rank 2 and the last rank are lost: start at least 4 ranks".to_owned());
    }
    let mut fresh = group.duplicate(MpiOptions { ranks_per_host: options.ranks_per_host }).map_err(text)?;
    let line: Vec<_> = (1..fresh.size()).map(|rank| (rank, Vec::new())).collect();
    fresh.set_successors(&line);
    fault_tolerance(&mut fresh).continue_without_lost(Vec::new()).map_err(text)?;
    fresh.allgather(b"", &mut Frames::default(), &deadline()).map_err(text)?;
    let after = Duration::from_micros(options.after_us);
    let victims = match options {
        Options { second_root: true, .. } => [ROOT, SECOND_ROOT],
        Options { root: true, .. } => [ROOT, last],
        _ => [2, last],
    };
    match fresh.rank() {
        rank if rank == victims[0] => end_after(after),
        rank if rank == last && rank == victims[1] => end_after(3 * after),
        _ => {}
    }
    let outcome = rounds(&mut fresh, victims, options);
    if let Err(reason) = &outcome {
        eprintln!("rank {}: {reason}", fresh.rank());
        fresh.abort(reason);
    }
    outcome
}

/// A rank's knowledge about the rounds.
#[derive(Default)]
struct Known {
    rounds: u64,
    /// What came of the last allgather.
    gathered: Vec<u8>,
    /// All of them at the root, elsewhere the roots.
    left: Vec<Rank>,
    /// Rounds after all had left.
    more: u32,
}

fn rounds(group: &mut MpiCollective, victims: [Rank; 2], options: &Options) -> Result<(), String> {
    let (started, mut known) = (Instant::now(), Known::default());
    loop {
        match round(group, victims, &mut known, started) {
            Ok(true) => break,
            Ok(false) => {}
            Err(Failed::Round(Error::Lost { rank, .. })) if rank == group.root() && rank != group.rank() => {
                another_root(group, &mut known)?;
                if options.second_root && group.rank() == SECOND_ROOT {
                    end_after(Duration::from_micros(options.after_us));
                }
            }
            Err(Failed::Round(error)) => return Err(error.to_string()),
            Err(Failed::Wrong(reason)) => return Err(reason),
        }
    }
    if group.rank() == group.root() {
        known.left.sort_unstable();
        known.left.dedup();
        if known.left != victims {
            return Err(format!("ranks {:?} have left, where {victims:?} were killed", known.left));
        }
        println!("{} rounds, ranks {:?} lost, ranks per host {:?}", known.rounds, known.left, options.ranks_per_host);
    }
    Ok(())
}

/// The remaining ranks agree on the root, and continue with the round after the last that any of
/// them has finished.
fn another_root(group: &mut MpiCollective, known: &mut Known) -> Result<(), String> {
    // Bounded: every time round there is one rank less.
    loop {
        let root = group.root();
        known.left.push(root);
        known.left.sort_unstable();
        known.left.dedup();
        let there: Vec<_> = (0..group.size()).map(|rank| rank == root || !known.left.contains(&rank)).collect();
        let settled = group.succeed(&there, Duration::from_secs(2), &deadline());
        let told = settled.and_then(|_| {
            fault_tolerance(group).continue_without_lost(Vec::new())?;
            let mut all = Frames::default();
            group.allgather(&known.rounds.to_le_bytes(), &mut all, &deadline())?;
            Ok(all)
        });
        match told {
            Ok(all) => {
                let number = |frame: &[u8]| frame.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
                known.rounds = all.iter().filter_map(number).max().unwrap_or(known.rounds);
                known.gathered.clear();
                return Ok(());
            }
            Err(Error::Lost { rank, .. }) if rank == group.root() && rank != root => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Returns the group's part for losses, without which nothing here can be tested.
fn fault_tolerance(group: &mut MpiCollective) -> &mut dyn FaultTolerance {
    group.fault_tolerance().expect("MPI was started with fault tolerance (ULFM)")
}

/// Why a round was not finished.
enum Failed {
    Round(Error),
    Wrong(String),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Round(error)
    }
}

/// One round; true when it was the last.
fn round(group: &mut MpiCollective, victims: [Rank; 2], known: &mut Known, started: Instant) -> Result<bool, Failed> {
    let (everyone, rounds) = (vec![true; group.size()], known.rounds);
    let (mut frames, mut own, mut told) = (Frames::default(), rounds.to_le_bytes().to_vec(), Vec::new());
    own.extend_from_slice(&known.gathered);
    group.gather(&everyone, &own, &mut frames, &deadline())?;
    if group.rank() == group.root() {
        known.left.extend(fault_tolerance(group).attendance().left.into_iter().map(|(rank, _)| rank));
        for (rank, frame) in frames.iter().enumerate() {
            if frame != own && !(frame.is_empty() && victims.contains(&rank)) {
                return Err(Failed::Wrong(format!("round {rounds}: rank {rank} says {frame:?}, the root has {own:?}")));
            }
        }
        known.more += u32::from(victims.iter().all(|victim| known.left.contains(victim)));
        let over = known.more > ROUNDS_AFTER || started.elapsed() > LIMIT;
        told = vec![u8::from(over); LONG];
        told[..8].copy_from_slice(&rounds.to_le_bytes());
    }
    group.broadcast(&mut told, &deadline())?;
    if told.len() != LONG || told[..8] != rounds.to_le_bytes() {
        return Err(Failed::Wrong(format!("round {rounds}: {} bytes were broadcast, of another round", told.len())));
    }
    let mut mine = Vec::new();
    frames.clear();
    (0..group.size()).for_each(|rank| frames.push(&(rounds + rank as u64).to_le_bytes()));
    group.scatter(&frames, &mut mine, &deadline())?;
    if mine != (rounds + group.rank() as u64).to_le_bytes() {
        return Err(Failed::Wrong(format!("round {rounds}: rank {} was given {mine:?}", group.rank())));
    }
    group.allgather(&rounds.to_le_bytes(), &mut frames, &deadline())?;
    known.gathered.clear();
    frames.encode(&mut known.gathered);
    known.rounds += 1;
    Ok(told[LONG - 1] == 1)
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

const SECOND_ROOT: Rank = 1;

const ROUNDS_AFTER: u32 = 50;

/// Then the ranks end, and what is missing is said.
const LIMIT: Duration = Duration::from_secs(30);

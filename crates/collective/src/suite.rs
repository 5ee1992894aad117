//! The test cases that every backend passes.
//!
//! They are for tests only (feature `suite`). A case is a program that all ranks of a new group run
//! at the same time, each with its own end; it returns the failures that this rank found. A driver
//! creates the groups: threads for the in-process and TCP backends, `mpirun` for MPI. It does not
//! judge durations: deadlines matter only as errors that must or must not occur.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::{Collective, Deadline, Error, Frames, GRACE, ROOT, Rank};

/// One test program for all ranks.
#[derive(Copy, Clone, Debug)]
pub struct Case {
    /// Name in reports.
    pub name: &'static str,
    /// Smallest group for which it is meaningful.
    pub smallest_size: usize,
    /// True if it leaves some ranks' ends unusable, so that the group cannot end normally.
    pub breaks_group: bool,
    /// True if it ends with [`Collective::abort`], which some backends do not survive.
    pub aborts: bool,
    /// Runs one rank's part.
    ///
    /// # Errors
    /// Returns what this rank found wrong.
    pub run: fn(&mut dyn Collective) -> Result<(), String>,
}

/// All cases. Each needs a group of its own, because some leave it unusable.
pub const CASES: [Case; 13] = [
    Case::new("payloads of every length", 1, payloads_of_every_length),
    Case::new("payloads of different lengths", 1, payloads_of_different_lengths),
    Case::new("some ranks take part", 1, some_ranks_take_part),
    Case::new("many rounds", 1, many_rounds),
    Case::new("gathers and broadcasts back to back", 1, back_to_back),
    Case::new("everyone gets everything", 1, everyone_gets_everything),
    Case::new("each gets its own", 1, each_gets_its_own),
    Case::new("words beside the operations", 2, words_beside_the_operations),
    Case::new("a late rank is named", 2, late_rank_is_named).breaking_group(),
    Case::new("two late ranks are named", 4, two_late_ranks_are_named).breaking_group(),
    Case::new("a late root is named", 2, late_root_is_named).breaking_group(),
    Case::new("an interrupt ends the wait", 2, interrupt_ends_the_wait).breaking_group(),
    Case { aborts: true, ..Case::new("an abort reaches everyone", 2, abort_reaches_everyone).breaking_group() },
];

impl Case {
    const fn new(name: &'static str, smallest_size: usize, run: fn(&mut dyn Collective) -> Result<(), String>) -> Self {
        Self { name, smallest_size, breaks_group: false, aborts: false, run }
    }

    const fn breaking_group(self) -> Self {
        Self { breaks_group: true, ..self }
    }
}

fn payloads_of_every_length(group: &mut dyn Collective) -> Result<(), String> {
    for (round, length) in LENGTHS.into_iter().enumerate() {
        round_trip(group, round, |_| true, |_| length, length)?;
    }
    Ok(())
}

fn payloads_of_different_lengths(group: &mut dyn Collective) -> Result<(), String> {
    for round in 0..LENGTHS.len() {
        round_trip(group, round, |_| true, |rank| LENGTHS[(rank + round) % LENGTHS.len()], LENGTHS[round])?;
    }
    Ok(())
}

fn some_ranks_take_part(group: &mut dyn Collective) -> Result<(), String> {
    let choices: [fn(Rank) -> bool; 4] = [|rank| rank == 0, |rank| rank % 2 == 0, |rank| rank < 2, |rank| rank != 1];
    let root = group.root();
    for round in 0..40 {
        round_trip(group, round, |rank| rank == root || choices[round % choices.len()](rank), |rank| 100 + rank, 1000)?;
    }
    Ok(())
}

fn many_rounds(group: &mut dyn Collective) -> Result<(), String> {
    for round in 0..500 {
        round_trip(group, round, |_| true, |rank| (rank * 7 + round) % 300, 24 * 8)?;
    }
    Ok(())
}

fn back_to_back(group: &mut dyn Collective) -> Result<(), String> {
    let (everyone, mut frames) = (vec![true; group.size()], Frames::default());
    let deadline = Deadline::new(LONG, None);
    for round in 0..50 {
        let payload = pattern(group.rank(), round, round * 100);
        group.gather(&everyone, &payload, &mut frames, &deadline).map_err(text)?;
        check_frames(group, &frames, round, |_| true, |_| round * 100)?;
    }
    for round in 0..50 {
        let expected = pattern(ROOT, round, round * 3000);
        let mut buffer = if group.rank() == group.root() { expected.clone() } else { vec![1, 2, 3] };
        group.broadcast(&mut buffer, &deadline).map_err(text)?;
        expect(buffer == expected, || format!("broadcast {round} arrived as {} other bytes", buffer.len()))?;
    }
    Ok(())
}

fn everyone_gets_everything(group: &mut dyn Collective) -> Result<(), String> {
    let mut frames = Frames::default();
    let deadline = Deadline::new(LONG, None);
    for round in 0..LENGTHS.len() {
        let length = |rank: Rank| LENGTHS[(rank + round) % LENGTHS.len()];
        let payload = pattern(group.rank(), round, length(group.rank()));
        group.allgather(&payload, &mut frames, &deadline).map_err(text)?;
        expect(frames.len() == group.size(), || format!("{} frames", frames.len()))?;
        for rank in 0..group.size() {
            let right = frames.frame(rank) == pattern(rank, round, length(rank));
            expect(right, || format!("round {round}: the frame of rank {rank} differs"))?;
        }
    }
    Ok(())
}

fn each_gets_its_own(group: &mut dyn Collective) -> Result<(), String> {
    let (deadline, root) = (Deadline::new(LONG, None), group.root());
    for round in 0..2 * LENGTHS.len() {
        let length =
            |rank: Rank| if rank == root { 40_000 } else { LENGTHS[(rank + round) % LENGTHS.len()].min(100_000) };
        let mut frames = Frames::default();
        if group.rank() == group.root() {
            (0..group.size()).for_each(|rank| frames.push(&pattern(rank, round, length(rank))));
        }
        let mut own = vec![3; 9];
        group.scatter(&frames, &mut own, &deadline).map_err(text)?;
        let expected = pattern(group.rank(), round, length(group.rank()));
        expect(own == expected, || {
            format!("round {round}: {} bytes, {} expected, or they differ", own.len(), expected.len())
        })?;
    }
    let few = Frames::default();
    if group.rank() == group.root() && group.scatter(&few, &mut Vec::new(), &deadline).is_ok() {
        return Err("a scatter without frames was accepted".to_owned());
    }
    Ok(())
}

/// Messages are sent between operations, before them and during them.
fn words_beside_the_operations(group: &mut dyn Collective) -> Result<(), String> {
    let mut heard: Vec<(Rank, Vec<u8>)> = Vec::new();
    let carried = 2 * WORDS;
    for round in 0..WORDS {
        for part in 0..2 {
            let word = pattern(group.rank(), 2 * round + part, 1 + (round * 37) % crate::WORD_MAX);
            group.call(&word).map_err(text)?;
        }
        round_trip(group, round, |_| true, |rank| 50 + rank, 70)?;
        heard.extend(group.calls().map_err(text)?);
    }
    let from_root = |rank: &Rank| (*rank == group.root()) != (group.rank() == group.root());
    let speakers: Vec<Rank> = (0..group.size()).filter(from_root).collect();
    let until = std::time::Instant::now() + LONG;
    while heard.len() < carried * speakers.len() && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
        heard.extend(group.calls().map_err(text)?);
    }
    for speaker in speakers {
        let said: Vec<&Vec<u8>> = heard.iter().filter(|(rank, _)| *rank == speaker).map(|(_, word)| word).collect();
        expect(said.len() == carried, || format!("{} of {carried} words of rank {speaker}", said.len()))?;
        for (index, word) in said.into_iter().enumerate() {
            let expected = pattern(speaker, index, 1 + (index / 2 * 37) % crate::WORD_MAX);
            expect(*word == expected, || format!("word {index} of rank {speaker} differs"))?;
        }
    }
    // Whoever has heard all may leave only when all have.
    round_trip(group, WORDS, |_| true, |_| 10, 10)?;
    expect(group.call(&[0; crate::WORD_MAX + 1]).is_err(), || "a long word was carried".to_owned())
}

fn late_rank_is_named(group: &mut dyn Collective) -> Result<(), String> {
    late_ranks_are_named(group, 1)
}

fn two_late_ranks_are_named(group: &mut dyn Collective) -> Result<(), String> {
    late_ranks_are_named(group, 2)
}

fn late_ranks_are_named(group: &mut dyn Collective, count: usize) -> Result<(), String> {
    let late: Vec<Rank> = (group.size() - count..group.size()).collect();
    // One good round first, so that everyone is there when the clock starts.
    round_trip(group, 0, |_| true, |_| 10, 10)?;
    let (everyone, mut frames) = (vec![true; group.size()], Frames::default());
    if late.contains(&group.rank()) {
        std::thread::sleep(LATE);
    }
    let result = group.gather(&everyone, b"here", &mut frames, &Deadline::new(SHORT, None));
    match result {
        Err(Error::Late { missing, interrupted: false, .. }) if group.rank() == group.root() && missing == late => {
            Ok(())
        }
        other if group.rank() == group.root() => Err(format!("the root got {other:?} instead of late {late:?}")),
        // The others may be done already, or see the root give up.
        _ => Ok(()),
    }
}

fn late_root_is_named(group: &mut dyn Collective) -> Result<(), String> {
    round_trip(group, 0, |_| true, |_| 10, 10)?;
    let mut buffer = Vec::new();
    if group.rank() == group.root() {
        std::thread::sleep(LATE);
        let _ = group.broadcast(&mut buffer, &Deadline::new(SHORT, None));
        return Ok(());
    }
    match group.broadcast(&mut buffer, &Deadline::new(SHORT, None)) {
        Err(Error::Late { missing, interrupted: false, .. }) if missing == [group.root()] => Ok(()),
        // A leader that has given up on the root may already have broken its connections.
        other => Err(format!("rank {} got {other:?} instead of a late root", group.rank())),
    }
}

fn interrupt_ends_the_wait(group: &mut dyn Collective) -> Result<(), String> {
    round_trip(group, 0, |_| true, |_| 10, 10)?;
    let (everyone, mut frames) = (vec![true; group.size()], Frames::default());
    let late = group.size() - 1;
    if group.rank() == late {
        std::thread::sleep(GRACE + LATE);
    }
    let deadline = Deadline::new(LONG, Some(Arc::new(AtomicBool::new(true))));
    match group.gather(&everyone, b"here", &mut frames, &deadline) {
        Err(Error::Late { missing, interrupted: true, .. }) if group.rank() == group.root() && missing == [late] => {
            Ok(())
        }
        other if group.rank() == group.root() => Err(format!("the root got {other:?} instead of an interrupted wait")),
        _ => Ok(()),
    }
}

fn abort_reaches_everyone(group: &mut dyn Collective) -> Result<(), String> {
    round_trip(group, 0, |_| true, |_| 10, 10)?;
    let (everyone, mut frames) = (vec![true; group.size()], Frames::default());
    let culprit = group.size() - 1;
    if group.rank() == culprit {
        group.abort("the disk is full");
        return Ok(());
    }
    let deadline = Deadline::new(LONG, None);
    let gathered = group.gather(&everyone, b"here", &mut frames, &deadline);
    let result = gathered.and_then(|()| group.broadcast(&mut Vec::new(), &deadline));
    match result {
        Err(Error::Aborted { rank, reason, .. }) if rank == culprit && reason == "the disk is full" => Ok(()),
        other => Err(format!("rank {} got {other:?} instead of the reason", group.rank())),
    }
}

/// One gather and one broadcast, every byte checked.
fn round_trip(
    group: &mut dyn Collective,
    round: usize,
    takes_part: impl Fn(Rank) -> bool,
    length: impl Fn(Rank) -> usize,
    broadcast_length: usize,
) -> Result<(), String> {
    let deadline = Deadline::new(LONG, None);
    let (rank, mut frames) = (group.rank(), Frames::default());
    let participants: Vec<bool> = (0..group.size()).map(&takes_part).collect();
    group.gather(&participants, &pattern(rank, round, length(rank)), &mut frames, &deadline).map_err(text)?;
    check_frames(group, &frames, round, &takes_part, &length)?;
    let expected = pattern(ROOT, round + 1, broadcast_length);
    let mut buffer = if rank == group.root() { expected.clone() } else { vec![9; 5] };
    group.broadcast(&mut buffer, &deadline).map_err(text)?;
    expect(buffer == expected, || format!("round {round}: the broadcast differs ({} bytes)", buffer.len()))
}

fn check_frames(
    group: &dyn Collective,
    frames: &Frames,
    round: usize,
    takes_part: impl Fn(Rank) -> bool,
    length: impl Fn(Rank) -> usize,
) -> Result<(), String> {
    if group.rank() != group.root() {
        return expect(frames.is_empty(), || "frames away from the root".to_owned());
    }
    expect(frames.len() == group.size(), || format!("round {round}: {} frames", frames.len()))?;
    for rank in 0..group.size() {
        let expected = if takes_part(rank) { pattern(rank, round, length(rank)) } else { Vec::new() };
        expect(frames.frame(rank) == expected, || {
            let found = frames.frame(rank).len();
            format!("round {round}: frame of rank {rank} has {found} bytes, {} expected, or differs", expected.len())
        })?;
    }
    Ok(())
}

/// Bytes that differ between ranks, rounds and positions (xorshift).
fn pattern(rank: Rank, round: usize, length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15 ^ ((rank as u64) << 32) ^ (round as u64 + 1);
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(step).collect()
}

fn expect(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

#[expect(clippy::needless_pass_by_value, reason = "used as a function value for map_err")]
fn text(error: Error) -> String {
    error.to_string()
}

/// A wait that is long enough for any machine, and still ends.
const LONG: Duration = Duration::from_secs(60);

/// A wait that is meant to fail.
const SHORT: Duration = Duration::from_millis(500);

/// Rounds beside which words are said.
const WORDS: usize = 30;

/// How late a late rank is.
const LATE: Duration = Duration::from_millis(1200);

/// Payload lengths around every boundary that a backend may have: nothing, small, one slot, several
/// slots.
const LENGTHS: [usize; 9] = [0, 1, 7, 1024, 65_535, 65_536, 65_537, 200_000, 1 << 20];

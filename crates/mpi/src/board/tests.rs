//! The board between threads, on plain memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::time::Duration;

use super::*;
use probe_sync_collective::Deadline;

/// Runs one closure per member, each with its own end of one board.
fn with_board(members: usize, run: impl Fn(usize, &mut Board) + Sync) {
    let layout = Layout::from_size_align(bytes(members), ALIGNMENT).unwrap();
    // SAFETY: the size is not zero.
    let base = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
    let address = base.as_ptr() as usize;
    std::thread::scope(|scope| {
        for index in 0..members {
            let run = &run;
            scope.spawn(move || {
                let base = NonNull::new(address as *mut u8).unwrap();
                // SAFETY: zeroed memory of that size and alignment, freed after the last thread has ended.
                let memory = unsafe { Memory::new(base, members) };
                run(index, &mut Board::new(memory, (10..10 + members).collect(), index));
            });
        }
    });
    // SAFETY: allocated above with this layout; no thread is left.
    unsafe { dealloc(base.as_ptr(), layout) };
}

fn payload(member: usize, round: usize, length: usize) -> Vec<u8> {
    (0..length).map(|byte| (byte * 31 + member * 7 + round) as u8).collect()
}

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(60), None)
}

/// `rounds` gathers and broadcasts with lengths that differ by member and round.
fn check_rounds(members: usize, rounds: usize, length: impl Fn(usize, usize) -> usize + Sync) {
    with_board(members, |index, board| {
        let mut heard = Vec::new();
        for round in 0..rounds {
            let deadline = deadline();
            let announced = payload(0, round, length(0, round));
            if index == 0 {
                let others: Vec<usize> = (1..members).collect();
                let mut seen = Vec::new();
                let deliver = |member: usize, bytes: &[u8]| {
                    assert!(bytes == payload(member, round, length(member, round)), "round {round}, member {member}");
                    seen.push(member);
                };
                board.collect(&others, deliver, &mut Wait::begin("gather", &deadline)).unwrap();
                assert_eq!(seen, others);
                board.announce(&announced, &mut Wait::begin("broadcast", &deadline)).unwrap();
            } else {
                let own = payload(index, round, length(index, round));
                board.publish(&own, &mut Wait::begin("gather", &deadline)).unwrap();
                board.listen(&mut heard, &mut Wait::begin("broadcast", &deadline)).unwrap();
                assert!(heard == announced, "round {round}: the broadcast differs");
            }
        }
    });
}

#[test]
fn rounds_carry_every_byte() {
    check_rounds(1, 3, |_, _| 5);
    check_rounds(2, 2000, |_, _| 100);
    check_rounds(9, 300, |member, round| (member * 13 + round) % 200);
}

#[test]
fn long_payloads_go_in_pieces() {
    let lengths = [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 10 * PIECE + 17];
    check_rounds(3, 14, |member, round| lengths[(member + round) % lengths.len()]);
}

#[test]
fn whoever_runs_ahead_waits_instead_of_overwriting() {
    let rounds = 50;
    with_board(3, |index, board| {
        let deadline = deadline();
        let mut wait = Wait::begin("test", &deadline);
        for round in 0..rounds {
            if index == 0 {
                let deliver = |member, bytes: &[u8]| assert_eq!(bytes, payload(member, round, 64));
                board.collect(&[1, 2], deliver, &mut wait).unwrap();
            } else {
                board.publish(&payload(index, round, 64), &mut wait).unwrap();
            }
        }
        let mut heard = Vec::new();
        for round in 0..rounds {
            if index == 0 {
                board.announce(&payload(0, round, 64), &mut wait).unwrap();
            } else {
                board.listen(&mut heard, &mut wait).unwrap();
                assert_eq!(heard, payload(0, round, 64));
            }
        }
    });
}

#[test]
fn the_missing_are_named() {
    with_board(4, |index, board| {
        let deadline = Deadline::new(Duration::from_millis(200), None);
        let mut wait = Wait::begin("test", &deadline);
        let error = match index {
            0 => board.collect(&[1, 2, 3], |_, _| panic!("nothing to deliver"), &mut wait),
            2 => return board.publish(b"here", &mut wait).unwrap(),
            _ => board.listen(&mut Vec::new(), &mut wait),
        };
        let expected: &[Rank] = if index == 0 { &[11, 13] } else { &[10] };
        assert!(matches!(&error, Err(Error::Late { missing, .. }) if missing == expected), "member {index}: {error:?}");
    });
}

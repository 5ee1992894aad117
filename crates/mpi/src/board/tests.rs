//! The board between threads, on plain memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::time::Duration;

use super::*;
use crate::operation::Kind;
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
                // SAFETY: zeroed memory of that size and alignment, freed after the last thread has
                // ended.
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

fn gather(round: usize) -> Operation {
    Operation::new(2 * round as u64, Kind::Gather)
}

fn broadcast(round: usize) -> Operation {
    Operation::new(2 * round as u64 + 1, Kind::Broadcast)
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
                board.collect(gather(round), &others, deliver, &mut Wait::begin("gather", &deadline)).unwrap();
                assert_eq!(seen, others);
                board.announce(broadcast(round), &announced, &mut Wait::begin("broadcast", &deadline)).unwrap();
            } else {
                let own = payload(index, round, length(index, round));
                board.publish(gather(round), &own, &mut Wait::begin("gather", &deadline)).unwrap();
                board.listen(broadcast(round), &mut heard, &mut Wait::begin("broadcast", &deadline)).unwrap();
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
                board.collect(gather(round), &[1, 2], deliver, &mut wait).unwrap();
            } else {
                board.publish(gather(round), &payload(index, round, 64), &mut wait).unwrap();
            }
        }
        let mut heard = Vec::new();
        for round in 0..rounds {
            if index == 0 {
                board.announce(broadcast(round), &payload(0, round, 64), &mut wait).unwrap();
            } else {
                board.listen(broadcast(round), &mut heard, &mut wait).unwrap();
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
            0 => board.collect(gather(0), &[1, 2, 3], |_, _| panic!("nothing to deliver"), &mut wait),
            2 => return board.publish(gather(0), b"here", &mut wait).unwrap(),
            _ => board.listen(broadcast(0), &mut Vec::new(), &mut wait),
        };
        let expected: &[Rank] = if index == 0 { &[11, 13] } else { &[10] };
        assert!(matches!(&error, Err(Error::Late { missing, .. }) if missing == expected), "member {index}: {error:?}");
    });
}

/// A farewell is an empty piece, as is the part of a rank that has nothing to say; neither is taken
/// for the other.
#[test]
fn a_farewell_is_no_empty_part_and_an_empty_part_no_farewell() {
    let farewell = Operation::new(0, Kind::Farewell);
    for (leaders, members, says) in
        [(gather(0), farewell, "its farewell"), (farewell, gather(0), "operation 0, gather")]
    {
        with_board(3, |index, board| {
            let deadline = deadline();
            let mut wait = Wait::begin("test", &deadline);
            if index > 0 {
                let own = if index == 2 { members } else { leaders };
                return board.publish(own, &[], &mut wait).unwrap();
            }
            let error = board.collect(leaders, &[1, 2], |_, _| {}, &mut wait).unwrap_err();
            let named = matches!(&error, Error::Protocol { rank: 12, what, .. } if what.contains(says));
            assert!(named, "{error}");
        });
    }
}

#[test]
fn a_member_names_a_leader_that_has_let_go() {
    with_board(2, |index, board| {
        let deadline = deadline();
        let mut wait = Wait::begin("test", &deadline);
        if index == 0 {
            return board.announce(Operation::new(1, Kind::Farewell), &[], &mut wait).unwrap();
        }
        let error = board.listen(broadcast(0), &mut Vec::new(), &mut wait).unwrap_err();
        assert!(matches!(&error, Error::Protocol { rank: 10, what, .. } if what.contains("its farewell")), "{error}");
    });
}

#[test]
fn what_was_carried_is_counted_once() {
    with_board(3, |index, board| {
        let deadline = deadline();
        let mut wait = Wait::begin("test", &deadline);
        let long = vec![1; 2 * PIECE + 5];
        if index == 0 {
            board.collect(gather(0), &[1, 2], |_, _| {}, &mut wait).unwrap();
            board.announce(broadcast(0), b"four", &mut wait).unwrap();
        } else {
            board.publish(gather(0), &long, &mut wait).unwrap();
            board.listen(broadcast(0), &mut Vec::new(), &mut wait).unwrap();
        }
        let (sent, received) = if index == 0 { ((1, 4), (2, 2 * long.len())) } else { ((1, long.len()), (1, 4)) };
        let counted = board.traffic();
        assert_eq!((counted.messages_sent, counted.bytes_sent), (sent.0, sent.1 as u64));
        assert_eq!((counted.messages_received, counted.bytes_received), (received.0, received.1 as u64));
    });
}

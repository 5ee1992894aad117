//! Groups that another rank than 0 leads: the shared suite, and what happens when that rank is
//! lost, by real sockets.

use std::time::Duration;

use probe_sync_collective::{Collective, Deadline, Error, Frames, InProcess, Led, Rank, Tcp};

use crate::backends::{for_sizes, tcp_group};

const MASTER: Rank = 2;

/// The last two ranks are late in some cases of the suite, so the master is not one of them.
const SIZES: [usize; 3] = [2, 5, 8];

/// The ends of a backend's group in the order of the run's ranks.
fn led<C: Collective>(group: Vec<C>) -> Vec<Led<C>> {
    let mut ends: Vec<Led<C>> = group.into_iter().map(|end| Led::new(end, MASTER)).collect();
    ends.sort_by_key(Collective::rank);
    ends
}

fn within(seconds: u64) -> Deadline {
    Deadline::new(Duration::from_secs(seconds), None)
}

#[test]
fn in_process_with_another_master_passes_the_suite() {
    for_sizes(&SIZES, |size| led(InProcess::group(size)));
}

#[test]
fn tcp_with_another_master_passes_the_suite() {
    for_sizes(&SIZES, |size| led(tcp_group(size)));
}

#[test]
fn places_and_ranks_are_exchanged() {
    let places: Vec<Rank> = (0..4).map(|rank| Led::place(MASTER, rank, 4)).collect();
    assert_eq!(places, [2, 1, 0, 3]);
    let unknown: Vec<Rank> = (0..4).map(|rank| Led::place(4, rank, 4)).collect();
    assert_eq!(unknown, [0, 1, 2, 3], "who is no rank leads nobody");
    let late = Error::Late { operation: "rendezvous", missing: vec![0, 1], waited: Duration::ZERO, interrupted: false };
    match Led::named(MASTER, 4, late) {
        Error::Late { missing, .. } => assert_eq!(missing, [1, 2]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_next_rank_takes_the_masters_place_and_gathers_without_it() {
    let mut ranks = led(tcp_group(4));
    assert_eq!(ranks.iter().map(Collective::rank).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let standing = |rank: &mut Led<Tcp>| rank.succession().unwrap().stand_by().unwrap();
    let line = [(3, standing(&mut ranks[3])), (0, standing(&mut ranks[0]))];
    ranks.iter_mut().for_each(|rank| rank.succession().unwrap().set_successors(&line));
    ranks[MASTER].fault_tolerance().unwrap().continue_without_lost(b"notice".to_vec()).unwrap();
    drop(ranks.remove(MASTER));
    std::thread::scope(|scope| {
        for mut rank in ranks {
            scope.spawn(move || {
                let own = rank.rank();
                let succession = rank.succession().unwrap();
                assert_eq!(succession.succeed(&[true; 4], Duration::from_secs(5), &within(20)).unwrap(), 3);
                assert_eq!(rank.root(), 3);
                let mut frames = Frames::default();
                // Neither rank 0 nor the master that is lost need take part.
                let some = [false, true, false, true];
                rank.gather(&some, &[own as u8; 5], &mut frames, &within(20)).unwrap();
                if own == 3 {
                    let lengths: Vec<usize> = frames.iter().map(<[u8]>::len).collect();
                    assert_eq!((lengths, frames.frame(1)), (vec![0, 5, 0, 5], &[1; 5][..]));
                    let attendance = rank.fault_tolerance().unwrap().attendance();
                    let left: Vec<Rank> = attendance.left.into_iter().map(|(rank, _)| rank).collect();
                    assert_eq!(left, [MASTER]);
                }
                let mut told = if own == 3 { b"decided".to_vec() } else { Vec::new() };
                rank.broadcast(&mut told, &within(20)).unwrap();
                assert_eq!(told, b"decided");
                rank.gather(&[true; 4], &[], &mut frames, &within(20)).unwrap();
            });
        }
    });
}

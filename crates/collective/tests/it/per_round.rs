//! Ranks that connect for each round: nothing stands between rounds, and everything else is as
//! ever.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use probe_sync_collective::{Collective as _, Deadline, Error, Frames, JobKey, Rank, Tcp, TcpOptions};

use crate::backends::{tcp_group_at, tree};

fn within(seconds: u64) -> Deadline {
    Deadline::new(Duration::from_secs(seconds), None)
}

/// A group that has met, whose connections last for a round, and where its root listens.
fn group(size: usize) -> (Vec<Tcp>, SocketAddr) {
    let (mut ranks, address) = tcp_group_at(size, TcpOptions::default());
    ranks.iter_mut().for_each(|rank| rank.connect_per_round().unwrap());
    ranks[0].go_on_without_lost(b"the run".to_vec()).unwrap();
    (ranks, address)
}

/// One rank's part of a round: what it gathered where it is the root.
fn part(rank: &mut Tcp, payload: &[u8], limit: &Deadline) -> Result<Frames, Error> {
    let mut frames = Frames::default();
    let everyone = vec![true; rank.size()];
    rank.gather(&everyone, payload, &mut frames, limit)?;
    let root = rank.rank() == rank.root();
    let mut told = if root { b"decided".to_vec() } else { Vec::new() };
    rank.broadcast(&mut told, &within(60))?;
    assert_eq!(told, b"decided");
    rank.round_is_over()?;
    Ok(frames)
}

/// A round of these ranks, each in a thread of its own, the root within `limit`; whose frames came.
fn round(ranks: &mut [Tcp], limit: &Deadline) -> Vec<Rank> {
    std::thread::scope(|scope| {
        let of_one = |rank: &mut Tcp| {
            let (own, others) = (rank.rank(), within(60));
            part(rank, &[own as u8; 9], if own == rank.root() { limit } else { &others }).unwrap()
        };
        let threads: Vec<ScopedJoinHandle<'_, Frames>> =
            ranks.iter_mut().map(|rank| scope.spawn(move || of_one(rank))).collect();
        let gathered = threads.into_iter().map(|thread| thread.join().unwrap()).find(|frames| !frames.is_empty());
        let frames = gathered.unwrap();
        (0..frames.len()).filter(|&rank| frames.frame(rank) == [rank as u8; 9]).collect()
    })
}

/// Connections of this machine that are not closed on both sides yet, with one end at this port;
/// they close within milliseconds of the last round.
fn standing(port: u16) -> usize {
    let of_port = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let at_port = |end: &str| end.ends_with(&format!(":{port:04X}"));
        // Listening, and the time a closed one is remembered, are no connections.
        fields.len() > 3 && (at_port(fields[1]) || at_port(fields[2])) && !["0A", "06"].contains(&fields[3])
    };
    let all = ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| std::fs::read_to_string(file).unwrap_or_default());
    all.iter().flat_map(|text| text.lines()).filter(|line| of_port(line)).count()
}

/// Waits until the root has seen that all have hung up.
fn none_stands(root: &mut Tcp, port: u16) {
    let begun = Instant::now();
    loop {
        assert!(root.calls().unwrap().is_empty());
        match standing(port) {
            0 => return,
            left => assert!(begun.elapsed() < Duration::from_secs(120), "{left} connections stand"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn between_rounds_no_connection_stands_and_every_round_has_all() {
    let (mut ranks, address) = group(6);
    // They stand until the first round is over; attempts that were made before the root listened
    // may still be closing.
    let begun = Instant::now();
    while standing(address.port()) != 10 {
        assert!(begun.elapsed() < Duration::from_secs(120), "{} ends of five connections", standing(address.port()));
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..5 {
        assert_eq!(round(&mut ranks, &within(60)), [0, 1, 2, 3, 4, 5]);
        none_stands(&mut ranks[0], address.port());
    }
    assert!(ranks[0].attendance().left.is_empty());
    // The last round is not over: the end needs its connections.
    std::thread::scope(|scope| {
        for rank in &mut ranks {
            scope.spawn(move || {
                let everyone = [true; 6];
                for part in 0..3 {
                    if part == 1 {
                        rank.let_nobody_back();
                    }
                    rank.gather(&everyone, b"account", &mut Frames::default(), &within(60)).unwrap();
                    rank.broadcast(&mut vec![1], &within(60)).unwrap();
                }
            });
        }
    });
}

#[test]
fn ranks_that_contribute_nothing_come_too_and_take_the_decision() {
    let (mut ranks, _) = group(4);
    let participants = [true, false, true, false];
    std::thread::scope(|scope| {
        for rank in &mut ranks {
            scope.spawn(move || {
                for _ in 0..3 {
                    let (mut frames, mut told) = (Frames::default(), vec![7; 3]);
                    rank.gather(&participants, b"here", &mut frames, &within(60)).unwrap();
                    rank.broadcast(&mut told, &within(60)).unwrap();
                    assert_eq!(told, [7; 3]);
                    if rank.rank() == 0 {
                        let parts: Vec<usize> = frames.iter().map(<[u8]>::len).collect();
                        assert_eq!(parts, [4, 0, 4, 0]);
                    }
                    rank.round_is_over().unwrap();
                }
            });
        }
    });
}

#[test]
fn what_a_rank_says_between_rounds_comes_with_the_next_and_the_root_reaches_nobody() {
    let (mut ranks, address) = group(3);
    round(&mut ranks, &within(60));
    none_stands(&mut ranks[0], address.port());
    assert!(ranks[1].call(b"first").unwrap() && ranks[1].call(b"second").unwrap() && ranks[2].call(b"third").unwrap());
    assert!(!ranks[0].call(b"to all").unwrap());
    round(&mut ranks, &within(60));
    let mut heard = ranks[0].calls().unwrap();
    heard.sort();
    assert_eq!(heard, [(1, b"first".to_vec()), (1, b"second".to_vec()), (2, b"third".to_vec())]);
    assert!(ranks[1].calls().unwrap().is_empty());
    let taken = (0..10_000).filter(|_| ranks[1].call(b"again").unwrap()).count();
    assert!(taken < 10_000, "what waits fills the memory");
    round(&mut ranks, &within(60));
    assert_eq!(
        ranks[0].calls().unwrap(),
        vec![(1, b"again".to_vec()); taken],
        "the group lives on, and has what was taken"
    );
    assert!(ranks[1].call(b"again").unwrap());
}

#[test]
fn who_does_not_come_is_named_and_who_comes_too_late_is_told() {
    let (mut ranks, _) = group(4);
    round(&mut ranks, &within(60));
    let mut slow = ranks.remove(2);
    assert_eq!(round(&mut ranks, &within(1)), [0, 1, 3]);
    let left = ranks[0].attendance().left;
    assert!(matches!(&left[..], [(2, Error::Late { missing, .. })] if missing == &[2]), "{left:?}");
    assert_eq!(round(&mut ranks, &within(60)), [0, 1, 3]);
    let told = part(&mut slow, b"late", &within(60)).unwrap_err();
    assert!(matches!(&told, Error::Dismissed { reason } if reason.contains("did not join in time")), "{told}");
    assert_eq!(round(&mut ranks, &within(60)), [0, 1, 3]);
}

#[test]
fn a_large_window_is_whole_although_another_rank_never_comes() {
    let (mut ranks, _) = group(3);
    round(&mut ranks, &within(60));
    ranks.remove(2);
    let large: Vec<u8> = (0..40 << 20).map(|at: u32| (at % 251) as u8).collect();
    let (root, other) = ranks.split_at_mut(1);
    std::thread::scope(|scope| {
        let (other, payload) = (&mut other[0], &large);
        scope.spawn(move || part(other, payload, &within(60)).unwrap());
        let frames = part(&mut root[0], b"", &within(3)).unwrap();
        assert!(frames.frame(1) == large, "{} bytes", frames.frame(1).len());
    });
    let left: Vec<Rank> = root[0].attendance().left.into_iter().map(|(rank, _)| rank).collect();
    assert_eq!(left, [2]);
}

#[test]
fn a_second_process_of_a_rank_waits_until_the_first_is_given_up_and_then_comes_for_rounds() {
    let (mut ranks, address) = group(3);
    assert_eq!(round(&mut ranks, &within(60)), [0, 1, 2]);
    none_stands(&mut ranks[0], address.port());
    std::thread::scope(|scope| {
        let second = scope.spawn(move || {
            let mut second = Tcp::join(&address.to_string(), 1, 3, JobKey::of(b"7"), &within(60)).unwrap();
            second.connect_per_round().unwrap();
            assert_eq!(second.notice().as_deref(), Some(&b"the run"[..]));
            second.come_back(b"again", &within(60)).unwrap();
            let mut told = Vec::new();
            second.broadcast(&mut told, &within(60)).unwrap();
            second.round_is_over().unwrap();
            second
        });
        // The first is not connected, and has its place.
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(round(&mut ranks, &within(60)), [0, 1, 2]);
            assert!(ranks[0].attendance().back.is_empty());
        }
        let mut first = ranks.remove(1);
        let (mut other, root) = (ranks.remove(1), &mut ranks);
        let other = scope.spawn(move || {
            part(&mut other, b"here", &within(60)).unwrap();
            other
        });
        let mut frames = Frames::default();
        root[0].gather(&[true; 3], b"", &mut frames, &within(1)).unwrap();
        assert_eq!((frames.frame(1), frames.frame(2)), (&b""[..], &b"here"[..]));
        let begun = Instant::now();
        while root[0].attendance().back.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(120), "nobody came back");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(root[0].admit(1, Ok(())));
        root[0].broadcast(&mut b"decided".to_vec(), &within(60)).unwrap();
        root[0].round_is_over().unwrap();
        ranks.extend([second.join().unwrap(), other.join().unwrap()]);
        for _ in 0..3 {
            assert_eq!(round(&mut ranks, &within(60)), [0, 1, 2]);
        }
        // What had the place before comes again.
        let told = part(&mut first, b"first", &within(60)).unwrap_err();
        assert!(matches!(told, Error::Dismissed { .. }), "{told}");
        assert_eq!(round(&mut ranks, &within(60)), [0, 1, 2]);
    });
}

#[test]
fn foreign_connections_between_rounds_take_nobodys_place() {
    let (mut ranks, address) = group(3);
    round(&mut ranks, &within(60));
    let mut held: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    held[1].write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    // What rank 1 of 3 would say to come for a round, without the key.
    let mut guessing = TcpStream::connect(address).unwrap();
    let mut greeting = b"prbsync\x01".to_vec();
    greeting.extend([9u32, 1, 3, 4, 0, 0, 0].iter().flat_map(|number| number.to_le_bytes()));
    greeting.extend([9; 48]);
    guessing.write_all(&greeting).unwrap();
    guessing.read_exact(&mut [0; 48]).unwrap();
    guessing.write_all(&[0; 32]).unwrap();
    let mut answer = [0; 48];
    guessing.read_exact(&mut answer).unwrap();
    assert_eq!(answer[12..], [[2, 0, 0, 0].as_slice(), &[0; 32]].concat(), "refused, and nothing of the key is told");
    for _ in 0..3 {
        assert_eq!(round(&mut ranks, &within(60)), [0, 1, 2]);
    }
    assert!(ranks[0].attendance().left.is_empty());
}

#[test]
fn the_loss_of_the_root_between_rounds_is_seen_and_the_next_root_is_visited_for_each_round_too() {
    let (mut ranks, _) = group(4);
    let line: Vec<_> = [1, 2].map(|rank| (rank, ranks[rank].stand_by().unwrap().unwrap())).into();
    ranks.iter_mut().for_each(|rank| rank.line_up(&line));
    for _ in 0..2 {
        round(&mut ranks, &within(60));
    }
    drop(ranks.remove(0));
    let mut ranks: Vec<Tcp> = std::thread::scope(|scope| {
        let lose = |mut rank: Tcp| {
            scope.spawn(move || {
                let lost = part(&mut rank, b"here", &within(60)).unwrap_err();
                assert!(matches!(lost, Error::Lost { rank: 0, .. }), "{lost}");
                assert_eq!(rank.succeed(&[true; 4], Duration::from_secs(5), &within(20)).unwrap(), 1);
                rank
            })
        };
        let threads: Vec<_> = ranks.into_iter().map(lose).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    ranks[0].go_on_without_lost(b"the run".to_vec()).unwrap();
    let port = line[0].1[0].port();
    for _ in 0..3 {
        assert_eq!(round(&mut ranks, &within(60)), [1, 2, 3]);
        none_stands(&mut ranks[0], port);
    }
}

#[test]
fn a_tree_says_that_it_cannot() {
    let (mut ranks, _) = tcp_group_at(4, tree(2));
    for rank in &mut ranks {
        let error = rank.connect_per_round().unwrap_err().to_string();
        assert!(error.contains("PROBE_SYNC_TCP_FANOUT=star"), "{error}");
    }
}

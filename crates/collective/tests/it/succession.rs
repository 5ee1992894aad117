//! Groups whose root is lost: the others meet anew around the next, by real sockets.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use probe_sync_collective::{
    Admission, Collective, Deadline, EarlierRun, Error, FanOut, FaultTolerance, Frames, JobKey, Rank, Succession, Tcp,
    TcpOptions, bind,
};

use crate::backends::{NOWHERE, tcp_group, tcp_group_with};

type Line = Vec<(Rank, Vec<SocketAddr>)>;

fn within(seconds: u64) -> Deadline {
    Deadline::new(Duration::from_secs(seconds), None)
}

/// A group in which the ranks of `line` may take over as root, and which continues without lost
/// ranks.
fn group(size: usize, line: &[Rank]) -> Vec<Tcp> {
    lined_up(tcp_group(size), line).0
}

/// The same of these ranks, and what each of them was told of the line.
fn lined_up(mut ranks: Vec<Tcp>, line: &[Rank]) -> (Vec<Tcp>, Line) {
    let mut successors: Line = Vec::new();
    for &rank in line {
        successors.push((rank, ranks[rank].stand_by().unwrap()));
    }
    ranks.iter_mut().for_each(|rank| rank.set_successors(&successors));
    ranks[0].continue_without_lost(b"notice".to_vec()).unwrap();
    (ranks, successors)
}

/// All of these ranks look for a new root at the same time, where all ranks took part last.
fn succeed(ranks: Vec<Tcp>, of: usize, seconds: u64) -> Vec<(Tcp, Result<Rank, Error>)> {
    succeed_of(ranks.into_iter().map(|rank| (rank, vec![true; of])).collect(), seconds)
}

/// The same, where each has its own word on who took part last.
fn succeed_of(ranks: Vec<(Tcp, Vec<bool>)>, seconds: u64) -> Vec<(Tcp, Result<Rank, Error>)> {
    std::thread::scope(|scope| {
        let succeed = |(mut rank, there): (Tcp, Vec<bool>)| {
            scope.spawn(move || {
                let root = rank.succeed(&there, Duration::from_secs(seconds) / 4, &within(seconds));
                (rank, root)
            })
        };
        let threads: Vec<_> = ranks.into_iter().map(succeed).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A gather, a broadcast, a scatter and words with every byte checked; `here` are the ranks that
/// take part.
fn works(ranks: &mut [Tcp], size: usize, root: Rank, here: &[Rank]) {
    std::thread::scope(|scope| {
        for rank in ranks {
            scope.spawn(move || {
                let (own, mut frames) = (rank.rank(), Frames::default());
                assert_eq!((rank.root(), rank.size()), (root, size));
                rank.gather(&vec![true; size], &[own as u8; 9], &mut frames, &within(20)).unwrap();
                if own == root {
                    for other in 0..size {
                        let expected: &[u8] = if here.contains(&other) { &[other as u8; 9] } else { &[] };
                        assert_eq!(frames.frame(other), expected, "rank {other}");
                    }
                }
                let mut told = if own == root { b"decided".to_vec() } else { Vec::new() };
                rank.broadcast(&mut told, &within(20)).unwrap();
                assert_eq!(told, b"decided");
                let (mut parts, mut part) = (Frames::default(), Vec::new());
                (0..size).for_each(|other| parts.push(&[100 + other as u8]));
                let none = Frames::default();
                rank.scatter(if own == root { &parts } else { &none }, &mut part, &within(20)).unwrap();
                assert_eq!(part, [100 + own as u8]);
                if own != root {
                    rank.call(&[own as u8]).unwrap();
                }
                rank.gather(&vec![true; size], &[], &mut frames, &within(20)).unwrap();
                rank.broadcast(&mut told, &within(20)).unwrap();
                if own == root {
                    let mut heard: Vec<_> = rank.calls().unwrap();
                    heard.sort();
                    let others = here.iter().filter(|other| **other != root);
                    assert_eq!(heard, others.map(|other| (*other, vec![*other as u8])).collect::<Vec<_>>());
                }
            });
        }
    });
}

/// All of `size` ranks took part except these.
fn all_but(size: usize, away: &[Rank]) -> Vec<bool> {
    (0..size).map(|rank| !away.contains(&rank)).collect()
}

fn roots(results: Vec<(Tcp, Result<Rank, Error>)>) -> (Vec<Tcp>, Vec<Rank>) {
    results.into_iter().map(|(rank, root)| (rank, root.unwrap())).unzip()
}

#[test]
fn the_next_in_line_is_the_root_and_then_the_next() {
    let mut ranks = group(6, &[2, 1, 4]);
    works(&mut ranks, 6, 0, &[0, 1, 2, 3, 4, 5]);
    drop(ranks.remove(0));
    let (mut ranks, chosen) = roots(succeed(ranks, 6, 20));
    assert_eq!(chosen, [2; 5]);
    let place = |ranks: &[Tcp], rank| ranks.iter().position(|one: &Tcp| one.rank() == rank).unwrap();
    let root = place(&ranks, 2);
    let left: Vec<Rank> = ranks[root].attendance().left.into_iter().map(|(rank, _)| rank).collect();
    assert_eq!(left, [0], "who was not there when they met");
    ranks[root].continue_without_lost(b"notice".to_vec()).unwrap();
    works(&mut ranks, 6, 2, &[1, 2, 3, 4, 5]);
    drop(ranks.remove(root));
    let (mut ranks, chosen) = roots(succeed_of(ranks.into_iter().map(|rank| (rank, all_but(6, &[0]))).collect(), 20));
    assert_eq!(chosen, [1; 4]);
    works(&mut ranks, 6, 1, &[1, 3, 4, 5]);
}

#[test]
fn a_successor_that_hangs_is_passed_over_and_finds_itself_alone_when_it_wakes() {
    let mut ranks = group(5, &[1, 2]);
    drop(ranks.remove(0));
    let hangs = ranks.remove(0);
    let (mut ranks, chosen) = roots(succeed(ranks, 5, 8));
    assert_eq!(chosen, [2; 3]);
    works(&mut ranks, 5, 2, &[2, 3, 4]);
    let [(_, woken)] = &succeed(vec![hangs], 5, 2)[..] else { panic!("one rank") };
    assert!(matches!(woken, Err(Error::Minority { present: 1, of: 5, .. })), "{woken:?}");
    works(&mut ranks, 5, 2, &[2, 3, 4]);
}

#[test]
fn whoever_the_last_round_was_without_is_no_voice_and_leads_nobody() {
    for line in [&[1, 2][..], &[3, 1, 2]] {
        let mut ranks = group(5, line);
        let cut_off = ranks.split_off(3);
        // The root goes on without ranks 3 and 4, which do not hear of it.
        std::thread::scope(|scope| {
            for rank in &mut ranks {
                scope.spawn(|| {
                    let (mut frames, mut told) = (Frames::default(), b"decided".to_vec());
                    let deadline = within(if rank.rank() == 0 { 1 } else { 20 });
                    rank.gather(&[true; 5], b"window", &mut frames, &deadline).unwrap();
                    rank.broadcast(&mut told, &within(20)).unwrap();
                });
            }
        });
        let left: Vec<Rank> = ranks[0].attendance().left.into_iter().map(|(rank, _)| rank).collect();
        assert_eq!(left, [3, 4]);
        // Now rank 2 is cut off from ranks 0 and 1, too. It took part last with those two, the
        // others with all.
        let apart = vec![(ranks.remove(2), all_but(5, &[3, 4]))];
        let apart = apart.into_iter().chain(cut_off.into_iter().map(|rank| (rank, vec![true; 5])));
        for (rank, outcome) in succeed_of(apart.collect(), 8) {
            let apart = matches!(outcome, Err(Error::Minority { .. } | Error::Dismissed { .. }));
            assert!(apart, "line {line:?}, rank {}: {outcome:?}", rank.rank());
        }
    }
}

#[test]
fn a_root_that_wakes_learns_that_the_others_have_met_anew() {
    let mut ranks = group(4, &[1, 2]);
    let mut woken = ranks.remove(0);
    assert_eq!(woken.superseding_root(), None, "they have not");
    let (mut ranks, chosen) = roots(succeed(ranks, 4, 20));
    assert_eq!(chosen, [1; 3]);
    ranks[0].continue_without_lost(b"notice".to_vec()).unwrap();
    assert_eq!(woken.superseding_root(), Some(1));
    works(&mut ranks, 4, 1, &[1, 2, 3]);
}

#[test]
fn who_waits_for_something_else_sees_that_the_root_has_hung_up() {
    let mut ranks = group(2, &[1]);
    assert!(!ranks[1].root_has_disconnected() && !ranks[0].root_has_disconnected());
    drop(ranks.remove(0));
    let deadline = Instant::now() + Duration::from_secs(120);
    while !ranks[0].root_has_disconnected() {
        assert!(Instant::now() < deadline, "it is not seen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn foreign_connections_that_fill_where_a_rank_stands_do_not_keep_the_others_from_meeting() {
    let mut ranks = tcp_group(4);
    let standing = ranks[1].stand_by().unwrap();
    let line = [(1, standing.clone())];
    ranks.iter_mut().for_each(|rank| rank.set_successors(&line));
    // Nobody accepts there until rank 0 is lost: the system's queue fills, and then takes nobody.
    let connect = || TcpStream::connect_timeout(&standing[0], Duration::from_millis(200));
    let mut held: Vec<TcpStream> = (0..FOREIGN).map_while(|_| connect().ok()).collect();
    assert!(held.len() < FOREIGN, "the queue is not full");
    held.iter_mut().step_by(3).for_each(|foreign| foreign.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap());
    drop(ranks.remove(0));
    let (mut ranks, chosen) = roots(succeed(ranks, 4, 20));
    assert_eq!(chosen, [1; 3]);
    works(&mut ranks, 4, 1, &[1, 2, 3]);
}

/// More connections than any of our queues takes.
const FOREIGN: usize = 5000;

#[test]
fn too_few_ranks_are_told_that_they_are_a_minority() {
    let mut ranks = group(6, &[1, 2, 3]);
    ranks.drain(..2);
    ranks.truncate(3);
    for (rank, result) in succeed(ranks, 6, 6) {
        let rank = rank.rank();
        assert!(matches!(result, Err(Error::Minority { of: 6, .. } | Error::Dismissed { .. })), "{rank}: {result:?}");
    }
}

#[test]
fn errors_after_a_succession_name_the_ranks_by_their_own_numbers() {
    let mut ranks = group(4, &[2]);
    drop(ranks.remove(0));
    let (mut ranks, _) = roots(succeed(ranks, 4, 20));
    // Ranks 1, 2 and 3; rank 3 says nothing.
    let mut frames = Frames::default();
    let everyone = vec![true; 4];
    let soon = Deadline::new(Duration::from_millis(300), None);
    ranks[0].gather(&everyone, b"1", &mut frames, &soon).unwrap();
    ranks[1].gather(&everyone, b"2", &mut frames, &soon).unwrap();
    let left: Vec<Rank> = ranks[1].attendance().left.into_iter().map(|(rank, _)| rank).collect();
    assert_eq!(left, [0, 3]);
    let error = ranks[2].broadcast(&mut Vec::new(), &within(5)).unwrap_err();
    assert!(matches!(error, Error::Dismissed { .. } | Error::Lost { rank: 2, .. }), "{error:?}");
}

/// A new process of `rank`, which finds nobody at rank 0's address and knows the line.
fn join_again(rank: Rank, line: &Line, options: TcpOptions, key: &[u8], seconds: u64) -> Result<Tcp, Error> {
    let (earlier, key) = (was_in(line), JobKey::of(key));
    if rank == 0 {
        let returned = Tcp::return_as_rank_0(&earlier, 6, key, options, &within(seconds))?;
        return Ok(returned.expect("somebody is there"));
    }
    Tcp::join_or_return(&[NOWHERE.to_owned()], &earlier, rank, 6, key, options, &within(seconds))
}

/// What a rank knows whose earlier process was told of this line.
fn was_in(line: &Line) -> EarlierRun {
    EarlierRun { run: 7, successors: line.clone(), kept_in: Some("out/successors/rank0.json".into()) }
}

/// Six ranks; 0, 1 and 3 are lost, so that rank 2 is the root, and rank 3 comes back to it.
fn check_return_to_the_new_root(options: TcpOptions) {
    let (mut ranks, line) = lined_up(tcp_group_with(6, options), &[1, 2, 4]);
    works(&mut ranks, 6, 0, &[0, 1, 2, 3, 4, 5]);
    ranks.drain(..2);
    let (mut ranks, chosen) = roots(succeed(ranks, 6, 20));
    assert_eq!(chosen, [2; 4]);
    ranks[0].continue_without_lost(b"notice".to_vec()).unwrap();
    drop(ranks.remove(1));
    let foreign = join_again(3, &line, options, b"8", 2).unwrap_err().to_string();
    assert!(foreign.contains("cannot reach rank 0") && foreign.contains("rank 2"), "{foreign}");
    let other_key = join_again(0, &line, options, b"8", 30).unwrap_err().to_string();
    assert!(other_key.contains("rank 2") && other_key.contains("another key"), "{other_key}");
    // Ranks 1 and 0 come back too: rank 0 has rank 2's label.
    for returning in [3, 1, 0] {
        let line = line.clone();
        let again = std::thread::spawn(move || {
            let mut again = join_again(returning, &line, options, b"7", 30).unwrap();
            assert_eq!((again.rank(), again.root(), again.notice()), (returning, 2, Some(b"notice".to_vec())));
            again.rejoin(b"statement", &within(30)).unwrap();
            again.set_successors(&line);
            again
        });
        let begun = Instant::now();
        let back = loop {
            let back = ranks[0].attendance().back;
            if !back.is_empty() {
                break back;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "it does not come back");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(back, [(returning, b"statement".to_vec())]);
        assert!(ranks[0].admit(returning, Ok(())));
        ranks.push(again.join().unwrap());
    }
    works(&mut ranks, 6, 2, &[0, 1, 2, 3, 4, 5]);
    // Who came back has a voice when that root is lost, too: 0, 1, 3, 4 and 5.
    drop(ranks.remove(0));
    let (mut ranks, chosen) = roots(succeed(ranks, 6, 20));
    assert_eq!(chosen, [4; 5]);
    works(&mut ranks, 6, 4, &[0, 1, 3, 4, 5]);
}

#[test]
fn a_rank_comes_back_to_the_root_that_took_the_lost_ones_place() {
    check_return_to_the_new_root(TcpOptions::default());
}

#[test]
fn a_rank_of_a_tree_comes_back_to_the_root_that_took_the_lost_ones_place() {
    check_return_to_the_new_root(TcpOptions { fan_out: FanOut::Tree(2), ..TcpOptions::default() });
}

#[test]
fn a_rank_that_comes_back_while_the_others_meet_anew_is_no_voice() {
    // Of four, ranks 0, 2 and 3 are gone; rank 1 alone is a minority, whoever is started again.
    let (mut ranks, line) = lined_up(tcp_group(4), &[1]);
    drop((ranks.remove(0), ranks.drain(1..)));
    let again: Vec<_> = [2, 3]
        .map(|rank| {
            let line = line.clone();
            std::thread::spawn(move || {
                let (key, options) = (JobKey::of(b"7"), TcpOptions::default());
                Tcp::join_or_return(&[NOWHERE.to_owned()], &was_in(&line), rank, 4, key, options, &within(6))
                    .map(|_| ())
            })
        })
        .into();
    let [(_, alone)] = &succeed(ranks, 4, 4)[..] else { panic!("one rank") };
    assert!(matches!(alone, Err(Error::Minority { present: 1, of: 4, .. })), "{alone:?}");
    for again in again {
        let error = again.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("cannot reach rank 0") && error.contains("rank 1"), "{error}");
    }
}

#[test]
fn a_new_rank_0_takes_no_rank_of_a_run_that_goes_on_and_the_rank_finds_its_own() {
    let (ranks, line) = lined_up(tcp_group(4), &[1, 2]);
    let (mut ranks, _) = roots(succeed(ranks.into_iter().skip(1).collect(), 4, 20));
    ranks[0].continue_without_lost(b"notice".to_vec()).unwrap();
    drop(ranks.pop());
    works(&mut ranks, 4, 1, &[1, 2]);
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        let fresh = scope.spawn(|| Tcp::host(listener, 4, JobKey::of(b"7"), &within(5)));
        let again = scope.spawn(|| {
            let (key, options) = (JobKey::of(b"7"), TcpOptions::default());
            let mut again = Tcp::join_or_return(&[address], &was_in(&line), 3, 4, key, options, &within(30)).unwrap();
            assert_eq!((again.root(), again.notice()), (1, Some(b"notice".to_vec())));
            again.rejoin(b"statement", &within(30)).unwrap();
            again
        });
        let begun = Instant::now();
        while ranks[0].attendance().back.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(120), "it does not come back");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(ranks[0].admit(3, Ok(())));
        ranks.push(again.join().unwrap());
        let missing = fresh.join().unwrap().unwrap_err();
        assert!(matches!(&missing, Error::Late { missing, .. } if missing == &[1, 2, 3]), "{missing}");
    });
    works(&mut ranks, 4, 1, &[1, 2, 3]);
}

#[test]
fn ranks_of_a_run_that_is_over_meet_for_the_next_one() {
    // Where a rank that might have taken over has listened another program does, or nobody.
    let other = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let line = vec![(1, vec![NOWHERE.parse().unwrap()]), (2, vec![other.local_addr().unwrap()])];
    let answers = std::thread::spawn(move || {
        for stream in other.incoming().take(4) {
            let _gone = stream.and_then(|mut stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        }
    });
    let (key, options) = (JobKey::of(b"7"), TcpOptions::default());
    let returned = Tcp::return_as_rank_0(&was_in(&line), 5, key, options, &within(20)).unwrap();
    assert!(returned.is_none(), "a new run may begin");
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut ranks = std::thread::scope(|scope| {
        let (address, line) = (&address, &line);
        let join = move |rank| {
            // One has nothing of an earlier run.
            let earlier = if rank == 4 { EarlierRun::default() } else { was_in(line) };
            Tcp::join_or_return(std::slice::from_ref(address), &earlier, rank, 5, key, options, &within(30)).unwrap()
        };
        let joining: Vec<_> = (1..5).map(|rank| scope.spawn(move || join(rank))).collect();
        let mut ranks = vec![Tcp::host(listener, 5, key, &within(30)).unwrap()];
        ranks.extend(joining.into_iter().map(|thread| thread.join().unwrap()));
        ranks
    });
    works(&mut ranks, 5, 0, &[0, 1, 2, 3, 4]);
    // Rank 2 asks its own address no more than any other rank that may have led.
    TcpStream::connect(line[1].1[0]).map(drop).unwrap_or(());
    answers.join().unwrap();
}

#[test]
fn rank_0_ends_with_the_name_of_who_is_there_and_does_not_take_it_in() {
    let silent = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let line = vec![(2, vec![silent.local_addr().unwrap()])];
    let options = TcpOptions { greeting: Duration::from_millis(200), ..TcpOptions::default() };
    let error = Tcp::return_as_rank_0(&was_in(&line), 4, JobKey::of(b"7"), options, &within(1)).unwrap_err();
    let (said, at) = (error.to_string(), line[0].1[0].to_string());
    assert!(said.contains("rank 2") && said.contains(&at) && said.contains("another --out"), "{said}");
    assert!(said.contains("out/successors/rank0.json") && said.contains("to start a new run"), "{said}");
}

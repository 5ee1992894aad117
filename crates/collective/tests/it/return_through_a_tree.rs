//! A tree that goes on without ranks that are lost or stopped, whoever passes on for whom, and
//! takes them back.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use probe_sync_collective::{
    Admission, Collective as _, Deadline, Error, FaultTolerance, Frames, JobKey, Rank, Tcp, bind,
};

use crate::backends::{tcp_group_with, tree};

/// A rank below one that is stopped looks for another way when half of it is over.
fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(24), None)
}

/// What a rank does next.
enum Part {
    /// A gather, a scatter and a broadcast; then it says what it was told.
    Round,
    /// A broadcast alone.
    Broadcast,
    /// A broadcast, and a gather after it.
    Answer,
    /// Its process ends.
    End,
}

/// Its frame of the scatter, and the broadcast.
type Heard = (Vec<u8>, Vec<u8>);

/// A rank on a thread of its own. One that is told nothing is as one that is stopped.
struct Member {
    parts: Sender<Part>,
    heard: Receiver<Result<Heard, String>>,
    thread: JoinHandle<()>,
}

impl Member {
    fn new(mut group: Tcp) -> Self {
        let ((parts, todo), (say, heard)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            let everyone = vec![true; group.size()];
            for part in todo {
                let (mut own, mut told) = (Vec::new(), Vec::new());
                let payload = format!("rank {}", group.rank());
                let answers = matches!(part, Part::Answer);
                let before = match part {
                    Part::End => return,
                    Part::Broadcast | Part::Answer => Ok(()),
                    Part::Round => group
                        .gather(&everyone, payload.as_bytes(), &mut Frames::default(), &deadline())
                        .and_then(|()| group.scatter(&Frames::default(), &mut own, &deadline())),
                };
                let mut result = before.and_then(|()| group.broadcast(&mut told, &deadline()));
                if answers {
                    let gather = |()| group.gather(&everyone, payload.as_bytes(), &mut Frames::default(), &deadline());
                    result = result.and_then(gather);
                }
                if say.send(result.map(|()| (own, told)).map_err(|error| error.to_string())).is_err() {
                    return;
                }
            }
        });
        Self { parts, heard, thread }
    }
}

/// A group whose root continues without lost ranks.
struct Group {
    root: Tcp,
    members: BTreeMap<Rank, Member>,
    address: String,
    fan_out: usize,
    rounds: u64,
}

impl Group {
    fn new(size: usize, fan_out: usize) -> Self {
        let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (address, options) = (&address, tree(fan_out));
        std::thread::scope(|scope| {
            let joining: Vec<_> =
                (1..size).map(|rank| scope.spawn(move || join(address, rank, size, fan_out))).collect();
            let mut root = Tcp::host_with(listener, size, JobKey::of(b"7"), options, &deadline()).unwrap();
            root.continue_without_lost(Vec::new()).unwrap();
            let members = joining.into_iter().map(|thread| thread.join().unwrap());
            let members = members.map(|group| (group.rank(), Member::new(group))).collect();
            Self { root, members, address: address.clone(), fan_out, rounds: 0 }
        })
    }

    /// A round in which these ranks are told nothing; who has left by its end, and what showed it.
    fn round(&mut self, stopped: &[Rank], wait: Duration) -> Vec<(Rank, Error)> {
        self.rounds += 1;
        for (_, member) in self.members.iter().filter(|(rank, _)| !stopped.contains(rank)) {
            member.parts.send(Part::Round).unwrap();
        }
        let (size, mut frames) = (self.root.size(), Frames::default());
        self.root.gather(&vec![true; size], b"rank 0", &mut frames, &Deadline::new(wait, None)).unwrap();
        let mut parts = Frames::default();
        (0..size).for_each(|rank| parts.push(format!("part {rank} of {}", self.rounds).as_bytes()));
        self.root.scatter(&parts, &mut Vec::new(), &deadline()).unwrap();
        let told = format!("round {}", self.rounds);
        self.root.broadcast(&mut told.clone().into_bytes(), &deadline()).unwrap();
        // Whoever does not reach its parent asks the root, which answers as long as it waits for
        // something.
        for (rank, member) in self.members.iter().filter(|(rank, _)| !stopped.contains(rank)) {
            let begun = Instant::now();
            let heard = loop {
                self.root.calls().unwrap();
                if let Ok(heard) = member.heard.recv_timeout(Duration::from_millis(10)) {
                    break heard;
                }
                assert!(begun.elapsed() < Duration::from_secs(120), "rank {rank} hears nothing");
            };
            let (own, all) = heard.unwrap();
            assert_eq!(own, format!("part {rank} of {}", self.rounds).as_bytes(), "rank {rank}");
            assert_eq!(all, told.as_bytes(), "rank {rank}");
            assert_eq!(frames.frame(*rank), format!("rank {rank}").as_bytes(), "its frame came");
        }
        let mut left = self.root.attendance().left;
        left.sort_by_key(|(rank, _)| *rank);
        left
    }

    /// Ends a rank's process.
    fn kill(&mut self, rank: Rank) {
        let member = self.members.remove(&rank).unwrap();
        member.parts.send(Part::End).unwrap();
        member.thread.join().unwrap();
    }

    /// Starts a process in the place of a lost rank.
    fn start_again(&mut self, rank: Rank) {
        let (size, fan_out, address) = (self.root.size(), self.fan_out, self.address.clone());
        let second = std::thread::spawn(move || {
            let mut second = join(&address, rank, size, fan_out);
            second.rejoin(b"again", &deadline()).unwrap();
            second
        });
        let begun = Instant::now();
        while self.root.attendance().back.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(120), "rank {rank} does not come back");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(self.root.admit(rank, Ok(())));
        let second = second.join().unwrap();
        self.members.insert(rank, Member::new(second));
        // It takes part from the next broadcast on.
        self.members.values().for_each(|member| member.parts.send(Part::Broadcast).unwrap());
        self.root.broadcast(&mut b"welcome".to_vec(), &deadline()).unwrap();
        for member in self.members.values() {
            let heard = member.heard.recv_timeout(Duration::from_secs(120)).expect("everybody hears it").unwrap();
            assert_eq!(heard.1, b"welcome");
        }
    }
}

fn join(address: &str, rank: Rank, size: usize, fan_out: usize) -> Tcp {
    Tcp::join_any(&[address.to_owned()], rank, size, JobKey::of(b"7"), tree(fan_out), &deadline()).unwrap()
}

fn names(left: &[(Rank, Error)]) -> Vec<Rank> {
    left.iter().map(|(rank, _)| *rank).collect()
}

/// Long enough for half of it to be enough on a busy machine.
const WAIT: Duration = Duration::from_secs(4);

#[test]
fn a_rank_between_others_that_dies_takes_nobody_with_it() {
    let mut group = Group::new(15, 2);
    assert!(group.round(&[], WAIT).is_empty());
    // In a tree of two, rank 1 passes on for 2 to 7, and rank 2 for 3 and 4.
    for lost in [1, 2, 14] {
        group.kill(lost);
        let left = group.round(&[], WAIT);
        assert_eq!(names(&left), [lost]);
        assert!(matches!(left[0].1, Error::Lost { .. }), "{left:?}");
        assert!(group.round(&[], WAIT).is_empty(), "the next tree has no place for it");
    }
}

#[test]
#[ignore = "long: waits for the limits of ranks that are stopped"]
fn ranks_that_are_stopped_are_named_and_those_below_them_are_not() {
    let mut group = Group::new(15, 2);
    assert!(group.round(&[], WAIT).is_empty());
    let left = group.round(&[1, 9], WAIT);
    assert_eq!(names(&left), [1, 9]);
    assert!(left.iter().all(|(_, error)| matches!(error, Error::Late { .. })), "{left:?}");
    for rank in [1, 9] {
        group.kill(rank);
    }
    assert!(group.round(&[], WAIT).is_empty());
}

/// It has done its part in a gather and stops before it passes on what the root says next: those
/// below it are still waiting for that when the root waits for them.
#[test]
fn a_rank_that_stops_with_a_message_to_pass_on_is_late_alone() {
    let mut group = Group::new(7, 2);
    assert!(group.round(&[], WAIT).is_empty());
    // Rank 1 passes on for 2, 3 and 4, and rank 2 for 3.
    for (_, member) in group.members.iter().filter(|(rank, _)| **rank != 1) {
        member.parts.send(Part::Answer).unwrap();
    }
    group.root.broadcast(&mut b"next".to_vec(), &deadline()).unwrap();
    let mut frames = Frames::default();
    group.root.gather(&[true; 7], b"rank 0", &mut frames, &Deadline::new(WAIT, None)).unwrap();
    let left = group.root.attendance().left;
    assert_eq!(names(&left), [1], "{left:?}");
    assert!(matches!(left[0].1, Error::Late { .. }), "{left:?}");
    for member in group.members.range(2..).map(|(_, member)| member) {
        let (_, told) = member.heard.recv_timeout(Duration::from_secs(60)).expect("everybody hears it").unwrap();
        assert_eq!(told, b"next");
    }
    assert!((2..7).all(|rank| frames.frame(rank) == format!("rank {rank}").as_bytes()));
}

#[test]
fn two_lost_one_below_the_other_are_both_named_and_nobody_else() {
    let mut group = Group::new(20, 3);
    assert!(group.round(&[], WAIT).is_empty());
    group.kill(1);
    let left = group.round(&[2], WAIT);
    assert_eq!(names(&left), [1, 2]);
    group.kill(2);
    assert!(group.round(&[], WAIT).is_empty());
}

#[test]
fn a_rank_between_others_comes_back_and_has_a_place() {
    let mut group = Group::new(15, 2);
    assert!(group.round(&[], WAIT).is_empty());
    for lost in [1, 2, 1] {
        group.kill(lost);
        assert_eq!(names(&group.round(&[], WAIT)), [lost]);
        group.start_again(lost);
        assert!(group.round(&[], WAIT).is_empty(), "everybody takes part again");
    }
}

/// These ranks' part in a broadcast of `word`.
fn broadcast(ranks: &mut [Tcp], word: &[u8]) {
    std::thread::scope(|scope| {
        for rank in ranks {
            scope.spawn(move || {
                let mut told = if rank.rank() == 0 { word.to_vec() } else { Vec::new() };
                rank.broadcast(&mut told, &deadline()).unwrap_or_else(|error| panic!("{}: {error}", rank.rank()));
                assert_eq!(told, word, "rank {}", rank.rank());
            });
        }
    });
}

#[test]
fn what_the_root_told_last_reaches_those_to_whom_others_pass_it_on() {
    let mut ranks = tcp_group_with(7, tree(2));
    broadcast(&mut ranks, b"first");
    // Rank 1 passes on for 2, 3 and 4, and rank 2 for 3; those two are late, and see first that the
    // root has gone.
    let mut late: Vec<Tcp> = ranks.drain(2..4).collect();
    broadcast(&mut ranks, b"the end");
    drop(ranks.remove(0));
    broadcast(&mut late, b"the end");
}

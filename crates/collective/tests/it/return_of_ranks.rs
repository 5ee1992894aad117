//! A group that goes on without ranks that are lost, and takes them back.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use probe_sync_collective::{
    Admission, Attendance, Collective as _, Deadline, Error, FaultTolerance, Frames, JobKey, Tcp, bind,
};

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(60), None)
}

fn short() -> Deadline {
    Deadline::new(Duration::from_millis(300), None)
}

/// The root, the others, and where the root is found.
fn group(size: usize) -> (Tcp, Vec<Tcp>, String) {
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        let address = &address;
        let joining: Vec<_> = (1..size).map(|rank| scope.spawn(move || join(address, rank, size))).collect();
        let mut root = Tcp::host(listener, size, JobKey::of(b"7"), &deadline()).unwrap();
        root.continue_without_lost(b"the run".to_vec()).unwrap();
        (root, joining.into_iter().map(|thread| thread.join().unwrap()).collect(), address.clone())
    })
}

fn join(address: &str, rank: usize, size: usize) -> Tcp {
    Tcp::join(address, rank, size, JobKey::of(b"7"), &deadline()).unwrap()
}

/// A process in the place of a lost rank, once it is let in.
fn come_back(address: &str, rank: usize, size: usize, statement: &[u8]) -> Tcp {
    let mut rank = join(address, rank, size);
    rank.rejoin(statement, &deadline()).unwrap();
    rank
}

/// A gather and a broadcast of the root and these others; whose frames came.
fn round(root: &mut Tcp, others: &mut [Tcp], word: &[u8], wait: &Deadline) -> Vec<usize> {
    let everyone = vec![true; root.size()];
    let mut frames = Frames::default();
    for other in others.iter_mut() {
        other.gather(&everyone, b"here", &mut Frames::default(), &deadline()).unwrap();
    }
    root.gather(&everyone, b"root", &mut frames, wait).unwrap();
    tell(root, others, word);
    (0..frames.len()).filter(|&rank| !frames.frame(rank).is_empty()).collect()
}

fn tell(root: &mut Tcp, others: &mut [Tcp], word: &[u8]) {
    root.broadcast(&mut word.to_vec(), &deadline()).unwrap();
    for other in others {
        let mut heard = Vec::new();
        other.broadcast(&mut heard, &deadline()).unwrap();
        assert_eq!(heard, word, "rank {}", other.rank());
    }
}

/// Waits until somebody asks to come back.
fn who_asks(root: &mut Tcp) -> Attendance {
    let begun = Instant::now();
    loop {
        let attendance = root.attendance();
        if !attendance.back.is_empty() {
            return attendance;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "nobody came back");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_rank_that_dies_is_named_and_its_successor_takes_its_place() {
    let (mut root, mut others, address) = group(4);
    assert_eq!(round(&mut root, &mut others, b"a", &deadline()), [0, 1, 2, 3]);
    drop(others.remove(1));
    assert_eq!(round(&mut root, &mut others, b"b", &deadline()), [0, 1, 3], "the others go on");
    let Attendance { left, back } = root.attendance();
    assert!(matches!(&left[..], [(2, Error::Lost { rank: 2, .. })]) && back.is_empty(), "{left:?}");

    std::thread::scope(|scope| {
        let second_life = scope.spawn(|| {
            let mut rank = join(&address, 2, 4);
            assert_eq!((rank.notice().as_deref(), rank.notice()), (Some(&b"the run"[..]), None));
            rank.rejoin(b"my new port", &deadline()).unwrap();
            rank
        });
        let Attendance { left, back } = who_asks(&mut root);
        assert!(left.is_empty(), "it had been named before: {left:?}");
        assert_eq!(back, [(2, b"my new port".to_vec())]);
        root.admit(2, Ok(()));
        others.push(second_life.join().unwrap());
    });
    tell(&mut root, &mut others, b"c");
    assert_eq!(round(&mut root, &mut others, b"d", &deadline()), [0, 1, 2, 3]);
    assert!(root.attendance().left.is_empty());
}

#[test]
fn a_successor_that_comes_before_the_loss_was_seen_takes_its_place_too() {
    let (mut root, mut others, address) = group(2);
    assert_eq!(round(&mut root, &mut others, b"a", &deadline()), [0, 1]);
    // Its window was under way when it died.
    others[0].gather(&[true, true], b"last", &mut Frames::default(), &deadline()).unwrap();
    drop(others.remove(0));
    std::thread::scope(|scope| {
        let second_life = scope.spawn(|| come_back(&address, 1, 2, b"again"));
        let Attendance { left, back } = who_asks(&mut root);
        assert!(matches!(&left[..], [(1, Error::Lost { .. })]), "{left:?}");
        assert_eq!(back.len(), 1);
        root.admit(1, Ok(()));
        others.push(second_life.join().unwrap());
    });
    assert_eq!(round(&mut root, &mut others, b"b", &deadline()), [0, 1]);
}

#[test]
fn a_rank_that_hangs_is_left_out_by_name_and_told_so_when_it_wakes() {
    let (mut root, mut others, _) = group(3);
    assert_eq!(round(&mut root, &mut others, b"a", &deadline()), [0, 1, 2]);
    let mut hung = others.remove(0);
    assert_eq!(round(&mut root, &mut others, b"b", &short()), [0, 2]);
    let Attendance { left, .. } = root.attendance();
    assert!(matches!(&left[..], [(1, Error::Late { missing, .. })] if missing == &[1]), "{left:?}");
    let everyone = [true; 3];
    let gathered = hung.gather(&everyone, b"here", &mut Frames::default(), &deadline());
    let told = gathered.and_then(|()| hung.broadcast(&mut Vec::new(), &deadline())).unwrap_err();
    assert!(matches!(&told, Error::Dismissed { reason } if reason.contains("rank(s) 1")), "{told}");
    assert_eq!(round(&mut root, &mut others, b"c", &deadline()), [0, 2]);
}

#[test]
fn a_rank_that_ends_with_an_error_leaves_and_the_reason_is_known() {
    let (mut root, mut others, _) = group(3);
    assert_eq!(round(&mut root, &mut others, b"a", &deadline()), [0, 1, 2]);
    others[0].abort("the disk is full");
    let _ended = others.remove(0);
    assert_eq!(round(&mut root, &mut others, b"b", &deadline()), [0, 2]);
    let left = root.attendance().left;
    assert!(matches!(&left[..], [(1, Error::Aborted { reason, .. })] if reason == "the disk is full"), "{left:?}");
}

#[test]
fn who_is_turned_away_hears_why_and_the_place_stays_free() {
    let (mut root, mut others, address) = group(2);
    drop(others.remove(0));
    for verdict in [Err("its host is b, and was a".to_owned()), Ok(())] {
        let accepted = verdict.is_ok();
        let result = std::thread::scope(|scope| {
            let asking = scope.spawn(|| join(&address, 1, 2).rejoin(b"x", &deadline()));
            who_asks(&mut root);
            root.admit(1, verdict);
            asking.join().unwrap()
        });
        assert_eq!(result.is_ok(), accepted, "{result:?}");
        let refusal = result.err().map(|error| error.to_string());
        assert!(refusal.is_none_or(|text| text.contains("its host is b")));
    }
}

#[test]
fn a_second_process_of_a_rank_that_lives_does_not_get_its_place() {
    let (mut root, mut others, address) = group(2);
    let waiting = Tcp::join(&address, 1, 2, JobKey::of(b"7"), &Deadline::new(Duration::from_millis(700), None));
    let error = waiting.unwrap_err();
    assert!(error.to_string().contains("never answered"), "{error}");
    let Attendance { left, back } = root.attendance();
    assert!(left.is_empty() && back.is_empty(), "{left:?} {back:?}");
    assert_eq!(round(&mut root, &mut others, b"a", &deadline()), [0, 1]);
}

#[test]
fn foreign_connections_at_the_door_delay_nobody() {
    let (mut root, mut others, address) = group(2);
    let foreign: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(&address).unwrap()).collect();
    assert_eq!(round(&mut root, &mut others, b"a", &deadline()), [0, 1]);
    drop(others.remove(0));
    std::thread::scope(|scope| {
        scope.spawn(|| come_back(&address, 1, 2, b"x"));
        assert_eq!(who_asks(&mut root).back.len(), 1);
        root.admit(1, Ok(()));
    });
    drop(foreign);
}

#[test]
fn of_two_processes_of_a_lost_rank_one_gets_the_place_and_keeps_it() {
    let (mut root, mut others, address) = group(2);
    drop(others.remove(0));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| come_back(&address, 1, 2, b"first"));
        let back = who_asks(&mut root).back;
        // A second one comes while the first waits for its answer, and after it has it.
        let early = scope.spawn(|| Tcp::join(&address, 1, 2, JobKey::of(b"7"), &short()).unwrap_err());
        assert!(early.join().unwrap().to_string().contains("never answered"));
        assert!(root.admit(back[0].0, Ok(())));
        others.push(first.join().unwrap());
        let late = scope.spawn(|| Tcp::join(&address, 1, 2, JobKey::of(b"7"), &short()).unwrap_err());
        assert!(late.join().unwrap().to_string().contains("never answered"));
    });
    tell(&mut root, &mut others, b"a");
    let Attendance { left, back } = root.attendance();
    assert!(left.is_empty() && back.is_empty(), "{left:?} {back:?}");
    assert_eq!(round(&mut root, &mut others, b"b", &deadline()), [0, 1]);
}

#[test]
fn a_rank_comes_back_again_and_again() {
    let (mut root, mut others, address) = group(2);
    for life in 0..3u8 {
        drop(others.remove(0));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| come_back(&address, 1, 2, &[life]));
            assert_eq!(who_asks(&mut root).back, [(1, vec![life])]);
            assert!(root.admit(1, Ok(())));
            others.push(next.join().unwrap());
        });
        tell(&mut root, &mut others, &[life]);
        assert_eq!(round(&mut root, &mut others, b"x", &deadline()), [0, 1]);
    }
}

#[test]
fn the_next_group_at_the_same_address_is_not_disturbed_by_the_last() {
    let (mut root, mut others, address) = group(2);
    root.end_admission();
    // The last group still goes on without its lost rank, and the next one meets.
    drop(others.remove(0));
    let listener = bind(address.parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let rank = scope.spawn(|| join(&address, 1, 2));
        let next = Tcp::host(listener, 2, JobKey::of(b"7"), &deadline()).unwrap();
        assert_eq!((next.size(), rank.join().unwrap().notice()), (2, None));
    });
    assert_eq!(round(&mut root, &mut others, b"a", &deadline()), [0]);
    assert_eq!(root.attendance().left.len(), 1);
}

#[test]
fn what_ranks_are_told_is_not_printed() {
    let (root, _others, _) = group(2);
    let printed = format!("{root:?}");
    let told = format!("{:?}", b"the run");
    assert!(printed.contains("Secret(..)") && !printed.contains(&told[1..told.len() - 1]), "{printed}");
}

//! A living rank whose connection breaks comes back by itself, whoever saw the end of the old one.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use probe_sync_collective::proxy::Proxy;
use probe_sync_collective::{
    Admission, Attendance, Collective as _, Deadline, Error, FanOut, FaultTolerance, Frames, JobKey, Tcp, TcpOptions,
    bind,
};

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(60), None)
}

/// The root and the others, of which rank 1 goes through the proxy.
fn group(size: usize, fan_out: FanOut) -> (Tcp, Vec<Tcp>, Proxy) {
    // A socket within the host would not go through the proxy.
    let options = TcpOptions { fan_out, local: false, ..TcpOptions::default() };
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = Proxy::to(address);
    let (root, others) = std::thread::scope(|scope| {
        let way = |rank| vec![if rank == 1 { proxy.address } else { address }.to_string()];
        let join = move |rank, way: Vec<String>| {
            Tcp::join_any(&way, rank, size, JobKey::of(b"7"), options, &deadline()).unwrap()
        };
        let joining = (1..size).map(|rank| (rank, way(rank)));
        let joining: Vec<_> = joining.map(|(rank, way)| scope.spawn(move || join(rank, way))).collect();
        let mut root = Tcp::host_with(listener, size, JobKey::of(b"7"), options, &deadline()).unwrap();
        root.continue_without_lost(b"the run".to_vec()).unwrap();
        (root, joining.into_iter().map(|thread| thread.join().unwrap()).collect())
    });
    (root, others, proxy)
}

/// A gather and a broadcast of the root and these others; whose frames came.
fn round(root: &mut Tcp, others: &mut [Tcp], wait: &Deadline) -> Vec<usize> {
    let everyone = vec![true; root.size()];
    let mut frames = Frames::default();
    std::thread::scope(|scope| {
        for other in others {
            let everyone = &everyone;
            scope.spawn(move || {
                other.gather(everyone, b"here", &mut Frames::default(), &deadline()).unwrap();
                other.broadcast(&mut Vec::new(), &deadline()).unwrap();
            });
        }
        root.gather(&everyone, b"root", &mut frames, wait).unwrap();
        root.broadcast(&mut b"word".to_vec(), wait).unwrap();
    });
    (0..frames.len()).filter(|&rank| !frames.frame(rank).is_empty()).collect()
}

/// The rank connects anew and states what it has to; the root takes it in. What the root knew of
/// who had left.
fn back_in(root: &mut Tcp, rank: &mut Tcp) -> Vec<(usize, Error)> {
    std::thread::scope(|scope| {
        let number = rank.rank();
        let coming = scope.spawn(move || {
            rank.reconnect(&deadline()).unwrap();
            assert_eq!(rank.notice().as_deref(), Some(&b"the run"[..]));
            rank.rejoin(b"here I am", &deadline()).unwrap();
        });
        let (begun, mut gone) = (Instant::now(), Vec::new());
        loop {
            let Attendance { left, back } = root.attendance();
            gone.extend(left);
            if let Some((asking, said)) = back.into_iter().next() {
                assert_eq!((asking, said.as_slice()), (number, &b"here I am"[..]));
                assert!(root.admit(asking, Ok(())));
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not come back");
            std::thread::sleep(Duration::from_millis(5));
        }
        coming.join().unwrap();
        gone
    })
}

/// A broken path: rank 1 comes back with the process that it is, as often as that happens.
fn check_cut(fan_out: FanOut) {
    let (mut root, mut others, proxy) = group(4, fan_out);
    assert_eq!(round(&mut root, &mut others, &deadline()), [0, 1, 2, 3], "{fan_out:?}");
    for _ in 0..2 {
        proxy.cut();
        let mut rank = others.remove(0);
        assert_eq!(round(&mut root, &mut others, &deadline()), [0, 2, 3], "{fan_out:?}: the others go on");
        let lost = rank.broadcast(&mut Vec::new(), &deadline()).unwrap_err();
        assert!(matches!(lost, Error::Lost { rank: 0, .. }), "{lost}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                proxy.open();
            });
            back_in(&mut root, &mut rank);
        });
        root.broadcast(&mut b"a".to_vec(), &deadline()).unwrap();
        rank.broadcast(&mut Vec::new(), &deadline()).unwrap();
        others.iter_mut().for_each(|other| other.broadcast(&mut Vec::new(), &deadline()).unwrap());
        others.insert(0, rank);
        assert_eq!(round(&mut root, &mut others, &deadline()), [0, 1, 2, 3], "{fan_out:?}: all of them");
    }
}

#[test]
fn a_rank_whose_connection_was_cut_comes_back_by_itself() {
    check_cut(FanOut::Star);
}

#[test]
fn a_rank_of_a_tree_whose_connection_was_cut_comes_back_by_itself() {
    check_cut(FanOut::Tree(2));
}

#[test]
fn a_rank_whose_connection_a_nat_forgot_has_its_place_at_once() {
    let (mut root, mut others, proxy) = group(3, FanOut::Star);
    assert_eq!(round(&mut root, &mut others, &deadline()), [0, 1, 2]);
    proxy.forget();
    assert!(others[0].root_is_alive(), "only the connection is gone");
    // The root believes in the old connection.
    let mut rank = others.remove(0);
    let left = back_in(&mut root, &mut rank);
    assert!(
        matches!(&left[..], [(1, Error::Lost { reason, .. })] if reason == "its connection broke"),
        "its process is the same: {left:?}"
    );
    others.insert(0, rank);
    assert_eq!(round(&mut root, &mut others, &deadline()), [0, 1, 2]);
    assert!(root.attendance().left.is_empty());
}

#[test]
fn a_rank_gives_up_when_its_time_is_over_and_says_who_answered_what() {
    let (root, mut others, proxy) = group(2, FanOut::Star);
    drop(root);
    assert!(!others[0].root_is_alive());
    let limit = Deadline::new(Duration::from_millis(300), None);
    let error = others[0].reconnect(&limit).unwrap_err();
    assert!(matches!(&error, Error::Lost { rank: 0, .. }) && error.to_string().contains("rank 0: "), "{error}");
    // Where nothing can be tried any more nothing is changed.
    proxy.cut();
    assert!(others[0].reconnect(&limit).is_err());
}

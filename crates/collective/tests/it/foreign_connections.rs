//! What comes to an open port, and what happens when a peer goes away.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use probe_sync_collective::{Collective as _, Deadline, Error, Frames, JobKey, Tcp, bind};

use crate::backends::tcp_group;

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(60), None)
}

fn short() -> Deadline {
    Deadline::new(Duration::from_millis(300), None)
}

/// A host waits for rank 1 of 2 while `visit` does something to its port; then the real rank 1 joins.
fn check_undisturbed(visit: impl FnOnce(&str)) {
    let listener = bind(ANY).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| Tcp::host(listener, 2, JobKey(7), &deadline()));
        visit(&address);
        let mut joined = Tcp::join(&address, 1, 2, JobKey(7), &deadline()).unwrap();
        let mut host = host.join().unwrap().unwrap();
        assert_eq!(host.local_ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert_eq!(joined.local_ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        host.broadcast(&mut b"hello".to_vec(), &deadline()).unwrap();
        let mut buffer = Vec::new();
        joined.broadcast(&mut buffer, &deadline()).unwrap();
        assert_eq!(buffer, b"hello");
    });
}

#[test]
fn foreign_connections_do_not_disturb_the_rendezvous() {
    check_undisturbed(|address| drop(TcpStream::connect(address).unwrap()));
    check_undisturbed(|address| TcpStream::connect(address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap());
    check_undisturbed(|address| TcpStream::connect(address).unwrap().write_all(&[0; 100_000]).unwrap_or(()));
    // Half a greeting, held open; many silent connections, held open.
    let mut held = Vec::new();
    check_undisturbed(|address| {
        held.push(TcpStream::connect(address).unwrap());
        held[0].write_all(b"prbsync").unwrap();
    });
    check_undisturbed(|address| held.extend((0..200).map(|_| TcpStream::connect(address).unwrap())));
}

#[test]
fn wrong_ranks_are_refused_with_the_reason() {
    let refused = |address: &str, rank, size, job, part: &str| {
        let Err(Error::Setup { reason, .. }) = Tcp::join(address, rank, size, JobKey(job), &deadline()) else {
            panic!("rank {rank} of {size} was let in")
        };
        assert!(reason.contains(part), "{reason}");
    };
    check_undisturbed(|address| {
        refused(address, 1, 2, 8, "another job");
        refused(address, 1, 3, 7, "number of ranks");
        refused(address, 0, 2, 7, "ranks that join");
        refused(address, 2, 2, 7, "ranks that join");
    });
    let listener = bind(ANY).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| Tcp::host(listener, 3, JobKey(7), &deadline()).unwrap());
        let first = Tcp::join(&address, 1, 3, JobKey(7), &deadline()).unwrap();
        refused(&address, 1, 3, 7, "joined already");
        let second = Tcp::join(&address, 2, 3, JobKey(7), &deadline()).unwrap();
        assert_eq!((host.join().unwrap().size(), first.rank(), second.rank()), (3, 1, 2));
    });
}

#[test]
fn another_program_at_the_address_is_recognised() {
    let listener = bind(ANY).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 32]).unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        });
        let error = Tcp::join(&address, 1, 2, JobKey(7), &deadline()).unwrap_err();
        assert!(error.to_string().contains("another program answers"), "{error}");
    });
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let error = Tcp::host(bind(ANY).unwrap(), 3, JobKey(7), &short()).unwrap_err();
    assert!(matches!(&error, Error::Late { missing, .. } if missing == &[1, 2]), "{error}");
    let free = bind(ANY).unwrap().local_addr().unwrap().to_string();
    let error = Tcp::join(&free, 1, 2, JobKey(7), &short()).unwrap_err();
    assert!(error.to_string().contains(&free), "{error}");
}

#[test]
fn a_taken_port_is_explained() {
    let taken = bind(ANY).unwrap();
    let address = taken.local_addr().unwrap();
    let text = bind(address).unwrap_err().to_string();
    assert!(text.contains(&address.to_string()) && text.contains("choose another port"), "{text}");
}

#[test]
fn a_rank_whose_process_ends_is_lost_by_name() {
    let mut group = tcp_group(4);
    drop(group.remove(2));
    let root = &mut group[0];
    let error = root.gather(&[true; 4], b"", &mut Frames::default(), &deadline()).unwrap_err();
    assert!(matches!(error, Error::Lost { rank: 2, .. }), "{error}");

    let mut group = tcp_group(4);
    drop(group.remove(3));
    let error = group[0].broadcast(&mut b"decision".to_vec(), &deadline()).unwrap_err();
    assert!(matches!(error, Error::Lost { rank: 3, .. }), "{error}");

    let mut group = tcp_group(2);
    drop(group.remove(0));
    let error = group[0].broadcast(&mut Vec::new(), &deadline()).unwrap_err();
    assert!(matches!(error, Error::Lost { rank: 0, .. }), "{error}");
}

#[test]
fn ranks_that_run_different_programs_are_found_out() {
    let mut group = tcp_group(2);
    let mut other = group.pop().unwrap();
    other.gather(&[true, false], b"", &mut Frames::default(), &deadline()).unwrap();
    other.gather(&[true, true], b"one too many", &mut Frames::default(), &deadline()).unwrap();
    let error = group[0].gather(&[true, true], b"", &mut Frames::default(), &deadline()).unwrap_err();
    assert!(matches!(error, Error::Protocol { rank: 1, .. }), "{error}");
}

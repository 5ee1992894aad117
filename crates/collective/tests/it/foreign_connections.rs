//! What comes to an open port, and what happens when a peer goes away.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use probe_sync_collective::{
    Collective as _, Deadline, Error, Frames, JobKey, Meeting, Tcp, UniqueId, bind, bind_everywhere,
};
use socket2::{Domain, Socket, Type};

use crate::backends::{NOWHERE, tcp_group};

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(60), None)
}

fn short() -> Deadline {
    Deadline::new(Duration::from_millis(300), None)
}

fn job() -> JobKey {
    JobKey::of(b"7")
}

/// What rank 1 of 2 says first, as anybody can read it in the source.
fn greeting(version: u32) -> Vec<u8> {
    let mut bytes = b"prbsync\x01".to_vec();
    bytes.extend([version, 1, 2, 0].iter().flat_map(|number| number.to_le_bytes()));
    bytes.extend([0; 28]);
    bytes.extend([9; 32]);
    bytes
}

/// A host waits for rank 1 of 2 while `visit` does something to its port; then the real rank 1
/// joins.
fn check_undisturbed(visit: impl FnOnce(&str)) {
    let listener = bind(ANY).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| Tcp::host(listener, 2, job(), &deadline()));
        visit(&address);
        let mut joined = Tcp::join(&address, 1, 2, job(), &deadline()).unwrap();
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
fn who_does_not_have_the_key_takes_no_ranks_place() {
    let mut held = Vec::new();
    // A right greeting and nothing else; a guessed proof, and what comes of it.
    check_undisturbed(|address| {
        held.push(TcpStream::connect(address).unwrap());
        held[0].write_all(&greeting(10)).unwrap();
        let mut guessing = TcpStream::connect(address).unwrap();
        guessing.write_all(&greeting(10)).unwrap();
        guessing.read_exact(&mut [0; 48]).unwrap();
        guessing.write_all(&[0; 32]).unwrap();
        let mut answer = [0; 48];
        guessing.read_exact(&mut answer).unwrap();
        assert_eq!(
            answer[12..],
            [[2, 0, 0, 0].as_slice(), &[0; 32]].concat(),
            "refused, and nothing of the key is told"
        );
    });
}

#[test]
fn an_overheard_proof_is_worth_nothing_later() {
    let listener = bind(ANY).unwrap();
    let (root, between) = (listener.local_addr().unwrap(), TcpListener::bind(ANY).unwrap());
    let address = between.local_addr().unwrap().to_string();
    let overheard = std::thread::scope(|scope| {
        let host = scope.spawn(|| Tcp::host(listener, 2, job(), &deadline()).unwrap());
        let joined = scope.spawn(|| Tcp::join(&address, 1, 2, job(), &deadline()).unwrap());
        let (mut rank, mut root) = (between.accept().unwrap().0, TcpStream::connect(root).unwrap());
        let mut said = vec![0; 116];
        let mut answer = [0; 48];
        for part in [0..84, 84..116] {
            rank.read_exact(&mut said[part.clone()]).unwrap();
            root.write_all(&said[part]).unwrap();
            root.read_exact(&mut answer).unwrap();
            rank.write_all(&answer).unwrap();
        }
        host.join().unwrap();
        joined.join().unwrap();
        said
    });
    check_undisturbed(|address| {
        let mut replay = TcpStream::connect(address).unwrap();
        replay.write_all(&overheard).unwrap();
        let mut answers = Vec::new();
        replay.read_to_end(&mut answers).unwrap_or(0);
        assert_eq!(answers[48 + 12], 2, "another root has drawn other bytes");
    });
}

#[test]
fn a_root_without_the_key_is_not_believed() {
    let listener = TcpListener::bind(ANY).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut rank, _) = listener.accept().unwrap();
            let mut welcome = b"prbsync\x01".to_vec();
            welcome.extend([10u32, 0].iter().flat_map(|number| number.to_le_bytes()));
            welcome.extend([3; 32]);
            for said in [84, 32] {
                rank.read_exact(&mut vec![0; said]).unwrap();
                rank.write_all(&welcome).unwrap();
            }
        });
        let error = Tcp::join(&address, 1, 2, job(), &deadline()).unwrap_err();
        assert!(error.to_string().contains("does not have this job's key"), "{error}");
    });
}

#[test]
fn a_flood_from_one_address_delays_nobody_else() {
    let mut held = Vec::new();
    // Connections that are waited for one after the other take longer than the rendezvous may.
    check_undisturbed(|address| {
        let target: SocketAddr = address.parse().unwrap();
        for _ in 0..300 {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
            socket.connect(&target.into()).unwrap();
            held.push(socket);
        }
    });
}

#[test]
fn a_rank_of_an_older_version_is_told_so() {
    check_undisturbed(|address| {
        let mut older = TcpStream::connect(address).unwrap();
        older.write_all(&greeting(1)[..32]).unwrap();
        let mut answer = [0; 16];
        older.read_exact(&mut answer).unwrap();
        assert_eq!(answer[12..], [1, 0, 0, 0]);
    });
}

#[test]
fn an_interrupt_ends_the_rendezvous_of_both_sides() {
    let silent = TcpListener::bind(ANY).unwrap();
    let silent = (silent.local_addr().unwrap().to_string(), silent);
    let silent_address = &silent.0;
    let waits: [&(dyn Fn(&Deadline) -> Error + Sync); 3] = [
        &|deadline| Tcp::host(bind(ANY).unwrap(), 2, job(), deadline).unwrap_err(),
        &|deadline| Tcp::join(NOWHERE, 1, 2, job(), deadline).unwrap_err(),
        &|deadline| Tcp::join(silent_address, 1, 2, job(), deadline).unwrap_err(),
    ];
    for wait in waits {
        let flag = Arc::new(AtomicBool::new(false));
        let deadline = Deadline::new(Duration::from_secs(60), Some(Arc::clone(&flag)));
        let error = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(&deadline));
            std::thread::sleep(Duration::from_millis(200));
            flag.store(true, Ordering::Relaxed);
            waiting.join().unwrap()
        });
        assert!(matches!(error, Error::Late { interrupted: true, .. }), "{error}");
    }
}

#[test]
fn the_root_listens_on_all_addresses() {
    let listener = bind_everywhere(0).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| Tcp::host(listener, 3, job(), &deadline()).unwrap());
        let first = Tcp::join(&format!("127.0.0.1:{port}"), 1, 3, job(), &deadline()).unwrap();
        let six = TcpStream::connect(("::1", port)).is_ok();
        let address = if six { "[::1]" } else { "127.0.1.1" };
        let second = Tcp::join(&format!("{address}:{port}"), 2, 3, job(), &deadline()).unwrap();
        assert_eq!(first.local_ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert_eq!(host.join().unwrap().local_ip(), first.local_ip(), "the first rank's way in");
        drop(second);
    });
}

#[test]
fn wrong_ranks_are_refused_with_the_reason() {
    let refused = |address: &str, rank, size, job: &[u8], part: &str| {
        let Err(Error::Setup { reason, .. }) = Tcp::join(address, rank, size, JobKey::of(job), &deadline()) else {
            panic!("rank {rank} of {size} was let in")
        };
        assert!(reason.contains(part), "{reason}");
    };
    check_undisturbed(|address| {
        refused(address, 1, 2, b"8", "another job");
        refused(address, 1, 3, b"7", "number of ranks");
        refused(address, 0, 2, b"7", "can join");
        refused(address, 2, 2, b"7", "can join");
    });
    let listener = bind(ANY).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| Tcp::host(listener, 3, job(), &deadline()).unwrap());
        let first = Tcp::join(&address, 1, 3, job(), &deadline()).unwrap();
        refused(&address, 1, 3, b"7", "already joined");
        let second = Tcp::join(&address, 2, 3, job(), &deadline()).unwrap();
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
            stream.read_exact(&mut [0; 84]).unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        });
        let error = Tcp::join(&address, 1, 2, job(), &deadline()).unwrap_err();
        assert!(error.to_string().contains("another program answers"), "{error}");
    });
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let error = Tcp::host(bind(ANY).unwrap(), 3, job(), &short()).unwrap_err();
    assert!(matches!(&error, Error::Late { missing, .. } if missing == &[1, 2]), "{error}");
    let error = Tcp::join(NOWHERE, 1, 2, job(), &short()).unwrap_err();
    assert!(error.to_string().contains(NOWHERE), "{error}");
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

#[test]
fn ranks_meet_by_an_id_whatever_else_has_its_addresses() {
    // The first address leads nowhere, the second to a program of another kind on the same port,
    // the third to the root.
    let listening = |meeting: &Meeting| {
        let port = u16::from_le_bytes([meeting.id().as_bytes()[6], meeting.id().as_bytes()[7]]);
        TcpListener::bind(("127.0.0.3", port)).ok()
    };
    let addresses = [[127, 0, 0, 2], [127, 0, 0, 3], [127, 0, 0, 1]].map(IpAddr::from);
    // All are loopback, so the root listens at the first alone; the others are to be tried after
    // it.
    let meeting = Meeting::open(&addresses[2..]).unwrap();
    let mut bytes = *meeting.id().as_bytes();
    bytes[5] = 3;
    for (place, address) in addresses.iter().enumerate() {
        let IpAddr::V4(four) = address else { unreachable!("they are") };
        bytes[40 + 16 * place..][..16].copy_from_slice(&four.to_ipv6_mapped().octets());
    }
    let other = listening(&meeting);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let Some((mut stream, _)) = other.as_ref().and_then(|other| other.accept().ok()) else { return };
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        });
        let id = UniqueId::from_bytes(&bytes).unwrap();
        let rank = scope.spawn(move || id.join(1, 2, &deadline()).unwrap());
        let mut root = meeting.host(2, &deadline()).unwrap();
        let mut rank = rank.join().unwrap();
        root.broadcast(&mut b"hello".to_vec(), &deadline()).unwrap();
        let mut heard = Vec::new();
        rank.broadcast(&mut heard, &deadline()).unwrap();
        assert_eq!(heard, b"hello");
    });
    let text = Meeting::open(&[]).unwrap_err().to_string();
    assert!(text.contains("no address"), "{text}");
}

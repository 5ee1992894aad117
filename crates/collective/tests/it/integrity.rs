//! Frames that somebody between the ranks has changed.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use probe_sync_collective::{Collective as _, Deadline, Error, FaultTolerance, Frames, JobKey, Tcp, bind};

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(60), None)
}

/// Passes bytes on until one side ends; one bit of the byte with this number is turned.
fn pass_on(mut from: TcpStream, mut to: TcpStream, turned: Option<usize>) {
    let (mut bytes, mut passed) = ([0; 4096], 0);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if let Some(place) = turned.and_then(|turned| turned.checked_sub(passed)).filter(|place| *place < count) {
            bytes[place] ^= 4;
        }
        passed += count;
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// Three ranks of which rank 1 reaches the root through somebody who turns a bit: of what the rank
/// says, or of what it is told.
fn group(of_rank: Option<usize>, of_root: Option<usize>) -> Vec<Tcp> {
    let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let root = listener.local_addr().unwrap();
    let between = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = between.local_addr().unwrap();
    std::thread::spawn(move || {
        let (rank, root) = (between.accept().unwrap().0, TcpStream::connect(root).unwrap());
        let (of, to) = (rank.try_clone().unwrap(), root.try_clone().unwrap());
        std::thread::spawn(move || pass_on(of, to, of_rank));
        pass_on(root, rank, of_root);
    });
    std::thread::scope(|scope| {
        let join = |rank, address| Tcp::join(&format!("{address}"), rank, 3, JobKey::of(b"7"), &deadline()).unwrap();
        let joining = [scope.spawn(move || join(1, address)), scope.spawn(move || join(2, root))];
        let mut group = vec![Tcp::host(listener, 3, JobKey::of(b"7"), &deadline()).unwrap()];
        group.extend(joining.map(|thread| thread.join().unwrap()));
        group
    })
}

/// The bytes of the two greetings before the first frame.
const SAID_BY_RANK: usize = 84 + 32;
const SAID_BY_ROOT: usize = 48 + 48;

#[test]
fn a_changed_frame_names_its_rank_and_the_others_go_on() {
    // In the length, the kind, the sequence, the hash, the tag, the payload.
    for place in [2, 5, 9, 30, 70, 85] {
        let mut group = group(Some(SAID_BY_RANK + place), None);
        let (mut two, mut one) = (group.pop().unwrap(), group.pop().unwrap());
        let root = &mut group[0];
        root.continue_without_lost(Vec::new()).unwrap();
        let (everyone, mut frames) = ([true; 3], Frames::default());
        one.gather(&everyone, b"a payload", &mut Frames::default(), &deadline()).unwrap();
        two.gather(&everyone, b"another", &mut Frames::default(), &deadline()).unwrap();
        root.gather(&everyone, b"root", &mut frames, &deadline()).unwrap();
        assert_eq!(frames.iter().collect::<Vec<_>>(), [&b"root"[..], b"", b"another"], "byte {place}");
        let left = root.attendance().left;
        assert!(
            matches!(&left[..], [(1, Error::Protocol { rank: 1, what, .. })] if what.contains("modified in transit")),
            "byte {place}: {left:?}"
        );
    }
}

#[test]
fn a_changed_broadcast_is_not_believed() {
    let mut group = group(None, Some(SAID_BY_ROOT + 83));
    group[0].broadcast(&mut b"decision".to_vec(), &deadline()).unwrap();
    let error = group[1].broadcast(&mut Vec::new(), &deadline()).unwrap_err();
    assert!(matches!(&error, Error::Protocol { rank: 0, what, .. } if what.contains("modified")), "{error}");
    let mut heard = Vec::new();
    group[2].broadcast(&mut heard, &deadline()).unwrap();
    assert_eq!(heard, b"decision");
}

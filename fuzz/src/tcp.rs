//! The TCP backend as its root: a peer greets properly and then sends arbitrary frames, or a foreign connection sends anything.
//!
//! Real sockets on loopback. The peer closes its side when its bytes are sent, so nobody waits for a deadline.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use probe_sync_collective::{Collective as _, Deadline, Frames, JobKey, Tcp, bind};

/// Rank 1 sends `data` where frames are due: the root gets a payload or an error, and never more than was sent.
pub fn frames(data: &[u8]) {
    let Some((listener, address)) = listener() else { return };
    std::thread::scope(|scope| {
        let root = scope.spawn(|| Tcp::host(listener, RANKS, job(), &deadline()));
        let Some(mut peer) = greeted(address) else { return };
        let Ok(Ok(mut root)) = root.join() else { return };
        // A peer that is refused in the middle of its bytes is no failure.
        let _ = peer.write_all(data).and_then(|()| peer.shutdown(Shutdown::Write));
        let mut frames = Frames::default();
        for _ in 0..MAX_ROUNDS {
            if root.gather(&[true; RANKS], b"own", &mut frames, &deadline()).is_err() {
                return;
            }
            let received: usize = frames.iter().map(<[u8]>::len).sum();
            assert!(received <= data.len() + b"own".len(), "{received} bytes of {}", data.len());
        }
    });
}

/// A foreign connection sends `data` to the open port; then the real rank 1 comes, and must be let in.
pub fn rendezvous(data: &[u8]) {
    let Some((listener, address)) = listener() else { return };
    std::thread::scope(|scope| {
        let root = scope.spawn(|| Tcp::host(listener, RANKS, job(), &deadline()));
        if let Ok(mut foreign) = TcpStream::connect(address) {
            let _ = foreign.write_all(data).and_then(|()| foreign.shutdown(Shutdown::Write));
        }
        let joined = Tcp::join(&address.to_string(), 1, RANKS, job(), &deadline());
        let root = root.join().expect("the root does not panic");
        match (root, joined) {
            (Ok(root), Ok(joined)) => assert_eq!((root.size(), joined.rank()), (RANKS, 1)),
            (root, joined) => panic!("a foreign connection kept rank 1 out: {:?}, {:?}", root.err(), joined.err()),
        }
    });
}

fn listener() -> Option<(TcpListener, SocketAddr)> {
    let listener = bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).ok()?;
    let address = listener.local_addr().ok()?;
    Some((listener, address))
}

/// The connection of a rank 1 that has been let in.
fn greeted(address: SocketAddr) -> Option<TcpStream> {
    let joined = Tcp::join(&address.to_string(), 1, RANKS, job(), &deadline()).ok()?;
    joined.into_streams().pop()
}

fn job() -> JobKey {
    JobKey::of(b"fuzz")
}

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(5), None)
}

const RANKS: usize = 2;
const MAX_ROUNDS: usize = 100;

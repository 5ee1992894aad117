//! The TCP backend as its root: a peer greets properly and then sends arbitrary frames, or a foreign connection sends anything.
//!
//! Real sockets on loopback. The peer closes its side when its bytes are sent, so nobody waits for a deadline.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use probe_sync_collective::{Collective as _, Deadline, Frames, JobKey, Tcp, bind};

/// Rank 1 sends `data` where frames are due: the root gets a payload or an error, and never more than was sent.
pub fn frames(data: &[u8]) {
    let Some((listener, address)) = listener() else { return };
    std::thread::scope(|scope| {
        let root = scope.spawn(|| Tcp::host(listener, RANKS, JOB, &deadline()));
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
    // A foreign connection with a right greeting IS rank 1, as far as anybody can tell.
    if greeting().is_some_and(|greeting| data.starts_with(greeting)) {
        return;
    }
    let Some((listener, address)) = listener() else { return };
    std::thread::scope(|scope| {
        let root = scope.spawn(|| Tcp::host(listener, RANKS, JOB, &deadline()));
        if let Ok(mut foreign) = TcpStream::connect(address) {
            let _ = foreign.write_all(data).and_then(|()| foreign.shutdown(Shutdown::Write));
        }
        let joined = Tcp::join(&address.to_string(), 1, RANKS, JOB, &deadline());
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

/// A connection to the root that has said what rank 1 says and heard the answer.
fn greeted(address: SocketAddr) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.write_all(greeting()?).ok()?;
    stream.read_exact(&mut [0; ANSWER]).ok()?;
    Some(stream)
}

/// What rank 1 says when it connects: overheard once, so that this file need not know the format.
fn greeting() -> Option<&'static [u8; GREETING]> {
    static OVERHEARD: OnceLock<Option<[u8; GREETING]>> = OnceLock::new();
    OVERHEARD
        .get_or_init(|| {
            let (listener, address) = listener()?;
            std::thread::scope(|scope| {
                let overheard = scope.spawn(move || {
                    let (mut stream, _) = listener.accept().ok()?;
                    let mut bytes = [0; GREETING];
                    stream.read_exact(&mut bytes).ok()?;
                    Some(bytes)
                });
                // Never answered; it gives up when the listener is gone.
                let _ = Tcp::join(&address.to_string(), 1, RANKS, JOB, &Deadline::new(OVERHEARING, None));
                overheard.join().ok()?
            })
        })
        .as_ref()
}

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(5), None)
}

const RANKS: usize = 2;
const JOB: JobKey = JobKey(7);
const GREETING: usize = 32;
const ANSWER: usize = 16;
const MAX_ROUNDS: usize = 100;
const OVERHEARING: Duration = Duration::from_millis(300);

//! A breakable TCP path between ranks for tests, which imitates the effects of a switch, a NAT or a
//! load balancer on connections without privileges.
//!
//! It is for tests only (feature `suite`), in this crate and in the command.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Listens on loopback and forwards every connection to one address.
#[derive(Debug)]
pub struct Proxy {
    /// Address on which it listens.
    pub address: SocketAddr,
    path: Arc<Mutex<Path>>,
}

#[derive(Debug)]
struct Path {
    /// True if new connections are forwarded; otherwise they are closed at once.
    open: bool,
    /// Connections before this one forward nothing, without notifying their ends.
    first_alive: usize,
    streams: Vec<TcpStream>,
    connections: usize,
}

impl Proxy {
    /// Creates a proxy to `target`.
    ///
    /// # Panics
    /// Panics if this machine has no free port on loopback.
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        let address = listener.local_addr().expect("bound");
        let path = Arc::new(Mutex::new(Path { open: true, first_alive: 0, streams: Vec::new(), connections: 0 }));
        let shared = Arc::clone(&path);
        std::thread::spawn(move || {
            // It ends with the test's process.
            for incoming in listener.incoming().flatten() {
                carry(&shared, incoming, target);
            }
        });
        Self { address, path }
    }

    /// Closes every connection; new ones are closed at once until [`Proxy::open`].
    pub fn cut(&self) {
        let mut path = lock(&self.path);
        path.open = false;
        for stream in path.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Forwards new connections again.
    pub fn open(&self) {
        lock(&self.path).open = true;
    }

    /// Silently drops the present connections, as a NAT does: neither end is notified, and nothing
    /// arrives. New ones are forwarded.
    pub fn forget(&self) {
        let mut path = lock(&self.path);
        path.first_alive = path.connections;
    }
}

fn carry(path: &Arc<Mutex<Path>>, incoming: TcpStream, target: SocketAddr) {
    let number = {
        let mut path = lock(path);
        if !path.open {
            return;
        }
        path.connections += 1;
        path.connections - 1
    };
    let Ok(onward) = TcpStream::connect_timeout(&target, Duration::from_secs(5)) else { return };
    let ends = [(&incoming, &onward), (&onward, &incoming)];
    for (from, to) in ends.map(|(from, to)| (from.try_clone(), to.try_clone())) {
        let (Ok(mut from), Ok(mut to), path) = (from, to, Arc::clone(path)) else { return };
        std::thread::spawn(move || {
            let mut bytes = [0; 1 << 16];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if number >= lock(&path).first_alive && to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            // What a forgotten connection's end does is not carried either.
            if number >= lock(&path).first_alive {
                let _ = to.shutdown(Shutdown::Write);
            }
        });
    }
    lock(path).streams.extend([incoming, onward]);
}

fn lock(path: &Mutex<Path>) -> std::sync::MutexGuard<'_, Path> {
    path.lock().unwrap_or_else(PoisonError::into_inner)
}

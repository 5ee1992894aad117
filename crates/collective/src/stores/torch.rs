//! The key-value store of torch, `torch.distributed.TCPStore`.
//!
//! It implements [`super::Store`] with its own client for the few requests it needs. Each request
//! has its own connection, so a store that starts late or returns is found. The protocol is that of
//! torch/csrc/distributed/c10d/{TCPStore.cpp, TCPStoreBackend.hpp}: all numbers are in the byte
//! order of the machine (little-endian here), and a request begins with one byte. A string or value
//! is its length as u64, followed by its bytes. The client's prefix `/` is part of a key.
//!
//! | request | then | answer |
//! |---|---|---|
//! | 0 validate | magic 0x3C85F7CE: u32 | none |
//! | 1 set | key, value | none |
//! | 3 get | key, which must be there | value |
//! | 5 check | number of keys: u64, keys | a byte: 0 when all are there |

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use super::kept::{Store, VALUE_MAX};
use crate::{Deadline, Error, Wait};

/// A torch TCPStore.
#[derive(Debug)]
pub struct TorchStore {
    address: String,
    key: String,
}

impl TorchStore {
    /// Creates a client of the store at `address` (`host:port`), with the key in it.
    pub fn new(address: String, key: String) -> Self {
        Self { address, key }
    }

    /// Connects like a client of the store.
    fn connect(&self, until: Instant) -> io::Result<Timed> {
        let mut failure = io::Error::other("the name has no address");
        for target in self.address.to_socket_addrs()?.take(ADDRESSES) {
            match TcpStream::connect_timeout(&target, left(until)?) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    let mut stream = Timed { stream, until };
                    let mut hello = vec![VALIDATE];
                    hello.extend_from_slice(&MAGIC.to_ne_bytes());
                    stream.write_all(&hello)?;
                    return Ok(stream);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn key(&self) -> Vec<u8> {
        text(format!("/{}", self.key).as_bytes())
    }

    fn set(&self, value: &[u8], until: Instant) -> io::Result<()> {
        let mut stream = self.connect(until)?;
        stream.write_all(&[&[SET], &self.key()[..], &text(value)].concat())?;
        // The store answers nothing to a set; to a check only when it has done it.
        if self.is_there(&mut stream)? { Ok(()) } else { Err(io::Error::other("the store did not keep it")) }
    }

    fn is_there(&self, stream: &mut Timed) -> io::Result<bool> {
        stream.write_all(&[&[CHECK], &1u64.to_ne_bytes()[..], &self.key()].concat())?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        Ok(answer == [READY])
    }

    fn get(&self, until: Instant) -> io::Result<Option<Vec<u8>>> {
        let mut stream = self.connect(until)?;
        if !self.is_there(&mut stream)? {
            return Ok(None);
        }
        stream.write_all(&[&[GET], &self.key()[..]].concat())?;
        let mut length = [0; 8];
        stream.read_exact(&mut length)?;
        let length = u64::from_ne_bytes(length);
        if length > VALUE_MAX as u64 {
            return Err(io::Error::other(format!("its value has {length} bytes")));
        }
        let mut value = vec![0; length as usize];
        stream.read_exact(&mut value)?;
        Ok(Some(value))
    }
}

impl Store for TorchStore {
    fn put(&mut self, value: &[u8], deadline: &Deadline) -> Result<(), Error> {
        let mut wait = Wait::begin("rendezvous", deadline);
        loop {
            let Err(error) = self.set(value, request_end(deadline)) else { return Ok(()) };
            let Some(slice) = wait.slice() else {
                let advice = "is it a torch.distributed.TCPStore, and is its host running?";
                return Err(Error::Setup {
                    what: format!("cannot write to {}", self.name()),
                    reason: format!("{error}; {advice}"),
                });
            };
            std::thread::sleep(slice);
        }
    }

    fn find(&mut self, deadline: &Deadline) -> Result<Option<Vec<u8>>, Error> {
        // A store that is not there yet has nothing yet.
        Ok(self.get(request_end(deadline)).unwrap_or_else(|error| {
            tracing::debug!("{}: {error}", self.name());
            None
        }))
    }

    fn name(&self) -> String {
        format!("the torch store at {}, key {}", self.address, self.key)
    }
}

/// A connection with a time limit for a whole request, however slowly its bytes arrive.
#[derive(Debug)]
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl io::Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.until)?))?;
        self.stream.read(bytes)
    }
}

impl io::Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.until)?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Returns when a request that begins now is given up.
fn request_end(deadline: &Deadline) -> Instant {
    deadline.at.min(Instant::now() + REQUEST_TIME)
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_ne_bytes()[..], bytes].concat()
}

const VALIDATE: u8 = 0;
const SET: u8 = 1;
const GET: u8 = 3;
const CHECK: u8 = 5;
const READY: u8 = 0;
const MAGIC: u32 = 0x3C85_F7CE;

/// Most addresses of its name that are tried.
const ADDRESSES: usize = 8;

/// Time limit of a request, from the connection to the answer's last byte.
const REQUEST_TIME: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_store_that_drips_has_the_time_of_one_request_and_not_that_of_each_byte() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound").to_string();
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let store = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("it asks");
            let mut answer = vec![READY];
            answer.extend_from_slice(&(VALUE_MAX as u64).to_ne_bytes());
            answer.resize(answer.len() + VALUE_MAX, b'x');
            // Each byte comes well within the time of a read; all of them take minutes.
            for byte in answer {
                if until.load(Ordering::Relaxed) || stream.write_all(&[byte]).is_err() {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            true
        });
        let mut torch = TorchStore::new(address, "key".to_owned());
        let found = torch.find(&Deadline::new(Duration::from_millis(500), None)).expect("nothing is wrong for good");
        over.store(true, Ordering::Relaxed);
        assert_eq!(found, None);
        assert!(!store.join().expect("no panic"), "the whole answer was waited for");
    }
}

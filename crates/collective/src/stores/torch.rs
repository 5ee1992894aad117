//! The key-value store of torch, `torch.distributed.TCPStore`.
//!
//! Place in the flow: [`super::Store`]; a client of its own for the few requests that are needed, each on a connection of its own, so that a store that comes
//! late or comes back is found. The protocol is that of torch/csrc/distributed/c10d/{TCPStore.cpp, TCPStoreBackend.hpp}: all numbers in the byte order of the machine
//! (little-endian here), a byte for the request; a text or a value is its length, u64, and its bytes. The client's prefix `/` is part of a key.
//!
//! | request | then | answer |
//! |---|---|---|
//! | 0 validate | magic 0x3C85F7CE: u32 | none |
//! | 1 set | key, value | none |
//! | 3 get | key, which must be there | value |
//! | 5 check | number of keys: u64, keys | a byte: 0 when all are there |
//!
//! What it does not do: wait in the store, delete, or count.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use super::kept::{Store, VALUE_MAX};
use crate::{Deadline, Error, Wait};

/// A store of torch's.
#[derive(Debug)]
pub struct TorchStore {
    address: String,
    key: String,
}

impl TorchStore {
    /// The store at `address` (`host:port`), and the key in it.
    pub fn new(address: String, key: String) -> Self {
        Self { address, key }
    }

    /// A connection that the store takes for a client's.
    fn connect(&self) -> io::Result<TcpStream> {
        let mut failure = io::Error::other("the name has no address");
        for target in self.address.to_socket_addrs()?.take(ADDRESSES) {
            match TcpStream::connect_timeout(&target, STEP_TIME) {
                Ok(mut stream) => {
                    stream.set_read_timeout(Some(STEP_TIME))?;
                    stream.set_write_timeout(Some(STEP_TIME))?;
                    stream.set_nodelay(true)?;
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

    fn set(&self, value: &[u8]) -> io::Result<()> {
        let mut stream = self.connect()?;
        stream.write_all(&[&[SET], &self.key()[..], &text(value)].concat())?;
        // The store answers nothing to a set; to a check only when it has done it.
        if self.is_there(&mut stream)? { Ok(()) } else { Err(io::Error::other("the store has not kept it")) }
    }

    fn is_there(&self, stream: &mut TcpStream) -> io::Result<bool> {
        stream.write_all(&[&[CHECK], &1u64.to_ne_bytes()[..], &self.key()].concat())?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        Ok(answer == [READY])
    }

    fn get(&self) -> io::Result<Option<Vec<u8>>> {
        let mut stream = self.connect()?;
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
            let Err(error) = self.set(value) else { return Ok(()) };
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

    fn find(&mut self, _: &Deadline) -> Result<Option<Vec<u8>>, Error> {
        // A store that is not there yet has nothing yet.
        Ok(self.get().unwrap_or_else(|error| {
            tracing::debug!("{}: {error}", self.name());
            None
        }))
    }

    fn name(&self) -> String {
        format!("the torch store at {}, key {}", self.address, self.key)
    }
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

/// Addresses of its name that are tried.
const ADDRESSES: usize = 8;

/// How long the store may take for each step.
const STEP_TIME: Duration = Duration::from_secs(2);

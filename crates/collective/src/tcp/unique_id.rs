//! A 128-byte id by which ranks find rank 0 and recognise each other, distributed by any means the
//! launcher has.
//!
//! Rank 0 opens a [`Meeting`], which listens from then on. The launcher brings its id to the other
//! ranks (a broadcast of MPI or torch, a key-value store, a file that only the job can read), and
//! they join with it. No address, free port or job name has to be agreed on in advance.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic `psId` |
//! | 4 | version |
//! | 5 | number of addresses, 1 to [`ADDRESSES_MAX`] |
//! | 6..8 | port, little-endian |
//! | 8..40 | what the job's key is made of, drawn by rank 0 |
//! | 40..120 | addresses, 16 bytes each; IPv4 ones are mapped into IPv6 |
//! | 120..128 | zero |
//!
//! Whoever has the id can take a rank's place: it is as secret as the job.
//!
//! Where nothing can carry an id, the ranks make it themselves: [`Meeting::at`] and
//! [`UniqueId::agreed`] take rank 0's addresses, a port and what all ranks know, as the job's name.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::str::FromStr;
use std::time::Duration;

use super::{EarlierRun, FileSender, JobKey, Tcp, TcpOptions, bind, bind_everywhere};
use crate::{Deadline, Error, Rank, random_bytes};

/// How ranks find rank 0, in 128 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct UniqueId([u8; UniqueId::BYTES]);

/// Rank 0 of a group that is about to meet; it listens.
#[derive(Debug)]
pub struct Meeting {
    listener: TcpListener,
    id: UniqueId,
}

impl Meeting {
    /// Listens at a port chosen by the system, and draws the key. `addresses` are those at which
    /// the other ranks can reach this machine; only the first five count, link-local IPv6 addresses
    /// never do, and if all are loopback, only loopback is listened on.
    ///
    /// # Errors
    /// [`Error::Setup`] if there is no address, or the system has no port or no random bytes.
    pub fn open(addresses: &[IpAddr]) -> Result<Self, Error> {
        let listener = listen(addresses, 0)?;
        let port = listener.local_addr().map_err(|error| unusable(error.to_string()))?.port();
        let id = UniqueId::reached_at(addresses, port, &random_bytes()?)?;
        Ok(Self { listener, id })
    }

    /// Listens where ranks that derive the id themselves look for it, at an agreed port: see
    /// [`UniqueId::agreed`].
    ///
    /// # Errors
    /// [`Error::Setup`] if there is no address, or the port is taken.
    pub fn at(addresses: &[IpAddr], port: u16, known: &[u8]) -> Result<Self, Error> {
        let id = UniqueId::agreed(addresses, port, known)?;
        Ok(Self { listener: listen(addresses, port)?, id })
    }

    /// Returns the id with which the other ranks join.
    pub fn id(&self) -> &UniqueId {
        &self.id
    }

    /// Requires ranks to have this key too: see [`UniqueId::keyed_by`].
    #[must_use]
    pub fn keyed_by(self, key: JobKey) -> Self {
        Self { id: self.id.keyed_by(key), ..self }
    }

    /// Works like [`Tcp::return_as_rank_0`], with this meeting's key. If that differs from the
    /// earlier run's, that run does not admit this rank.
    ///
    /// # Errors
    /// Errors of [`Tcp::return_as_rank_0`].
    pub fn return_as_rank_0(
        &self,
        earlier: &EarlierRun,
        size: usize,
        deadline: &Deadline,
    ) -> Result<Option<Tcp>, Error> {
        Tcp::return_as_rank_0(earlier, size, self.id.job_key(), TcpOptions::from_environment()?, deadline)
    }

    /// Waits until the `size - 1` others have joined.
    ///
    /// # Errors
    /// Errors of [`Tcp::host`].
    pub fn host(self, size: usize, deadline: &Deadline) -> Result<Tcp, Error> {
        self.host_after(None, size, deadline)
    }

    /// Works like [`Meeting::host`], beginning after this time with the ranks that have joined
    /// ([`TcpOptions::begin_after`]).
    ///
    /// # Errors
    /// Errors of [`Tcp::host`].
    pub fn host_after(self, begin_after: Option<Duration>, size: usize, deadline: &Deadline) -> Result<Tcp, Error> {
        let options = TcpOptions { begin_after, ..TcpOptions::from_environment()? };
        Tcp::host_with(self.listener, size, self.id.job_key(), options, deadline)
    }
}

impl UniqueId {
    /// Length of an id, bytes.
    pub const BYTES: usize = 128;

    /// Derives the id if all ranks know the address of rank 0, its port and something that others
    /// do not; rank 0 uses [`Meeting::at`]. If others can guess what the ranks know, the id only
    /// distinguishes jobs.
    ///
    /// # Errors
    /// [`Error::Setup`] if there is no address.
    pub fn agreed(addresses: &[IpAddr], port: u16, known: &[u8]) -> Result<Self, Error> {
        Self::reached_at(addresses, port, &blake3::derive_key(PURPOSE, known))
    }

    fn reached_at(addresses: &[IpAddr], port: u16, secret: &[u8; SECRET]) -> Result<Self, Error> {
        // A link-local address means nothing without an interface, and that is another on every
        // machine.
        let link_local = |address: &IpAddr| matches!(address, IpAddr::V6(six) if six.is_unicast_link_local());
        let addresses: Vec<IpAddr> =
            addresses.iter().copied().filter(|address| !link_local(address)).take(ADDRESSES_MAX).collect();
        if addresses.is_empty() {
            return Err(unusable("this machine has no address that other machines can reach".to_owned()));
        }
        Ok(Self::new(&addresses, port, secret))
    }

    fn new(addresses: &[IpAddr], port: u16, secret: &[u8; SECRET]) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = addresses.len() as u8;
        bytes[6..8].copy_from_slice(&port.to_le_bytes());
        bytes[SECRET_START..][..SECRET].copy_from_slice(secret);
        for (place, address) in addresses.iter().enumerate() {
            let mapped = match address {
                IpAddr::V4(four) => four.to_ipv6_mapped(),
                IpAddr::V6(six) => *six,
            };
            bytes[ADDRESSES_START + place * ADDRESS..][..ADDRESS].copy_from_slice(&mapped.octets());
        }
        Self(bytes)
    }

    /// Parses an id.
    ///
    /// # Errors
    /// [`Error::Setup`] if the bytes are not an id.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let wrong = |reason: &str| Error::Setup { what: "an id of a run".to_owned(), reason: reason.to_owned() };
        let bytes: [u8; Self::BYTES] = bytes.try_into().map_err(|_| wrong("it is not 128 bytes long"))?;
        let used = ADDRESSES_START + usize::from(bytes[5]) * ADDRESS;
        if bytes[..4] != MAGIC {
            return Err(wrong("these bytes are not an id"));
        }
        if bytes[4] != VERSION {
            return Err(wrong("it is from another version; use the same build everywhere"));
        }
        if !(1..=ADDRESSES_MAX).contains(&usize::from(bytes[5])) || bytes[used..].iter().any(|byte| *byte != 0) {
            return Err(wrong("it is damaged"));
        }
        Ok(Self(bytes))
    }

    /// Mixes a key into what the ranks prove, so that the id alone is not enough to impersonate a
    /// rank.
    #[must_use]
    pub fn keyed_by(mut self, key: JobKey) -> Self {
        let mixed = key.proof(&[b"id", &self.0[SECRET_START..][..SECRET]]);
        self.0[SECRET_START..][..SECRET].copy_from_slice(mixed.as_bytes());
        self
    }

    /// Returns the bytes to be transmitted.
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Joins the group as `rank` of `size`.
    ///
    /// # Errors
    /// Errors of [`Tcp::join`].
    pub fn join(&self, rank: Rank, size: usize, deadline: &Deadline) -> Result<Tcp, Error> {
        self.join_or_return(rank, size, &EarlierRun::default(), deadline)
    }

    /// Joins like [`UniqueId::join`], for a rank that may have been restarted: see
    /// [`Tcp::join_or_return`].
    ///
    /// # Errors
    /// Errors of [`Tcp::join`].
    pub fn join_or_return(
        &self,
        rank: Rank,
        size: usize,
        earlier: &EarlierRun,
        deadline: &Deadline,
    ) -> Result<Tcp, Error> {
        let options = TcpOptions::from_environment()?;
        Tcp::join_or_return(&self.targets(), earlier, rank, size, self.job_key(), options, deadline)
    }

    /// Returns the sender of files from `rank` of `size` to rank 0.
    pub fn file_sender(&self, rank: Rank, size: usize) -> FileSender {
        FileSender::new(self.targets(), rank, size, self.job_key())
    }

    /// Returns the addresses on which rank 0 listens.
    fn targets(&self) -> Vec<String> {
        let port = u16::from_le_bytes([self.0[6], self.0[7]]);
        self.addresses().map(|address| SocketAddr::new(address, port).to_string()).collect()
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let chunks = self.0[ADDRESSES_START..].as_chunks::<ADDRESS>().0.iter().take(usize::from(self.0[5]));
        chunks.map(|octets| IpAddr::V6(Ipv6Addr::from(*octets)).to_canonical())
    }

    fn job_key(&self) -> JobKey {
        JobKey::of(&self.0[SECRET_START..][..SECRET])
    }
}

/// Formats for variables and files: 256 hexadecimal digits.
impl fmt::LowerHex for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for UniqueId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digit = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let plain = text.trim().as_bytes();
        let bytes: Option<Vec<u8>> =
            plain.iter().all(u8::is_ascii_hexdigit).then(|| plain.chunks(2).map(digit).collect()).flatten();
        Self::from_bytes(&bytes.unwrap_or_default())
    }
}

/// Hides the content, from which the job's key is derived.
impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId(..)")
    }
}

fn listen(addresses: &[IpAddr], port: u16) -> Result<TcpListener, Error> {
    match addresses.iter().find(|address| address.is_loopback()) {
        Some(loopback) if addresses.iter().all(IpAddr::is_loopback) => bind(SocketAddr::new(*loopback, port)),
        _ => bind_everywhere(port),
    }
}

fn unusable(reason: String) -> Error {
    Error::Setup { what: "opening a meeting".to_owned(), reason }
}

/// Separates this use of what the ranks know from others.
const PURPOSE: &str = "probe_sync 2026-11-22 agreed id";
const MAGIC: [u8; 4] = *b"psId";
const VERSION: u8 = 1;
const SECRET: usize = 32;
const SECRET_START: usize = 8;
const ADDRESS: usize = 16;
const ADDRESSES_START: usize = SECRET_START + SECRET;
const ADDRESSES_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_bytes_and_text_and_shows_no_secret() {
        let addresses: [IpAddr; 2] = ["10.1.2.3".parse().expect("four"), "fd00::7".parse().expect("six")];
        let id = UniqueId::new(&addresses, 4711, &[0xa7; SECRET]);
        assert_eq!(id.addresses().collect::<Vec<_>>(), addresses);
        assert_eq!(UniqueId::from_bytes(id.as_bytes()).expect("our own"), id);
        let text = format!("{id:x}");
        assert_eq!((text.len(), text.parse::<UniqueId>().expect("our own")), (256, id.clone()));
        assert_eq!(format!("{id:?}"), "UniqueId(..)");
        assert_eq!(id.job_key(), JobKey::of(&[0xa7; SECRET]));
    }

    #[test]
    fn ranks_that_know_the_same_make_the_same_id() {
        let loopback = [IpAddr::from([127, 0, 0, 1])];
        let meeting = Meeting::open(&loopback).expect("loopback");
        let port = meeting.listener.local_addr().expect("bound").port();
        let id = |known: &[u8]| UniqueId::agreed(&loopback, port, known).expect("an address");
        assert!(id(b"job 7") == id(b"job 7") && id(b"job 7") != id(b"job 8"));
        assert!(UniqueId::agreed(&[], port, b"").is_err());
        let taken = Meeting::at(&loopback, port, b"job 7").expect_err("it listens there").to_string();
        assert!(taken.contains(&port.to_string()) && taken.contains("another port"), "{taken}");
        drop(meeting);
        assert_eq!(*Meeting::at(&loopback, port, b"job 7").expect("free again").id(), id(b"job 7"));
    }

    #[test]
    fn what_is_no_id_is_refused_with_the_reason() {
        let good = UniqueId::new(&[IpAddr::from([127, 0, 0, 1])], 9, &[1; SECRET]);
        let check = |change: &dyn Fn(&mut Vec<u8>), part: &str| {
            let mut bytes = good.as_bytes().to_vec();
            change(&mut bytes);
            let error = UniqueId::from_bytes(&bytes).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        };
        check(&|bytes| bytes.truncate(127), "128 bytes");
        check(&|bytes| bytes[0] = b'x', "not an id");
        check(&|bytes| bytes[4] = 9, "another version");
        check(&|bytes| bytes[5] = 0, "damaged");
        check(&|bytes| bytes[5] = 6, "damaged");
        check(&|bytes| bytes[127] = 1, "damaged");
        for text in ["", "psId", "é", &"g".repeat(256), &"0".repeat(255)] {
            assert!(text.parse::<UniqueId>().is_err(), "{text}");
        }
    }
}

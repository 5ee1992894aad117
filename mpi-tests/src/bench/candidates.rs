//! The ways to perform one round: gather a payload from every rank and give everyone the decision,
//! or give every rank all payloads.
//!
//! The direct calls are those of a C program, with known lengths if that is the candidate's point;
//! their buffers are allocated once. Rounds over TCP distribute the decision by a scatter, like the
//! round loop when another rank may replace the master; rounds over MPI use a broadcast. They do
//! not check the received data; the suite does.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::time::Duration;

use mpi::ffi;
use probe_sync_collective::{Collective, Deadline, Error, FanOut, Frames, JobKey, Tcp, TcpOptions, bind_everywhere};
use probe_sync_mpi::raw::{Communicator, Parts, check};
use probe_sync_mpi::{MpiCollective, MpiOptions};
use probe_sync_sys::interfaces::own_addresses;

use crate::group::GroupExt as _;
use crate::suite::messages;

/// One way.
pub(crate) struct Candidate {
    name: &'static str,
    round: Box<dyn FnMut() -> Result<(), Error>>,
}

impl Candidate {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// One round, on all ranks.
    pub(crate) fn round(&mut self) -> Result<(), Error> {
        (self.round)()
    }
}

/// The ways that are `wanted`, between the ranks of `group`. The others are not set up.
pub(crate) fn candidates(
    group: &mut MpiCollective,
    layout: MpiOptions,
    sizes: Sizes,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Candidate>, Error> {
    let mut all = Vec::new();
    for name in NAMES.into_iter().filter(|name| wanted(name)) {
        all.push(match name {
            DEFAULT => broadcast_round(name, group.duplicate(layout)?, sizes),
            MESSAGES => broadcast_round(name, messages(group)?, sizes),
            TIMED => timed_round(name, group.duplicate(layout)?, sizes),
            TCP => scatter_round(name, tcp(group, FanOut::Star)?, sizes),
            TCP_TREE => scatter_round(name, tcp(group, FanOut::Tree(sizes.fan_out))?, sizes),
            TCP_TIMED => timed_round(name, tcp(group, FanOut::Star)?, sizes),
            TCP_TREE_TIMED => timed_round(name, tcp(group, FanOut::Tree(sizes.fan_out))?, sizes),
            _ => Candidate { name, round: direct(name, group, sizes)? },
        });
    }
    Ok(all)
}

/// What the messages of a round are like.
#[derive(Copy, Clone)]
pub(crate) struct Sizes {
    /// Bytes that each rank contributes.
    pub(crate) payload: usize,
    /// Bytes of the decision for each rank that there is; every rank is given all of them.
    pub(crate) decision: usize,
    /// How many ranks each passes on for in a tree.
    pub(crate) fan_out: usize,
}

/// A round of direct calls.
fn direct(name: &str, group: &MpiCollective, sizes: Sizes) -> Result<Box<dyn FnMut() -> Result<(), Error>>, Error> {
    let payload = sizes.payload;
    // SAFETY: the group's communicator is valid as long as the group, and all ranks come here.
    let comm = unsafe { Communicator::duplicate(group.comm()?.handle()) }?;
    if name == WRAPPER {
        let parts = Parts::new(vec![payload; group.size()])?;
        let (own, mut received) = (vec![1; payload], vec![0; parts.total()]);
        return Ok(Box::new(move || comm.allgatherv(&own, &parts, &mut received)));
    }
    let mut raw = Raw::new(comm, sizes)?;
    Ok(match name {
        RAW_ALLGATHER => Box::new(move || {
            raw.allgather_lengths()?;
            raw.allgatherv()?;
            raw.broadcast()
        }),
        RAW_ALLGATHERV => Box::new(move || raw.allgatherv()),
        _ => Box::new(move || {
            raw.gatherv()?;
            raw.broadcast()
        }),
    })
}

/// A round of a master, as the round loop does it over MPI.
fn broadcast_round(name: &'static str, mut group: impl Collective + 'static, sizes: Sizes) -> Candidate {
    let (everyone, own) = (vec![true; group.size()], vec![1; sizes.payload]);
    let decision = vec![2; sizes.decision * group.size()];
    let (mut frames, mut buffer) = (Frames::default(), Vec::new());
    let round = move || {
        let deadline = Deadline::new(TIMEOUT, None);
        group.gather(&everyone, &own, &mut frames, &deadline)?;
        if group.is_root() {
            buffer.clear();
            buffer.extend_from_slice(&decision);
        }
        group.broadcast(&mut buffer, &deadline)
    };
    Candidate { name, round: Box::new(round) }
}

/// The same over TCP: a frame for each rank.
fn scatter_round(name: &'static str, mut group: impl Collective + 'static, sizes: Sizes) -> Candidate {
    let (everyone, own) = (vec![true; group.size()], vec![1; sizes.payload]);
    let decision = vec![2; sizes.decision * group.size()];
    let (mut frames, mut decisions, mut told) = (Frames::default(), Frames::default(), Vec::new());
    let round = move || {
        let deadline = Deadline::new(TIMEOUT, None);
        group.gather(&everyone, &own, &mut frames, &deadline)?;
        decisions.clear();
        if group.is_root() {
            (0..group.size()).for_each(|_| decisions.push(&decision));
        }
        group.scatter(&decisions, &mut told, &deadline)
    };
    Candidate { name, round: Box::new(round) }
}

/// A round without a master: all payloads to all ranks.
fn timed_round(name: &'static str, mut group: impl Collective + 'static, sizes: Sizes) -> Candidate {
    let (own, mut frames) = (vec![1; sizes.payload], Frames::default());
    Candidate { name, round: Box::new(move || group.allgather(&own, &mut frames, &Deadline::new(TIMEOUT, None))) }
}

/// Connects the ranks by TCP; the addresses travel by MPI.
fn tcp(group: &mut MpiCollective, fan_out: FanOut) -> Result<Tcp, Error> {
    let deadline = Deadline::new(TIMEOUT, None);
    let options = TcpOptions { fan_out, ..TcpOptions::default() };
    let mut told = Vec::new();
    let listener = if group.is_root() {
        let failed = |what: &str, reason: String| Error::Setup { what: what.to_owned(), reason };
        let listener = bind_everywhere(0)?;
        let port = listener.local_addr().map_err(|error| failed("the port of the bench", error.to_string()))?.port();
        let addresses = own_addresses().map_err(|error| failed("this host's addresses", error.to_string()))?;
        let texts: Vec<String> = addresses.iter().map(|ip| SocketAddr::new(*ip, port).to_string()).collect();
        told = texts.join(" ").into_bytes();
        Some(listener)
    } else {
        None
    };
    group.broadcast(&mut told, &deadline)?;
    let job = JobKey::of(b"bench");
    match listener {
        Some(listener) => Tcp::host_with(listener, group.size(), job, options, &deadline),
        None => {
            let addresses: Vec<String> = String::from_utf8_lossy(&told).split(' ').map(str::to_owned).collect();
            Tcp::join_any(&addresses, group.rank(), group.size(), job, options, &deadline)
        }
    }
}

/// Direct calls, with their buffers.
struct Raw {
    comm: Communicator,
    own: Vec<u8>,
    lengths: Vec<c_int>,
    counts: Vec<c_int>,
    starts: Vec<c_int>,
    received: Vec<u8>,
    decision: Vec<u8>,
}

impl Raw {
    fn new(comm: Communicator, sizes: Sizes) -> Result<Self, Error> {
        let payload = sizes.payload;
        let (size, count) = (comm.size(), payload as c_int);
        // The sum is what the displacements must be able to express.
        Parts::new(vec![payload; size])?;
        Ok(Self {
            own: vec![1; payload],
            lengths: vec![0; size],
            counts: vec![count; size],
            starts: (0..size as c_int).map(|rank| rank * count).collect(),
            received: vec![0; payload * size],
            decision: vec![2; sizes.decision * size],
            comm,
        })
    }

    fn allgather_lengths(&mut self) -> Result<(), Error> {
        let own = self.own.len() as c_int;
        // SAFETY: one number is sent, and there is room for one of each rank.
        let code = unsafe {
            let kind = ffi::RSMPI_INT32_T;
            let send = (&raw const own).cast();
            ffi::MPI_Allgather(send, 1, kind, self.lengths.as_mut_ptr().cast(), 1, kind, self.comm.handle())
        };
        check(code, "MPI_Allgather")
    }

    fn allgatherv(&mut self) -> Result<(), Error> {
        // SAFETY: `new` made counts, starts and buffers that fit each other on all ranks.
        let code = unsafe {
            let kind = ffi::RSMPI_UINT8_T;
            ffi::MPI_Allgatherv(
                self.own.as_ptr().cast(),
                self.own.len() as c_int,
                kind,
                self.received.as_mut_ptr().cast(),
                self.counts.as_ptr(),
                self.starts.as_ptr(),
                kind,
                self.comm.handle(),
            )
        };
        check(code, "MPI_Allgatherv")
    }

    fn gatherv(&mut self) -> Result<(), Error> {
        // SAFETY: as in `allgatherv`.
        let code = unsafe {
            let kind = ffi::RSMPI_UINT8_T;
            ffi::MPI_Gatherv(
                self.own.as_ptr().cast(),
                self.own.len() as c_int,
                kind,
                self.received.as_mut_ptr().cast(),
                self.counts.as_ptr(),
                self.starts.as_ptr(),
                kind,
                0,
                self.comm.handle(),
            )
        };
        check(code, "MPI_Gatherv")
    }

    fn broadcast(&mut self) -> Result<(), Error> {
        let (pointer, count) = (self.decision.as_mut_ptr().cast(), self.decision.len() as c_int);
        // SAFETY: the buffer has that many bytes, as many as on every rank.
        let code = unsafe { ffi::MPI_Bcast(pointer, count, ffi::RSMPI_UINT8_T, 0, self.comm.handle()) };
        check(code, "MPI_Bcast")
    }
}

pub(crate) const RAW_ALLGATHER: &str = "MPI allgather + allgatherv + bcast (A)";
pub(crate) const RAW_ALLGATHERV: &str = "MPI allgatherv";
pub(crate) const WRAPPER: &str = "our allgatherv";
pub(crate) const RAW_GATHER: &str = "MPI gatherv, known counts, + bcast (K)";
pub(crate) const DEFAULT: &str = "our default round";
pub(crate) const MESSAGES: &str = "our round beside a launcher";
pub(crate) const TIMED: &str = "our timed round";
pub(crate) const TCP: &str = "our TCP round, star";
pub(crate) const TCP_TREE: &str = "our TCP round, tree";
pub(crate) const TCP_TIMED: &str = "our TCP timed round, star";
pub(crate) const TCP_TREE_TIMED: &str = "our TCP timed round, tree";

/// All of them, in the order of the table.
const NAMES: [&str; 11] = [
    RAW_ALLGATHER,
    RAW_ALLGATHERV,
    WRAPPER,
    RAW_GATHER,
    DEFAULT,
    TIMED,
    MESSAGES,
    TCP,
    TCP_TREE,
    TCP_TIMED,
    TCP_TREE_TIMED,
];

/// How long a round may take before the bench gives up.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

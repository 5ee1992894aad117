//! The ways to do one round: gather a payload from every rank, and give everyone the decision of 24 bytes per rank.
//!
//! Place in the flow: run by the bench. The direct calls are what a C program would write, lengths known where that is
//! the candidate's point; their buffers are made once.
//! What it does not do: check what arrives. The suite does.

use std::ffi::c_int;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use mpi::ffi;
use probe_sync_collective::{Collective, Deadline, Error, Frames, JobKey, Tcp, bind};
use probe_sync_mpi::raw::{Communicator, Parts, check};
use probe_sync_mpi::{MpiCollective, MpiOptions};

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
    payload: usize,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Candidate>, Error> {
    let mut all = Vec::new();
    for name in NAMES.into_iter().filter(|name| wanted(name)) {
        all.push(match name {
            DEFAULT => through_trait(name, group.duplicate(layout)?, payload),
            MESSAGES => through_trait(name, messages(group)?, payload),
            TCP => through_trait(name, tcp(group)?, payload),
            _ => Candidate { name, round: direct(name, group, payload)? },
        });
    }
    Ok(all)
}

/// A round of direct calls.
fn direct(name: &str, group: &MpiCollective, payload: usize) -> Result<Box<dyn FnMut() -> Result<(), Error>>, Error> {
    // SAFETY: the group's communicator is valid as long as the group, and all ranks come here.
    let comm = unsafe { Communicator::duplicate(group.comm()?.handle()) }?;
    if name == WRAPPER {
        let parts = Parts::new(vec![payload; group.size()])?;
        let (own, mut received) = (vec![1; payload], vec![0; parts.total()]);
        return Ok(Box::new(move || comm.allgatherv(&own, &parts, &mut received)));
    }
    let mut raw = Raw::new(comm, payload)?;
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

/// A round as the round loop does it.
fn through_trait(name: &'static str, mut group: impl Collective + 'static, payload: usize) -> Candidate {
    let (everyone, own) = (vec![true; group.size()], vec![1; payload]);
    let decision = vec![2; DECISION_PER_RANK * group.size()];
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

/// Connects the ranks by TCP; the address travels by MPI.
fn tcp(group: &mut MpiCollective) -> Result<Tcp, Error> {
    let deadline = Deadline::new(TIMEOUT, None);
    let mut address = Vec::new();
    let listener = if group.is_root() {
        let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        address = listener.local_addr().map(|address| address.to_string()).unwrap_or_default().into_bytes();
        Some(listener)
    } else {
        None
    };
    group.broadcast(&mut address, &deadline)?;
    let job = JobKey::of(b"bench");
    match listener {
        Some(listener) => Tcp::host(listener, group.size(), job, &deadline),
        None => Tcp::join(&String::from_utf8_lossy(&address), group.rank(), group.size(), job, &deadline),
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
    fn new(comm: Communicator, payload: usize) -> Result<Self, Error> {
        let (size, count) = (comm.size(), payload as c_int);
        // The sum is what the displacements must be able to express.
        Parts::new(vec![payload; size])?;
        Ok(Self {
            own: vec![1; payload],
            lengths: vec![0; size],
            counts: vec![count; size],
            starts: (0..size as c_int).map(|rank| rank * count).collect(),
            received: vec![0; payload * size],
            decision: vec![2; DECISION_PER_RANK * size],
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
pub(crate) const TCP: &str = "our TCP round";

/// All of them, in the order of the table.
const NAMES: [&str; 7] = [RAW_ALLGATHER, RAW_ALLGATHERV, WRAPPER, RAW_GATHER, DEFAULT, MESSAGES, TCP];

/// Bytes of the decision for each rank.
const DECISION_PER_RANK: usize = 24;

/// How long a round may take before the bench gives up.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

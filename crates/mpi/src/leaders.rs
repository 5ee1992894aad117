//! Between hosts: the leaders bring their hosts' frames to the root and its decision back.
//!
//! Place in the flow: one leader per host, after it has collected from its own ranks and before it announces to them.
//! Gather: every leader sends the root a report, a header of 24 bytes (sequence, kind, length) and the frames of its host,
//! or the list of ranks that did not come. One receive per leader, so that the root can name who is missing. Hosts
//! without participants send nothing. `MPI_Iallgatherv` between the leaders was rejected for this: only the root needs
//! the frames. With 4, 8 and 16 hosts of 2 ranks played on one machine a round straight to the root took 0.56, 0.71 and
//! 0.71 of one by `MPI_Iallgatherv` back to back, and 0.41, 0.59 and 0.45 of it with ranks that arrive apart.
//! Allgather, whose result every rank wants: the report is the header alone, and the frames travel by `MPI_Iallgatherv`.
//! Broadcast: `MPI_Ibcast` of a first part, whose size every leader can compute from the last broadcast, then of the rest.
//! Waiting: look for 50 µs, then sleep longer and longer; a deadline always. What is under way then is leaked.
//! What it does not do: know the ranks' payloads.

use std::ffi::c_int;
use std::time::Duration;

use probe_sync_collective::{Deadline, Error, Frames, ROOT, Rank, Wait};

use crate::layout::Layout;
use crate::raw::{Communicator, Parts, Requests};

/// A leader's end.
pub(crate) struct Leaders {
    comm: Communicator,
    layout: Layout,
    /// Gathers so far; equal on all leaders.
    sequence: u64,
    /// Bytes of the first part of the next broadcast; equal on all leaders.
    first_part: usize,
}

/// What a leader brings to a gather.
pub(crate) enum Report {
    /// The frames of its host's ranks, in order.
    Frames(Frames),
    /// Ranks of its host that did not come in time.
    Missing(Vec<Rank>),
}

impl Leaders {
    pub(crate) fn new(comm: Communicator, layout: Layout) -> Self {
        Self { comm, layout, sequence: 0, first_part: FIRST_PART_MIN }
    }

    pub(crate) fn into_comm(self) -> Communicator {
        self.comm
    }

    /// Brings the reports of all hosts with participants to the root: the frames of each host, empty for the others.
    /// Away from the root the result is empty.
    pub(crate) fn gather(
        &mut self,
        participants: &[bool],
        report: &Report,
        deadline: &Deadline,
    ) -> Result<Vec<Frames>, Error> {
        self.sequence += 1;
        let takes_part: Vec<bool> = (0..self.layout.hosts())
            .map(|host| self.layout.ranks(host).iter().any(|&rank| participants[rank]))
            .collect();
        let mut wait = Wait::begin("gather", deadline);
        if self.comm.rank() != ROOT_LEADER {
            if takes_part[self.comm.rank()] {
                self.send_report(report, true, &mut wait)?;
            }
            return Ok(Vec::new());
        }
        let reports = self.receive_reports(&takes_part, participants, report, &mut wait)?;
        self.frames_of(reports, report, &wait)
    }

    /// Brings the frames of all hosts to all leaders. The reports go first, so that the root can say who is missing, and
    /// so that a leader with missing ranks need not enter the collective calls.
    pub(crate) fn allgather(&mut self, report: &Report, deadline: &Deadline) -> Result<Vec<Frames>, Error> {
        self.sequence += 1;
        let hosts = self.layout.hosts();
        let mut wait = Wait::begin("gather", deadline);
        if self.comm.rank() == ROOT_LEADER {
            let everyone = vec![true; self.layout.host_of().len()];
            let reports = self.receive_reports(&vec![true; hosts], &everyone, report, &mut wait)?;
            let missing = Self::missing_of(&reports, report);
            if !missing.is_empty() {
                return Err(wait.late(missing));
            }
        } else {
            self.send_report(report, false, &mut wait)?;
        }
        let frames = match report {
            Report::Frames(frames) => frames,
            Report::Missing(ranks) => return Err(wait.late(ranks.clone())),
        };
        let mut own = Vec::new();
        frames.encode(&mut own);
        let lengths =
            self.all_to_all((own.len() as u64).to_le_bytes().to_vec(), &Parts::new(vec![8; hosts])?, &mut wait)?;
        let lengths = (0..hosts).map(|host| read_u64(&lengths, host * 8).unwrap_or(0) as usize);
        let parts = Parts::new(lengths)?;
        let encoded = self.all_to_all(own, &parts, &mut wait)?;
        (0..hosts).map(|host| self.decode(host, &encoded[parts.range(host)])).collect()
    }

    /// Brings the root's `buffer` to all leaders.
    pub(crate) fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        let mut wait = Wait::begin("broadcast", deadline);
        let root = self.comm.rank() == ROOT_LEADER;
        let room = self.first_part - LENGTH;
        let mut first = vec![0; self.first_part];
        if root {
            let here = buffer.len().min(room);
            first[..LENGTH].copy_from_slice(&(buffer.len() as u64).to_le_bytes());
            first[LENGTH..LENGTH + here].copy_from_slice(&buffer[..here]);
        }
        let first = self.broadcast_part(first, &mut wait)?;
        let length = read_u64(&first, 0).and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|&length| length <= PAYLOAD_MAX) else {
            let what = "a broadcast without a sensible length".to_owned();
            return Err(Error::Protocol { operation: "broadcast", rank: ROOT, what });
        };
        let rest = if root { buffer.split_off(length.min(room)) } else { vec![0; length.saturating_sub(room)] };
        let rest = if rest.is_empty() { rest } else { self.broadcast_part(rest, &mut wait)? };
        buffer.clear();
        buffer.extend_from_slice(&first[LENGTH..LENGTH + length.min(room)]);
        buffer.extend_from_slice(&rest);
        self.first_part = (length + LENGTH).next_power_of_two().clamp(FIRST_PART_MIN, FIRST_PART_MAX);
        Ok(())
    }

    fn broadcast_part(&self, part: Vec<u8>, wait: &mut Wait<'_>) -> Result<Vec<u8>, Error> {
        let mut requests = Requests::new();
        let index = self.comm.start_broadcast(part, ROOT_LEADER, &mut requests)?;
        if !complete(&mut requests, wait, |_, _, _| Ok(()))? {
            let others = || (1..self.layout.hosts()).map(|host| self.layout.ranks(host)[0]).collect();
            return Err(wait.late(if self.comm.rank() == ROOT_LEADER { others() } else { vec![ROOT] }));
        }
        Ok(requests.take(index))
    }

    fn all_to_all(&self, own: Vec<u8>, parts: &Parts, wait: &mut Wait<'_>) -> Result<Vec<u8>, Error> {
        let mut requests = Requests::new();
        let index = self.comm.start_allgatherv(own, parts, &mut requests)?;
        if complete(&mut requests, wait, |_, _, _| Ok(()))? {
            return Ok(requests.take(index));
        }
        // The call does not tell who is missing: everyone else may be.
        let others = (0..self.layout.hosts()).filter(|&host| host != self.comm.rank());
        Err(wait.late(others.map(|host| self.layout.ranks(host)[0]).collect()))
    }

    /// Sends the root this host's report, with the frames or without.
    fn send_report(&self, report: &Report, with_frames: bool, wait: &mut Wait<'_>) -> Result<(), Error> {
        let mut body = Vec::new();
        let kind = match report {
            Report::Frames(_) if !with_frames => KIND_HEADER_ONLY,
            Report::Frames(frames) => {
                frames.encode(&mut body);
                KIND_FRAMES
            }
            Report::Missing(ranks) => {
                ranks.iter().for_each(|&rank| body.extend_from_slice(&(rank as u64).to_le_bytes()));
                KIND_MISSING
            }
        };
        let mut message = Vec::with_capacity(HEADER + body.len().min(FIRST_MESSAGE));
        for number in [self.sequence, kind, body.len() as u64] {
            message.extend_from_slice(&number.to_le_bytes());
        }
        let here = body.len().min(FIRST_MESSAGE - HEADER);
        message.extend_from_slice(&body[..here]);
        let mut requests = Requests::new();
        self.comm.start_send(message, ROOT_LEADER, TAG_FIRST, &mut requests)?;
        if here < body.len() {
            self.comm.start_send(body.split_off(here), ROOT_LEADER, TAG_REST, &mut requests)?;
        }
        if complete(&mut requests, wait, |_, _, _| Ok(()))? { Ok(()) } else { Err(wait.late(vec![ROOT])) }
    }

    /// Receives one report from each host that takes part, except the root's own. On time-out every participant of the
    /// hosts that said nothing is missing, and those that the other hosts reported.
    fn receive_reports(
        &self,
        takes_part: &[bool],
        participants: &[bool],
        own: &Report,
        wait: &mut Wait<'_>,
    ) -> Result<Vec<Option<Incoming>>, Error> {
        let mut requests = Requests::new();
        let mut host_of_request = Vec::new();
        let mut reports: Vec<Option<Incoming>> = (0..self.layout.hosts()).map(|_| None).collect();
        for host in (0..self.layout.hosts()).filter(|&host| host != ROOT_LEADER && takes_part[host]) {
            self.comm.start_receive(vec![0; FIRST_MESSAGE], host, TAG_FIRST, &mut requests)?;
            host_of_request.push(host);
        }
        let on_time = complete(&mut requests, wait, |requests, index, bytes| {
            let host = host_of_request[index];
            let mut message = requests.take(index);
            message.truncate(bytes);
            if let Some(report) = &mut reports[host] {
                report.body.extend_from_slice(&message);
                return Ok(());
            }
            let report = self.parse(host, &message)?;
            let rest = report.length - report.body.len();
            if rest > 0 {
                self.comm.start_receive(vec![0; rest], host, TAG_REST, requests)?;
                host_of_request.push(host);
            }
            reports[host] = Some(report);
            Ok(())
        })?;
        if on_time {
            return Ok(reports);
        }
        let mut missing: Vec<Rank> = Vec::new();
        for host in requests.pending().map(|index| host_of_request[index]) {
            missing.extend(self.layout.ranks(host).iter().filter(|&&rank| participants[rank]));
        }
        missing.extend(Self::missing_of(&reports, own));
        missing.sort_unstable();
        missing.dedup();
        Err(wait.late(missing))
    }

    fn parse(&self, host: usize, message: &[u8]) -> Result<Incoming, Error> {
        let numbers = (read_u64(message, 0), read_u64(message, 8), read_u64(message, 16));
        match numbers {
            (Some(sequence), Some(kind), Some(length))
                if sequence == self.sequence && kind <= KIND_MISSING && length <= PAYLOAD_MAX as u64 =>
            {
                let body = message[HEADER..].to_vec();
                Ok(Incoming { kind, length: (length as usize).max(body.len()), body })
            }
            other => Err(self.protocol(host, format!("report {other:?} in gather {}", self.sequence))),
        }
    }

    /// The ranks that the hosts have reported missing, the root's own host included.
    fn missing_of(reports: &[Option<Incoming>], own: &Report) -> Vec<Rank> {
        let mut missing: Vec<Rank> = reports.iter().flatten().flat_map(Incoming::missing).collect();
        if let Report::Missing(ranks) = own {
            missing.extend(ranks);
        }
        missing.sort_unstable();
        missing
    }

    fn frames_of(&self, reports: Vec<Option<Incoming>>, own: &Report, wait: &Wait<'_>) -> Result<Vec<Frames>, Error> {
        let missing = Self::missing_of(&reports, own);
        if !missing.is_empty() {
            return Err(wait.late(missing));
        }
        let mut all = Vec::with_capacity(reports.len());
        for (host, report) in reports.into_iter().enumerate() {
            all.push(match (report, own) {
                (Some(report), _) => self.decode(host, &report.body)?,
                (None, Report::Frames(frames)) if host == ROOT_LEADER => frames.clone(),
                _ => Frames::default(),
            });
        }
        Ok(all)
    }

    fn decode(&self, host: usize, encoded: &[u8]) -> Result<Frames, Error> {
        let mut frames = Frames::default();
        if frames.decode(encoded) && frames.len() == self.layout.ranks(host).len() {
            return Ok(frames);
        }
        Err(self.protocol(host, format!("{} bytes that are not its host's frames", encoded.len())))
    }

    fn protocol(&self, host: usize, what: String) -> Error {
        Error::Protocol { operation: "gather", rank: self.layout.ranks(host)[0], what }
    }
}

/// A report as received.
struct Incoming {
    kind: u64,
    length: usize,
    body: Vec<u8>,
}

impl Incoming {
    fn missing(&self) -> Vec<Rank> {
        if self.kind != KIND_MISSING {
            return Vec::new();
        }
        self.body.as_chunks::<8>().0.iter().map(|rank| u64::from_le_bytes(*rank) as Rank).collect()
    }
}

/// Waits until all requests are complete, those that `on_done(requests, index, bytes)` starts included. False when the
/// wait is over before; the requests then keep their memory for ever.
pub(crate) fn complete(
    requests: &mut Requests,
    wait: &mut Wait<'_>,
    mut on_done: impl FnMut(&mut Requests, usize, usize) -> Result<(), Error>,
) -> Result<bool, Error> {
    loop {
        let newly_done = requests.poll()?;
        for &(index, bytes) in &newly_done {
            on_done(requests, index, bytes)?;
        }
        if requests.pending().next().is_none() {
            return Ok(true);
        }
        if !newly_done.is_empty() {
            continue;
        }
        if wait.may_spin() {
            rustix::thread::sched_yield();
            continue;
        }
        let Some(slice) = wait.slice() else { return Ok(false) };
        std::thread::sleep((wait.elapsed() / 16).clamp(SLEEP_MIN, SLEEP_MAX).min(slice));
    }
}

fn read_u64(bytes: &[u8], start: usize) -> Option<u64> {
    bytes.get(start..)?.first_chunk::<8>().map(|number| u64::from_le_bytes(*number))
}

/// The root's place among the leaders: hosts are numbered by their lowest rank.
const ROOT_LEADER: usize = 0;

const TAG_FIRST: c_int = 1;
const TAG_REST: c_int = 2;

const KIND_HEADER_ONLY: u64 = 0;
const KIND_FRAMES: u64 = 1;
const KIND_MISSING: u64 = 2;

/// Bytes of a report's header: sequence, kind, length of the body.
const HEADER: usize = 24;

/// The longest first message of a report; the rest follows when the root knows how much there is.
const FIRST_MESSAGE: usize = 64 << 10;

/// Bytes of the length before a broadcast.
const LENGTH: usize = 8;

/// Bounds of a broadcast's first part.
const FIRST_PART_MIN: usize = 4 << 10;
const FIRST_PART_MAX: usize = 1 << 20;

/// The longest payload: a length beyond it is damage, not data.
const PAYLOAD_MAX: usize = 1 << 30;

/// Sleeps between looks at requests: a sixteenth of the time waited so far, within these bounds. The upper one keeps a
/// long wait below 1 % of a core, the fraction keeps what the sleep adds to a short one below 7 %.
const SLEEP_MIN: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_millis(1);

//! Communication between hosts: leaders bring frames to the root and its decision back.
//!
//! Each host has one leader, which acts after it has collected from its own ranks and before it
//! announces to them. Gather: every leader sends the root a report, which is a header of 24 bytes
//! (the [`Operation`], kind, length) and the frames of its host, or the list of missing ranks. The
//! root posts one receive per leader, so that it can name the missing ones. Hosts without
//! participants send nothing. `MPI_Iallgatherv` between the leaders was rejected for this, because
//! only the root needs the frames. With 4, 8 and 16 hosts of 2 ranks simulated on one machine, a
//! round straight to the root took 0.56, 0.71 and 0.71 of the time of one by `MPI_Iallgatherv` back
//! to back, and 0.41, 0.59 and 0.45 of it with ranks that arrive at different times. Allgather,
//! whose result every rank needs: the report is the header alone, and the frames travel by
//! `MPI_Iallgatherv`. Scatter: the root sends each leader a message of the same form with the data
//! for its host. Broadcast: `MPI_Ibcast` of a first part, whose size every leader can compute from
//! the last broadcast, then of the rest. After ranks are lost there is no communicator of the
//! remaining leaders, because making one would wait for ranks that hang. They use one of all ranks
//! ([`Way::OfAll`]) with point-to-point messages (`passing`). Waiting: a leader polls for 50 µs,
//! then sleeps for longer and longer periods, always with a deadline. Operations still in progress
//! at the deadline are leaked.

use std::ffi::c_int;
use std::time::Duration;

use probe_sync_collective::{Deadline, Error, Frames, Rank, Traffic, Wait};

use crate::board::lost;
use crate::layout::Layout;
use crate::operation::Operation;
use crate::raw::{Parts, Requests};
use crate::watch::Watch;
use crate::way::Way;

/// The connection of a leader.
pub(crate) struct Leaders {
    pub(crate) way: Way,
    pub(crate) own_host: usize,
    pub(crate) layout: Layout,
    /// Present if the group may continue without a lost rank.
    watch: Option<Watch>,
    /// Size of the first part of the next broadcast, bytes; equal on all leaders.
    first_part: usize,
    traffic: Traffic,
}

/// A leader's contribution to a gather.
pub(crate) enum Report {
    /// The frames of its host's ranks, in order.
    Frames(Frames),
    /// Ranks of its host that did not arrive in time.
    Missing(Vec<Rank>),
}

impl Leaders {
    pub(crate) fn new(way: Way, layout: Layout, own_host: usize, watch: Option<Watch>) -> Self {
        Self { way, own_host, layout, watch, first_part: FIRST_PART_MIN, traffic: Traffic::default() }
    }

    /// What this leader has sent to and received from other hosts. For a collective call it counts
    /// its own part and the result.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Collective, if no rank was lost: frees the communicator.
    pub(crate) fn free(self) -> Result<(), Error> {
        self.way.free()
    }

    /// Collects the reports of all hosts with participants at the root: the frames of each host,
    /// empty for the others. On other ranks the result is empty.
    pub(crate) fn gather(
        &mut self,
        operation: Operation,
        participants: &[bool],
        report: &Report,
        deadline: &Deadline,
    ) -> Result<Vec<Frames>, Error> {
        let takes_part: Vec<bool> = (0..self.layout.hosts())
            .map(|host| self.layout.ranks(host).iter().any(|&rank| participants[rank]))
            .collect();
        let mut wait = Wait::begin(operation.name(), deadline);
        if self.own_host != ROOT_LEADER {
            if takes_part[self.own_host] {
                self.send_report(operation, report, true, &mut wait)?;
            }
            return Ok(Vec::new());
        }
        let reports = self.receive_reports(operation, &takes_part, participants, report, &mut wait)?;
        self.frames_of(operation, reports, report, &wait)
    }

    /// Distributes the frames of all hosts to all leaders. The reports go first, so that the root
    /// can name missing ranks, and so that a leader with missing ranks need not enter the
    /// collective calls.
    pub(crate) fn allgather(
        &mut self,
        operation: Operation,
        report: &Report,
        deadline: &Deadline,
    ) -> Result<Vec<Frames>, Error> {
        if let Way::OfAll(..) = self.way {
            return self.allgather_by_root(operation, report, deadline);
        }
        let hosts = self.layout.hosts();
        let mut wait = Wait::begin(operation.name(), deadline);
        if self.own_host == ROOT_LEADER {
            let everyone = vec![true; self.layout.host_of().len()];
            let reports = self.receive_reports(operation, &vec![true; hosts], &everyone, report, &mut wait)?;
            let missing = Self::missing_of(&reports, report);
            if !missing.is_empty() {
                return Err(wait.late(missing));
            }
        } else {
            self.send_report(operation, report, false, &mut wait)?;
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
        self.count(true, 1, own.len());
        self.count(false, hosts as u64 - 1, parts.total() - own.len());
        let encoded = self.all_to_all(own, &parts, &mut wait)?;
        (0..hosts).map(|host| self.decode(operation, host, &encoded[parts.range(host)])).collect()
    }

    /// Sends the root's `buffer` to all leaders.
    pub(crate) fn broadcast(
        &mut self,
        operation: Operation,
        buffer: &mut Vec<u8>,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        if let Way::OfAll(..) = self.way {
            return self.pass_down(operation, buffer, deadline);
        }
        let name = operation.name();
        let mut wait = Wait::begin(name, deadline);
        let root = self.own_host == ROOT_LEADER;
        let room = self.first_part - FIRST_HEADER;
        let mut first = vec![0; self.first_part];
        if root {
            let here = buffer.len().min(room);
            first[..8].copy_from_slice(&operation.tag().to_le_bytes());
            first[8..FIRST_HEADER].copy_from_slice(&(buffer.len() as u64).to_le_bytes());
            first[FIRST_HEADER..FIRST_HEADER + here].copy_from_slice(&buffer[..here]);
        }
        let first = self.broadcast_part(first, &mut wait)?;
        operation.check(read_u64(&first, 0).unwrap_or(0), self.layout.root())?;
        let length = read_u64(&first, 8).and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|&length| length <= PAYLOAD_MAX) else {
            let what = "a broadcast without a sensible length".to_owned();
            return Err(Error::Protocol { operation: name, rank: self.layout.root(), what });
        };
        let rest = if root { buffer.split_off(length.min(room)) } else { vec![0; length.saturating_sub(room)] };
        let rest = if rest.is_empty() { rest } else { self.broadcast_part(rest, &mut wait)? };
        buffer.clear();
        buffer.extend_from_slice(&first[FIRST_HEADER..FIRST_HEADER + length.min(room)]);
        buffer.extend_from_slice(&rest);
        self.first_part = (length + FIRST_HEADER).next_power_of_two().clamp(FIRST_PART_MIN, FIRST_PART_MAX);
        self.count(root, 1, FIRST_HEADER + length);
        Ok(())
    }

    fn broadcast_part(&self, part: Vec<u8>, wait: &mut Wait<'_>) -> Result<Vec<u8>, Error> {
        let mut requests = Requests::new();
        let index = self.way.comm().start_broadcast(part, ROOT_LEADER, &mut requests)?;
        if !self.all_done(&mut requests, wait)? {
            let others = || (1..self.layout.hosts()).map(|host| self.layout.ranks(host)[0]).collect();
            return Err(wait.late(if self.own_host == ROOT_LEADER { others() } else { vec![self.layout.root()] }));
        }
        Ok(requests.take(index))
    }

    fn all_to_all(&self, own: Vec<u8>, parts: &Parts, wait: &mut Wait<'_>) -> Result<Vec<u8>, Error> {
        let mut requests = Requests::new();
        let index = self.way.comm().start_allgatherv(own, parts, &mut requests)?;
        if self.all_done(&mut requests, wait)? {
            return Ok(requests.take(index));
        }
        // The call does not tell who is missing: everyone else may be.
        let others = (0..self.layout.hosts()).filter(|&host| host != self.own_host);
        Err(wait.late(others.map(|host| self.layout.ranks(host)[0]).collect()))
    }

    /// Sends each leader the root's data for its host; `of_hosts` is used on the root only.
    pub(crate) fn scatter(
        &mut self,
        operation: Operation,
        of_hosts: Vec<Vec<u8>>,
        deadline: &Deadline,
    ) -> Result<Vec<u8>, Error> {
        let mut wait = Wait::begin(operation.name(), deadline);
        if self.own_host != ROOT_LEADER {
            let (mut came, _) = self.receive(operation, &[ROOT_LEADER], &mut wait)?;
            let Some(message) = came[ROOT_LEADER].take() else { return Err(wait.late(vec![self.layout.root()])) };
            return Ok(message.body);
        }
        let (mut requests, mut host_of_request, mut own) = (Requests::new(), Vec::new(), Vec::new());
        for (host, body) in of_hosts.into_iter().enumerate() {
            if host == ROOT_LEADER {
                own = body;
            } else {
                self.send(operation, host, KIND_FRAMES, body, &mut requests)?;
                host_of_request.resize(requests.len(), host);
            }
        }
        if self.all_done(&mut requests, &mut wait)? {
            return Ok(own);
        }
        let mut late: Vec<Rank> =
            requests.pending().map(|index| self.layout.ranks(host_of_request[index])[0]).collect();
        late.dedup();
        Err(wait.late(late))
    }

    /// Sends this host's report to the root, with or without the frames.
    fn send_report(
        &mut self,
        operation: Operation,
        report: &Report,
        with_frames: bool,
        wait: &mut Wait<'_>,
    ) -> Result<(), Error> {
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
        let mut requests = Requests::new();
        self.send(operation, ROOT_LEADER, kind, body, &mut requests)?;
        if self.all_done(&mut requests, wait)? { Ok(()) } else { Err(wait.late(vec![self.layout.root()])) }
    }

    /// Starts to send a header and `body` to the leader of `host`.
    pub(crate) fn send(
        &mut self,
        operation: Operation,
        host: usize,
        kind: u64,
        mut body: Vec<u8>,
        requests: &mut Requests,
    ) -> Result<(), Error> {
        self.count(true, 1, HEADER + body.len());
        let mut message = Vec::with_capacity(HEADER + body.len().min(FIRST_MESSAGE));
        for number in [operation.tag(), kind, body.len() as u64] {
            message.extend_from_slice(&number.to_le_bytes());
        }
        let here = body.len().min(FIRST_MESSAGE - HEADER);
        message.extend_from_slice(&body[..here]);
        self.way.comm().start_send(message, self.way.peer(&self.layout, host), self.way.tag(TAG_FIRST), requests)?;
        if here < body.len() {
            self.way.comm().start_send(
                body.split_off(here),
                self.way.peer(&self.layout, host),
                self.way.tag(TAG_REST),
                requests,
            )?;
        }
        Ok(())
    }

    /// Receives one report from each participating host except the root's own. On time-out, all
    /// participants of the silent hosts are missing, and those that the other hosts reported.
    fn receive_reports(
        &mut self,
        operation: Operation,
        takes_part: &[bool],
        participants: &[bool],
        own: &Report,
        wait: &mut Wait<'_>,
    ) -> Result<Vec<Option<Incoming>>, Error> {
        let hosts: Vec<usize> =
            (0..self.layout.hosts()).filter(|&host| host != ROOT_LEADER && takes_part[host]).collect();
        let (reports, late) = self.receive(operation, &hosts, wait)?;
        if late.is_empty() {
            return Ok(reports);
        }
        let mut missing: Vec<Rank> = Vec::new();
        for host in late {
            missing.extend(self.layout.ranks(host).iter().filter(|&&rank| participants[rank]));
        }
        missing.extend(Self::missing_of(&reports, own));
        missing.sort_unstable();
        missing.dedup();
        Err(wait.late(missing))
    }

    /// Returns one message from the leader of each of `hosts`, by host, and the hosts whose message
    /// has not arrived when the wait is over.
    pub(crate) fn receive(
        &mut self,
        operation: Operation,
        hosts: &[usize],
        wait: &mut Wait<'_>,
    ) -> Result<(Vec<Option<Incoming>>, Vec<usize>), Error> {
        let mut requests = Requests::new();
        let mut host_of_request = hosts.to_vec();
        let mut came: Vec<Option<Incoming>> = (0..self.layout.hosts()).map(|_| None).collect();
        for &host in hosts {
            self.way.comm().start_receive(
                vec![0; FIRST_MESSAGE],
                self.way.peer(&self.layout, host),
                self.way.tag(TAG_FIRST),
                &mut requests,
            )?;
        }
        let on_time = complete(&mut requests, wait, self.watch.as_ref(), |requests, index, bytes| {
            let host = host_of_request[index];
            let mut message = requests.take(index);
            message.truncate(bytes);
            if let Some(begun) = &mut came[host] {
                begun.body.extend_from_slice(&message);
                return Ok(());
            }
            let begun = self.parse(operation, host, &message)?;
            let rest = begun.length - begun.body.len();
            if rest > 0 {
                self.way.comm().start_receive(
                    vec![0; rest],
                    self.way.peer(&self.layout, host),
                    self.way.tag(TAG_REST),
                    requests,
                )?;
                host_of_request.push(host);
            }
            came[host] = Some(begun);
            Ok(())
        })?;
        let bytes = came.iter().flatten().map(|message| HEADER + message.body.len()).sum();
        self.count(false, came.iter().flatten().count() as u64, bytes);
        let late = if on_time { Vec::new() } else { requests.pending().map(|index| host_of_request[index]).collect() };
        Ok((came, late))
    }

    pub(crate) fn all_done(&self, requests: &mut Requests, wait: &mut Wait<'_>) -> Result<bool, Error> {
        complete(requests, wait, self.watch.as_ref(), |_, _, _| Ok(()))
    }

    fn count(&mut self, sent: bool, messages: u64, bytes: usize) {
        let Traffic { messages_sent, messages_received, bytes_sent, bytes_received, .. } = &mut self.traffic;
        let (counted, of_bytes) = if sent { (messages_sent, bytes_sent) } else { (messages_received, bytes_received) };
        *counted += messages;
        *of_bytes += bytes as u64;
    }

    fn parse(&self, operation: Operation, host: usize, message: &[u8]) -> Result<Incoming, Error> {
        let numbers = (read_u64(message, 0), read_u64(message, 8), read_u64(message, 16));
        let (Some(tag), Some(kind), Some(length)) = numbers else {
            return Err(self.protocol(operation, host, format!("a message of {} bytes", message.len())));
        };
        operation.check(tag, self.layout.ranks(host)[0])?;
        if kind > KIND_MISSING || length > PAYLOAD_MAX as u64 {
            return Err(self.protocol(operation, host, format!("a message of kind {kind} and {length} bytes")));
        }
        let body = message[HEADER..].to_vec();
        Ok(Incoming { kind, length: (length as usize).max(body.len()), body })
    }

    /// The ranks that the hosts have reported missing, including the root's own host.
    fn missing_of(reports: &[Option<Incoming>], own: &Report) -> Vec<Rank> {
        let mut missing: Vec<Rank> = reports.iter().flatten().flat_map(Incoming::missing).collect();
        if let Report::Missing(ranks) = own {
            missing.extend(ranks);
        }
        missing.sort_unstable();
        missing
    }

    fn frames_of(
        &self,
        operation: Operation,
        reports: Vec<Option<Incoming>>,
        own: &Report,
        wait: &Wait<'_>,
    ) -> Result<Vec<Frames>, Error> {
        let missing = Self::missing_of(&reports, own);
        if !missing.is_empty() {
            return Err(wait.late(missing));
        }
        let mut all = Vec::with_capacity(reports.len());
        for (host, report) in reports.into_iter().enumerate() {
            all.push(match (report, own) {
                (Some(report), _) => self.decode(operation, host, &report.body)?,
                (None, Report::Frames(frames)) if host == ROOT_LEADER => frames.clone(),
                _ => Frames::default(),
            });
        }
        Ok(all)
    }

    pub(crate) fn decode(&self, operation: Operation, host: usize, encoded: &[u8]) -> Result<Frames, Error> {
        let mut frames = Frames::default();
        if frames.decode(encoded) && frames.len() == self.layout.ranks(host).len() {
            return Ok(frames);
        }
        Err(self.protocol(operation, host, format!("{} bytes that are not its host's frames", encoded.len())))
    }

    pub(crate) fn protocol(&self, operation: Operation, host: usize, what: String) -> Error {
        Error::Protocol { operation: operation.name(), rank: self.layout.ranks(host)[0], what }
    }
}

/// A report as received.
pub(crate) struct Incoming {
    kind: u64,
    length: usize,
    pub(crate) body: Vec<u8>,
}

impl Incoming {
    fn missing(&self) -> Vec<Rank> {
        if self.kind != KIND_MISSING {
            return Vec::new();
        }
        self.body.as_chunks::<8>().0.iter().map(|rank| u64::from_le_bytes(*rank) as Rank).collect()
    }
}

/// Waits until all requests are complete, including those that `on_done(requests, index, bytes)`
/// starts. Returns false if the wait is over before; the requests then keep their memory for ever.
/// The same holds if it fails because `watch` sees that a rank is lost.
pub(crate) fn complete(
    requests: &mut Requests,
    wait: &mut Wait<'_>,
    watch: Option<&Watch>,
    mut on_done: impl FnMut(&mut Requests, usize, usize) -> Result<(), Error>,
) -> Result<bool, Error> {
    let mut watched = Duration::ZERO;
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
        if let Some(watch) = watch.filter(|_| wait.elapsed() - watched >= WATCH_EVERY) {
            watched = wait.elapsed();
            if watch.sees_loss() {
                return Err(lost(wait));
            }
        }
        std::thread::sleep((wait.elapsed() / 16).clamp(SLEEP_MIN, SLEEP_MAX).min(slice));
    }
}

fn read_u64(bytes: &[u8], start: usize) -> Option<u64> {
    bytes.get(start..)?.first_chunk::<8>().map(|number| u64::from_le_bytes(*number))
}

/// Index of the root among the leaders: hosts are numbered by their lowest rank.
pub(crate) const ROOT_LEADER: usize = 0;

const TAG_FIRST: c_int = 1;
const TAG_REST: c_int = 2;

const KIND_HEADER_ONLY: u64 = 0;
pub(crate) const KIND_FRAMES: u64 = 1;
const KIND_MISSING: u64 = 2;

/// Size of a report's header, bytes: sequence, kind, length of the body.
const HEADER: usize = 24;

/// The longest first message of a report; the rest follows once the root knows its size.
const FIRST_MESSAGE: usize = 64 << 10;

/// Bytes before a broadcast: the operation and the length.
const FIRST_HEADER: usize = 16;

/// Limits of the first part of a broadcast.
const FIRST_PART_MIN: usize = 4 << 10;
const FIRST_PART_MAX: usize = 1 << 20;

/// Longest payload: a larger length means corruption.
const PAYLOAD_MAX: usize = 1 << 30;

/// Sleeps between polls of requests: a sixteenth of the time waited so far, within these limits.
/// The upper one keeps a long wait below 1 % of a core, the fraction keeps the delay that the sleep
/// adds to a short one below 7 %.
const SLEEP_MIN: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// How often a waiting leader checks whether a rank is lost.
const WATCH_EVERY: Duration = Duration::from_millis(5);

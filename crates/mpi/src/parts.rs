//! A rank's MPI resources, and each operation as performed by its host's board and the leaders.
//!
//! [`crate::MpiCollective`] numbers the operations and remembers failures. Members communicate with
//! their host's leader on the [`Board`]; leaders communicate with the root's ([`Leaders`]).

use std::time::Duration;

use probe_sync_collective::{Call, Deadline, Error, Frames, Rank, Traffic, Wait};

use crate::board::{Board, Memory};
use crate::layout::Layout;
use crate::leaders::{Leaders, Report};
use crate::operation::Operation;
use crate::raw::Communicator;
use crate::survival::Survival;
use crate::ulfm::Ulfm;
use crate::watch::Watch;
use crate::way::Way;
use crate::window::Window;
use crate::words::Words;

/// The MPI resources of this rank.
pub(crate) struct PartsOfRank {
    /// Of all ranks that ever were.
    pub(crate) comm: Communicator,
    /// Number of this rank among all that ever were.
    rank: Rank,
    host: Communicator,
    board: Board,
    window: Window,
    /// On the leader of a host, if there are several hosts.
    leaders: Option<Leaders>,
    words: Words,
    /// Messages that this rank has received.
    heard: u32,
    /// All ranks are on this host's board.
    one_host: bool,
}

impl PartsOfRank {
    /// Collective: sets up a communicator of the ranks of `host`, and one of all leaders.
    pub(crate) fn new(
        comm: Communicator,
        host: Communicator,
        leaders: Option<Communicator>,
        layout: &Layout,
        survives: Option<(Ulfm, Watch)>,
    ) -> Result<Self, Error> {
        let (ulfm, watch) = survives.unzip();
        let rank = comm.rank();
        // SAFETY: the communicator is valid, and all its ranks come here.
        let words = Words::new(unsafe { Communicator::duplicate(comm.handle()) }?, ulfm);
        let (window, memory) = Window::open(&host)?;
        let members = layout.ranks(layout.host_of()[rank]);
        let board = Board::new(memory, members.to_vec(), host.rank());
        let one_host = layout.hosts() == 1;
        let mut parts = Self { comm, rank, host, board, window, leaders: None, words, heard: 0, one_host };
        match leaders {
            Some(leaders) if layout.hosts() > 1 => parts.connect(Some(Way::OfLeaders(leaders)), layout, watch),
            single => {
                single.map_or(Ok(()), Communicator::free)?;
                parts.connect(None, layout, watch);
            }
        }
        Ok(parts)
    }

    /// After ranks were lost: recreates the board in the same memory, and the messages between the
    /// present leaders of the hosts. What was created for all ranks stays until the process ends.
    /// If it fails because another rank is lost, it is called again.
    pub(crate) fn leave_out(&mut self, layout: &Layout, survival: &Survival, deadline: &Deadline) -> Result<(), Error> {
        self.leaders = None;
        self.words.forget(survival.lost(), layout.root());
        // The new board has not counted the words that were said before: they are asked for by
        // every look.
        self.one_host = false;
        let (members, index) = (layout.ranks(layout.host_of()[self.rank]), layout.place(self.rank));
        let watch = survival.watch();
        let memory = if members.len() == 1 {
            Memory::of_one()
        } else {
            self.window.again(members.len(), index == 0, survival.losses(), deadline, &watch)?
        };
        self.board = Board::new(memory, members.to_vec(), index).led_by(layout.root());
        let way = (index == 0 && layout.hosts() > 1).then(|| survival.way());
        self.connect(way, layout, Some(watch));
        Ok(())
    }

    /// Sets up the connection between hosts, and what a sleeping rank checks.
    fn connect(&mut self, way: Option<Way>, layout: &Layout, watch: Option<Watch>) {
        if let Some(way) = way {
            // Only asked to let MPI work; the board, which does, is gone before the communicator is
            // freed.
            let copy = way.comm().same();
            let watch_of_board = watch.clone();
            // Messages of the last broadcast to other hosts may still need MPI's attention while
            // this leader sleeps until its own ranks come.
            self.board.work_while_waiting(PROGRESS_EVERY, move || {
                copy.progress();
                watch_of_board.as_ref().is_some_and(Watch::sees_loss)
            });
            let own_host = layout.host_of()[self.rank];
            self.leaders = Some(Leaders::new(way, layout.clone(), own_host, watch));
        } else if let Some(watch) = watch {
            self.board.work_while_waiting(WATCH_EVERY, move || watch.sees_loss());
        }
    }

    /// Sends a message outside the operations.
    pub(crate) fn call(&mut self, word: &[u8], traffic: &mut Traffic) -> Result<(), Error> {
        self.words.say(word, traffic)?;
        self.board.count_word();
        Ok(())
    }

    /// Returns the messages that have arrived.
    pub(crate) fn calls(&mut self, traffic: &mut Traffic) -> Result<Vec<Call>, Error> {
        if self.one_host && self.board.words() == self.heard && !self.words.under_way() {
            return Ok(Vec::new());
        }
        let heard = self.words.hear(traffic)?;
        self.heard = self.heard.wrapping_add(heard.len() as u32);
        Ok(heard)
    }

    /// Before the end: waits until pending messages are on their way.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.words.flush()
    }

    /// Traffic of the board and the leaders' messages.
    pub(crate) fn traffic(&self) -> Traffic {
        let mut sum = self.board.traffic();
        if let Some(leaders) = &self.leaders {
            let between = leaders.traffic();
            sum.messages_sent += between.messages_sent;
            sum.messages_received += between.messages_received;
            sum.bytes_sent += between.bytes_sent;
            sum.bytes_received += between.bytes_received;
        }
        sum
    }

    pub(crate) fn gather(
        &mut self,
        operation: Operation,
        layout: &Layout,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        frames.clear();
        let rank = self.rank;
        let members = layout.ranks(layout.host_of()[rank]);
        let name = operation.name();
        if rank != members[0] {
            return match participants[rank] {
                true => self.board.publish(operation, payload, &mut Wait::begin(name, deadline)),
                false => Ok(()),
            };
        }
        let own_part = Part { operation, members, participants, payload };
        let Some(leaders) = &mut self.leaders else {
            return collect_all(&mut self.board, own_part, layout, frames, Wait::begin(name, deadline));
        };
        // Early, so that the leaders' reports about missing ranks still reach the root within its
        // deadline.
        let report = report(&mut self.board, own_part, Wait::begin_early(name, deadline))?;
        let all = leaders.gather(operation, participants, &report, deadline)?;
        if rank == layout.root() {
            merge(layout, &all, frames);
        }
        Ok(())
    }

    pub(crate) fn broadcast(
        &mut self,
        operation: Operation,
        layout: &Layout,
        buffer: &mut Vec<u8>,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        let name = operation.name();
        if !self.leads(layout) {
            return self.board.listen(operation, buffer, &mut Wait::begin(name, deadline));
        }
        if let Some(leaders) = &mut self.leaders {
            self.board.leader_waits();
            leaders.broadcast(operation, buffer, deadline)?;
        }
        self.board.announce(operation, buffer, &mut Wait::begin(name, deadline))
    }

    /// Sends each rank its own frame: each leader gets those of its host, in one piece, which it
    /// announces; each rank copies its own.
    pub(crate) fn scatter(
        &mut self,
        operation: Operation,
        layout: &Layout,
        frames: &Frames,
        own: &mut Vec<u8>,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        let (rank, name) = (self.rank, operation.name());
        let host = layout.host_of()[rank];
        let place = layout.place(rank);
        if !self.leads(layout) {
            let mut picked = Pick::new(place);
            self.board.listen_with(
                operation,
                |at, bytes| picked.take(at, bytes, own),
                &mut Wait::begin(name, deadline),
            )?;
            return picked.whole(own, layout.ranks(host)[0]);
        }
        let of_hosts = if rank == layout.root() { tables(layout, frames) } else { Vec::new() };
        let of_host = match &mut self.leaders {
            Some(leaders) => {
                self.board.leader_waits();
                leaders.scatter(operation, of_hosts, deadline)?
            }
            None => of_hosts.into_iter().next().unwrap_or_default(),
        };
        self.board.announce(operation, &of_host, &mut Wait::begin(name, deadline))?;
        let mut picked = Pick::new(place);
        picked.take(0, &of_host, own);
        picked.whole(own, layout.root())
    }

    /// Distributes all payloads to all ranks: to the leaders, between them by `MPI_Iallgatherv`,
    /// and from them to their ranks.
    pub(crate) fn allgather(
        &mut self,
        operation: Operation,
        layout: &Layout,
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        let (rank, name) = (self.rank, operation.name());
        let members = layout.ranks(layout.host_of()[rank]);
        let mut encoded = Vec::new();
        if rank != members[0] {
            self.board.publish(operation, payload, &mut Wait::begin(name, deadline))?;
            self.board.listen(operation, &mut encoded, &mut Wait::begin(name, deadline))?;
            let whole = frames.decode(&encoded) && frames.len() == layout.host_of().len();
            let what = format!("{} bytes that are not everyone's frames", encoded.len());
            return if whole { Ok(()) } else { Err(Error::Protocol { operation: name, rank: members[0], what }) };
        }
        let everyone = vec![true; layout.host_of().len()];
        let own_part = Part { operation, members, participants: &everyone, payload };
        let wait = Wait::begin_early(name, deadline);
        if let Some(leaders) = &mut self.leaders {
            let report = report(&mut self.board, own_part, wait)?;
            self.board.leader_waits();
            merge(layout, &leaders.allgather(operation, &report, deadline)?, frames);
        } else {
            collect_all(&mut self.board, own_part, layout, frames, wait)?;
        }
        frames.encode(&mut encoded);
        self.board.announce(operation, &encoded, &mut Wait::begin(name, deadline))
    }

    /// Replaces an allgather that `holder` has finished and others have not: sends its frames,
    /// `encoded` there, to all.
    pub(crate) fn pass_on(
        &mut self,
        operation: Operation,
        layout: &Layout,
        holder: Rank,
        encoded: &mut Vec<u8>,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        let concerned: Vec<bool> =
            (0..layout.host_of().len()).map(|rank| rank == layout.root() || rank == holder).collect();
        let mut frames = Frames::default();
        self.gather(operation, layout, &concerned, encoded, &mut frames, deadline)?;
        if self.rank == layout.root() {
            frames.frame(holder).clone_into(encoded);
        }
        self.broadcast(operation, layout, encoded, deadline)
    }

    /// Collective: frees the MPI resources. The board goes first, because it is in the window.
    pub(crate) fn free(self) -> Result<(), Error> {
        drop(self.board);
        self.window.free()?;
        self.words.free()?;
        if let Some(leaders) = self.leaders {
            leaders.free()?;
        }
        self.host.free()?;
        self.comm.free()
    }

    fn leads(&self, layout: &Layout) -> bool {
        let rank = self.rank;
        rank == layout.ranks(layout.host_of()[rank])[0]
    }
}

/// What a leader collects from its own host.
#[derive(Copy, Clone)]
struct Part<'a> {
    operation: Operation,
    members: &'a [Rank],
    participants: &'a [bool],
    payload: &'a [u8],
}

/// Leader: collects the frames of its host's ranks in order, its own payload first.
fn collect(board: &mut Board, part: Part<'_>, frames: &mut Frames, mut wait: Wait<'_>) -> Result<(), Error> {
    let Part { operation, members, participants, payload } = part;
    frames.clear();
    let others: Vec<usize> = (1..members.len()).filter(|&member| participants[members[member]]).collect();
    frames.push(if participants[members[0]] { payload } else { &[] });
    let deliver = |member, bytes: &[u8]| {
        while frames.len() < member {
            frames.push(&[]);
        }
        frames.push(bytes);
    };
    board.collect(operation, &others, deliver, &mut wait)?;
    while frames.len() < members.len() {
        frames.push(&[]);
    }
    Ok(())
}

/// The only leader: collects the frames of all ranks; those of lost ranks are empty.
fn collect_all(
    board: &mut Board,
    part: Part<'_>,
    layout: &Layout,
    frames: &mut Frames,
    wait: Wait<'_>,
) -> Result<(), Error> {
    if part.members.len() == layout.host_of().len() {
        return collect(board, part, frames, wait);
    }
    let mut present = Frames::default();
    collect(board, part, &mut present, wait)?;
    merge(layout, &[present], frames);
    Ok(())
}

/// Leader: builds the report of its host for the root.
fn report(board: &mut Board, part: Part<'_>, wait: Wait<'_>) -> Result<Report, Error> {
    let mut own = Frames::default();
    match collect(board, part, &mut own, wait) {
        Ok(()) => Ok(Report::Frames(own)),
        Err(Error::Late { missing, .. }) => Ok(Report::Missing(missing)),
        Err(other) => Err(other),
    }
}

/// Merges the frames of all hosts in order of rank. A host that took no part has none, nor has a
/// lost rank.
fn merge(layout: &Layout, hosts: &[Frames], frames: &mut Frames) {
    frames.clear();
    for (rank, &host) in layout.host_of().iter().enumerate() {
        match hosts.get(host) {
            Some(of_host) if layout.place(rank) < of_host.len() => frames.push(of_host.frame(layout.place(rank))),
            _ => frames.push(&[]),
        }
    }
}

/// For each host, the start of each of its ranks' frames and the end of the last (`u64`), then the
/// frames.
fn tables(layout: &Layout, frames: &Frames) -> Vec<Vec<u8>> {
    let table = |host: usize| {
        let ranks = layout.ranks(host);
        let mut end = (ranks.len() + 1) * ENTRY;
        let mut table = (end as u64).to_le_bytes().to_vec();
        for &rank in ranks {
            end += frames.frame(rank).len();
            table.extend_from_slice(&(end as u64).to_le_bytes());
        }
        ranks.iter().for_each(|&rank| table.extend_from_slice(frames.frame(rank)));
        table
    };
    (0..layout.hosts()).map(table).collect()
}

/// Extracts one rank's frame from the result of [`tables`], which arrives in pieces.
struct Pick {
    place: usize,
    /// Start and end of the frame, as far as they have arrived.
    ends: [u8; 2 * ENTRY],
    copied: usize,
    range: Option<std::ops::Range<usize>>,
}

impl Pick {
    fn new(place: usize) -> Self {
        Self { place, ends: [0; 2 * ENTRY], copied: 0, range: None }
    }

    /// Processes the piece that begins at `at`.
    fn take(&mut self, at: usize, bytes: &[u8], own: &mut Vec<u8>) {
        if at == 0 {
            own.clear();
        }
        let table = (self.place * ENTRY)..((self.place + 2) * ENTRY);
        let here = overlap(&table, at, bytes.len());
        if !here.is_empty() {
            self.ends[here.start - table.start..here.end - table.start]
                .copy_from_slice(&bytes[here.start - at..here.end - at]);
        }
        self.copied += here.len();
        if self.copied == table.len() && self.range.is_none() {
            let [start, end] = [0, ENTRY].map(|from| read(&self.ends, from));
            self.range = Some(start..end.max(start));
        }
        if let Some(range) = &self.range {
            let here = overlap(range, at, bytes.len());
            own.extend_from_slice(&bytes[here.start - at..here.end - at]);
        }
    }

    /// Checks that the frame is complete; `leader` has sent it.
    fn whole(self, own: &[u8], leader: Rank) -> Result<(), Error> {
        match self.range {
            Some(range) if range.len() == own.len() => Ok(()),
            range => {
                let what = format!("{} bytes of the frame {range:?}", own.len());
                Err(Error::Protocol { operation: "scatter", rank: leader, what })
            }
        }
    }
}

fn overlap(range: &std::ops::Range<usize>, at: usize, length: usize) -> std::ops::Range<usize> {
    let start = range.start.clamp(at, at + length);
    start..range.end.clamp(start, at + length)
}

fn read(bytes: &[u8], from: usize) -> usize {
    let number = bytes.get(from..).and_then(|rest| rest.first_chunk::<ENTRY>());
    number.map_or(usize::MAX, |number| usize::try_from(u64::from_le_bytes(*number)).unwrap_or(usize::MAX))
}

/// Size of an entry of a table, bytes.
const ENTRY: usize = 8;

/// How often a sleeping leader lets MPI make progress on messages to other hosts.
const PROGRESS_EVERY: Duration = Duration::from_millis(10);

/// How often another sleeping rank checks whether a rank is lost.
const WATCH_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_picks_its_own_frame_out_of_pieces_of_any_length() {
        let layout = Layout::new(&[0, 1, 0, 0, 1], None);
        let mut frames = Frames::default();
        let of = |rank: usize| vec![rank as u8; [0, 7, 40, 1, 0][rank]];
        (0..5).for_each(|rank| frames.push(&of(rank)));
        for (host, table) in tables(&layout, &frames).into_iter().enumerate() {
            for (place, &rank) in layout.ranks(host).iter().enumerate() {
                for piece in [1, 3, 8, 64, 4096] {
                    let (mut picked, mut own) = (Pick::new(place), vec![9; 3]);
                    for (index, bytes) in table.chunks(piece).enumerate() {
                        picked.take(index * piece, bytes, &mut own);
                    }
                    picked.whole(&own, 0).expect("all has come");
                    assert_eq!(own, of(rank), "rank {rank}, pieces of {piece}");
                }
            }
        }
    }

    #[test]
    fn a_table_that_promises_more_than_has_come_names_the_leader() {
        let mut own = Vec::new();
        for table in [vec![], vec![0; 7], [&16u64.to_le_bytes()[..], &99u64.to_le_bytes(), b"short"].concat()] {
            let mut picked = Pick::new(0);
            picked.take(0, &table, &mut own);
            let error = picked.whole(&own, 4).expect_err("not whole").to_string();
            assert!(error.contains("rank 4"), "{error}");
        }
    }
}

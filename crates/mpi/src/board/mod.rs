//! The board on which the ranks of one host exchange data: a slot per rank for gathers, a ring of
//! pages for broadcasts.
//!
//! It lies in the shared memory of [`crate::window`]. The leader collects and announces; the other
//! members publish and listen.
//!
//! Gather: a member copies its payload into its slot, then raises the slot's `published`, then
//! rings the doorbell. The leader sleeps on the doorbell until as many have rung as it waits for
//! (`wake_at`), so that it is woken once and not once per member; it reads the slots and raises
//! their `taken`. Broadcast: the leader fills the next page of the ring, raises `announced`, and
//! wakes everyone who sleeps on it. Longer payloads go in pieces of [`PIECE`] bytes.
//!
//! Every piece carries the [`Operation`] that it belongs to. Who reads one of another operation
//! names its writer and goes no further: a rank that has let go of its end is not one that has
//! nothing to say.
//!
//! Sleeping is a futex on the shared word, after at most 50 µs of looking ([`Wait::may_look`]). No
//! sleeper can be missed: it says that it will sleep, then looks again, then sleeps on the value
//! that it saw; its peer changes the value, then looks whether anyone said so (all sequentially
//! consistent). Whoever only looks says nothing, so nobody makes a system call for it. It does not
//! depend on MPI; the tests run it on plain memory between threads.

mod memory;
#[cfg(test)]
mod tests;

pub(crate) use memory::{ALIGNMENT, Memory, bytes};

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

use probe_sync_collective::{Error, ROOT, Rank, Traffic, Wait};
use rustix::io::Errno;
use rustix::thread::futex;

use crate::operation::Operation;
use memory::{PAGES, PIECE};

/// One member's view of the board.
pub(crate) struct Board {
    memory: Memory,
    ranks: Vec<Rank>,
    /// Index of this member in `ranks`; 0 is the leader.
    index: usize,
    /// More members than cores: polling without yielding the core would keep the awaited peer from
    /// running.
    crowded: bool,
    /// The longest sleep, and what to do after it.
    sleep_max: Duration,
    after_sleep: Option<Box<dyn Fn() -> bool>>,
    /// Pieces published by this member; at the leader, pieces taken from each.
    published: Vec<u32>,
    /// Pieces announced or read so far.
    announced: u32,
    /// Number of pieces that all members have read; at the leader only.
    heard_by_all: u32,
    /// The rank that a leader waits for.
    root: Rank,
    traffic: Traffic,
}

impl Board {
    /// Creates a member's view of the board in `memory`; `ranks` are the ranks of the members, the
    /// leader's first. Every member has an `index` of its own.
    pub(crate) fn new(memory: Memory, ranks: Vec<Rank>, index: usize) -> Self {
        assert_eq!(memory.members(), ranks.len(), "the memory was made for these members");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            memory,
            crowded: ranks.len() > cores,
            index,
            sleep_max: Wait::SLICE,
            after_sleep: None,
            published: vec![0; ranks.len()],
            announced: 0,
            heard_by_all: 0,
            root: ROOT,
            traffic: Traffic::default(),
            ranks,
        }
    }

    /// Sets a root other than rank 0.
    pub(crate) fn led_by(self, root: Rank) -> Self {
        Self { root, ..self }
    }

    /// Sleeps at most `sleep_max` at a time, and calls `work` after each sleep; if that returns
    /// true, a rank is lost, and waits fail.
    pub(crate) fn work_while_waiting(&mut self, sleep_max: Duration, work: impl Fn() -> bool + 'static) {
        self.sleep_max = sleep_max;
        self.after_sleep = Some(Box::new(work));
    }

    /// What this member has written and read. A broadcast is written once, however many members
    /// read it.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Used if all ranks are on this board: counts one more message outside the operations, sent by
    /// the root or to it.
    pub(crate) fn count_word(&self) {
        self.memory.head().words[usize::from(self.index > 0)].fetch_add(1, Release);
    }

    /// Used if all ranks are on this board: the number of messages sent to this rank.
    pub(crate) fn words(&self) -> u32 {
        self.memory.head().words[usize::from(self.index == 0)].load(Acquire)
    }

    /// Member: passes `payload` to the leader. Waits only while the leader has not taken earlier
    /// pieces.
    pub(crate) fn publish(&mut self, operation: Operation, payload: &[u8], wait: &mut Wait<'_>) -> Result<(), Error> {
        let slot = self.memory.slot(self.index);
        for piece in pieces(payload) {
            let before = self.published[self.index];
            let ready = || slot.taken.load(SeqCst) == before;
            let says = |sleeps: bool| slot.writer_sleeps.store(sleeps.into(), SeqCst);
            while !ready() {
                if !self.sleep(&slot.taken, says, ready, wait)? {
                    return Err(wait.late(vec![self.ranks[0]]));
                }
            }
            slot.length.store(payload.len() as u64, Relaxed);
            slot.tag.store(operation.tag(), Relaxed);
            // SAFETY: the leader has taken what was there, and reads this only after `published`
            // was raised.
            unsafe { self.memory.fill_slot(self.index, piece) };
            self.published[self.index] = before.wrapping_add(1);
            slot.published.store(before.wrapping_add(1), Release);
            self.ring();
        }
        self.traffic.messages_sent += 1;
        self.traffic.bytes_sent += payload.len() as u64;
        Ok(())
    }

    /// Leader: passes the payload of each of `members` (indices into `ranks`, ascending, without
    /// the leader's own) to `deliver`, in this order.
    pub(crate) fn collect(
        &mut self,
        operation: Operation,
        members: &[usize],
        mut deliver: impl FnMut(usize, &[u8]),
        wait: &mut Wait<'_>,
    ) -> Result<(), Error> {
        let mut pending = members.to_vec();
        loop {
            let rung = self.memory.head().doorbell.load(SeqCst);
            pending.retain(|&member| !self.has_published(member));
            if pending.is_empty() {
                break;
            }
            if !self.await_rings(rung, pending.len() as u32, wait)? {
                // Some may have come, too few to wake this leader.
                pending.retain(|&member| !self.has_published(member));
                if pending.is_empty() {
                    break;
                }
                return Err(wait.late(pending.iter().map(|&member| self.ranks[member]).collect()));
            }
        }
        let mut long = Vec::new();
        for &member in members {
            let slot = self.memory.slot(member);
            operation.check(slot.tag.load(Relaxed), self.ranks[member])?;
            let length = slot.length.load(Relaxed);
            if length > PAYLOAD_MAX {
                let what = format!("a payload of {length} bytes; at most {PAYLOAD_MAX} are allowed");
                return Err(Error::Protocol { operation: wait.operation(), rank: self.ranks[member], what });
            }
            let length = length as usize;
            self.traffic.messages_received += 1;
            self.traffic.bytes_received += length as u64;
            // SAFETY: the member has published this piece and does not touch it until it is taken.
            let first = unsafe { self.memory.slot_bytes(member, length.min(PIECE)) };
            if length <= PIECE {
                deliver(member, first);
                self.take(member)?;
                continue;
            }
            long.clear();
            long.extend_from_slice(first);
            self.take(member)?;
            self.collect_rest(operation, member, length, &mut long, wait)?;
            deliver(member, &long);
        }
        Ok(())
    }

    /// Leader: sends `payload` to all other members.
    pub(crate) fn announce(&mut self, operation: Operation, payload: &[u8], wait: &mut Wait<'_>) -> Result<(), Error> {
        for piece in pieces(payload) {
            let next = self.announced.wrapping_add(1);
            self.await_free_page(next, wait)?;
            let head = self.memory.head();
            let page = next as usize % PAGES;
            head.announcement.lengths[page].store(payload.len() as u64, Relaxed);
            head.announcement.tags[page].store(operation.tag(), Relaxed);
            // SAFETY: all have heard what was there, and read this only after `announced` was
            // raised.
            unsafe { self.memory.fill_page(page, piece) };
            self.announced = next;
            head.announcement.count.store(next, SeqCst);
            if head.announcement.sleepers.load(SeqCst) != 0 {
                wake(&head.announcement.count, EVERYONE)?;
            }
        }
        if self.ranks.len() > 1 {
            self.traffic.messages_sent += 1;
            self.traffic.bytes_sent += payload.len() as u64;
        }
        Ok(())
    }

    /// Leader: tells the members that it has reached the next broadcast, and waits for the root
    /// itself.
    pub(crate) fn leader_waits(&self) {
        self.memory.head().announcement.leader_at.store(self.announced.wrapping_add(1), Relaxed);
    }

    /// Member: receives the leader's next payload, replacing the contents of `buffer`.
    pub(crate) fn listen(
        &mut self,
        operation: Operation,
        buffer: &mut Vec<u8>,
        wait: &mut Wait<'_>,
    ) -> Result<(), Error> {
        buffer.clear();
        self.listen_with(operation, |_, bytes| buffer.extend_from_slice(bytes), wait)
    }

    /// Member: receives the leader's next payload in pieces, each with its position in the payload.
    pub(crate) fn listen_with(
        &mut self,
        operation: Operation,
        mut take: impl FnMut(usize, &[u8]),
        wait: &mut Wait<'_>,
    ) -> Result<(), Error> {
        let mut taken = 0;
        loop {
            let next = self.announced.wrapping_add(1);
            self.await_announcement(next, wait)?;
            let (head, page) = (self.memory.head(), next as usize % PAGES);
            operation.check(head.announcement.tags[page].load(Relaxed), self.ranks[0])?;
            let length = head.announcement.lengths[page].load(Relaxed);
            if length > PAYLOAD_MAX {
                let what = format!("a broadcast of {length} bytes; at most {PAYLOAD_MAX} are allowed");
                return Err(Error::Protocol { operation: wait.operation(), rank: self.ranks[0], what });
            }
            let length = length as usize;
            let here = (length - taken.min(length)).min(PIECE);
            // SAFETY: the leader has announced this page, and does not touch it until all have
            // heard it.
            take(taken, unsafe { self.memory.page_bytes(page, here) });
            taken += here;
            self.announced = next;
            self.memory.slot(self.index).heard.store(next, SeqCst);
            if head.leader_wants_hearing.load(SeqCst) != 0 {
                head.doorbell.fetch_add(1, SeqCst);
                wake(&head.doorbell, 1)?;
            }
            if taken >= length {
                self.traffic.messages_received += 1;
                self.traffic.bytes_received += length as u64;
                return Ok(());
            }
        }
    }

    /// Leader: collects the pieces of `member` after the first.
    fn collect_rest(
        &mut self,
        operation: Operation,
        member: usize,
        length: usize,
        payload: &mut Vec<u8>,
        wait: &mut Wait<'_>,
    ) -> Result<(), Error> {
        while payload.len() < length {
            loop {
                let rung = self.memory.head().doorbell.load(SeqCst);
                if self.has_published(member) {
                    break;
                }
                if !self.await_rings(rung, 1, wait)? {
                    return Err(wait.late(vec![self.ranks[member]]));
                }
            }
            operation.check(self.memory.slot(member).tag.load(Relaxed), self.ranks[member])?;
            let here = (length - payload.len()).min(PIECE);
            // SAFETY: as in `collect`.
            payload.extend_from_slice(unsafe { self.memory.slot_bytes(member, here) });
            self.take(member)?;
        }
        Ok(())
    }

    fn has_published(&self, member: usize) -> bool {
        self.memory.slot(member).published.load(Acquire) != self.published[member]
    }

    /// Leader: frees the slot of `member`.
    fn take(&mut self, member: usize) -> Result<(), Error> {
        let taken = self.published[member].wrapping_add(1);
        self.published[member] = taken;
        let slot = self.memory.slot(member);
        slot.taken.store(taken, SeqCst);
        if slot.writer_sleeps.load(SeqCst) != 0 {
            wake(&slot.taken, 1)?;
        }
        Ok(())
    }

    /// Member: announces one more piece. Wakes the leader if it sleeps until this one.
    fn ring(&self) {
        let head = self.memory.head();
        let rung = head.doorbell.fetch_add(1, SeqCst).wrapping_add(1);
        if rung == head.wake_at.load(SeqCst) {
            // Cannot fail on a word of mapped memory; if it did, the leader would look again after
            // its sleep.
            let _ = wake(&head.doorbell, 1);
        }
    }

    /// Leader: sleeps until the doorbell has rung `count` times since it stood at `rung`. Returns
    /// false when the wait is over.
    ///
    /// Members still missing after the doorbell was read have yet to ring, so it cannot ring too
    /// few times; rings of others may end the sleep early, and the caller checks again.
    fn await_rings(&self, rung: u32, count: u32, wait: &mut Wait<'_>) -> Result<bool, Error> {
        let head = self.memory.head();
        let reached = || head.doorbell.load(SeqCst).wrapping_sub(rung) >= count;
        let says = |sleeps: bool| head.wake_at.store(rung.wrapping_add(if sleeps { count } else { 0 }), SeqCst);
        while !reached() {
            if !self.sleep(&head.doorbell, says, reached, wait)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Leader: waits until all members have read the page needed for piece `next`.
    fn await_free_page(&mut self, next: u32, wait: &mut Wait<'_>) -> Result<(), Error> {
        if next.wrapping_sub(self.heard_by_all) <= PAGES as u32 {
            return Ok(());
        }
        let behind = |board: &Self, by: u32| -> Vec<usize> {
            let lag = |&member: &usize| next.wrapping_sub(board.memory.slot(member).heard.load(SeqCst)) > by;
            (1..board.ranks.len()).filter(lag).collect()
        };
        loop {
            let rung = self.memory.head().doorbell.load(SeqCst);
            let late = behind(self, PAGES as u32);
            if late.is_empty() {
                // Remember how far everyone is, so that most broadcasts need not look.
                let furthest = (1..=PAGES as u32).find(|&by| behind(self, by).is_empty());
                self.heard_by_all = next.wrapping_sub(furthest.unwrap_or(PAGES as u32));
                return Ok(());
            }
            let head = self.memory.head();
            let says = |sleeps: bool| head.leader_wants_hearing.store(sleeps.into(), SeqCst);
            // Rings are of pieces, too; then this looks again.
            let changed = || head.doorbell.load(SeqCst) != rung || behind(self, PAGES as u32).is_empty();
            if !self.sleep(&head.doorbell, says, changed, wait)? {
                return Err(wait.late(late.into_iter().map(|member| self.ranks[member]).collect()));
            }
        }
    }

    /// Member: sleeps until piece `next` is announced.
    fn await_announcement(&self, next: u32, wait: &mut Wait<'_>) -> Result<(), Error> {
        let announcement = &self.memory.head().announcement;
        let there = || announcement.count.load(SeqCst).wrapping_sub(next) as i32 >= 0;
        let says = |sleeps: bool| {
            let by = if sleeps { 1 } else { u32::MAX };
            announcement.sleepers.fetch_add(by, SeqCst);
        };
        while !there() {
            if !self.sleep(&announcement.count, says, there, wait)? {
                let leader_waits = announcement.leader_at.load(Relaxed) == next;
                return Err(wait.late(vec![if leader_waits { self.root } else { self.ranks[0] }]));
            }
        }
        Ok(())
    }

    /// Polls for a while; if that fails, announces with `says` that it sleeps, and sleeps once on
    /// `word` unless it is `ready` by then. Returns false when the wait is over.
    fn sleep(
        &self,
        word: &AtomicU32,
        says: impl Fn(bool),
        ready: impl Fn() -> bool,
        wait: &mut Wait<'_>,
    ) -> Result<bool, Error> {
        if self.look(&ready, wait) {
            return Ok(true);
        }
        let Some(slice) = wait.slice() else { return Ok(false) };
        says(true);
        let seen = word.load(SeqCst);
        let slept = if ready() { Ok(false) } else { self.futex(word, seen, slice.min(self.sleep_max), wait) };
        says(false);
        // What was written before a rank was lost is still there.
        if slept? && !ready() {
            return Err(lost(wait));
        }
        Ok(true)
    }

    /// Sleeps once; returns true if a rank is lost.
    fn futex(&self, word: &AtomicU32, seen: u32, limit: Duration, wait: &Wait<'_>) -> Result<bool, Error> {
        let limit = futex::Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        match futex::wait(word, futex::Flags::empty(), seen, Some(&limit)) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(Errno::TIMEDOUT) => Ok(self.after_sleep.as_ref().is_some_and(|work| work())),
            Err(error) => Err(Error::Backend { operation: wait.operation(), reason: format!("futex: {error}") }),
        }
    }

    /// Polls for as long as the wait may; returns true once `ready`.
    fn look(&self, ready: &impl Fn() -> bool, wait: &mut Wait<'_>) -> bool {
        loop {
            if ready() {
                return true;
            }
            if !wait.may_look(self.crowded) {
                return false;
            }
            if self.crowded {
                rustix::thread::sched_yield();
                continue;
            }
            for _ in 0..LOOKS_PER_READING {
                if ready() {
                    return true;
                }
                std::hint::spin_loop();
            }
        }
    }
}

/// The error that ends a wait early; which rank is lost is determined afterwards.
pub(crate) fn lost(wait: &Wait<'_>) -> Error {
    Error::Backend { operation: wait.operation(), reason: "a rank is lost".to_owned() }
}

/// A payload in pieces; an empty payload is one empty piece.
fn pieces(payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..payload.len().div_ceil(PIECE).max(1)).map(|piece| {
        let start = piece * PIECE;
        &payload[start..payload.len().min(start + PIECE)]
    })
}

fn wake(word: &AtomicU32, sleepers: u32) -> Result<(), Error> {
    match futex::wake(word, futex::Flags::empty(), sleepers) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Backend { operation: "waking", reason: format!("futex: {error}") }),
    }
}

/// Longest payload: a larger length means corruption.
const PAYLOAD_MAX: u64 = 1 << 30;

/// Polls between two readings of the clock.
const LOOKS_PER_READING: u32 = 16;

/// Number of sleepers to wake: all of them.
const EVERYONE: u32 = i32::MAX as u32;

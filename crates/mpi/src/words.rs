//! Words between the operations, from the root to every rank and from every rank to the root.
//!
//! They implement `call` and `calls` of [`crate::MpiCollective`], on a separate communicator, so
//! that a word never mixes with an operation. A check that finds nothing is one `MPI_Iprobe`, which
//! also advances MPI's other pending work, such as a leader's parts of a broadcast to other hosts.
//! A word is sent in pieces small enough for every transport to send at once without a handshake
//! with the receiver, so a rank may send a word and exit. Every rank communicates with the root
//! directly: the connections exist since the start ([`crate::meeting`]), and a leader asleep in an
//! operation would delay words that passed through it. If all ranks share a host, the words are
//! counted on the board, and a check that finds nothing is one load. A message is one byte, 1 for
//! the last piece of a word and 0 before that, followed by the piece. It does not wait for the
//! receiver.

use std::time::{Duration, Instant};

use probe_sync_collective::{Call, Error, ROOT, Rank, Traffic, WORD_MAX, check_word};

use crate::mail::Mail;
use crate::raw::Communicator;
use crate::ulfm::Ulfm;

/// One rank's messages outside the operations.
#[derive(Debug)]
pub(crate) struct Words {
    comm: Communicator,
    /// Present if the group may continue without a lost rank.
    ulfm: Option<Ulfm>,
    /// Ranks that are not sent to.
    lost: Vec<bool>,
    root: Rank,
    mail: Mail,
    /// Incomplete messages received so far, by rank.
    begun: Vec<Vec<u8>>,
}

impl Words {
    /// Creates it; `comm` must be for its exclusive use.
    pub(crate) fn new(comm: Communicator, ulfm: Option<Ulfm>) -> Self {
        let size = comm.size();
        Self { begun: vec![Vec::new(); size], lost: vec![false; size], root: ROOT, comm, ulfm, mail: Mail::new() }
    }

    /// Starts to send `word`: the root to all, any other rank to the root.
    pub(crate) fn say(&mut self, word: &[u8], traffic: &mut Traffic) -> Result<(), Error> {
        check_word(self.comm.rank(), word)?;
        if self.mail.unsent() > UNSENT_MAX {
            let reason = format!("more than {UNSENT_MAX} messages that were not received");
            return Err(Error::Backend { operation: "call", reason });
        }
        let (own, root) = (self.comm.rank(), self.root);
        let hears = |hearer: &Rank| !self.lost[*hearer] && if own == root { *hearer != own } else { *hearer == root };
        for hearer in (0..self.comm.size()).filter(hears).collect::<Vec<_>>() {
            let mut left = word;
            loop {
                let (piece, rest) = left.split_at(left.len().min(PIECE));
                let message = [&[u8::from(rest.is_empty())], piece].concat();
                traffic.messages_sent += 1;
                traffic.bytes_sent += message.len() as u64;
                let sent = self.mail.send(&self.comm, hearer, message);
                self.unless_lost(sent)?;
                left = rest;
                if left.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Complete messages received.
    pub(crate) fn hear(&mut self, traffic: &mut Traffic) -> Result<Vec<Call>, Error> {
        let mut heard = Vec::new();
        for _ in 0..LOOKS_MAX {
            let next = self.mail.next(&self.comm);
            let Some((from, message)) = self.unless_lost(next)?.flatten() else { break };
            if self.lost.get(from) == Some(&true) {
                continue;
            }
            traffic.messages_received += 1;
            traffic.bytes_received += message.len() as u64;
            let whole = message.split_first().filter(|(last, _)| **last <= 1);
            let begun = self.begun.get_mut(from);
            let (Some((last, piece)), Some(begun)) = (whole, begun) else {
                let what = format!("a message of {} bytes that is not a word", message.len());
                return Err(Error::Protocol { operation: "calls", rank: from, what });
            };
            begun.extend_from_slice(piece);
            if begun.len() > WORD_MAX {
                let what = format!("a word of more than {WORD_MAX} bytes");
                return Err(Error::Protocol { operation: "calls", rank: from, what });
            }
            if *last == 1 {
                heard.push((from, std::mem::take(begun)));
            }
        }
        Ok(heard)
    }

    /// Sets the lost ranks and the present root: no messages go to or come from lost ranks, and
    /// their incomplete messages are dropped.
    pub(crate) fn forget(&mut self, lost: &[bool], root: Rank) {
        (self.lost, self.root) = (lost.to_vec(), root);
        for (begun, _) in self.begun.iter_mut().zip(lost).filter(|(_, lost)| **lost) {
            begun.clear();
        }
    }

    /// A failure that may concern a lost rank shows in the next operation, not here.
    fn unless_lost<T>(&mut self, result: Result<T, Error>) -> Result<Option<T>, Error> {
        match (result, self.ulfm) {
            (Err(_), Some(ulfm)) if ulfm.failed(self.comm.handle()).is_ok_and(|failed| !failed.is_empty()) => {
                self.mail = Mail::new();
                ulfm.acknowledge(&self.comm);
                Ok(None)
            }
            (result, _) => result.map(Some),
        }
    }

    /// A message is still being sent, or one received is incomplete.
    pub(crate) fn under_way(&self) -> bool {
        self.mail.under_way() || self.begun.iter().any(|begun| !begun.is_empty())
    }

    /// Before the end: waits until pending messages are on their way.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let started = Instant::now();
        while self.mail.sending() && started.elapsed() < FLUSH_LIMIT {
            self.hear(&mut Traffic::default())?;
            std::thread::sleep(FLUSH_PAUSE);
        }
        Ok(())
    }

    /// Collective, after all have flushed: frees the communicator. Messages that were not fetched
    /// are lost.
    pub(crate) fn free(mut self) -> Result<(), Error> {
        self.hear(&mut Traffic::default())?;
        // A communicator with something under way stays until the process ends.
        if self.mail.sending() { Ok(()) } else { self.comm.free() }
    }
}

/// Bytes of a message sent at once: below what any transport sends eagerly (Open MPI within a host:
/// 4 KiB with its own header).
const PIECE: usize = 2048;

/// Most messages being sent; a rank that never checks must not fill the memory of the others.
const UNSENT_MAX: usize = 1 << 16;

/// Messages taken per check; the rest is taken by the next one.
const LOOKS_MAX: usize = 4096;

const FLUSH_LIMIT: Duration = Duration::from_secs(1);
const FLUSH_PAUSE: Duration = Duration::from_micros(200);

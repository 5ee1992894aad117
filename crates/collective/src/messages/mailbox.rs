//! One rank's queues of outgoing and incoming messages, and the format of a message.
//!
//! It connects the thread that waits ([`super::ByMessages`]) with the thread that moves messages
//! ([`super::Carrier`]).
//!
//! A message is nine bytes and its content: a kind, and a number, little-endian. Of frames and
//! decisions the number counts them, so that two ranks that have lost step notice; of an end it is
//! the rank that ended, and the content says why; of a word beside the operations it is 0.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::{Call, Error, ROOT, Rank, Traffic, WORD_MAX};

/// Queues of one rank's messages.
#[derive(Debug)]
pub(super) struct Mailbox {
    mail: Mutex<Mail>,
    /// Signals that a message has arrived.
    pub changed: Condvar,
}

#[derive(Debug)]
pub(super) struct Mail {
    rank: Rank,
    /// Messages to send, with their receivers.
    outgoing: VecDeque<(Rank, Vec<u8>)>,
    /// Frames of each rank at the root, decisions of the root elsewhere; numbers and contents.
    incoming: Vec<VecDeque<(u64, Vec<u8>)>>,
    /// Messages not requested yet, and their number by rank.
    heard: Vec<Call>,
    unheard: Vec<usize>,
    /// True if a thread waits for messages.
    pub waiting: bool,
    /// True if messages were requested since none were last found.
    pub asked: bool,
    pub traffic: Traffic,
    /// When messages were last moved, or could have been.
    pub moved: Instant,
    /// Rank that has ended the run, and why.
    pub ended: Option<(Rank, String)>,
    /// Why messages can no longer be moved.
    pub broken: Option<String>,
}

impl Mailbox {
    pub fn new(rank: Rank, size: usize) -> Arc<Self> {
        let incoming = vec![VecDeque::new(); size];
        let mail = Mail {
            rank,
            outgoing: VecDeque::new(),
            incoming,
            heard: Vec::new(),
            unheard: vec![0; size],
            waiting: false,
            asked: false,
            traffic: Traffic::default(),
            moved: Instant::now(),
            ended: None,
            broken: None,
        };
        Arc::new(Self { mail: Mutex::new(mail), changed: Condvar::new() })
    }

    pub fn open(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the group as broken; the first reason counts.
    pub fn broken(&self, reason: String) {
        let mut mail = self.open();
        mail.broken.get_or_insert(reason);
        mail.outgoing.clear();
        drop(mail);
        self.changed.notify_all();
    }

    /// Delivers a received message to its queue.
    pub fn deliver(&self, from: Rank, message: &[u8]) {
        let mut mail = self.open();
        if let Err(what) = mail.deliver(from, message) {
            let reason = Error::Protocol { operation: "receive", rank: from, what }.to_string();
            mail.broken.get_or_insert(reason);
        }
        drop(mail);
        self.changed.notify_all();
    }
}

impl Mail {
    /// Queues a frame for the root or a decision of the root.
    pub fn send(&mut self, to: Rank, number: u64, content: &[u8]) {
        let kind = if to == ROOT { FRAME } else { DECISION };
        self.outgoing.push_back((to, message(kind, number, content)));
    }

    /// Queues a message: from the root for all, from another rank for the root. Returns false if
    /// too many are queued already.
    pub fn say(&mut self, word: &[u8]) -> bool {
        let hearers = if self.rank == ROOT { 1..self.incoming.len() } else { ROOT..ROOT + 1 };
        if self.outgoing.len() > AHEAD_MAX * hearers.len() {
            return false;
        }
        self.outgoing.extend(hearers.map(|hearer| (hearer, message(WORD, 0, word))));
        true
    }

    /// Removes and returns the messages received since the previous call.
    pub fn take_heard(&mut self) -> Vec<Call> {
        self.unheard.fill(0);
        std::mem::take(&mut self.heard)
    }

    /// Returns the next message to send.
    pub fn next_outgoing(&mut self) -> Option<(Rank, Vec<u8>)> {
        let next = self.outgoing.pop_front();
        if let Some((_, message)) = &next {
            self.traffic.messages_sent += 1;
            self.traffic.bytes_sent += message.len() as u64;
        }
        next
    }

    /// Returns true if a message is waiting to be sent.
    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Returns true if something from `from` is waiting to be read.
    pub fn has_come(&self, from: Rank) -> bool {
        !self.incoming[from].is_empty()
    }

    /// Returns the next content from `from`, which must have this number.
    pub fn read(&mut self, from: Rank, expected: u64, operation: &'static str) -> Result<Option<Vec<u8>>, Error> {
        match self.incoming[from].pop_front() {
            Some((number, content)) if number == expected => Ok(Some(content)),
            Some((number, _)) => {
                let what = format!("message {number} instead of message {expected}");
                Err(Error::Protocol { operation, rank: from, what })
            }
            None => Ok(None),
        }
    }

    /// Tells the others, once, that `culprit` has ended the run: the root tells all, the others
    /// tell the root.
    pub fn tell_end(&mut self, culprit: Rank, reason: &str) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some((culprit, reason.to_owned()));
        let message = message(END, culprit as u64, &reason.as_bytes()[..reason.len().min(REASON_MAX)]);
        let told = if self.rank == ROOT { 1..self.incoming.len() } else { ROOT..ROOT + 1 };
        self.outgoing.extend(told.filter(|rank| *rank != culprit).map(|rank| (rank, message.clone())));
    }

    fn deliver(&mut self, from: Rank, message: &[u8]) -> Result<(), String> {
        let size = self.incoming.len();
        let header = message.split_first().and_then(|(kind, rest)| Some((*kind, rest.split_first_chunk::<8>()?)));
        let Some((kind, (number, content))) = header else {
            return Err(format!("a message of {} bytes", message.len()));
        };
        let number = u64::from_le_bytes(*number);
        let Some(incoming) = self.incoming.get_mut(from) else { return Err(format!("a message in a group of {size}")) };
        self.traffic.messages_received += 1;
        self.traffic.bytes_received += message.len() as u64;
        let between = (self.rank == ROOT) != (from == ROOT);
        let right_way = (kind == FRAME) == (self.rank == ROOT) && (self.rank == ROOT || from == ROOT);
        match kind {
            END => {
                let culprit = usize::try_from(number).ok().filter(|rank| *rank < size).unwrap_or(from);
                let reason = String::from_utf8_lossy(content).into_owned();
                if self.rank == ROOT {
                    self.tell_end(culprit, &reason);
                } else {
                    self.ended.get_or_insert((culprit, reason));
                }
                Ok(())
            }
            WORD if between && content.len() <= WORD_MAX && self.unheard[from] < AHEAD_MAX => {
                self.unheard[from] += 1;
                self.heard.push((from, content.to_vec()));
                Ok(())
            }
            WORD if between => Err(format!(
                "a word of {} bytes (at most {WORD_MAX}) after {} unread words (at most {AHEAD_MAX})",
                content.len(),
                self.unheard[from]
            )),
            FRAME | DECISION if right_way && incoming.len() < AHEAD_MAX => {
                incoming.push_back((number, content.to_vec()));
                Ok(())
            }
            FRAME | DECISION if right_way => Err(format!("more than {AHEAD_MAX} unread messages")),
            _ => Err(format!("a message of kind {kind} to rank {}", self.rank)),
        }
    }
}

fn message(kind: u8, number: u64, content: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(9 + content.len());
    message.push(kind);
    message.extend_from_slice(&number.to_le_bytes());
    message.extend_from_slice(content);
    message
}

const FRAME: u8 = 1;
const DECISION: u8 = 2;
const END: u8 = 3;
const WORD: u8 = 4;

/// Most operations by which a rank may be ahead; more mean that it is not a valid rank.
const AHEAD_MAX: usize = 1024;

/// Longest text with the reason for the end of a run, bytes.
const REASON_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_of_a_peer_end_this_rank(rank in 0..3usize, messages in proptest::collection::vec((0..4usize, 0..5u8, proptest::collection::vec(any::<u8>(), 0..24)), 0..8)) {
            let mailbox = Mailbox::new(rank, 3);
            for (from, kind, rest) in messages {
                mailbox.deliver(from, &[&[kind][..], &rest].concat());
            }
            let mut mail = mailbox.open();
            let waits = (0..3).filter(|from| mail.has_come(*from)).count();
            prop_assert!(rank == ROOT || waits <= 1, "only the root's decisions are read elsewhere");
            let read = (0..3).filter(|from| matches!(mail.read(*from, 1, "test"), Ok(Some(_)) | Err(Error::Protocol { .. }))).count();
            prop_assert_eq!(read, waits);
        }
    }

    fn check(rank: Rank, from: Rank, message: &[u8], complaint: &str) {
        let mailbox = Mailbox::new(rank, 3);
        mailbox.deliver(from, message);
        let broken = mailbox.open().broken.clone().unwrap_or_default();
        assert!(broken.contains(complaint) && broken.is_empty() == complaint.is_empty(), "{message:?}: {broken}");
    }

    #[test]
    fn what_is_no_message_breaks_the_group_and_names_its_rank() {
        check(0, 1, &message(FRAME, 1, b"a"), "");
        check(1, 0, &message(DECISION, 1, b"a"), "");
        check(0, 1, &[FRAME, 0], "rank 1 sent a message of 2 bytes");
        check(0, 1, &[], "rank 1 sent a message of 0 bytes");
        check(0, 1, &message(DECISION, 1, b"a"), "rank 1 sent a message of kind 2 to rank 0");
        check(1, 2, &message(DECISION, 1, b"a"), "rank 2 sent a message of kind 2 to rank 1");
        check(0, 1, &message(7, 1, b"a"), "rank 1 sent a message of kind 7");
        check(0, 3, &message(FRAME, 1, b"a"), "in a group of 3");
    }

    #[test]
    fn words_are_bounded_and_come_from_whom_they_may() {
        check(0, 2, &message(WORD, 0, b"hello"), "");
        check(1, 2, &message(WORD, 0, b"hello"), "rank 2 sent a message of kind 4 to rank 1");
        check(1, 0, &message(WORD, 0, &[0; WORD_MAX + 1]), "at most 4096");
        let root = Mailbox::new(0, 3);
        for _ in 0..2 {
            (0..AHEAD_MAX).for_each(|_| root.deliver(2, &message(WORD, 0, b"again")));
            assert_eq!(root.open().broken, None);
            assert_eq!(root.open().take_heard().len(), AHEAD_MAX);
        }
        (0..=AHEAD_MAX).for_each(|_| root.deliver(2, &message(WORD, 0, b"again")));
        assert!(root.open().broken.as_deref().is_some_and(|reason| reason.contains("unread words")));
        let member = Mailbox::new(1, 3);
        let said = (0..=2 * AHEAD_MAX).take_while(|_| member.open().say(b"nobody sends it")).count();
        assert!(said > 0 && said <= 2 * AHEAD_MAX, "{said} words that wait to be sent");
    }

    #[test]
    fn an_end_is_told_to_all_once_with_its_cause() {
        let root = Mailbox::new(0, 4);
        root.deliver(2, &message(END, 2, "the disk is full".as_bytes()));
        root.open().tell_end(0, "a later reason");
        let mut told = Vec::new();
        while let Some((to, message)) = root.open().next_outgoing() {
            let rank = Mailbox::new(to, 4);
            rank.deliver(0, &message);
            told.push((to, rank.open().ended.clone()));
        }
        let why = || Some((2, "the disk is full".to_owned()));
        assert_eq!(told, [(1, why()), (3, why())]);
    }

    #[test]
    fn a_rank_that_runs_ahead_is_not_kept_for_ever() {
        let root = Mailbox::new(0, 2);
        (0..=AHEAD_MAX as u64).for_each(|number| root.deliver(1, &message(FRAME, number, b"")));
        assert!(root.open().broken.as_deref().is_some_and(|reason| reason.contains("more than 1024")));
    }
}

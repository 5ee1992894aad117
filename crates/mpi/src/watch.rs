//! Loss notifications: which ranks have failed, and the messages between ranks about them.
//!
//! Every wait of [`crate::board`] and [`crate::leaders`] checks it as a [`Watch`];
//! [`crate::survival`] reads the messages. They are point-to-point, over a communicator of all
//! original ranks on which no call waits for all of them, so a rank that hangs or has failed holds
//! up no other.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use probe_sync_collective::Rank;

use crate::mail::Mail;
use crate::raw::Communicator;
use crate::ulfm::Ulfm;

/// What has arrived, shared by all waiters.
#[derive(Clone, Debug)]
pub(crate) struct Watch(Rc<RefCell<News>>);

#[derive(Debug)]
struct News {
    ulfm: Ulfm,
    base: Communicator,
    mail: Mail,
    lost: Vec<bool>,
    heard: VecDeque<(Rank, Vec<u64>)>,
}

impl Watch {
    /// Creates it; `base` must be for its exclusive use.
    pub fn new(ulfm: Ulfm, base: Communicator) -> Self {
        let lost = vec![false; base.size()];
        Self(Rc::new(RefCell::new(News { ulfm, base, mail: Mail::new(), lost, heard: VecDeque::new() })))
    }

    /// Lets MPI make progress. Returns true once a rank has failed that was not lost before, or a
    /// message has arrived.
    pub fn sees_loss(&self) -> bool {
        let mut news = self.0.borrow_mut();
        news.listen();
        // Open MPI takes in the launcher's news at one of some thousand calls only: the message of
        // a rank that knows more comes first.
        !news.heard.is_empty() || news.failed().into_iter().any(|rank| !news.lost[rank])
    }

    /// The next message of a rank that is not lost.
    pub fn next(&self) -> Option<(Rank, Vec<u64>)> {
        let mut news = self.0.borrow_mut();
        news.listen();
        news.heard.pop_front()
    }

    /// Puts messages back that [`Self::next`] returned too early.
    pub fn put_back(&self, said: Vec<(Rank, Vec<u64>)>) {
        let mut news = self.0.borrow_mut();
        said.into_iter().rev().for_each(|one| news.heard.push_front(one));
    }

    /// The ranks that have failed, as far as this one knows.
    pub fn failed(&self) -> Vec<Rank> {
        let mut news = self.0.borrow_mut();
        news.listen();
        news.failed()
    }

    /// Sends a message to `rank`; whether it has failed meanwhile shows elsewhere.
    pub fn tell(&self, rank: Rank, numbers: &[u64]) {
        let mut news = self.0.borrow_mut();
        let message = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let News { ulfm, base, mail, .. } = &mut *news;
        if mail.send(base, rank, message).is_err() {
            ulfm.acknowledge(base);
        }
    }

    /// From now on messages of lost ranks are ignored.
    pub fn forget(&self, lost: &[bool]) {
        let mut news = self.0.borrow_mut();
        news.lost = lost.to_vec();
        news.heard.retain(|(rank, _)| !lost[*rank]);
    }
}

impl News {
    fn listen(&mut self) {
        for _ in 0..LOOKS_MAX {
            match self.mail.next(&self.base) {
                Ok(Some((rank, message))) => {
                    if self.lost.get(rank) == Some(&false) {
                        let numbers = message.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number));
                        self.heard.push_back((rank, numbers.collect()));
                    }
                }
                Ok(None) => return,
                // A message from or to a rank that has failed, or a look that MPI refuses until
                // that is known.
                Err(_) => {
                    self.mail = Mail::new();
                    self.ulfm.acknowledge(&self.base);
                }
            }
        }
    }

    fn failed(&self) -> Vec<Rank> {
        let failed = self.ulfm.failed(self.base.handle()).unwrap_or_default();
        failed.into_iter().filter(|rank| *rank < self.lost.len()).collect()
    }
}

/// Messages taken per check; the rest is taken by the next one.
const LOOKS_MAX: usize = 4096;

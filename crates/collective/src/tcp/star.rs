//! A gather in a star, in which every rank talks to the root directly.

use super::frame::Kind;
use super::{CONTROL, Group};
use crate::{Error, Frames, ROOT, Wait};

impl Group {
    /// Gathers in a star. If connections last for a round, all ranks connect, including those that
    /// contribute nothing.
    pub(super) fn gather_in_star(
        &mut self,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        mut wait: Wait<'_>,
    ) -> Result<(), Error> {
        let (sequence, all_come) = (self.sequence, self.per_round.is_some());
        if self.rank != ROOT {
            self.connect(&mut wait)?;
            let part = if participants[self.rank] { payload } else { &[] };
            let speaks = all_come || participants[self.rank];
            return if speaks { self.peers.send(Kind::Gather, sequence, &[CONTROL], |_| part, wait) } else { Ok(()) };
        }
        self.await_ranks()?;
        let mut senders = self.peers.members();
        senders.retain(|&place| all_come || participants[place + 1]);
        self.peers.receive(Kind::Gather, sequence, &senders, wait)?;
        frames.push(payload);
        for place in 0..self.size - 1 {
            match self.peers.at(place) {
                Some(peer) if all_come || participants[place + 1] => {
                    frames.push(if participants[place + 1] { peer.payload() } else { &[] });
                    peer.consume();
                }
                _ => frames.push(&[]),
            }
        }
        Ok(())
    }
}

//! A gather in a star, in which every rank talks to the root directly.

use super::frame::Kind;
use super::{CONTROL, Group};
use crate::{Error, Frames, ROOT, Wait};

impl Group {
    /// Gathers in a star.
    pub(super) fn gather_in_star(
        &mut self,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        wait: Wait<'_>,
    ) -> Result<(), Error> {
        let sequence = self.sequence;
        if self.rank != ROOT {
            let speaks = participants[self.rank];
            return if speaks {
                self.peers.send(Kind::Gather, sequence, &[CONTROL], |_| payload, wait)
            } else {
                Ok(())
            };
        }
        let mut senders = self.peers.present();
        senders.retain(|&place| participants[place + 1]);
        self.peers.receive(Kind::Gather, sequence, &senders, wait)?;
        frames.push(payload);
        for place in 0..self.size - 1 {
            match self.peers.at(place) {
                Some(peer) if participants[place + 1] => {
                    frames.push(peer.payload());
                    peer.consume();
                }
                _ => frames.push(&[]),
            }
        }
        Ok(())
    }
}

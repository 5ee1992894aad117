//! Packets that wait for their transmit stamp.
//!
//! `TimestampedUdp` adds a packet when it is sent and removes it when its stamp arrives. Tokens
//! count up, so a ring indexed by the token's low bits finds each packet in one step and needs no
//! allocation. A packet whose slot is needed, or that has waited too long, counts as lost and is no
//! longer waited for.
//!
//! It does not read the clock. After a clock step, a stamp may once be counted as lost or be waited
//! for longer.

use std::collections::VecDeque;

use probe_sync_time::{Duration, System, Timestamp};

use super::SendToken;

pub(super) struct Pending {
    ring: Box<[Option<Waiting>]>,
    /// No token before this one is waiting.
    oldest: u32,
    /// The next token.
    next: u32,
    waiting: usize,
    /// Given up for lack of room and not yet reported by `expire`.
    evicted: usize,
    lost: VecDeque<SendToken>,
}

#[derive(Copy, Clone)]
struct Waiting {
    token: u32,
    sent: Timestamp<System>,
}

impl Pending {
    pub(super) fn new() -> Self {
        Self {
            ring: vec![None; RING].into_boxed_slice(),
            oldest: 0,
            next: 0,
            waiting: 0,
            evicted: 0,
            lost: VecDeque::with_capacity(RING),
        }
    }

    /// The token of the next packet to be sent.
    pub(super) fn next_token(&self) -> u32 {
        self.next
    }

    /// Number of packets waiting for their timestamp.
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// Adds a packet that was sent just now.
    pub(super) fn push(&mut self, sent: Timestamp<System>) -> SendToken {
        let token = self.advance();
        self.ring[token as usize % RING] = Some(Waiting { token, sent });
        self.waiting += 1;
        SendToken(token)
    }

    /// Assigns a token to a packet that needs no timestamp.
    pub(super) fn skip(&mut self) -> SendToken {
        SendToken(self.advance())
    }

    /// The next token, its slot in the ring cleared: only the last `RING` tokens can be waiting.
    fn advance(&mut self) -> u32 {
        let token = self.next;
        self.next = token.wrapping_add(1);
        if let Some(evicted) = self.ring[token as usize % RING].take() {
            self.waiting -= 1;
            self.evicted += 1;
            self.oldest = evicted.token.wrapping_add(1);
            Self::lose(&mut self.lost, evicted.token);
        }
        if self.waiting == 0 {
            self.oldest = token;
        }
        token
    }

    /// Removes a packet; returns when it was sent. `None` if it was not waiting.
    pub(super) fn take(&mut self, token: u32) -> Option<Timestamp<System>> {
        let slot = &mut self.ring[token as usize % RING];
        let sent = slot.filter(|entry| entry.token == token)?.sent;
        *slot = None;
        self.waiting -= 1;
        Some(sent)
    }

    /// Gives up packets that were sent longer than `timeout` before `now`. Returns how many were
    /// given up since the last call, including those for lack of room.
    pub(super) fn expire(&mut self, now: Timestamp<System>, timeout: Duration) -> usize {
        self.lose_while(|entry| now - entry.sent > timeout)
    }

    /// Reports a packet that was already taken as lost after all.
    pub(super) fn give_up(&mut self, token: u32) {
        Self::lose(&mut self.lost, token);
    }

    /// Gives up all packets. Returns how many.
    pub(super) fn forget_all(&mut self) -> usize {
        self.lose_while(|_| true)
    }

    /// The next packet that was given up.
    pub(super) fn pop_lost(&mut self) -> Option<SendToken> {
        self.lost.pop_front()
    }

    fn lose_while(&mut self, hopeless: impl Fn(&Waiting) -> bool) -> usize {
        let mut count = std::mem::take(&mut self.evicted);
        // At most RING steps: entries further back have been evicted.
        while self.waiting > 0 && self.oldest != self.next {
            let slot = &mut self.ring[self.oldest as usize % RING];
            if let Some(entry) = slot.filter(|entry| entry.token == self.oldest) {
                if !hopeless(&entry) {
                    break;
                }
                *slot = None;
                self.waiting -= 1;
                count += 1;
                Self::lose(&mut self.lost, entry.token);
            }
            self.oldest = self.oldest.wrapping_add(1);
        }
        count
    }

    fn lose(lost: &mut VecDeque<SendToken>, token: u32) {
        // Nobody asks for lost packets: keep the newest.
        if lost.len() == RING {
            lost.pop_front();
        }
        lost.push_back(SendToken(token));
    }
}

/// Most packets that can wait for their timestamp at once.
pub(super) const RING: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: i64) -> Timestamp<System> {
        Timestamp::from_ns(ns)
    }

    fn lost(pending: &mut Pending) -> Vec<u32> {
        std::iter::from_fn(|| pending.pop_lost()).map(|token| token.0).collect()
    }

    #[test]
    fn stamps_may_come_in_any_order_and_only_once() {
        let mut pending = Pending::new();
        for ns in 0..3 {
            assert_eq!(pending.push(at(ns)).0, ns as u32);
        }
        assert_eq!(pending.take(2), Some(at(2)));
        assert_eq!(pending.take(2), None);
        assert_eq!(pending.take(7), None);
        assert_eq!(pending.take(0), Some(at(0)));
        assert_eq!((pending.len(), pending.forget_all()), (1, 1));
        assert_eq!(lost(&mut pending), [1]);
        assert_eq!(pending.take(1), None);
    }

    #[test]
    fn what_waited_too_long_is_lost() {
        let mut pending = Pending::new();
        for ns in [0, 10, 20, 30] {
            pending.push(at(ns));
        }
        assert_eq!(pending.take(1), Some(at(10)));
        assert_eq!(pending.expire(at(120), Duration::from_ns(100)), 1);
        assert_eq!(pending.expire(at(121), Duration::from_ns(100)), 1);
        assert_eq!(lost(&mut pending), [0, 2]);
        assert_eq!(pending.len(), 1);
    }

    #[test]
    fn memory_is_bounded_and_tokens_wrap() {
        let mut pending = Pending::new();
        pending.next = u32::MAX - 5;
        pending.oldest = pending.next;
        for ns in 0..(2 * RING as i64 + 10) {
            pending.push(at(ns));
            if ns % 3 == 0 {
                pending.skip();
            }
        }
        assert!(pending.len() <= RING && pending.lost.len() <= RING);
        let sent = 2 * RING + 10;
        assert_eq!(pending.forget_all(), sent);
        assert_eq!(pending.len(), 0);
        assert_eq!(pending.oldest, pending.next);
    }
}

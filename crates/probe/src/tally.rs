//! Packet counts by peer from one cut to the next, as differences of an endpoint's running totals.
//!
//! The driver of an [`Endpoint`](crate::Endpoint) calls [`Tally::since_last`] at every cut of a
//! window. It does not combine both ends of a pair (crate `estimate`).

use std::collections::BTreeMap;

use probe_sync_time::NodeId;

use crate::counters::{Counters, PeerCounters};

/// An endpoint's totals at the last cut.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    before: BTreeMap<NodeId, PeerCounters>,
}

impl Tally {
    /// Returns `(peer, sent, received)` since the previous call, for every peer that ever had
    /// traffic or an edge from here. Duplicates do not count as received. A packet that the system
    /// refused to send counts as sent, because its peer lacks it all the same.
    pub fn since_last(&mut self, counters: Counters) -> Vec<(NodeId, u64, u64)> {
        let given = |counts: &PeerCounters| counts.sent + counts.send_failed;
        let passed = counters.peers.iter().map(|(&peer, now)| {
            let before = self.before.get(&peer).copied().unwrap_or_default();
            let sent = given(now).saturating_sub(given(&before));
            (peer, sent, now.first_copies().saturating_sub(before.first_copies()))
        });
        let passed = passed.collect();
        self.before = counters.peers;
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_counts_from_cut_to_cut() {
        let counters = |sent, send_failed, received, duplicates| {
            let peer = PeerCounters { sent, send_failed, received, duplicates, ..PeerCounters::default() };
            Counters { peers: [(NodeId(1), peer)].into(), ..Counters::default() }
        };
        let mut tally = Tally::default();
        assert_eq!(tally.since_last(counters(10, 1, 9, 2)), [(NodeId(1), 11, 7)]);
        assert_eq!(tally.since_last(counters(10, 1, 9, 2)), [(NodeId(1), 0, 0)]);
        assert_eq!(tally.since_last(counters(30, 3, 39, 12)), [(NodeId(1), 22, 20)]);
    }
}

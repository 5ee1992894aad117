//! Reconnection of a live rank that has lost its connection to the root, under the same number.
//!
//! This implements [`Admission::reconnect`](crate::Admission::reconnect); the root's side is the
//! `door`, as for a restarted process. The number of a process ends in a count of its connections,
//! so the root knows that a later connection replaces an earlier one of the same process, which a
//! switch or a NAT may have cut silently. The rank tries its root first and then the ranks that may
//! have taken the root's place, with growing pauses, until one admits it or the deadline passes. If
//! for [`GONE_AFTER`] all of them report that the run is not there, the run has ended.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::branch::Branch;
use super::greeting::{Errand, Verdict};
use super::joining::{Attempt, Joining, Way, jittered};
use super::newcomers::Expected;
use super::process::next_connection;
use super::{CONTROL, Group, Tree, WayBack};
use crate::labels::exchanged;
use crate::{Deadline, Error, Rank, Wait, random_bytes};

/// Why a leader has not admitted this rank.
struct Refusal {
    reason: String,
    /// True if no rank of the run is there.
    gone: bool,
}

impl Group {
    /// Returns true if the root of this rank's group still leads it, as far as it answers within
    /// `limit`.
    pub fn root_is_alive(&self, limit: &Deadline) -> bool {
        let Some(way) = &self.way else { return false };
        let said = way.attempt(Errand::Look, &mut Wait::begin(OPERATION, limit));
        matches!(said, Ok(Ok(greeted)) if greeted.verdict == Verdict::Back)
    }

    /// Rejoins a group as `rank`, and returns it with the rank that is its root. The old connection
    /// is closed.
    pub fn reconnect(
        &mut self,
        rank: Rank,
        root: Rank,
        expected: Expected,
        successors: &[(Rank, Vec<SocketAddr>)],
        deadline: &Deadline,
    ) -> Result<(Self, Rank), Error> {
        let Some(way) = self.way.take() else {
            let reason = "this rank has joined no other; it is the root".to_owned();
            return Err(Error::Backend { operation: OPERATION, reason });
        };
        self.peers.remove(CONTROL);
        let label = exchanged(root, rank);
        let mut process = way.process;
        let mut leaders = vec![Way { rank: label, root, ..way.clone() }];
        let others = successors.iter().filter(|(successor, _)| ![rank, root].contains(successor));
        leaders.extend(others.map(|(successor, addresses)| {
            Way::to_successor((*successor, addresses), rank, process, expected.around(*successor))
        }));
        let found = until_let_in(&mut process, &mut leaders, root, deadline);
        // For the next time, where this one fails.
        self.way = Some(Way { process, ..way });
        found
    }
}

/// Asks all `leaders` in turn, each time as the next connection of this `process`.
fn until_let_in(
    process: &mut u64,
    leaders: &mut [Way],
    root: Rank,
    deadline: &Deadline,
) -> Result<(Group, Rank), Error> {
    let mut wait = Wait::begin(OPERATION, deadline);
    let (mut pause, mut retries) = (PAUSE_FIRST, 0);
    let mut gone_since: Option<Instant> = None;
    loop {
        let (mut reasons, mut gone) = (Vec::new(), true);
        for leader in &mut *leaders {
            *process = next_connection(*process)?;
            leader.process = *process;
            match ask(leader, retries, deadline)? {
                Ok(group) => return Ok((group, leader.root)),
                Err(refusal) => {
                    reasons.push(format!("rank {}: {}", leader.root, refusal.reason));
                    gone &= refusal.gone;
                }
            }
        }
        gone_since = gone.then(|| gone_since.unwrap_or_else(Instant::now));
        let ended = gone_since.is_some_and(|since| since.elapsed() >= GONE_AFTER);
        if ended || !nap(&mut wait, jittered(pause, random_bytes()?)) {
            let reason = format!("tried for {:.1?}; {}", wait.elapsed(), reasons.join("; "));
            return Err(Error::Lost { operation: OPERATION, rank: root, reason });
        }
        retries += 1;
        pause = (pause * 2).min(PAUSE_LAST);
    }
}

/// Asks a leader once. The inner error states why it does not admit this rank.
fn ask(leader: &Way, retries: u64, deadline: &Deadline) -> Result<Result<Group, Refusal>, Error> {
    // A path that breaks once more says nothing.
    let limit = deadline.within(2 * leader.expected.options.greeting);
    let greeted = match leader.ask_back(&mut Wait::begin(OPERATION, &limit))? {
        Ok(greeted) => greeted,
        Err(attempt) => return Ok(Err(Refusal { gone: says_gone(&attempt), reason: attempt.reason() })),
    };
    let joined = Joining::of(greeted, leader.clone(), retries);
    let group = joined.and_then(|joined| Group::returned(joined, leader.expected, &limit));
    Ok(group.map_err(|error| Refusal { reason: error.to_string(), gone: false }))
}

impl Group {
    /// Creates the group of a rank that has its place back, and receives the notice.
    fn returned(joined: Joining, expected: Expected, deadline: &Deadline) -> Result<Self, Error> {
        let Joining { mut root, local, root_rank, way, retries, .. } = joined;
        if expected.options.local {
            root.take_offers();
        }
        let label = way.rank;
        let group = Self::new(label, expected.size, local, vec![root], WayBack::Closed(None))?;
        let mut group = Self { retries, way: Some(way), ..group };
        if expected.fan_out > 0 {
            // Whoever comes back has nobody below it.
            group.tree = Tree::Branch(Box::new(Branch::new(label, expected, None)));
        }
        group.hear_notice(root_rank, expected, deadline)?;
        Ok(group)
    }
}

/// Returns true if this answer means that no rank of the run is there. One that is only unreachable
/// may be.
fn says_gone(attempt: &Attempt) -> bool {
    !matches!(attempt, Attempt::Unreachable(_)) && !attempt.may_be_a_run()
}

/// Sleeps for `pause`; returns false if the wait is over.
fn nap(wait: &mut Wait<'_>, pause: Duration) -> bool {
    let begun = Instant::now();
    loop {
        let Some(slice) = wait.slice() else { return false };
        let left = pause.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(slice.min(left));
    }
}

const OPERATION: &str = "reconnecting";

/// First pause between two rounds of requests, doubled each time.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(5);

/// How long all must report that no rank of the run is there: a restarted proxy or firewall also
/// refuses for a while.
const GONE_AFTER: Duration = Duration::from_secs(10);

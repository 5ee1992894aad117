//! Connections that last for one round: each rank connects to the root when its window has ended,
//! proves itself, delivers its window, receives the decision and disconnects.
//!
//! This is an option of the star ([`crate::Collective::connect_per_round`]). The ranks first meet
//! as usual, and their connections close with the first round. From then on they come to the `door`
//! with the number that their process gave when it met; a process with another number does not own
//! the rank's place. Every rank connects for a gather, even without a contribution, because it must
//! receive the decision. A rank that does not connect in time is lost, like a silent one.
//!
//! A rank hangs up when it has the decision. The root says that nothing more comes once all have
//! been told, usually before the ranks hang up: so it is its host that remembers most of these
//! connections for a while (TIME_WAIT). It keeps its end until it sees that the rank has hung up,
//! because closing it with something unread would discard the decision. What a rank says between
//! rounds waits here and goes before its next frame. The root says nothing then: it reaches nobody.
//!
//! It does not end in the middle of a round, and it does not support a tree.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::between_rounds::PerRound;
use super::connection::Connection;
use super::door::{Door, Place};
use super::frame::Kind;
use super::greeting::{Errand, Verdict};
use super::joining::{Attempt, Joining, RETRY_FIRST, RETRY_LAST, jittered};
use super::peers::Coming;
use super::secret::Secret;
use super::sockets::poll_sockets;
use super::{CONTROL, Group, Tree, WayBack};
use crate::{Error, ROOT, Rank, Wait, random_bytes};

impl Group {
    /// Makes connections end with each round from now on.
    ///
    /// # Errors
    /// Returns an error if the group is a tree.
    pub fn make_per_round(&mut self) -> Result<(), Error> {
        if !matches!(self.tree, Tree::Star) {
            let what = "per-round connections".to_owned();
            let reason = "these ranks form a tree and wait for each other: set PROBE_SYNC_TCP_FANOUT=star on all ranks";
            return Err(Error::Setup { what, reason: reason.to_owned() });
        }
        self.per_round = Some(PerRound { way: self.way.clone(), ..PerRound::default() });
        Ok(())
    }

    /// Keeps a message until this rank connects for the next round; returns false if too many are
    /// waiting.
    pub fn keep_word(&mut self, word: &[u8]) -> bool {
        let way = self.per_round.as_mut().filter(|per_round| per_round.way.is_some());
        let Some(per_round) = way.filter(|per_round| per_round.unsaid.len() < UNSAID_MAX) else { return false };
        per_round.unsaid.push(word.to_vec());
        true
    }

    /// Returns the messages of ranks that have disconnected since, with their places; drops the
    /// connections of those that have by now.
    pub fn words_of_the_round(&mut self) -> Result<Vec<(usize, Vec<u8>)>, Error> {
        let Some(per_round) = &mut self.per_round else { return Ok(Vec::new()) };
        if !per_round.parting.is_empty() {
            let sockets: Vec<_> =
                per_round.parting.iter().map(|parting| (parting.stream().as_fd(), PollFlags::RDHUP)).collect();
            let mut ended = poll_sockets(&sockets, Duration::ZERO, "calls")?.into_iter();
            per_round.parting.retain(|_| ended.next() == Some(false));
        }
        Ok(std::mem::take(&mut per_round.heard))
    }

    /// Disconnects at the end of the round.
    pub fn hang_up(&mut self) -> Result<(), Error> {
        if self.rank != ROOT {
            self.peers.remove(CONTROL);
            return Ok(());
        }
        self.let_ranks_come()?;
        let said = self.peers.words()?;
        let parting = self.peers.part();
        if let (Some(per_round), WayBack::Open(door)) = (&mut self.per_round, &self.way_back) {
            per_round.heard.extend(said);
            per_round.parting.extend(parting);
            door.part();
        }
        Ok(())
    }

    /// Allows ranks to connect for rounds, if not allowed yet.
    fn let_ranks_come(&mut self) -> Result<(), Error> {
        if self.per_round.as_ref().is_none_or(|per_round| per_round.open) {
            return Ok(());
        }
        self.open_door(Secret(Vec::new()))?;
        let WayBack::Open(door) = &self.way_back else { return Ok(()) };
        let (connections, bell) = door.open_for_rounds()?;
        let awaited = self.peers.list().iter().map(Option::is_some).collect();
        self.peers.wait_for_coming(Coming { connections, bell, awaited })?;
        if let Some(per_round) = &mut self.per_round {
            per_round.open = true;
        }
        Ok(())
    }

    /// Opens the door with this notice, if it is closed.
    pub fn open_door(&mut self, notice: Secret) -> Result<(), Error> {
        let parts = if let WayBack::Closed(parts) = &mut self.way_back { parts.take() } else { None };
        if let Some((listener, expected)) = parts {
            let others = self.peers.list().iter().map(|peer| peer.as_ref().map(Place::of));
            let places = std::iter::once(None).chain(others).collect();
            self.way_back = WayBack::Open(Door::open(listener, expected, places, notice, self.files.take())?);
        }
        Ok(())
    }

    /// At the root, before a gather: admits ranks that connect, and disconnects those left from the
    /// previous round.
    pub fn await_ranks(&mut self) -> Result<(), Error> {
        if let (Some(per_round), WayBack::Open(_)) = (&mut self.per_round, &self.way_back) {
            // They had a whole window for it.
            per_round.parting.clear();
            self.let_ranks_come()?;
        }
        Ok(())
    }

    /// Connects to the root, if this rank has disconnected.
    pub fn connect(&mut self, wait: &mut Wait<'_>) -> Result<(), Error> {
        let way = self.per_round.as_ref().and_then(|per_round| per_round.way.clone());
        let Some(way) = way.filter(|_| self.peers.at(CONTROL).is_none()) else { return Ok(()) };
        let (operation, mut pause) = (wait.operation(), RETRY_FIRST);
        let mut refused_since: Option<Instant> = None;
        let lost = |reason: String| Err(Error::Lost { operation, rank: ROOT, reason });
        loop {
            match way.attempt(Errand::Round, wait)? {
                Ok(greeted) => return self.say_unsaid(Joining::connection(greeted)),
                Err(Attempt::Refused(verdict @ Verdict::GoneOn)) => {
                    return Err(Error::Dismissed { reason: verdict.explain().to_owned() });
                }
                // Whoever listens there now is not the process that was the root.
                Err(other @ (Attempt::Refused(_) | Attempt::AllForeign(_))) => return lost(other.reason()),
                Err(other @ Attempt::NobodyListens(_)) => {
                    let since = *refused_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= REFUSED_FOR {
                        return lost(other.reason());
                    }
                }
                Err(Attempt::Foreign(_) | Attempt::Unreachable(_) | Attempt::Failed(_)) => refused_since = None,
            }
            let Some(slice) = wait.slice() else { return Err(wait.late(vec![ROOT])) };
            std::thread::sleep(slice.min(jittered(pause, random_bytes()?)));
            self.retries += 1;
            pause = (pause * 2).min(RETRY_LAST);
        }
    }

    /// Sends the messages that waited for this connection.
    fn say_unsaid(&mut self, mut root: Connection) -> Result<(), Error> {
        for word in self.per_round.as_mut().map(|per_round| std::mem::take(&mut per_round.unsaid)).unwrap_or_default() {
            root.say(Kind::Word, 0, &word, "call")?;
        }
        self.peers.put(CONTROL, root)
    }

    /// Lets a readmitted rank connect for its next rounds like the others.
    pub fn expect(&mut self, rank: Rank) {
        self.peers.expect(rank - 1);
    }
}

/// How long the root's address may refuse connections before the root is considered lost: a
/// firewall that is reloaded also refuses for a moment.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// Most messages waiting for the next round.
const UNSAID_MAX: usize = 256;

//! The loss of the root, after which the remaining ranks form a group around another root.
//!
//! Ranks that may take the root's place listen from the start ([`Succession::stand_by`]), and all
//! ranks know them in their order ([`Succession::set_successors`]). When the root is lost, each
//! rank tries these successors in turn: it hosts at its own place in the list, and joins the
//! others. It skips a successor at once if nothing listens at its port or if it did not take part
//! last, and after half of the remaining time if it does not answer. The host waits for all ranks
//! that took part last. When the time is over, more than half of them suffice; if there are fewer,
//! the host tells them so and the attempt ends. The host refuses any other rank: the old root had
//! continued without it, and may still lead it. At the end the host announces that the group is
//! formed. A rank is in one group at a time, and at most one group has more than half of the ranks
//! of a round, so there cannot be two.
//!
//! By hand: 5 ranks with the successors 1, 2, 3. Rank 0 is lost, and rank 1 hangs. Ranks 2, 3 and 4
//! try rank 1 in vain. Then rank 2 hosts, and 3 and 4 join: 3 of 5, so rank 2 is the root. If rank
//! 1 wakes, it hosts alone: 1 of 5.
//!
//! A rank that is started again finds the new root by the successors that its earlier process knew
//! ([`Tcp::join_or_return`]). Rank 0 returns as an ordinary rank ([`Tcp::return_as_rank_0`]).
//!
//! It does not carry files to a new root.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::event::PollFlags;

use super::Group;
use super::backend::Tcp;
use super::connection::Connection;
use super::frame::Kind;
use super::greeting::{Errand, Verdict};
use super::newcomers::{Expected, Newcomers};
use super::peers::Losses;
use super::rendezvous::{bind, bind_everywhere};
use super::sockets::{has_hung_up, poll_sockets, somebody_listens};
use crate::labels::{exchanged, renamed};
use crate::{Deadline, Error, ROOT, Rank, Succession, Wait};

impl Tcp {
    /// Waits for the other ranks at this rank's listener, and becomes their root.
    fn host_the_rest(
        &self,
        listener: TcpListener,
        there: &[bool],
        late_by: Duration,
        limit: &Deadline,
    ) -> Result<Group, Error> {
        let of = voices(there);
        let expected = self.expected.around(self.rank);
        // Those who join wait until the limit: the word that the group stands must reach them
        // before.
        let mut wait = Wait::begin_early(OPERATION, limit);
        listener.set_nonblocking(true).map_err(|error| setup(&error))?;
        let (mut newcomers, mut joined) = (Newcomers::new(expected), Vec::<Connection>::new());
        // All but the root that is lost and this one.
        while joined.len() + 2 < of {
            let enough = 2 * (joined.len() + 1) > of && wait.elapsed() >= late_by;
            let Some(slice) = wait.slice().filter(|_| !enough) else { break };
            let sockets: Vec<_> =
                std::iter::once((listener.as_fd(), PollFlags::IN)).chain(newcomers.sockets()).collect();
            let ready = poll_sockets(&sockets, slice, OPERATION)?;
            for proven in newcomers.advance(&ready[1..], |_| false)? {
                match proven.errand {
                    Errand::Place if was_there(there, self.rank_beside(proven.rank)) => {}
                    // Its voice is not one of those that were there last.
                    Errand::Place | Errand::Return | Errand::Look => {
                        proven.refuse(Verdict::NotUnderWay);
                        continue;
                    }
                    Errand::File | Errand::Child => {
                        proven.refuse(Verdict::NoFiles);
                        continue;
                    }
                }
                // Who comes twice has given its first connection up.
                joined.retain(|there| there.rank() != proven.rank);
                joined.extend(proven.welcome(Verdict::Welcome));
            }
            if ready[0] {
                newcomers.accept(&listener)?;
            }
            joined.retain(|there| !has_hung_up(there.stream()));
        }
        joined.retain(|there| !has_hung_up(there.stream()));
        let present = joined.len() + 1;
        if 2 * present <= of {
            let minority = Error::Minority { operation: OPERATION, present, of };
            joined.iter_mut().for_each(|there| there.send_dismissal(&minority.to_string()));
            return Err(minority);
        }
        let local = listener.local_addr().map_err(|error| setup(&error))?.ip();
        let mut group = Group::of_the_rest(expected, joined, listener, local)?;
        group.say_it_stands(Wait::begin(OPERATION, limit))?;
        if expected.options.local {
            group.offer_local()?;
        }
        Ok(group)
    }

    /// Returns the rank with this label in a group led by this rank.
    fn rank_beside(&self, label: Rank) -> Rank {
        exchanged(self.rank, label)
    }

    /// Joins the rank that takes over as root, and waits until it confirms the group.
    fn join_the_rest(&self, successor: Rank, addresses: &[SocketAddr], limit: &Deadline) -> Result<Group, Error> {
        let expected = self.expected.around(successor);
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let label = exchanged(successor, self.rank);
        let mut group = Group::join_any(&addresses, label, expected, limit)?;
        group.hear_it_stands(Wait::begin(OPERATION, limit))?;
        Ok(group)
    }
}

impl Succession for Tcp {
    fn stand_by(&mut self) -> Result<Vec<SocketAddr>, Error> {
        if self.rank == ROOT {
            return Ok(Vec::new());
        }
        let own = self.local_ip();
        let listener = if own.is_loopback() { bind(SocketAddr::new(own, 0))? } else { bind_everywhere(0)? };
        let port = listener.local_addr().map_err(|error| setup(&error))?.port();
        self.standing = Some(listener);
        Ok(vec![SocketAddr::new(own, port)])
    }

    fn set_successors(&mut self, successors: &[(Rank, Vec<SocketAddr>)]) {
        self.successors = successors.to_vec();
        if !successors.iter().any(|(rank, _)| *rank == self.rank) {
            self.standing = None;
        }
    }

    fn root_has_disconnected(&mut self) -> bool {
        self.group.root_has_hung_up()
    }

    fn succeed(&mut self, there: &[bool], late_by: Duration, deadline: &Deadline) -> Result<Rank, Error> {
        let lost = self.root;
        let mut why = Error::Minority { operation: OPERATION, present: 1, of: voices(there) };
        // A rank that finds nobody now may look for them again.
        let line = self.successors.clone();
        let after = line.iter().position(|(rank, _)| *rank == lost).map_or(0, |place| place + 1);
        for (place, (successor, addresses)) in line.iter().enumerate().skip(after) {
            // So that time is left for the next.
            let limit = deadline.halved();
            let attempt = if *successor == self.rank {
                self.standing.take().map(|listener| self.host_the_rest(listener, there, late_by, &limit))
            } else if !was_there(there, *successor) {
                // It would count those of an earlier round, whom the root had gone on with.
                None
            } else {
                somebody_listens(addresses).then(|| self.join_the_rest(*successor, addresses, &limit))
            };
            match attempt {
                Some(Ok(group)) => {
                    (self.group, self.root) = (group, *successor);
                    self.successors = line[place..].to_vec();
                    return Ok(*successor);
                }
                Some(Err(error)) => {
                    let error = renamed(error, *successor);
                    tracing::info!("rank {successor} cannot take over from rank {lost}: {error}");
                    if let Error::Minority { .. } | Error::Dismissed { .. } = error {
                        why = error;
                    }
                }
                None => {}
            }
        }
        Err(why)
    }
}

/// Returns the error of a listener for ranks that lose their root.
fn setup(error: &io::Error) -> Error {
    Error::Setup { what: "waiting for ranks".to_owned(), reason: error.to_string() }
}

fn was_there(there: &[bool], rank: Rank) -> bool {
    there.get(rank) == Some(&true)
}

/// Returns the number of ranks that took part last.
fn voices(there: &[bool]) -> usize {
    there.iter().filter(|there| **there).count()
}

impl Group {
    /// Returns the root of the remaining ranks of a group of this size, with its labels.
    fn of_the_rest(
        expected: Expected,
        joined: Vec<Connection>,
        listener: TcpListener,
        local: IpAddr,
    ) -> Result<Self, Error> {
        let reached = joined.iter().find_map(|there| Some(there.stream().local_addr().ok()?.ip().to_canonical()));
        let way_back = super::WayBack::Closed(Some((listener, expected)));
        let mut group = Self::new(ROOT, expected.size, reached.unwrap_or(local), Vec::new(), way_back)?;
        group.peers.widen(expected.size - 1);
        let mut missing: Vec<Rank> = (1..expected.size).collect();
        for there in joined {
            missing.retain(|label| *label != there.rank());
            group.peers.put(there.rank() - 1, there)?;
        }
        let lost = |rank| Error::Lost { operation: OPERATION, rank, reason: NOT_THERE.to_owned() };
        group.left = missing.into_iter().map(|label| (label, lost(label))).collect();
        Ok(group)
    }

    /// Tells the remaining ranks that they are enough.
    fn say_it_stands(&mut self, wait: Wait<'_>) -> Result<(), Error> {
        let present = self.peers.present();
        self.peers.on_loss(Losses::GoOn(""));
        self.peers.send(Kind::Broadcast, 0, &present, |_| STANDS, wait)?;
        self.note_gone();
        Ok(())
    }

    /// Returns true if the root has closed its connection.
    fn root_has_hung_up(&mut self) -> bool {
        self.rank != ROOT && self.peers.at(super::CONTROL).is_some_and(|root| has_hung_up(root.stream()))
    }

    fn hear_it_stands(&mut self, wait: Wait<'_>) -> Result<(), Error> {
        let said = self.receive_from_root(Kind::Broadcast, 0, wait)?;
        if said == STANDS {
            return Ok(());
        }
        let what = format!("{} bytes in place of its word that the group stands", said.len());
        Err(Error::Protocol { operation: OPERATION, rank: ROOT, what })
    }
}

const OPERATION: &str = "succession";
const STANDS: &[u8] = b"the group stands";
const NOT_THERE: &str = "it was absent when the remaining ranks reconnected";

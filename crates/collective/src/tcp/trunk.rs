//! The root of the tree: its requests, the frames it receives and the frames it sends.
//!
//! `branch` is the other ranks' side. Every rank keeps its connection to the root. Frames arrive
//! through parents, several in one ([`Bundle`]). The root asks directly for missing frames: from
//! all ranks below a lost rank, from the ranks that a bundle lacks, and from all missing ranks once
//! half of the time has passed. Therefore only ranks that answer neither way are late or lost, and
//! a lost forwarding rank takes no other rank with it.
//!
//! Each broadcast and scatter begins with the tree that holds from the next operation on, if it has
//! changed: `bytes of the shape: u32, the shape`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::bundle::Bundle;
use super::connection::Connection;
use super::frame::Kind;
use super::peers::Peers;
use super::shape::Shape;
use crate::{Error, Frames, ROOT, Rank, Wait};

/// The root's side of a tree.
#[derive(Debug)]
pub(super) struct Trunk {
    shape: Shape,
    /// Latest messages, in order, for ranks that have not received them.
    told: VecDeque<(u64, Told)>,
    /// Ranks that asked for future messages.
    owed: BTreeMap<Rank, u64>,
    /// Ranks connected to the root because they do not reach their parent.
    strays: BTreeSet<Rank>,
}

#[derive(Debug)]
enum Told {
    Broadcast(Vec<u8>),
    /// The tree, if it has changed, and each rank's frame.
    Scatter(Vec<u8>, Frames),
}

/// A gather in progress.
struct Gathering<'a> {
    sequence: u64,
    wait: Wait<'a>,
    have: Vec<Option<Vec<u8>>>,
    pending: BTreeSet<Rank>,
    asked: BTreeSet<Rank>,
    /// Ranks whose connection has ended, while their frames may still arrive through the tree: a
    /// rank that has done its part may end.
    ended: BTreeMap<Rank, Error>,
}

impl Trunk {
    /// Creates a tree of the ranks 1 and up that have joined, each with the port at which it
    /// listens; `local` is the root's own address.
    pub fn new(joined: &[Option<Connection>], ports: &[u16], fan_out: usize, local: IpAddr) -> Self {
        let hosts = joined.iter().zip(ports).map(|(rank, port)| {
            let ip = rank.as_ref()?.stream().peer_addr().ok()?.ip().to_canonical();
            // Others reach a rank of the root's own host as they reach the root.
            Some(SocketAddr::new(if ip.is_loopback() { local } else { ip }, *port))
        });
        let hosts: Vec<_> = std::iter::once(None).chain(hosts).collect();
        let mut shape = Shape::new(&hosts, fan_out);
        (1..hosts.len()).filter(|&rank| joined[rank - 1].is_none()).for_each(|missing| shape.remove(missing));
        Self { shape, told: VecDeque::new(), owed: BTreeMap::new(), strays: BTreeSet::new() }
    }

    /// Sends the first tree to all ranks.
    ///
    /// # Errors
    /// Names the late or lost rank.
    pub fn announce(&self, peers: &mut Peers, wait: Wait<'_>) -> Result<(), Error> {
        let shape = self.shape.encode();
        peers.send(Kind::Tree, 0, &peers.present(), |_| &shape, wait)
    }

    /// Gathers the frames of all participants.
    ///
    /// # Errors
    /// Names the late or lost rank, if that ends the operation.
    pub fn gather(
        &mut self,
        peers: &mut Peers,
        sequence: u64,
        participants: &[bool],
        frames: &mut Frames,
        wait: Wait<'_>,
    ) -> Result<(), Error> {
        let pending = peers.present().into_iter().map(|place| place + 1).filter(|&rank| participants[rank]).collect();
        let have = vec![None; self.shape.size()];
        let mut gathering = Gathering { sequence, wait, have, pending, asked: BTreeSet::new(), ended: BTreeMap::new() };
        let mut ready = peers.present();
        while !gathering.pending.is_empty() {
            for place in ready.drain(..) {
                self.hear(peers, place, &mut gathering)?;
            }
            let enough = gathering.wait.at(ASK_AT);
            if Instant::now() >= enough {
                let missing: Vec<Rank> = gathering.pending.iter().copied().collect();
                self.lose_ended(peers, &missing, &mut gathering)?;
                gathering.ask(peers, &missing)?;
            }
            if gathering.pending.is_empty() {
                break;
            }
            let Some(slice) = gathering.wait.slice_until(enough) else {
                let late: Vec<usize> = gathering.pending.iter().map(|rank| rank - 1).collect();
                peers.lose_late(&late, &gathering.wait)?;
                break;
            };
            peers.sleep_and_work(slice, &mut ready, gathering.wait.operation())?;
        }
        for frame in gathering.have.into_iter().skip(1) {
            frames.push(&frame.unwrap_or_default());
        }
        Ok(())
    }

    /// Processes a rank's message.
    fn hear(&mut self, peers: &mut Peers, place: usize, gathering: &mut Gathering<'_>) -> Result<(), Error> {
        let (rank, operation) = (place + 1, gathering.wait.operation());
        while let Some(peer) = peers.at(place) {
            match peer.next_frame(operation) {
                Ok(Some((Kind::Gather, sequence))) if sequence == gathering.sequence => {
                    let taken = gathering.take(rank, peer.payload());
                    peer.consume();
                    match taken {
                        Err(what) => {
                            let error = peer.wrong(what, operation);
                            self.lost(peers, rank, error, gathering)?;
                        }
                        Ok(own) => {
                            if own && self.shape.parent(rank) != ROOT && !gathering.asked.contains(&rank) {
                                self.strays.insert(rank);
                            }
                            let below = self.shape.subtree(rank);
                            self.lose_ended(peers, &below, gathering)?;
                            gathering.ask(peers, &below)?;
                        }
                    }
                }
                Ok(Some((Kind::Ask, sequence))) => {
                    peer.consume();
                    self.answer(peers, rank, sequence)?;
                }
                Ok(Some((Kind::Gather, sequence))) if sequence < gathering.sequence => peer.consume(),
                // Nobody waits for the root after a gather.
                Ok(Some((_, sequence))) if sequence > gathering.sequence => return Ok(()),
                Ok(Some(found)) => {
                    let error = peer.unexpected(found, (Kind::Gather, gathering.sequence), operation);
                    self.lost(peers, rank, error, gathering)?;
                }
                Ok(None) => return Ok(()),
                // Its part is here: whether it is lost shows when it is told something.
                Err(Error::Lost { .. }) if !gathering.pending.contains(&rank) => return Ok(()),
                Err(error @ Error::Lost { .. }) if self.shape.parent(rank) != ROOT => {
                    gathering.ended.insert(rank, error);
                    let below: Vec<Rank> = self.shape.subtree(rank).into_iter().skip(1).collect();
                    return gathering.ask(peers, &below);
                }
                Err(error) => self.lost(peers, rank, error, gathering)?,
            }
        }
        Ok(())
    }

    /// Gives up those of these ranks that have ended and whose frames have not arrived.
    fn lose_ended(&self, peers: &mut Peers, ranks: &[Rank], gathering: &mut Gathering<'_>) -> Result<(), Error> {
        for rank in ranks {
            if let Some(error) = gathering.ended.remove(rank).filter(|_| gathering.pending.contains(rank)) {
                self.lost(peers, *rank, error, gathering)?;
            }
        }
        Ok(())
    }

    /// Continues without a rank, if the group does, and asks those below it.
    fn lost(&self, peers: &mut Peers, rank: Rank, error: Error, gathering: &mut Gathering<'_>) -> Result<(), Error> {
        peers.lose(rank - 1, error)?;
        gathering.pending.remove(&rank);
        let below = self.shape.subtree(rank);
        self.lose_ended(peers, &below, gathering)?;
        gathering.ask(peers, &below)
    }

    /// Broadcasts `payload` to all ranks.
    ///
    /// # Errors
    /// Names the late or lost rank, if that ends the operation.
    pub fn broadcast(&mut self, peers: &mut Peers, sequence: u64, payload: &[u8], wait: Wait<'_>) -> Result<(), Error> {
        peers.check_alive(wait.operation())?;
        let (_, places, mut told) = self.next(peers, sequence);
        told.extend_from_slice(payload);
        peers.send(Kind::Broadcast, sequence, &places, |_| &told, wait)?;
        self.keep(sequence, Told::Broadcast(told));
        Ok(())
    }

    /// Sends each rank its frame.
    ///
    /// # Errors
    /// Names the late or lost rank, if that ends the operation.
    pub fn scatter(&mut self, peers: &mut Peers, sequence: u64, frames: &Frames, wait: Wait<'_>) -> Result<(), Error> {
        peers.check_alive(wait.operation())?;
        let (before, places, announcement) = self.next(peers, sequence);
        let parts: BTreeMap<usize, Vec<u8>> = places
            .iter()
            .map(|&place| {
                let below = before.reach(place + 1, &|rank| peers.list()[rank - 1].is_some());
                (place, part(&announcement, frames, &below))
            })
            .collect();
        peers.send(Kind::Scatter, sequence, &places, |place| &parts[&place], wait)?;
        self.keep(sequence, Told::Scatter(announcement, frames.clone()));
        Ok(())
    }

    /// Updates the tree to the present ranks. Returns the previous tree, the places to which the
    /// root sends directly, and the prefix of the payload.
    fn next(&mut self, peers: &Peers, sequence: u64) -> (Shape, Vec<usize>, Vec<u8>) {
        let before = self.shape.clone();
        let present = |rank: Rank| peers.list()[rank - 1].is_some();
        let mut ranks: BTreeSet<Rank> = before.tops(&present).into_iter().collect();
        ranks.extend((1..before.size()).filter(|&rank| present(rank) && !before.has(rank)));
        let asking = std::mem::take(&mut self.owed).into_iter().filter(|(_, asked)| *asked == sequence);
        ranks.extend(asking.map(|(rank, _)| rank).filter(|&rank| present(rank)));
        for rank in 1..before.size() {
            match (present(rank), self.shape.has(rank)) {
                (false, true) => self.shape.remove(rank),
                (true, false) => self.shape.raise(rank),
                _ => {}
            }
        }
        for stray in std::mem::take(&mut self.strays) {
            if present(stray) && self.shape.parent(stray) != ROOT {
                self.shape.raise(stray);
            }
        }
        let told = if self.shape == before { Vec::new() } else { self.shape.encode() };
        let mut announcement = (told.len() as u32).to_le_bytes().to_vec();
        announcement.extend_from_slice(&told);
        (before, ranks.into_iter().map(|rank| rank - 1).collect(), announcement)
    }

    /// Answers ranks that have not received a message.
    ///
    /// # Errors
    /// Returns an error if a frame is too long.
    pub fn answer_all(&mut self, peers: &mut Peers) -> Result<(), Error> {
        for place in peers.present() {
            while let Some(peer) = peers.at(place) {
                // Whatever else is there is for the next operation.
                let Ok(Some((Kind::Ask, sequence))) = peer.next_frame(ASKING) else { break };
                peer.consume();
                self.answer(peers, place + 1, sequence)?;
            }
        }
        Ok(())
    }

    fn answer(&mut self, peers: &mut Peers, rank: Rank, sequence: u64) -> Result<(), Error> {
        let Some(peer) = peers.at(rank - 1) else { return Ok(()) };
        if self.told.back().is_none_or(|(latest, _)| *latest < sequence) {
            self.owed.insert(rank, sequence);
            return Ok(());
        }
        match self.told.iter().find(|(told, _)| *told == sequence) {
            Some((_, Told::Broadcast(told))) => peer.say(Kind::Broadcast, sequence, told, ASKING),
            Some((_, Told::Scatter(announcement, frames))) => {
                let part = part(announcement, frames, &self.shape.subtree(rank));
                peer.say(Kind::Scatter, sequence, &part, ASKING)
            }
            // It is too far behind, and late in the next gather.
            None => Ok(()),
        }
    }

    fn keep(&mut self, sequence: u64, told: Told) {
        self.told.push_back((sequence, told));
        let bytes = |told: &VecDeque<(u64, Told)>| told.iter().map(|(_, told)| told.len()).sum::<usize>();
        while self.told.len() > KEPT || (self.told.len() > 1 && bytes(&self.told) > KEPT_BYTES) {
            self.told.pop_front();
        }
    }
}

impl Told {
    fn len(&self) -> usize {
        match self {
            Self::Broadcast(bytes) => bytes.len(),
            Self::Scatter(announcement, frames) => announcement.len() + frames.iter().map(<[u8]>::len).sum::<usize>(),
        }
    }
}

impl Gathering<'_> {
    /// Adds the frames of a bundle from this rank; returns true if its own is included.
    fn take(&mut self, from: Rank, bundle: &[u8]) -> Result<bool, String> {
        let mut own = false;
        for (rank, frame) in Bundle::frames(bundle, self.have.len())? {
            own |= rank == from;
            if self.pending.remove(&rank) {
                self.have[rank] = Some(frame.to_vec());
            }
        }
        Ok(own)
    }

    /// Asks those of the ranks for their frames that are missing and have not been asked.
    fn ask(&mut self, peers: &mut Peers, ranks: &[Rank]) -> Result<(), Error> {
        for &rank in ranks {
            let asked = self.pending.contains(&rank) && self.asked.insert(rank);
            if let Some(peer) = peers.at(rank.wrapping_sub(1)).filter(|_| asked) {
                peer.say(Kind::Ask, self.sequence, &[], ASKING)?;
            }
        }
        Ok(())
    }
}

/// Returns the part of a scatter for one rank: the frames of these ranks.
fn part(announcement: &[u8], frames: &Frames, ranks: &[Rank]) -> Vec<u8> {
    let (mut bundle, mut bytes) = (Bundle::default(), announcement.to_vec());
    ranks.iter().for_each(|&rank| bundle.push(rank, frames.frame(rank)));
    bundle.encode(&mut bytes);
    bytes
}

/// Share of a gather's time after which all missing frames are requested.
const ASK_AT: f64 = 0.5;

/// Most messages kept, and their bytes; the latest is always kept.
const KEPT: usize = 16;
const KEPT_BYTES: usize = 16 << 20;

const ASKING: &str = "asking past the tree";

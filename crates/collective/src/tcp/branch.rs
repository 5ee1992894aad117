//! A non-root rank of the tree: what it forwards, and how it handles a parent that does not.
//!
//! `trunk` is the root's side. A rank hears its children on connections that they have opened
//! (`children`) and its parent on a connection that it has opened; it is also always connected to
//! the root. In a gather it waits for its children's frames for part of the time, longer the higher
//! it is in the tree, and forwards those that have arrived. If its parent does not answer, or the
//! root is already past the message it waits for, it talks to the root directly and asks the root
//! for the data it has missed. Data already received is dropped, so a frame may arrive twice.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::bundle::Bundle;
use super::children::Children;
use super::connection::Connection;
use super::frame::Kind;
use super::greeting::{Errand, Hello};
use super::joining::attempt;
use super::newcomers::Expected;
use super::peers::Peers;
use super::shape::Shape;
use crate::{Error, ROOT, Rank, Wait, random_bytes};

/// A rank's side of a tree.
#[derive(Debug)]
pub(super) struct Branch {
    rank: Rank,
    expected: Expected,
    /// None until received from the root.
    shape: Option<Shape>,
    children: Option<Children>,
    /// Children that connected before this rank knew that they are its children.
    early: Vec<Connection>,
    /// The latest gather, and this rank's own frame.
    own: Option<(u64, Vec<u8>)>,
    /// Latest gather for which the root has asked this rank directly.
    asked: u64,
    /// How long to wait for missing children of a new tree.
    meeting: Instant,
    /// Share of a gather's time for which this rank waits for its children.
    children_part: f64,
    /// Share of a broadcast's time for which it waits for its parent.
    parent_part: f64,
    /// Number of parents that were not reached.
    pub retries: u64,
}

/// Result of checking one connection.
enum Heard {
    /// Frames of a child.
    Child(Rank),
    /// The expected frame, at this place.
    Told(usize),
    /// A rank has ended the run.
    End,
    Nothing,
}

impl Branch {
    /// Creates the branch of a rank that admits its children at `children`; a returning one has
    /// none.
    pub fn new(rank: Rank, expected: Expected, children: Option<Children>) -> Self {
        Self {
            rank,
            expected,
            shape: None,
            children,
            early: Vec::new(),
            own: None,
            asked: 0,
            meeting: Instant::now(),
            children_part: 0.0,
            parent_part: 0.5,
            retries: 0,
        }
    }

    /// Prepares the connections; that of the root exists already.
    ///
    /// # Errors
    /// Returns an error if the system cannot watch them.
    pub fn prepare(&self, peers: &mut Peers) -> Result<(), Error> {
        peers.widen(self.expected.size + 1);
        peers.on_loss(super::peers::Losses::Pass);
        self.children.as_ref().map_or(Ok(()), |children| peers.wake_by(children.bell()))
    }

    /// Makes a returning rank listen to the root directly, without children until told otherwise.
    pub fn come_back(&mut self) {
        self.shape = Some(Shape::alone(self.rank, self.expected.size));
    }

    /// Returns the place of the parent's connection.
    fn up(&self) -> usize {
        self.expected.size
    }

    fn parent(&self) -> Rank {
        self.shape.as_ref().map_or(ROOT, |shape| shape.parent(self.rank))
    }

    fn below(&self) -> &[Rank] {
        self.shape.as_ref().map_or(&[], |shape| shape.children(self.rank))
    }

    /// Waits for the first tree.
    fn learn(&mut self, peers: &mut Peers, wait: &mut Wait<'_>) -> Result<(), Error> {
        let operation = wait.operation();
        while self.shape.is_none() {
            let Some(root) = peers.at(CONTROL) else { return Err(wait.late(vec![ROOT])) };
            match root.next_frame(operation)? {
                Some((Kind::Tree, 0)) => {
                    let shape = Shape::decode(root.payload(), self.expected.size);
                    let shape = shape.ok_or_else(|| root.wrong("an invalid tree".to_owned(), operation))?;
                    root.consume();
                    self.grow(shape, peers, wait)?;
                }
                Some(found) => return Err(root.unexpected(found, (Kind::Tree, 0), operation)),
                None => {
                    let Some(slice) = wait.slice() else { return Err(wait.late(vec![ROOT])) };
                    peers.sleep(slice, &mut Vec::new(), operation)?;
                }
            }
        }
        Ok(())
    }

    /// Moves to its place in another tree.
    fn grow(&mut self, shape: Shape, peers: &mut Peers, wait: &mut Wait<'_>) -> Result<(), Error> {
        let (top, depth) = (shape.height(ROOT).max(1) as f64, shape.depth(self.rank) as f64);
        self.children_part = 0.5 * shape.height(self.rank) as f64 / top;
        self.parent_part = 0.25 + 0.25 * depth / top;
        let before = self.below().to_vec();
        let parent = shape.parent(self.rank);
        self.shape = Some(shape);
        for gone in before.into_iter().filter(|rank| !self.below().contains(rank)) {
            peers.remove(gone);
        }
        if peers.at(self.up()).is_some_and(|up| up.rank() != parent) {
            peers.remove(self.up());
        }
        if parent != ROOT && peers.at(self.up()).is_none() {
            self.reach(parent, peers, wait)?;
        }
        self.meeting = Instant::now() + MEETING_TIME;
        self.let_in(peers, &mut Vec::new())
    }

    /// Connects to the parent, if it answers soon.
    fn reach(&mut self, parent: Rank, peers: &mut Peers, wait: &mut Wait<'_>) -> Result<(), Error> {
        let Some(address) = self.shape.as_ref().and_then(|shape| shape.address(parent)) else { return Ok(()) };
        let hello = Hello::new(self.rank, self.expected.size, Errand::Child, random_bytes()?);
        let hello = hello.in_tree(self.expected.fan_out, 0).to(parent);
        let mut deadline = wait.sooner(0.25);
        deadline.at = deadline.at.min(Instant::now() + CONNECT_TIME);
        let mut sooner = Wait::begin(wait.operation(), &deadline);
        match attempt(&[address.to_string()], &hello, self.expected.job, &self.expected.options, &mut sooner) {
            Ok(greeted) => peers.put(self.up(), Connection::new(greeted.stream, parent, greeted.seals)),
            Err(failed) => {
                self.retries += 1;
                let why = failed.reason();
                tracing::warn!(parent, %address, why, "cannot reach this rank's parent in the tree; using rank 0 instead");
                Ok(())
            }
        }
    }

    /// Admits children that have connected.
    fn let_in(&mut self, peers: &mut Peers, ready: &mut Vec<usize>) -> Result<(), Error> {
        let came = self.children.as_ref().map_or_else(Vec::new, Children::came);
        for child in std::mem::take(&mut self.early).into_iter().chain(came) {
            let rank = child.rank();
            if self.below().contains(&rank) {
                peers.remove(rank);
                peers.put(rank, child)?;
                ready.push(rank);
            } else {
                self.early.retain(|early| early.rank() != rank);
                self.early.push(child);
            }
        }
        Ok(())
    }

    /// Waits for children of a new tree, so that broadcasts reach them from here.
    fn meet(&mut self, peers: &mut Peers, wait: &mut Wait<'_>) -> Result<(), Error> {
        let mut ready = Vec::new();
        loop {
            self.let_in(peers, &mut ready)?;
            let limit = self.meeting.min(wait.at(0.5)).saturating_duration_since(Instant::now());
            if limit.is_zero() || self.below().iter().all(|&child| peers.list()[child].is_some()) {
                return Ok(());
            }
            peers.sleep(limit.min(Wait::SLICE), &mut ready, wait.operation())?;
        }
    }

    /// Does this rank's part in a gather, and that of its subtree.
    ///
    /// # Errors
    /// Returns an error if the root is late or lost.
    pub fn gather(
        &mut self,
        peers: &mut Peers,
        sequence: u64,
        participants: &[bool],
        payload: &[u8],
        mut wait: Wait<'_>,
    ) -> Result<(), Error> {
        self.learn(peers, &mut wait)?;
        let mut bundle = Bundle::default();
        if participants[self.rank] {
            bundle.push(self.rank, payload);
            let mut own = Vec::new();
            bundle.encode(&mut own);
            self.own = Some((sequence, own));
            if self.asked == sequence {
                self.say_own(peers)?;
            }
        }
        let shape = self.shape.as_ref();
        let matters =
            |child: Rank| shape.is_some_and(|shape| shape.subtree(child).into_iter().any(|rank| participants[rank]));
        let mut expected: BTreeSet<Rank> = self.below().iter().copied().filter(|&child| matters(child)).collect();
        if expected.is_empty() && !participants[self.rank] {
            return Ok(());
        }
        let mut ready = peers.present();
        loop {
            self.let_in(peers, &mut ready)?;
            for place in ready.drain(..) {
                while let Heard::Child(child) = self.hear(peers, place, (Kind::Gather, sequence), &wait)? {
                    if let Some(peer) = peers.at(child) {
                        let frames = Bundle::frames(peer.payload(), self.expected.size);
                        // One that sends something else is heard no more; the root asks whom it
                        // misses.
                        frames.unwrap_or_default().into_iter().for_each(|(rank, frame)| bundle.push(rank, frame));
                        peer.consume();
                    }
                    expected.remove(&child);
                }
            }
            let meeting = Instant::now() < self.meeting;
            expected.retain(|&child| meeting || peers.list()[child].is_some());
            let enough = wait.at(self.children_part);
            if expected.is_empty() || Instant::now() >= enough {
                break;
            }
            let Some(slice) = wait.slice_until(enough) else { break };
            peers.sleep_and_work(slice, &mut ready, wait.operation())?;
        }
        let mut bytes = Vec::new();
        bundle.encode(&mut bytes);
        self.pass_up(peers, sequence, &bytes, wait)
    }

    /// Sends a bundle to the parent, or to the root.
    fn pass_up(&self, peers: &mut Peers, sequence: u64, bytes: &[u8], mut wait: Wait<'_>) -> Result<(), Error> {
        if peers.at(self.up()).is_some() {
            let sooner = wait.sooner(0.75);
            peers.send(Kind::Gather, sequence, &[self.up()], |_| bytes, Wait::begin(wait.operation(), &sooner))?;
            if peers.at(self.up()).is_some() {
                return check_root(peers);
            }
        }
        peers.send(Kind::Gather, sequence, &[CONTROL], |_| bytes, wait)?;
        check_root(peers)
    }

    /// Receives the root's message in a broadcast or a scatter, forwards it and passes it to
    /// `take`, without the tree.
    ///
    /// # Errors
    /// Returns an error if the root is late or lost.
    pub fn hear_root(
        &mut self,
        peers: &mut Peers,
        kind: Kind,
        sequence: u64,
        out: &mut Vec<u8>,
        mut wait: Wait<'_>,
    ) -> Result<(), Error> {
        self.learn(peers, &mut wait)?;
        let (mut asked, mut end) = (false, None);
        let mut ready = peers.present();
        let place = 'told: loop {
            self.let_in(peers, &mut ready)?;
            for place in ready.drain(..) {
                match self.hear(peers, place, (kind, sequence), &wait)? {
                    Heard::Told(place) => break 'told place,
                    Heard::End => end = end.or_else(|| Some(Instant::now() + END_TIME)),
                    Heard::Child(_) | Heard::Nothing => {}
                }
            }
            if let (Some(true), Some(root)) = (end.map(|end| Instant::now() >= end), peers.at(CONTROL)) {
                // It says that again.
                root.next_frame(wait.operation())?;
            }
            let orphan = self.parent() != ROOT && peers.at(self.up()).is_none();
            // A root that asks for a later frame has sent this message, and waits for that frame.
            let missed = self.asked > sequence;
            let enough = wait.at(self.parent_part);
            if !asked && (orphan || missed || Instant::now() >= enough) {
                asked = true;
                if let Some(root) = peers.at(CONTROL) {
                    root.say(Kind::Ask, sequence, &[], wait.operation())?;
                }
            }
            let Some(slice) = wait.slice_until(enough) else { return Err(wait.late(vec![ROOT])) };
            let slice = if end.is_some() { slice.min(END_TIME) } else { slice };
            peers.sleep_and_work(slice, &mut ready, wait.operation())?;
        };
        let mut told = Vec::new();
        if let Some(peer) = peers.at(place) {
            told.extend_from_slice(peer.payload());
            peer.consume();
        }
        self.pass_down(peers, kind, sequence, &told, out, wait)
    }

    /// Forwards a message, and extracts this rank's part and the tree.
    fn pass_down(
        &mut self,
        peers: &mut Peers,
        kind: Kind,
        sequence: u64,
        told: &[u8],
        out: &mut Vec<u8>,
        mut wait: Wait<'_>,
    ) -> Result<(), Error> {
        let operation = wait.operation();
        let wrong = |what: &str| Error::Protocol { operation, rank: ROOT, what: what.to_owned() };
        let parts = told
            .split_first_chunk::<4>()
            .and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize));
        let (shape, payload) = parts.ok_or_else(|| wrong("a frame without its tree"))?;
        self.meet(peers, &mut wait)?;
        let there: Vec<Rank> = self.below().iter().copied().filter(|&child| peers.list()[child].is_some()).collect();
        out.clear();
        let sooner = wait.sooner(0.75);
        let passing = Wait::begin(operation, &sooner);
        if kind == Kind::Broadcast {
            out.extend_from_slice(payload);
            peers.send(kind, sequence, &there, |_| told, passing)?;
        } else {
            let frames = Bundle::frames(payload, self.expected.size).map_err(|what| wrong(&what))?;
            let parts: Vec<Vec<u8>> = there.iter().map(|&child| self.part(child, &frames, told, payload)).collect();
            let of = |place: usize| there.iter().position(|&child| child == place).map_or(&[][..], |at| &parts[at]);
            peers.send(kind, sequence, &there, of, passing)?;
            let own = frames.iter().find(|(rank, _)| *rank == self.rank);
            out.extend_from_slice(own.ok_or_else(|| wrong("no frame for this rank"))?.1);
        }
        check_root(peers)?;
        if shape.is_empty() {
            return Ok(());
        }
        let shape = Shape::decode(shape, self.expected.size).ok_or_else(|| wrong("an invalid tree"))?;
        self.grow(shape, peers, &mut wait)
    }

    /// Returns a child's part of a scatter.
    fn part(&self, child: Rank, frames: &[(Rank, &[u8])], told: &[u8], payload: &[u8]) -> Vec<u8> {
        let below = self.shape.as_ref().map_or_else(Vec::new, |shape| shape.subtree(child));
        let (mut bundle, mut bytes) = (Bundle::default(), told[..told.len() - payload.len()].to_vec());
        frames.iter().filter(|(rank, _)| below.contains(rank)).for_each(|(rank, frame)| bundle.push(*rank, frame));
        bundle.encode(&mut bytes);
        bytes
    }

    /// Reads what has arrived at a place, while this frame is expected.
    fn hear(&mut self, peers: &mut Peers, place: usize, due: (Kind, u64), wait: &Wait<'_>) -> Result<Heard, Error> {
        let operation = wait.operation();
        while let Some(peer) = peers.at(place) {
            let found = match peer.next_frame(operation) {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(Heard::Nothing),
                // What was told before may still be on its way through the tree.
                Err(Error::Aborted { .. } | Error::Lost { .. }) if place == CONTROL && due.0 != Kind::Gather => {
                    return Ok(Heard::End);
                }
                Err(error) if place == CONTROL => return Err(error),
                Err(_) => {
                    peers.remove(place);
                    return Ok(Heard::Nothing);
                }
            };
            let (kind, sequence) = found;
            match kind {
                Kind::Ask if place == CONTROL => {
                    peer.consume();
                    self.asked = sequence;
                    if self.own.as_ref().is_some_and(|(own, _)| *own == sequence) {
                        self.say_own(peers)?;
                    }
                }
                Kind::Gather if place != CONTROL && place != self.up() && found == due => {
                    return Ok(Heard::Child(place));
                }
                Kind::Broadcast | Kind::Scatter if (place == CONTROL || place == self.up()) && found == due => {
                    return Ok(Heard::Told(place));
                }
                Kind::Gather if place != CONTROL && place != self.up() && sequence < due.1 => {
                    // It came after this rank's own bundle had left; the root takes it if it still
                    // waits for it.
                    let late = peer.payload().to_vec();
                    peer.consume();
                    if let Some(root) = peers.at(CONTROL) {
                        root.say(kind, sequence, &late, operation)?;
                    }
                }
                Kind::Gather | Kind::Broadcast | Kind::Scatter if sequence < due.1 => peer.consume(),
                Kind::Gather | Kind::Broadcast | Kind::Scatter if sequence > due.1 => return Ok(Heard::Nothing),
                // A child that is still in the gather before what is told; a parent that is ahead
                // of this rank.
                Kind::Gather | Kind::Broadcast | Kind::Scatter if place != CONTROL => return Ok(Heard::Nothing),
                _ if place == CONTROL => return Err(peer.unexpected(found, due, operation)),
                _ => {
                    peers.remove(place);
                }
            }
        }
        Ok(Heard::Nothing)
    }

    /// Sends this rank's own frame to the root.
    fn say_own(&self, peers: &mut Peers) -> Result<(), Error> {
        match (&self.own, peers.at(CONTROL)) {
            (Some((sequence, own)), Some(root)) => root.say(Kind::Gather, *sequence, own, "gather"),
            _ => Ok(()),
        }
    }

    /// Answers the root while this rank is in no operation.
    ///
    /// # Errors
    /// Returns an error if a frame is too long.
    pub fn answer(&mut self, peers: &mut Peers) -> Result<(), Error> {
        while let Some(root) = peers.at(CONTROL) {
            // Whatever else is there is for the next operation.
            let Ok(Some((Kind::Ask, sequence))) = root.next_frame("calls") else { break };
            root.consume();
            self.asked = sequence;
            if self.own.as_ref().is_some_and(|(own, _)| *own == sequence) {
                self.say_own(peers)?;
            }
        }
        Ok(())
    }
}

/// Accepts only messages consistent with the root's present state.
fn check_root(peers: &mut Peers) -> Result<(), Error> {
    let lost = peers.gone().into_iter().find(|gone| gone.rank == ROOT);
    lost.map_or(Ok(()), |gone| Err(gone.error))
}

/// Place of the root's connection.
pub(super) const CONTROL: usize = 0;

/// Time limit for connecting to a parent.
const CONNECT_TIME: Duration = Duration::from_secs(1);

/// Longest delay of messages sent before the run was ended or the root disappeared.
const END_TIME: Duration = Duration::from_millis(250);

/// How long a rank waits for missing children of a new tree.
const MEETING_TIME: Duration = Duration::from_millis(1500);

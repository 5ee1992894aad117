//! The TCP backend, a star of persistent connections around the root.
//!
//! It serves runs without MPI, `--local N` and torchrun-style launchers. `rendezvous` opens one
//! connection per rank, once, with proof that both ends belong to the run. A gather is one frame
//! per participant to the root, a broadcast one frame from it. Every wait sleeps in `peers` until a
//! socket is ready, has a deadline and names the late ranks. Words travel between the frames. Once
//! the root continues without lost ranks, a rank that is gone or late is left out, and a process
//! started in its place can return through the `door`. Ranks also send files to that address, on
//! separate connections, from `sending` to `receiving`. If the root is lost, the remaining ranks
//! form a group around another root (`succession`). It does not encrypt.

mod backend;
mod branch;
mod bundle;
mod children;
mod coming_back;
mod connection;
mod delivery;
mod door;
mod earlier_run;
mod frame;
mod greeting;
mod incoming;
mod job_key;
mod joining;
mod local;
mod newcomers;
mod options;
#[cfg(feature = "suite")]
mod parsing;
mod peers;
mod process;
mod receiving;
mod reconnecting;
mod rendezvous;
mod secret;
mod sending;
mod shape;
mod sockets;
mod star;
mod succession;
#[cfg(test)]
mod tests;
mod trunk;
mod unique_id;

pub use rendezvous::{bind, bind_everywhere};

use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Arc;

use crate::labels::exchanged;
use crate::{
    Call, Collective, Deadline, Error, FilePlaces, Frames, ROOT, Rank, SideWork, Traffic, Wait, check_frames,
    check_participants, check_word,
};
use branch::{Branch, CONTROL};
use children::Children;
use connection::Connection;
use door::Door;
use frame::Kind;
use joining::Way;
use local::Offers;
use newcomers::Expected;
use peers::{Gone, Peers};
use rendezvous::Met;
use secret::Secret;
use trunk::Trunk;

pub use backend::Tcp;
pub use earlier_run::EarlierRun;
pub use job_key::JobKey;
pub use options::{FanOut, TcpOptions};
#[cfg(feature = "suite")]
pub use parsing::parse_peer_bytes;
pub use sending::FileSender;
pub use unique_id::{Meeting, UniqueId};

/// One rank of a group with a fixed root, labelled 0.
#[derive(Debug)]
struct Group {
    rank: Rank,
    size: usize,
    local_ip: IpAddr,
    peers: Peers,
    tree: Tree,
    /// Number of operations so far; equal on all ranks.
    sequence: u64,
    failed: Option<String>,
    way_back: WayBack,
    /// Ranks that have left since the last query.
    left: Vec<(Rank, Error)>,
    /// At the root: connections of ranks that were told that the group continues without them, at
    /// most one per rank.
    parted: Vec<(Rank, Arc<TcpStream>)>,
    /// Ranks that ask to return.
    asking: Vec<Connection>,
    /// At the root: where files sent by ranks are stored.
    files: Option<Arc<dyn FilePlaces>>,
    /// Number of failed attempts to join.
    retries: u64,
    /// How this rank has reached the root; `None` at the root.
    way: Option<Way>,
}

/// Topology of frames between the root and the others.
#[derive(Debug)]
enum Tree {
    /// Directly.
    Star,
    /// Through the tree, with this rank as the root.
    Trunk(Trunk),
    /// Through the tree; this rank forwards for its subtree.
    Branch(Box<Branch>),
}

/// How lost ranks return.
#[derive(Debug)]
enum WayBack {
    /// They do not: the first lost rank ends the group. At the root with the parts of a door.
    Closed(Option<(TcpListener, Expected)>),
    /// The group continues without them, and they may return.
    Open(Door),
    /// The group continues without them, and they may no longer return.
    Ended,
    /// This rank is returning and has not taken part yet; with the root's notice, until it is
    /// requested.
    Returning(Option<Secret>),
}

impl Group {
    /// Implements [`Tcp::host_with`].
    pub fn host_with(
        listener: TcpListener,
        size: usize,
        job: JobKey,
        options: TcpOptions,
        deadline: &Deadline,
    ) -> Result<Self, Error> {
        let expected = Expected::new(size, job, options);
        let Met { joined, ports, local } = rendezvous::host(&listener, expected, deadline)?;
        let fan_out = expected.fan_out;
        let trunk = (fan_out > 0).then(|| Trunk::new(&joined, &ports, fan_out, local));
        let mut group = Self::new(ROOT, size, local, Vec::new(), WayBack::Closed(Some((listener, expected))))?;
        group.peers.widen(size.saturating_sub(1));
        joined.into_iter().flatten().try_for_each(|peer| group.peers.put(peer.rank() - 1, peer))?;
        if let Some(trunk) = trunk {
            trunk.announce(&mut group.peers, Wait::begin("rendezvous", deadline))?;
            group.tree = Tree::Trunk(trunk);
        } else if options.local {
            group.offer_local()?;
        }
        Ok(group)
    }

    /// Joins the group of `expected` with this label; `addresses` are its root's.
    pub fn join_any(addresses: &[String], rank: Rank, expected: Expected, deadline: &Deadline) -> Result<Self, Error> {
        Self::join_or_return(addresses, &EarlierRun::default(), rank, expected, deadline).map(|(group, _)| group)
    }

    /// Implements [`Tcp::join_or_return`]: returns the group and the rank that is its root.
    pub fn join_or_return(
        addresses: &[String],
        earlier: &EarlierRun,
        rank: Rank,
        expected: Expected,
        deadline: &Deadline,
    ) -> Result<(Self, Rank), Error> {
        let (size, options) = (expected.size, expected.options);
        let listener = (expected.fan_out > 0).then(|| joining::listen_for_children(addresses)).transpose()?;
        let port = listener.as_ref().and_then(|listener| Some(listener.local_addr().ok()?.port())).unwrap_or(0);
        let joining::Joining { mut root, local, back, root_rank, way, retries } =
            joining::join(addresses, earlier, rank, expected, port, deadline)?;
        if options.local {
            root.take_offers();
        }
        let met_anew = root_rank != expected.root;
        let label = if met_anew { exchanged(root_rank, rank) } else { rank };
        let mut group =
            Self { retries, way: Some(way), ..Self::new(label, size, local, vec![root], WayBack::Closed(None))? };
        // Whoever comes back has nobody below it.
        let children =
            listener.filter(|_| !back).map(|listener| Children::open(listener, rank, expected)).transpose()?;
        if expected.fan_out > 0 && !met_anew {
            group.tree = Tree::Branch(Box::new(Branch::new(rank, expected, children)));
        }
        if back {
            group.hear_notice(root_rank, expected, deadline)?;
        } else if let Tree::Branch(branch) = &group.tree {
            branch.prepare(&mut group.peers)?;
        }
        Ok((group, root_rank))
    }

    /// Returns this machine's address on the connection to the root; at the root, the one by which
    /// the others reached it.
    pub fn local_ip(&self) -> IpAddr {
        self.local_ip
    }

    fn new(
        rank: Rank,
        size: usize,
        local_ip: IpAddr,
        peers: Vec<Connection>,
        way_back: WayBack,
    ) -> Result<Self, Error> {
        let peers = Peers::new(rank, peers)?;
        let (left, parted, asking) = (Vec::new(), Vec::new(), Vec::new());
        let (sequence, failed, files, retries) = (0, None, None, 0);
        let tree = Tree::Star;
        Ok(Self {
            rank,
            size,
            local_ip,
            peers,
            tree,
            sequence,
            failed,
            way_back,
            left,
            parted,
            asking,
            files,
            retries,
            way: None,
        })
    }

    /// Offers the ranks of this host another connection for their frames.
    ///
    /// # Errors
    /// Never fails, because the offers are short.
    fn offer_local(&mut self) -> Result<(), Error> {
        let Some(offers) = Offers::open(self.size).map(Arc::new) else { return Ok(()) };
        self.peers.all().try_for_each(|peer| peer.offer(&offers))
    }

    /// Frees the place of the process at the other end.
    fn leave_place(&self, gone: &Connection) {
        if let WayBack::Open(door) = &self.way_back {
            door.leave(gone.rank(), gone.process());
        }
    }

    /// Keeps the connection of a lost rank open until another process has its place. If it were
    /// closed, data still sent by a rank that was cut off would be answered by a reset, which
    /// discards the reason still in transit; the rank would then search for another master in vain.
    fn keep_open(&mut self, gone: &Connection) {
        if self.rank == ROOT {
            self.parted.retain(|(rank, _)| *rank != gone.rank());
            self.parted.push((gone.rank(), Arc::clone(gone.stream())));
        }
    }

    /// Records ranks that were lost in an operation that continued.
    fn note_gone(&mut self) {
        for Gone { rank, connection, error } in self.peers.gone() {
            self.leave_place(&connection);
            self.keep_open(&connection);
            self.left.push((rank, error));
        }
    }

    /// Receives a frame from the root.
    fn receive_from_root(&mut self, kind: Kind, sequence: u64, wait: Wait<'_>) -> Result<Vec<u8>, Error> {
        self.peers.receive(kind, sequence, &[CONTROL], wait)?;
        let Some(root) = self.peers.at(CONTROL) else { return Ok(Vec::new()) };
        let payload = root.payload().to_vec();
        root.consume();
        Ok(payload)
    }

    /// Refuses all operations after one that failed.
    fn check_failed(&self, operation: &'static str) -> Result<(), Error> {
        let before = |reason| Error::Backend { operation, reason: format!("the group had already failed: {reason}") };
        self.failed.as_ref().map_or(Ok(()), |reason| Err(before(reason)))
    }

    /// Runs one operation; afterwards the group is unusable if it failed. The root forwards an
    /// abort to all.
    fn operate(
        &mut self,
        operation: &'static str,
        run: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.check_failed(operation)?;
        self.sequence += 1;
        let result = run(self);
        self.note_gone();
        if let Err(error) = &result {
            self.failed = Some(error.to_string());
            if let (Error::Aborted { rank, reason, .. }, ROOT) = (error, self.rank) {
                self.peers.all().for_each(|peer| peer.send_abort(*rank, reason));
            }
        }
        result
    }
}

impl Collective for Group {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn backend(&self) -> &'static str {
        "tcp"
    }

    fn gather(
        &mut self,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        check_participants((self.rank, ROOT), self.size, participants)?;
        frames.clear();
        self.operate("gather", |group| {
            let (wait, sequence) = (Wait::begin("gather", deadline), group.sequence);
            match &mut group.tree {
                Tree::Trunk(trunk) => {
                    frames.push(payload);
                    trunk.gather(&mut group.peers, sequence, participants, frames, wait)
                }
                Tree::Branch(branch) => branch.gather(&mut group.peers, sequence, participants, payload, wait),
                Tree::Star => group.gather_in_star(participants, payload, frames, wait),
            }
        })
    }

    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        self.operate("broadcast", |group| {
            let (wait, sequence) = (Wait::begin("broadcast", deadline), group.sequence);
            match &mut group.tree {
                Tree::Trunk(trunk) => return trunk.broadcast(&mut group.peers, sequence, buffer, wait),
                Tree::Branch(branch) => {
                    return branch.hear_root(&mut group.peers, Kind::Broadcast, sequence, buffer, wait);
                }
                Tree::Star => {}
            }
            if group.rank != ROOT {
                *buffer = group.receive_from_root(Kind::Broadcast, sequence, wait)?;
                return Ok(());
            }
            group.peers.check_alive("broadcast")?;
            group.peers.send(Kind::Broadcast, sequence, &group.peers.present(), |_| buffer, wait)
        })
    }

    fn scatter(&mut self, frames: &Frames, own: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        check_frames((self.rank, ROOT), self.size, frames)?;
        self.operate("scatter", |group| {
            let (wait, sequence) = (Wait::begin("scatter", deadline), group.sequence);
            if let Tree::Branch(branch) = &mut group.tree {
                return branch.hear_root(&mut group.peers, Kind::Scatter, sequence, own, wait);
            }
            if group.rank != ROOT {
                *own = group.receive_from_root(Kind::Scatter, sequence, wait)?;
                return Ok(());
            }
            own.clear();
            own.extend_from_slice(frames.frame(ROOT));
            if let Tree::Trunk(trunk) = &mut group.tree {
                return trunk.scatter(&mut group.peers, sequence, frames, wait);
            }
            group.peers.check_alive("scatter")?;
            group.peers.send(Kind::Scatter, sequence, &group.peers.present(), |place| frames.frame(place + 1), wait)
        })
    }

    fn call(&mut self, word: &[u8]) -> Result<(), Error> {
        check_word(self.rank, word)?;
        self.check_failed("call")?;
        if self.rank == ROOT {
            self.peers.all().try_for_each(|peer| peer.say(Kind::Word, 0, word, "call"))?;
        } else if let Some(root) = self.peers.at(CONTROL) {
            root.say(Kind::Word, 0, word, "call")?;
        }
        Ok(())
    }

    fn calls(&mut self) -> Result<Vec<Call>, Error> {
        self.check_failed("calls")?;
        let words = self.peers.words()?;
        match &mut self.tree {
            Tree::Trunk(trunk) => trunk.answer_all(&mut self.peers)?,
            Tree::Branch(branch) => branch.answer(&mut self.peers)?,
            Tree::Star => {}
        }
        Ok(words.into_iter().map(|(place, word)| (self.peers.rank_of(place), word)).collect())
    }

    fn work_while_waiting(&mut self, work: Arc<dyn SideWork>) -> bool {
        self.peers.work_while_waiting(work);
        true
    }

    fn traffic(&self) -> Traffic {
        let of_tree = if let Tree::Branch(branch) = &self.tree { branch.retries } else { 0 };
        self.peers.traffic().plus(Traffic { retries: self.retries + of_tree, ..Traffic::default() })
    }

    fn abort(&mut self, reason: &str) {
        let rank = self.rank;
        self.peers.all().for_each(|peer| peer.send_abort(rank, reason));
        self.failed.get_or_insert_with(|| format!("ended by this rank: {reason}"));
    }
}

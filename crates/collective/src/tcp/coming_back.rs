//! The return of ranks to a group in progress, and the handling of ranks that have left.
//!
//! This is the group's side of the `door`, which the root runs between operations, and the
//! returning rank's own side.

use std::sync::Arc;

use super::door::{Door, Place};
use super::earlier_run::EarlierRun;
use super::frame::{Hashed, Kind};
use super::joining::{self, Joining};
use super::newcomers::Expected;
use super::peers::Losses;
use super::process::replaces;
use super::secret::Secret;
use super::{CONTROL, Group, Tree, WayBack};
use crate::labels::{exchanged, renamed};
use crate::{Attendance, Deadline, Error, FilePlaces, ROOT, Rank, Wait};

impl Group {
    /// Implements [`super::Tcp::return_as_rank_0`]: returns the group and the rank that is its
    /// root.
    pub(super) fn return_as_rank_0(
        earlier: &EarlierRun,
        expected: Expected,
        deadline: &Deadline,
    ) -> Result<Option<(Self, Rank)>, Error> {
        let Some(joining) = joining::return_as_rank_0(earlier, expected, deadline)? else { return Ok(None) };
        let Joining { mut root, local, root_rank, way, retries, .. } = joining;
        if expected.options.local {
            root.take_offers();
        }
        let (label, size) = (exchanged(root_rank, ROOT), expected.size);
        let group = Self::new(label, size, local, vec![root], WayBack::Closed(None))?;
        let mut group = Self { retries, way: Some(way), ..group };
        group.hear_notice(root_rank, expected, deadline)?;
        Ok(Some((group, root_rank)))
    }

    /// Receives the notice of the run on a returning rank.
    pub(super) fn hear_notice(&mut self, root: Rank, expected: Expected, deadline: &Deadline) -> Result<(), Error> {
        let told = self.receive_from_root(Kind::Back, 0, Wait::begin("coming back", deadline));
        let notice = told.map_err(|error| if root == expected.root { error } else { renamed(error, root) })?;
        self.way_back = WayBack::Returning(Some(Secret(notice)));
        Ok(())
    }

    /// Implements [`crate::Admission::missing`].
    pub(super) fn missing(&self) -> Vec<Rank> {
        let places = if self.rank == ROOT { self.peers.list() } else { &[] };
        (1..).zip(places).filter(|(_, peer)| peer.is_none()).map(|(rank, _)| rank).collect()
    }

    /// Implements [`crate::Admission::receive_files`].
    pub(super) fn receive_files(&mut self, places: Arc<dyn FilePlaces>) {
        self.files = Some(places);
    }

    /// Implements [`crate::FaultTolerance::continue_without_lost`].
    pub(super) fn continue_without_lost(&mut self, notice: Vec<u8>) -> Result<(), Error> {
        if let WayBack::Open(door) = &self.way_back {
            door.set_notice(Secret(notice));
            return Ok(());
        }
        self.open_door(Secret(notice))?;
        if let WayBack::Open(_) = &self.way_back {
            self.peers.on_loss(Losses::GoOn("; restart this rank"));
        }
        Ok(())
    }

    /// Opens the door with this notice, if it is closed.
    fn open_door(&mut self, notice: Secret) -> Result<(), Error> {
        let parts = if let WayBack::Closed(parts) = &mut self.way_back { parts.take() } else { None };
        if let Some((listener, expected)) = parts {
            let others = self.peers.list().iter().map(|peer| peer.as_ref().map(Place::of));
            let places = std::iter::once(None).chain(others).collect();
            self.way_back = WayBack::Open(Door::open(listener, expected, places, notice, self.files.take())?);
        }
        Ok(())
    }

    /// Implements [`crate::FaultTolerance::attendance`].
    pub(super) fn attendance(&mut self) -> Attendance {
        let returned = if let WayBack::Open(door) = &self.way_back { door.returned() } else { Vec::new() };
        // Who comes back has its place only because the process that had it is gone.
        for returned in &returned {
            let rank = returned.rank();
            let before = self.peers.at(rank - 1).map(|there| there.process());
            let same = before.is_some_and(|before| replaces(returned.process(), before));
            let reason = if same { "its connection broke" } else { "its process was restarted" }.to_owned();
            // In an open group that is no error.
            let _ = self.peers.lose(rank - 1, Error::Lost { operation: "coming back", rank, reason });
        }
        self.note_gone();
        let back = returned.iter().map(|back| (back.rank(), back.payload().to_vec())).collect();
        self.asking.extend(returned);
        Attendance { left: std::mem::take(&mut self.left), back }
    }

    /// Implements [`crate::Admission::admit`].
    pub(super) fn admit(&mut self, rank: Rank, verdict: Result<(), String>) -> bool {
        let Some(place) = self.asking.iter().position(|asking| asking.rank() == rank) else { return false };
        let mut asking = self.asking.swap_remove(place);
        asking.consume();
        if let Err(reason) = verdict {
            asking.send_dismissal(&reason);
            self.leave_place(&asking);
            return false;
        }
        let welcome = self.sequence.to_le_bytes();
        let told = asking
            .begin(Kind::Back, 1, (&welcome, &mut Hashed::default()), "coming back")
            .and_then(|mut frame| asking.send(&mut frame, &welcome, "coming back"));
        match told {
            // Where it cannot be watched its end shows at the door.
            Ok(true) => {
                self.parted.retain(|(parted, _)| *parted != rank);
                return self.peers.put(rank - 1, asking).is_ok();
            }
            Ok(false) => asking.send_dismissal("it does not read its messages"),
            // It has gone again, and was not here.
            Err(_) => {}
        }
        self.leave_place(&asking);
        false
    }

    /// Implements [`crate::Admission::end_admission`].
    pub(super) fn end_admission(&mut self) {
        if let WayBack::Open(door) = &self.way_back {
            for mut asking in std::mem::take(&mut self.asking).into_iter().chain(door.returned()) {
                asking.send_dismissal("the run has ended");
            }
            self.way_back = WayBack::Ended;
            if self.peers.goes_on() {
                self.peers.on_loss(Losses::GoOn(""));
            }
        }
    }

    /// Implements [`crate::Admission::notice`].
    pub(super) fn notice(&mut self) -> Option<Vec<u8>> {
        match &mut self.way_back {
            WayBack::Returning(notice) => notice.take().map(|Secret(notice)| notice),
            WayBack::Closed(_) | WayBack::Open(_) | WayBack::Ended => None,
        }
    }

    /// Implements [`crate::Admission::rejoin`].
    pub(super) fn rejoin(&mut self, statement: &[u8], deadline: &Deadline) -> Result<(), Error> {
        let wait = || Wait::begin("coming back", deadline);
        self.peers.send(Kind::Back, 0, &[CONTROL], |_| statement, wait())?;
        let sequence = self.receive_from_root(Kind::Back, 1, wait())?;
        let what = || format!("{} bytes that are not a sequence", sequence.len());
        let sequence = <[u8; 8]>::try_from(sequence.as_slice()).map_err(|_| Error::Protocol {
            operation: "coming back",
            rank: ROOT,
            what: what(),
        })?;
        self.sequence = u64::from_le_bytes(sequence);
        self.way_back = WayBack::Closed(None);
        if let Tree::Branch(branch) = &mut self.tree {
            branch.come_back();
            branch.prepare(&mut self.peers)?;
        }
        Ok(())
    }
}

//! The numbers by which Kineto's viewers identify rows: a pid for each process and device, a tid
//! for each row.
//!
//! As in Kineto, a device is a process next to the one that drives it: its pid is its number among
//! the devices, and a row's tid is the number of the stream. A number that is missing or already in
//! use is replaced by a free one that no system assigns. A process with the name of a device's
//! plane (`/device:GPU:0`) is also a device.

use std::collections::HashSet;

use foldhash::fast::FixedState;
use probe_sync_formats::chunk::{Track, TrackId, TrackKind};

use super::xspace_planes::trailing_number;

/// State of a track.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Its process or device.
    pub(super) pid: i64,
    /// Its number there.
    pub(super) tid: i64,
    /// Name in viewers.
    pub(super) name: String,
    /// Kind.
    pub(super) kind: RowKind,
    /// It is a device, or below one.
    pub(super) on_device: bool,
    parent: Option<TrackId>,
}

/// What a track is in Kineto.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum RowKind {
    /// A process of the system.
    Process,
    /// A process that stands for a device.
    Device,
    /// A row of either.
    Thread,
    /// A counter.
    Counter,
}

/// All tracks so far.
#[derive(Debug)]
pub(super) struct Rows {
    rows: Vec<Row>,
    pids: HashSet<i64, FixedState>,
    tids: HashSet<(i64, i64), FixedState>,
    next_free: i64,
    next_device: i64,
    /// The pid of tracks without a process above them.
    orphans: Option<i64>,
}

impl Default for Rows {
    fn default() -> Self {
        let (pids, tids) = (HashSet::default(), HashSet::default());
        Self { rows: Vec::new(), pids, tids, next_free: FREE_FROM, next_device: 0, orphans: None }
    }
}

impl Rows {
    /// Number of rows.
    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    /// One of the rows.
    #[inline]
    pub(super) fn row(&self, track: TrackId) -> &Row {
        &self.rows[track.0 as usize]
    }

    /// Numbers more tracks.
    pub(super) fn declare(&mut self, tracks: &[Track]) {
        let before = self.rows.len();
        let processes = tracks.iter().filter(|track| kind(track) == RowKind::Process).count();
        let several = processes + self.rows.iter().filter(|row| row.kind == RowKind::Process).count() > 1;
        for track in tracks {
            let kind = kind(track);
            let name = match (kind, &track.kind) {
                (RowKind::Process, _) if several || track.name.is_empty() => track.label(),
                (RowKind::Device, TrackKind::Process(_)) => device_name(&track.name).to_owned(),
                _ => track.name.clone(),
            };
            let on_device = kind == RowKind::Device;
            self.rows.push(Row { pid: NONE, tid: NONE, name, kind, on_device, parent: track.parent });
        }
        // Processes first: a device must not take the number of one that is declared after it.
        for (index, track) in (before..).zip(tracks) {
            if let (RowKind::Process, TrackKind::Process(process)) = (self.rows[index].kind, &track.kind) {
                let pid = Some(process.pid).filter(|pid| *pid != 0);
                self.rows[index].pid = self.pid(pid);
            }
        }
        for index in before..self.rows.len() {
            if self.rows[index].kind == RowKind::Device {
                let stated = trailing_number(&self.rows[index].name).unwrap_or(self.next_device);
                self.next_device = self.next_device.max(stated.saturating_add(1));
                self.rows[index].pid = self.pid(Some(stated).filter(|number| *number < DEVICES_MAX));
            }
        }
        for (index, track) in (before..).zip(tracks) {
            self.place(index, track);
        }
    }

    /// A tid that no other row of the process has.
    pub(super) fn free(&mut self) -> i64 {
        self.next_free += 1;
        self.next_free - 1
    }

    /// Puts a row below its process or device.
    fn place(&mut self, index: usize, track: &Track) {
        let above = self.above(index);
        let pid = match above {
            Some(above) => self.rows[above].pid,
            None => self.orphans_pid(),
        };
        let on_device = above.is_some_and(|above| self.rows[above].kind == RowKind::Device);
        let wanted = match (self.rows[index].kind, &track.kind) {
            (RowKind::Process | RowKind::Device | RowKind::Counter, _) => None,
            (_, TrackKind::Thread { tid }) => Some(*tid),
            _ => trailing_number(&track.name),
        };
        let tid = match self.rows[index].kind {
            RowKind::Thread => self.tid(pid, wanted),
            _ => 0,
        };
        let row = &mut self.rows[index];
        (row.pid, row.tid, row.on_device) = (pid, tid, on_device);
    }

    /// The process or device that a track stands for or is below.
    fn above(&self, index: usize) -> Option<usize> {
        let mut at = index;
        for _ in 0..TREE_DEPTH_MAX {
            if matches!(self.rows[at].kind, RowKind::Process | RowKind::Device) {
                return Some(at);
            }
            at = self.rows[at].parent?.0 as usize;
        }
        None
    }

    fn orphans_pid(&mut self) -> i64 {
        if let Some(pid) = self.orphans {
            return pid;
        }
        let pid = self.free();
        *self.orphans.insert(pid)
    }

    fn pid(&mut self, wanted: Option<i64>) -> i64 {
        match wanted.filter(|pid| (0..FREE_FROM).contains(pid) && self.pids.insert(*pid)) {
            Some(pid) => pid,
            None => self.free(),
        }
    }

    fn tid(&mut self, pid: i64, wanted: Option<i64>) -> i64 {
        match wanted.filter(|tid| (0..FREE_FROM).contains(tid) && self.tids.insert((pid, *tid))) {
            Some(tid) => tid,
            None => self.free(),
        }
    }
}

fn kind(track: &Track) -> RowKind {
    match &track.kind {
        TrackKind::Process(_) if track.name.starts_with(DEVICE_PLANE) => RowKind::Device,
        TrackKind::Process(_) => RowKind::Process,
        TrackKind::Agent => RowKind::Device,
        TrackKind::Thread { .. } | TrackKind::Queue | TrackKind::Stream => RowKind::Thread,
        TrackKind::Counter { .. } => RowKind::Counter,
    }
}

/// `/device:GPU:0` without the prefix of device planes.
fn device_name(plane: &str) -> &str {
    plane.strip_prefix(DEVICE_PLANE).unwrap_or(plane)
}

/// Prefix of the names of device planes.
const DEVICE_PLANE: &str = "/device:";
/// Above the numbers of all systems, below 2^31, which readers want.
const FREE_FROM: i64 = 1 << 30;
/// Larger numbers in a device's name are no count of devices.
const DEVICES_MAX: i64 = 1 << 10;
/// Not a number yet.
const NONE: i64 = -1;
/// Most levels of tracks above a track that are examined.
const TREE_DEPTH_MAX: usize = 16;

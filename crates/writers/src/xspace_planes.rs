//! The plane and line of an XSpace for each track.
//!
//! A process is a plane `/host:CPU`, a device a plane `/device:GPU:N` next to it, and anything
//! below is a line. A process that already has the name of a plane keeps it. Viewers look for these
//! names, so the planes of further processes append their owner to them. Lines are created when
//! they have contents. A line's number must be unique in its plane, so a row with a duplicate
//! number or none gets a free one.

use std::collections::HashSet;

use foldhash::fast::FixedState;
use probe_sync_formats::chunk::{Process, Track, TrackId, TrackKind};

use super::spool::Spool;
use super::xspace_names::PlaneNames;

/// A plane.
#[derive(Debug)]
pub(super) struct Plane {
    /// The names of its events.
    pub(super) names: PlaneNames,
    /// Its process, if it belongs to one.
    pub(super) process: Option<Process>,
    /// The line of its counters.
    pub(super) counters: Option<usize>,
    /// Name of its track.
    called: String,
    /// The same with host and rank.
    label: String,
    is_device: bool,
    ids: HashSet<i64, FixedState>,
}

/// A line.
#[derive(Debug)]
pub(super) struct Line {
    /// The plane that it is of.
    pub(super) plane: usize,
    /// Stream of its events.
    pub(super) stream: usize,
    /// Its number in its plane.
    pub(super) id: i64,
    /// Its name.
    pub(super) name: String,
}

/// All planes and lines so far.
#[derive(Debug, Default)]
pub(super) struct Planes {
    tracks: Vec<Known>,
    pub(super) planes: Vec<Plane>,
    pub(super) lines: Vec<Line>,
    next_free: i64,
    /// The plane of tracks without a process above them.
    orphans: Option<usize>,
}

#[derive(Debug)]
struct Known {
    plane: Option<usize>,
    parent: Option<TrackId>,
    tid: Option<i64>,
    line: Option<usize>,
    name: String,
}

impl Planes {
    /// Number of tracks.
    pub(super) fn tracks(&self) -> usize {
        self.tracks.len()
    }

    /// Takes more tracks.
    pub(super) fn declare(&mut self, tracks: &[Track], spool: &mut Spool) {
        for track in tracks {
            let is_plane = matches!(track.kind, TrackKind::Process(_) | TrackKind::Agent);
            let plane = is_plane.then(|| self.plane(track, spool));
            let tid = if let TrackKind::Thread { tid } = track.kind { Some(tid) } else { None };
            let name = track.label();
            self.tracks.push(Known { plane, parent: track.parent, tid, line: None, name });
        }
    }

    /// The plane that a track stands for or is below.
    pub(super) fn plane_of(&mut self, track: TrackId, spool: &mut Spool) -> usize {
        let mut at = track.0 as usize;
        for _ in 0..TREE_DEPTH_MAX {
            let known = &self.tracks[at];
            match (known.plane, known.parent) {
                (Some(plane), _) => return plane,
                (None, Some(parent)) => at = parent.0 as usize,
                (None, None) => break,
            }
        }
        if let Some(plane) = self.orphans {
            return plane;
        }
        let kind = TrackKind::Process(Process::default());
        let plane = self.plane(&Track { parent: None, kind, name: String::new() }, spool);
        *self.orphans.insert(plane)
    }

    /// The line of a track; of its first lane.
    pub(super) fn line(&mut self, track: TrackId, spool: &mut Spool) -> usize {
        let known = &self.tracks[track.0 as usize];
        if let Some(line) = known.line {
            return line;
        }
        let (name, wanted) = (known.name.clone(), known.tid);
        let line = self.add_line(track, name, wanted, spool);
        self.tracks[track.0 as usize].line = Some(line);
        line
    }

    /// A further lane of a track.
    pub(super) fn lane(&mut self, track: TrackId, lane: u32, spool: &mut Spool) -> usize {
        let name = format!("{} (lane {})", self.tracks[track.0 as usize].name, lane + 1);
        self.add_line(track, name, None, spool)
    }

    /// The line of a plane's counters.
    pub(super) fn counters(&mut self, track: TrackId, spool: &mut Spool) -> usize {
        let plane = self.plane_of(track, spool);
        if let Some(line) = self.planes[plane].counters {
            return line;
        }
        let line = self.add_line(track, COUNTERS.to_owned(), None, spool);
        *self.planes[plane].counters.insert(line)
    }

    /// Name of a counter.
    pub(super) fn name(&self, track: TrackId) -> &str {
        &self.tracks[track.0 as usize].name
    }

    /// The planes' names, in their order.
    pub(super) fn names(&self) -> Vec<String> {
        let mut taken: HashSet<String, FixedState> = HashSet::default();
        let several = self.planes.iter().filter(|plane| plane.process.is_some()).count() > 1;
        let mut devices = 0;
        let mut names = Vec::with_capacity(self.planes.len());
        for plane in &self.planes {
            let stated = trailing_number(&plane.called).filter(|number| *number < DEVICES_MAX);
            let is_named = plane.called.starts_with(HOST_PREFIX) || plane.called.starts_with(DEVICE_PREFIX);
            let mut wanted = match (is_named, plane.is_device) {
                (true, _) => plane.called.clone(),
                (false, false) => HOST_PLANE.to_owned(),
                (false, true) => format!("{GPU_PREFIX}{}", stated.unwrap_or(devices)),
            };
            let own = if plane.is_device { plane.called.as_str() } else { plane.label.as_str() };
            if plane.is_device && !is_named {
                devices = devices.max(stated.unwrap_or(devices) + 1);
                if taken.contains(&wanted) {
                    wanted = format!("{GPU_PREFIX}{devices}");
                    devices += 1;
                }
                if several || !own.starts_with("GPU") {
                    wanted = format!("{wanted} {own}");
                }
            } else if several && taken.contains(&wanted) && !own.is_empty() {
                wanted = format!("{wanted} {own}");
            }
            let (mut name, mut copy) = (wanted.clone(), 2);
            // Ends: each turn has a name not tried before, and finitely many are taken.
            while !taken.insert(name.clone()) {
                name = format!("{wanted} ({copy})");
                copy += 1;
            }
            names.push(name);
        }
        names
    }

    fn plane(&mut self, track: &Track, spool: &mut Spool) -> usize {
        let process = if let TrackKind::Process(process) = &track.kind { Some(process.clone()) } else { None };
        let is_device = process.is_none();
        let names = PlaneNames::new(self.planes.len() as u32, spool);
        let (called, label, ids) = (track.name.clone(), track.label(), HashSet::default());
        self.planes.push(Plane { names, process, counters: None, called, label, is_device, ids });
        self.planes.len() - 1
    }

    fn add_line(&mut self, track: TrackId, name: String, wanted: Option<i64>, spool: &mut Spool) -> usize {
        let plane = self.plane_of(track, spool);
        let wanted = wanted.or_else(|| trailing_number(&name).filter(|_| self.planes[plane].is_device));
        let usable = |id: &i64| (0..FREE_FROM).contains(id) && self.planes[plane].ids.insert(*id);
        let id = wanted.filter(usable).unwrap_or_else(|| {
            self.next_free += 1;
            FREE_FROM + self.next_free
        });
        self.lines.push(Line { plane, stream: spool.add(), id, name });
        self.lines.len() - 1
    }
}

/// The number that a name ends with: of `GPU 0`, `stream 7`, `Queue #3`.
pub(super) fn trailing_number(name: &str) -> Option<i64> {
    let name = name.trim_end();
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name[name.len() - digits..].parse().ok()
}

/// The plane of the host's threads.
const HOST_PLANE: &str = "/host:CPU";
/// Prefix of the names of host planes.
const HOST_PREFIX: &str = "/host:";
/// Prefix of the names of device planes.
const DEVICE_PREFIX: &str = "/device:";
/// The planes that viewers show as devices.
const GPU_PREFIX: &str = "/device:GPU:";
/// The line that viewers draw as counters.
const COUNTERS: &str = "_counters_";
/// Larger numbers in a device's name are no count of devices.
const DEVICES_MAX: i64 = 1 << 10;
/// Above the numbers of all systems, below 2^31, which readers want.
const FREE_FROM: i64 = 1 << 30;
/// Most levels of tracks above a track that are examined.
const TREE_DEPTH_MAX: usize = 16;

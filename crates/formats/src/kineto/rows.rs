//! The rows of a trace that is read as chunks: each event's host thread or device stream.
//!
//! An event's category tells where it ran. The label of its process does not: PyTorch assigns
//! Python frames of unknown threads to process 0, which is that of GPU 0. A row is therefore a
//! process, a thread and a side; events whose category names no side share the row of those before
//! them. Each series of values of a process has a row, too. Metadata events may occur anywhere, so tracks are declared with the last chunk: threads
//! and streams are numbered as they occur, their processes and devices after them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use super::scan;
use super::words::Side;
use crate::ChunkOptions;
use crate::chunk::{Process, Track, TrackId, TrackKind, lossy};

/// Name of a process or a thread in a file: a number or a text, as written.
type Token = Box<[u8]>;

/// All rows of a file so far.
#[derive(Default)]
pub(super) struct Rows {
    /// By process and thread: the rows of both sides, and the row of events on neither.
    known: HashMap<(Token, Token), Sides, FixedState>,
    rows: Vec<Row>,
    /// By process and name: the rows of series of values.
    series: HashMap<(Token, String), u32, FixedState>,
    /// The row of the previous event, which the next one usually shares.
    last: Option<usize>,
    processes: BTreeMap<Token, ProcessName>,
    threads: BTreeMap<(Token, Token), String>,
}

#[derive(Default)]
struct Sides {
    /// By side: host, device, neither.
    rows: [Option<u32>; 3],
    last: u32,
}

struct Row {
    pid: Token,
    tid: Token,
    side: Option<Side>,
    /// The device stated by its first event.
    device: Option<i64>,
    /// Name of the series of values that it is.
    series: Option<String>,
}

/// What metadata events say about a process.
#[derive(Clone, Default)]
struct ProcessName {
    name: String,
    label: String,
}

impl Rows {
    /// The track of an event; `None` if there are more than [`TRACKS_MAX`].
    #[inline]
    pub(super) fn track(
        &mut self,
        (pid, tid): (&[u8], &[u8]),
        side: Option<Side>,
        device: impl Fn() -> Option<i64>,
    ) -> Option<TrackId> {
        if let Some(last) = self.last {
            let row = &self.rows[last];
            if (side.is_none() || row.side == side) && *row.pid == *pid && *row.tid == *tid {
                return Some(TrackId(last as u32));
            }
        }
        let row = self.find(pid, tid, side, device)?;
        self.last = Some(row as usize);
        Some(TrackId(row))
    }

    fn find(&mut self, pid: &[u8], tid: &[u8], side: Option<Side>, device: impl Fn() -> Option<i64>) -> Option<u32> {
        let Self { known, rows, .. } = self;
        let sides = known.entry((pid.into(), tid.into())).or_default();
        let place = match side {
            Some(Side::Host) => 0,
            Some(Side::Device) => 1,
            None => 2,
        };
        let found = match (side, sides.rows) {
            (None, [None, None, None]) => None,
            (None, _) => Some(sides.last),
            // The row of events that named no side is of the first side that one names.
            (Some(_), [None, None, Some(open)]) => {
                let row = &mut rows[open as usize];
                (row.side, row.device) = (side, device());
                sides.rows[2] = None;
                Some(open)
            }
            (Some(_), of_sides) => of_sides[place],
        };
        let row = match found {
            Some(row) => row,
            None if rows.len() >= TRACKS_MAX => return None,
            None => {
                rows.push(Row { pid: pid.into(), tid: tid.into(), side, device: device(), series: None });
                rows.len() as u32 - 1
            }
        };
        if side.is_some() || found.is_none() {
            sides.rows[place] = Some(row);
        }
        sides.last = row;
        Some(row)
    }

    /// The track of a series of values of a process; `None` if there are more than [`TRACKS_MAX`].
    pub(super) fn series(&mut self, pid: &[u8], name: String) -> Option<TrackId> {
        let Self { series, rows, .. } = self;
        if let Some(row) = series.get(&(pid.into(), name.clone())) {
            return Some(TrackId(*row));
        }
        if rows.len() >= TRACKS_MAX {
            return None;
        }
        let row = rows.len() as u32;
        series.insert((pid.into(), name.clone()), row);
        rows.push(Row { pid: pid.into(), tid: Token::default(), side: None, device: None, series: Some(name) });
        Some(TrackId(row))
    }

    /// Processes a metadata event.
    pub(super) fn describe(
        &mut self,
        what: &[u8],
        key: &[u8],
        (pid, tid): (&[u8], &[u8]),
        said: impl FnOnce() -> String,
    ) {
        if self.threads.len() >= TRACKS_MAX || self.processes.len() >= TRACKS_MAX {
            return;
        }
        match (what, key) {
            (b"\"process_name\"", b"name") => self.processes.entry(pid.into()).or_default().name = said(),
            (b"\"process_labels\"", b"labels") => self.processes.entry(pid.into()).or_default().label = said(),
            (b"\"thread_name\"", b"name") => {
                self.threads.insert((pid.into(), tid.into()), said());
            }
            _ => {}
        }
    }

    /// The tracks of all events, in the order of their numbers.
    pub(super) fn tracks(&self, options: &ChunkOptions) -> Vec<Track> {
        let main = self.main();
        let mut homes = Homes { of: self, options, known: HashMap::default(), tracks: Vec::new() };
        let mut tracks = Vec::with_capacity(self.rows.len());
        for Row { pid, tid, side, device, series } in &self.rows {
            if let Some(name) = series {
                let parent = Some(TrackId(homes.process(pid)));
                tracks.push(Track { parent, kind: TrackKind::Counter { unit: String::new() }, name: name.clone() });
                continue;
            }
            let of_process = || if self.is_device(pid) { Side::Device } else { Side::Host };
            let side = side.unwrap_or_else(of_process);
            // Python's frames of unknown threads, the profiler's own spans, moments of no process.
            let is_elsewhere = self.is_device(pid) || integer(pid).is_none();
            let parent = match side {
                Side::Host => homes.process(main.filter(|_| is_elsewhere).unwrap_or(pid)),
                Side::Device => homes.device(main, pid, *device),
            };
            let named = self.threads.get(&(pid.clone(), tid.clone())).cloned();
            let what = if side == Side::Device { "stream" } else { "thread" };
            let name = named.unwrap_or_else(|| format!("{what} {}", text(tid)));
            let kind = match integer(tid) {
                Some(tid) if side == Side::Host => TrackKind::Thread { tid },
                _ => TrackKind::Stream,
            };
            tracks.push(Track { parent: Some(TrackId(parent)), kind, name });
        }
        tracks.append(&mut homes.tracks);
        tracks
    }

    /// The process that wrote the trace: it is labelled so, or else the first that ran something on
    /// the host.
    fn main(&self) -> Option<&[u8]> {
        let labelled = self.processes.iter().find(|(pid, of)| of.label == "CPU" && integer(pid).is_some());
        let of_host =
            |row: &&Row| row.side == Some(Side::Host) && integer(&row.pid).is_some() && !self.is_device(&row.pid);
        let first = || self.rows.iter().find(of_host).map(|row| &row.pid);
        labelled.map(|(pid, _)| pid).or_else(first).map(|pid| &**pid)
    }

    /// Whether a process stands for a device.
    fn is_device(&self, pid: &[u8]) -> bool {
        integer(pid).is_some() && self.processes.get(pid).is_some_and(|of| !matches!(of.label.as_str(), "" | "CPU"))
    }

    fn process(&self, pid: &[u8], options: &ChunkOptions) -> Track {
        let ProcessName { name, label } = self.processes.get(pid).cloned().unwrap_or_default();
        let mut names = vec![name];
        names.extend(integer(pid).is_none().then(|| text(pid).into_owned()));
        names.extend((label != "CPU").then_some(label));
        names.retain(|part| !part.is_empty());
        names.dedup();
        let (host, rank) = (options.host.clone(), options.rank);
        let process = Process { pid: integer(pid).unwrap_or(0), host, rank, guid: String::new() };
        Track { parent: None, kind: TrackKind::Process(process), name: names.join(" ") }
    }
}

/// The tracks of processes and devices, which are numbered behind those of rows.
struct Homes<'a> {
    of: &'a Rows,
    options: &'a ChunkOptions,
    /// By process, and device of it.
    known: HashMap<(&'a [u8], Option<i64>), u32, FixedState>,
    tracks: Vec<Track>,
}

impl<'a> Homes<'a> {
    fn process(&mut self, pid: &'a [u8]) -> u32 {
        let Self { of, options, .. } = *self;
        self.number((pid, None), || of.process(pid, options))
    }

    /// The device of a row of `pid`. A process that stands for a device, or has a device's number
    /// and ran nothing on the host, is that device below the main process; any other states its
    /// devices in its events.
    fn device(&mut self, main: Option<&'a [u8]>, pid: &'a [u8], stated: Option<i64>) -> u32 {
        let label =
            self.of.processes.get(pid).map(|of| of.label.as_str()).filter(|label| !matches!(*label, "" | "CPU"));
        let ran_on_host = || self.of.rows.iter().any(|row| row.side == Some(Side::Host) && *row.pid == *pid);
        let numbered = integer(pid).filter(|number| (0..DEVICES_MAX).contains(number));
        let (process, number) = match label {
            Some(_) => (main.unwrap_or_default(), numbered),
            None if numbered.is_some() && main != Some(pid) && !ran_on_host() => (main.unwrap_or_default(), numbered),
            None => (pid, stated),
        };
        let number = number.unwrap_or(0);
        let name = label.map_or_else(|| format!("GPU {number}"), str::to_owned);
        let parent = Some(TrackId(self.process(process)));
        self.number((pid, Some(number)), || Track { parent, kind: TrackKind::Agent, name })
    }

    fn number(&mut self, key: (&'a [u8], Option<i64>), make: impl FnOnce() -> Track) -> u32 {
        let Self { of, known, tracks, .. } = self;
        *known.entry(key).or_insert_with(|| {
            tracks.push(make());
            (of.rows.len() + tracks.len() - 1) as u32
        })
    }
}

/// An integer, with or without quotes.
fn integer(token: &[u8]) -> Option<i64> {
    text(token).parse().ok()
}

/// The decoded text of a JSON string, or any other value as written; invalid UTF-8 is replaced.
pub(super) fn text(raw: &[u8]) -> Cow<'_, str> {
    match text_bytes(raw) {
        Cow::Borrowed(plain) => lossy(plain),
        Cow::Owned(decoded) => Cow::Owned(lossy(&decoded).into_owned()),
    }
}

/// The same, not checked.
pub(super) fn text_bytes(raw: &[u8]) -> Cow<'_, [u8]> {
    let bare = match raw {
        [b'"', inner @ .., b'"'] => inner,
        other => other,
    };
    scan::key(bare).unwrap_or(Cow::Borrowed(bare))
}

/// Processes and threads of one file.
const TRACKS_MAX: usize = 1_000_000;
/// Larger numbers of processes are no count of devices.
const DEVICES_MAX: i64 = 1 << 10;

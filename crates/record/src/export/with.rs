//! The devices of another profiler's trace of the process, next to a recording's own events.
//!
//! The trace is read twice: for its tracks and ids, which may be stated behind the events, and for
//! the events of devices. Its threads are left out. A trace that states another process id, host or
//! rank than the recording is refused; whether its ids are the recorder's, the caller decides.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

use probe_sync_formats::chunk::{ArgRange, Chunk, Flow, FlowEnd, Track, TrackId, TrackKind, Value};
use probe_sync_formats::model::TraceClock;
use probe_sync_formats::{ChunkOptions, FactOptions, TraceFormat, WantedArgs, detect};

use super::clock::{BootClock, SystemClock};
use super::error::ExportError;
use super::names::launch_flow;
use super::pipe::Inlet;
use crate::read::Recording;

/// A trace of the same process by another profiler, of which the devices are shown.
#[derive(Clone, Debug, Default)]
pub struct WithTrace {
    /// The file: PyTorch Kineto, XSpace or a rocprofv3 database.
    pub path: PathBuf,
    /// Argument of device events that holds the id that their launch had by
    /// [`correlate`](crate::correlate), such as `External id`; `None`: events are not joined.
    pub ids: Option<String>,
}

/// The devices of a trace.
#[derive(Debug)]
pub(super) struct Devices<'a> {
    with: &'a WithTrace,
    format: &'static dyn TraceFormat,
    boot: Option<BootClock>,
    /// Tracks to declare; parents are places among these.
    tracks: Vec<Track>,
    /// By the trace's number of a track: the place among `tracks`.
    places: Vec<Option<u32>>,
    /// Ids of launches.
    pub launches: HashSet<u64>,
    pub notes: Vec<String>,
}

impl<'a> Devices<'a> {
    /// Surveys a trace.
    ///
    /// # Errors
    /// The trace is damaged, is not of the recording's process, or is not on a clock of its machine.
    pub fn of(with: &'a WithTrace, recording: &Recording, clock: &SystemClock) -> Result<Self, ExportError> {
        let refuse = |reason: String| ExportError::With { path: with.path.clone(), reason };
        let format = detect(&with.path)?;
        let facts = format.read_facts(&with.path, &FactOptions::default())?;
        let own = recording.facts();
        if facts.merged || facts.aligned_to.is_some() {
            return Err(refuse("it was merged or aligned; give the trace as the profiler wrote it".into()));
        }
        let host = facts.identity.hostname.filter(|host| !host.is_empty());
        if let Some(host) = host.filter(|host| !own.host.is_empty() && *host != own.host) {
            return Err(refuse(format!("it was written on {host}, and the recording on {}", own.host)));
        }
        if let (Some(rank), Some(own)) = (facts.identity.rank, own.rank)
            && rank != own
        {
            return Err(refuse(format!("it is of rank {rank}, and the recording of rank {own}")));
        }
        let boot = match (facts.clock, own.system_ahead_of_boot_ns) {
            (TraceClock::System, _) => None,
            (TraceClock::Boot, Some(ahead)) => Some(BootClock::of(clock, ahead)),
            _ => return Err(refuse("nothing ties its clock to that of the recording".into())),
        };
        let mut devices = Self {
            with,
            format,
            boot,
            tracks: Vec::new(),
            places: Vec::new(),
            launches: HashSet::new(),
            notes: Vec::new(),
        };
        let (mut declared, mut used, mut launches) = (Vec::new(), BTreeSet::new(), HashSet::<(TrackId, u64)>::new());
        let mut span: Option<[i64; 2]> = None;
        devices.read(&mut |chunk| {
            declared.extend(chunk.tracks.iter().cloned());
            for track in [&chunk.slices.track, &chunk.instants.track, &chunk.counters.track] {
                used.extend(track);
            }
            let tracks = chunk.slices.track.iter().zip(&chunk.slices.args);
            launches.extend(tracks.filter_map(|(track, args)| Some((*track, devices.id(chunk, *args)?))));
            for (start, end) in chunk.slices.start_ns.iter().zip(&chunk.slices.end_ns) {
                span = Some(span.map_or([*start, *end], |[from, to]| [from.min(*start), to.max(*end)]));
            }
            true
        })?;
        let processes = processes_of(&declared);
        if !processes.is_empty() && !processes.contains(&i64::from(own.pid)) {
            let others: Vec<String> = processes.iter().map(i64::to_string).collect();
            let text = format!("it is of process {}, and the recording of process {}", others.join(", "), own.pid);
            return Err(refuse(text));
        }
        devices.places = vec![None; declared.len()];
        for track in used {
            devices.place(&declared, track, i64::from(own.pid), DEPTH_MAX);
        }
        if devices.tracks.is_empty() {
            return Err(refuse("it has no events of devices".into()));
        }
        let [from, to] = [recording.status().start, recording.status().end].map(|ticks| clock.at(ticks).0);
        if span.is_none_or(|[start, end]| end < from || start > to) {
            return Err(refuse("none of its events lies within the time of the recording".into()));
        }
        let of_device = |track: TrackId| devices.places.get(track.0 as usize).is_some_and(Option::is_some);
        let launches: HashSet<u64> =
            launches.into_iter().filter(|(track, _)| of_device(*track)).map(|(_, id)| id).collect();
        devices.launches = launches;
        Ok(devices)
    }

    /// Places a track and those above it among the tracks to declare; `None`: the track does not belong
    /// to a device of the process.
    fn place(&mut self, declared: &[Track], track: TrackId, pid: i64, depth: usize) -> Option<Parent> {
        let at = track.0 as usize;
        let Track { parent, kind, name } = declared.get(at)?;
        if let Some(place) = self.places[at] {
            return Some(Parent::Device(place));
        }
        match kind {
            // A plane of an XSpace, which has no process ids.
            TrackKind::Process(process) if process.pid == 0 && name.starts_with(DEVICE_PREFIX) => {}
            TrackKind::Process(process) => {
                return (process.pid == 0 || process.pid == pid).then_some(Parent::Process);
            }
            TrackKind::Thread { .. } => return None,
            _ => {}
        }
        let above = match parent {
            Some(parent) => self.place(declared, *parent, pid, depth.checked_sub(1)?)?,
            None => Parent::Process,
        };
        let above = match above {
            // Values of the process and the spans of the profiler itself are not of a device.
            Parent::Process if matches!(kind, TrackKind::Counter { .. } | TrackKind::Queue | TrackKind::Stream) => {
                return None;
            }
            Parent::Process => None,
            Parent::Device(place) => Some(TrackId(place)),
        };
        let place = self.tracks.len() as u32;
        self.places[at] = Some(place);
        let kind = if let TrackKind::Process(_) = kind { TrackKind::Agent } else { kind.clone() };
        self.tracks.push(Track { parent: above, kind, name: name.clone() });
        Some(Parent::Device(place))
    }

    /// Passes on the tracks, numbered from `first`, below that of `process`, and all events.
    pub fn pass(&mut self, process: TrackId, first: u32, out: &Inlet) -> Result<(), ExportError> {
        let numbered = |track: &Track| {
            let parent = track.parent.map_or(process, |parent| TrackId(first + parent.0));
            Track { parent: Some(parent), ..track.clone() }
        };
        let mut next = Chunk { tracks: self.tracks.iter().map(numbered).collect(), ..Chunk::default() };
        out.hand_on(&mut next);
        let mut events = 0;
        self.read(&mut |chunk| {
            let mut kept = chunk.clone();
            kept.tracks.clear();
            kept.flows = Default::default();
            let place = |track: &TrackId| self.places.get(track.0 as usize).copied().flatten();
            let stays = |tracks: &[TrackId]| tracks.iter().map(|track| place(track).is_some()).collect::<Vec<_>>();
            let [slices, instants, counters] =
                [&chunk.slices.track, &chunk.instants.track, &chunk.counters.track].map(|tracks| stays(tracks));
            kept.slices.retain(&slices);
            kept.instants.retain(&instants);
            kept.counters.retain(&counters);
            for track in [&mut kept.slices.track, &mut kept.instants.track, &mut kept.counters.track] {
                track.iter_mut().for_each(|track| *track = TrackId(first + place(track).unwrap_or(0)));
            }
            kept.slices.flow = kept.slices.args.iter().map(|args| self.flow(chunk, *args)).collect();
            events += kept.events();
            out.hand_on(&mut kept)
        })?;
        let rows = self.tracks.len();
        self.notes.push(format!("{events} events on {rows} tracks of devices are from {}", self.with.path.display()));
        Ok(())
    }

    /// The end of the flow from a launch.
    fn flow(&self, chunk: &Chunk, args: ArgRange) -> Flow {
        self.id(chunk, args).map_or_else(Flow::default, |id| launch_flow(id, FlowEnd::In))
    }

    /// The id of an event's launch, if ids are the recorder's.
    fn id(&self, chunk: &Chunk, args: ArgRange) -> Option<u64> {
        let name = self.with.ids.as_deref()?;
        let mut args = args.first as usize..(args.first + args.count) as usize;
        let at = args.find(|at| chunk.strings.text(chunk.args.key[*at]) == name)?;
        let id = match chunk.args.value[at] {
            Value::Integer(id) => u64::try_from(id).ok()?,
            Value::Unsigned(id) => id,
            Value::Text(text) => chunk.strings.text(text).parse().ok()?,
            _ => return None,
        };
        (id != 0).then_some(id)
    }

    /// Reads the trace, with its times on the system clock; once `take` returns false, the rest is read
    /// and ignored.
    fn read(&self, take: &mut dyn FnMut(&Chunk) -> bool) -> Result<(), ExportError> {
        let options = ChunkOptions { args: WantedArgs::All, ..ChunkOptions::default() };
        let mut goes_on = true;
        let mut sink = |chunk: &Chunk| {
            goes_on = goes_on && take(chunk);
            Ok(())
        };
        let mut map = |ps: i128| self.boot.as_ref().map_or(ps, |boot| boot.to_system(ps));
        self.format.read_chunks(&self.with.path, &options, &mut map, &mut sink)?;
        Ok(())
    }
}

/// Process ids of the threads among tracks.
fn processes_of(declared: &[Track]) -> BTreeSet<i64> {
    let threads = declared.iter().filter(|track| matches!(track.kind, TrackKind::Thread { .. }));
    let processes = threads.filter_map(|track| declared.get(track.parent?.0 as usize));
    let pid = |track: &Track| match &track.kind {
        TrackKind::Process(process) if process.pid != 0 => Some(process.pid),
        _ => None,
    };
    processes.filter_map(pid).collect()
}

/// What a track is below.
enum Parent {
    /// The process.
    Process,
    /// Another track of a device, by its place.
    Device(u32),
}

/// Begins the names of an XSpace's planes of devices.
const DEVICE_PREFIX: &str = "/device:";
/// Deepest track.
const DEPTH_MAX: usize = 16;

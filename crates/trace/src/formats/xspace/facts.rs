//! Reads what a file knows of its node, its clock and its collectives.
//!
//! Place in the flow: fills [`TraceFacts`] for `clocks` and `collectives`. Names come after the events that use them, so two
//! sources walk the file: one ahead, which skips a plane's lines and keeps the few names that matter; one behind, which then
//! reads those lines. What it does not do: judge pairs, match collectives, keep ordinary events.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use probe_sync_estimate::record::{MarkToken, parse_mark_name};

use super::event::EventTimes;
use super::fields::{event, line, plane, space};
use super::merge::METADATA_PLANE;
use super::names;
use super::outline::{self, MetadataVisitor};
use super::plane_clock::PlaneClock;
use super::programs::Programs;
use super::stat::{Stat, StatValue};
use crate::Error;
use crate::formats::{FactOptions, rank_marker};
use crate::model::{
    ClockPair, CollectiveEvent, CollectiveKind, Device, Identity, Instance, Label, MarkStamp, PS_PER_NS, PairKind,
    Picoseconds, PlaneSpan, Recipients, Replicas, TraceFacts, UNIX_TIME_MIN_PS,
};
use crate::parts::CollectiveParts;
use crate::protobuf::{Fault, Fields, Value};
use crate::protobuf::{Header, Source};

/// Reads the facts of a file, plain or packed with gzip.
///
/// # Errors
/// When the file cannot be read or is not XSpace.
pub fn read_facts(path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
    let session = outline::outline_with_programs(path)?;
    let start_ps = Picoseconds::from(session.start_ns.unwrap_or(0)) * PS_PER_NS;
    let hostname = (session.hostnames.len() == 1).then(|| session.hostnames[0].clone()).filter(|name| !name.is_empty());
    let ps = |ns: i64| Picoseconds::from(ns) * PS_PER_NS;
    let facts = TraceFacts {
        identity: Identity { hostname, ..Identity::default() },
        merged: session.hostnames.len() > 1 || session.planes.iter().any(|plane| plane.name == METADATA_PLANE),
        session: session.start_ns.zip(session.stop_ns).map(|(start, stop)| (ps(start), ps(stop))),
        has_snapshot_plane: session.planes.iter().any(|plane| plane.is_snapshots()),
        collectives: CollectiveParts::new(&options.spill),
        ..TraceFacts::default()
    };
    let programs = &session.programs;
    let mut reader = Reader { facts, start_ps, options, programs, raw_span: None, left_out: LeftOut::default() };
    if session.start_ns.is_none() {
        reader.note("no profile_start_time: times are taken as they stand".to_owned());
    }
    if session.hostnames.len() > 1 {
        reader.note(format!("{} host names: the file was merged already", session.hostnames.len()));
    }
    let mut planes = session.planes.iter();
    let (mut ahead, mut behind) = (Source::open(path)?, Source::open(path)?);
    while let Some(field) = outline::next_space_field(&mut ahead)? {
        if field.number != space::PLANES {
            ahead.skip(field.body())?;
            continue;
        }
        let mut tables = Tables::new(options);
        outline::walk_plane(&mut ahead, &field, &mut tables)?;
        tables.classify();
        let Some(known) = planes.next() else {
            return Err(ahead.malformed(field.at, "the file changed while it was read"));
        };
        tables.clock = session.clocks().of(&known.starts);
        if let Some((rank, world_size)) = tables.rank {
            let identity = &mut reader.facts.identity;
            (identity.rank, identity.world_size) = (Some(rank), Some(world_size));
            identity.marked_rank = tables.rank;
        }
        behind.skip(field.body_at() - behind.position())?;
        reader.plane(&mut behind, &field, &tables)?;
    }
    reader.finish();
    Ok(reader.facts)
}

/// What events of a name are to this reader.
#[derive(Clone, Debug, PartialEq)]
enum Role {
    /// A marker whose name or stats state the system time.
    Marker(Option<i64>),
    /// An event between two readings of the system clock: its process and its number.
    Mark(MarkToken, u64),
    /// A host operation of this name.
    Operation(String, CollectiveKind),
    /// A kernel of a collectives library.
    Kernel(String, CollectiveKind),
    /// A kernel that may belong to a collective operation.
    PerhapsKernel(String),
}

/// The names of a plane that matter.
struct Tables<'a> {
    options: &'a FactOptions,
    plane: String,
    clock: PlaneClock,
    roles: HashMap<u64, Role>,
    /// Candidates until the plane's name is known to be a device's.
    names: Vec<(u64, String)>,
    stats: HashMap<u64, String>,
    kept_bytes: usize,
    dropped: u64,
    /// What a marker states of the rank: no profiler that writes this format does.
    rank: Option<(u32, u32)>,
}

impl<'a> Tables<'a> {
    fn new(options: &'a FactOptions) -> Tables<'a> {
        let (roles, stats) = (HashMap::new(), HashMap::new());
        let (plane, clock) = (String::new(), PlaneClock::default());
        Tables { options, plane, clock, roles, names: Vec::new(), stats, kept_bytes: 0, dropped: 0, rank: None }
    }

    /// Whether a name of this length still fits.
    fn admit(&mut self, name: &str) -> bool {
        // A map's entry costs its key and value beside the text.
        self.kept_bytes += name.len() + 64;
        let fits = self.kept_bytes <= NAME_BYTES_MAX;
        self.dropped += u64::from(!fits);
        fits
    }

    /// The number in a device plane's name.
    fn ordinal(&self) -> Option<u64> {
        let name = self.plane.strip_prefix("/device:")?;
        let (_, numbered) = name.split_once(':')?;
        let digits = numbered.bytes().take_while(u8::is_ascii_digit).count();
        numbered[..digits].parse().ok()
    }

    /// Whether the plane is a device's.
    fn is_device(&self) -> bool {
        self.plane.starts_with("/device:")
    }

    /// Decides, once all names are known, what each is.
    fn classify(&mut self) {
        // Kernels of any name may belong to a collective operation, but only where operations of such a name exist.
        let has_operations = self.stats.values().any(|name| names::operation_kind(name).is_some());
        let is_device = self.is_device();
        for (number, name) in std::mem::take(&mut self.names) {
            let role = if is_device {
                match names::kernel_kind(&name, None) {
                    Some(kind) => Some(Role::Kernel(name, kind)),
                    None => has_operations.then_some(Role::PerhapsKernel(name)),
                }
            } else {
                names::operation_kind(&name).map(|kind| Role::Operation(name, kind))
            };
            if let Some(role) = role {
                self.roles.insert(number, role);
            }
        }
    }

    /// The marker that a name makes, if it does.
    fn marker(&self, name: &str) -> Option<Role> {
        if let Some((token, number)) = parse_mark_name(name.as_bytes()) {
            return Some(Role::Mark(token, number));
        }
        if name == DATA_SET_MARKER || name == OWN_MARKER {
            return Some(Role::Marker(None));
        }
        if let Some(stated) = name.strip_prefix(OWN_MARKER).and_then(|rest| rest.strip_prefix('#')) {
            return Some(Role::Marker(stated.parse().ok()));
        }
        let captures = self.options.markers.as_ref()?.captures(name)?;
        Some(Role::Marker(captures.name("system_ns").and_then(|stated| stated.as_str().parse().ok())))
    }

    /// The name of a stat.
    fn stat(&self, number: u64) -> &str {
        self.stats.get(&number).map_or("", String::as_str)
    }
}

impl MetadataVisitor for Tables<'_> {
    fn name(&mut self, name: &str) {
        name.clone_into(&mut self.plane);
    }

    fn event_metadata(&mut self, number: u64, name: &str) {
        if name.starts_with(END_PREFIX) {
            return;
        }
        self.rank = self.rank.or_else(|| rank_marker(name.as_bytes()));
        if let Some(role) = self.marker(name) {
            if self.admit(name) {
                self.roles.insert(number, role);
            }
            return;
        }
        // The plane's name stands before its metadata in every real file; where it does not, names of both sorts are kept.
        let possible = self.plane.is_empty() || self.is_device() || names::operation_kind(name).is_some();
        if possible && self.admit(name) {
            self.names.push((number, name.to_owned()));
        }
    }

    fn stat_metadata(&mut self, number: u64, name: &str) {
        if self.admit(name) {
            self.stats.insert(number, name.to_owned());
        }
    }
}

/// What an interesting event's stats say.
#[derive(Default)]
struct EventStats {
    hlo_op: Option<String>,
    hlo_module: Option<String>,
    run_id: Option<i64>,
    program_id: Option<u64>,
    device: Option<u64>,
    system_ns: Option<i64>,
    tracer_ns: Option<u64>,
    bracket_ns: Option<f64>,
}

/// What did not fit, by what it was.
#[derive(Default)]
struct LeftOut {
    pairs: u64,
    marks: u64,
    names: u64,
    markers: BTreeMap<&'static str, u64>,
}

/// The facts in the making.
struct Reader<'a> {
    facts: TraceFacts,
    start_ps: Picoseconds,
    options: &'a FactOptions,
    programs: &'a Programs,
    /// What the present plane's events touch, where it counts from the machine's start.
    raw_span: Option<(Picoseconds, Picoseconds)>,
    left_out: LeftOut,
}

impl Reader<'_> {
    /// Reads a plane's lines.
    fn plane(&mut self, source: &mut Source, header: &Header, tables: &Tables<'_>) -> Result<(), Error> {
        self.left_out.names += tables.dropped;
        while let Some(field) = source.next_header(header.end())? {
            if field.number == plane::LINES && field.wire == 2 {
                self.line(source, &field, tables)?;
            } else {
                source.skip(field.body())?;
            }
        }
        if let Some(span) = self.raw_span.take()
            && self.facts.since_boot.len() < RAW_PLANES_MAX
        {
            self.facts.since_boot.push(PlaneSpan { plane: tables.plane.clone(), span });
        }
        Ok(())
    }

    /// Reads a line's events.
    fn line(&mut self, source: &mut Source, header: &Header, tables: &Tables<'_>) -> Result<(), Error> {
        let mut stated_ns = 0i64;
        let mut begun = false;
        while let Some(field) = source.next_header(header.end())? {
            match (field.number, field.wire) {
                (line::EVENTS, 2) => {
                    begun = true;
                    let bytes = source.piece(field.body())?;
                    if let Err(fault) = self.event(bytes, stated_ns, tables) {
                        return Err(source.fault(field.body_at(), fault));
                    }
                    source.consume(field.body() as usize);
                }
                (line::TIMESTAMP_NS, 0) if begun && field.value as i64 != stated_ns => {
                    return Err(source.malformed(field.at, "a line states its start after its events or twice"));
                }
                (line::TIMESTAMP_NS, 0) => stated_ns = field.value as i64,
                (line::TIMESTAMP_NS | line::EVENTS, _) => return Err(outline::mistyped(source, &field, "a line")),
                _ => source.skip(field.body())?,
            }
        }
        Ok(())
    }

    /// Takes an event in.
    #[inline]
    fn event(&mut self, bytes: &[u8], line_ns: i64, tables: &Tables<'_>) -> Result<(), Fault> {
        let times = EventTimes::parse(bytes)?;
        if times.aggregated {
            return Ok(());
        }
        let line_ps = Picoseconds::from(line_ns) * PS_PER_NS;
        if outline::is_snapshots(&tables.plane) {
            let from = if line_ps >= UNIX_TIME_MIN_PS { 0 } else { self.start_ps };
            return self.snapshot(bytes, from + line_ps + Picoseconds::from(times.offset.value), tables);
        }
        self.facts.events += 1;
        let start_ps = tables.clock.origin_ps + line_ps + Picoseconds::from(times.offset.value);
        let end_ps = start_ps + Picoseconds::from(times.duration.value);
        let role = tables.roles.get(&times.metadata);
        if let Some(Role::Marker(stated)) = role {
            return self.marker(bytes, *stated, start_ps, tables);
        }
        // Lines that a device's plane derives from the host's annotations are stamped by the device.
        if let Some(Role::Mark(token, number)) = role
            && !(tables.clock.since_boot || tables.is_device())
        {
            self.mark(MarkStamp { token: *token, number: *number, tracer_ps: start_ps, unit_ps: PS_PER_NS });
            return Ok(());
        }
        let span = if tables.clock.since_boot { &mut self.raw_span } else { &mut self.facts.span };
        *span = Some(match *span {
            Some((first, last)) => (first.min(start_ps), last.max(end_ps)),
            None => (start_ps, end_ps),
        });
        match role {
            None | Some(Role::Marker(_) | Role::Mark(..)) => Ok(()),
            Some(role) => self.collective(bytes, role, (start_ps, end_ps), tables),
        }
    }

    /// Takes a pair out of the snapshot plane.
    fn snapshot(&mut self, bytes: &[u8], system_ps: Picoseconds, tables: &Tables<'_>) -> Result<(), Fault> {
        let stats = event_stats(bytes, tables)?;
        let system_ns = i64::try_from(system_ps.div_euclid(PS_PER_NS)).ok();
        let (Some(tracer_ns), Some(system_ns)) = (stats.tracer_ns, system_ns) else {
            *self.left_out.markers.entry("snapshots without rocm_ns or tracer_ns").or_default() += 1;
            return Ok(());
        };
        let kind = PairKind::Bracketed(stats.bracket_ns.unwrap_or(SNAPSHOT_BRACKET_NS));
        self.pair(ClockPair { tracer_ps: Picoseconds::from(tracer_ns) * PS_PER_NS, system_ns, kind });
        Ok(())
    }

    /// Takes a pair out of a marker.
    fn marker(
        &mut self,
        bytes: &[u8],
        stated: Option<i64>,
        start_ps: Picoseconds,
        tables: &Tables<'_>,
    ) -> Result<(), Fault> {
        let system_ns = match stated {
            Some(system_ns) => Some(system_ns),
            None => event_stats(bytes, tables)?.system_ns,
        };
        match system_ns {
            Some(system_ns) => self.pair(ClockPair { tracer_ps: start_ps, system_ns, kind: PairKind::Marker }),
            None => *self.left_out.markers.entry("markers without a system time").or_default() += 1,
        }
        Ok(())
    }

    fn pair(&mut self, pair: ClockPair) {
        if self.facts.pairs.len() < PAIRS_MAX {
            self.facts.pairs.push(pair);
        } else {
            self.left_out.pairs += 1;
        }
    }

    fn mark(&mut self, mark: MarkStamp) {
        if self.facts.marks.len() < PAIRS_MAX {
            self.facts.marks.push(mark);
        } else {
            self.left_out.marks += 1;
        }
    }

    /// Takes a collective in.
    fn collective(
        &mut self,
        bytes: &[u8],
        role: &Role,
        (start_ps, end_ps): (Picoseconds, Picoseconds),
        tables: &Tables<'_>,
    ) -> Result<(), Fault> {
        let stats = event_stats(bytes, tables)?;
        let (name, kind) = match role {
            // XLA's own events state their operation; others that happen to bear such a name do not.
            Role::Operation(name, kind) if stats.hlo_op.is_some() => (name, kind.clone()),
            Role::Kernel(name, kind) => (name, kind.clone()),
            Role::PerhapsKernel(name) => match names::kernel_kind(name, stats.hlo_op.as_deref()) {
                Some(kind) => (name, kind),
                None => return Ok(()),
            },
            Role::Operation(..) | Role::Marker(_) | Role::Mark(..) => return Ok(()),
        };
        let replicas = match (&stats.hlo_module, &stats.hlo_op) {
            (Some(module), Some(op)) => self.programs.replicas(module, stats.program_id, op),
            _ => Replicas::Unknown,
        };
        let (instance, number) = match (stats.hlo_module, stats.run_id, stats.hlo_op) {
            (Some(module), Some(run_id), Some(op)) => (Instance::Hlo { module, op }, run_id),
            (module, _, op) => {
                let parts = [module.as_deref(), op.as_deref(), Some(name)];
                let signature = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
                (Instance::Order { group: None, signature }, 0)
            }
        };
        let device = stats.device.map(Device::Stated).or_else(|| tables.ordinal().map(Device::OfPlane));
        let label = Label { name: name.clone(), kind, instance, replicas, device };
        let event = CollectiveEvent { label, number, start_ps, end_ps, recipients: Recipients::All };
        self.facts.collectives.push(event);
        Ok(())
    }

    /// Says what was left out.
    fn finish(&mut self) {
        let left_out = std::mem::take(&mut self.left_out);
        let counted = [
            ("pairs beyond the bound", left_out.pairs),
            ("marks beyond the bound", left_out.marks),
            ("names of events and stats beyond the bound", left_out.names),
        ];
        for (what, count) in counted.into_iter().chain(left_out.markers) {
            if count > 0 {
                self.note(format!("{count} {what} left out"));
            }
        }
        self.facts.collectives.close();
        if let Some(note) = self.facts.collectives.left_out_note() {
            self.note(note);
        }
        if self.options.markers.is_some() && self.facts.pairs.is_empty() {
            self.note("no event matched the marker expression".to_owned());
        }
    }

    fn note(&mut self, note: String) {
        if self.facts.notes.len() < NOTES_MAX {
            self.facts.notes.push(note);
        }
    }
}

/// Reads the stats of an event that matter.
fn event_stats(bytes: &[u8], tables: &Tables<'_>) -> Result<EventStats, Fault> {
    let mut found = EventStats::default();
    for field in Fields::of(bytes) {
        let field = field?;
        let (event::STATS, Value::Bytes(inner)) = (field.number, field.value) else {
            continue;
        };
        let stat = Stat::parse(inner).map_err(|fault| fault.within(field.value_at))?;
        let number = || stat_number(&stat, tables);
        match tables.stat(stat.number) {
            "hlo_op" => found.hlo_op = stat_text(&stat, tables),
            "hlo_module" => found.hlo_module = stat_text(&stat, tables),
            "run_id" => found.run_id = number(),
            "program_id" => found.program_id = number().map(|value| value as u64),
            "device_ordinal" => found.device = number().map(|value| value as u64),
            "system_ns" | "node_ns" => found.system_ns = number(),
            "rocm_ns" | "tracer_ns" => found.tracer_ns = number().and_then(|value| u64::try_from(value).ok()),
            "bracket_ns" => found.bracket_ns = number().map(|value| value as f64),
            _ => {}
        }
    }
    Ok(found)
}

/// A stat's value as text.
fn stat_text(stat: &Stat<'_>, tables: &Tables<'_>) -> Option<String> {
    match stat.value {
        StatValue::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        StatValue::Reference(number) => tables.stats.get(&number).cloned(),
        StatValue::Number(_) | StatValue::Other => None,
    }
}

/// A stat's value as a number; annotations made from text may be digits.
fn stat_number(stat: &Stat<'_>, tables: &Tables<'_>) -> Option<i64> {
    match stat.value {
        StatValue::Number(value) => Some(value as i64),
        StatValue::Text(_) | StatValue::Reference(_) => stat_text(stat, tables)?.parse().ok(),
        StatValue::Other => None,
    }
}

/// Planes on a raw clock that are told.
const RAW_PLANES_MAX: usize = 1 << 10;
/// Pairs of a file at most.
const PAIRS_MAX: usize = 1_000_000;
/// Bytes of names that are kept of one plane at most.
const NAME_BYTES_MAX: usize = 48 << 20;
/// Notes at most.
const NOTES_MAX: usize = 32;
/// The bracket assumed for a snapshot that does not state its own, ns: the widest that the sampler accepts.
const SNAPSHOT_BRACKET_NS: f64 = 5000.0;
/// The name of this project's own markers.
const OWN_MARKER: &str = "probe_sync.clock";
/// Markers of the data sets, which state true and system time.
const DATA_SET_MARKER: &str = "clkmark";
/// How an event is named that only marks another's end.
const END_PREFIX: &str = "end: ";

//! The contents of a file apart from its lines: planes with their names and metadata, the session's
//! start and stop, and host names.
//!
//! A first pass skips all lines (by seeking in plain files), because the start of the session and
//! the names that events refer to by number usually follow the events. It does not store metadata:
//! a [`MetadataVisitor`] sees each entry and keeps what it needs within its own bounds.

use std::path::Path;

use super::event::EventTimes;
use super::fields::{line, metadata, plane, space};
use super::plane_clock::{LineStarts, PlaneClocks};
use super::programs::Programs;
use super::stat::{Stat, StatValue};
use crate::ALIGNED_SIGMA;
use crate::Error;
use crate::protobuf::{Header, Source};

/// A file without its lines.
#[derive(Debug, Default)]
pub(super) struct Outline {
    /// In file order.
    pub(super) planes: Vec<PlaneOutline>,
    /// `profile_start_time`, Unix ns.
    pub(super) start_ns: Option<i64>,
    /// `profile_stop_time`, Unix ns.
    pub(super) stop_ns: Option<i64>,
    /// In file order.
    pub(super) hostnames: Vec<String>,
    /// What the programs state about collectives; empty unless requested.
    pub(super) programs: Programs,
}

impl Outline {
    /// Tells which clock a plane is on. In a merged file the stated session is one of several: then
    /// all planes are taken as they are.
    pub(super) fn clocks(&self) -> PlaneClocks {
        PlaneClocks::new(self.start_ns, self.stop_ns.filter(|_| self.hostnames.len() < 2))
    }
}

/// A plane without its lines.
#[derive(Debug, Default)]
pub(super) struct PlaneOutline {
    /// Its name, cut if it is very long.
    pub(super) name: String,
    /// Whether it contains lines.
    pub(super) has_lines: bool,
    /// Numbers of the stats `profile_start_time` and `profile_stop_time`, in the session's plane.
    pub(super) session_stats: [Option<u64>; 2],
    /// The largest number of a stat's metadata.
    pub(super) largest_stat: u64,
    /// The number of [`CORRECTION_STAT`], if the plane has it already.
    pub(super) correction_stat: Option<u64>,
    /// Numbers of stats whose values name things of one host.
    pub(super) linking_stats: Vec<u64>,
    /// Where its lines begin, as written.
    pub(super) starts: LineStarts,
    /// Stats of the plane itself: number of the metadata, value; only small numbers.
    stats: Vec<(u64, u64)>,
    /// The number of the stat with the uncertainty of an aligned trace's times.
    sigma_stat: Option<u64>,
    /// Its value, ns.
    pub(super) sigma_ns: Option<f64>,
    /// The programs read so far, if requested.
    programs: Option<Programs>,
}

impl PlaneOutline {
    /// Whether it contains pairs of clock readings, whose events are on the system clock and not on
    /// the tracer's.
    pub(super) fn is_snapshots(&self) -> bool {
        is_snapshots(&self.name)
    }

    /// The value of a stat of the plane.
    fn stat_value(&self, number: Option<u64>) -> Option<i64> {
        let number = number?;
        self.stats.iter().rev().find(|(stat, _)| *stat == number).map(|(_, value)| *value as i64)
    }
}

/// Whether a plane of this name contains pairs of clock readings.
pub(super) fn is_snapshots(name: &str) -> bool {
    name.starts_with(SNAPSHOT_PLANE)
}

/// Is shown the parts of a plane that are not lines.
pub(super) trait MetadataVisitor {
    /// The plane's name.
    fn name(&mut self, name: &str);
    /// Where to record the start of a line with events, as written.
    fn line_starts(&mut self) -> Option<&mut LineStarts> {
        None
    }
    /// The programs, if the plane contains them and they are requested.
    fn programs(&mut self) -> Option<&mut Programs> {
        None
    }
    /// A line is passed over.
    fn line(&mut self) {}
    /// Most bytes of a name that are read.
    fn name_bytes_max(&self) -> u64 {
        NAME_BYTES_MAX
    }
    /// The name behind an event's number.
    fn event_metadata(&mut self, _number: u64, _name: &str) {}
    /// The name behind a stat's number.
    fn stat_metadata(&mut self, number: u64, name: &str);
    /// A stat of the plane that is a number.
    fn stat(&mut self, _number: u64, _value: u64) {}
    /// A stat of the plane that is a text.
    fn text_stat(&mut self, _number: u64, _text: &[u8]) {}
}

impl MetadataVisitor for PlaneOutline {
    fn name(&mut self, name: &str) {
        self.name = name.to_owned();
    }

    fn line_starts(&mut self) -> Option<&mut LineStarts> {
        Some(&mut self.starts)
    }

    fn programs(&mut self) -> Option<&mut Programs> {
        self.programs.as_mut().filter(|_| self.name == PROGRAM_PLANE)
    }

    fn line(&mut self) {
        self.has_lines = true;
    }

    fn stat_metadata(&mut self, number: u64, name: &str) {
        self.largest_stat = self.largest_stat.max(number);
        match name {
            "profile_start_time" => self.session_stats[0] = Some(number),
            "profile_stop_time" => self.session_stats[1] = Some(number),
            CORRECTION_STAT => self.correction_stat = Some(number),
            ALIGNED_SIGMA => self.sigma_stat = Some(number),
            _ if LINKING_STATS.contains(&name) && self.linking_stats.len() < LINKING_STATS.len() => {
                self.linking_stats.push(number);
            }
            _ => {}
        }
    }

    fn text_stat(&mut self, number: u64, text: &[u8]) {
        if self.sigma_stat == Some(number) {
            self.sigma_ns = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        }
    }

    fn stat(&mut self, number: u64, value: u64) {
        if self.stats.len() < PLANE_STATS_MAX {
            self.stats.push((number, value));
        }
    }
}

/// Walks a file and skips its lines.
pub(super) fn outline(path: &Path) -> Result<Outline, Error> {
    walk(path, false)
}

/// The same, and reads what the file's programs state about collectives.
pub(super) fn outline_with_programs(path: &Path) -> Result<Outline, Error> {
    walk(path, true)
}

fn walk(path: &Path, with_programs: bool) -> Result<Outline, Error> {
    let mut source = Source::open(path)?;
    let mut outline = Outline::default();
    while let Some(field) = next_space_field(&mut source)? {
        match field.number {
            space::PLANES => {
                if outline.planes.len() == PLANES_MAX {
                    return Err(source.malformed(field.at, format!("more than {PLANES_MAX} planes")));
                }
                let programs = with_programs.then(|| std::mem::take(&mut outline.programs));
                let mut plane = PlaneOutline { programs, ..PlaneOutline::default() };
                walk_plane(&mut source, &field, &mut plane)?;
                outline.programs = plane.programs.take().unwrap_or_default();
                if plane.name == SESSION_PLANE {
                    outline.start_ns = outline.start_ns.or(plane.stat_value(plane.session_stats[0]));
                    outline.stop_ns = outline.stop_ns.or(plane.stat_value(plane.session_stats[1]));
                } else {
                    plane.session_stats = [None; 2];
                }
                plane.stats = Vec::new();
                outline.planes.push(plane);
            }
            space::HOSTNAMES if outline.hostnames.len() < HOSTNAMES_MAX => {
                outline.hostnames.push(read_name(&mut source, &field, NAME_BYTES_MAX)?);
            }
            _ => source.skip(field.body())?,
        }
    }
    if outline.planes.is_empty() {
        return Err(source.malformed(0, "not XSpace protobuf: it contains no plane"));
    }
    Ok(outline)
}

/// The next field of the outermost message; a known field of another wire type shows that the file
/// is something else.
pub(super) fn next_space_field(source: &mut Source) -> Result<Option<Header>, Error> {
    let Some(field) = source.next_header(source.limit())? else {
        return Ok(None);
    };
    if field.number <= space::HOSTNAMES && field.wire != 2 {
        return Err(mistyped(source, &field, "XSpace"));
    }
    Ok(Some(field))
}

/// The error for a known field of the wrong wire type.
pub(super) fn mistyped(source: &Source, field: &Header, message: &str) -> Error {
    let (number, wire) = (field.number, field.wire);
    source.malformed(field.at, format!("not XSpace protobuf: field {number} of {message} has wire type {wire}"))
}

/// The next field of a plane, with its wire type checked.
pub(super) fn next_plane_field(source: &mut Source, end: u64) -> Result<Option<Header>, Error> {
    let Some(field) = source.next_header(end)? else {
        return Ok(None);
    };
    let expected = if field.number == plane::ID { 0 } else { 2 };
    if field.number <= plane::STATS && field.wire != expected {
        return Err(mistyped(source, &field, "a plane"));
    }
    Ok(Some(field))
}

/// Passes on everything of a plane but its lines.
pub(super) fn walk_plane(source: &mut Source, header: &Header, visitor: &mut dyn MetadataVisitor) -> Result<(), Error> {
    while let Some(field) = next_plane_field(source, header.end())? {
        match field.number {
            plane::NAME => {
                let name = read_name(source, &field, NAME_BYTES_MAX)?;
                visitor.name(&name);
            }
            plane::LINES => {
                visitor.line();
                if let Some(starts) = visitor.line_starts() {
                    read_start(source, &field, starts)?;
                }
                source.skip(field.end() - source.position())?;
            }
            plane::EVENT_METADATA => {
                let longest = visitor.name_bytes_max();
                let (number, name) = read_entry(source, &field, longest, visitor.programs())?;
                visitor.event_metadata(number, &name);
            }
            plane::STAT_METADATA => {
                let (number, name) = read_entry(source, &field, visitor.name_bytes_max(), None)?;
                visitor.stat_metadata(number, &name);
            }
            plane::STATS if field.body() <= STAT_BYTES_MAX => {
                source.ensure(field.body())?;
                let parsed = Stat::parse(source.shown(field.body()));
                let stat = parsed.map_err(|fault| source.fault(field.body_at(), fault))?;
                match stat.value {
                    StatValue::Number(value) => visitor.stat(stat.number, value),
                    StatValue::Text(text) => visitor.text_stat(stat.number, text),
                    StatValue::Reference(_) | StatValue::Other => {}
                }
                source.consume(field.body() as usize);
            }
            _ => source.skip(field.body())?,
        }
    }
    Ok(())
}

/// An entry of a metadata map: its key, and the name in the message that is its value. Entries may
/// be large (a module's whole program), so they are walked, not held.
fn read_entry(
    source: &mut Source,
    entry: &Header,
    name_bytes_max: u64,
    mut programs: Option<&mut Programs>,
) -> Result<(u64, String), Error> {
    let (mut number, mut name) = (0, String::new());
    while let Some(field) = source.next_header(entry.end())? {
        match (field.number, field.wire) {
            (1, 0) => number = field.value,
            (2, 2) => {
                while let Some(inner) = source.next_header(field.end())? {
                    match (inner.number, inner.wire) {
                        (2, 2) => name = read_name(source, &inner, name_bytes_max)?,
                        (metadata::STATS, 2) => match programs.as_deref_mut() {
                            Some(programs) => programs.read_stat(source, &inner)?,
                            None => source.skip(inner.body())?,
                        },
                        _ => source.skip(inner.body())?,
                    }
                }
            }
            (1 | 2, _) => return Err(mistyped(source, &field, "a metadata entry")),
            _ => source.skip(field.body())?,
        }
    }
    Ok((number, name))
}

/// Notes where a line begins, if it has an event with a time; what follows the first event is not
/// read.
fn read_start(source: &mut Source, header: &Header, starts: &mut LineStarts) -> Result<(), Error> {
    let mut stated_ns = 0;
    while let Some(field) = source.next_header(header.end())? {
        match (field.number, field.wire) {
            (line::TIMESTAMP_NS, 0) => stated_ns = field.value as i64,
            (line::EVENTS, 2) => {
                let times = EventTimes::parse(source.piece(field.body())?);
                let times = times.map_err(|fault| source.fault(field.body_at(), fault))?;
                if !times.aggregated {
                    starts.add(stated_ns, times.offset.value);
                }
                return Ok(());
            }
            _ => source.skip(field.body())?,
        }
    }
    Ok(())
}

/// A string, cut at a limit, with invalid UTF-8 replaced; for inspection only.
pub(super) fn read_name(source: &mut Source, field: &Header, bytes_max: u64) -> Result<String, Error> {
    let shown = field.body().min(bytes_max);
    let name = String::from_utf8_lossy(source.piece(shown)?).into_owned();
    source.skip(field.body())?;
    Ok(name)
}

/// Planes of a file at most.
const PLANES_MAX: usize = 1 << 14;
/// Longer names are cut for inspection; they are never cut in what is written.
const NAME_BYTES_MAX: u64 = 4 << 10;
/// Longer stats of a plane are ignored.
const STAT_BYTES_MAX: u64 = 4 << 10;
/// Stats of a plane that are remembered until their names are known.
const PLANE_STATS_MAX: usize = 1 << 10;
/// Host names of a file that are remembered.
const HOSTNAMES_MAX: usize = 1 << 12;

/// The plane with the start and stop of the session.
const SESSION_PLANE: &str = "Task Environment";
/// The plane with pairs of clock readings.
pub(super) const SNAPSHOT_PLANE: &str = "/host:snapshots";
/// The plane with the programs.
const PROGRAM_PLANE: &str = "/host:metadata";
/// The stat with a correction, if requested.
pub(super) const CORRECTION_STAT: &str = "timestamp_correction_ns";
/// Stats of events whose values name things of one host.
const LINKING_STATS: [&str; 4] = ["correlation_id", "flow", "_p", "_c"];

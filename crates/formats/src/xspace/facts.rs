//! Reads a file's facts about its node, its clock and its collectives.
//!
//! Names follow the events that use them, so two sources walk the file: the first skips a plane's
//! lines and keeps the few relevant names, the second then reads those lines.

use std::collections::BTreeMap;
use std::path::Path;

use super::event::EventTimes;
use super::fields::{line, plane, space};
use super::launches::Launches;
use super::metadata_plane::{METADATA_PLANE, aligned_to};
use super::outline;
use super::programs::Programs;
use super::roles::{Role, Tables, event_stats, stated};
use super::sift::{self, EVENTS_TAG, SHARED_BYTES_MIN, Sifted, sift_in_order};
use crate::Error;
use crate::FactOptions;
use crate::in_order::Stages;
use crate::model::LeftOut as OddEvents;
use crate::model::parts::CollectiveParts;
use crate::model::{
    ClockPair, CollectiveEvent, Device, Identity, Instance, Label, MarkStamp, PS_PER_NS, PairKind, Picoseconds,
    PlaneSpan, Reach, Recipients, Replicas, Spread, TraceFacts, UNIX_TIME_MIN_PS,
};
use crate::protobuf::{Fault, Header, Run, Source};
use crate::stated::Groups;

/// Reads the facts of a file, plain or gzip: in one pass, or in two if some times turn out to be
/// implausible.
///
/// # Errors
/// Returns an error if the file cannot be read or is not XSpace.
pub fn read_facts(path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
    let (facts, spread) = read_within(path, options, None)?;
    match spread.reach() {
        None => Ok(facts),
        reach => read_within(path, options, reach).map(|(facts, _)| facts),
    }
}

/// Reads the facts of the events within `reach`, and the distribution of all times that do not
/// count from boot.
fn read_within(path: &Path, options: &FactOptions, reach: Option<Reach>) -> Result<(TraceFacts, Spread), Error> {
    let session = outline::outline_with_programs(path)?;
    let start_ps = Picoseconds::from(session.start_ns.unwrap_or(0)) * PS_PER_NS;
    let hostname = (session.hostnames.len() == 1).then(|| session.hostnames[0].clone()).filter(|name| !name.is_empty());
    let ps = |ns: i64| Picoseconds::from(ns) * PS_PER_NS;
    let facts = TraceFacts {
        identity: Identity { hostname, ..Identity::default() },
        merged: session.hostnames.len() > 1 || session.planes.iter().any(|plane| plane.name == METADATA_PLANE),
        session: session.start_ns.zip(session.stop_ns).map(|(start, stop)| (ps(start), ps(stop))),
        aligned_to: session.planes.iter().find_map(|plane| aligned_to(&plane.name)).map(str::to_owned),
        aligned_sigma_ns: session.planes.iter().find_map(|plane| aligned_to(&plane.name).and(plane.sigma_ns)),
        has_snapshot_plane: session.planes.iter().any(|plane| plane.is_snapshots()),
        collectives: CollectiveParts::new(&options.spill),
        reach,
        ..TraceFacts::default()
    };
    let programs = &session.programs;
    let (left_out, groups) = (LeftOut::default(), Groups::default());
    let launches = Launches::default();
    let (spread, odd) = (Spread::default(), OddEvents::default());
    let mut reader =
        Reader { facts, start_ps, options, programs, raw_span: None, spread, odd, launches, left_out, groups };
    if session.start_ns.is_none() {
        reader.note("no profile_start_time: using the times as they are".to_owned());
    }
    if session.hostnames.len() > 1 {
        reader.note(format!("{} host names: the file is already a merged trace", session.hostnames.len()));
    }
    let mut planes = session.planes.iter();
    let (mut ahead, mut behind) = (Source::open(path)?, Source::open(path)?);
    while let Some(field) = outline::next_space_field(&mut ahead)? {
        if field.number != space::PLANES {
            ahead.skip(field.body())?;
            continue;
        }
        let mut tables = Tables::new(options, reader.launches.names());
        outline::walk_plane(&mut ahead, &field, &mut tables)?;
        tables.classify();
        let Some(known) = planes.next() else {
            return Err(ahead.malformed(field.at, "the file changed while it was read"));
        };
        tables.clock = session.clocks().of(&known.starts);
        tables.reach = reach.filter(|_| !tables.clock.since_boot);
        if let Some((rank, world_size)) = tables.rank {
            let identity = &mut reader.facts.identity;
            (identity.rank, identity.world_size) = (Some(rank), Some(world_size));
            identity.marked_rank = tables.rank;
        }
        behind.skip(field.body_at() - behind.position())?;
        reader.plane(&mut behind, &field, &tables)?;
    }
    reader.finish();
    Ok((reader.facts, reader.spread))
}

/// What did not fit, by kind.
#[derive(Default)]
struct LeftOut {
    pairs: u64,
    marks: u64,
    names: u64,
    markers: BTreeMap<&'static str, u64>,
}

/// The facts collected so far.
struct Reader<'a> {
    facts: TraceFacts,
    start_ps: Picoseconds,
    options: &'a FactOptions,
    programs: &'a Programs,
    /// Span of the events of the present plane, if it counts from boot.
    raw_span: Option<(Picoseconds, Picoseconds)>,
    spread: Spread,
    /// Events with implausible times.
    odd: OddEvents,
    launches: Launches,
    left_out: LeftOut,
    groups: Groups,
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
                    let bytes = source.piece(field.body())?;
                    if let Err(fault) = self.event(bytes, field.at, stated_ns, tables) {
                        return Err(source.fault(field.body_at(), fault));
                    }
                    source.consume(field.body() as usize);
                    // Once per line: in a line of nothing but short runs threads would cost more
                    // than they save.
                    if !begun && header.end().saturating_sub(source.position()) >= SHARED_BYTES_MIN {
                        let (reader, end) = (&mut *self, header.end());
                        let events = LineEvents { reader, source, end, tables, line_ns: stated_ns, spare: Vec::new() };
                        sift_in_order(events, tables, stated_ns)?;
                    }
                    begun = true;
                }
                (line::TIMESTAMP_NS, 0) if begun && field.value as i64 != stated_ns => {
                    return Err(source.malformed(field.at, "a line has its start after its events, or twice"));
                }
                (line::TIMESTAMP_NS, 0) => stated_ns = field.value as i64,
                (line::TIMESTAMP_NS | line::EVENTS, _) => return Err(outline::mistyped(source, &field, "a line")),
                _ => source.skip(field.body())?,
            }
        }
        self.launches.end_thread();
        Ok(())
    }

    /// Takes an event in.
    #[inline]
    fn event(&mut self, bytes: &[u8], at: u64, line_ns: i64, tables: &Tables<'_>) -> Result<(), Fault> {
        let times = EventTimes::parse(bytes)?;
        if times.aggregated {
            return Ok(());
        }
        let line_ps = Picoseconds::from(line_ns) * PS_PER_NS;
        if outline::is_snapshots(&tables.plane) {
            let from = if line_ps >= UNIX_TIME_MIN_PS { 0 } else { self.start_ps };
            return self.snapshot(bytes, from + line_ps + Picoseconds::from(times.offset.value), tables);
        }
        let line_ps = tables.clock.origin_ps + line_ps;
        if let Some(oddity) = times.oddity(line_ps, tables.reach) {
            self.odd.add(oddity, at);
            return Ok(());
        }
        self.facts.events += 1;
        let (start_ps, end_ps) = times.span_ps(line_ps);
        if !tables.clock.since_boot {
            self.spread.add(start_ps, end_ps);
        }
        let role = tables.roles.get(&times.metadata);
        if let Some(Role::Marker(stated)) = role {
            return self.marker(bytes, *stated, start_ps, tables);
        }
        // Lines that a device's plane derives from the host's annotations are stamped by the
        // device.
        if let Some(Role::Mark(token, number)) = role
            && !(tables.clock.since_boot || tables.is_device())
        {
            self.mark(MarkStamp { token: *token, number: *number, tracer_ps: start_ps, unit_ps: PS_PER_NS });
            return Ok(());
        }
        let span = if tables.clock.since_boot { &mut self.raw_span } else { &mut self.facts.span };
        *span = sift::widened(*span, (start_ps, end_ps));
        if tables.states(bytes) {
            return self.stated(bytes, (start_ps, end_ps), tables);
        }
        match role {
            None | Some(Role::Marker(_) | Role::Mark(..)) => Ok(()),
            Some(role @ (Role::Execute | Role::Run | Role::Clique | Role::Launch)) => {
                self.launches.host(*role == Role::Execute, (start_ps, end_ps), event_stats(bytes, tables)?);
                Ok(())
            }
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
        let Some((name, kind)) = role.collective(&stats) else { return Ok(()) };
        let replicas = match (&stats.hlo_module, &stats.hlo_op) {
            (Some(module), Some(op)) => self.programs.replicas(module, stats.program_id, op),
            _ => Replicas::Unknown,
        };
        let (instance, number) = match (&stats.hlo_module, stats.run_id, &stats.hlo_op) {
            (Some(module), Some(run_id), Some(op)) => {
                (Instance::Hlo { module: module.clone(), op: op.clone() }, run_id)
            }
            (module, _, op) => {
                let parts = [module.as_deref(), op.as_deref(), Some(name)];
                let signature = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
                (Instance::Order { group: None, signature }, 0)
            }
        };
        let device = stats.device.map(Device::Stated).or_else(|| tables.ordinal().map(Device::OfPlane));
        // A kernel's own name says which algorithm runs, and is the same for all operations of a
        // kind.
        let shown = stats.hlo_op.as_ref().filter(|_| tables.is_device()).unwrap_or(name);
        let label = Label { name: shown.clone(), kind, instance, replicas, device };
        let event = CollectiveEvent { label, number, start_ps, end_ps, recipients: Recipients::All };
        // Of several processes' kernels the numbers of launches are not told apart.
        let waits = stats.run_id.is_none() && tables.is_gpu() && !self.facts.merged;
        let on_host_clock = !tables.clock.since_boot;
        let event = if waits { self.launches.kernel(name, event, &stats, on_host_clock) } else { Some(event) };
        if let Some(event) = event {
            self.facts.collectives.push(event);
        }
        Ok(())
    }

    /// Takes an event in that states its part in an operation.
    fn stated(
        &mut self,
        bytes: &[u8],
        (start_ps, end_ps): (Picoseconds, Picoseconds),
        tables: &Tables<'_>,
    ) -> Result<(), Fault> {
        let Some(stated) = stated(bytes, tables)? else { return Ok(()) };
        let (label, number, recipients) = stated.part(String::new, &mut self.groups);
        self.facts.collectives.push(CollectiveEvent { label, number, start_ps, end_ps, recipients });
        Ok(())
    }

    /// Reports what was left out.
    fn finish(&mut self) {
        let left_out = std::mem::take(&mut self.left_out);
        let counted = [
            ("pairs beyond the limit", left_out.pairs),
            ("marks beyond the limit", left_out.marks),
            ("names of events and stats beyond the limit", left_out.names),
        ];
        for (what, count) in counted.into_iter().chain(left_out.markers) {
            if count > 0 {
                self.note(format!("ignored {count} {what}"));
            }
        }
        self.facts.omitted = self.odd.by_reason();
        self.facts.warnings.extend(self.odd.note());
        self.facts.groups = std::mem::take(&mut self.groups).into_keys();
        if let Some(note) = self.launches.finish(&mut self.facts) {
            self.note(note);
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

/// The events of a long line: runs of them are sifted, and the rest comes back in file order.
struct LineEvents<'r, 'a> {
    reader: &'r mut Reader<'a>,
    source: &'r mut Source,
    end: u64,
    tables: &'r Tables<'r>,
    line_ns: i64,
    /// Buffers of finished runs.
    spare: Vec<Vec<u8>>,
}

impl Stages for LineEvents<'_, '_> {
    type Given = Run;
    type Made = Sifted;
    type Error = Error;

    fn next(&mut self) -> Result<Option<Run>, Error> {
        let spare = self.spare.pop().unwrap_or_default();
        self.source.take_run(EVENTS_TAG, self.end, spare)
    }

    fn take(&mut self, sifted: Sifted) -> Result<(), Error> {
        let Sifted { run, events, span, kept, fault } = sifted;
        let facts = &mut self.reader.facts;
        facts.events += events;
        if let Some(sifted_span) = span {
            let raw = self.tables.clock.since_boot;
            if !raw {
                self.reader.spread.add_many(sifted_span.0, sifted_span.1, events);
            }
            let facts = &mut self.reader.facts;
            let span = if raw { &mut self.reader.raw_span } else { &mut facts.span };
            *span = sift::widened(*span, sifted_span);
        }
        for event in kept {
            let at = run.position() + event.start as u64;
            let taken = self.reader.event(&run.bytes()[event], at, self.line_ns, self.tables);
            taken.map_err(|fault| self.source.fault(at, fault))?;
        }
        if let Some((at, fault)) = fault {
            return Err(self.source.fault(run.position() + at as u64, fault));
        }
        self.spare.push(run.into_buffer());
        Ok(())
    }
}

/// Most planes on a raw clock that are reported.
const RAW_PLANES_MAX: usize = 1 << 10;
/// Pairs of a file at most.
const PAIRS_MAX: usize = 1_000_000;
/// Notes at most.
const NOTES_MAX: usize = 32;
/// The bracket assumed for a snapshot that does not state its own, ns: the widest that the sampler
/// accepts.
const SNAPSHOT_BRACKET_NS: f64 = 5000.0;

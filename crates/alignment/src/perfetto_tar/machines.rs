//! Groups the traces of a TAR by machine and clock, and determines each machine's name and the
//! single offset of its clock.
//!
//! Traces of one node with the same map belong to one machine. If the maps of two traces of a node
//! differ, as those of two profilers with their own snapshots do, they form two machines, because
//! Perfetto gives each clock of a machine one offset.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use crate::Error;
use probe_sync_estimate::series::{MapChain, TimeMap};
use probe_sync_formats::model::{PS_PER_NS, Picoseconds};
use probe_sync_formats::{Perfetto, TraceFormat, gzip};

use super::offset::{self, Constant};
use crate::calibrated::{Calibrated, CalibratedTrace};

/// Traces of one machine and clock.
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) clock: Option<&'static str>,
    /// Their places among the traces.
    pub(super) parts: Vec<usize>,
    /// `None` if none of them has events.
    pub(super) constant: Option<Constant>,
    /// From the first to the last event.
    pub(super) over_ns: Option<i64>,
    node: u32,
    to_reference: TimeMap,
    span: Option<(Picoseconds, Picoseconds)>,
}

/// The machines of all traces; the first trace is of the first.
///
/// # Errors
/// A trace of another format, or without a clock; no map leads back to the clock of the first
/// trace.
pub(super) fn machines(calibrated: &Calibrated) -> Result<Vec<Machine>, Error> {
    let mut machines: Vec<Machine> = Vec::new();
    for (part, of) in calibrated.traces.iter().enumerate() {
        refuse_other_format(of)?;
        let map = map_of(calibrated, of)?;
        let (node, clock, span) = (of.trace.node, of.trace.facts.stated_clock, of.trace.facts.span);
        let is_same =
            |machine: &&mut Machine| (machine.node, machine.clock) == (node, clock) && machine.to_reference == map;
        match machines.iter_mut().find(is_same) {
            Some(machine) => {
                machine.parts.push(part);
                machine.span = machine.span.into_iter().chain(span).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
            }
            None => machines.push(Machine {
                name: String::new(),
                clock,
                parts: vec![part],
                constant: None,
                over_ns: None,
                node,
                to_reference: map,
                span,
            }),
        }
    }
    name(calibrated, &mut machines);
    relate(&mut machines)?;
    Ok(machines)
}

fn refuse_other_format(of: &CalibratedTrace) -> Result<(), Error> {
    let perfetto: &dyn TraceFormat = &Perfetto;
    if of.trace.format == perfetto {
        return refuse_packed(&of.trace.path);
    }
    let (path, format) = (of.trace.path.display(), of.trace.format.name());
    let problem = format!(
        "{path} is a trace in the format {format}, but an output that ends in .tar only accepts Perfetto traces; choose one that ends \
        in .pftrace, which accepts all other formats"
    );
    Err(Error::Request { problem })
}

/// Perfetto does not unpack the members of a TAR.
fn refuse_packed(path: &Path) -> Result<(), Error> {
    let head = File::open(path).and_then(|mut file| gzip::head(&mut file, 2)).map_err(Error::io(path, "open"))?;
    if !gzip::is_packed(&head) {
        return Ok(());
    }
    let problem = format!(
        "{}: the trace is compressed with gzip, and a TAR would contain it compressed; decompress it first (gunzip)",
        path.display()
    );
    Err(Error::Request { problem })
}

/// The map of a trace; of one that is on the common clock already it changes nothing.
fn map_of(calibrated: &Calibrated, of: &CalibratedTrace) -> Result<TimeMap, Error> {
    let shared = calibrated.traces.first().and_then(|first| first.trace.facts.aligned_to.as_ref());
    match (&of.map, shared) {
        (Some(map), _) => Ok(map.clone()),
        (None, Some(_)) if of.trace.facts.aligned_to.as_ref() == shared => Ok(TimeMap::identity()),
        (None, _) => {
            let problem = format!(
                "the clock of {} is unknown, and without an offset Perfetto would display it as if all machines had started at once; \
                give --run-dir, or --offsets with --snapshots",
                of.trace.path.display()
            );
            Err(calibrated.no_clock(problem))
        }
    }
}

/// Names machines by their hosts, if the run or the trace states them, and distinguishes those of
/// one host.
fn name(calibrated: &Calibrated, machines: &mut [Machine]) {
    let mut taken: BTreeMap<(String, Option<&'static str>), u32> = BTreeMap::new();
    let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
    for machine in machines {
        let first = &calibrated.traces[machine.parts[0]].trace;
        let host = first.facts.identity.hostname.as_ref().or_else(|| calibrated.hosts.get(&machine.node));
        let number = format!("node {}", machine.node);
        let host = host.filter(|host| !host.is_empty()).cloned().unwrap_or_else(|| number.clone());
        // Two nodes of one host are two machines.
        let is_of_other = *nodes.entry(host.clone()).or_insert(machine.node) != machine.node;
        let name = if is_of_other { format!("{host} ({number})") } else { host };
        let count = taken.entry((name.clone(), machine.clock)).or_insert(0);
        *count += 1;
        machine.name = if *count == 1 { name } else { format!("{name}, clock {count}") };
    }
}

/// Gives every machine the offset of its clock from that of the first trace.
fn relate(machines: &mut [Machine]) -> Result<(), Error> {
    let Some(reference) = machines.first().map(|machine| (machine.node, machine.to_reference.clone())) else {
        return Ok(());
    };
    let (node, to_common) = reference;
    let back = to_common.inverse().map_err(Error::clock(node))?;
    for machine in machines {
        let Some((first, last)) = machine.span else { continue };
        let constant = if machine.to_reference == to_common {
            Constant::default()
        } else {
            let chain = MapChain::new(machine.to_reference.clone()).then(back.clone(), STEP_TOLERANCE_NS);
            offset::constant(chain.whole(), first, last)
                .ok_or_else(|| Error::Request { problem: format!("{}: {TOO_FAR}", machine.name) })?
        };
        machine.constant = Some(constant);
        machine.over_ns = i64::try_from((last - first) / PS_PER_NS).ok();
    }
    Ok(())
}

/// Steps of the common clock that both maps have agree within this.
const STEP_TOLERANCE_NS: f64 = 50_000.0;
const TOO_FAR: &str = "its clock differs from that of the first trace by more than 64 bits of nanoseconds";

//! Groups traces that share a clock into machines, for outputs in which each machine keeps its own
//! clock.
//!
//! Traces of one host with the same map form one machine; they are read together, so that its clock
//! passes through the output once. If the maps of two traces of a host differ, as those of two
//! profilers do, they form two machines. A trace that is already on the common clock belongs to
//! none.

use crate::Error;
use probe_sync_estimate::series::TimeMap;
use probe_sync_formats::chunk::{Chunk, TrackId};
use probe_sync_formats::model::{PS_PER_NS, Picoseconds, nearest_ns};
use probe_sync_writers::Machine;

use crate::calibrated::{Calibrated, CalibratedTrace};

/// Traces that are read and sorted together.
pub(super) struct Group {
    /// The clock that their times stay on; `None`: they are mapped to the common one.
    pub(super) machine: Option<Machine>,
    /// Their places among the traces.
    pub(super) parts: Vec<usize>,
}

/// One group for each trace or, with machines, for each clock of a host.
///
/// # Errors
/// [`Error::Request`]: with machines, a trace without a clock or with several.
pub(super) fn groups(calibrated: &Calibrated, with_machines: bool) -> Result<Vec<Group>, Error> {
    let traces = &calibrated.traces;
    if !with_machines {
        return Ok((0..traces.len()).map(|part| Group { machine: None, parts: vec![part] }).collect());
    }
    let identity = TimeMap::identity();
    let mut groups: Vec<Group> = Vec::new();
    for (part, of) in traces.iter().enumerate() {
        let map = own_clock(of)?;
        let host = &of.trace.facts.identity.hostname;
        let is_same = |group: &&mut Group| {
            let first = &traces[group.parts[0]];
            first.map.as_ref() == Some(map) && first.trace.facts.identity.hostname == *host
        };
        if let Some(group) = groups.iter_mut().find(is_same) {
            group.parts.push(part);
            continue;
        }
        let id = 1 + groups.iter().filter(|group| group.machine.is_some()).count() as u32;
        let machine = (*map != identity).then(|| Machine { id, to_reference: map.clone() });
        groups.push(Group { machine, parts: vec![part] });
    }
    Ok(groups)
}

/// The map of a trace that has one clock.
fn own_clock(of: &CalibratedTrace) -> Result<&TimeMap, Error> {
    let path = of.trace.path.display();
    let Some(map) = &of.map else {
        let problem =
            format!("--machines: the clock of {path} is unknown; give --run-dir, --offsets or --from-collectives");
        return Err(Error::Request { problem });
    };
    if !of.trace.facts.since_boot.is_empty() {
        let problem = format!(
            "--machines: {path} has planes on a clock that counts from boot as well as others, but a machine can have only one clock; \
            omit --machines"
        );
        return Err(Error::Request { problem });
    }
    Ok(map)
}

/// Converts a time of a machine to the common clock, ns.
pub(super) fn on_reference(machine: &Machine, ns: i64) -> i64 {
    let mapped = machine.to_reference.map(Picoseconds::from(ns) * PS_PER_NS).time_ps;
    nearest_ns(mapped).unwrap_or(if mapped < 0 { i64::MIN } else { i64::MAX })
}

/// The chunk with its tracks numbered from `first` on; modulo 2^32, so that a number's negative
/// takes it back.
pub(super) fn shifted(chunk: &Chunk, first: u32) -> Chunk {
    let mut chunk = chunk.clone();
    let Chunk { tracks, slices, instants, counters, flows, .. } = &mut chunk;
    let columns = [&mut slices.track, &mut instants.track, &mut counters.track, &mut flows.track];
    let parents = tracks.iter_mut().filter_map(|track| track.parent.as_mut());
    for TrackId(track) in columns.into_iter().flatten().chain(parents) {
        *track = track.wrapping_add(first);
    }
    chunk
}

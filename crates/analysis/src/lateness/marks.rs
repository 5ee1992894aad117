//! A track that shows the last ranks next to the traces.
//!
//! Each operation in which a rank waited is a slice from its first arrival to its last, that is,
//! the time lost because of the rank it names. A merge adds it to the traces.

use probe_sync_alignment::{AddedTrack, Calibrated, StepNames};
use probe_sync_formats::chunk::{ArgRange, Chunk, Flow, Process, StringId, Track, TrackId, TrackKind, Value};

use super::lateness;
use super::report::{LateInstance, Lateness};

/// Adds the track to a merged file.
#[derive(Clone, Debug)]
pub struct LateTrack {
    /// Returns the pattern of step events.
    pub steps: StepNames,
}

impl AddedTrack for LateTrack {
    fn name(&self) -> &'static str {
        PROCESS
    }

    fn chunk(&self, calibrated: &Calibrated, process: &str, pid: i64) -> Result<Chunk, probe_sync_alignment::Error> {
        Ok(lateness(calibrated, &self.steps)?.track(process, pid))
    }
}

impl Lateness {
    /// Returns the track in a process of its own, with its operations in order of their first
    /// arrivals.
    fn track(&self, process: &str, pid: i64) -> Chunk {
        let mut chunk = Chunk::default();
        let kind = TrackKind::Process(Process { pid, ..Process::default() });
        chunk.tracks.push(Track { parent: None, kind, name: process.to_owned() });
        let thread = TrackKind::Thread { tid: TID };
        chunk.tracks.push(Track { parent: Some(TrackId(0)), kind: thread, name: THREAD.to_owned() });
        let mut waited: Vec<&LateInstance> =
            self.instances.iter().filter(|instance| instance.latest_rank.is_some()).collect();
        waited.sort_by_key(|instance| (instance.first_arrival_ns, instance.last_arrival_ns));
        for instance in waited {
            put(&mut chunk, instance);
        }
        chunk
    }
}

fn put(chunk: &mut Chunk, instance: &LateInstance) {
    let args = args(chunk, instance);
    let (name, category) = (chunk.strings.push(&instance.label()), chunk.strings.intern(CATEGORY));
    let slices = &mut chunk.slices;
    slices.track.push(TrackId(1));
    slices.start_ns.push(instance.last_arrival_ns - instance.spread_ns);
    slices.end_ns.push(instance.last_arrival_ns);
    slices.name.push(name);
    slices.category.push(category);
    slices.flow.push(Flow::default());
    slices.args.push(args);
}

fn args(chunk: &mut Chunk, instance: &LateInstance) -> ArgRange {
    let tied: Vec<String> =
        instance.latest_rank.iter().chain(&instance.tied_ranks).map(|rank| format!("rank {rank}")).collect();
    let text = |chunk: &mut Chunk, text: &str| -> StringId { chunk.strings.push(text) };
    let who = match (instance.last_rank, &instance.late_host) {
        (Some(rank), _) => ("last_rank", Value::Integer(rank.into())),
        (None, Some(host)) => ("late_host", Value::Text(text(chunk, host))),
        (None, None) => ("tied", Value::Text(text(chunk, &tied.join(", ")))),
    };
    let which = Value::Text(text(chunk, &instance.instance));
    let mut all = vec![
        ("instance", which),
        who,
        ("lead_ns", Value::Integer(instance.lead_ns)),
        ("lead_sigma_ns", Value::Float(instance.lead_sigma_ns)),
        ("spread_ns", Value::Integer(instance.spread_ns)),
        ("transfer_ns", Value::Integer(instance.transfer_ns)),
    ];
    all.extend(instance.step.map(|step| ("step", Value::Integer(step))));
    // JSON has no infinity.
    all.retain(|(_, value)| !matches!(value, Value::Float(number) if !number.is_finite()));
    let first = chunk.args.key.len() as u32;
    for (key, value) in &all {
        chunk.args.key.push(chunk.strings.intern(key));
        chunk.args.value.push(*value);
    }
    ArgRange { first, count: all.len() as u32 }
}

/// Name of the track's process.
const PROCESS: &str = "late ranks";
const THREAD: &str = "which rank was last";
const CATEGORY: &str = "lateness";
/// The number of its only thread.
const TID: i64 = 1;

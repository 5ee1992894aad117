//! A track that shows the last ranks next to the traces.
//!
//! Each operation in which a rank waited is a slice from its first arrival to its last, that is,
//! the time lost because of the rank it names. Viewers' formats take the chunk with the others; a
//! merge within Kineto or XSpace takes a small trace of that format as an additional input.

use std::path::PathBuf;

use tempfile::TempDir;

use super::report::{LateInstance, Lateness};
use crate::Error;
use crate::chunk::{ArgRange, Chunk, Flow, Process, StringId, Track, TrackId, TrackKind, Value};
use crate::write::{Meta, OutputFormat, TraceFile};

impl Lateness {
    /// The track in a process of its own, with its operations in order of their first arrivals.
    pub(crate) fn track(&self) -> Chunk {
        self.track_of(PROCESS, 0)
    }

    fn track_of(&self, process: &str, pid: i64) -> Chunk {
        let mut chunk = Chunk::default();
        let kind = TrackKind::Process(Process { pid, ..Process::default() });
        chunk.tracks.push(Track { parent: None, kind, name: process.to_owned() });
        let thread = TrackKind::Thread { tid: PID };
        chunk.tracks.push(Track { parent: Some(TrackId(0)), kind: thread, name: THREAD.to_owned() });
        let mut waited: Vec<&LateInstance> =
            self.instances.iter().filter(|instance| instance.latest_rank.is_some()).collect();
        waited.sort_by_key(|instance| (instance.first_arrival_ns, instance.last_arrival_ns));
        for instance in waited {
            put(&mut chunk, instance);
        }
        chunk
    }

    /// The track as a trace of its own, in a folder that vanishes with the first of the two.
    ///
    /// # Errors
    /// The folder for temporary files takes no more.
    pub(crate) fn trace(&self, format: OutputFormat, base_ns: i64, ending: &str) -> Result<(TempDir, PathBuf), Error> {
        let folder = tempfile::tempdir().map_err(Error::io(&std::env::temp_dir(), "create a folder in"))?;
        let path = folder.path().join(format!("late{ending}"));
        let mut file = TraceFile::create(&path, format, &Meta { base_ns, ..Meta::default() })?;
        // The merge puts the input's name before that of the process; Kineto's processes have
        // numbers.
        let pid = if format == OutputFormat::Kineto { PID } else { 0 };
        file.write(&self.track_of("probe_sync", pid))?;
        file.commit()?;
        Ok((folder, path))
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

/// What the process of the track is called.
pub(crate) const PROCESS: &str = "late ranks";
const THREAD: &str = "which rank was last";
const CATEGORY: &str = "lateness";
/// Formats of one process want a number.
const PID: i64 = 1;

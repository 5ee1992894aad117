//! The context of the collectives in a trace: the program's steps, and the host launches of device
//! work.
//!
//! Traces whose operations do not state their run are read a second time, as chunks with unmapped
//! times. Steps are host events whose name matches a pattern. A launch and its kernel share a
//! correlation number (Kineto) or are the two ends of a flow (databases).

use std::collections::{BTreeMap, HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::Error;
use probe_sync_alignment::{CalibratedTrace, StepNames};
use probe_sync_formats::chunk::{Chunk, FlowEnd, Value};
use probe_sync_formats::model::{BeforeLaunch, Instance, PS_PER_NS, Picoseconds, TraceFacts, nearest_ns};
use probe_sync_formats::{ChunkOptions, WantedArgs, side_by_side};

/// Number → first start and last end on the reference clock, ns.
pub(super) type StepSpans = BTreeMap<i64, (i64, i64)>;

/// For one trace, on its own timeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Context {
    /// Start, end and number of each step, in order of start.
    pub(crate) steps: Vec<(i64, i64, i64)>,
    /// Launch times of what begins on a device at a time, ns.
    launches: HashMap<i64, i64, RandomState>,
    /// Launches that were not kept.
    pub(crate) launches_left_out: u64,
    pub(crate) before_launch: BeforeLaunch,
}

impl Context {
    /// Reads all traces, several at once. If several cannot be read, the error is that of the first
    /// in their order.
    ///
    /// # Errors
    /// A trace cannot be read.
    pub(crate) fn read_all(traces: &[&CalibratedTrace], steps: &StepNames) -> Result<Vec<Self>, Error> {
        side_by_side(traces.len(), |place| Self::read(traces[place], steps)).into_iter().collect()
    }

    /// What the traces of each rank say together; `ranks` are their indices.
    pub(crate) fn of_ranks(all: Vec<Self>, ranks: &[Vec<usize>]) -> Vec<Self> {
        let mut all: Vec<Option<Self>> = all.into_iter().map(Some).collect();
        let of_rank = |rank: &Vec<usize>| {
            let mut joined = Self::default();
            for of in rank.iter().filter_map(|place| all[*place].take()) {
                joined.steps.extend(of.steps);
                joined.launches.extend(of.launches);
                joined.launches_left_out += of.launches_left_out;
                joined.before_launch.count += of.before_launch.count;
                joined.before_launch.most_ns = joined.before_launch.most_ns.max(of.before_launch.most_ns);
            }
            joined.steps.sort_unstable();
            joined
        };
        ranks.iter().map(of_rank).collect()
    }

    /// Reads a trace; nothing if its operations state their run, or if it has none.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub(crate) fn read(calibrated: &CalibratedTrace, steps: &StepNames) -> Result<Self, Error> {
        let trace = &calibrated.trace;
        let parts = &trace.facts.collectives;
        let labels: Vec<u32> = parts.labels().map(|(number, ..)| number).collect();
        let mut found = Self::default();
        trace.facts.launches.iter().for_each(|(start, launch)| found.launched(*start, *launch));
        let needs = |(_, label, _): (u32, &probe_sync_formats::model::Label, u64)| {
            !matches!(label.instance, Instance::Hlo { .. })
        };
        if !parts.labels().any(needs) {
            return Ok(found);
        }
        let mut cursor = parts.cursor(&labels);
        let starts: HashSet<i64, RandomState> =
            std::iter::from_fn(|| cursor.next()).filter_map(|part| nearest_ns(part.start_ps)).collect();
        let mut reading =
            Reading { names: steps, starts, found, launched: HashMap::default(), waiting: HashMap::default() };
        let TraceFacts { reach, base_ns, .. } = trace.facts;
        let options =
            ChunkOptions { args: WantedArgs::Named(&[CORRELATION]), reach, base_ns, ..ChunkOptions::default() };
        trace.format.read_chunks(&trace.path, &options, &mut |time| time, &mut |chunk| {
            reading.take(chunk);
            Ok(())
        })?;
        let Reading { mut found, launched, waiting, .. } = reading;
        for (start, id) in waiting {
            if let Some(launch) = launched.get(&id) {
                found.launched(start, *launch);
            }
        }
        found.steps.sort_unstable();
        found.steps.dedup();
        Ok(found)
    }

    fn launched(&mut self, start: i64, launch: i64) {
        self.before_launch.look(start, launch);
        if launch <= start {
            self.launches.insert(start, launch);
        }
    }

    /// Launch time of what begins at this time.
    pub(crate) fn launch(&self, start_ps: Picoseconds) -> Option<Picoseconds> {
        self.launches.get(&nearest_ns(start_ps)?).map(|launch| Picoseconds::from(*launch) * PS_PER_NS)
    }

    /// Number and start, ps, of the step in which something was begun: the last that had begun,
    /// since the host continues while its work is under way.
    pub(crate) fn step(&self, time_ps: Picoseconds) -> Option<(i64, Picoseconds)> {
        let time = nearest_ns(time_ps)?;
        let begun = self.steps.partition_point(|(start, ..)| *start <= time);
        let (start, _, number) = self.steps[begun.checked_sub(1)?];
        Some((number, Picoseconds::from(start) * PS_PER_NS))
    }
}

/// What connects a launch to its kernel.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Link {
    Correlation(i64),
    Flow(u64),
}

struct Reading<'a> {
    names: &'a StepNames,
    /// Start times of parts of collectives.
    starts: HashSet<i64, RandomState>,
    found: Context,
    launched: HashMap<Link, i64, RandomState>,
    waiting: HashMap<i64, Link, RandomState>,
}

impl Reading<'_> {
    fn take(&mut self, chunk: &Chunk) {
        // Each text is looked at once per chunk.
        let mut steps: Vec<Option<Option<i64>>> = vec![None; chunk.strings.count()];
        let mut kinds: Vec<Option<Kind>> = vec![None; chunk.strings.count()];
        for row in 0..chunk.slices.track.len() {
            let (start, name, category) =
                (chunk.slices.start_ns[row], chunk.slices.name[row], chunk.slices.category[row]);
            let kind = *kinds[category.0 as usize].get_or_insert_with(|| Kind::of(chunk.strings.text(category)));
            let mut step =
                || *steps[name.0 as usize].get_or_insert_with(|| self.names.number(chunk.strings.text(name)));
            if kind != Kind::DeviceAnnotation
                && self.found.steps.len() < STEPS_MAX
                && let Some(number) = step()
            {
                self.found.steps.push((start, chunk.slices.end_ns[row], number));
            }
            let Some((link, is_launch)) = link(chunk, row, kind) else { continue };
            if !is_launch {
                if self.starts.contains(&start) {
                    self.waiting.insert(start, link);
                }
            } else if self.launched.len() < LAUNCHES_MAX {
                self.launched.insert(link, start);
            } else {
                self.found.launches_left_out += 1;
            }
        }
    }
}

/// What a category says of a slice.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// The copy of an annotation on a device's timeline; it begins when the device got there.
    DeviceAnnotation,
    Launch,
    Kernel,
    Other,
}

impl Kind {
    fn of(category: &str) -> Self {
        match category {
            "gpu_user_annotation" => Self::DeviceAnnotation,
            "kernel" => Self::Kernel,
            _ if category.contains("runtime") || category.contains("driver") => Self::Launch,
            _ => Self::Other,
        }
    }
}

/// What connects a slice to another, and whether it is the launch.
fn link(chunk: &Chunk, row: usize, kind: Kind) -> Option<(Link, bool)> {
    let flow = chunk.slices.flow[row];
    if flow.id != 0 {
        return Some((Link::Flow(flow.id), flow.end == FlowEnd::Out));
    }
    if !matches!(kind, Kind::Launch | Kind::Kernel) {
        return None;
    }
    let range = chunk.slices.args[row];
    let range = range.first as usize..(range.first + range.count) as usize;
    let mut args = chunk.args.key[range.clone()].iter().zip(&chunk.args.value[range]);
    args.find_map(|(key, value)| match value {
        Value::Integer(number) if chunk.strings.text(*key) == CORRELATION => {
            Some((Link::Correlation(*number), kind == Kind::Launch))
        }
        _ => None,
    })
}

/// The argument that a launch and its kernel have in common.
const CORRELATION: &str = "correlation";
/// Steps of a trace that are kept.
const STEPS_MAX: usize = 1 << 20;
/// Launches of a trace that are kept: 100 MB.
const LAUNCHES_MAX: usize = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_issued_late_in_a_step_is_of_it() {
        let context = Context { steps: vec![(10, 20, 1), (30, 40, 2)], ..Context::default() };
        let check = |time_ns: i128, expected: Option<i64>| {
            assert_eq!(context.step(time_ns * PS_PER_NS).map(|(number, _)| number), expected, "{time_ns}");
        };
        check(9, None);
        check(10, Some(1));
        check(29, Some(1));
        check(30, Some(2));
        check(1000, Some(2));
    }
}

//! The program run and the job-wide device of each kernel, if only the host's events state them.
//!
//! This is needed for profilers of GPUs. XLA's events on a GPU state module and operation but no
//! run, and their plane is numbered by the process. The host's plane, which follows the devices',
//! contains the rest (as observed in files of jaxlib 0.11 with NCCL 2.28, and according to XLA's
//! published source):
//!
//! ```text
//! a thread of /host:CPU
//!   CommonPjRtLoadedExecutable::Execute (jit_step)     run_id=953279609 name=jit_step
//!     GpuExecutable::ExecuteThunks                     module_name=jit_step
//!       AcquireGpuClique                               device=0 rank=2 clique_key="devices=4:[0,1,2,3]; …"
//!       RendezvousAfterInitialization                  run_id=953279609
//!       ncclDevKernel_AllReduce…                       correlation_id=5                       its launch
//! /device:GPU:0
//!   ncclDevKernel_AllReduce…                           correlation_id=5 hlo_module=jit_step hlo_op=psum.7
//! ```
//!
//! A launch is of the run that the events around it state, where all processes share its number
//! ([`super::roles`]). `rank` is the place of the device in the clique's list of the job's devices.
//!
//! It does not guess. If some kernels of a file find their run, the others belong to no operation
//! with certainty, because their order no longer matches that of the other processes; if none does,
//! their order is used. A device with contradictory events, or with a truncated list, keeps the
//! number of its plane.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::roles::EventStats;
use crate::model::{
    CollectiveEvent, Device, Instance, Label, Picoseconds, Recipients, Replicas, TraceFacts, nearest_ns,
};

/// Knowledge about a file's launches so far.
#[derive(Default)]
pub(super) struct Launches {
    /// What kernels are, as operations of a run, and their own names.
    labels: Vec<(Arc<Label>, String)>,
    numbers: HashMap<Arc<Label>, u32>,
    label_bytes: usize,
    names: Arc<HashSet<String>>,
    kernels: Vec<Kernel>,
    /// By launch number: the kernel.
    waiting: HashMap<i64, usize>,
    /// Spans of the present thread that run programs.
    spans: Vec<Span>,
    /// When the present thread stated a run, within the span that runs it.
    stated: Vec<(Picoseconds, i64)>,
    /// When the present thread launched which kernel.
    launched: Vec<(Picoseconds, usize)>,
    /// By number of a device's plane: the job's number of the device, unless events differ.
    devices: HashMap<u64, Option<u64>>,
    /// Kernels beyond the limits.
    left_out: u64,
}

/// A kernel that waits for its launch.
struct Kernel {
    label: u32,
    start_ps: Picoseconds,
    end_ps: Picoseconds,
    launch: Launch,
    /// Its times and those of its launch may be compared.
    on_host_clock: bool,
}

/// Knowledge about a launch.
#[derive(Copy, Clone)]
enum Launch {
    Unseen,
    At(Picoseconds, Option<i64>),
    /// Two launches, or two kernels, have the same number.
    Twice,
}

/// An event that runs a program.
struct Span {
    start_ps: Picoseconds,
    end_ps: Picoseconds,
    run: Option<i64>,
    module: Option<String>,
}

impl Launches {
    /// Takes a kernel of this name that states no run; returns it if nothing can be found out about
    /// it.
    pub(super) fn kernel(
        &mut self,
        name: &str,
        mut event: CollectiveEvent,
        stats: &EventStats,
        on_host_clock: bool,
    ) -> Option<CollectiveEvent> {
        let (Some(correlation), Some(module), Some(op)) = (stats.correlation, &stats.hlo_module, &stats.hlo_op) else {
            return Some(event);
        };
        event.label.instance = Instance::Hlo { module: module.clone(), op: op.clone() };
        let CollectiveEvent { label, start_ps, end_ps, .. } = event;
        let Some(label) = self.label(name, label, module.len() + op.len()) else {
            self.left_out += 1;
            return None;
        };
        let mut launch = Launch::Unseen;
        if let Some(&other) = self.waiting.get(&correlation) {
            (launch, self.kernels[other].launch) = (Launch::Twice, Launch::Twice);
        } else {
            self.waiting.insert(correlation, self.kernels.len());
        }
        self.kernels.push(Kernel { label, start_ps, end_ps, launch, on_host_clock });
        None
    }

    /// The number of a label; `None` beyond the limits.
    fn label(&mut self, name: &str, label: Label, text_bytes: usize) -> Option<u32> {
        if self.kernels.len() == KERNELS_MAX {
            return None;
        }
        if let Some(known) = self.numbers.get(&label) {
            return Some(*known);
        }
        self.label_bytes += name.len() + label.name.len() + text_bytes + size_of::<Label>();
        if self.label_bytes > LABEL_BYTES_MAX || (self.names.len() == NAMES_MAX && !self.names.contains(name)) {
            return None;
        }
        if !self.names.contains(name) {
            Arc::make_mut(&mut self.names).insert(name.to_owned());
        }
        let (label, number) = (Arc::new(label), self.labels.len() as u32);
        self.labels.push((Arc::clone(&label), name.to_owned()));
        self.numbers.insert(label, number);
        Some(number)
    }

    /// The names of kernels that wait: their launches are named alike.
    pub(super) fn names(&self) -> Arc<HashSet<String>> {
        Arc::clone(&self.names)
    }

    /// Processes what the host states about a run, a launch or a device.
    pub(super) fn host(&mut self, executes: bool, (start_ps, end_ps): (Picoseconds, Picoseconds), stats: EventStats) {
        if executes {
            if self.spans.len() < HELD_MAX {
                self.spans.push(Span { start_ps, end_ps, run: stats.run_id, module: stats.module_name });
            }
        } else if let Some(run) = stats.run_id {
            if self.stated.len() < HELD_MAX {
                self.stated.push((start_ps, run));
            }
        } else if let Some(correlation) = stats.correlation {
            if let Some(&kernel) = self.waiting.get(&correlation)
                && self.launched.len() < HELD_MAX
            {
                self.launched.push((start_ps, kernel));
            }
        } else if let (Some(device), Some(rank), Some(key)) = stats.clique
            && let Some(global) = member(&key, rank)
        {
            self.device(device, global);
        }
    }

    fn device(&mut self, device: u64, global: u64) {
        if let Some(known) = self.devices.get_mut(&device) {
            *known = known.filter(|known| *known == global);
        } else if self.devices.len() < DEVICES_MAX {
            self.devices.insert(device, Some(global));
        }
    }

    /// Ends a thread: determines which of its launches belong to which run.
    pub(super) fn end_thread(&mut self) {
        self.spans.sort_unstable_by_key(|span| (span.start_ps, std::cmp::Reverse(span.end_ps)));
        self.stated.sort_unstable();
        self.launched.sort_unstable();
        let whole = self.spans.len().max(self.stated.len()) < HELD_MAX;
        let (mut next, mut around): (usize, Vec<usize>) = (0, Vec::new());
        for (at_ps, kernel) in std::mem::take(&mut self.launched) {
            while let Some(span) = self.spans.get(next).filter(|span| span.start_ps <= at_ps) {
                around.retain(|place| self.spans[*place].end_ps > span.start_ps);
                around.truncate(DEPTH_MAX);
                around.push(next);
                next += 1;
            }
            around.retain(|place| self.spans[*place].end_ps > at_ps);
            let (label, _) = &self.labels[self.kernels[kernel].label as usize];
            let run = if whole { self.run_around(&around, at_ps, label) } else { None };
            let known = &mut self.kernels[kernel].launch;
            *known = if matches!(known, Launch::Unseen) { Launch::At(at_ps, run) } else { Launch::Twice };
        }
        self.spans.clear();
        self.stated.clear();
    }

    /// The run that the events around a launch state, outermost first, if none of them contradicts.
    fn run_around(&self, around: &[usize], at_ps: Picoseconds, label: &Label) -> Option<i64> {
        let innermost = &self.spans[*around.last()?];
        let spans = around.iter().map(|place| &self.spans[*place]);
        if let Instance::Hlo { module, .. } = &label.instance
            && spans.clone().any(|span| span.module.as_ref().is_some_and(|stated| stated != module))
        {
            return None;
        }
        let stated = self.stated.partition_point(|(stated_ps, _)| *stated_ps <= at_ps);
        let stated = stated.checked_sub(1).map(|last| self.stated[last]);
        let stated = stated.filter(|(stated_ps, _)| *stated_ps >= innermost.start_ps).map(|(_, run)| run);
        let mut runs = spans.filter_map(|span| span.run).chain(stated);
        let run = runs.next()?;
        runs.all(|other| other == run).then_some(run)
    }

    /// Adds the kernels to the facts of the file, with everything found out; returns a note about
    /// those of which nothing was.
    pub(super) fn finish(&mut self, facts: &mut TraceFacts) -> Option<String> {
        let kernels = std::mem::take(&mut self.kernels);
        let has_run = |kernel: &Kernel| matches!(kernel.launch, Launch::At(_, Some(_)));
        let (all, found) = (kernels.len(), kernels.iter().filter(|kernel| has_run(kernel)).count());
        for Kernel { label, start_ps, end_ps, launch, on_host_clock } in kernels {
            let (label, name) = &self.labels[label as usize];
            let mut label = Label::clone(label);
            if let Some(Device::OfPlane(plane)) = label.device
                && let Some(Some(global)) = self.devices.get(&plane)
            {
                label.device = Some(Device::Stated(*global));
            }
            let mut number = 0;
            if let Launch::At(_, Some(run)) = launch {
                number = run;
            } else {
                by_order(&mut label, name);
                if found > 0 {
                    label.replicas = Replicas::OfUnknownRun;
                }
            }
            if let (Launch::At(launch_ps, _), true) = (launch, on_host_clock)
                && let (Some(start), Some(launch)) = (nearest_ns(start_ps), nearest_ns(launch_ps))
            {
                facts.launches.insert(start, launch);
            }
            facts.collectives.push(CollectiveEvent { label, number, start_ps, end_ps, recipients: Recipients::All });
        }
        facts.collectives.leave_out(self.left_out);
        (found < all).then(|| {
            format!(
                "{} of {all} collective kernels cannot be assigned to a run of their program, because their launches are missing or \
                incomplete; also record host events (host_tracer_level 1 or more)",
                all - found
            )
        })
    }
}

/// An operation that only its order tells from others of its kind; the kernel's name says whether
/// it is a reduction.
fn by_order(label: &mut Label, name: &str) {
    if let Instance::Hlo { module, op } = &label.instance {
        label.instance = Instance::Order { group: None, signature: format!("{module} {op} {name}") };
    }
}

/// The device at an index of a clique's list, if the list is complete: `devices=4:[0,1,2,3]; …`.
fn member(key: &str, rank: u64) -> Option<u64> {
    let (count, rest) = key.strip_prefix("devices=")?.split_once(":[")?;
    let (list, _) = rest.split_once(']')?;
    let devices: Vec<u64> = list.split(',').map(|device| device.trim().parse().ok()).collect::<Option<_>>()?;
    let whole = count.parse() == Ok(devices.len());
    devices.get(usize::try_from(rank).ok()?).copied().filter(|_| whole)
}

/// Most kernels of a file held: 100 MB.
const KERNELS_MAX: usize = 1 << 20;
/// Labels of kernels in memory, and names of kernels.
const LABEL_BYTES_MAX: usize = 16 << 20;
const NAMES_MAX: usize = 1 << 12;
/// Most events of one kind held for a thread: 100 MB. For a thread with more, the run of its
/// launches is unknown.
const HELD_MAX: usize = 1 << 20;
/// Events around a launch that are examined.
const DEPTH_MAX: usize = 16;
/// Devices of a process at most.
const DEVICES_MAX: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_list_that_is_whole_is_a_device() {
        let check = |key: &str, rank: u64, expected: Option<u64>| assert_eq!(member(key, rank), expected, "{key}");
        check("devices=4:[0,1,2,3]; local_participants=1", 2, Some(2));
        check("devices=2:[1, 3]; local_participants=1", 1, Some(3));
        check("devices=2:[1,3]; local_participants=1", 2, None);
        check("devices=64:[0,1,...,63]; local_participants=1", 1, None);
        check("devices=64:[0,1]; local_participants=1", 1, None);
        check("devices=[0,1]; is_p2p=0", 1, None);
        check("", 0, None);
    }
}

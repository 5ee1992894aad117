//! Of which run of its program a kernel is, and which of the job's devices it ran on, where only the host's events tell.
//!
//! Place in the flow: beside `facts`, for profilers of GPUs. XLA's events on a GPU state module and operation, but no run, and their plane is numbered by the
//! process. The host's plane, which comes after the devices', says the rest (read off files of jaxlib 0.11 with NCCL 2.28, and XLA's published source):
//!
//! ```text
//! a thread of /host:CPU
//!   CommonPjRtLoadedExecutable::Execute (jit_step)     run_id=953279609                       equal in all processes
//!     AcquireGpuClique                                 device=0 rank=2 clique_key="devices=4:[0,1,2,3]; …"
//!     RendezvousAfterInitialization                    run_id=953279609
//!     ncclDevKernel_AllReduce…                         correlation_id=5                       its launch
//! /device:GPU:0
//!   ncclDevKernel_AllReduce…                           correlation_id=5 hlo_module=jit_step hlo_op=psum.7
//! ```
//!
//! A thread launches one run after the other, so a launch is of the run that its thread stated last. `rank` is the place of the device in the clique's list of
//! the job's devices. What it does not do: guess. A kernel without such a launch keeps nothing but its order; a device of which two events say different things, or
//! whose list is cut short, keeps the number of its plane.

use std::collections::{HashMap, HashSet};

use super::roles::EventStats;
use crate::model::{CollectiveEvent, Device, Instance, Label, Picoseconds, Recipients, TraceFacts, nearest_ns};

/// What is known of a file's launches so far.
#[derive(Default)]
pub(super) struct Launches {
    /// What kernels are, and their module and operation.
    labels: Vec<(Label, String, String)>,
    numbers: HashMap<Label, usize>,
    names: HashSet<String>,
    kernels: Vec<Kernel>,
    /// When the present thread stated which run.
    runs: Vec<(Picoseconds, i64)>,
    /// When the present thread launched what.
    launched: Vec<(Picoseconds, i64)>,
    /// By correlation: the run, unless it is not certain, and the launch.
    found: HashMap<i64, (Option<i64>, Picoseconds)>,
    /// By the number of a device's plane: which of the job's it is, unless events differ.
    devices: HashMap<u64, Option<u64>>,
}

/// A kernel that waits for its launch.
struct Kernel {
    label: usize,
    correlation: i64,
    start_ps: Picoseconds,
    end_ps: Picoseconds,
}

impl Launches {
    /// Takes in a kernel of this name that states no run; gives it back where nothing can be found out about it.
    pub(super) fn kernel(&mut self, name: &str, event: CollectiveEvent, stats: &EventStats) -> Option<CollectiveEvent> {
        let (Some(correlation), Some(module), Some(operation)) = (stats.correlation, &stats.hlo_module, &stats.hlo_op)
        else {
            return Some(event);
        };
        if self.kernels.len() == KERNELS_MAX {
            return Some(event);
        }
        let CollectiveEvent { label, start_ps, end_ps, .. } = event;
        let label = *self.numbers.entry(label).or_insert_with_key(|label| {
            self.labels.push((label.clone(), module.clone(), operation.clone()));
            self.names.insert(name.to_owned());
            self.labels.len() - 1
        });
        self.kernels.push(Kernel { label, correlation, start_ps, end_ps });
        None
    }

    /// The names of kernels that wait: their launches are named alike.
    pub(super) fn names(&self) -> HashSet<String> {
        self.names.clone()
    }

    /// Takes in what a thread says of the run that it goes on with.
    pub(super) fn run(&mut self, start_ps: Picoseconds, run: i64) {
        if self.runs.len() < KERNELS_MAX {
            self.runs.push((start_ps, run));
        }
    }

    /// Takes in a launch of the present thread.
    pub(super) fn launch(&mut self, start_ps: Picoseconds, correlation: i64) {
        if self.launched.len() < KERNELS_MAX {
            self.launched.push((start_ps, correlation));
        }
    }

    /// Takes in which of the job's devices a device is.
    pub(super) fn clique(&mut self, device: u64, rank: u64, key: &str) {
        let Some(global) = member(key, rank) else { return };
        if self.devices.len() < DEVICES_MAX {
            let known = self.devices.entry(device).or_insert(Some(global));
            *known = known.filter(|known| *known == global);
        }
    }

    /// Ends a thread: which of its launches are of which run.
    pub(super) fn end_thread(&mut self) {
        self.runs.sort_unstable();
        for (start_ps, correlation) in self.launched.drain(..) {
            let stated = self.runs.partition_point(|(stated_ps, _)| *stated_ps <= start_ps);
            let run = stated.checked_sub(1).map(|last| self.runs[last].1);
            // Two launches of one number: neither is certain.
            let known = self.found.entry(correlation).or_insert((run, start_ps));
            known.0 = known.0.filter(|_| *known == (run, start_ps));
        }
        self.runs.clear();
    }

    /// Adds the kernels to what is known of the file, with all that was found out.
    pub(super) fn finish(&mut self, facts: &mut TraceFacts) {
        for Kernel { label, correlation, start_ps, end_ps } in std::mem::take(&mut self.kernels) {
            let (label, module, operation) = &self.labels[label];
            let (mut label, mut number) = (label.clone(), 0);
            if let Some((run, launch_ps)) = self.found.get(&correlation).filter(|(_, launch_ps)| *launch_ps <= start_ps)
            {
                if let Some(run) = run {
                    label.instance = Instance::Hlo { module: module.clone(), op: operation.clone() };
                    number = *run;
                }
                if let (Some(start), Some(launch)) = (nearest_ns(start_ps), nearest_ns(*launch_ps)) {
                    facts.launches.insert(start, launch);
                }
            }
            let event = CollectiveEvent { label, number, start_ps, end_ps, recipients: Recipients::All };
            facts.collectives.push(event);
        }
        facts.collectives.relabel(|label| {
            if let Some(Device::OfPlane(plane)) = label.device
                && let Some(Some(global)) = self.devices.get(&plane)
            {
                label.device = Some(Device::Stated(*global));
            }
        });
    }
}

/// The device at a place of a clique's list, where the list is whole: `devices=4:[0,1,2,3]; …`.
fn member(key: &str, rank: u64) -> Option<u64> {
    let (count, rest) = key.strip_prefix("devices=")?.split_once(":[")?;
    let (list, _) = rest.split_once(']')?;
    let devices: Vec<u64> = list.split(',').map(|device| device.trim().parse().ok()).collect::<Option<_>>()?;
    let whole = count.parse() == Ok(devices.len());
    devices.get(usize::try_from(rank).ok()?).copied().filter(|_| whole)
}

/// Kernels of a file, and statements of a thread, that are held at once: 50 MB.
const KERNELS_MAX: usize = 1 << 20;
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

//! Determines which devices took part together in an operation of an XLA program. All devices of a
//! program carry one label, whichever replica group they are in, and a program that runs on two
//! meshes at once carries it on both.
//!
//! It applies to parts that state a module and an operation and whose programs state the same
//! groups. Example: a mesh of 2 × 2 sums over its rows: devices 0 and 1 together, 2 and 3 together.
//! If the four were treated as one operation, every pair in which one begins after the other has
//! ended would count as broken although no clock is wrong.
//!
//! All devices of a program together are a mesh: which of them a part ran on need not be known
//! then, since all take part.
//!
//! It does not guess. If a trace lacks its program, or if two traces number their devices alike,
//! the operation is ambiguous.

use std::collections::{BTreeMap, HashMap};

use probe_sync_formats::model::{Device, Instance, Replicas};

use super::bucket::Lanes;
use super::operation::Part;

/// How parts of some labels are divided into groups that took part together.
pub(super) enum Rule {
    /// Nothing to split: they belong to no program.
    NoProgram,
    /// All devices of the program form one group.
    Mesh,
    /// By device: its group.
    Groups(HashMap<u64, usize>),
}

impl Rule {
    /// What the programs of these lanes state; or why that is not certain.
    pub(super) fn of(instance: &Instance, replicas: &Replicas, lanes: &Lanes) -> Result<Self, &'static str> {
        match (replicas, instance) {
            (Replicas::Absent, Instance::Sequence { .. } | Instance::Communicator { .. } | Instance::Order { .. }) => {
                Ok(Self::NoProgram)
            }
            (Replicas::OfUnknownRun, _) => Err(NO_RUN),
            (Replicas::Absent | Replicas::Unknown, _) => Err(NOT_HELD),
            (Replicas::Groups(groups), _) => match &groups[..] {
                [mesh] => one_mesh(mesh, lanes),
                groups => by_device(groups, lanes),
            },
        }
    }

    /// The parts of one execution by the devices that took part together.
    pub(super) fn sets<'a>(&self, parts: Vec<Part<'a>>) -> Vec<Vec<Part<'a>>> {
        let Self::Groups(group_of) = self else { return vec![parts] };
        let mut sets: BTreeMap<Option<usize>, Vec<Part<'a>>> = BTreeMap::new();
        for part in parts {
            let group = stated(part.label.device).and_then(|device| group_of.get(&device).copied());
            sets.entry(group).or_default().push(part);
        }
        sets.into_values().collect()
    }
}

/// All devices of a program together. Whose numbers the devices bear does not matter here, but more
/// devices than the program has belong to two programs, as when unrelated hosts all count from 0.
fn one_mesh(mesh: &[u64], lanes: &Lanes) -> Result<Rule, &'static str> {
    if lanes.devices().count() > mesh.len() { Err(TOO_MANY) } else { Ok(Rule::Mesh) }
}

/// Groups of devices: each device has to be one of the job's, on one node, and in one group.
fn by_device(groups: &[Vec<u64>], lanes: &Lanes) -> Result<Rule, &'static str> {
    let mut group_of: HashMap<u64, Option<usize>> = HashMap::new();
    for (group, devices) in groups.iter().enumerate() {
        for device in devices {
            group_of.entry(*device).and_modify(|known| *known = None).or_insert(Some(group));
        }
    }
    let mut found = HashMap::new();
    for (_, device) in lanes.devices() {
        let device = stated(device).ok_or(NO_DEVICE)?;
        let group = group_of.get(&device).copied().flatten().ok_or(NO_DEVICE)?;
        if found.insert(device, group).is_some() {
            return Err(NO_DEVICE);
        }
    }
    Ok(Rule::Groups(found))
}

/// The number that may be the job's.
pub(super) fn stated(device: Option<Device>) -> Option<u64> {
    match device {
        Some(Device::Stated(number)) => Some(number),
        Some(Device::OfPlane(_)) | None => None,
    }
}

const NOT_HELD: &str = "a trace lacks its program or the devices that it runs on, so its replica groups are unknown";
const NO_RUN: &str = "its launch is not in the trace, so the run of its program is unknown";
const NO_DEVICE: &str = "it runs in replica groups, and the traces do not record which devices belong to which process";
const TOO_MANY: &str =
    "it appears on more devices than its program has, so it belongs to several programs with the same device numbers";

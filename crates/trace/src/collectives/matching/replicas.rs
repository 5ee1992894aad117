//! Which devices took part together in an operation of an XLA program: all of a program's devices carry one label, whichever
//! replica group they are in.
//!
//! Place in the flow: under `matching`, for operations that bear a module and a run. Example: a mesh of 2 × 2 sums over its
//! rows: devices 0 and 1 together, 2 and 3 together. To take the four for one operation would call every pair that begins
//! after the other has ended broken, though no clock is wrong.
//!
//! What it does not do: read programs (`formats::xspace`), or guess where a trace does not hold its program, or where two
//! traces number their devices alike: then the operation is ambiguous.

use std::collections::{BTreeMap, HashMap};

use super::operation::Part;
use crate::model::{Label, Replicas};

/// How parts of some labels fall into the groups that took part together.
pub(super) enum Rule {
    /// All together.
    Whole,
    /// By device: its group; None where it is in several.
    Groups(HashMap<u64, Option<usize>>),
    /// That is not certain, and why.
    Doubt(&'static str),
}

impl Rule {
    /// What these labels say. Made once for many executions: programs of thousands of devices have long lists.
    pub(super) fn of<'a>(labels: impl Iterator<Item = &'a Label>) -> Self {
        match agreed(labels) {
            Err(reason) => Self::Doubt(reason),
            Ok(Replicas::Absent | Replicas::Unknown) => Self::Doubt(NOT_HELD),
            Ok(Replicas::All) => Self::Whole,
            Ok(Replicas::Groups(groups)) => {
                let mut group_of = HashMap::new();
                for (group, devices) in groups.iter().enumerate() {
                    for device in devices {
                        group_of.entry(*device).and_modify(|known| *known = None).or_insert(Some(group));
                    }
                }
                Self::Groups(group_of)
            }
        }
    }

    /// The parts of one execution by the devices that took part together; or why that is not certain.
    pub(super) fn sets<'a>(&self, parts: &[Part<'a>]) -> Result<Vec<Vec<Part<'a>>>, &'static str> {
        let group_of = match self {
            Self::Doubt(reason) => return Err(reason),
            Self::Whole => return Ok(vec![parts.to_vec()]),
            Self::Groups(group_of) => group_of,
        };
        let mut node_of_device: HashMap<u64, usize> = HashMap::new();
        let mut sets: BTreeMap<usize, Vec<Part<'a>>> = BTreeMap::new();
        for part in parts {
            let device = part.label.device.ok_or(NO_DEVICE)?;
            if *node_of_device.entry(device).or_insert(part.node) != part.node {
                return Err(NO_DEVICE);
            }
            let group = group_of.get(&device).copied().flatten().ok_or(NO_DEVICE)?;
            sets.entry(group).or_default().push(*part);
        }
        Ok(sets.into_values().collect())
    }
}

/// Why parts of these labels cannot be paired by their order, where replica groups are the reason.
pub(super) fn doubt<'a>(labels: impl Iterator<Item = &'a Label>) -> Option<&'static str> {
    match agreed(labels) {
        Err(reason) => Some(reason),
        Ok(Replicas::Absent | Replicas::All) => None,
        Ok(Replicas::Unknown) => Some(NOT_HELD),
        Ok(Replicas::Groups(_)) => Some(NO_DEVICE),
    }
}

/// What all labels say.
fn agreed<'a>(mut labels: impl Iterator<Item = &'a Label>) -> Result<&'a Replicas, &'static str> {
    let Some(first) = labels.next() else { return Ok(&Replicas::Absent) };
    let mut unknown = first.replicas == Replicas::Unknown;
    let mut equal = true;
    for label in labels {
        unknown |= label.replicas == Replicas::Unknown;
        equal &= label.replicas == first.replicas;
    }
    match (unknown, equal) {
        (true, _) => Ok(&Replicas::Unknown),
        (_, true) => Ok(&first.replicas),
        _ => Err("the programs of the nodes differ in its replica groups"),
    }
}

const NOT_HELD: &str = "a trace does not hold its program, so that its replica groups are not known";
const NO_DEVICE: &str = "it runs in replica groups, and which of the job's devices are whose is not in the traces";

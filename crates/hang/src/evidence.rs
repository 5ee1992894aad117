//! Evidence of single operations: members that enqueued different things, and devices that have not
//! finished what others have.

use std::collections::{BTreeMap, BTreeSet};

use crate::job::Operation;
use crate::judge::Judge;
use crate::verdict::{Cause, Certainty, Fault, named};
use crate::waits::{Identity, Unfinished};

impl Judge<'_> {
    /// Finds operations whose members enqueued different things.
    pub fn mismatches(&self) -> Vec<Cause> {
        let mut blamed: BTreeSet<u32> = BTreeSet::new();
        let mut causes = Vec::new();
        for (identity, operation) in &self.waits.operations {
            let Identity::Collective { group, sequence } = *identity else { continue };
            let Some(found) = self.mismatch(operation) else { continue };
            let ranks: Vec<u32> = found.ranks.into_iter().filter(|rank| blamed.insert(*rank)).collect();
            if ranks.is_empty() {
                continue;
            }
            let why = format!("#{sequence} of {}: {}", self.group_name(group), found.why);
            causes.push(self.cause(ranks, Fault::Mismatch, why, found.certainty));
        }
        causes
    }

    fn mismatch(&self, operation: &Unfinished) -> Option<Found> {
        let by = |what: &dyn Fn(&Operation) -> String| {
            let mut ranks: BTreeMap<String, Vec<u32>> = BTreeMap::new();
            for (rank, operation) in &operation.waiting {
                ranks.entry(what(operation)).or_default().push(*rank);
            }
            ranks
        };
        let name = |operation: &Operation| self.job.text(operation.name).to_owned();
        let mut values = by(&name);
        if values.len() < 2 {
            let equal_sizes = values.keys().next().is_some_and(|name| has_equal_sizes(name));
            let size = |operation: &Operation| match operation.elements_in {
                Some(elements) => format!("{elements} elements of {}", self.job.text(operation.element)),
                None => String::new(),
            };
            values = by(&size);
            values.remove("");
            if !equal_sizes || values.len() < 2 {
                return None;
            }
        }
        let total: usize = values.values().map(Vec::len).sum();
        let (most, majority) = values.iter().max_by_key(|(_, ranks)| ranks.len())?;
        let decided = 2 * majority.len() > total;
        let others: Vec<u32> = match decided {
            true => values.iter().filter(|(value, _)| *value != most).flat_map(|(_, ranks)| ranks.clone()).collect(),
            false => values.values().flatten().copied().collect(),
        };
        let told = values.iter().map(|(value, ranks)| format!("{} enqueued {value}", named(ranks)));
        Some(Found {
            ranks: others,
            why: told.collect::<Vec<_>>().join(", "),
            certainty: if decided { Certainty::Likely } else { Certainty::Undecided },
        })
    }

    /// Finds ranks whose device has not finished what at least as many other members have.
    pub fn stopped_devices(&self, known: &BTreeSet<u32>) -> Vec<Cause> {
        let mut blamed: BTreeSet<u32> = known.clone();
        let mut causes = Vec::new();
        for (identity, operation) in &self.waits.operations {
            let Identity::Collective { group, sequence } = *identity else { continue };
            let synchronizes = operation.waiting.values().all(|own| synchronizes(self.job.text(own.name)));
            if !synchronizes || operation.finished.len() < operation.waiting.len() {
                continue;
            }
            for (rank, own) in &operation.waiting {
                if blamed.insert(*rank) {
                    let finished: Vec<u32> = operation.finished.iter().copied().collect();
                    let why = format!(
                        "its device has not finished {} #{sequence} of {}, but {} finished it",
                        self.job.text(own.name),
                        self.group_name(group),
                        named(&finished)
                    );
                    causes.push(self.cause(vec![*rank], Fault::DeviceStopped, why, Certainty::Certain));
                }
            }
        }
        causes
    }
}

/// A finding about some ranks.
struct Found {
    ranks: Vec<u32>,
    why: String,
    certainty: Certainty,
}

/// Returns true if no member can finish the operation before all have begun it.
fn synchronizes(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    ["all_reduce", "allreduce", "all_gather", "allgather", "all_to_all", "alltoall", "reduce_scatter", "barrier"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Returns true if all members must pass as many elements as each other.
fn has_equal_sizes(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    [
        "all_reduce",
        "allreduce",
        "broadcast",
        "reduce",
        "all_gather_base",
        "all_gather_into",
        "reduce_scatter_base",
        "allgather_base",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
}

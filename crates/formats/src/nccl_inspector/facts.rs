//! The facts of a log: its host, the span of its operations, and the parts of collectives that can
//! be compared with those of other processes.

use std::borrow::Cow;
use std::path::Path;

use super::operation::Operation;
use super::survey::{Survey, for_each};
use crate::model::parts::CollectiveParts;
use crate::model::{CollectiveEvent, Identity, TraceFacts};
use crate::stated::{Groups, Stated};
use crate::{Error, FactOptions};

/// Reads the facts of a log.
///
/// # Errors
/// Names the file and the byte.
pub(super) fn read_facts(path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
    let survey = Survey::read(path)?;
    let mut facts = TraceFacts {
        identity: Identity { hostname: Some(survey.host.clone()), rank: survey.rank(), ..Identity::default() },
        is_read_from_clock: true,
        reach: survey.reach,
        collectives: CollectiveParts::new(&options.spill),
        ..TraceFacts::default()
    };
    let mut groups = Groups::default();
    let ignored = for_each(path, |operation, _| {
        let operation = match operation.within(facts.reach) {
            Ok(operation) => operation,
            Err(fault) => return Ok(Some(fault)),
        };
        facts.events += operation.events();
        let (start_ps, end_ps) = operation.span_ps();
        let (first, last) = facts.span.unwrap_or((start_ps, end_ps));
        facts.span = Some((first.min(start_ps), last.max(end_ps)));
        if !survey.is_of_one_rank(&operation) {
            return Ok(None);
        }
        let Some(part) = part(&operation, &mut groups) else { return Ok(None) };
        facts.collectives.push(part);
        Ok(None)
    })?;
    facts.collectives.close();
    facts.groups = groups.into_keys();
    facts.omitted = ignored.by_reason();
    facts.warnings = ignored.note().into_iter().collect();
    facts.notes.extend(survey.shared());
    if facts.identity.rank.is_none() {
        facts.notes.push(NO_RANK.to_owned());
    }
    if !facts.collectives.is_empty() {
        facts.notes.push(LAUNCHED.to_owned());
    }
    Ok(facts)
}

/// Returns the process's part in a collective, from its launch, which is exact, to its noticed end.
/// No stamp bounds how late the start on the device was noticed. NCCL counts
/// each function of a communicator on its own, so the function belongs to the group's name.
fn part(operation: &Operation<'_>, groups: &mut Groups) -> Option<CollectiveEvent> {
    if operation.is_p2p || !COMPARED.contains(&&*operation.name) {
        return None;
    }
    let stated = Stated {
        collective: Cow::Borrowed(&operation.name),
        group: Cow::Owned(format!("{} {}", operation.header.id, operation.name)),
        size: Cow::Owned(operation.header.n_ranks.to_string()),
        sequence: Cow::Owned(operation.sequence.to_string()),
        ..Stated::default()
    };
    let (label, number, recipients) = stated.part(String::new, groups);
    let (start_ps, end_ps) = operation.span_ps();
    Some(CollectiveEvent { label, number, start_ps, end_ps, recipients })
}

/// Collectives that every rank of a communicator takes part in. A log does not state the root of a
/// broadcast or reduce, which is counted and not judged. `AllGatherV` merges broadcasts of any
/// roots, and some ranks may contribute nothing.
const COMPARED: [&str; 5] = ["AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"];
const NO_RANK: &str = "it states the process's ranks in its communicators, but not in the job; its number is that of its place in the list";
const LAUNCHED: &str =
    "its collectives begin when the host launched them, which may be long before its device began them";

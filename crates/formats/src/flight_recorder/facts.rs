//! The facts of a dump: its rank and host, the span of its operations, and the parts of collectives
//! that can be compared with those of other ranks.

use std::borrow::Cow;
use std::path::Path;

use probe_sync_hang::Recorded;

use super::operations::{Timed, group_name};
use super::source::{self, RankDump};
use crate::model::parts::CollectiveParts;
use crate::model::{CollectiveEvent, Identity, Launcher, LeftOut, Oddity, PS_PER_NS, Picoseconds, Spread, TraceFacts};
use crate::stated::{Groups, Stated};
use crate::words::counted;
use crate::{Error, FactOptions};

/// Reads the facts of a dump.
///
/// # Errors
/// Names the file and the byte.
pub(super) fn read_facts(path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
    let RankDump { dump, rank } = source::read(path)?;
    let mut spread = Spread::default();
    for timed in dump.operations().filter_map(|recorded| Timed::of(recorded, None).ok().flatten()) {
        let (start_ps, end_ps) = timed.span_ps();
        // Parts begin at the enqueue.
        let created_ps = timed.recorded.created_ns.map(|created| Picoseconds::from(created) * PS_PER_NS);
        spread.add(created_ps.unwrap_or(start_ps).min(start_ps), end_ps);
    }
    let mut facts = TraceFacts {
        identity: Identity {
            hostname: dump.host().map(str::to_owned),
            rank,
            launcher: rank.map(|_| Launcher::Torchrun),
            world_size: dump.world_size().and_then(|size| u32::try_from(size).ok()),
            ..Identity::default()
        },
        is_read_from_clock: true,
        reach: spread.reach(),
        collectives: CollectiveParts::new(&options.spill),
        ..TraceFacts::default()
    };
    let (mut groups, mut left_out) = (Groups::default(), LeftOut::default());
    let (mut untimed, mut unfinished) = (0, 0);
    for recorded in dump.operations() {
        let timed = match Timed::of(recorded, facts.reach) {
            Ok(Some(timed)) => timed,
            Ok(None) => {
                untimed += 1;
                continue;
            }
            Err(oddity) => {
                left_out.add_many(oddity, 1);
                continue;
            }
        };
        facts.events += 1;
        unfinished += u64::from(!recorded.is_finished);
        let (start_ps, end_ps) = timed.span_ps();
        let (first, last) = facts.span.unwrap_or((start_ps, end_ps));
        facts.span = Some((first.min(start_ps), last.max(end_ps)));
        match part(&recorded, &mut groups) {
            // The enqueue of an operation whose start was noticed has not been looked at before.
            Some(part) if facts.reach.is_some_and(|reach| !reach.holds(part.start_ps, part.end_ps)) => {
                left_out.add_many(Oddity::Away, 1);
                facts.collectives.leave_out(1);
            }
            Some(part) => facts.collectives.push(part),
            None => {}
        }
    }
    facts.collectives.close();
    facts.groups = groups.into_keys();
    facts.omitted = left_out.by_reason();
    facts.warnings = left_out.note().into_iter().collect();
    if untimed > 0 {
        facts.notes.push(format!("{} without a time", counted(untimed, "operation")));
    }
    if unfinished > 0 {
        let of = counted(facts.events, "operation");
        let note = format!("{unfinished} of {of} had not finished and are not compared with those of other ranks");
        facts.notes.push(note);
    }
    if !facts.collectives.is_empty() {
        facts.notes.push(ENQUEUED.to_owned());
    }
    Ok(facts)
}

/// Returns the rank's part in a collective: from the enqueue to the completion as the process
/// noticed it. The start that a process notices may be later than the end that another one notices,
/// so it does not count.
fn part(recorded: &Recorded<'_>, groups: &mut Groups) -> Option<CollectiveEvent> {
    if recorded.is_p2p || !recorded.is_finished || recorded.members.is_empty() {
        return None;
    }
    let (start_ns, end_ns) = (recorded.created_ns?, recorded.discovered_completed_ns?);
    let stated = Stated {
        collective: Cow::Borrowed(recorded.name),
        group: Cow::Owned(group_name(recorded)),
        ranks: Cow::Owned(format!("{:?}", recorded.members)),
        size: Cow::Owned(recorded.members.len().to_string()),
        sequence: Cow::Owned(recorded.sequence.to_string()),
        ..Stated::default()
    };
    let (label, number, recipients) = stated.part(String::new, groups);
    let ps = |time_ns: i64| Picoseconds::from(time_ns) * PS_PER_NS;
    Some(CollectiveEvent { label, number, start_ps: ps(start_ns), end_ps: ps(end_ns), recipients })
}

const ENQUEUED: &str =
    "its collectives begin when the host enqueued them, which may be long before its device began them";

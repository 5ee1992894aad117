//! Sifts the events of a long line with several threads: events that contribute only counts and a
//! span are summed at once; the others are left for `facts`, in order.
//!
//! It does not alter any fact.

use std::ops::Range;

use super::event::EventTimes;
use super::fields::line;
use super::outline;
use super::roles::{Role, Tables, event_stats};
use crate::Error;
use crate::in_order::{Stages, in_order};
use crate::model::{PS_PER_NS, Picoseconds, Reach};
use crate::protobuf::{Fault, Run};

/// First start and last end, ps.
pub(super) type Span = (Picoseconds, Picoseconds);

/// Result for a run of events.
pub(super) struct Sifted {
    /// The run itself.
    pub(super) run: Run,
    /// Events that need no further processing: the number counted in the facts.
    pub(super) events: u64,
    /// Their span.
    pub(super) span: Option<Span>,
    /// Positions of the others in the run.
    pub(super) kept: Vec<Range<usize>>,
    /// A fault in an event behind all of these, and the position of that event in the run.
    pub(super) fault: Option<(usize, Fault)>,
}

/// Sifts all runs of events from `stages`, of one line that states its start as `line_ns`.
pub(super) fn sift_in_order<S>(stages: S, tables: &Tables<'_>, line_ns: i64) -> Result<(), Error>
where
    S: Stages<Given = Run, Made = Sifted, Error = Error>,
{
    in_order(stages, |run| sift(run, tables, line_ns))
}

/// Sifts a run of events.
fn sift(run: Run, tables: &Tables<'_>, line_ns: i64) -> Sifted {
    let mut sifted = Sifted { run, events: 0, span: None, kept: Vec::new(), fault: None };
    let line_ps = tables.clock.origin_ps + Picoseconds::from(line_ns) * PS_PER_NS;
    let of_snapshots = outline::is_snapshots(&tables.plane);
    let mut first_ps = None;
    for value in sifted.run.values(EVENTS_TAG) {
        let bytes = &sifted.run.bytes()[value.clone()];
        let times = match EventTimes::parse(bytes) {
            Ok(times) => times,
            Err(fault) => {
                sifted.fault = Some((value.start, fault));
                break;
            }
        };
        if times.aggregated {
            continue;
        }
        let role = tables.roles.get(&times.metadata);
        let (start_ps, end_ps) = times.span_ps(line_ps);
        let first_ps = *first_ps.get_or_insert(start_ps);
        let is_odd = times.oddity(line_ps, tables.reach).is_some()
            || [start_ps, end_ps].iter().any(|time| (time - first_ps).abs() > Reach::NEAR_PS);
        if is_odd || of_snapshots || role.is_some_and(|role| says_more(bytes, role, tables)) || tables.states(bytes) {
            sifted.kept.push(value);
            continue;
        }
        sifted.events += 1;
        sifted.span = widened(sifted.span, (start_ps, end_ps));
    }
    sifted
}

/// Whether an event of this role is more to the facts than one of their events; one whose stats
/// cannot be read is, too.
fn says_more(bytes: &[u8], role: &Role, tables: &Tables<'_>) -> bool {
    match role {
        Role::Marker(_) | Role::Mark(..) | Role::Kernel(..) => true,
        Role::Execute | Role::Run | Role::Clique | Role::Launch => true,
        Role::Operation(..) | Role::PerhapsKernel(_) => {
            event_stats(bytes, tables).map_or(true, |stats| role.collective(&stats).is_some())
        }
    }
}

/// A span that covers another one, too.
#[inline]
pub(super) fn widened(span: Option<Span>, (first, last): Span) -> Option<Span> {
    Some(span.map_or((first, last), |(least, most)| (least.min(first), most.max(last))))
}

/// The tag of a line's event, one byte.
pub(super) const EVENTS_TAG: u8 = (line::EVENTS << 3 | 2) as u8;
/// Lines with fewer bytes of events are processed by one thread.
pub(super) const SHARED_BYTES_MIN: u64 = 1 << 20;

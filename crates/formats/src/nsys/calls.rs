//! The calls of NCCL in an export, by thread and time: NVTX ranges that a thread pushed and popped,
//! with names that begin with `nccl`.
//!
//! A kernel was launched within the call that asked for it, or at the end of the call's group. A
//! group of several operations may run as one kernel or as many: its kernels belong to none of them.

use std::collections::HashMap;

use super::payload::{Fields, Layouts};
use super::reading::Database;
use crate::Error;
use crate::nccl::{bare, kind_of};
use crate::sqlite::table::{quoted, text};

/// All calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    threads: HashMap<i64, Vec<Call>>,
    /// The communicators that calls name: number of ranks and own rank, if stated.
    pub(super) communicators: HashMap<u64, Option<(u32, u32)>>,
    /// Names of operations.
    pub(super) names: Vec<String>,
    /// Calls beyond those that are remembered.
    pub(super) left_out: u64,
}

#[derive(Debug)]
struct Call {
    start_ns: i64,
    end_ns: i64,
    what: What,
    /// The operation or part of a group in which it was made.
    parent: Option<usize>,
    /// The operation whose kernel is launched in this call.
    launches: Option<usize>,
}

#[derive(Debug)]
enum What {
    GroupStart,
    GroupEnd,
    Operation(Operation),
    Other,
}

/// An operation, as its call states it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    /// Its name, in [`Calls::names`].
    pub(super) name: usize,
    pub(super) communicator: Option<u64>,
    pub(super) bytes: Option<u64>,
    /// Rank in the communicator.
    pub(super) root: Option<u32>,
}

/// A call, by thread and place.
pub(super) type CallId = (i64, usize);

impl Calls {
    /// Reads the calls of an export.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(super) fn read(database: &Database<'_>, layouts: &Layouts) -> Result<Calls, Error> {
        let mut calls = Calls::default();
        let Some(table) = database.catalog.table("NVTX_EVENTS") else { return Ok(calls) };
        let column = |name: &str| table.column("t", name);
        let strings = database.catalog.table("StringIds");
        let registered = strings.map(|strings| {
            format!("{} IN (SELECT id FROM {} WHERE value GLOB 'nccl*')", column("textId"), quoted(&strings.name))
        });
        let (tid, start, end, plain) = (column("globalTid"), column("start"), column("end"), column("text"));
        let of_kind =
            if table.has("eventType") { format!("AND {} = {PUSHED}", column("eventType")) } else { String::new() };
        let sql = format!(
            "SELECT {tid}, {start}, {end}, coalesce({plain}, {name}), {bytes}, coalesce({json}, {json_name}) FROM {from} t NOT INDEXED \
             WHERE ({plain} GLOB 'nccl*' OR {registered}) AND typeof({start}) = 'integer' AND typeof({end}) = 'integer' \
             AND {end} >= {start} {of_kind} ORDER BY {tid}, {start}, {end} DESC",
            name = database.name(table, "textId"),
            bytes = column("binaryData"),
            json = column("jsonText"),
            json_name = database.name(table, "jsonTextId"),
            from = quoted(&table.name),
            registered = registered.as_deref().unwrap_or("0"),
        );
        let (mut numbers, mut count) = (HashMap::new(), 0);
        database.each(&table.name, &sql, &mut |row| {
            if count >= CALLS_MAX {
                calls.left_out += 1;
                return Ok(());
            }
            count += 1;
            let name = text(row.get_ref(3)?).unwrap_or_default();
            let fields = layouts.fields(row.get_ref(4)?, row.get_ref(5)?);
            calls.note_communicator(&fields);
            let what = match bare(&name) {
                "GroupStart" => What::GroupStart,
                "GroupEnd" => What::GroupEnd,
                bare if kind_of(bare, None, None).is_some() => {
                    let number = numbers.len();
                    let number = *numbers.entry(name.clone()).or_insert(number);
                    if number == calls.names.len() {
                        calls.names.push(name);
                    }
                    What::Operation(Operation::of(number, &fields))
                }
                _ => What::Other,
            };
            let tid = row.get_ref(0)?.as_i64().unwrap_or(0);
            let call = Call { start_ns: row.get(1)?, end_ns: row.get(2)?, what, parent: None, launches: None };
            calls.threads.entry(tid).or_default().push(call);
            Ok(())
        })?;
        calls.threads.values_mut().for_each(|thread| settle(thread));
        Ok(calls)
    }

    /// Returns the operation whose kernel was launched on a thread at a time.
    pub(super) fn launched(&self, tid: i64, at_ns: i64) -> Option<CallId> {
        let thread = self.threads.get(&tid)?;
        let mut place = thread.partition_point(|call| call.start_ns <= at_ns).checked_sub(1);
        for _ in 0..DEPTH_MAX {
            let call = &thread[place?];
            if call.end_ns >= at_ns && !matches!(call.what, What::Other) {
                return call.launches.map(|operation| (tid, operation));
            }
            place = call.parent;
        }
        None
    }

    /// Returns the operation of a call.
    pub(super) fn operation(&self, (tid, place): CallId) -> Option<Operation> {
        match self.threads.get(&tid)?.get(place)?.what {
            What::Operation(operation) => Some(operation),
            _ => None,
        }
    }

    /// Notes the communicator that a call names. If calls contradict each other about size and rank,
    /// both count as unknown.
    fn note_communicator(&mut self, fields: &Fields) {
        let Some(communicator) = number::<u64>(fields, COMMUNICATOR) else { return };
        let stated = number(fields, RANKS).zip(number(fields, RANK)).filter(|(ranks, rank)| rank < ranks);
        if self.communicators.len() >= COMMUNICATORS_MAX && !self.communicators.contains_key(&communicator) {
            return;
        }
        let known = self.communicators.entry(communicator).or_insert(stated);
        match (*known, stated) {
            (None, Some(_)) => *known = stated,
            (Some(one), Some(other)) if one != other => *known = None,
            _ => {}
        }
    }
}

impl Operation {
    fn of(name: usize, fields: &Fields) -> Operation {
        Operation {
            name,
            communicator: number(fields, COMMUNICATOR),
            bytes: number(fields, SIZE),
            root: number(fields, ROOT),
        }
    }
}

/// Returns the field of this name, if it fits the type.
fn number<T: TryFrom<i128>>(fields: &Fields, name: &str) -> Option<T> {
    let (_, value) = fields.iter().find(|(known, _)| known == name)?;
    T::try_from(*value).ok()
}

/// Finds for each call of a thread, in order of start, the operation or part of a group around it, and
/// the operation that it launches.
fn settle(thread: &mut [Call]) {
    let (mut open, mut depth, mut grouped): (Vec<usize>, u32, Vec<usize>) = (Vec::new(), 0, Vec::new());
    for at in 0..thread.len() {
        let start_ns = thread[at].start_ns;
        while open.last().is_some_and(|last| thread[*last].end_ns < start_ns) {
            open.pop();
        }
        thread[at].parent = open.last().and_then(|last| match thread[*last].what {
            What::Other => thread[*last].parent,
            _ => Some(*last),
        });
        open.push(at);
        thread[at].launches = match thread[at].what {
            What::Operation(_) if depth == 0 => Some(at),
            What::Operation(_) => {
                grouped.push(at);
                None
            }
            What::GroupStart => {
                depth = depth.saturating_add(1);
                None
            }
            What::GroupEnd => {
                let is_outermost = depth == 1;
                depth = depth.saturating_sub(1);
                let only = <[usize; 1]>::try_from(grouped.as_slice()).ok().map(|[only]| only).filter(|_| is_outermost);
                if depth == 0 {
                    grouped.clear();
                }
                only
            }
            What::Other => None,
        };
    }
}

/// Names of fields in NCCL's layouts.
pub(super) const COMMUNICATOR: &str = "NCCL communicator ID";
const SIZE: &str = "Message size [bytes]";
const ROOT: &str = "Root";
const RANK: &str = "Rank";
const RANKS: &str = "No. of ranks";
/// The type of an NVTX range that a thread pushed and popped.
const PUSHED: i64 = 59;
/// Calls around a launch that are examined; NCCL nests two or three.
const DEPTH_MAX: usize = 64;
/// Calls that are remembered: some 300 MB.
const CALLS_MAX: usize = 1 << 22;
/// Communicators of a process that are remembered.
const COMMUNICATORS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of one thread: name, start and end.
    fn calls(of: &[(&str, i64, i64)]) -> Calls {
        let call = |(at, (name, start_ns, end_ns)): (usize, &(&str, i64, i64))| {
            let operation = Operation { name: at, communicator: None, bytes: None, root: None };
            let what = match *name {
                "start" => What::GroupStart,
                "end" => What::GroupEnd,
                "other" => What::Other,
                _ => What::Operation(operation),
            };
            Call { start_ns: *start_ns, end_ns: *end_ns, what, parent: None, launches: None }
        };
        let mut thread: Vec<Call> = of.iter().enumerate().map(call).collect();
        settle(&mut thread);
        Calls { threads: HashMap::from([(1, thread)]), ..Calls::default() }
    }

    #[test]
    fn a_launch_belongs_to_the_call_around_it() {
        let check = |of: &[(&str, i64, i64)], at_ns: i64, expected: Option<usize>| {
            let found = calls(of).launched(1, at_ns).map(|(_, place)| place);
            assert_eq!(found, expected, "{of:?} at {at_ns}");
        };
        let plain = [("sum", 10, 20), ("sum", 30, 50), ("other", 35, 40)];
        for (at_ns, expected) in [(9, None), (10, Some(0)), (20, Some(0)), (25, None), (37, Some(1)), (45, Some(1))] {
            check(&plain, at_ns, expected);
        }
        let grouped = [("start", 0, 1), ("sum", 2, 3), ("end", 4, 9), ("sum", 10, 12)];
        for (at_ns, expected) in [(2, None), (5, Some(1)), (11, Some(3))] {
            check(&grouped, at_ns, expected);
        }
        check(&[("start", 0, 1), ("sum", 2, 3), ("sum", 4, 5), ("end", 6, 9)], 7, None);
        check(&[("start", 0, 1), ("start", 2, 3), ("sum", 4, 5), ("end", 6, 7), ("end", 8, 9)], 6, None);
        check(&[("start", 0, 1), ("start", 2, 3), ("sum", 4, 5), ("end", 6, 7), ("end", 8, 9)], 8, Some(2));
        // The nearest call that can launch counts, however many others there are; nothing is deeper than the limit.
        let others = |count: usize| -> Vec<(&str, i64, i64)> {
            let nested = (1..=count as i64).map(|at| ("other", at, 10_000 - at));
            std::iter::once(("sum", 0, 20_000)).chain(nested).collect()
        };
        check(&others(2 * DEPTH_MAX), 5000, Some(0));
        let sums: Vec<_> = (0..=DEPTH_MAX as i64).map(|at| ("sum", at, 20_000 - 2 * at)).collect();
        check(&sums[..DEPTH_MAX], 19_999, Some(0));
        check(&sums, 19_999, None);
        // The group began before the trace.
        check(&[("sum", 2, 3), ("end", 4, 9)], 5, None);
        assert_eq!(calls(&plain).launched(2, 10), None);
    }

    #[test]
    fn contradictory_ranks_of_a_communicator_are_unknown() {
        let fields = |ranks: i128, rank: i128| -> Fields {
            [(COMMUNICATOR, 7), (RANKS, ranks), (RANK, rank)].map(|(name, value)| (name.to_owned(), value)).to_vec()
        };
        let mut calls = Calls::default();
        calls.note_communicator(&vec![(COMMUNICATOR.to_owned(), 7)]);
        assert_eq!(calls.communicators[&7], None);
        calls.note_communicator(&fields(2, 1));
        assert_eq!(calls.communicators[&7], Some((2, 1)));
        calls.note_communicator(&fields(2, 0));
        assert_eq!(calls.communicators[&7], None);
    }
}

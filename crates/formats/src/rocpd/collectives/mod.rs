//! A process's part in collective operations: its calls of NCCL or RCCL, with their arguments.
//!
//! Calls are regions named `nccl…`; their arguments are rows of `rocpd_arg` of the same event. A
//! communicator is an address, which distinguishes communicators within its process;
//! `collectives::communicators` matches it to those of other processes. The call that creates a
//! communicator states its number of ranks. If the address that it states differs from the one that
//! later calls use, all communicators created alike are distinguished by their number.
//!
//! A call inside `ncclGroupStart` and `ncclGroupEnd` only takes note of an operation, which is
//! issued at the group's end: it ends when the group ends. A call may return before its operation
//! has run; so where kernels of NCCL are in the database, these are the parts, and calls are not
//! looked at. Where there are none, calls are all there is, and a note says what that means.
//! Regions of a recorder state their operation by their arguments, as its annotations do in other
//! formats (`formats::stated`): they are parts beside these. It does not pair the parts of
//! different ranks.

mod call;
mod row;
mod stated;
mod statements;

use std::collections::HashMap;

use super::catalog::{Table, Writer};
use super::cpu_clock;
use super::reading::{Behind, Database, REGION, STRING};
use crate::Error;
use crate::model::parts::{CollectiveParts, Spill};
use crate::model::{
    CollectiveEvent, CollectiveKind, Communicator, Instance, Label, PS_PER_NS, Picoseconds, Reach, Recipients,
    Replicas, TraceFacts,
};
use crate::nccl::{bare, kind_of, kind_of_kernel};
use crate::stated::Groups;
use call::{ARGUMENTS_MAX, Call, part};
use row::{TEXT_MAX, bytes, integer, time};
use stated::StatedRow;
use statements::{calls, kernels};

/// What was found so far.
pub(super) struct Collector {
    /// Range of plausible times; `None`: all.
    reach: Option<Reach>,
    parts: CollectiveParts,
    communicators: Vec<Communicator>,
    /// By the address that calls state; empty for calls that state none.
    numbers: HashMap<Vec<u8>, u32>,
    /// First use of each, ns, by number.
    first_uses: HashMap<u32, i64>,
    made: Vec<Made>,
    /// Some were created by calls that do not state their number of ranks.
    made_otherwise: bool,
    /// Kernels are the parts; calls only show which communicators exist.
    of_kernels: bool,
    calls: u64,
    untimed: u64,
    /// Rows with impossible times, and the first of them: table, number, times.
    odd: u64,
    first_odd: Option<(String, i64, i64, i64)>,
    /// The track whose calls are read, its open groups, and the operations in them.
    track: (i64, i64),
    depth: u32,
    grouped: Vec<CollectiveEvent>,
    /// By track: ends of groups that began before the trace.
    cut: HashMap<(i64, i64), u64>,
    /// Of the track being read: how many of them are still to come.
    cut_ahead: u64,
    /// Operations of such groups.
    of_cut: u64,
    groups: Groups,
    notes: Vec<String>,
}

/// A call that made a communicator.
struct Made {
    address: Vec<u8>,
    size: Option<u32>,
    rank: Option<u32>,
    /// Start and end of the call, ns.
    times: Option<(i64, i64)>,
    /// In a group that has not ended yet: the call returns at once.
    in_group: bool,
}

impl Made {
    fn communicator(&self, named: bool) -> Communicator {
        let ps = |ns: i64| Picoseconds::from(ns) * PS_PER_NS;
        let times = self.times.filter(|_| !self.in_group);
        let made = times.map(|(start, end)| (ps(start), ps(end)));
        Communicator { named, size: self.size, rank: self.rank, made, joined: None }
    }
}

/// Adds the calls or the kernels of one writer; `by_ns` as in [`cpu_clock::behind`]. Kernels come
/// from rocprofiler-sdk, and are never behind.
///
/// # Errors
/// A table cannot be read.
pub(super) fn read(
    database: &Database<'_>,
    writer: &Writer,
    by_ns: Option<i64>,
    collector: &mut Collector,
) -> Result<(), Error> {
    collector.of_kernels = has_kernels(database, writer)?;
    read_calls(database, writer, by_ns, collector)?;
    stated::read(database, writer, by_ns, &mut |row| collector.stated(row))?;
    if collector.of_kernels { read_kernels(database, writer, collector) } else { Ok(()) }
}

fn read_calls(
    database: &Database<'_>,
    writer: &Writer,
    by_ns: Option<i64>,
    collector: &mut Collector,
) -> Result<(), Error> {
    let (Some(region), Some(string)) = (database.table(writer, REGION), database.table(writer, STRING)) else {
        return Ok(());
    };
    let arg = database.table(writer, "rocpd_arg");
    let behind = cpu_clock::behind((database.catalog, "main"), database.path, region, by_ns)?;
    let behind = behind.as_ref();
    collector.cut = if collector.of_kernels { HashMap::new() } else { cut_groups(database, (region, string), behind)? };
    let mut many = 0;
    database.each(&region.name, &calls(region, string, arg, behind, NAMES), &mut |row| {
        let call = Call::of(row)?;
        many += u64::from(call.arguments > ARGUMENTS_MAX);
        collector.call(call, &region.name);
        Ok(())
    })?;
    if let Some(arg) = arg.filter(|_| many > 0) {
        collector.notes.push(format!(
            "ignored the arguments of {many} NCCL or RCCL calls, because their events have more than {ARGUMENTS_MAX} arguments each \
            in the table {}: check its event_id",
            arg.name
        ));
    }
    collector.end_of_track();
    Ok(())
}

/// By track, the number of ends of groups that began before the trace.
fn cut_groups(
    database: &Database<'_>,
    (region, string): (&Table, &Table),
    behind: Option<&Behind>,
) -> Result<HashMap<(i64, i64), u64>, Error> {
    let (mut cut, mut track, mut depth) = (HashMap::new(), (0, 0), 0_u32);
    database.each(&region.name, &calls(region, string, None, behind, GROUPS), &mut |row| {
        let call = Call::of(row)?;
        if call.track != track {
            (track, depth) = (call.track, 0);
        }
        match bare(&call.name) {
            "GroupStart" => depth = depth.saturating_add(1),
            "GroupEnd" if depth > 0 => depth -= 1,
            "GroupEnd" if cut.len() < TRACKS_MAX || cut.contains_key(&track) => *cut.entry(track).or_default() += 1,
            _ => {}
        }
        Ok(())
    })?;
    Ok(cut)
}

/// Whether there is a dispatch of a kernel of NCCL or RCCL.
fn has_kernels(database: &Database<'_>, writer: &Writer) -> Result<bool, Error> {
    let of = |base: &str| database.table(writer, base);
    let (Some(dispatch), Some(symbol)) = (of("rocpd_kernel_dispatch"), of("rocpd_info_kernel_symbol")) else {
        return Ok(false);
    };
    let mut found = false;
    database.each(&dispatch.name, &format!("{} LIMIT 1", kernels(dispatch, symbol)), &mut |_| {
        found = true;
        Ok(())
    })?;
    Ok(found)
}

/// Takes the dispatches of kernels whose name says that NCCL or RCCL made them.
fn read_kernels(database: &Database<'_>, writer: &Writer, collector: &mut Collector) -> Result<(), Error> {
    let of = |base: &str| database.table(writer, base);
    let (Some(dispatch), Some(symbol)) = (of("rocpd_kernel_dispatch"), of("rocpd_info_kernel_symbol")) else {
        return Ok(());
    };
    let statement = kernels(dispatch, symbol);
    database.each(&dispatch.name, &statement, &mut |row| {
        let name = bytes(row, 0)?;
        // Of what the template was made for nothing is needed, and parameters are no name.
        let name: String = String::from_utf8_lossy(&name).chars().take_while(|c| *c != '(').take(TEXT_MAX).collect();
        let place = (dispatch.name.as_str(), integer(row, 3)?.unwrap_or(0));
        collector.kernel(name.trim_end_matches(".kd").to_owned(), time(row, 1)?, time(row, 2)?, place);
        Ok(())
    })
}

impl Collector {
    pub(super) fn new(spill: &Spill, reach: Option<Reach>) -> Collector {
        Collector {
            reach,
            parts: CollectiveParts::new(spill),
            communicators: Vec::new(),
            numbers: HashMap::new(),
            first_uses: HashMap::new(),
            made: Vec::new(),
            made_otherwise: false,
            of_kernels: false,
            calls: 0,
            untimed: 0,
            odd: 0,
            first_odd: None,
            track: (0, 0),
            depth: 0,
            grouped: Vec::new(),
            cut: HashMap::new(),
            cut_ahead: 0,
            of_cut: 0,
            groups: Groups::default(),
            notes: Vec::new(),
        }
    }

    fn kernel(&mut self, name: String, start: Option<i64>, end: Option<i64>, place: (&str, i64)) {
        let Some((start, end)) = self.times(start, end, place) else { return };
        let kind = kind_of_kernel(&name);
        // Which communicator it ran in, no row says: only where calls name one alone is it that.
        let only = self.communicators.len() == 1;
        let number = if only { Some(0) } else { self.number(&[]) };
        let Some(number) = number else { return self.parts.leave_out(1) };
        let instance = Instance::Communicator { number, signature: name.clone() };
        self.parts.push(part(Label { name, kind, instance, replicas: Replicas::Absent, device: None }, start, end));
    }

    /// The times of an operation; `None` if they are not set, or impossible.
    fn times(&mut self, start: Option<i64>, end: Option<i64>, (table, row): (&str, i64)) -> Option<(i64, i64)> {
        let Some((start, end)) = start.zip(end) else {
            self.untimed += 1;
            return None;
        };
        let [start_ps, end_ps] = [start, end].map(|time| Picoseconds::from(time) * PS_PER_NS);
        let is_away = self.reach.is_some_and(|reach| !reach.holds(start_ps, end_ps));
        if start < 0 || end < start || end > LATEST_NS || is_away {
            self.odd += 1;
            self.first_odd.get_or_insert_with(|| (table.to_owned(), row, start, end));
            self.parts.leave_out(1);
            return None;
        }
        Some((start, end))
    }

    fn stated(&mut self, row: &StatedRow<'_>) {
        let Some((start, end)) = self.times(row.start, row.end, row.place) else { return };
        let (label, number, recipients) = row.stated.part(String::new, &mut self.groups);
        self.parts.push(CollectiveEvent { number, recipients, ..part(label, start, end) });
    }

    fn call(&mut self, call: Call, table: &str) {
        if call.track != self.track {
            self.end_of_track();
            self.track = call.track;
            self.cut_ahead = self.cut.get(&call.track).copied().unwrap_or(0);
        }
        match bare(&call.name) {
            "GroupStart" => self.depth = self.depth.saturating_add(1),
            "GroupEnd" if self.depth == 0 => self.cut_ahead = self.cut_ahead.saturating_sub(1),
            "GroupEnd" => self.end_of_group(call.end),
            "CommInitRank" | "CommInitRankConfig" | "CommInitRankScalable" if self.made.len() < COMMUNICATORS_MAX => {
                let times = call.start.zip(call.end).filter(|(start, end)| start <= end && self.cut_ahead == 0);
                let in_group = self.depth > 0;
                self.made.push(Made { address: call.communicator, size: call.size, rank: call.rank, times, in_group });
            }
            "CommInitRank"
            | "CommInitRankConfig"
            | "CommInitRankScalable"
            | "CommInitAll"
            | "CommSplit"
            | "CommShrink"
            | "CommGrow" => self.made_otherwise = true,
            bare => {
                if let Some((kind, recipients)) = kind_of(bare, call.root, call.peer) {
                    self.operation(call, kind, recipients, table);
                }
            }
        }
    }

    fn operation(&mut self, call: Call, kind: CollectiveKind, recipients: Recipients, table: &str) {
        let number = self.number(&call.communicator);
        if let Some((number, start)) = number.zip(call.start) {
            let first = self.first_uses.entry(number).or_insert(start);
            *first = start.min(*first);
        }
        if self.of_kernels {
            return;
        }
        self.calls += 1;
        let Some((start, end)) = self.times(call.start, call.end, (table, call.row)) else { return };
        if self.cut_ahead > 0 {
            // It may end with a group whose beginning is not in the trace, or long before.
            self.of_cut += 1;
            return self.parts.leave_out(1);
        }
        let Some(number) = number else { return self.parts.leave_out(1) };
        let (datatype, count) = (String::from_utf8_lossy(&call.datatype), String::from_utf8_lossy(&call.count));
        // A send's counterpart has another name.
        let look = if matches!(kind, CollectiveKind::PointToPoint { .. }) { "message" } else { call.name.as_str() };
        let signature = format!("{look} type {datatype} count {count}");
        let instance = Instance::Communicator { number, signature };
        let label = Label { name: call.name, kind, instance, replicas: Replicas::Absent, device: None };
        let event = CollectiveEvent { recipients, ..part(label, start, end) };
        if self.depth == 0 {
            self.parts.push(event);
        } else if self.grouped.len() < GROUPED_MAX {
            self.grouped.push(event);
        } else {
            self.parts.leave_out(1);
        }
    }

    /// The number of a communicator; `None` beyond the limit.
    fn number(&mut self, address: &[u8]) -> Option<u32> {
        if let Some(known) = self.numbers.get(address) {
            return Some(*known);
        }
        if self.communicators.len() >= COMMUNICATORS_MAX {
            return None;
        }
        let next = self.communicators.len() as u32;
        self.numbers.insert(address.to_owned(), next);
        self.communicators.push(Communicator { named: !address.is_empty(), ..Communicator::default() });
        Some(next)
    }

    /// The operations of the outermost group end with it.
    fn end_of_group(&mut self, end: Option<i64>) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth > 0 {
            return;
        }
        let Some(end) = end else { return self.end_of_track() };
        for made in self.made.iter_mut().filter(|made| made.in_group) {
            made.in_group = false;
            made.times = made.times.map(|(start, returned)| (start, returned.max(end)));
        }
        for mut event in self.grouped.drain(..) {
            event.end_ps = event.end_ps.max(Picoseconds::from(end) * PS_PER_NS);
            self.parts.push(event);
        }
    }

    /// A group whose end is not in the trace: when its operations ended is not known.
    fn end_of_track(&mut self) {
        self.parts.leave_out(self.grouped.len() as u64);
        self.grouped.clear();
        self.made.iter_mut().filter(|made| made.in_group).for_each(|made| (made.in_group, made.times) = (false, None));
        self.depth = 0;
    }

    pub(super) fn finish(mut self, facts: &mut TraceFacts) {
        self.state_sizes();
        self.parts.close();
        if self.untimed > 0 {
            facts.notes.push(format!("{} collectives have no start or no end", self.untimed));
        }
        if let Some((table, row, start, end)) = &self.first_odd {
            facts.notes.push(format!(
                "dropped {} collectives with impossible times: in the table {table}, row {row} lasts from {start} to {end} ns; \
                correct such rows in a copy of the file",
                self.odd
            ));
        }
        if self.of_cut > 0 {
            facts.notes.push(format!(
                "dropped {} collectives: a group that began before the trace ends after them, so their end is unknown",
                self.of_cut
            ));
        }
        if self.calls > 0 {
            self.parts.set_of_calls();
            facts.notes.push(format!(
                "checked {} collectives by their calls, because the database has no NCCL or RCCL kernels: a call that returns before \
                its operation runs looks like broken causality; also trace kernels",
                self.calls
            ));
        }
        facts.notes.extend(self.notes);
        facts.notes.extend(self.parts.left_out_note());
        facts.groups = self.groups.into_keys();
        (facts.collectives, facts.communicators) = (self.parts, self.communicators);
    }

    /// Which call created which communicator, if each was used before the next was created, so that
    /// no other assignment is possible.
    fn in_order_of_use(&self) -> Option<Vec<(u32, usize)>> {
        if self.made_otherwise || self.made.len() != self.communicators.len() {
            return None;
        }
        let times = |made: &Made| made.times.filter(|_| !made.in_group);
        let mut calls: Vec<(i64, usize)> =
            self.made.iter().zip(0..).map(|(made, at)| Some((times(made)?.1, at))).collect::<Option<_>>()?;
        calls.sort_unstable();
        let mut uses: Vec<(i64, u32)> = (0..)
            .take(self.communicators.len())
            .map(|number| Some((*self.first_uses.get(&number)?, number)))
            .collect::<Option<_>>()?;
        uses.sort_unstable();
        let made_before = |use_ns: i64| calls.partition_point(|(end, _)| *end <= use_ns);
        let forced = uses.iter().zip(1..).all(|((use_ns, _), place)| made_before(*use_ns) == place);
        forced.then(|| uses.iter().zip(&calls).map(|((_, number), (_, made))| (*number, *made)).collect())
    }

    /// Sizes and ranks of the communicators, as stated by the calls that created them.
    fn state_sizes(&mut self) {
        let by_address = self.made.iter().any(|made| self.numbers.contains_key(&made.address));
        if by_address {
            let mut unused = Vec::new();
            for made in &self.made {
                let Some(number) = self.numbers.get(&made.address) else {
                    // Nothing was done in it.
                    unused.push(made.communicator(true));
                    continue;
                };
                let known = &mut self.communicators[*number as usize];
                let again = known.size.is_some() && (known.size, known.rank) != (made.size, made.rank);
                let fresh = made.communicator(known.named);
                *known = match (again, known.size) {
                    // An address that was used again for another communicator stands for none.
                    (true, _) => Communicator::default(),
                    (false, Some(_)) => Communicator { made: None, ..fresh },
                    (false, None) => fresh,
                };
            }
            self.communicators.extend(unused);
            return;
        }
        // The addresses are those of variables.
        if let Some(order) = self.in_order_of_use() {
            for (number, made) in order {
                self.communicators[number as usize] = self.made[made].communicator(true);
            }
            return;
        }
        // Which is which does not matter where all were made alike.
        let Some(first) = self.made.first().map(|made| (made.size, made.rank)) else { return };
        let alike = self.made.iter().all(|made| (made.size, made.rank) == first) && !self.made_otherwise;
        if alike && self.made.len() >= self.communicators.len() {
            let (size, rank) = first;
            self.communicators.iter_mut().for_each(|known| (known.size, known.rank) = first);
            self.communicators
                .resize(self.made.len(), Communicator { named: true, size, rank, ..Communicator::default() });
        }
    }
}

/// Names of calls, and of those that begin and end groups.
const NAMES: [&str; 2] = ["nccl*", "rccl*"];
const GROUPS: [&str; 2] = ["ncclGroup*", "rcclGroup*"];
/// No clock of a machine or of the system has counted so far, ns: 146 years.
const LATEST_NS: i64 = 1 << 62;
/// Most threads for which it is remembered that a group began before the trace.
const TRACKS_MAX: usize = 100_000;
/// Communicators of a process that are remembered.
const COMMUNICATORS_MAX: usize = 10_000;
/// Most operations of one group held until it ends.
const GROUPED_MAX: usize = 100_000;

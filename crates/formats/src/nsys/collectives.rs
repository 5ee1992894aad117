//! A rank's parts in collective operations: the kernels of NCCL, with the calls that launched them.
//!
//! A kernel's launch has its correlation number, and lies within the NVTX range of a call, whose
//! payload names the communicator by a number that is equal on all ranks. So the order within a
//! communicator is known, and which operation of one trace is which of another is left to the stage
//! that sees both: a trace may begin in the middle. A kernel without a call, such as one of a CUDA
//! graph, may be of any communicator.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;

use super::calls::{CallId, Calls, Operation};
use super::identity::process_of;
use super::payload::Layouts;
use super::reading::{Database, bounds};
use crate::model::parts::CollectiveParts;
use crate::model::{
    CollectiveEvent, CollectiveKind, Communicator, GroupKey, Instance, Label, Reach, Recipients, Replicas, TraceFacts,
};
use crate::nccl::{bare, kind_of, kind_of_kernel};
use crate::sqlite::table::{quoted, text};
use crate::{Error, FactOptions};

/// Fills in the collectives of an export; those of a report of several processes are left out.
///
/// # Errors
/// A table cannot be read.
pub(super) fn read(
    database: &Database<'_>,
    options: &FactOptions,
    is_of_several: bool,
    facts: &mut TraceFacts,
) -> Result<(), Error> {
    let kernels = Kernels::read(database, facts.reach)?;
    let (count, untimed) = (kernels.all.len(), kernels.untimed);
    if untimed > 0 {
        facts.notes.push(format!("ignored {untimed} NCCL kernels, because their times are missing or implausible"));
    }
    let mut parts = CollectiveParts::new(&options.spill);
    parts.leave_out(kernels.left_out);
    // Those of which a note of its own tells why.
    let mut told = untimed;
    if is_of_several || kernels.devices.len() > 1 {
        if count > 0 {
            facts.notes.push(format!(
                "ignored {count} NCCL kernels on {} devices: the report contains several ranks or processes, and collectives are only \
                compared between reports of one rank each",
                kernels.devices.len()
            ));
        }
        told += count as u64;
    } else if count > 0 {
        told += take(database, kernels, facts, &mut parts)?;
    }
    parts.close();
    facts.notes.extend(parts.left_out_note());
    parts.leave_out(told);
    facts.collectives = parts;
    Ok(())
}

/// Adds the kernels to the parts. Returns how many were ignored, with a note.
fn take(
    database: &Database<'_>,
    mut kernels: Kernels,
    facts: &mut TraceFacts,
    parts: &mut CollectiveParts,
) -> Result<u64, Error> {
    let calls = Calls::read(database, &Layouts::read(database)?)?;
    if calls.left_out > 0 {
        facts.notes.push(format!(
            "{} calls of NCCL were not read: too many; their kernels name no communicator",
            calls.left_out
        ));
    }
    kernels.find_launches(database)?;
    Ok(Collector { database, calls: &calls, facts, parts }.take(&kernels))
}

/// A kernel of NCCL.
struct Kernel {
    start_ns: i64,
    end_ns: i64,
    process: i64,
    correlation: Option<i64>,
    /// In [`Kernels::names`].
    name: usize,
    /// Thread and time of the launch.
    launch: Option<(i64, i64)>,
}

#[derive(Default)]
struct Kernels {
    all: Vec<Kernel>,
    names: Vec<String>,
    /// Processes with the devices on which they ran kernels of NCCL.
    devices: BTreeSet<(i64, i64)>,
    /// Kernels beyond those that are remembered.
    left_out: u64,
    /// Kernels whose times are missing or implausible.
    untimed: u64,
}

impl Kernels {
    fn read(database: &Database<'_>, reach: Option<Reach>) -> Result<Kernels, Error> {
        let mut kernels = Kernels::default();
        let (Some(table), Some(strings)) =
            (database.catalog.table("CUPTI_ACTIVITY_KIND_KERNEL"), database.catalog.table("StringIds"))
        else {
            return Ok(kernels);
        };
        let column = |name: &str| table.column("t", name);
        let named = if table.has("shortName") { "shortName" } else { "demangledName" };
        let (start, end) = (column("start"), column("end"));
        let (first, last) = bounds(&database.catalog.session, reach);
        let sql = format!(
            "SELECT {start}, {end}, {}, {}, {}, {} FROM {} t NOT INDEXED WHERE {} IN \
             (SELECT id FROM {} NOT INDEXED WHERE value GLOB 'nccl*Kernel*')",
            column("globalPid"),
            column("deviceId"),
            column("correlationId"),
            database.name(table, named),
            quoted(&table.name),
            column(named),
            quoted(&strings.name),
        );
        let mut numbers = HashMap::new();
        database.each(&table.name, &sql, &mut |row| {
            let whole = |at: usize| row.get_ref(at).map(|value| value.as_i64().ok());
            let time = |at: usize| whole(at).map(|ns| ns.filter(|ns| (first..=last).contains(ns)));
            let (Some(start_ns), Some(end_ns)) = (time(0)?, time(1)?) else {
                kernels.untimed += 1;
                return Ok(());
            };
            if kernels.all.len() >= KERNELS_MAX {
                kernels.left_out += 1;
                return Ok(());
            }
            let name = text(row.get_ref(5)?).unwrap_or_default();
            // The parameters are not part of the name.
            let name: String = name.chars().take_while(|c| *c != '(').take(NAME_MAX).collect();
            let number = numbers.len();
            let number = *numbers.entry(name.clone()).or_insert(number);
            if number == kernels.names.len() {
                kernels.names.push(name);
            }
            let process = whole(2)?.unwrap_or(0);
            kernels.devices.insert((process, whole(3)?.unwrap_or(0)));
            kernels.all.push(Kernel { start_ns, end_ns, process, correlation: whole(4)?, name: number, launch: None });
            Ok(())
        })?;
        Ok(kernels)
    }

    /// Finds the CUDA calls that launched the kernels, by correlation number within the process.
    fn find_launches(&mut self, database: &Database<'_>) -> Result<(), Error> {
        let Some(table) = database.catalog.table("CUPTI_ACTIVITY_KIND_RUNTIME") else { return Ok(()) };
        let mut launches: HashMap<(i64, i64), Option<(i64, i64)>, FixedState> = HashMap::default();
        launches.extend(self.all.iter().filter_map(|kernel| Some(((kernel.process, kernel.correlation?), None))));
        let columns = ["correlationId", "globalTid", "start"].map(|name| table.column("t", name));
        let sql = format!("SELECT {} FROM {} t NOT INDEXED", columns.join(", "), quoted(&table.name));
        database.each(&table.name, &sql, &mut |row| {
            let whole = |at: usize| row.get_ref(at).map(|value| value.as_i64().ok());
            if let (Some(correlation), Some(tid), Some(start)) = (whole(0)?, whole(1)?, whole(2)?)
                && let Some(launch) = launches.get_mut(&(process_of(tid), correlation))
            {
                // The runtime's call may contain the driver's.
                *launch =
                    Some(launch.map_or(
                        (tid, start),
                        |(known, first)| if start < first { (tid, start) } else { (known, first) },
                    ));
            }
            Ok(())
        })?;
        for kernel in &mut self.all {
            kernel.launch = kernel.correlation.and_then(|number| *launches.get(&(kernel.process, number))?);
        }
        Ok(())
    }
}

struct Collector<'a> {
    database: &'a Database<'a>,
    calls: &'a Calls,
    facts: &'a mut TraceFacts,
    parts: &'a mut CollectiveParts,
}

impl Collector<'_> {
    /// Adds all kernels. Returns how many were ignored.
    fn take(&mut self, kernels: &Kernels) -> u64 {
        let mut by_call: BTreeMap<CallId, Vec<usize>> = BTreeMap::new();
        let mut others = Vec::new();
        for (at, kernel) in kernels.all.iter().enumerate() {
            let call = kernel.launch.and_then(|(tid, start)| self.calls.launched(tid, start));
            match call.filter(|call| self.calls.operation(*call).is_some_and(|of| of.communicator.is_some())) {
                Some(call) => by_call.entry(call).or_default().push(at),
                None => others.push(at),
            }
        }
        let (mut split, mut groups) = (0, BTreeSet::new());
        for (call, of_call) in by_call {
            let (Some(operation), [at]) = (self.calls.operation(call), of_call.as_slice()) else {
                split += of_call.len();
                continue;
            };
            let Some(communicator) = operation.communicator else { continue };
            groups.insert(communicator);
            let label = self.label(operation, communicator);
            self.push(label, &kernels.all[*at]);
        }
        self.facts.groups = groups.iter().map(|communicator| self.key(*communicator)).collect();
        if split > 0 {
            self.facts.notes.push(format!("ignored {split} NCCL kernels, because one call launched several of them"));
        }
        self.without_call(&others, kernels);
        split as u64
    }

    /// Adds kernels whose communicator is unknown.
    fn without_call(&mut self, others: &[usize], kernels: &Kernels) {
        if others.is_empty() {
            return;
        }
        let unnamed = Communicator::default();
        let named = self.calls.communicators.values().map(|stated| {
            let (size, rank) = stated.unzip();
            Communicator { named: true, size, rank, ..Communicator::default() }
        });
        self.facts.communicators = std::iter::once(unnamed).chain(named).collect();
        for kernel in others.iter().map(|at| &kernels.all[*at]) {
            let name = kernels.names[kernel.name].clone();
            let kind = kind_of_kernel(&name);
            let instance = Instance::Communicator { number: 0, signature: name.clone() };
            self.push(Label { name, kind, instance, replicas: Replicas::Absent, device: None }, kernel);
        }
        let count = others.len();
        self.facts.notes.push(match self.calls.communicators.is_empty() {
            true => format!(
                "{count} NCCL kernels name no communicator, because the export contains no payloads of NCCL's NVTX ranges: trace NVTX \
                with a recent NCCL, and export with --include-blobs=true"
            ),
            false => format!(
                "{count} NCCL kernels could not be assigned to a communicator: they were launched by CUDA graphs, in groups of several \
                operations, or by calls outside the trace"
            ),
        });
    }

    fn label(&self, operation: Operation, communicator: u64) -> Label {
        let name = self.calls.names[operation.name].clone();
        let root = operation.root.filter(|_| self.is_of_job(communicator));
        // Messages run as kernels of exchanges, in which a rank may both send and receive.
        let kind = match kind_of(bare(&name), root, None) {
            Some((kind, _)) if !matches!(kind, CollectiveKind::PointToPoint { .. }) => kind,
            _ => CollectiveKind::Unknown,
        };
        let size = operation.bytes.map_or_else(String::new, |bytes| format!(" {bytes} bytes"));
        let instance = Instance::Order { group: Some(self.key(communicator)), signature: format!("{name}{size}") };
        Label { name, kind, instance, replicas: Replicas::Absent, device: None }
    }

    /// Returns a communicator as a group: NCCL derives its number from the id that all members
    /// share.
    fn key(&self, communicator: u64) -> GroupKey {
        let size = self.calls.communicators.get(&communicator).copied().flatten().map(|(size, _)| size);
        GroupKey { name: format!("communicator {communicator:#018x}"), ranks: None, size, is_from_making: false }
    }

    /// Returns true if size and own rank of a communicator are those of the job.
    fn is_of_job(&self, communicator: u64) -> bool {
        let stated = self.calls.communicators.get(&communicator).copied().flatten();
        let job = self.facts.identity.world_size.zip(self.facts.identity.rank);
        stated.is_some() && stated == job
    }

    fn push(&mut self, label: Label, kernel: &Kernel) {
        let [start_ps, end_ps] = [kernel.start_ns, kernel.end_ns].map(|ns| self.database.absolute_ps(ns));
        if let Some((_, at_ns)) = kernel.launch {
            self.facts.steps.issue(start_ps, self.database.absolute_ps(at_ns));
        }
        self.parts.push(CollectiveEvent { label, number: 0, start_ps, end_ps, recipients: Recipients::All });
    }
}

/// Kernels that are remembered: some 300 MB.
const KERNELS_MAX: usize = 1 << 22;
/// Longer names are cut.
const NAME_MAX: usize = 1024;

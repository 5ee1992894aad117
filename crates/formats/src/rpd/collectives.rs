//! A rank's parts in collective operations: the kernels of RCCL.
//!
//! No row says in which communicator a kernel ran, so such parts are only compared where nothing else
//! is possible.

use std::collections::BTreeSet;

use super::catalog::{OP, STRING};
use super::reading::{Database, bounds};
use super::rows::launch;
use crate::model::parts::CollectiveParts;
use crate::model::{
    CollectiveEvent, Communicator, Instance, Label, PS_PER_NS, Picoseconds, Recipients, Replicas, TraceFacts,
};
use crate::nccl::kind_of_kernel;
use crate::sqlite::table::{quoted, text};
use crate::{Error, FactOptions};

/// Fills in the collectives of a trace; those of a trace of several devices are left out.
///
/// # Errors
/// A table cannot be read.
pub(super) fn read(database: &Database<'_>, options: &FactOptions, facts: &mut TraceFacts) -> Result<(), Error> {
    let mut parts = CollectiveParts::new(&options.spill);
    let count = kernels(database, facts, &mut parts)?;
    if count.devices > 1 {
        facts.notes.push(format!(
            "ignored {} RCCL kernels on {} devices: the trace contains several ranks, and collectives are only compared between traces \
            of one rank each",
            parts.len(),
            count.devices
        ));
        let ignored = parts.len();
        parts = CollectiveParts::new(&options.spill);
        parts.leave_out(ignored);
    } else if !parts.is_empty() {
        facts.communicators = vec![Communicator::default()];
        facts.notes.push(format!("{} RCCL kernels name no communicator: the format does not record it", parts.len()));
    }
    if count.untimed > 0 {
        facts
            .notes
            .push(format!("ignored {} RCCL kernels, because their times are missing or implausible", count.untimed));
    }
    parts.close();
    facts.notes.extend(parts.left_out_note());
    parts.leave_out(count.untimed);
    facts.collectives = parts;
    Ok(())
}

/// What was found besides parts.
struct Found {
    devices: usize,
    /// Kernels whose times are missing or implausible.
    untimed: u64,
}

/// Adds the kernels to the parts, and notes when they were launched.
fn kernels(database: &Database<'_>, facts: &mut TraceFacts, parts: &mut CollectiveParts) -> Result<Found, Error> {
    let (mut devices, mut untimed) = (BTreeSet::new(), 0);
    let Some(table) = database.catalog.table(OP) else { return Ok(Found { devices: 0, untimed }) };
    let joins = launch(database, "LEFT JOIN");
    let launched = if joins.is_empty() { "NULL" } else { "a.start" };
    let [start, end, device, name] =
        ["start", "end", "gpuId", "description_id"].map(|column| table.column("t", column));
    let names = NAMES.map(|name| format!("string GLOB '{name}'")).join(" OR ");
    let sql = format!(
        "SELECT {start}, {end}, {device}, {}, {launched} FROM {} t NOT INDEXED {joins} WHERE {name} IN (SELECT id FROM {STRING} NOT INDEXED WHERE {names})",
        database.text(table, "description_id"),
        quoted(&table.name),
    );
    let (first, last) = bounds(facts.reach);
    database.each(&table.name, &sql, &mut |row| {
        let whole = |at: usize| row.get_ref(at).map(|value| value.as_i64().ok());
        let time = |at: usize| whole(at).map(|ns| ns.filter(|ns| (first..=last).contains(ns)));
        let (Some(start), Some(end)) = (time(0)?, time(1)?) else {
            untimed += 1;
            return Ok(());
        };
        devices.insert(whole(2)?);
        // The parameters are not part of the name.
        let name = text(row.get_ref(3)?).unwrap_or_default();
        let name: String = name.chars().take_while(|c| *c != '(').take(NAME_MAX).collect();
        let [start_ps, end_ps] = [start, end].map(|ns| Picoseconds::from(ns) * PS_PER_NS);
        if let Some(launch) = time(4)? {
            facts.steps.issue(start_ps, Picoseconds::from(launch) * PS_PER_NS);
        }
        let instance = Instance::Communicator { number: 0, signature: name.clone() };
        let label = Label { kind: kind_of_kernel(&name), name, instance, replicas: Replicas::Absent, device: None };
        parts.push(CollectiveEvent { label, number: 0, start_ps, end_ps, recipients: Recipients::All });
        Ok(())
    })?;
    Ok(Found { devices: devices.len(), untimed })
}

/// Names of the kernels of RCCL, and of MSCCL within it.
const NAMES: [&str; 3] = ["nccl*Kernel*", "rccl*Kernel*", "mscclKernel*"];
/// Longer names are cut.
const NAME_MAX: usize = 1024;

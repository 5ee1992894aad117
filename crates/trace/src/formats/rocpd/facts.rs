//! What a database says of itself: host, span.
//!
//! Place in the flow: fills `model::TraceFacts`. What it does not do: judge.

use std::path::Path;

use super::access::{Readable, wrong};
use super::catalog::{Catalog, quoted};
use crate::Error;
use crate::formats::FactOptions;
use crate::model::{Identity, PS_PER_NS, Picoseconds, TraceFacts};

/// Reads a database's facts.
///
/// # Errors
/// Names file, table and row.
pub(super) fn read_facts(path: &Path, _options: &FactOptions) -> Result<TraceFacts, Error> {
    let connection = Readable::find(path)?.connect()?;
    let catalog = Catalog::read(&connection, "main", path)?;
    let mut facts = TraceFacts { identity: Identity::default(), ..TraceFacts::default() };
    for table in catalog.of_base("rocpd_info_node") {
        let host = connection
            .query_row(&format!("SELECT hostname FROM {}", quoted(&table.name)), [], |row| {
                row.get::<_, Option<String>>(0)
            })
            .map_err(|problem| wrong(path, &format!("reading the table {}", table.name), &problem))?;
        facts.identity.hostname = host;
    }
    for table in catalog.tables.iter().filter(|table| !table.base.contains("_info_") && !table.times.is_empty()) {
        let times = |which: &str| {
            let columns: Vec<String> =
                table.times.iter().map(|at| format!("{which}({})", quoted(&table.columns[*at]))).collect();
            columns.join(", ")
        };
        let first_and_last =
            format!("SELECT count(*), {}, {} FROM {}", times("min"), times("max"), quoted(&table.name));
        let (count, span) = connection
            .query_row(&first_and_last, [], |row| {
                let mut all = Vec::new();
                for at in 0..2 * table.times.len() {
                    all.extend(row.get::<_, Option<i64>>(at + 1)?);
                }
                Ok((row.get::<_, i64>(0)?, all.iter().min().copied().zip(all.iter().max().copied())))
            })
            .map_err(|problem| wrong(path, &format!("reading the table {}", table.name), &problem))?;
        facts.events += count.unsigned_abs();
        if let Some((first, last)) = span {
            let (first, last) = (Picoseconds::from(first) * PS_PER_NS, Picoseconds::from(last) * PS_PER_NS);
            let (from, to) = facts.span.unwrap_or((first, last));
            facts.span = Some((from.min(first), to.max(last)));
        }
    }
    Ok(facts)
}

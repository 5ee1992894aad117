//! Rows on CLOCK_MONOTONIC in a database whose other rows are on CLOCK_BOOTTIME.
//!
//! It applies if the caller requests it (`--cpu-clock monotonic`). `rocprof-sys` takes the times of
//! HIP, HSA and roctx calls and of kernels and copies from rocprofiler-sdk, which stamps with
//! CLOCK_BOOTTIME; it stamps its own rows (functions, samples, lifetimes of processes and threads)
//! with CLOCK_MONOTONIC (ROCm/rocm-systems, pull request 11667, which changes it). The two clocks
//! differ only by the time that the machine was suspended; that difference is added first, and the
//! result is mapped as CLOCK_BOOTTIME.
//!
//! Which row is whose says the category of its event: `rocm_hip_api`, `rocm_marker_api` and so on
//! are rocprofiler-sdk's, but for `rocm_smi…`, which a thread of the profiler samples; `host`,
//! `pthread`, `timer_sampling` and other lower-case names are the profiler's own. rocprofv3 writes
//! upper-case names, and all its rows are on CLOCK_BOOTTIME. A row that says nothing is refused. It
//! infers the suspended time only from rows that cannot be on one clock.

use std::path::Path;

use rusqlite::types::ValueRef;

use super::catalog::{Catalog, Table, Writer, quoted};
use super::reading::{Behind, Database, REGION, STRING};
use crate::CpuClock;
use crate::Error;

/// Which rows of a table are behind the others; `None` if there are none. `schema` is the name
/// under which the database is attached.
///
/// # Errors
/// Returns an error if the table's rows have no events or these no categories, by which they could
/// be distinguished.
pub(super) fn behind(
    database: (&Catalog, &str),
    path: &Path,
    table: &Table,
    by_ns: Option<i64>,
) -> Result<Option<Behind>, Error> {
    let (Some(by_ns), (catalog, schema)) = (by_ns, database) else { return Ok(None) };
    let is_behind = is_behind(catalog, schema, table);
    let is_behind = is_behind.map_err(|problem| Error::Database { path: path.to_owned(), problem })?;
    Ok(is_behind.map(|is_behind| Behind { is_behind, by_ns }))
}

/// How far the profiler's own rows are behind on this host, ns; `None` if the caller names no clock
/// for them.
///
/// # Errors
/// The caller does not say it of this host, or the database was brought to one clock already; no
/// clock is named, and they cannot be on one.
pub(super) fn behind_ns(
    database: &Database<'_>,
    host: Option<&str>,
    clock: Option<&CpuClock>,
) -> Result<Option<i64>, Error> {
    let Some(clock) = clock else {
        let mut writers = database.catalog.writers.iter();
        return writers.try_for_each(|writer| refuse_two_clocks(database, writer)).map(|()| None);
    };
    let refuse = |problem: String| Err(Error::Database { path: database.path.to_owned(), problem });
    let done = |writer: &&Writer| writer.aligned_to.is_some() || writer.is_on_one_clock;
    if let Some(writer) = database.catalog.writers.iter().find(done) {
        return refuse(format!(
            "the rows of {} were already converted to one clock; omit --cpu-clock, or give the database that the profiler wrote",
            writer.guid
        ));
    }
    match host.and_then(|host| clock.suspended.get(host)).or(clock.elsewhere.as_ref()) {
        Some(time) => Ok(Some(time.as_ns())),
        None => refuse(format!(
            "--cpu-clock monotonic: how long its host {} was suspended is unknown; give --suspended HOST=TIME for each host",
            host.unwrap_or("(without a name)")
        )),
    }
}

/// Refuses a database of `rocprof-sys` whose rows cannot be on one clock: all of the profiler's own
/// rows, including the lifetime of the process, end before the first row of rocprofiler-sdk begins.
///
/// # Errors
/// Names both spans. Returns an error if tables cannot be read.
fn refuse_two_clocks(database: &Database<'_>, writer: &Writer) -> Result<(), Error> {
    if writer.aligned_to.is_some() || writer.is_on_one_clock || !is_of_rocprof_sys(database, writer)? {
        return Ok(());
    }
    let spans = spans(database, writer)?;
    let [Some(sdk), Some(own)] = spans else { return Ok(()) };
    if sdk.0.saturating_sub(own.1) <= APART_NS {
        return Ok(());
    }
    let seconds = |(first, last): (i64, i64)| format!("{:.3} to {:.3} s", first as f64 * 1e-9, last as f64 * 1e-9);
    let problem = format!(
        "the rows that rocprof-sys timestamped itself ({REGION}, {SAMPLE}, {PROCESS} of {}) are from {}, but those of \
        rocprofiler-sdk (rocm_…, kernels) are from {}: they use two clocks. To convert them to one, use align or merge with \
        --cpu-clock monotonic \
        --suspended HOST=TIME, the time for which the machine was suspended before",
        writer.guid,
        seconds(own),
        seconds(sdk)
    );
    Err(Error::Database { path: database.path.to_owned(), problem })
}

/// First and last time of the rows of rocprofiler-sdk, and of the profiler's own.
fn spans(database: &Database<'_>, writer: &Writer) -> Result<[Option<(i64, i64)>; 2], Error> {
    let mut spans: [Option<(i64, i64)>; 2] = [None, None];
    for base in [REGION, SAMPLE, PROCESS, "rocpd_kernel_dispatch", "rocpd_memory_copy"] {
        let Some(table) = database.table(writer, base).filter(|table| !table.times.is_empty()) else { continue };
        let Ok(is_behind) = is_behind(database.catalog, "main", table) else { return Ok([None, None]) };
        let is_behind = is_behind.unwrap_or_else(|| "0".to_owned());
        let times: Vec<String> =
            table.times.iter().map(|at| format!("nullif(t.{}, 0)", quoted(&table.columns[*at]))).collect();
        let each = |form: &str| times.iter().map(|time| format!("{form}({time})")).collect::<Vec<_>>().join(", ");
        let (first, last, name) = (each("min"), each("max"), quoted(&table.name));
        let statement = format!("SELECT {is_behind}, {first}, {last} FROM {name} t NOT INDEXED GROUP BY 1");
        database.each(&table.name, &statement, &mut |row| {
            let ValueRef::Integer(which @ 0..=1) = row.get_ref(0)? else { return Ok(()) };
            for at in 1..=2 * times.len() {
                // What is no time is refused elsewhere.
                if let ValueRef::Integer(time) = row.get_ref(at)? {
                    let (first, last) = spans[which as usize].unwrap_or((time, time));
                    spans[which as usize] = Some((first.min(time), last.max(time)));
                }
            }
            Ok(())
        })?;
    }
    Ok(spans)
}

fn is_of_rocprof_sys(database: &Database<'_>, writer: &Writer) -> Result<bool, Error> {
    let Some(strings) = database.table(writer, STRING) else { return Ok(false) };
    let mut found = false;
    let statement =
        format!("SELECT 1 FROM {} t NOT INDEXED WHERE t.\"string\" GLOB 'rocm_[a-z]*' LIMIT 1", quoted(&strings.name));
    database.each(&strings.name, &statement, &mut |_| {
        found = true;
        Ok(())
    })?;
    Ok(found)
}

/// Condition on a row `t`: whether the profiler stamped it itself; `None` for tables that it did
/// not stamp.
fn is_behind(catalog: &Catalog, schema: &str, table: &Table) -> Result<Option<String>, String> {
    match table.base.as_str() {
        PROCESS | "rocpd_info_thread" => Ok(Some("1".to_owned())),
        REGION | SAMPLE => {
            // Without a key each row would look through all events.
            let keyed = |base: &str| {
                catalog
                    .tables
                    .iter()
                    .find(|other| other.base == base && other.suffix == table.suffix && other.is_numbered_by_id())
            };
            let event = keyed("rocpd_event").filter(|event| event.has("category_id") && table.has("event_id"));
            let (Some(event), Some(string)) = (event, keyed(STRING)) else {
                return Err(format!(
                    "--cpu-clock: rows of the table {} have no events with a number and a category",
                    table.name
                ));
            };
            let (event, string) = (quoted(&event.name), quoted(&string.name));
            Ok(Some(format!(
                "(SELECT CASE WHEN s.\"string\" GLOB 'rocm_smi*' THEN 1 WHEN s.\"string\" GLOB 'rocm_*' THEN 0 \
                 WHEN s.\"string\" GLOB '[a-z]*' THEN 1 END FROM {schema}.{event} e JOIN {schema}.{string} s ON s.\"id\" = e.\"category_id\" \
                 WHERE e.\"id\" = t.\"event_id\")"
            )))
        }
        _ => Ok(None),
    }
}

const SAMPLE: &str = "rocpd_sample";
const PROCESS: &str = "rocpd_info_process";
/// So much later than the end of its process, ns, nothing of it is stamped on one clock.
const APART_NS: i64 = 1_000_000_000;

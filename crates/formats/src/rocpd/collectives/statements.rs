//! The SQL statements for calls of NCCL with their arguments, dispatches of its kernels, and
//! regions that state their operation.

use crate::rocpd::catalog::{Table, quoted};
use crate::rocpd::reading::{Behind, brought_up, join_one};
use crate::stated::COLLECTIVE_NAME;

/// Returns the statement that reads calls with such names by thread and time, each once with its
/// arguments; those that are behind the others are shifted to their clock.
///
/// Names and arguments are grouped first: if many rows have one number, a join of the tables
/// themselves would result in as many rows as their product.
pub(super) fn calls(
    region: &Table,
    string: &Table,
    arg: Option<&Table>,
    behind: Option<&Behind>,
    names: [&str; 2],
) -> String {
    let (join, values) = match arg {
        Some(arg) => {
            let join = join_one((region, "event_id"), (arg, "event_id"), "a", &arguments(arg));
            (format!("LEFT JOIN {join}"), "a.number, a.type, a.comm, a.root, a.peer, a.size, a.own, a.amount")
        }
        None => (String::new(), "NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0"),
    };
    let thread = if region.has("tid") { region.column("t", "tid") } else { region.column("t", "track_id") };
    let process = region.column("t", "pid");
    let row = region.row("t");
    let [nccl, rccl] = names;
    let time = |name: &str| brought_up(&region.column("t", name), behind);
    let (start, end) = (time("start"), time("end"));
    format!(
        "SELECT {process}, {thread}, {start}, {end}, s.name, {values}, {row} FROM {} t NOT INDEXED CROSS JOIN (SELECT CAST(\"id\" AS INTEGER) AS id, \
         min(\"string\") AS name FROM {} NOT INDEXED WHERE \"string\" GLOB '{nccl}' OR \"string\" GLOB '{rccl}' GROUP BY 1) s {join} \
         WHERE s.id = CAST({} AS INTEGER) ORDER BY {process}, {thread}, {start}, {row}",
        quoted(&region.name),
        quoted(&string.name),
        region.column("t", "name_id"),
    )
}

/// The statement that finds whether any region states its operation.
pub(super) fn states(arg: &Table) -> String {
    let (name, from) = (arg.column("t", "name"), quoted(&arg.name));
    format!("SELECT 1 FROM {from} t NOT INDEXED WHERE {name} = '{COLLECTIVE_NAME}' LIMIT 1")
}

/// The statement that reads regions that state their operation: start, end, row, and the arguments
/// of these names, in their order.
pub(super) fn stated(region: &Table, arg: &Table, behind: Option<&Behind>, names: &[&str]) -> String {
    let (name, value) = (arg.column("o", "name"), arg.column("o", "value"));
    let of = |(place, of): (usize, &&str)| format!("max(CASE WHEN {name} = '{of}' THEN {value} END) AS a{place}");
    let values: Vec<String> = names.iter().enumerate().map(of).collect();
    let columns: Vec<String> = (0..names.len()).map(|place| format!("a.a{place}")).collect();
    let time = |name: &str| brought_up(&region.column("t", name), behind);
    let (start, end, row) = (time("start"), time("end"), region.row("t"));
    let join = join_one((region, "event_id"), (arg, "event_id"), "a", &values.join(", "));
    format!(
        "SELECT {start}, {end}, {row}, {} FROM {} t NOT INDEXED CROSS JOIN {join} WHERE a.a0 IS NOT NULL ORDER BY {start}, {row}",
        columns.join(", "),
        quoted(&region.name),
    )
}

/// The arguments of an event that are needed, and how many it has.
fn arguments(arg: &Table) -> String {
    let value = arg.column("o", "value");
    let of = |names: &str, result: &str| format!("max(CASE WHEN o.\"name\" IN ({names}) THEN {value} END) AS {result}");
    let values = [
        of("'count', 'sendcount', 'recvcount'", "number"),
        of("'datatype'", "type"),
        of("'comm', 'newcomm'", "comm"),
        of("'root'", "root"),
        of("'peer'", "peer"),
        of("'nranks'", "size"),
        of("'myrank', 'rank'", "own"),
    ];
    format!("{}, count(*) AS amount", values.join(", "))
}

/// The statement that reads dispatches of kernels of NCCL or RCCL.
pub(super) fn kernels(dispatch: &Table, symbol: &Table) -> String {
    let (display, full) = (symbol.column("o", "display_name"), symbol.column("o", "kernel_name"));
    let of_library = |name: &str| format!("{name} LIKE '%nccl%' OR {name} LIKE '%rccl%'");
    let (shown, stated) = (of_library(&display), of_library(&full));
    let name = format!("min(CASE WHEN {shown} OR {stated} THEN coalesce({display}, {full}) END) AS name");
    format!(
        "SELECT s.name, {}, {}, {} FROM {} t NOT INDEXED CROSS JOIN {} WHERE s.name IS NOT NULL",
        dispatch.column("t", "start"),
        dispatch.column("t", "end"),
        dispatch.row("t"),
        quoted(&dispatch.name),
        join_one((dispatch, "kernel_id"), (symbol, "id"), "s", &name),
    )
}

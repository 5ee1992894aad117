//! The kinds of events in a database, and the statement that reads each with its names.
//!
//! Versions of the schema differ in columns, so a missing column reads as NULL; from 4.x on, rows
//! name a track, which names the thread. Rows are returned in the order of their events, as are
//! their arguments.

use super::catalog::{Table, quoted};

/// A kind of events.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// API calls and markers.
    Region,
    /// Kernels.
    Dispatch,
    /// Memory copies.
    Copy,
    /// Memory allocations and frees.
    Allocation,
    /// Instants.
    Sample,
}

impl Kind {
    /// All kinds, in the order in which they are read.
    pub(super) const ALL: [Kind; 5] = [Self::Region, Self::Dispatch, Self::Copy, Self::Allocation, Self::Sample];

    /// The table's name without the uuid.
    pub(super) fn base(self) -> &'static str {
        match self {
            Self::Region => "rocpd_region",
            Self::Dispatch => "rocpd_kernel_dispatch",
            Self::Copy => "rocpd_memory_copy",
            Self::Allocation => "rocpd_memory_allocate",
            Self::Sample => "rocpd_sample",
        }
    }

    /// Columns that are shown as arguments.
    pub(super) fn shown(self) -> &'static [&'static str] {
        match self {
            Self::Region | Self::Sample => &[],
            Self::Dispatch => &[
                "dispatch_id",
                "private_segment_size",
                "group_segment_size",
                "workgroup_size_x",
                "workgroup_size_y",
                "workgroup_size_z",
                "grid_size_x",
                "grid_size_y",
                "grid_size_z",
            ],
            Self::Copy => &["size", "src_agent_id", "dst_agent_id", "src_address", "dst_address"],
            Self::Allocation => &["size", "address", "type", "level"],
        }
    }
}

/// A column of a table under its alias, or NULL if the table has none of this name.
pub(super) fn column(table: &Table, alias: &str, name: &str) -> String {
    let found = table.columns.iter().find(|column| column.eq_ignore_ascii_case(name));
    found.map_or_else(|| "NULL".to_owned(), |column| format!("{alias}.{}", quoted(column)))
}

/// The statement that reads a kind's table; columns by the constants below, then those that are
/// shown.
pub(super) fn query<'a>(kind: Kind, table: &Table, of: &impl Fn(&str) -> Option<&'a Table>) -> String {
    let own = |name: &str| column(table, "R", name);
    let mut joins = String::new();
    let mut join = |base: &str, alias: &str, on: &str| match of(base) {
        // Where an id may be many rows, a join would give as many rows as the product.
        Some(other) if on != "NULL" && other.is_numbered_by_id() => {
            joins.push_str(&format!(" LEFT JOIN {} AS {alias} ON {alias}.id = {on}", quoted(&other.name)));
            true
        }
        _ => false,
    };
    let event = own("event_id");
    let has_event = join("rocpd_event", "E", &event);
    let of_event = |name: &str| match of("rocpd_event") {
        Some(events) if has_event => column(events, "E", name),
        _ => "NULL".to_owned(),
    };
    let category = if join("rocpd_string", "C", &of_event("category_id")) { "C.string" } else { "NULL" };
    let has_track = join("rocpd_track", "T", &own("track_id"));
    let of_track = |name: &str| match of("rocpd_track") {
        Some(tracks) if has_track => column(tracks, "T", name),
        _ => "NULL".to_owned(),
    };
    let name = match kind {
        Kind::Dispatch if join("rocpd_info_kernel_symbol", "K", &own("kernel_id")) => {
            "coalesce(nullif(K.display_name, ''), K.kernel_name)".to_owned()
        }
        Kind::Allocation => own("type"),
        Kind::Sample if join("rocpd_string", "S", &of_track("name_id")) => "S.string".to_owned(),
        _ if join("rocpd_string", "S", &own("name_id")) => "S.string".to_owned(),
        _ => "NULL".to_owned(),
    };
    let either = |one: String, other: String| match (one.as_str(), other.as_str()) {
        ("NULL", _) => other,
        (_, "NULL") => one,
        _ => format!("coalesce({one}, {other})"),
    };
    let agent = agent(kind, table, of("rocpd_info_agent"));
    let (start, end) =
        if kind == Kind::Sample { (own("timestamp"), own("timestamp")) } else { (own("start"), own("end")) };
    let columns = [
        own("id"),
        start,
        end,
        name,
        category.to_owned(),
        event.clone(),
        of_event("stack_id"),
        either(own("tid"), of_track("tid")),
        agent,
        own("queue_id"),
        own("stream_id"),
        format!("coalesce(nullif({}, '{{}}'), {})", of_event("extdata"), own("extdata")),
        format!("nullif({}, '{{}}')", of_event("call_stack")),
        format!("nullif({}, '{{}}')", of_event("line_info")),
    ];
    let shown = kind.shown().iter().map(|name| own(name));
    let columns: Vec<String> = columns.into_iter().chain(shown).collect();
    let only = of("rocpd_pmc_event").filter(|_| kind == Kind::Sample && event != "NULL");
    let only = only.map_or_else(String::new, |values| without_values(&event, values));
    let order = if event == "NULL" { String::new() } else { format!(" ORDER BY {event}") };
    format!("SELECT {} FROM {} AS R NOT INDEXED{joins}{only}{order}", columns.join(", "), quoted(&table.name))
}

/// The agent of a row. A copy is drawn on the device involved: the destination, otherwise the
/// source.
fn agent(kind: Kind, table: &Table, agents: Option<&Table>) -> String {
    let own = |name: &str| column(table, "R", name);
    match (kind, agents) {
        (Kind::Copy, Some(agents)) => {
            let (to, from) = (own("dst_agent_id"), own("src_agent_id"));
            let agents = quoted(&agents.name);
            format!(
                "CASE WHEN (SELECT type FROM {agents} WHERE id = {to}) = 'GPU' THEN {to} ELSE coalesce({from}, {to}) END"
            )
        }
        _ => own("agent_id"),
    }
}

/// The condition that excludes samples that are counter values, which are drawn as these.
fn without_values(event: &str, values: &Table) -> String {
    format!(" WHERE {event} IS NULL OR {event} NOT IN ({})", events_of(values))
}

/// The events of a table's rows.
fn events_of(table: &Table) -> String {
    let event = column(table, "O", "event_id");
    format!("SELECT {event} FROM {} AS O NOT INDEXED WHERE {event} IS NOT NULL", quoted(&table.name))
}

/// The statement that reads counter values of the one kernel of each event: start and end of the
/// kernel, its agent, the counter, and its value over all instances.
pub(super) fn counted(values: &Table, dispatches: &Table) -> String {
    let (of_value, of_kernel) = (|name| column(values, "P", name), |name| column(dispatches, "R", name));
    format!(
        "SELECT {}, {}, {}, {}, total({}) FROM {} AS P NOT INDEXED JOIN (SELECT *, count(*) FROM {} NOT INDEXED GROUP BY event_id) AS R ON {} = {} GROUP BY R.id, {}",
        of_kernel("start"),
        of_kernel("end"),
        of_kernel("agent_id"),
        of_value("pmc_id"),
        of_value("value"),
        quoted(&values.name),
        quoted(&dispatches.name),
        of_kernel("event_id"),
        of_value("event_id"),
        of_value("pmc_id"),
    )
}

/// The statement that reads values counted at instants, as rocprof-sys does for the host: time,
/// agent of the counter, the counter, and its value.
pub(super) fn sampled(values: &Table, samples: &Table, counters: Option<&Table>) -> String {
    let (of_value, of_sample) = (|name| column(values, "P", name), |name| column(samples, "R", name));
    let agent = counters.filter(|counters| counters.is_numbered_by_id()).map(|counters| {
        let agent = column(counters, "C", "agent_id");
        format!("(SELECT {agent} FROM {} AS C WHERE C.id = {})", quoted(&counters.name), of_value("pmc_id"))
    });
    format!(
        "SELECT {}, {}, {}, {} FROM {} AS P NOT INDEXED JOIN (SELECT *, count(*) FROM {} NOT INDEXED GROUP BY event_id) AS R ON {} = {} ORDER BY {}",
        of_sample("timestamp"),
        agent.unwrap_or_else(|| "NULL".to_owned()),
        of_value("pmc_id"),
        of_value("value"),
        quoted(&values.name),
        quoted(&samples.name),
        of_sample("event_id"),
        of_value("event_id"),
        of_value("event_id"),
    )
}

/// The statement that counts values that belong to none of the events of these tables.
pub(super) fn stray_values(values: &Table, tables: &[&Table]) -> String {
    let event = column(values, "P", "event_id");
    let known: String = tables.iter().map(|table| format!(" AND {event} NOT IN ({})", events_of(table))).collect();
    format!("SELECT total({event} IS NULL OR (1{known})) FROM {} AS P NOT INDEXED", quoted(&values.name))
}

/// The statement that reads changes of the bytes being copied to an agent: agent and time, in this
/// order, bytes, and 0. The copies at a time are those that have begun by then and not ended.
pub(super) fn copied(copies: &Table) -> String {
    let of = |name| column(copies, "R", name);
    let (agent, size, start, end) = (of("dst_agent_id"), of("size"), of("start"), of("end"));
    let from = format!("FROM {} AS R NOT INDEXED WHERE {start} != 0 AND {end} != 0", quoted(&copies.name));
    format!(
        "SELECT agent, time, total(bytes), 0 FROM (SELECT {agent} AS agent, {start} AS time, {size} AS bytes {from} \
         UNION ALL SELECT {agent}, {end}, -{size} {from}) GROUP BY agent, time ORDER BY agent, time"
    )
}

/// The same for bytes allocated, which count from the end of the allocating call to the beginning
/// of the call that frees them: another thread may be given an address again before that call has
/// ended. It states only an address, so it is matched with the preceding allocation there; the last
/// column counts those without. Scratch memory has no address, and is left out.
pub(super) fn allocated(allocations: &Table) -> String {
    let of = |name| column(allocations, "R", name);
    let (kind, start, end) = (of("type"), of("start"), of("end"));
    let time = format!("CASE {kind} WHEN 'FREE' THEN {start} ELSE {end} END");
    let before = |what: &str| format!("lag(CASE {kind} WHEN 'ALLOC' THEN {what} END) OVER at_address");
    let of_call = |name| format!("CASE {kind} WHEN 'FREE' THEN {} ELSE {} END", before(&of(name)), of(name));
    format!(
        "SELECT agent, time, total(bytes), count(*) - count(bytes) FROM (SELECT {} AS agent, {time} AS time, \
         CASE {kind} WHEN 'FREE' THEN -1 ELSE 1 END * {} AS bytes FROM {} AS R NOT INDEXED \
         WHERE {kind} IN ('ALLOC', 'FREE') AND {} IS NOT 'SCRATCH' AND {start} != 0 AND {end} != 0 \
         WINDOW at_address AS (PARTITION BY {}, {}, {} ORDER BY {time}, {})) GROUP BY agent, time ORDER BY agent, time",
        of_call("agent_id"),
        of_call("size"),
        quoted(&allocations.name),
        of("level"),
        of("nid"),
        of("pid"),
        of("address"),
        of("id"),
    )
}

pub(super) const ID: usize = 0;
pub(super) const START: usize = 1;
pub(super) const END: usize = 2;
pub(super) const NAME: usize = 3;
pub(super) const CATEGORY: usize = 4;
pub(super) const EVENT: usize = 5;
pub(super) const STACK: usize = 6;
pub(super) const THREAD: usize = 7;
pub(super) const AGENT: usize = 8;
pub(super) const QUEUE: usize = 9;
pub(super) const STREAM: usize = 10;
pub(super) const EXTRA: usize = 11;
/// JSON of an event's stack and place in the program, NULL if it has none.
pub(super) const SOURCE: [(usize, &str); 2] = [(12, "call_stack"), (13, "line_info")];
pub(super) const FIRST_SHOWN: usize = 14;

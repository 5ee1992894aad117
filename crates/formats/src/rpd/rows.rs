//! The kinds of rows that are events, and the statement that reads each with its names.
//!
//! Schemas differ in columns, so a missing column reads as NULL. The statements have the columns of
//! this module's constants.

use super::catalog::{API, API_OPS, MARKER, MONITOR, OP};
use super::reading::Database;
use crate::sqlite::table::{Table, quoted};

/// A kind of events.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Calls, marks and ranges of a thread.
    Call,
    /// Kernels and copies of a device.
    Operation,
    /// Samples of clocks and power.
    Sample,
}

/// The events of one table.
pub(super) struct Events<'a> {
    pub(super) table: &'a Table,
    pub(super) kind: Kind,
    /// Columns that are shown as arguments, with the expressions that read them.
    pub(super) shown: Vec<(&'static str, String)>,
    columns: [String; FIRST_SHOWN],
    joins: String,
}

impl<'a> Events<'a> {
    /// Returns how a table is shown; `None` if it has no events of these kinds.
    pub(super) fn of(database: &Database<'a>, table: &'a Table) -> Option<Events<'a>> {
        if table.times.len() != 2 {
            return None;
        }
        let column = |name: &str| table.column("t", name);
        let text = |name: &str| database.text(table, name);
        let null = || "NULL".to_owned();
        let mut events = Events {
            table,
            kind: Kind::Call,
            shown: Vec::new(),
            columns: [(); FIRST_SHOWN].map(|()| null()),
            joins: String::new(),
        };
        let [id, start, end] = ["id", "start", "end"].map(column);
        let calls = ["pid", "tid", "apiName_id"].iter().all(|name| table.has(name));
        events.columns = match table.name.as_str() {
            OP => {
                events.kind = Kind::Operation;
                events.joins = launch(database, "LEFT JOIN");
                let [pid, of_call] =
                    if events.joins.is_empty() { [null(), null()] } else { ["a.pid", "l.api_id"].map(str::to_owned) };
                let name = format!("coalesce(nullif({}, ''), {})", text("description_id"), text("opType_id"));
                [id, start, end, name, text("opType_id"), pid, column("gpuId"), column("queueId"), of_call]
            }
            MONITOR => {
                events.kind = Kind::Sample;
                let device = format!("{} || ' ' || {}", column("deviceType"), column("deviceId"));
                [id, start, end, column("monitorType"), device, null(), null(), null(), column("value")]
            }
            _ if calls => {
                let (name, args) = (text("apiName_id"), text("args_id"));
                let shown = format!("CASE WHEN {name} = '{MARKER}' THEN {args} ELSE {name} END");
                let category = format!(
                    "CASE WHEN {name} = '{MARKER}' THEN 'marker' ELSE coalesce(nullif({}, ''), 'api') END",
                    text("domain_id")
                );
                let links = database.catalog.table(API_OPS).filter(|_| table.name == API);
                let starts = links.map_or_else(null, |links| {
                    let api = links.column("o", "api_id");
                    format!("CASE WHEN {id} IN (SELECT {api} FROM {} o NOT INDEXED) THEN {id} END", quoted(&links.name))
                });
                events.shown.push(("args", format!("CASE WHEN {name} <> '{MARKER}' THEN nullif({args}, '') END")));
                events.shown.push(("category", format!("nullif({}, '')", text("category_id"))));
                if table.name == API {
                    events.join(database, "rocpd_kernelapi", "k", &KERNEL);
                    events.join(database, "rocpd_copyapi", "c", &COPY);
                }
                [id, start, end, shown, category, column("pid"), column("tid"), null(), starts]
            }
            _ => return None,
        };
        Some(events)
    }

    /// Joins what is stated about some calls, one row each.
    fn join(&mut self, database: &Database<'a>, name: &str, alias: &str, columns: &[&'static str]) {
        let Some(table) = database.catalog.table(name).filter(|table| table.has("api_ptr_id")) else { return };
        let known: Vec<&'static str> = columns.iter().copied().filter(|column| table.has(column)).collect();
        let values: String = known.iter().map(|column| format!(", o.{}", quoted(column))).collect();
        self.joins.push_str(&format!(
            " LEFT JOIN (SELECT o.api_ptr_id AS api_ptr_id{values} FROM {} o NOT INDEXED GROUP BY 1) {alias} \
             ON {alias}.api_ptr_id = t.id",
            quoted(&table.name)
        ));
        self.shown.extend(known.into_iter().map(|column| (column, format!("nullif({alias}.{}, '')", quoted(column)))));
    }

    /// Returns the statement that reads the events.
    pub(super) fn statement(&self) -> String {
        let shown = self.shown.iter().map(|(_, column)| column.as_str());
        let columns: Vec<&str> = self.columns.iter().map(String::as_str).chain(shown).collect();
        format!("SELECT {} FROM {} t NOT INDEXED {}", columns.join(", "), quoted(&self.table.name), self.joins)
    }
}

/// Returns how an operation `t` finds the call `a` that started it, by its link `l`: the text of the
/// joins. A file may link an operation several times, so that a plain join would multiply rows.
pub(super) fn launch(database: &Database<'_>, join: &str) -> String {
    let (Some(links), Some(api)) = (database.catalog.table(API_OPS), database.catalog.table(API)) else {
        return String::new();
    };
    format!(
        "{join} (SELECT o.op_id AS op_id, min(o.api_id) AS api_id FROM {} o NOT INDEXED GROUP BY o.op_id) l ON l.op_id = t.id \
         {join} {} a ON a.id = l.api_id",
        quoted(&links.name),
        quoted(&api.name)
    )
}

pub(super) const ID: usize = 0;
pub(super) const START: usize = 1;
pub(super) const END: usize = 2;
pub(super) const NAME: usize = 3;
/// Category; of a sample the device.
pub(super) const CATEGORY: usize = 4;
pub(super) const PROCESS: usize = 5;
/// Thread or device.
pub(super) const PLACE: usize = 6;
pub(super) const QUEUE: usize = 7;
/// The number of the call that starts a flow; of a sample the value.
pub(super) const CALL: usize = 8;
pub(super) const FIRST_SHOWN: usize = 9;
const KERNEL: [&str; 9] = [
    "stream",
    "gridX",
    "gridY",
    "gridZ",
    "workgroupX",
    "workgroupY",
    "workgroupZ",
    "groupSegmentSize",
    "privateSegmentSize",
];
const COPY: [&str; 5] = ["stream", "size", "kind", "dst", "src"];

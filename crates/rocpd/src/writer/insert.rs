//! Inserts rows of events and definitions, many per statement.
//!
//! SQLite reads and writes the sequence's row of an AUTOINCREMENT table once per statement, however
//! many rows the statement inserts, so rows are inserted [`ROWS`] at a time. It does not begin or
//! end transactions.

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Statement, params};

use super::definitions::Definition;
use super::event::{
    Argument, CounterValue, Event, Kernel, Links, MemoryAllocation, MemoryCopy, NOTHING, Region, Sample, Source,
};
use super::process::Process;
use crate::schema::quoted;

/// All inserts into one database.
pub(super) struct Inserter<'c> {
    events: Table<'c>,
    /// Events with JSON of their own; the others use the default of the column, which saves a copy
    /// of each.
    told_events: Table<'c>,
    arguments: Table<'c>,
    regions: Table<'c>,
    kernels: Table<'c>,
    copies: Table<'c>,
    allocations: Table<'c>,
    samples: Table<'c>,
    values: Table<'c>,
    connection: &'c Connection,
    suffix: String,
    node: i64,
    pid: i64,
    /// The id of the last event.
    event: i64,
}

impl<'c> Inserter<'c> {
    pub fn new(connection: &'c Connection, suffix: &str, process: &Process) -> rusqlite::Result<Self> {
        let table = |base: &str, columns: &[&str]| Table::new(connection, &format!("{base}{suffix}"), columns);
        Ok(Self {
            events: table("rocpd_event", &EVENT_COLUMNS[..5])?,
            told_events: table("rocpd_event", &EVENT_COLUMNS)?,
            arguments: table("rocpd_arg", &["event_id", "position", "type", "name", "value"])?,
            regions: table("rocpd_region", &["nid", "pid", "tid", "start", "end", "name_id", "event_id"])?,
            kernels: table("rocpd_kernel_dispatch", &KERNEL_COLUMNS)?,
            copies: table("rocpd_memory_copy", &COPY_COLUMNS)?,
            allocations: table("rocpd_memory_allocate", &ALLOCATION_COLUMNS)?,
            samples: table("rocpd_sample", &["track_id", "timestamp", "event_id"])?,
            values: table("rocpd_pmc_event", &["event_id", "pmc_id", "value"])?,
            connection,
            suffix: suffix.to_owned(),
            node: process.node_id(),
            pid: i64::from(process.pid),
            event: 0,
        })
    }

    /// The id of the last event, to roll back to if a transaction fails.
    pub fn last_event(&self) -> i64 {
        self.event
    }

    /// Forgets events after `event`.
    pub fn go_back(&mut self, event: i64) {
        self.event = event;
    }

    /// Inserts events with their threads; returns the number of rows.
    pub fn events<'e>(&mut self, events: impl Iterator<Item = &'e (i64, Event)> + Clone) -> rusqlite::Result<u64> {
        self.plan(events.clone());
        let before = self.event;
        let mut rows = 0;
        for (thread, event) in events {
            rows += event.rows() as u64;
            match event {
                Event::Region(region) => self.region(*thread, region)?,
                Event::Kernel(kernel) => self.kernel(*thread, kernel)?,
                Event::MemoryCopy(copy) => self.copy(*thread, copy)?,
                Event::MemoryAllocation(allocation) => self.allocation(*thread, allocation)?,
                Event::Counter(value) => self.value(value)?,
                Event::Sample(sample) => self.sample(sample)?,
            }
        }
        debug_assert!(self.event >= before, "ids only grow");
        Ok(rows)
    }

    /// Announces the number of coming rows to each table.
    fn plan<'e>(&mut self, events: impl Iterator<Item = &'e (i64, Event)>) {
        let [mut all, mut told, mut arguments, mut regions, mut kernels, mut copies] = [0; 6];
        let [mut allocations, mut samples, mut values] = [0; 3];
        for (_, event) in events {
            all += 1;
            told += usize::from(event.has_json());
            match event {
                Event::Region(region) => {
                    regions += 1;
                    arguments += region.arguments.len();
                }
                Event::Kernel(_) => kernels += 1,
                Event::MemoryCopy(_) => copies += 1,
                Event::Counter(_) => {
                    samples += 1;
                    values += 1;
                }
                Event::MemoryAllocation(_) => allocations += 1,
                Event::Sample(sample) => {
                    samples += 1;
                    arguments += sample.arguments.len();
                }
            }
        }
        self.events.plan(all - told);
        self.told_events.plan(told);
        self.arguments.plan(arguments);
        self.regions.plan(regions);
        self.kernels.plan(kernels);
        self.copies.plan(copies);
        self.allocations.plan(allocations);
        self.samples.plan(samples);
        self.values.plan(values);
    }

    /// Inserts the event of a row; returns its id.
    fn event(
        &mut self,
        category: u32,
        links: &Links,
        extdata: Option<&str>,
        source: Option<&Source>,
    ) -> rusqlite::Result<i64> {
        self.event += 1;
        let Links { stack_id, parent_stack_id, correlation_id } = *links;
        let cells = [self.event, category.into(), stack_id, parent_stack_id, correlation_id].map(Int);
        if extdata.is_none() && source.is_none() {
            self.events.row(&cells)?;
            return Ok(self.event);
        }
        let [id, category, stack, parent, correlation] = cells;
        let columns = source.map(Source::columns);
        let [stack_json, line_json] = columns.as_ref().map_or([NOTHING; 2], |columns| columns.each_ref().map(|c| &**c));
        let json = [extdata.unwrap_or(NOTHING), stack_json, line_json].map(Text);
        self.told_events.row(&[id, category, stack, parent, correlation, json[0], json[1], json[2]])?;
        Ok(self.event)
    }

    fn arguments(&mut self, event: i64, arguments: &[Argument]) -> rusqlite::Result<()> {
        arguments.iter().enumerate().try_for_each(|(at, Argument { kind, name, value })| {
            self.arguments.row(&[Int(event), Int(at as i64), Text(kind), Text(name), Text(value)])
        })
    }

    fn region(&mut self, thread: i64, region: &Region) -> rusqlite::Result<()> {
        let event =
            self.event(region.category.0, &region.links, region.extdata.as_deref(), region.source.as_deref())?;
        let (start, end) = (region.start_ns, region.end_ns);
        let name = region.name.0.into();
        self.regions.row(&[Int(self.node), Int(self.pid), Int(thread), Int(start), Int(end), Int(name), Int(event)])?;
        self.arguments(event, &region.arguments)
    }

    fn kernel(&mut self, thread: i64, kernel: &Kernel) -> rusqlite::Result<()> {
        let event = self.event(kernel.category.0, &kernel.links, None, None)?;
        let [scratch, local] = kernel.segment_sizes.map(i64::from);
        let [workgroup_x, workgroup_y, workgroup_z] = kernel.workgroup.map(i64::from);
        let [grid_x, grid_y, grid_z] = kernel.grid.map(i64::from);
        self.kernels.row(&[
            Int(self.node),
            Int(self.pid),
            Int(thread),
            Int(kernel.agent.0.into()),
            Int(kernel.kernel.0.into()),
            Int(kernel.dispatch_id),
            Int(kernel.queue.0.into()),
            Int(kernel.stream.0.into()),
            Int(kernel.start_ns),
            Int(kernel.end_ns),
            Int(scratch),
            Int(local),
            Int(workgroup_x),
            Int(workgroup_y),
            Int(workgroup_z),
            Int(grid_x),
            Int(grid_y),
            Int(grid_z),
            Int(kernel.region.0.into()),
            Int(event),
        ])
    }

    fn copy(&mut self, thread: i64, copy: &MemoryCopy) -> rusqlite::Result<()> {
        let event = self.event(copy.category.0, &copy.links, None, None)?;
        let MemoryCopy { source, destination, .. } = copy;
        self.copies.row(&[
            Int(self.node),
            Int(self.pid),
            Int(thread),
            Int(copy.start_ns),
            Int(copy.end_ns),
            Int(copy.name.0.into()),
            Int(destination.agent.0.into()),
            Int(destination.address),
            Int(source.agent.0.into()),
            Int(source.address),
            Int(copy.size),
            copy.stream.map_or(Null, |stream| Int(stream.0.into())),
            Int(event),
        ])
    }

    fn allocation(&mut self, thread: i64, allocation: &MemoryAllocation) -> rusqlite::Result<()> {
        let source = allocation.source.as_deref();
        let event = self.event(allocation.category.0, &allocation.links, None, source)?;
        self.allocations.row(&[
            Int(self.node),
            Int(self.pid),
            Int(thread),
            allocation.agent.map_or(Null, |agent| Int(agent.0.into())),
            Text(allocation.operation.text()),
            Text("REAL"),
            Int(allocation.start_ns),
            Int(allocation.end_ns),
            Int(allocation.address),
            Int(allocation.size),
            Int(event),
        ])
    }

    fn value(&mut self, value: &CounterValue) -> rusqlite::Result<()> {
        let event = self.event(value.category.0, &Links::default(), None, None)?;
        self.samples.row(&[Int(value.track.0.into()), Int(value.at_ns), Int(event)])?;
        self.values.row(&[Int(event), Int(value.counter.0.into()), Real(value.value)])
    }

    fn sample(&mut self, sample: &Sample) -> rusqlite::Result<()> {
        let (extdata, source) = (sample.extdata.as_deref(), sample.source.as_deref());
        let event = self.event(sample.category.0, &sample.links, extdata, source)?;
        self.samples.row(&[Int(sample.track.0.into()), Int(sample.at_ns), Int(event)])?;
        self.arguments(event, &sample.arguments)
    }

    /// Inserts what events refer to.
    pub fn definitions(&mut self, definitions: &[Definition]) -> rusqlite::Result<()> {
        definitions.iter().try_for_each(|definition| self.definition(definition))
    }

    fn definition(&mut self, definition: &Definition) -> rusqlite::Result<()> {
        let (node, pid) = (self.node, self.pid);
        match definition {
            Definition::String(id, text) => self.define("rocpd_string", "id, string", params![id.0, text]),
            Definition::Thread { id, tid, name } => {
                let columns = "id, nid, pid, tid, name";
                self.define("rocpd_info_thread", columns, params![id, node, pid, tid, name])
            }
            Definition::ThreadSpan { id, span: [start, end] } => {
                let table = quoted(&format!("rocpd_info_thread{}", self.suffix));
                let sql = format!("UPDATE {table} SET \"start\" = ?, \"end\" = ? WHERE id = ?");
                self.connection.prepare_cached(&sql)?.execute(params![start, end, id]).map(|_| ())
            }
            Definition::Agent(id, agent) => {
                let columns = "id, nid, pid, type, absolute_index, logical_index, type_index, name, product_name, \
                               vendor_name, extdata";
                let kind = agent.kind.text();
                let (absolute, logical, of_type) = (agent.absolute_index, agent.logical_index, agent.type_index);
                let (name, product, vendor) = (&agent.name, &agent.product_name, &agent.vendor_name);
                let extdata = agent.hardware.json(agent.kind);
                let values = params![id.0, node, pid, kind, absolute, logical, of_type, name, product, vendor, extdata];
                self.define("rocpd_info_agent", columns, values)
            }
            Definition::Queue(id, name) => {
                self.define("rocpd_info_queue", "id, nid, pid, name", params![id.0, node, pid, name])
            }
            Definition::Stream(id, name) => {
                self.define("rocpd_info_stream", "id, nid, pid, name", params![id.0, node, pid, name])
            }
            Definition::CodeObject(id, object) => {
                let values = params![id.0, node, pid, object.agent.0, object.uri];
                self.define("rocpd_info_code_object", "id, nid, pid, agent_id, uri", values)
            }
            Definition::Kernel(id, kernel) => {
                let columns = "id, nid, pid, code_object_id, kernel_name, display_name";
                let values = params![id.0, node, pid, kernel.code_object.0, kernel.kernel_name, kernel.display_name];
                self.define("rocpd_info_kernel_symbol", columns, values)
            }
            Definition::Counter(id, counter) => {
                let columns = "id, nid, pid, agent_id, name, symbol, description, units, value_type";
                let agent = counter.agent.map(|agent| agent.0);
                let (name, symbol, description) = (&counter.name, &counter.symbol, &counter.description);
                let values = params![id.0, node, pid, agent, name, symbol, description, counter.units, "ABS"];
                self.define("rocpd_info_pmc", columns, values)
            }
            Definition::Track { id, name, thread } => {
                self.define("rocpd_track", "id, nid, pid, tid, name_id", params![id.0, node, pid, thread, name.0])
            }
        }
    }

    fn define(&self, base: &str, columns: &str, values: &[&dyn ToSql]) -> rusqlite::Result<()> {
        let places = vec!["?"; values.len()].join(", ");
        let sql = format!("INSERT INTO {} ({columns}) VALUES ({places})", quoted(&format!("{base}{}", self.suffix)));
        self.connection.prepare_cached(&sql)?.execute(values).map(|_| ())
    }
}

/// A table that rows are inserted into.
struct Table<'c> {
    many: Statement<'c>,
    one: Statement<'c>,
    width: usize,
    /// Remaining rows that go into full statements.
    full: usize,
    /// Rows bound to the statement so far.
    given: usize,
}

impl<'c> Table<'c> {
    fn new(connection: &'c Connection, name: &str, columns: &[&str]) -> rusqlite::Result<Self> {
        let row = format!("({})", vec!["?"; columns.len()].join(", "));
        let names: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
        let insert = |rows: usize| {
            let rows = vec![row.as_str(); rows].join(", ");
            connection.prepare(&format!("INSERT INTO {} ({}) VALUES {rows}", quoted(name), names.join(", ")))
        };
        Ok(Self { many: insert(ROWS)?, one: insert(1)?, width: columns.len(), full: 0, given: 0 })
    }

    fn plan(&mut self, rows: usize) {
        self.full = rows - rows % ROWS;
        self.given = 0;
    }

    fn row(&mut self, cells: &[Cell<'_>]) -> rusqlite::Result<()> {
        debug_assert_eq!(cells.len(), self.width, "a value for each column");
        let many = self.full > 0;
        let statement = if many { &mut self.many } else { &mut self.one };
        let first = self.given * self.width + 1;
        for (at, cell) in cells.iter().enumerate() {
            statement.raw_bind_parameter(first + at, cell)?;
        }
        if !many {
            return statement.raw_execute().map(|_| ());
        }
        self.given += 1;
        if self.given == ROWS {
            self.given = 0;
            self.full -= ROWS;
            self.many.raw_execute()?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Cell<'a> {
    Null,
    Int(i64),
    Real(f64),
    Text(&'a str),
}

use Cell::{Int, Null, Real, Text};

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Null => ValueRef::Null,
            Int(value) => ValueRef::Integer(*value),
            Real(value) => ValueRef::Real(*value),
            Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

const EVENT_COLUMNS: [&str; 8] =
    ["id", "category_id", "stack_id", "parent_stack_id", "correlation_id", "extdata", "call_stack", "line_info"];

const KERNEL_COLUMNS: [&str; 20] = [
    "nid",
    "pid",
    "tid",
    "agent_id",
    "kernel_id",
    "dispatch_id",
    "queue_id",
    "stream_id",
    "start",
    "end",
    "private_segment_size",
    "group_segment_size",
    "workgroup_size_x",
    "workgroup_size_y",
    "workgroup_size_z",
    "grid_size_x",
    "grid_size_y",
    "grid_size_z",
    "region_name_id",
    "event_id",
];

const COPY_COLUMNS: [&str; 13] = [
    "nid",
    "pid",
    "tid",
    "start",
    "end",
    "name_id",
    "dst_agent_id",
    "dst_address",
    "src_agent_id",
    "src_address",
    "size",
    "stream_id",
    "event_id",
];

const ALLOCATION_COLUMNS: [&str; 11] =
    ["nid", "pid", "tid", "agent_id", "type", "level", "start", "end", "address", "size", "event_id"];

/// Rows of one statement; SQLite takes 32 766 values, and beyond some tens of rows nothing is
/// gained.
const ROWS: usize = 64;

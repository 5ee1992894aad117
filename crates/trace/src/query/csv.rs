//! Databases of all ranks as the CSV files of `rocpd convert`: one file for each kind of event.
//!
//! Place in the flow: statements over [`Query`]; SQLite joins, sorts (on disk what exceeds its memory) and hands rows over one by one. Names, columns and
//! their order are those of rocprofv3's own writer, as its sources have them, and so are numbers that are not set (0) and quotes about all texts.
//! Rows are ordered by guid, start, and end from the latest. Otherwise than there, `"` in a text is doubled, the counters' first column is called
//! `Guid` as its content is, and `Host` and `Rank` come last where they are wanted.
//!
//! What it does not do: learn clocks ([`Query::open`]); describe agents (`agent_info.csv`).

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use probe_sync_files::{AtomicFile, NewFolders};
use serde::Serialize;

use self::Origin::{Agent, Allocator, Is, Number, Text};
use super::{Query, RowSink, Value};
use crate::Error;
use crate::formats::AgentIndex;

/// How the files are to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CsvSettings {
    /// How devices are numbered.
    pub agent_index: AgentIndex,
    /// Without the columns that rocprofv3 has not: `Host` and `Rank`.
    pub plain_columns: bool,
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CsvFile {
    /// Its name.
    pub path: PathBuf,
    /// How many events are in it.
    pub rows: u64,
}

impl Query {
    /// Writes a file for each kind of event that there is: `FOLDER/NAME_kernel_trace.csv` and its like. All appear once all are whole.
    ///
    /// # Errors
    /// A database that cannot be read, with table and row; a file that cannot be written. No file appears then.
    pub fn write_csv(&self, folder: &Path, name: &str, settings: &CsvSettings) -> Result<Vec<CsvFile>, Error> {
        let folders = NewFolders::create(folder).map_err(Error::io(folder, "create"))?;
        let mut written = Vec::new();
        for table in TABLES {
            let path = folder.join(format!("{name}_{}.csv", table.name));
            self.refuse_overwriting(path.clone())?;
            let mut rows =
                Rows { path: &path, columns: table.columns, settings, file: None, line: Vec::new(), count: 0 };
            self.run(&table.statement(settings), &mut rows)?;
            let Rows { file, count, .. } = rows;
            if let Some(file) = file {
                let file = file.into_inner().map_err(|error| Error::io(&path, "write")(error.into_error()))?;
                written.push((file, CsvFile { path, rows: count }));
            }
        }
        let mut files = Vec::new();
        for (file, of) in written {
            file.commit().map_err(Error::io(&of.path, "write"))?;
            files.push(of);
        }
        drop(folders);
        Ok(files)
    }
}

/// A kind of event.
struct Table {
    name: &'static str,
    /// A view of the profiler's.
    view: &'static str,
    /// Which of its rows; may be empty.
    condition: &'static str,
    /// Name of each column, and where it is from.
    columns: &'static [(&'static str, Origin)],
}

/// Where a cell is from, in SQL.
enum Origin {
    /// The same text everywhere.
    Is(&'static str),
    /// A text.
    Text(&'static str),
    /// A number; 0 where it is not set.
    Number(&'static str),
    /// A device, by the beginning of the names of three columns.
    Agent(&'static str),
    /// The device of an allocation; memory that is given back is no device's.
    Allocator,
}

impl Table {
    fn statement(&self, settings: &CsvSettings) -> String {
        let cells = self.columns.iter().map(|(_, from)| match from {
            Is(text) => format!("'{text}'"),
            Text(sql) => format!("coalesce({sql}, '')"),
            Number(sql) => format!("coalesce({sql}, 0)"),
            Agent(of) => agent(of, settings.agent_index),
            Allocator => format!("CASE type WHEN 'FREE' THEN '' ELSE {} END", agent("", settings.agent_index)),
        });
        let cells: Vec<String> = cells.collect();
        let Self { view, condition, .. } = self;
        format!(
            "SELECT {}, host, rank FROM {view} {condition} ORDER BY guid, start, \"end\" DESC, id",
            cells.join(", ")
        )
    }
}

/// The name of a device, in SQL.
fn agent(of: &str, index: AgentIndex) -> String {
    let (name, number) = match index {
        AgentIndex::Absolute => ("'Agent'", "abs"),
        AgentIndex::Relative => ("'Agent'", "log"),
        AgentIndex::TypeRelative => (&*format!("coalesce({of}agent_type, '')"), "type"),
    };
    format!("{name} || ' ' || coalesce({of}agent_{number}_index, 0)")
}

/// A file on its way; it begins with the first row.
struct Rows<'a> {
    path: &'a Path,
    columns: &'a [(&'static str, Origin)],
    settings: &'a CsvSettings,
    file: Option<BufWriter<AtomicFile>>,
    line: Vec<u8>,
    count: u64,
}

impl RowSink for Rows<'_> {
    fn columns(&mut self, _: &[String]) -> Result<(), Error> {
        Ok(())
    }

    fn row(&mut self, cells: &[Value<'_>]) -> Result<(), Error> {
        let failed = Error::io(self.path, "write");
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = AtomicFile::create(self.path).map_err(Error::io(self.path, "create"))?;
                let added: &[&str] = if self.settings.plain_columns { &[] } else { &["Host", "Rank"] };
                let names = self.columns.iter().map(|(name, _)| name).chain(added);
                let head: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
                let file = self.file.insert(BufWriter::new(file));
                writeln!(file, "{}", head.join(",")).map_err(Error::io(self.path, "write"))?;
                file
            }
        };
        self.count += 1;
        self.line.clear();
        let wanted = if self.settings.plain_columns { self.columns.len() } else { cells.len() };
        for (place, cell) in cells[..wanted].iter().enumerate() {
            if place > 0 {
                self.line.push(b',');
            }
            put(&mut self.line, *cell);
        }
        self.line.push(b'\n');
        file.write_all(&self.line).map_err(failed)
    }
}

/// A cell: texts in quotes, nothing for a host or a rank that is not known.
fn put(line: &mut Vec<u8>, cell: Value<'_>) {
    match cell {
        Value::Null => {}
        Value::Integer(number) => line.extend_from_slice(number.to_string().as_bytes()),
        Value::Real(number) => line.extend_from_slice(number.to_string().as_bytes()),
        Value::Text(text) | Value::Blob(text) => {
            line.push(b'"');
            for &byte in text {
                if byte == b'"' {
                    line.push(b'"');
                }
                line.push(byte);
            }
            line.push(b'"');
        }
    }
}

/// What a call of an interface has.
const CALL: &[(&str, Origin)] = &[
    ("Guid", Text("guid")),
    ("Domain", Text("category")),
    ("Function", Text("name")),
    ("Process_Id", Number("pid")),
    ("Thread_Id", Number("tid")),
    ("Correlation_Id", Number("stack_id")),
    ("Start_Timestamp", Number("start")),
    ("End_Timestamp", Number("\"end\"")),
];

/// A marker's name is what it says.
const MARKER: &[(&str, Origin)] = &[
    ("Guid", Text("guid")),
    ("Domain", Text("category")),
    ("Function", Text(MESSAGE)),
    ("Process_Id", Number("pid")),
    ("Thread_Id", Number("tid")),
    ("Correlation_Id", Number("stack_id")),
    ("Start_Timestamp", Number("start")),
    ("End_Timestamp", Number("\"end\"")),
];
const MESSAGE: &str =
    "CASE WHEN json_valid(extdata) THEN coalesce(nullif(extdata ->> '$.message', ''), name) ELSE name END";

const fn calls(name: &'static str, condition: &'static str) -> Table {
    Table { name, view: "regions", condition, columns: CALL }
}

const TABLES: &[Table] = &[
    Table {
        name: "kernel_trace",
        view: "kernels",
        condition: "",
        columns: &[
            ("Guid", Text("guid")),
            ("Kind", Is("KERNEL_DISPATCH")),
            ("Agent_Id", Agent("")),
            ("Queue_Id", Number("queue_id")),
            ("Stream_Id", Number("stream_id")),
            ("Thread_Id", Number("tid")),
            ("Dispatch_Id", Number("dispatch_id")),
            ("Kernel_Id", Number("kernel_id")),
            ("Kernel_Name", Text("name")),
            ("Correlation_Id", Number("stack_id")),
            ("Start_Timestamp", Number("start")),
            ("End_Timestamp", Number("\"end\"")),
            ("LDS_Block_Size", Number("lds_size")),
            ("Scratch_Size", Number("scratch_size")),
            ("VGPR_Count", Number("vgpr_count")),
            ("Accum_VGPR_Count", Number("accum_vgpr_count")),
            ("SGPR_Count", Number("sgpr_count")),
            ("Workgroup_Size_X", Number("workgroup_x")),
            ("Workgroup_Size_Y", Number("workgroup_y")),
            ("Workgroup_Size_Z", Number("workgroup_z")),
            ("Grid_Size_X", Number("grid_x")),
            ("Grid_Size_Y", Number("grid_y")),
            ("Grid_Size_Z", Number("grid_z")),
        ],
    },
    Table {
        name: "memory_copy_trace",
        view: "memory_copies",
        condition: "",
        columns: &[
            ("Guid", Text("guid")),
            ("Kind", Is("MEMORY_COPY")),
            ("Direction", Text("name")),
            ("Stream_Id", Number("stream_id")),
            ("Source_Agent_Id", Agent("src_")),
            ("Destination_Agent_Id", Agent("dst_")),
            ("Correlation_Id", Number("stack_id")),
            ("Start_Timestamp", Number("start")),
            ("End_Timestamp", Number("\"end\"")),
        ],
    },
    Table {
        name: "memory_allocation_trace",
        view: "memory_allocations",
        condition: "",
        columns: &[
            ("Guid", Text("guid")),
            ("Kind", Is("MEMORY_ALLOCATION")),
            ("Operation", Text("'MEMORY_ALLOCATION_' || type")),
            ("Agent_Id", Allocator),
            ("Allocation_Size", Number("size")),
            ("Address", Text("printf('0x%016x', coalesce(address, 0))")),
            ("Correlation_Id", Number("stack_id")),
            ("Start_Timestamp", Number("start")),
            ("End_Timestamp", Number("\"end\"")),
        ],
    },
    Table {
        name: "scratch_memory_trace",
        view: "scratch_memory",
        condition: "",
        columns: &[
            ("Kind", Is("SCRATCH_MEMORY")),
            ("Operation", Text("'SCRATCH_MEMORY_' || operation")),
            ("Agent_Id", Agent("")),
            ("Queue_Id", Number("queue_id")),
            ("Thread_Id", Number("tid")),
            ("Alloc_Flags", Text("alloc_flags")),
            ("Start_Timestamp", Number("start")),
            ("End_Timestamp", Number("\"end\"")),
        ],
    },
    calls("hip_api_trace", "WHERE category GLOB 'HIP_*'"),
    calls("hsa_api_trace", "WHERE category GLOB 'HSA_*'"),
    Table {
        name: "marker_api_trace",
        view: "regions_and_samples",
        condition: "WHERE category GLOB 'MARKER_*'",
        columns: MARKER,
    },
    calls("rccl_api_trace", "WHERE category GLOB 'RCCL_*'"),
    calls("rocdecode_api_trace", "WHERE category GLOB 'ROCDECODE_*'"),
    calls("rocjpeg_api_trace", "WHERE category GLOB 'ROCJPEG_*'"),
    Table {
        name: "counter_collection",
        view: "counters_collection",
        condition: "",
        columns: &[
            ("Guid", Text("guid")),
            ("Correlation_Id", Number("stack_id")),
            ("Dispatch_Id", Number("dispatch_id")),
            ("Agent_Id", Agent("")),
            ("Queue_Id", Number("queue_id")),
            ("Process_Id", Number("pid")),
            ("Thread_Id", Number("tid")),
            ("Grid_Size", Number("grid_size")),
            ("Kernel_Id", Number("kernel_id")),
            ("Kernel_Name", Text("kernel_name")),
            ("Workgroup_Size", Number("workgroup_size")),
            ("LDS_Block_Size", Number("lds_block_size")),
            ("Scratch_Size", Number("scratch_size")),
            ("VGPR_Count", Number("vgpr_count")),
            ("Accum_VGPR_Count", Number("accum_vgpr_count")),
            ("SGPR_Count", Number("sgpr_count")),
            ("Counter_Name", Text("counter_name")),
            ("Counter_Value", Number("value")),
            ("Start_Timestamp", Number("start")),
            ("End_Timestamp", Number("\"end\"")),
        ],
    },
];

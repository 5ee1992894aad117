//! The flags of `query`.
//!
//! Place in the flow: under `args`. What it does not do: ask.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::status::help;
use crate::trace_args::{AsTheyAreArgs, TraceArgs, WindowArgs};

/// Ask the databases of rocprofv3 of all ranks one SQL query, on the reference clock; nothing is copied
#[derive(Args, Debug)]
#[command(after_long_help = help())]
pub struct QueryArgs {
    /// What to ask: databases of rocprofv3, or folders with databases
    #[command(flatten)]
    pub input: TraceArgs,
    /// The statement. Tables are those of one database without the ids in their names (rocpd_kernel_dispatch), and the profiler's views
    /// (kernels); each row begins with host, rank and file
    #[arg(long, value_name = "SELECT")]
    pub sql: String,
    /// How rows are written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: Format,
    /// Write one JSON document: schema number (docs/schemas), the clock of times, the names of columns, and the rows as with --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Where rows are written [default: standard output]
    #[arg(short = 'o', long = "output", visible_alias = "out", value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub as_they_are: AsTheyAreArgs,
    /// CSV: without the apostrophe before texts that a spreadsheet would run as formulas (=, +, -, @)
    #[arg(long)]
    pub raw_cells: bool,
    /// Give up a statement that takes longer, as 30s or 5min
    #[arg(long, value_name = "TIME", value_parser = probe_sync::config::duration)]
    pub timeout: Option<probe_sync_time::Duration>,
    #[command(flatten)]
    pub window: WindowArgs,
}

/// How rows are written.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns in line, for people; long cells are cut
    Table,
    /// RFC 4180: NULL is empty, bytes are hexadecimal digits
    Csv,
    /// An array of objects, one on each line; bytes are hexadecimal digits
    Json,
}

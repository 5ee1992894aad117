//! The flags of `query`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::status::help;
use crate::trace_args::{AsTheyAreArgs, TraceArgs, WindowArgs};

/// Run one SQL query over the rocprofv3 databases of all ranks, on the reference clock and without
/// copying them
#[derive(Args, Debug)]
#[command(after_long_help = help())]
pub struct QueryArgs {
    /// Databases of rocprofv3, or folders of databases
    #[command(flatten)]
    pub input: TraceArgs,
    /// The SQL statement. It sees the tables of a database, without the ids in their names
    /// (rocpd_kernel_dispatch), and the profiler's views (kernels); each row begins with host, rank
    /// and file
    #[arg(long, value_name = "SELECT")]
    pub sql: String,
    /// Output format of the rows
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: Format,
    /// Write one JSON document: schema number (docs/schemas), the clock of the times, the column
    /// names, and the rows as with --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// File to write the rows to [default: standard output]
    #[arg(short = 'o', long = "output", visible_alias = "out", value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub as_they_are: AsTheyAreArgs,
    /// CSV: omit the apostrophe before text that a spreadsheet would run as a formula (=, +, -, @)
    #[arg(long)]
    pub raw_cells: bool,
    /// Abort a statement that takes longer than this, for example 30s or 5min
    #[arg(long, value_name = "TIME", value_parser = probe_sync::config::duration)]
    pub timeout: Option<probe_sync_time::Duration>,
    #[command(flatten)]
    pub window: WindowArgs,
}

/// Output format of the rows.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns, for people; long cells are truncated
    Table,
    /// RFC 4180; NULL is empty and bytes are hexadecimal digits
    Csv,
    /// An array of objects, one per line; bytes are hexadecimal digits
    Json,
}

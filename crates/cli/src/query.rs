//! `query`, which runs one SQL statement over the databases of all ranks and prints the rows as a
//! table, CSV or JSON.
//!
//! Clocks are learnt as `align` learns them. Rows are written as they come, so that memory does not
//! grow with the result.

use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;

use anyhow::Context as _;
use probe_sync_analysis::Error;
use probe_sync_analysis::query::{Query, QuerySettings, RowSink, Value};
use probe_sync_files::AtomicFile;
use probe_sync_formats::Error as TraceError;
use probe_sync_formats::words::is_formula;
use probe_sync_lines::is_invisible;

use crate::query_args::{Format, QueryArgs};
use crate::traces::request;

/// Runs the query, and writes the rows.
///
/// # Errors
/// Names the database, the statement or the output; an incomplete file does not appear.
pub fn run(arguments: &QueryArgs) -> anyhow::Result<()> {
    let outputs: Vec<PathBuf> = arguments.out.iter().cloned().collect();
    let request = request(&arguments.input, &outputs)?;
    let settings = QuerySettings {
        own_clocks: arguments.as_they_are.no_correction,
        window: arguments.window.window(),
        timeout: arguments.timeout.map(probe_sync_time::Duration::to_std),
        ..QuerySettings::default()
    };
    let query = Query::open(&request, &settings)?;
    for note in &query.notes {
        tracing::info!("{note}");
    }
    for warning in &query.warnings {
        tracing::warn!("{warning}");
    }
    match &arguments.out {
        Some(path) => {
            query.refuse_overwriting(path.clone())?;
            let file = AtomicFile::create(path).with_context(|| format!("cannot create {}", path.display()))?;
            let file = write(&query, arguments, file).with_context(|| format!("cannot write {}", path.display()))?;
            file.commit().with_context(|| format!("cannot write {}", path.display()))?;
        }
        None => match write(&query, arguments, std::io::stdout().lock()) {
            // Whoever reads has seen enough, as under `| head`.
            Err(error) if is_closed(&error) => {}
            done => drop(done?),
        },
    }
    let (files, open) = query.files();
    tracing::info!("queried {files} databases, {open} of them open at once; times are on {}", query.timeline);
    Ok(())
}

/// Runs the statement into a sink, and returns the sink when everything is written.
fn write<W: Write>(query: &Query, arguments: &QueryArgs, to: W) -> anyhow::Result<W> {
    let mut rows = Rows {
        to: BufWriter::new(to),
        format: if arguments.json { Format::Json } else { arguments.format },
        raw_cells: arguments.raw_cells,
        document_on: arguments.json.then(|| query.timeline.to_string()),
        names: Vec::new(),
        held: Vec::new(),
        widths: Vec::new(),
        count: 0,
    };
    query.run(&arguments.sql, &mut rows)?;
    rows.finish().map_err(unwritten)?;
    rows.to.into_inner().map_err(|error| unwritten(error.into_error()).into())
}

fn unwritten(source: std::io::Error) -> Error {
    TraceError::Sink { source }.into()
}

fn is_closed(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Trace(TraceError::Sink { source })) if source.kind() == ErrorKind::BrokenPipe)
}

/// Rows being written.
struct Rows<W: Write> {
    to: BufWriter<W>,
    format: Format,
    raw_cells: bool,
    /// The rows are part of a document, whose times are on this clock.
    document_on: Option<String>,
    names: Vec<String>,
    /// Of a table: the first rows, until they determine the column widths.
    held: Vec<Vec<String>>,
    widths: Vec<usize>,
    count: u64,
}

impl<W: Write> RowSink for Rows<W> {
    fn columns(&mut self, names: &[String]) -> Result<(), Error> {
        self.names = names.to_vec();
        match self.format {
            Format::Table => Ok(()),
            Format::Csv => self.csv(&names.iter().map(|name| Value::Text(name.as_bytes())).collect::<Vec<_>>()),
            Format::Json => {
                if let Some(name) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
                    let flag = if self.document_on.is_some() { "--json" } else { "--format json" };
                    let problem = format!("{flag}: two columns are named {}; rename one with AS", name.1);
                    return Err(Error::Request { problem });
                }
                match &self.document_on {
                    Some(timeline) => document_begins(&mut self.to, timeline, names),
                    None => self.to.write_all(b"["),
                }
            }
        }
        .map_err(unwritten)
    }

    fn row(&mut self, cells: &[Value<'_>]) -> Result<(), Error> {
        self.count += 1;
        match self.format {
            Format::Table => self.line(cells.iter().map(|cell| shown(*cell)).collect()),
            Format::Csv => self.csv(cells),
            Format::Json => self.json(cells),
        }
        .map_err(unwritten)
    }
}

impl<W: Write> Rows<W> {
    /// Writes what follows the last row.
    fn finish(&mut self) -> std::io::Result<()> {
        match self.format {
            Format::Table if self.widths.is_empty() => self.table_begins(),
            Format::Json => {
                self.to.write_all(if self.count > 0 { b"\n]" } else { b"]" })?;
                self.to.write_all(if self.document_on.is_some() { b"}\n" } else { b"\n" })
            }
            _ => Ok(()),
        }?;
        self.to.flush()
    }

    /// Writes a row of a table; the first ones are held until the widths are known.
    fn line(&mut self, cells: Vec<String>) -> std::io::Result<()> {
        if !self.widths.is_empty() {
            return self.cells(&cells);
        }
        self.held.push(cells);
        if self.held.len() == HELD { self.table_begins() } else { Ok(()) }
    }

    fn table_begins(&mut self) -> std::io::Result<()> {
        let held = std::mem::take(&mut self.held);
        let names: Vec<String> = self.names.iter().map(|name| cut(name)).collect();
        let width = |at: usize| {
            let rows = held.iter().chain([&names]);
            rows.map(|row| row[at].chars().count()).max().unwrap_or(0)
        };
        self.widths = (0..names.len()).map(width).collect();
        self.cells(&names)?;
        let lines: Vec<String> = self.widths.iter().map(|width| "-".repeat(*width)).collect();
        self.cells(&lines)?;
        held.iter().try_for_each(|row| self.cells(row))
    }

    fn cells(&mut self, cells: &[String]) -> std::io::Result<()> {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&self.widths) {
            line.push_str(cell);
            let missing = width.saturating_sub(cell.chars().count()) + BETWEEN;
            line.extend(std::iter::repeat_n(' ', missing));
        }
        writeln!(self.to, "{}", line.trim_end())
    }

    fn csv(&mut self, cells: &[Value<'_>]) -> std::io::Result<()> {
        for (at, cell) in cells.iter().enumerate() {
            if at > 0 {
                self.to.write_all(b",")?;
            }
            let guarded;
            let cell = match cell {
                Value::Text(bytes) if !self.raw_cells && is_formula(bytes) => {
                    guarded = [b"'", *bytes].concat();
                    &Value::Text(&guarded)
                }
                other => other,
            };
            match cell {
                Value::Text(bytes) if bytes.iter().any(|byte| b",\"\r\n".contains(byte)) || bytes.is_empty() => {
                    self.to.write_all(b"\"")?;
                    for (part, piece) in bytes.split(|byte| *byte == b'"').enumerate() {
                        self.to.write_all(if part > 0 { b"\"\"" } else { b"" })?;
                        self.to.write_all(piece)?;
                    }
                    self.to.write_all(b"\"")?;
                }
                Value::Text(bytes) => self.to.write_all(bytes)?,
                Value::Null => {}
                other => self.to.write_all(text(*other).as_bytes())?,
            }
        }
        self.to.write_all(b"\r\n")
    }

    fn json(&mut self, cells: &[Value<'_>]) -> std::io::Result<()> {
        self.to.write_all(if self.count > 1 { b",\n{" } else { b"\n{" })?;
        for (at, (cell, name)) in cells.iter().zip(&self.names).enumerate() {
            if at > 0 {
                self.to.write_all(b",")?;
            }
            serde_json::to_writer(&mut self.to, name)?;
            self.to.write_all(b":")?;
            match cell {
                Value::Null => self.to.write_all(b"null")?,
                // JSON has no infinite number; SQLite writes one so, and a document has null.
                Value::Real(number) if number.is_infinite() && self.document_on.is_some() => {
                    self.to.write_all(b"null")?;
                }
                Value::Real(number) if number.is_infinite() => {
                    self.to.write_all(if *number > 0.0 { b"9e999" } else { b"-9e999" })?;
                }
                Value::Integer(_) | Value::Real(_) => self.to.write_all(text(*cell).as_bytes())?,
                Value::Text(_) | Value::Blob(_) => serde_json::to_writer(&mut self.to, &text(*cell))?,
            }
        }
        self.to.write_all(b"}")
    }
}

/// Writes a document up to its rows; its closing brackets follow them.
fn document_begins(to: &mut impl Write, timeline: &str, columns: &[String]) -> std::io::Result<()> {
    let empty = serde_json::to_string(&crate::documents::Query { schema: 1, timeline, columns, rows: &[] })?;
    to.write_all(empty.strip_suffix("]}").expect("its rows are last").as_bytes())
}

/// A cell as text; bytes as hexadecimal digits, and U+FFFD for invalid UTF-8.
fn text(value: Value<'_>) -> String {
    match value {
        Value::Null => String::new(),
        Value::Integer(number) => number.to_string(),
        // With a point, so that it stays a number with one.
        Value::Real(number) => format!("{number:?}"),
        Value::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// A cell of a table for people.
fn shown(value: Value<'_>) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Blob(bytes) if bytes.len() > CELL / 2 => cut(&text(Value::Blob(&bytes[..CELL]))),
        other => cut(&text(other)),
    }
}

/// One line of limited length, without control characters.
fn cut(text: &str) -> String {
    let plain = |c: char| if is_invisible(c) { '\u{fffd}' } else { c };
    let mut line: String = text.chars().take(CELL + 1).map(plain).collect();
    if line.chars().count() > CELL {
        line = line.chars().take(CELL - 1).chain(['…']).collect();
    }
    line
}

/// Number of rows that determine the column widths of a table.
const HELD: usize = 256;
/// Widest column of a table, in characters, and the gap between two columns.
const CELL: usize = 64;
const BETWEEN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: Format, rows: &[&[Value<'_>]], expected: &str) {
        let names = ["a", "b,\"c\""].map(str::to_owned);
        let mut sink = Rows {
            to: BufWriter::new(Vec::new()),
            format,
            raw_cells: false,
            document_on: None,
            names: vec![],
            held: vec![],
            widths: vec![],
            count: 0,
        };
        sink.columns(&names).expect("memory");
        rows.iter().for_each(|row| sink.row(row).expect("memory"));
        sink.finish().expect("memory");
        let written = sink.to.into_inner().expect("memory");
        assert_eq!(String::from_utf8_lossy(&written), expected, "{format:?}");
    }

    #[test]
    fn rows_of_every_type_are_written_in_every_format() {
        let rows: [&[Value<'_>]; 3] = [
            &[Value::Integer(i64::MIN), Value::Text(b"x\"y\r\n,\xff")],
            &[Value::Real(2.0), Value::Blob(&[0, 0xab])],
            &[Value::Null, Value::Text(b"")],
        ];
        let csv = "a,\"b,\"\"c\"\"\"\r\n-9223372036854775808,\"x\"\"y\r\n,\u{fffd}\"\r\n2.0,00ab\r\n,\"\"\r\n";
        check(Format::Csv, &rows, csv);
        let formulas: [&[Value<'_>]; 1] = [&[Value::Text(b"=1+1,2"), Value::Text(b"-2.5")]];
        check(Format::Csv, &formulas, "a,\"b,\"\"c\"\"\"\r\n\"'=1+1,2\",-2.5\r\n");
        let json = "[\n{\"a\":-9223372036854775808,\"b,\\\"c\\\"\":\"x\\\"y\\r\\n,\u{fffd}\"},\n{\"a\":2.0,\"b,\\\"c\\\"\":\"00ab\"},\n\
            {\"a\":null,\"b,\\\"c\\\"\":\"\"}\n]\n";
        check(Format::Json, &rows, json);
        let table = "a                     b,\"c\"\n--------------------  -------\n-9223372036854775808  x\"y\u{fffd}\u{fffd},\u{fffd}\n\
            2.0                   00ab\nNULL\n";
        check(Format::Table, &rows, table);
        check(Format::Json, &[], "[]\n");
        check(Format::Table, &[], "a  b,\"c\"\n-  -----\n");
    }

    #[test]
    fn long_cells_of_a_table_are_cut() {
        assert_eq!(cut(&"x".repeat(CELL)).chars().count(), CELL);
        assert!(cut(&"x".repeat(CELL + 1)).ends_with("x…"));
        assert_eq!(shown(Value::Blob(&[0; 1000])).chars().count(), CELL);
    }

    #[test]
    fn two_columns_of_one_name_are_no_json() {
        let mut sink = Rows {
            to: BufWriter::new(Vec::new()),
            format: Format::Json,
            raw_cells: false,
            document_on: None,
            names: vec![],
            held: vec![],
            widths: vec![],
            count: 0,
        };
        let refused = sink.columns(&["a".to_owned(), "a".to_owned()]).expect_err("an error");
        assert!(refused.to_string().contains("two columns are named a"), "{refused}");
    }
}

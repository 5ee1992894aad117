//! Writes the databases of all ranks as the CSV files of `rocpd convert`: one file per kind of
//! event.
//!
//! Statements run over the processes of a [`Query`], several at once ([`One`]); SQLite joins, sorts
//! (on disk beyond its memory limit) and returns rows one by one. The rows of a process wait in an
//! unnamed file until it is its turn. Names, columns and their order are those of rocprofv3's own
//! writer, according to its sources, as are unset numbers (0) and quotes around all texts. Rows are
//! ordered by guid, by start, and by end with the latest first. There are three differences: `"` in
//! a text is doubled, the counters' first column is called `Guid` because it contains the guid, and
//! `Host` and `Rank` come last if requested.
//!
//! It does not calibrate clocks; [`Query::open`] does.

use std::fs::File;
use std::io::{BufWriter, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Error;
use probe_sync_alignment::CsvFile;
use probe_sync_alignment::window::keeps;
use probe_sync_files::{AtomicFile, NewFolders};
use probe_sync_formats::rocpd::aligned;
use probe_sync_formats::words::is_formula;
use probe_sync_formats::{Stages, in_order};
use probe_sync_rocpd::schema::View;

use super::csv_tables::{AGENTS, CsvSettings, TABLES, Table};
use super::one::One;
use super::pool::Pool;
use super::tables::Process;
use super::{Query, Value};

impl Query {
    /// Writes one file for each kind of event that occurs: `FOLDER/NAME_kernel_trace.csv` and
    /// similar. All appear once all are complete.
    ///
    /// # Errors
    /// Returns an error if the databases are not on one clock, if one cannot be read, with table
    /// and row, or if a file cannot be written. No file appears then.
    pub fn write_csv(&self, folder: &Path, name: &str, settings: &CsvSettings) -> Result<Vec<CsvFile>, Error> {
        if let Some(reason) = &self.apart {
            return Err(Error::Request { problem: reason.to_string() });
        }
        let folders = NewFolders::create(folder).map_err(Error::io(folder, "create"))?;
        let path = |table: &Table| folder.join(format!("{name}_{}.csv", table.name));
        TABLES.iter().try_for_each(|table| self.refuse_overwriting(path(table)))?;
        let mut processes: Vec<&Process> = self.processes.iter().collect();
        processes.sort_by(|one, other| one.guid.cmp(&other.guid));
        let whole = TABLES.iter().map(|table| Whole { path: path(table), file: None, rows: 0 }).collect();
        let mut assembling = Assembling { processes: processes.into_iter(), whole, settings };
        let segments = Segments {
            pool: &self.pool,
            tables: &self.tables,
            views: &self.views,
            window: self.window,
            settings,
            folder,
        };
        in_order(&mut assembling, |process| segments.of(process))?;
        let mut written = Vec::new();
        for Whole { path, file, rows } in assembling.whole {
            if let Some(file) = file {
                let file = file.into_inner().map_err(|error| Error::io(&path, "write")(error.into_error()))?;
                written.push((file, CsvFile { path, rows }));
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

/// A file on its way; it begins with the first row of any process.
struct Whole {
    path: PathBuf,
    file: Option<BufWriter<AtomicFile>>,
    rows: u64,
}

/// Processes in the order of their guids, by which all rows are ordered first.
struct Assembling<'a> {
    processes: std::vec::IntoIter<&'a Process>,
    /// By kind of event.
    whole: Vec<Whole>,
    settings: &'a CsvSettings,
}

impl<'a> Stages for &mut Assembling<'a> {
    type Given = &'a Process;
    type Made = Result<Vec<Segment>, Error>;
    type Error = Error;

    fn next(&mut self) -> Result<Option<&'a Process>, Error> {
        Ok(self.processes.next())
    }

    fn take(&mut self, made: Self::Made) -> Result<(), Error> {
        for Segment { kind, mut file, rows } in made? {
            let whole = &mut self.whole[kind];
            let failed = |doing| Error::io(&whole.path, doing);
            let out = match &mut whole.file {
                Some(out) => out,
                None => {
                    let out = AtomicFile::create(&whole.path).map_err(failed("create"))?;
                    let out = whole.file.insert(BufWriter::with_capacity(BUFFER, out));
                    TABLES[kind].put_head(self.settings, out).map_err(failed("write"))?;
                    out
                }
            };
            file.rewind().and_then(|()| std::io::copy(&mut file, out)).map_err(failed("write"))?;
            whole.rows += rows;
        }
        Ok(())
    }
}

/// The rows of one process and kind, in a file without a name.
struct Segment {
    kind: usize,
    file: File,
    rows: u64,
}

/// Creates segments, on any thread: it does not contain the query's connection.
struct Segments<'a> {
    pool: &'a Pool,
    tables: &'a [Arc<super::Table>],
    views: &'a [View],
    window: Option<([i64; 2], bool)>,
    settings: &'a CsvSettings,
    folder: &'a Path,
}

impl Segments<'_> {
    /// All rows of a process.
    fn of(&self, process: &Process) -> Result<Vec<Segment>, Error> {
        let one = One::open(self.pool, self.tables, self.views, process)?;
        let mut segments = Vec::new();
        for (kind, table) in TABLES.iter().enumerate() {
            let is_there = table.view == AGENTS || self.views.iter().any(|view| view.name == table.view);
            if is_there && let Some((file, rows)) = self.rows(&one, process, table)? {
                segments.push(Segment { kind, file, rows });
            }
        }
        one.file.expect_unchanged()?;
        Ok(segments)
    }

    /// The rows of one kind; `None` if there are none.
    fn rows(&self, one: &One<'_>, process: &Process, table: &Table) -> Result<Option<(File, u64)>, Error> {
        let wrong = |problem: rusqlite::Error| one.file.wrong(table.view, &problem);
        let mut statement = one.connection.prepare(&table.statement(self.settings)).map_err(wrong)?;
        let mut rows = statement.query([]).map_err(wrong)?;
        let tail = self.tail(process);
        let times = [START, END].map(|name| table.columns.iter().position(|(known, _)| *known == name));
        let (mut file, mut count, mut line) = (None, 0, Vec::new());
        while let Some(row) = rows.next().map_err(wrong)? {
            let mut mapped = [None; 2];
            for (time, place) in mapped.iter_mut().zip(times) {
                let (Some(place), Some(map)) = (place, one.map) else { continue };
                let cell = row.get_ref(place).map_err(wrong)?;
                *time = aligned(cell, &mut |time| map.map(time).time_ps).map_err(|problem| {
                    one.file.refused(table.view, row.get(table.columns.len()).unwrap_or_default(), &problem)
                })?;
            }
            line.clear();
            let mut span = [0; 2];
            for place in 0..table.columns.len() {
                if place > 0 {
                    line.push(b',');
                }
                let time = times.iter().position(|time| *time == Some(place));
                let cell = Value::from(row.get_ref(place).map_err(wrong)?);
                let cell = time.and_then(|time| mapped[time]).map_or(cell, Value::Integer);
                if let (Some(time), Value::Integer(ns)) = (time, cell) {
                    span[time] = ns;
                }
                put(&mut line, cell, self.settings.raw_cells);
            }
            if !self.is_wanted(table, span) {
                continue;
            }
            line.extend_from_slice(&tail);
            let failed = Error::io(self.folder, "write");
            let out = match &mut file {
                Some(out) => out,
                None => {
                    let made =
                        tempfile::tempfile_in(self.folder).map_err(Error::io(self.folder, "create a file in"))?;
                    file.insert(BufWriter::with_capacity(BUFFER, made))
                }
            };
            out.write_all(&line).map_err(failed)?;
            count += 1;
        }
        let file = file.map(BufWriter::into_inner).transpose();
        let file = file.map_err(|error| Error::io(self.folder, "write")(error.into_error()))?;
        Ok(file.map(|file| (file, count)))
    }

    /// Whether a row is in the window. An event that was not ended, or has no time, is in no
    /// window.
    fn is_wanted(&self, table: &Table, [start, end]: [i64; 2]) -> bool {
        let Some((window, inclusive)) = self.window.filter(|_| table.view != AGENTS) else { return true };
        start != 0 && end != 0 && keeps(window, inclusive, start, end)
    }

    /// The end of every line of a process.
    fn tail(&self, process: &Process) -> Vec<u8> {
        let mut tail = Vec::new();
        if !self.settings.plain_columns {
            tail.push(b',');
            let host = process.host.as_ref().map_or(Value::Null, |host| Value::Text(host.as_bytes()));
            put(&mut tail, host, self.settings.raw_cells);
            tail.push(b',');
            put(&mut tail, process.rank.map_or(Value::Null, |rank| Value::Integer(rank.into())), true);
        }
        tail.push(b'\n');
        tail
    }
}

/// A cell: texts in quotes, nothing for a host or a rank that is not known.
fn put(line: &mut Vec<u8>, cell: Value<'_>, raw: bool) {
    match cell {
        Value::Null => {}
        Value::Integer(number) => put_text(line, format_args!("{number}")),
        Value::Real(number) => put_text(line, format_args!("{number}")),
        Value::Text(text) | Value::Blob(text) => {
            line.push(b'"');
            if !raw && is_formula(text) {
                line.push(b'\'');
            }
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

fn put_text(line: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    line.write_fmt(text).expect("memory takes everything");
}

/// The columns that are times.
const START: &str = "Start_Timestamp";
const END: &str = "End_Timestamp";
const BUFFER: usize = 256 << 10;

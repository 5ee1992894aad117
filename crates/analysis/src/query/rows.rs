//! The rows of a table over all processes, as a virtual table returns them.
//!
//! SQLite asks [`Source`] which conditions help, and takes rows from a cursor. Guid, host, rank and
//! file select the process, and the id selects a row in it. A cursor reads a few rows at a time and
//! keeps no statement open, so that `pool` may close any file in between. Rows with adjacent ids
//! are read together and cached ([`Lookups`]), because a view looks up the same few names for each
//! of its rows.
//!
//! Conditions on times are not passed on: a map may hold times back, so its inverse is no single
//! time. It may return rows that a statement does not want; SQLite evaluates its conditions again.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};

use crate::Error;
use foldhash::fast::FixedState;
use probe_sync_alignment::window::keeps;
use probe_sync_estimate::series::TimeMap;
use probe_sync_formats::rocpd::aligned;
use probe_sync_rocpd::schema::quoted;
use probe_sync_sys::virtual_table::{self, Plan};
use rusqlite::types::ValueRef;

use super::blocks::{Block, Cell, Lookups};
use super::pool::{Failure, Pool};
use super::tables::{ADDED, OfProcess, Table};

/// A table over all processes.
pub(super) struct Source {
    table: Arc<Table>,
    /// First and last wanted time, ns, and whether an event must lie entirely between them.
    window: Option<([i64; 2], bool)>,
    /// Why times must not be queried, if they are on several clocks.
    apart: Option<Arc<str>>,
    pool: Arc<Pool>,
    failure: Failure,
    /// Index of the part of each process.
    by_guid: HashMap<Box<[u8]>, usize, FixedState>,
}

/// Rows being handed out.
struct Cursor {
    source: Arc<Source>,
    /// The requested columns and, by column of the table, their position in a block.
    wanted: Vec<usize>,
    places: Vec<Option<usize>>,
    asked: u64,
    /// By part: the statement that reads it.
    statements: HashMap<usize, Rc<Reading>>,
    /// Remaining parts, next one last.
    parts: Vec<usize>,
    part: usize,
    /// The only row wanted of each part.
    id: Option<i64>,
    block: Rc<Block>,
    row: usize,
    ended: bool,
    lookups: Lookups,
}

/// How a part is read.
struct Reading {
    scan: String,
    range: String,
    /// By position in the values read: whether it is a time.
    times: Vec<bool>,
    /// Positions of start and end of an event in the values read, if the table has them.
    span: Option<[usize; 2]>,
    has_guid: bool,
}

impl Source {
    pub(super) fn new(
        table: Arc<Table>,
        window: Option<([i64; 2], bool)>,
        apart: Option<Arc<str>>,
        (pool, failure): (Arc<Pool>, Failure),
    ) -> Self {
        // What describes has no place in time.
        let window = window.filter(|_| !table.base.starts_with(INFO));
        let guids = table.parts.iter().map(|part| part.process.guid.as_bytes().into());
        let by_guid = guids.zip(0..).collect();
        Self { table, window, apart, pool, failure, by_guid }
    }

    /// The part of the process of this guid. A guid is text: no other value is equal to it but a
    /// number that SQLite writes so.
    fn of_guid(&self, guid: ValueRef<'_>) -> Option<usize> {
        match guid {
            ValueRef::Text(guid) => self.by_guid.get(guid).copied(),
            ValueRef::Integer(number) => self.by_guid.get(number.to_string().as_bytes()).copied(),
            ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => None,
        }
    }

    /// What a condition on this column selects by.
    fn choice(&self, column: usize) -> Option<char> {
        let own = column.checked_sub(ADDED.len());
        let name = own.map_or(ADDED[column.min(ADDED.len() - 1)], |own| self.table.columns[own].0.as_str());
        CHOICES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, letter)| *letter)
    }

    /// Approximate rows of a process: plans need the order of magnitude.
    fn rows_of_part(&self) -> f64 {
        match self.table.base.as_str() {
            base if base.starts_with(INFO) => 100.0,
            "rocpd_string" | "rocpd_track" | "rocpd_metadata" => 1e3,
            _ => 1e6,
        }
    }

    /// A row that no number of 63 bits tells from those of all other parts.
    fn unnumbered(&self, at: usize, number: i64) -> rusqlite::Error {
        let of = &self.table.parts[at];
        let problem = "rows with this number cannot be distinguished across files; query without OR, or with UNION";
        self.fail(self.pool.file(of.file).refused(&of.part.name, number, problem))
    }

    fn fail(&self, error: impl Into<Error>) -> rusqlite::Error {
        let error = error.into();
        let text = error.to_string();
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        rusqlite::Error::ModuleError(text)
    }

    /// How a part is read if these columns of the table are requested.
    fn reading(&self, part: &OfProcess, wanted: &[usize]) -> Reading {
        let OfProcess { part, .. } = part;
        let place = |name: &str| part.columns.iter().position(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut columns: Vec<Option<usize>> = wanted.iter().map(|own| place(&self.table.columns[*own].0)).collect();
        let start = place("start").or_else(|| place("timestamp"));
        let end = place("end").or_else(|| place("timestamp"));
        let span = self.window.and(start.zip(end)).map(|(start, end)| {
            columns.extend([Some(start), Some(end)]);
            [columns.len() - 2, columns.len() - 1]
        });
        let names: String = columns.iter().fold(String::new(), |mut names, column| {
            let name = column.map_or_else(|| "NULL".to_owned(), |column| quoted(&part.columns[column].0));
            // A String takes everything.
            let _ = write!(names, ", {name}");
            names
        });
        let guid = place("guid").map(|column| quoted(&part.columns[column].0));
        let has_guid = guid.is_some();
        let same = guid.map_or_else(|| "1".to_owned(), |guid| format!("{guid} = ?3"));
        let row = quoted(&part.row);
        // A damaged index would hide rows.
        let select = format!("SELECT {row}, {same}{names} FROM {} NOT INDEXED WHERE {row}", quoted(&part.name));
        Reading {
            scan: format!("{select} >= ?1 AND {row} <= ?2 ORDER BY {row} LIMIT {ROWS}"),
            range: format!("{select} BETWEEN ?1 AND ?2 ORDER BY {row}"),
            times: columns.iter().map(|column| column.is_some_and(|column| part.times.contains(&column))).collect(),
            span,
            has_guid,
        }
    }

    /// Reads the rows of a part with numbers between these.
    fn read(&self, at: usize, reading: &Reading, statement: &str, [from, until]: [i64; 2]) -> Result<Block, Error> {
        let of = &self.table.parts[at];
        let (file, part) = (self.pool.file(of.file), &of.part);
        let failed = |problem: rusqlite::Error| file.wrong(&part.name, &problem);
        let width = reading.times.len();
        self.pool.with(of.file, |connection| {
            let mut block = Block { width, ..Block::default() };
            let mut statement = connection.prepare_cached(statement).map_err(failed)?;
            let guid = reading.has_guid.then_some(&of.process.guid);
            let mut rows = match guid {
                Some(guid) => statement.query((from, until, guid)),
                None => statement.query((from, until)),
            }
            .map_err(failed)?;
            let (mut bytes, mut count) = (0, 0);
            while let Some(row) = rows.next().map_err(failed)? {
                let number: i64 = row.get(0).map_err(failed)?;
                count += 1;
                if !matches!(row.get_ref(1).map_err(failed)?, ValueRef::Integer(1)) {
                    return Err(file.of_another(part, number).into());
                }
                let first = block.cells.len();
                for (place, is_time) in reading.times.iter().enumerate() {
                    let map = of.map.as_ref().filter(|_| *is_time);
                    let cell = cell(row.get_ref(place + 2).map_err(failed)?, map)
                        .map_err(|problem| file.refused(&part.name, number, &problem))?;
                    bytes += cell.bytes();
                    block.cells.push(cell);
                }
                if self.is_wanted(reading, &block.cells[first..]) {
                    block.numbers.push(number);
                } else {
                    block.cells.truncate(first);
                }
                if bytes > BYTES || count == ROWS {
                    block.next = number.checked_add(1).filter(|next| *next <= until);
                    return Ok(block);
                }
            }
            Ok(block)
        })
    }

    /// Whether a row is of the window.
    fn is_wanted(&self, reading: &Reading, cells: &[Cell]) -> bool {
        let (Some((window, inclusive)), Some(span)) = (self.window, reading.span) else { return true };
        let [start, end] = span.map(|place| match cells[place] {
            Cell::Integer(time) if time != 0 => Some(time),
            _ => None,
        });
        // An event that was not ended, or has no time, is in no window.
        start.zip(end).is_some_and(|(start, end)| keeps(window, inclusive, start, end))
    }
}

impl virtual_table::Source for Source {
    fn definition(&self) -> String {
        let own = self.table.columns.iter().map(|(name, kind)| format!(", {} {kind}", quoted(name)));
        format!("CREATE TABLE x(host TEXT, rank INTEGER, file TEXT{})", own.collect::<String>())
    }

    fn plan(&self, equal: &[usize], used: u64) -> Plan {
        let (mut chosen, mut exact, mut letters) = (Vec::new(), Vec::new(), String::new());
        let numbered = self.table.parts.iter().all(|part| part.part.numbered_by_id);
        for (place, column) in equal.iter().enumerate() {
            let letter = self.choice(*column).filter(|letter| *letter != BY_ID || numbered);
            if let Some(letter) = letter.filter(|letter| !letters.contains(*letter)) {
                if letter == BY_GUID {
                    exact.push(chosen.len());
                }
                letters.push(letter);
                chosen.push(place);
            }
        }
        let parts = self.table.parts.len().max(1) as f64;
        let left = match letters.as_str() {
            by if by.contains(BY_GUID) || by.contains(BY_FILE) => 1.0,
            by if by.contains(BY_RANK) => parts.min(2.0),
            by if by.contains(BY_HOST) => (parts / 4.0).max(1.0),
            _ => parts,
        };
        let each = if letters.contains(BY_ID) { 1.0 } else { self.rows_of_part() };
        Plan {
            equal: chosen,
            exact,
            text: format!("{letters} {used:x}"),
            rows: (left * each) as i64,
            // A statement costs some rows to begin.
            cost: left * (each + STATEMENT_COST),
        }
    }

    fn rows(self: Arc<Self>) -> Box<dyn virtual_table::Rows> {
        Box::new(Cursor {
            wanted: Vec::new(),
            places: vec![None; self.table.columns.len()],
            asked: 0,
            statements: HashMap::new(),
            parts: Vec::new(),
            part: 0,
            id: None,
            block: Rc::default(),
            row: 0,
            ended: true,
            lookups: Lookups::default(),
            source: self,
        })
    }
}

impl virtual_table::Rows for Cursor {
    fn begin(&mut self, plan: &str, values: &[ValueRef<'_>]) -> rusqlite::Result<()> {
        let (letters, asked) = plan.split_once(' ').unwrap_or_default();
        self.ask(u64::from_str_radix(asked, 16).unwrap_or(u64::MAX));
        self.id = None;
        self.parts.clear();
        let source = &self.source;
        let conditions = || letters.chars().zip(values.iter().copied());
        if let Some((_, ValueRef::Integer(id))) = conditions().find(|(letter, _)| *letter == BY_ID) {
            self.id = Some(id);
        }
        // Nothing equals NULL.
        if !values.contains(&ValueRef::Null) {
            let fits = |at: &usize| conditions().all(|condition| fits(&source.table.parts[*at], condition));
            match conditions().find(|(letter, _)| *letter == BY_GUID) {
                Some((_, guid)) => self.parts.extend(source.of_guid(guid).filter(fits)),
                None => self.parts.extend((0..source.table.parts.len()).rev().filter(fits)),
            }
        }
        (self.block, self.row, self.ended) = (Rc::default(), 0, false);
        self.settle()
    }

    fn advance(&mut self) -> rusqlite::Result<()> {
        self.row += 1;
        if self.id.is_some() {
            // There is one of each part.
            self.row = self.block.numbers.len();
        }
        self.settle()
    }

    fn ended(&self) -> bool {
        self.ended
    }

    fn cell(&self, column: usize) -> ValueRef<'_> {
        let part = &self.source.table.parts[self.part];
        match column {
            0 => part.process.host.as_ref().map_or(ValueRef::Null, |host| ValueRef::Text(host.as_bytes())),
            1 => part.process.rank.map_or(ValueRef::Null, |rank| ValueRef::Integer(i64::from(rank))),
            2 => ValueRef::Text(part.process.file.as_bytes()),
            _ => match self.places[column - ADDED.len()] {
                Some(place) => self.block.cells[self.row * self.block.width + place].show(),
                None => ValueRef::Null,
            },
        }
    }

    /// The part, and the row's number in it.
    fn number(&self) -> rusqlite::Result<i64> {
        let number = self.block.numbers[self.row];
        let part = i64::try_from(self.part).ok().filter(|part| *part < 1 << PART_BITS);
        match part.filter(|_| number >> ROW_BITS == 0) {
            Some(part) => Ok(part << ROW_BITS | number),
            None => Err(self.source.unnumbered(self.part, number)),
        }
    }
}

impl Cursor {
    /// Notes which columns are requested; what was read for others is then useless.
    fn ask(&mut self, asked: u64) {
        if self.asked == asked && !self.statements.is_empty() {
            return;
        }
        let is_used = |own: &usize| asked >> (own + ADDED.len()).min(63) & 1 == 1;
        self.wanted = (0..self.source.table.columns.len()).filter(is_used).collect();
        self.places.fill(None);
        for (place, own) in self.wanted.iter().enumerate() {
            self.places[*own] = Some(place);
        }
        self.asked = asked;
        self.statements.clear();
        self.lookups = Lookups::default();
    }

    /// Continues until there is a row, or none is left.
    fn settle(&mut self) -> rusqlite::Result<()> {
        while self.row >= self.block.numbers.len() {
            let read = match (self.block.next, self.id) {
                (Some(from), None) => self.scan(from),
                _ => match (self.parts.pop(), self.id) {
                    (None, _) => {
                        self.ended = true;
                        return Ok(());
                    }
                    (Some(part), None) => {
                        self.part = part;
                        self.scan(i64::MIN)
                    }
                    (Some(part), Some(id)) => {
                        self.part = part;
                        self.look_up(id)
                    }
                },
            };
            read.map_err(|error| self.source.fail(error))?;
        }
        Ok(())
    }

    fn reading(&mut self) -> Result<Rc<Reading>, Error> {
        let Self { source, wanted, part, .. } = self;
        let made = || Rc::new(source.reading(&source.table.parts[*part], wanted));
        let reading = Rc::clone(self.statements.entry(*part).or_insert_with(made));
        match &source.apart {
            Some(reason) if reading.times.contains(&true) => Err(Error::Request { problem: reason.to_string() }),
            _ => Ok(reading),
        }
    }

    fn scan(&mut self, from: i64) -> Result<(), Error> {
        let reading = self.reading()?;
        let block = self.source.read(self.part, &reading, &reading.scan, [from, i64::MAX])?;
        (self.block, self.row) = (Rc::new(block), 0);
        Ok(())
    }

    /// Goes to the row of this id, or behind the end of a block without it.
    fn look_up(&mut self, id: i64) -> Result<(), Error> {
        let key = (self.part, id.div_euclid(BESIDE));
        if self.lookups.last == Some(key) {
            self.block = Rc::clone(&self.lookups.last_block);
            self.row = self.block.numbers.binary_search(&id).unwrap_or(self.block.numbers.len());
            return Ok(());
        }
        let known = self.lookups.blocks.get(&key).map(Rc::clone);
        let block = match known {
            Some(block) => {
                (self.lookups.last, self.lookups.last_block) = (Some(key), Rc::clone(&block));
                block
            }
            None => {
                let reading = self.reading()?;
                let first = key.1.saturating_mul(BESIDE);
                let range = [first, first.saturating_add(BESIDE - 1)];
                let often = self.lookups.is_often(key);
                let together = often.then(|| self.source.read(self.part, &reading, &reading.range, range));
                match together.transpose()? {
                    // Long rows are not kept.
                    Some(block) if block.next.is_none() => self.lookups.keep(key, block),
                    _ => Rc::new(self.source.read(self.part, &reading, &reading.range, [id, id])?),
                }
            }
        };
        self.row = block.numbers.binary_search(&id).unwrap_or(block.numbers.len());
        self.block = block;
        Ok(())
    }
}

/// A cell as returned: unchanged, except for a time that is set, which goes through the map.
fn cell(value: ValueRef<'_>, map: Option<&Arc<TimeMap>>) -> Result<Cell, String> {
    let time = match map {
        Some(map) => aligned(value, &mut |time| map.map(time).time_ps)?,
        None => None,
    };
    Ok(time.map_or_else(|| Cell::of(value), Cell::Integer))
}

/// Whether rows of a part may meet a condition. A value of another type than the column's may still
/// be equal after SQLite has converted it, so it excludes nothing.
fn fits(of: &OfProcess, (letter, value): (char, ValueRef<'_>)) -> bool {
    let process = &of.process;
    let text = |known: &str| !matches!(value, ValueRef::Text(text) if text != known.as_bytes());
    match letter {
        // Chosen by already.
        BY_GUID => of.part.columns.iter().any(|(name, _)| name.eq_ignore_ascii_case("guid")),
        BY_FILE => text(&process.file),
        BY_HOST => process.host.as_ref().is_some_and(|host| text(host)),
        BY_RANK => process.rank.is_some_and(|rank| !matches!(value, ValueRef::Integer(of) if of != i64::from(rank))),
        _ => true,
    }
}

/// Columns that rows are chosen by.
const CHOICES: [(&str, char); 5] =
    [("host", BY_HOST), ("rank", BY_RANK), ("file", BY_FILE), ("guid", BY_GUID), ("id", BY_ID)];
const BY_HOST: char = 'h';
const BY_RANK: char = 'r';
const BY_FILE: char = 'f';
const BY_GUID: char = 'g';
const BY_ID: char = 'i';
/// Bits of a row's number over all parts: those for the part; the rest is the row's number in it.
const PART_BITS: u32 = 20;
const ROW_BITS: u32 = 63 - PART_BITS;
/// Tables that describe.
const INFO: &str = "rocpd_info_";
/// Rows that are read at once, and after how many bytes of text fewer.
const ROWS: usize = 1024;
const BYTES: usize = 4 << 20;
/// Cost of starting a statement, in rows.
const STATEMENT_COST: f64 = 10.0;
/// Ids that are looked up together.
const BESIDE: i64 = 256;

//! The times in the tables of a database that is being read.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::query::each;
use super::table::{Table, quoted};
use crate::Error;
use crate::model::{PS_PER_NS, Picoseconds, Reach, Spread, TraceFacts};

/// Times of a table, absolute.
#[derive(Default)]
pub(crate) struct Times {
    /// Rows with a plausible time.
    pub(crate) rows: u64,
    pub(crate) span: Option<(Picoseconds, Picoseconds)>,
    /// Rows with an implausible time.
    pub(crate) away: u64,
    /// Rows that end before they begin.
    pub(crate) backwards: u64,
}

impl Times {
    /// Takes a time into the span.
    pub(crate) fn add(&mut self, time_ps: Picoseconds) {
        let (first, last) = self.span.unwrap_or((time_ps, time_ps));
        self.span = Some((first.min(time_ps), last.max(time_ps)));
    }
}

/// Where the rows of a table have their times, and which of these are plausible.
pub(crate) struct RowTimes<'a> {
    pub(crate) table: &'a Table,
    /// Expression for the first time of a row `t`.
    pub(crate) start: String,
    /// Expression for its end, if it has one.
    pub(crate) end: Option<String>,
    /// First and last plausible time, ns.
    pub(crate) bounds: (i64, i64),
    /// Time of zero on the timeline of the file, ns.
    pub(crate) origin_ns: i64,
}

impl RowTimes<'_> {
    /// Reads the first and last time, and how many rows have one.
    ///
    /// # Errors
    /// A cell contains neither a time nor NULL.
    pub(crate) fn read(&self, source: (&Connection, &Path)) -> Result<Times, Error> {
        match self.plain(source)? {
            Some(times) => Ok(times),
            None => self.mixed(source),
        }
    }

    fn absolute_ps(&self, ns: i64) -> Picoseconds {
        (Picoseconds::from(self.origin_ns) + Picoseconds::from(ns)) * PS_PER_NS
    }

    /// Reads the times of a table in which all are plausible; `None` if some are not. It takes a
    /// fraction of the time of [`Self::mixed`].
    fn plain(&self, source: (&Connection, &Path)) -> Result<Option<Times>, Error> {
        let (start, (first, last)) = (&self.start, self.bounds);
        let end = self.end.as_deref().unwrap_or("NULL");
        let statement = format!(
            "SELECT count({start}), total(typeof({start}) = 'real' OR typeof({end}) = 'real' OR {end} < {start}), \
             min({start}), max({start}), min({end}), max({end}) FROM {} t NOT INDEXED",
            quoted(&self.table.name)
        );
        let mut found = None;
        each(source, &self.table.name, &statement, &mut |row| {
            let mut times = Times { rows: row.get::<_, i64>(0)?.unsigned_abs(), ..Times::default() };
            let mut all = row.get::<_, f64>(1)? == 0.0;
            // Text and bytes are greater than all numbers.
            for at in 2..=5 {
                match row.get_ref(at)? {
                    ValueRef::Null => {}
                    ValueRef::Integer(ns) if (first..=last).contains(&ns) => times.add(self.absolute_ps(ns)),
                    _ => all = false,
                }
            }
            found = Some(times).filter(|_| all);
            Ok(())
        })?;
        Ok(found)
    }

    /// Reads the times of any table.
    fn mixed(&self, source: (&Connection, &Path)) -> Result<Times, Error> {
        let Self { table, start, bounds: (first, last), .. } = self;
        let end = self.end.as_ref().unwrap_or(start);
        let away = format!(
            "coalesce({start} NOT BETWEEN {first} AND {last}, 0) OR coalesce({end} NOT BETWEEN {first} AND {last}, 0)"
        );
        let backwards = format!("coalesce({end} < {start}, 0)");
        let columns = table
            .times
            .iter()
            .map(|at| format!("typeof(t.{}) NOT IN ('integer', 'null')", quoted(&table.columns[*at])));
        let wrong = columns.collect::<Vec<_>>().join(" OR ");
        let statement = format!(
            "SELECT min(CASE WHEN {wrong} THEN {row} END), total({start} IS NOT NULL AND NOT ({away})), \
             min(CASE WHEN NOT ({away}) THEN {start} END), max(CASE WHEN NOT ({away}) THEN max({start}, coalesce({end}, {start})) END), \
             total({away}), total(NOT ({away}) AND {backwards}) FROM {name} t NOT INDEXED",
            row = if table.rowid.is_some() { table.row("t") } else { "0".to_owned() },
            name = quoted(&table.name),
        );
        let (mut times, mut wrong_at) = (Times::default(), None);
        each(source, &table.name, &statement, &mut |row| {
            wrong_at = row.get::<_, Option<i64>>(0)?;
            if wrong_at.is_none() {
                times.rows = row.get::<_, f64>(1)? as u64;
                for at in [2, 3] {
                    row.get::<_, Option<i64>>(at)?.into_iter().for_each(|ns| times.add(self.absolute_ps(ns)));
                }
                (times.away, times.backwards) = (row.get::<_, f64>(4)? as u64, row.get::<_, f64>(5)? as u64);
            }
            Ok(())
        })?;
        match wrong_at {
            None => Ok(times),
            Some(at) => Err(no_time(source.1, table, at)),
        }
    }
}

/// Counts the times of a table, in groups. `believed` is a condition on a `time`, `origin_ns` the
/// time of zero on the timeline of the file.
///
/// # Errors
/// The table cannot be read.
pub(crate) fn count_times(
    source: (&Connection, &Path),
    table: &Table,
    (believed, origin_ns): (&str, i64),
    spread: &mut Spread,
) -> Result<(), Error> {
    for at in &table.times {
        let statement = format!(
            "SELECT min(time), max(time), count(*) FROM (SELECT {} AS time FROM {} NOT INDEXED) \
             WHERE typeof(time) = 'integer' AND {believed} GROUP BY time / {BUCKET_NS} LIMIT {BUCKETS_MAX}",
            quoted(&table.columns[*at]),
            quoted(&table.name)
        );
        each(source, &table.name, &statement, &mut |row| {
            let absolute_ps = |time: i64| (Picoseconds::from(origin_ns) + Picoseconds::from(time)) * PS_PER_NS;
            let (first, last) = (absolute_ps(row.get(0)?), absolute_ps(row.get(1)?));
            spread.add_many(first, last, row.get::<_, i64>(2)?.unsigned_abs());
            Ok(())
        })?;
    }
    Ok(())
}

/// Reads facts; if some rows are far from the others by `spread`, reads them again without those.
///
/// # Errors
/// Returns errors of `read` and `spread`.
pub(crate) fn without_far_rows(
    read: impl Fn(Option<Reach>) -> Result<TraceFacts, Error>,
    spread: impl FnOnce() -> Result<Spread, Error>,
) -> Result<TraceFacts, Error> {
    let facts = read(None)?;
    // Only where its rows span more than a day can some be far from the others.
    let is_wide = facts.span.is_some_and(|(first, last)| last - first > Reach::NEAR_PS);
    let reach = if is_wide { spread()?.reach() } else { None };
    if reach.is_some() { read(reach) } else { Ok(facts) }
}

/// Returns the refusal of a row that contains something else in place of a time.
pub(crate) fn no_time(path: &Path, table: &Table, at: i64) -> Error {
    let names: Vec<&str> = table.times.iter().map(|column| table.columns[*column].as_str()).collect();
    let problem = format!(
        "the table {}, row {at}: {} must contain whole numbers of nanoseconds, but one does not; correct the row in a copy of the file",
        table.name,
        names.join(", ")
    );
    Error::Database { path: path.to_owned(), problem }
}

/// Width of the groups in which times are counted, ns: about a quarter of an hour.
const BUCKET_NS: i64 = 1_000_000_000_000;
/// Most groups of a table that are examined.
const BUCKETS_MAX: usize = 1 << 17;

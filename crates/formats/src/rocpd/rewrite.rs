//! Writes one database or many into one, each through its map.
//!
//! `align` and `merge` both create a new database by `copy`, so that an aligned database equals its
//! part of a merged one. `rocpd::schema` recreates the profiler's views over the tables of all
//! processes, because the original views multiply rows if two processes share a number. The tags
//! `probe_sync_*` of each process's metadata record the alignment, so that a second one is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use probe_sync_rocpd::schema;
use rusqlite::params;

use super::catalog::{Catalog, INFO, METADATA, ON_ONE_CLOCK, quoted};
use super::cpu_clock::behind;
use super::lift::{expect_liftable, lift};
use super::moving::Moving;
use crate::ALIGNED_TO;
use crate::Error;
use crate::model::Reach;
use crate::sqlite::access::{Readable, wrong};
use crate::sqlite::output::{NewDatabase, refuse_annotations};
use crate::sqlite::rewrite::copy_while_checking;
use crate::{MapFunction, MergeInput, MergeOptions, MergeStats, RewriteOptions, RewriteStats};

/// Writes `input` to `output`.
///
/// # Errors
/// Names file, table and row.
pub(super) fn rewrite(
    input: &Path,
    output: &Path,
    options: &RewriteOptions<'_>,
    map: &mut MapFunction<'_>,
) -> Result<RewriteStats, Error> {
    refuse_annotations(options.annotate)?;
    let readable = Readable::find(input)?;
    let mut making = Making::create(output, &readable)?;
    (making.behind_ns, making.reach) = (options.cpu_behind_ns, options.reach);
    let mut stats = making.add(&readable, map, options.metadata, Foreign::Copied)?;
    let (bytes, notes) = making.finish()?;
    stats.bytes_written = bytes;
    stats.notes.extend(notes);
    Ok(stats)
}

/// Writes all inputs into one database.
///
/// # Errors
/// Names file, table and row; returns an error for two inputs of one process or of different
/// schemas, and for tables of other programs that are not to be dropped.
pub(super) fn merge(inputs: &mut [MergeInput<'_>], output: &Path, options: &MergeOptions) -> Result<MergeStats, Error> {
    refuse_annotations(options.annotate)?;
    let Some(first) = inputs.first() else {
        return Err(Error::Request { problem: "there are no databases to merge".to_owned() });
    };
    let first = Readable::find(&first.path)?;
    let foreign = if options.drop_foreign { Foreign::Dropped } else { Foreign::Refused };
    let mut making = Making::create(output, &first)?;
    making.lifted_to.clone_from(&options.schema);
    let mut stats = MergeStats::default();
    // One at a time: a copy of a file may be as long as the file.
    let mut found = Some(first);
    for (at, input) in inputs.iter_mut().enumerate() {
        making.behind_ns = options.cpu_behind_ns.get(at).copied().flatten();
        making.reach = input.reach;
        let readable = found.take().map_or_else(|| Readable::find(&input.path), Ok)?;
        stats.inputs.push(making.add(&readable, &mut *input.map, &input.metadata, foreign)?);
    }
    let (bytes, notes) = making.finish()?;
    stats.bytes_written = bytes;
    stats.notes = notes;
    Ok(stats)
}

/// What happens to tables that are not the profiler's.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Foreign {
    Copied,
    Dropped,
    Refused,
}

/// A database being written.
struct Making {
    output: NewDatabase,
    /// By base name: the columns of its tables, and the first file that has them.
    columns: BTreeMap<String, (Vec<String>, PathBuf)>,
    /// By base name: the suffixes of the names of its tables.
    suffixes: BTreeMap<String, Vec<String>>,
    /// The file that the tables of a process came from.
    sources: BTreeMap<String, PathBuf>,
    /// Names of existing indexes.
    indexes: BTreeSet<String>,
    /// The schema that all inputs are lifted to.
    lifted_to: Option<String>,
    /// How far the rows that `rocprof-sys` stamped itself are behind the others of the current
    /// input, ns; `None` if they are not.
    behind_ns: Option<i64>,
    /// Range of plausible times of that input; `None`: all.
    reach: Option<Reach>,
    version: Option<(String, PathBuf)>,
    notes: Vec<String>,
}

impl Making {
    /// Begins an output.
    fn create(output: &Path, like: &Readable) -> Result<Making, Error> {
        Ok(Making {
            output: NewDatabase::create(output, like)?,
            columns: BTreeMap::new(),
            suffixes: BTreeMap::new(),
            sources: BTreeMap::new(),
            indexes: BTreeSet::new(),
            lifted_to: None,
            behind_ns: None,
            reach: None,
            version: None,
            notes: Vec::new(),
        })
    }

    /// Copies a database into the output. Its integrity is checked meanwhile: reading rows does not
    /// reveal all damage, and the output written from it is valid in itself.
    fn add(
        &mut self,
        readable: &Readable,
        map: &mut MapFunction<'_>,
        tags: &[(String, String)],
        foreign: Foreign,
    ) -> Result<RewriteStats, Error> {
        let path = readable.named();
        let length = std::fs::metadata(path).map_err(Error::io(path, "look at"))?.len();
        self.output.copying.attach(readable, path)?;
        let begun = self.output.copying.connection().execute_batch("BEGIN");
        begun.map_err(|problem| wrong(self.output.path(), "writing it", &problem))?;
        let catalog = Catalog::read(self.output.copying.connection(), "src", path)?;
        self.admit(path, &catalog, tags)?;
        // Not before it is known that no column is computed.
        let stats = copy_while_checking(readable, || self.copy(path, &catalog, map, foreign))?;
        self.close(&catalog, tags).map_err(|problem| wrong(self.output.path(), "writing it", &problem))?;
        self.output.copying.detach(path)?;
        Ok(RewriteStats { bytes_read: length, ..stats })
    }

    /// Copies the tables and indexes of the attached database, in one consistent state.
    fn copy(
        &mut self,
        path: &Path,
        catalog: &Catalog,
        map: &mut MapFunction<'_>,
        foreign: Foreign,
    ) -> Result<RewriteStats, Error> {
        let mut stats = RewriteStats::default();
        for table in &catalog.tables {
            let behind = behind((catalog, "src"), path, table, self.behind_ns)?;
            let reach = self.reach.filter(|_| !table.base.starts_with(INFO));
            let of_table = self.output.copying.table(path, table, &mut Moving { behind, reach, map })?;
            stats.events += of_table.events;
            stats.untimed += of_table.untimed;
            self.suffixes.entry(table.base.clone()).or_default().push(table.suffix.clone());
        }
        self.foreign(path, catalog, foreign, map)?;
        for index in &catalog.indexes {
            let of_ours = catalog.tables.iter().any(|table| table.name == index.table);
            if !(of_ours || foreign == Foreign::Copied) {
                continue;
            }
            if self.indexes.insert(index.name.clone()) {
                self.output.copying.index(path, index)?;
            } else {
                let (path, name) = (path.display(), &index.name);
                self.notes.push(format!(
                    "{path}: dropped the index {name}, because another file has an index with the same name"
                ));
            }
        }
        Ok(stats)
    }

    /// Writes tags, and ends the transaction with the attached database.
    fn close(&self, catalog: &Catalog, tags: &[(String, String)]) -> rusqlite::Result<()> {
        self.output.copying.sequences()?;
        for writer in &catalog.writers {
            if self.lifted_to.as_ref().is_some_and(|wanted| *wanted != writer.version) {
                lift(self.output.copying.connection(), writer)?;
            }
            let table = format!("{METADATA}{}", writer.suffix);
            self.tag(&table, tags)?;
            if let Some(by_ns) = self.behind_ns {
                let done = format!("CLOCK_MONOTONIC converted to CLOCK_BOOTTIME, {by_ns} ns later");
                self.tag(&table, &[(ON_ONE_CLOCK.to_owned(), done)])?;
            }
        }
        self.output.copying.connection().execute_batch("COMMIT")
    }

    /// Refuses a database that does not match those before it.
    fn admit(&mut self, path: &Path, catalog: &Catalog, tags: &[(String, String)]) -> Result<(), Error> {
        let refuse = |problem: String| Err(Error::Database { path: path.to_owned(), problem });
        if let Some(wanted) = &self.lifted_to {
            expect_liftable(path, catalog, wanted)?;
        }
        for writer in &catalog.writers {
            if let Some(clock) = &writer.aligned_to
                && tags.iter().any(|(tag, _)| tag == ALIGNED_TO)
            {
                return refuse(format!(
                    "is already aligned, to the {clock}; give the database that the profiler wrote"
                ));
            }
            if let Some(other) = self.sources.insert(writer.suffix.clone(), path.to_owned()) {
                let other = other.display();
                return refuse(format!(
                    "is from the same process, {}, as {other}, possibly a copy; give one of them",
                    writer.guid
                ));
            }
            match &self.version {
                Some(_) if self.lifted_to.is_some() => {}
                Some((version, other)) if *version != writer.version => {
                    let other = other.display();
                    return refuse(format!(
                        "has schema {}, but {other} has {version}, and only equal schemas can be merged; --schema 3.0.0 converts schema 3",
                        writer.version
                    ));
                }
                Some(_) => {}
                None => self.version = Some((writer.version.clone(), path.to_owned())),
            }
        }
        self.equal_columns(path, catalog)
    }

    /// Refuses tables whose columns differ from those of the same tables before them: versions have
    /// had different ones with the same number.
    fn equal_columns(&mut self, path: &Path, catalog: &Catalog) -> Result<(), Error> {
        for table in &catalog.tables {
            let known = self.columns.entry(table.base.clone());
            let (columns, other) = known.or_insert_with(|| (table.columns.clone(), path.to_owned()));
            if *columns != table.columns {
                let differs = table.columns.iter().zip(columns.iter()).find(|(one, other)| one != other);
                let differs = differs.map_or_else(
                    || format!("{} columns and {}", table.columns.len(), columns.len()),
                    |(one, other)| format!("column {one} instead of {other}"),
                );
                let problem = format!(
                    "the table {} differs from that of {} despite the same schema version: {differs}",
                    table.name,
                    other.display()
                );
                return Err(Error::Database { path: path.to_owned(), problem });
            }
        }
        Ok(())
    }

    /// Handles what is not the profiler's: copied as it is, dropped, or refused.
    fn foreign(
        &mut self,
        path: &Path,
        catalog: &Catalog,
        foreign: Foreign,
        map: &mut MapFunction<'_>,
    ) -> Result<(), Error> {
        if let Some(view) = catalog.foreign_views.first() {
            let (path, count) = (path.display(), catalog.foreign_views.len());
            self.notes.push(format!(
                "{path}: dropped {count} views that are not part of a known schema (the first is {view})"
            ));
        }
        let all: Vec<&str> = catalog.foreign.iter().map(|table| table.name.as_str()).collect();
        match foreign {
            Foreign::Copied => {
                for table in &catalog.foreign {
                    self.output.copying.table(path, table, &mut Moving { behind: None, reach: None, map })?;
                }
                if !all.is_empty() {
                    self.notes.push(format!(
                        "copied tables that are not the profiler's unchanged, including their times: {}",
                        all.join(", ")
                    ));
                }
                Ok(())
            }
            Foreign::Dropped if !all.is_empty() => {
                self.notes.push(format!(
                    "{}: dropped tables that are not the profiler's: {}",
                    path.display(),
                    all.join(", ")
                ));
                Ok(())
            }
            Foreign::Refused if !all.is_empty() => {
                let problem = format!(
                    "contains tables that are not the profiler's ({}), and other databases may use the same names; use --drop-foreign \
                    to drop them",
                    all.join(", ")
                );
                Err(Error::Database { path: path.to_owned(), problem })
            }
            _ => Ok(()),
        }
    }

    fn tag(&self, table: &str, tags: &[(String, String)]) -> rusqlite::Result<()> {
        let insert = format!("INSERT INTO main.{} (tag, value) VALUES (?1, ?2)", quoted(table));
        let mut insert = self.output.copying.connection().prepare(&insert)?;
        tags.iter().try_for_each(|(tag, value)| insert.execute(params![tag, value]).map(drop))
    }

    /// Writes the views, checks the output, and gives the file its name; returns its length and
    /// notes for the user.
    fn finish(mut self) -> Result<(u64, Vec<String>), Error> {
        let failed = |problem: rusqlite::Error| wrong(self.output.path(), "writing its views", &problem);
        let connection = self.output.copying.connection();
        for (base, suffixes) in self.suffixes.iter().filter(|(_, suffixes)| suffixes.iter().any(|one| !one.is_empty()))
        {
            let suffixes: Vec<&str> = suffixes.iter().map(String::as_str).collect();
            connection.execute_batch(&schema::union_view(base, &suffixes)).map_err(failed)?;
        }
        let present = |base: &str, column: &str| {
            self.columns.get(base).is_some_and(|(columns, _)| columns.iter().any(|known| known == column))
        };
        for view in schema::canonical_views(&present) {
            connection.execute_batch(&view.sql).map_err(failed)?;
        }
        let (written, dangling) = self.output.finish()?;
        self.notes.extend(dangling);
        Ok((written, self.notes))
    }
}

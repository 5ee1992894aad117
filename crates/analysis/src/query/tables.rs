//! The tables of all databases, combined by name.
//!
//! A table has the columns that it has in any of the files, in the order of the first file that has
//! them; a column that a file lacks is NULL, and a note reports this. Schemas of different major
//! versions are refused because their views differ.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::Error;
use probe_sync_alignment::{Calibrated, CalibratedTrace, NodeTrace};
use probe_sync_estimate::series::TimeMap;
use probe_sync_formats::rocpd::{Affinities, DatabaseFile, Part};
use probe_sync_formats::{Rocpd, TraceFormat};

/// Everything that can be asked.
pub(super) struct Tables {
    pub(super) files: Vec<DatabaseFile>,
    pub(super) tables: Vec<Table>,
    pub(super) processes: Vec<Process>,
    pub(super) notes: Vec<String>,
}

/// One name over the parts of all processes.
pub(super) struct Table {
    /// `rocpd_region`.
    pub(super) base: String,
    /// Names, and their SQLite affinities.
    pub(super) columns: Vec<(String, &'static str)>,
    pub(super) parts: Vec<OfProcess>,
}

/// One process's part of a table.
pub(super) struct OfProcess {
    /// Which of the files.
    pub(super) file: usize,
    pub(super) part: Part,
    pub(super) process: Arc<Process>,
    /// From its times to those of the reference; `None` if they stay.
    pub(super) map: Option<Arc<TimeMap>>,
}

/// A process, and its location.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) guid: String,
    pub(super) host: Option<String>,
    pub(super) rank: Option<u32>,
    pub(super) file: String,
}

impl Tables {
    /// Examines every database once.
    pub(super) fn of(calibrated: &Calibrated) -> Result<Tables, Error> {
        let mut all = Tables { files: Vec::new(), tables: Vec::new(), processes: Vec::new(), notes: Vec::new() };
        let mut by_base: BTreeMap<String, usize> = BTreeMap::new();
        let mut sources: HashMap<String, usize> = HashMap::new();
        let (mut major, mut known) = (None, Affinities::new());
        for CalibratedTrace { trace, map, .. } in &calibrated.traces {
            if trace.format.name() != Rocpd.name() {
                let (path, name) = (trace.path.display(), trace.format.name());
                let problem = format!("{path} is a {name} trace; only rocprofv3 databases can be queried with SQL");
                return Err(Error::Request { problem });
            }
            let (file, parts) = DatabaseFile::open(&trace.path, &mut known)?;
            let number = all.files.len();
            let map = map.clone().map(Arc::new);
            let mut processes: HashMap<String, Arc<Process>> = HashMap::new();
            for part in parts {
                let first = *major.get_or_insert(part.major);
                if part.major != first {
                    return Err(of_other_schema(trace, &part, first));
                }
                let process = processes.entry(part.guid.clone()).or_insert_with(|| Arc::new(Process::of(trace, &part)));
                let at = *by_base.entry(part.base.clone()).or_insert_with(|| {
                    all.tables.push(Table { base: part.base.clone(), columns: Vec::new(), parts: Vec::new() });
                    all.tables.len() - 1
                });
                all.tables[at].add(part, number, process, map.as_ref())?;
            }
            for (guid, process) in processes {
                if let Some(other) = sources.insert(guid.clone(), number) {
                    let other = all.files.get(other).map_or(&trace.path, |file| &file.path).display();
                    let problem = format!("is from the same process, {guid}, as {other}; give one of them");
                    return Err(Error::database(&trace.path, problem));
                }
                all.processes.push(Process::clone(&process));
            }
            all.files.push(file);
        }
        all.notes = all.tables.iter().filter_map(Table::lacking).collect();
        Ok(all)
    }
}

impl Process {
    fn of(trace: &NodeTrace, part: &Part) -> Process {
        let identity = &trace.facts.identity;
        // One file of many processes says it of each.
        let (host, rank) =
            if trace.facts.merged { (&part.host, part.rank) } else { (&identity.hostname, identity.rank) };
        Process { guid: part.guid.clone(), host: host.clone(), rank, file: trace.path.display().to_string() }
    }
}

fn of_other_schema(trace: &NodeTrace, part: &Part, first: u32) -> Error {
    let problem = format!(
        "its table {} has schema {}, but the previous ones have {first}, with other columns; query them separately",
        part.name, part.major
    );
    Error::database(&trace.path, problem)
}

impl Table {
    fn add(
        &mut self,
        part: Part,
        file: usize,
        process: &Arc<Process>,
        map: Option<&Arc<TimeMap>>,
    ) -> Result<(), Error> {
        if self.parts.iter().rev().take_while(|other| other.file == file).any(|other| other.part.guid == part.guid) {
            let problem = format!("contains two tables {} of the process {}; give one of them", self.base, part.guid);
            return Err(Error::database(&process.file, problem));
        }
        let named_by_id =
            part.base.starts_with("rocpd_info_") || ["rocpd_string", "rocpd_event"].contains(&&*part.base);
        if named_by_id && !part.numbered_by_id {
            let problem = format!(
                "the table {} may contain duplicate ids (it has no INTEGER PRIMARY KEY), and views would multiply rows; recreate it \
                with a primary key in a copy",
                part.name
            );
            return Err(Error::database(&process.file, problem));
        }
        for column in &part.columns {
            if ADDED.contains(&column.0.to_ascii_lowercase().as_str()) {
                let problem = format!(
                    "the table {} has a column {}, a name that queries use for the origin of rows; rename it in a copy",
                    part.name, column.0
                );
                return Err(Error::database(&process.file, problem));
            }
            // SQLite does not tell names by case.
            if !self.columns.iter().any(|(known, _)| known.eq_ignore_ascii_case(&column.0)) {
                self.columns.push(column.clone());
            }
        }
        self.parts.push(OfProcess { file, part, process: Arc::clone(process), map: map.map(Arc::clone) });
        Ok(())
    }

    /// Columns that not all files have.
    fn lacking(&self) -> Option<String> {
        let lacks = |part: &&OfProcess| part.part.columns.len() < self.columns.len();
        let first = self.parts.iter().find(lacks)?;
        let has = |name: &str| first.part.columns.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).filter(|name| !has(name)).collect();
        Some(format!(
            "{}: {} of {} processes lack columns that others have; these are NULL there; {} lacks {}",
            self.base,
            self.parts.iter().filter(lacks).count(),
            self.parts.len(),
            first.process.file,
            names.join(", ")
        ))
    }
}

/// Columns that state where a row comes from, in front of a table's own.
pub(super) const ADDED: [&str; 3] = ["host", "rank", "file"];

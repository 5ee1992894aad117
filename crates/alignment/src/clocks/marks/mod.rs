//! Marks of a trace, joined with the system clock readings that its process took around them.
//!
//! The trace holds the stamps, `marks/rankR-TOKEN.jsonl` of the run the readings
//! (`lines`). Both are joined by the process's token and the mark's number, so that
//! readings of another process or of an earlier life of its rank cannot be attached. Because the
//! file's first line states the node of the process, marks prove which node wrote the trace. A
//! trace may hold more marks than the file, which keeps the tightest of several attempts, and a
//! file more than a trace.
//!
//! What is odd is left out and counted: numbers that are there twice, readings that end before they
//! begin, lines that are no marks. A last line may be cut short: the file is written while the job
//! runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Error;
use probe_sync_formats::model::{Bracket, MarkStamp, TraceFacts};
use probe_sync_lines::{MARKS_FOLDER, MarkRecord, MarkToken, MarksHeader, token_of_file};

use super::lines::{Line, Lines};

/// The mark files of a run, by the token of the process that wrote each.
#[derive(Clone, Debug, Default)]
pub struct MarkFiles {
    /// `None` if there is no run.
    folder: Option<PathBuf>,
    files: BTreeMap<MarkToken, PathBuf>,
}

impl MarkFiles {
    /// The mark files in the directory of a run. There may be none.
    ///
    /// # Errors
    /// [`Error::Trace`] if the folder exists but cannot be read.
    pub fn in_run(directory: &Path) -> Result<Self, Error> {
        let folder = directory.join(MARKS_FOLDER);
        let mut files = BTreeMap::new();
        if folder.is_dir() {
            for entry in std::fs::read_dir(&folder).map_err(Error::io(&folder, "read"))? {
                let path = entry.map_err(Error::io(&folder, "read"))?.path();
                if let Some(token) = path.file_name().and_then(|name| token_of_file(name.to_str()?)) {
                    files.insert(token, path);
                }
            }
        }
        Ok(Self { folder: Some(folder), files })
    }

    /// Finds the readings around the marks of a trace, and the process that wrote it.
    ///
    /// # Errors
    /// [`Error::Nodes`] if two processes of the run put marks into one trace that was not merged.
    pub fn join(&self, path: &Path, facts: &mut TraceFacts) -> Result<(), Error> {
        // Whose part of it another part is, is not in it.
        if facts.merged {
            return Ok(());
        }
        let mut notes = Vec::new();
        for (token, stamps) in by_process(&facts.marks) {
            let (Some(folder), count) = (&self.folder, stamps.len()) else {
                let count = stamps.len();
                notes.push(format!("ignored its {count} marks, because their readings are in the directory of a run"));
                continue;
            };
            let Some(file) = self.files.get(&token) else {
                let folder = folder.display();
                notes.push(format!("{count} of its marks are from a process ({token}) that has no file in {folder}"));
                continue;
            };
            let found = match read(file, token, &stamps) {
                Ok(found) => found,
                Err(error) => {
                    notes.push(format!("{error}; ignored its marks"));
                    continue;
                }
            };
            notes.extend(found.notes());
            if let Some(other) = facts.identity.process.as_ref().filter(|other| !is_of_one(other, &found.header)) {
                let (one, other) = (process(other), process(&found.header));
                let problem = format!("{} contains marks of {one} and of {other}", path.display());
                return Err(Error::Nodes { problem });
            }
            facts.brackets.extend(found.brackets);
            facts.identity.process = Some(found.header);
        }
        facts.notes.extend(notes);
        Ok(())
    }
}

/// A process for people.
pub(crate) fn process(header: &MarksHeader) -> String {
    let MarksHeader { rank, world_size, node_id, hostname, pid, .. } = header;
    format!("rank {rank} of {world_size} on node {node_id} (process {pid} of {hostname})")
}

fn is_of_one(one: &MarksHeader, other: &MarksHeader) -> bool {
    one.rank == other.rank && one.node_id == other.node_id
}

/// A process's stamps by number; `None` for a number that occurs twice, at two times.
type Stamps = BTreeMap<u64, Option<MarkStamp>>;

fn by_process(marks: &[MarkStamp]) -> BTreeMap<MarkToken, Stamps> {
    let mut found: BTreeMap<MarkToken, Stamps> = BTreeMap::new();
    for mark in marks {
        let stamp = found.entry(mark.token).or_default().entry(mark.number).or_insert(Some(*mark));
        *stamp = stamp.filter(|first| first == mark);
    }
    found
}

/// What a file says about a trace's marks.
#[derive(Debug)]
struct Found {
    header: MarksHeader,
    brackets: Vec<Bracket>,
    twice: usize,
    odd: usize,
    wide: usize,
    name: String,
}

impl Found {
    fn notes(&self) -> impl Iterator<Item = String> {
        let counted = [
            (self.twice, "marks were ignored because their number occurs twice"),
            (self.odd, "lines were ignored because they are not marks or end before they begin"),
            (self.wide, "marks were ignored because their readings are more than 1 ms apart"),
        ];
        let some = counted.into_iter().filter(|(count, _)| *count > 0);
        some.map(|(count, what)| format!("{}: {count} {what}", self.name))
    }
}

fn read(path: &Path, token: MarkToken, stamps: &Stamps) -> Result<Found, Error> {
    let mut lines = Lines::open(path)?;
    let first = lines.next()?.map(|line| serde_json::from_slice::<MarksHeader>(line.text));
    let header = match first {
        Some(Ok(header)) if header.token == token => header,
        Some(Ok(header)) => {
            return Err(lines.problem(1, format!("it is from process {}, contrary to its name", header.token)));
        }
        Some(Err(error)) => {
            return Err(lines.problem(1, format!("it does not identify the process of its marks: {error}")));
        }
        None => return Err(lines.problem(1, "it is empty")),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut found = Found { header, brackets: Vec::new(), twice: 0, odd: 0, wide: 0, name };
    let mut readings: BTreeMap<u64, Option<MarkRecord>> = BTreeMap::new();
    while let Some(Line { text, may_be_cut, .. }) = lines.next()? {
        match serde_json::from_slice::<MarkRecord>(text) {
            Ok(mark) if mark.after < mark.before => found.odd += 1,
            // No more of them are kept than the trace has marks.
            Ok(mark) if stamps.contains_key(&mark.mark) => {
                let reading = readings.entry(mark.mark).or_insert(Some(mark));
                *reading = reading.filter(|first| *first == mark);
            }
            Ok(_) => {}
            Err(_) if may_be_cut => break,
            Err(_) => found.odd += 1,
        }
    }
    for (number, reading) in readings {
        let (Some(MarkRecord { before, after, .. }), Some(Some(stamp))) = (reading, stamps.get(&number)) else {
            found.twice += 1;
            continue;
        };
        let (before_ns, after_ns) = (before.as_ns(), after.as_ns());
        if i128::from(after_ns) - i128::from(before_ns) > WIDEST_NS {
            found.wide += 1;
            continue;
        }
        let MarkStamp { tracer_ps, unit_ps, .. } = *stamp;
        found.brackets.push(Bracket { tracer_ps, unit_ps, before_ns, after_ns });
    }
    Ok(found)
}

/// The process was stopped in between: such a bracket says nothing that the others do not.
const WIDEST_NS: i128 = 1_000_000;

#[cfg(test)]
mod tests;

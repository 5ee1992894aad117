//! The data that a run records round by round: JSON lines, in segments if the run lasts days. A
//! write error does not end the run.
//!
//! The lines of a round are collected and written at its end, all or none: a partial write is cut
//! off, so a file consists of whole lines while its writer lives. A full disk, or any other error,
//! stops writing to the file and is reported once; writing is retried with every round, and missing
//! rounds are counted. At a round's end a file that has grown to `rotate_at` is closed under a
//! number ([`probe_sync_files::segments`]) and a new one begins with the same first line; with
//! `keep_bytes` the oldest are removed.
//!
//! It does not sync: a killed process loses none of its written data, but a power failure may lose
//! some. A network file system may report a full disk only after the write.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Error as IoError, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use probe_sync_files::{OwnFolder, closed_segments, segment};
use serde::{Deserialize, Serialize};

use crate::{Config, Error};

/// Size limits of a recording's files.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Size at which a file is closed and the next one begun, bytes; `None`: never.
    pub rotate_at: Option<u64>,
    /// Bytes kept per file, over all its segments; `None`: all.
    pub keep_bytes: Option<u64>,
}

impl Limits {
    /// Returns the configured limits. Segments are removed as a whole, so they are small compared
    /// with what is kept.
    pub fn of(config: &Config) -> Self {
        let of_kept = config.keep_bytes.map(|keep| (keep / SEGMENTS_KEPT).max(1));
        let rotate_at = [config.rotate_at, of_kept].into_iter().flatten().min();
        Self { rotate_at, keep_bytes: config.keep_bytes }
    }
}

/// State of a recorded file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamState {
    /// Name of the file in the run's directory.
    pub name: String,
    /// Why the file cannot be written at present; null if it can.
    pub stopped: Option<String>,
    /// Why the file could not be written at some time; null if it always could.
    pub reason: Option<String>,
    /// Rounds missing in the file for that reason (snapshot pairs, in a file of pairs).
    pub rounds_missing: u64,
    /// Segments removed to keep within `keep_bytes`.
    pub removed_segments: u64,
    /// Bytes in the removed segments.
    pub removed_bytes: u64,
    /// Rounds in the removed segments, as far as this process wrote them.
    pub removed_rounds: u64,
}

impl StreamState {
    /// Returns true if the file is incomplete.
    pub fn lacks_something(&self) -> bool {
        self.reason.is_some() || self.removed_segments > 0
    }
}

/// A recording in progress. Two processes never overwrite each other's lines: a process that hung
/// may wake when another has taken its place.
#[derive(Debug)]
pub(crate) struct Stream {
    folder: OwnFolder,
    /// Name in the folder.
    name: PathBuf,
    limits: Limits,
    /// The open file; `None` if a new one could not be created.
    file: Option<File>,
    /// First line of every segment.
    header: Vec<u8>,
    /// Lines of the current round.
    pending: Vec<u8>,
    /// Size of the complete lines in the current file, bytes.
    written: u64,
    /// True if the file may contain more than the complete lines.
    partial: bool,
    /// Rounds in the current file.
    rounds: u64,
    closed: VecDeque<Closed>,
    number: u32,
    state: StreamState,
    said: u32,
}

/// A finished segment.
#[derive(Debug)]
struct Closed {
    name: PathBuf,
    bytes: u64,
    rounds: u64,
}

impl Stream {
    /// Creates a file in a folder and writes `header`, which begins every segment.
    ///
    /// # Errors
    /// [`Error::File`] names the path, also if it already exists.
    pub fn create(
        folder: &OwnFolder,
        name: &str,
        limits: Limits,
        header: Option<&impl Serialize>,
    ) -> Result<Self, Error> {
        let path = &folder.path_of(name);
        folder.create_new(name).map_err(Error::file(path, "create"))?;
        let mut stream = Self::new(folder, name, limits);
        if let Some(header) = header {
            stream.append(header);
            stream.header = std::mem::take(&mut stream.pending);
        }
        stream.open().and_then(|()| stream.write(&[])).map_err(Error::file(path, "write"))?;
        Ok(stream)
    }

    /// Continues a file of an earlier process of this rank, or creates it. An incomplete last line
    /// of that process is cut off.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn go_on(folder: &OwnFolder, name: &str, limits: Limits) -> Result<Self, Error> {
        let mut stream = Self::new(folder, name, limits);
        let path = &folder.path_of(name);
        for (number, path) in closed_segments(path) {
            let bytes = path.symlink_metadata().map_or(0, |known| known.len());
            stream.closed.push_back(Closed { name: segment(&stream.name, number), bytes, rounds: 0 });
            stream.number = number;
        }
        let open = || {
            let mut file = folder.append(name)?;
            let whole = whole_lines(&mut file)?;
            file.set_len(whole)?;
            Ok((file, whole))
        };
        let (file, written) = open().map_err(Error::file(path, "continue"))?;
        (stream.file, stream.written) = (Some(file), written);
        Ok(stream)
    }

    fn new(folder: &OwnFolder, name: &str, limits: Limits) -> Self {
        Self {
            folder: folder.clone(),
            name: name.into(),
            limits,
            file: None,
            header: Vec::new(),
            pending: Vec::new(),
            written: 0,
            partial: false,
            rounds: 0,
            closed: VecDeque::new(),
            number: 0,
            state: StreamState { name: name.to_owned(), ..StreamState::default() },
            said: 0,
        }
    }

    /// Adds one object to the current round.
    pub fn append<T: Serialize>(&mut self, value: &T) {
        serde_json::to_writer(&mut self.pending, value).expect("our types serialise to JSON and a Vec takes any bytes");
        self.pending.push(b'\n');
    }

    /// Passes the round to the operating system, so that a killed process loses nothing written
    /// before. If that fails, the round is missing in the file and the run continues.
    pub fn end_round(&mut self) {
        let lines = std::mem::take(&mut self.pending);
        if lines.is_empty() {
            return;
        }
        match self.stays().and_then(|()| self.open()).and_then(|()| self.write(&lines)) {
            Ok(()) => {
                self.rounds += 1;
                self.goes_on();
            }
            Err(error) => self.stops(&error),
        }
        // Its memory serves the next round.
        self.pending = lines;
        self.pending.clear();
        if self.limits.rotate_at.is_some_and(|limit| self.written >= limit) {
            self.rotate();
        }
        self.remove_oldest();
    }

    /// Returns the state of the file.
    pub fn state(&self) -> &StreamState {
        &self.state
    }

    /// Recreates the file if it was removed, since whatever is written to it would be lost. A
    /// directory that was moved is still the same.
    fn stays(&mut self) -> Result<(), IoError> {
        let Some(file) = &self.file else { return Ok(()) };
        // On a file system over the network a removed file has another name as long as it is open.
        if file.metadata()?.nlink() > 0 && self.folder.contains(&self.name) {
            return Ok(());
        }
        let home = match self.name.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => self.folder.folder(parent),
            None => Ok(self.folder.clone()),
        };
        if home.and_then(|home| home.is_removed()).unwrap_or(true) {
            return Err(IoError::other("its directory was removed"));
        }
        (self.file, self.written, self.partial) = (None, 0, false);
        let rounds = std::mem::take(&mut self.rounds);
        self.state.rounds_missing += rounds;
        if self.said < SAID_MOST {
            self.said += 1;
            tracing::error!(
                "{} was removed while the run was writing it; it was recreated, and {rounds} rounds are missing from it",
                self.path().display()
            );
        }
        self.state.reason = Some("the file was removed during the run".into());
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.folder.path_of(&self.name)
    }

    /// Opens the file unless it is open.
    fn open(&mut self) -> Result<(), IoError> {
        if self.file.is_none() {
            self.file = Some(self.folder.append(&self.name)?);
        }
        Ok(())
    }

    /// Writes whole lines, all or none, after the header line if the file is empty.
    fn write(&mut self, lines: &[u8]) -> Result<(), IoError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        if std::mem::take(&mut self.partial) && cut_off(file, self.written).is_err() {
            self.partial = true;
            return Err(IoError::other("a partial write cannot be removed"));
        }
        let header: &[u8] = if self.written == 0 { &self.header } else { &[] };
        let result = file.write_all(header).and_then(|()| file.write_all(lines));
        match result {
            Ok(()) => self.written += (header.len() + lines.len()) as u64,
            Err(_) => self.partial = cut_off(file, self.written).is_err(),
        }
        result
    }

    fn stops(&mut self, error: &IoError) {
        self.state.rounds_missing += 1;
        let reason = error.to_string();
        if self.state.stopped.is_none() && self.said < SAID_MOST {
            self.said += 1;
            tracing::error!(
                "cannot write {}: {reason}. The run continues without it and retries in every round",
                self.path().display()
            );
        }
        self.state.stopped = Some(reason.clone());
        self.state.reason = Some(reason);
    }

    fn goes_on(&mut self) {
        if self.state.stopped.take().is_some() && self.said < SAID_MOST {
            self.said += 1;
            tracing::warn!(
                "{} is being written again; {} rounds are missing from it",
                self.path().display(),
                self.state.rounds_missing
            );
        }
    }

    /// Closes the file under a number and begins the next one.
    fn rotate(&mut self) {
        let Some(file) = self.file.take_if(|file| file.metadata().is_ok_and(|known| known.len() == self.written))
        else {
            // Somebody else writes it as well, whose file it may be.
            return;
        };
        let (number, bytes, rounds) = (self.number.saturating_add(1), self.written, self.rounds);
        let name = segment(&self.name, number);
        match self.folder.rename(&self.name, &name) {
            Ok(()) => {
                self.closed.push_back(Closed { name, bytes, rounds });
                (self.number, self.written, self.rounds) = (number, 0, 0);
                // What goes wrong here goes wrong with the next round, and is told then.
                let _ = self.open().and_then(|()| self.write(&[]));
            }
            Err(error) => {
                tracing::debug!("{} cannot be renamed to a numbered file: {error}", self.path().display());
                self.file = Some(file);
            }
        }
    }

    fn remove_oldest(&mut self) {
        let Some(keep) = self.limits.keep_bytes else { return };
        while self.closed.iter().map(|closed| closed.bytes).sum::<u64>() + self.written > keep {
            let Some(Closed { name, bytes, rounds }) = self.closed.pop_front() else { return };
            let path = self.folder.path_of(&name);
            if let Err(error) = self.folder.remove(&name) {
                tracing::debug!("{} cannot be removed: {error}", path.display());
            }
            if self.state.removed_segments == 0 {
                tracing::warn!(
                    "removed {} to stay within keep_bytes; report.json counts removed segments",
                    path.display()
                );
            }
            self.state.removed_segments += 1;
            self.state.removed_bytes += bytes;
            self.state.removed_rounds += rounds;
        }
    }
}

/// Truncates a file to its complete lines.
fn cut_off(file: &File, whole: u64) -> Result<(), IoError> {
    if file.metadata()?.len() > whole { file.set_len(whole) } else { Ok(()) }
}

/// Returns the size of a file's complete lines, searching back from its end.
fn whole_lines(file: &mut File) -> Result<u64, IoError> {
    let mut end = file.metadata()?.len();
    let mut block = vec![0; BLOCK];
    while end > 0 {
        let start = end.saturating_sub(BLOCK as u64);
        let block = &mut block[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(block)?;
        if let Some(newline) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

const BLOCK: usize = 64 << 10;
/// Fewest segments kept.
const SEGMENTS_KEPT: u64 = 4;
/// Most messages logged, so that a disk that keeps filling up does not fill the log.
const SAID_MOST: u32 = 20;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use std::path::Path;

    use super::*;

    const NAME: &str = "offsets.jsonl";

    /// Returns a temporary folder, removed when dropped.
    fn folder() -> (tempfile::TempDir, OwnFolder) {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let own = OwnFolder::open(folder.path()).expect("ours");
        (folder, own)
    }

    fn contents(folder: &Path) -> BTreeMap<String, String> {
        let entries = std::fs::read_dir(folder).expect("readable").flatten();
        let content = |entry: std::fs::DirEntry| {
            (entry.file_name().to_string_lossy().into_owned(), std::fs::read_to_string(entry.path()).expect("text"))
        };
        entries.map(content).collect()
    }

    fn rounds(stream: &mut Stream, numbers: std::ops::Range<u32>) {
        for number in numbers {
            stream.append(&number);
            stream.append(&number);
            stream.end_round();
        }
    }

    #[test]
    fn a_file_goes_on_after_its_last_whole_line() {
        let check = |before: &str, after: &str| {
            let (_parent, own) = folder();
            let path = own.path_of(NAME);
            std::fs::write(&path, before).expect("writable");
            let mut stream = Stream::go_on(&own, NAME, Limits::default()).expect("a file");
            stream.append(&7);
            stream.end_round();
            assert_eq!(std::fs::read_to_string(&path).expect("text"), after);
        };
        check("", "7\n");
        check("1\n2\n", "1\n2\n7\n");
        check("1\n{\"a\": ", "1\n7\n");
        check("{\"never whole", "7\n");
        let long = format!("1\n{}", "x".repeat(3 * BLOCK));
        check(&long, "1\n7\n");
    }

    #[test]
    fn a_file_that_is_large_enough_is_closed_at_a_rounds_end_and_the_next_begins_with_the_header() {
        let (folder, own) = folder();
        let limits = Limits { rotate_at: Some(8), keep_bytes: None };
        let mut stream = Stream::create(&own, NAME, limits, Some(&"h")).expect("writable");
        rounds(&mut stream, 0..3);
        let of = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let expected: BTreeMap<String, String> = of(&[
            ("offsets.000001.jsonl", "\"h\"\n0\n0\n"),
            ("offsets.000002.jsonl", "\"h\"\n1\n1\n"),
            ("offsets.000003.jsonl", "\"h\"\n2\n2\n"),
            ("offsets.jsonl", "\"h\"\n"),
        ]);
        assert_eq!(contents(folder.path()), expected);
        drop(stream);
        let mut again = Stream::go_on(&own, NAME, limits).expect("writable");
        rounds(&mut again, 3..5);
        assert!(contents(folder.path()).contains_key("offsets.000004.jsonl"), "{:?}", contents(folder.path()));
    }

    #[test]
    fn the_oldest_segments_go_and_what_was_in_them_is_counted() {
        let (folder, own) = folder();
        let limits = Limits { rotate_at: Some(8), keep_bytes: Some(20) };
        let mut stream = Stream::create(&own, NAME, limits, None::<&u8>).expect("writable");
        rounds(&mut stream, 0..9);
        let kept = contents(folder.path());
        assert!(kept.values().map(String::len).sum::<usize>() <= 20, "{kept:?}");
        assert_eq!(kept.values().next_back().map(String::as_str), Some("8\n8\n"), "the latest stay: {kept:?}");
        let StreamState { removed_segments, removed_bytes, removed_rounds, .. } = *stream.state();
        assert_eq!((removed_segments, removed_bytes, removed_rounds), (2, 16, 4), "{kept:?}");
    }

    #[test]
    fn a_file_that_is_removed_is_begun_anew_and_one_that_is_moved_is_followed() {
        let (parent, _) = folder();
        let (out, aside) = (parent.path().join("out"), parent.path().join("out.1"));
        std::fs::create_dir(&out).expect("writable");
        let path = out.join("offsets.jsonl");
        let limits = Limits { rotate_at: Some(12), keep_bytes: None };
        let own = OwnFolder::open(&out).expect("ours");
        let mut stream = Stream::create(&own, NAME, limits, Some(&"h")).expect("writable");
        rounds(&mut stream, 0..1);
        std::fs::remove_file(&path).expect("it is there");
        rounds(&mut stream, 1..2);
        assert_eq!(contents(&out)["offsets.jsonl"], "\"h\"\n1\n1\n");
        let StreamState { rounds_missing, reason, stopped, .. } = stream.state();
        assert_eq!((*rounds_missing, stopped), (1, &None));
        assert!(reason.as_ref().is_some_and(|reason| reason.contains("removed")), "{reason:?}");
        // Another run takes the place of its directory: its own lines follow, and the other's file
        // is not touched.
        std::fs::rename(&out, &aside).expect("writable");
        std::fs::create_dir(&out).expect("writable");
        std::fs::write(&path, "other").expect("writable");
        rounds(&mut stream, 2..4);
        assert_eq!(contents(&out), BTreeMap::from([("offsets.jsonl".to_owned(), "other".to_owned())]));
        let moved = contents(&aside);
        assert_eq!(moved["offsets.000001.jsonl"], "\"h\"\n1\n1\n2\n2\n");
        assert_eq!(moved["offsets.jsonl"], "\"h\"\n3\n3\n");
        // The directory is removed with all in it.
        std::fs::remove_dir_all(&aside).expect("writable");
        rounds(&mut stream, 4..6);
        assert_eq!((stream.state().rounds_missing, contents(&out).len()), (3, 1));
        assert!(stream.state().stopped.as_ref().is_some_and(|reason| reason.contains("directory was removed")));
    }

    #[test]
    fn a_device_that_is_full_stops_the_writing_and_counts_what_is_missing() {
        let Ok(full) = File::options().append(true).open("/dev/full") else {
            println!("skipped: /dev/full cannot be opened");
            return;
        };
        let (_parent, own) = folder();
        own.create_new(NAME).expect("writable");
        let mut stream = Stream { file: Some(full), ..Stream::new(&own, NAME, Limits::default()) };
        rounds(&mut stream, 0..3);
        assert_eq!(stream.state().rounds_missing, 3);
        assert!(
            stream.state().stopped.as_deref().is_some_and(|reason| reason.contains("space")),
            "{:?}",
            stream.state()
        );
        assert_eq!(stream.said, 1);
    }
}

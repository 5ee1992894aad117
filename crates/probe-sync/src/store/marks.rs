//! A process's marks: readings of the system clock around events that it puts into its own trace.
//!
//! They are made independently of a session, in the traced process. Code that can enter events of
//! its profiler (Python, C) requests a name, reads the system clock, enters an event of that name,
//! reads the clock again and submits both readings. Alignment finds the event in the trace and
//! knows the system clock at its stamp (`lines`). Of several attempts in a row, submit
//! the one with the tightest bracket; each unused name costs only an event in the trace.
//!
//! Under `--inject-skew` the readings that are written are those of the node's virtual clock, as
//! for packets and snapshot pairs. A bracket in which that clock, or the real one, was set back is
//! none and is left out. It does not read a clock or enter events.

use std::path::Path;

use probe_sync_collective::random_bytes;
use probe_sync_files::OwnFolder;
use probe_sync_lines::{MARKS_FOLDER, MarkRecord, MarkToken, MarksHeader, mark_name, marks_file};
use probe_sync_sys::host::{Host, time_namespace};
use probe_sync_time::{NodeId, SkewedClock, System, Timestamp};

use super::lines::JsonLines;
use crate::Error;

/// Identity of a process that writes marks.
#[derive(Clone, Debug, PartialEq)]
pub struct MarkedProcess {
    /// This process's rank in the session.
    pub rank: u32,
    /// Number of ranks in the session.
    pub world_size: u32,
    /// The rank's node, or the node that it follows.
    pub node: NodeId,
    /// Virtual clock of that node; the default is the real one.
    pub clock: SkewedClock,
}

/// Writes the marks of this process. Dropping it keeps what was written.
#[derive(Debug)]
pub struct MarkWriter {
    lines: JsonLines,
    token: MarkToken,
    clock: SkewedClock,
    pid: u32,
    named: u64,
}

impl MarkWriter {
    /// Creates a file of its own in the folder `marks` of a run's directory, creating that if
    /// necessary. Consecutive writers of one process have separate files.
    ///
    /// # Errors
    /// [`Error::File`] names the path; [`Error::Collective`] if the system has no random numbers.
    pub fn create(out_dir: &Path, process: &MarkedProcess) -> Result<Self, Error> {
        let token = MarkToken(u64::from_ne_bytes(random_bytes()?));
        let folder = out_dir.join(MARKS_FOLDER);
        let folder = OwnFolder::create(&folder).map_err(Error::file(&folder, "use"))?;
        let mut lines = JsonLines::create(&folder, &marks_file(process.rank, token))?;
        let host = Host::detect();
        let pid = std::process::id();
        lines.append(&MarksHeader {
            token,
            rank: process.rank,
            world_size: process.world_size,
            node_id: process.node,
            hostname: host.hostname,
            boot_id: host.boot_id,
            pid,
            time_namespace: Some(time_namespace()).filter(|namespace| !namespace.is_initial()),
        })?;
        lines.flush()?;
        Ok(Self { lines, token, clock: process.clock.clone(), pid, named: 0 })
    }

    /// Returns the token in the names of all marks of this process.
    pub fn token(&self) -> MarkToken {
        self.token
    }

    /// Returns the number of the next mark and the name of its event. No two calls return the same;
    /// returns `None` in a forked child, whose marks would be taken for its parent's.
    pub fn next_name(&mut self) -> Option<(u64, String)> {
        self.named += 1;
        self.is_ours().then(|| (self.named, mark_name(self.token, self.named)))
    }

    /// Writes the readings of the machine's system clock before and after the event of this number
    /// was entered, and passes them to the operating system. Writes nothing and returns false if
    /// the bracket ends before it begins, if the number was not assigned, and in a forked child.
    ///
    /// # Errors
    /// [`Error::File`] names the path, for example if the disk is full.
    pub fn write(&mut self, mark: u64, before: Timestamp<System>, after: Timestamp<System>) -> Result<bool, Error> {
        let record = MarkRecord { mark, before: self.clock.apply(before), after: self.clock.apply(after) };
        let given_out = (1..=self.named).contains(&mark);
        if after < before || record.after < record.before || !given_out || !self.is_ours() {
            return Ok(false);
        }
        self.lines.append(&record)?;
        self.lines.flush()?;
        Ok(true)
    }

    fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }
}

#[cfg(test)]
mod tests {
    use probe_sync_lines::{parse_mark_name, token_of_file};

    use super::*;

    fn process(clock: SkewedClock) -> MarkedProcess {
        MarkedProcess { rank: 3, world_size: 8, node: NodeId(1), clock }
    }

    fn lines(run: &Path, writer: &MarkWriter) -> (MarksHeader, Vec<MarkRecord>) {
        let path = run.join(MARKS_FOLDER).join(marks_file(3, writer.token()));
        let text = std::fs::read_to_string(path).expect("written live");
        let mut lines = text.lines();
        let header = serde_json::from_str(lines.next().expect("a header")).expect("a header");
        (header, lines.map(|line| serde_json::from_str(line).expect("whole lines")).collect())
    }

    #[test]
    fn what_is_written_is_there_at_once() {
        let run = tempfile::tempdir().expect("a temporary directory");
        let mut writer = MarkWriter::create(run.path(), &process(SkewedClock::default())).expect("writable");
        let (number, name) = writer.next_name().expect("our own process");
        assert_eq!(parse_mark_name(name.as_bytes()), Some((writer.token(), number)));
        let (other, _) = writer.next_name().expect("our own process");
        assert!(other != number);
        let at = Timestamp::from_ns;
        assert!(writer.write(number, at(1_000), at(1_450)).expect("writable"));
        for (mark, before, after) in [(other, 9, 8), (other + 1, 1, 2), (0, 1, 2)] {
            assert!(!writer.write(mark, at(before), at(after)).expect("writable"), "{mark} {before} {after}");
        }
        let (header, marks) = lines(run.path(), &writer);
        assert_eq!(marks, [MarkRecord { mark: number, before: at(1_000), after: at(1_450) }]);
        assert_eq!((header.token, header.rank, header.world_size, header.node_id), (writer.token(), 3, 8, NodeId(1)));
        assert_eq!((header.pid, header.boot_id), (std::process::id(), Host::detect().boot_id));
    }

    #[test]
    fn every_writer_has_a_file_and_a_token_of_its_own() {
        let run = tempfile::tempdir().expect("a temporary directory");
        let writers: Vec<MarkWriter> = (0..4)
            .map(|_| MarkWriter::create(run.path(), &process(SkewedClock::default())).expect("writable"))
            .collect();
        let folder = std::fs::read_dir(run.path().join(MARKS_FOLDER)).expect("a folder");
        let mut found: Vec<_> =
            folder.filter_map(|entry| token_of_file(&entry.expect("readable").file_name().to_string_lossy())).collect();
        let mut tokens: Vec<MarkToken> = writers.iter().map(MarkWriter::token).collect();
        found.sort_unstable();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!((&found, found.len()), (&tokens, 4));
    }

    #[test]
    fn readings_are_those_of_the_virtual_clock() {
        let run = tempfile::tempdir().expect("a temporary directory");
        let step = probe_sync_time::Step { at_ns: 5_000, step_ns: -700 };
        let clock = SkewedClock { off_ns: 1_000_000, steps: vec![step], ..SkewedClock::default() };
        let mut writer = MarkWriter::create(run.path(), &process(clock)).expect("writable");
        let at = Timestamp::from_ns;
        let mut wrote = |before, after| {
            let (number, _) = writer.next_name().expect("our own process");
            writer.write(number, at(before), at(after)).expect("writable")
        };
        assert!(wrote(1_000, 1_450) && wrote(6_000, 6_450));
        // The clock is set back within it.
        assert!(!wrote(4_900, 5_100));
        let (_, marks) = lines(run.path(), &writer);
        let brackets: Vec<[i64; 2]> = marks.iter().map(|mark| [mark.before.as_ns(), mark.after.as_ns()]).collect();
        assert_eq!(brackets, [[1_001_000, 1_001_450], [1_005_300, 1_005_750]]);
    }
}

//! The rounds of a run from its `offsets.jsonl`, whatever its length and however it ends.
//!
//! Files are read line by line, oldest segment first; those of a rank that took the place of a lost
//! master are read from its first round on. A line that is not a record is counted; a line without
//! an end is left by a killed run. Lines of one round are consecutive. It does not keep rounds in
//! memory, and it does not read the smoothed offsets of the whole run, whose lines are not rounds.

use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use probe_sync::Truth;
use probe_sync::report::SIGMAS_95;
use probe_sync_files::{continuations, open_regular, segments};
use probe_sync_lines::OffsetRecord;

use crate::Error;
use crate::limit::Limit;
use crate::rounds::{Estimate, PageRound, Reading, Source};

/// Files with rounds, in order.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    first: PathBuf,
    /// With the round from which the next part applies.
    parts: Vec<(Vec<PathBuf>, Option<u64>)>,
}

/// The same with known truth.
pub(super) struct WithTruth<'a> {
    recording: &'a Recording,
    truth: Option<&'a Truth>,
}

impl Recording {
    /// The recording of the run in a directory.
    pub fn of(directory: &Path) -> Self {
        let first = directory.join("offsets.jsonl");
        let next = continuations(&first);
        let ends = next.iter().map(|(round, _)| Some(*round)).chain([None]);
        let paths = [first.clone()].into_iter().chain(next.iter().map(|(_, path)| path.clone()));
        let parts = paths.zip(ends).map(|(path, end)| (segments(&path), end)).collect();
        Self { first, parts }
    }

    /// Refuses a recording that exceeds the limit.
    pub fn refuse_longer(&self, limit: Limit) -> Result<(), Error> {
        let Limit::Bytes(most) = limit else { return Ok(()) };
        let length = |path: &PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let bytes = self.parts.iter().flat_map(|(files, _)| files).map(length).sum();
        if bytes > most { Err(Error::TooLong { path: self.first.clone(), bytes, most }) } else { Ok(()) }
    }

    /// Adds the truth, if it is known.
    pub fn with_truth<'a>(&'a self, truth: Option<&'a Truth>) -> WithTruth<'a> {
        WithTruth { recording: self, truth }
    }
}

impl Source for WithTruth<'_> {
    fn each(&self, take: &mut dyn FnMut(&PageRound)) -> Result<Reading, Error> {
        let mut rounds =
            Rounds { truth: self.truth, current: PageRound::default(), newest: None, reading: Reading::default() };
        for (files, end) in &self.recording.parts {
            for path in files {
                let failed = |source| Error::File { path: path.clone(), source };
                let file = match open_regular(path) {
                    Ok(file) => file,
                    // A run that was killed in its first window, or is about to begin.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(failed(error)),
                };
                let whole = each_line(BufReader::with_capacity(BUFFER, file), |line| rounds.line(line, *end, take));
                rounds.reading.ends_mid_line |= !whole.map_err(failed)?;
            }
            rounds.end(take);
        }
        Ok(rounds.reading)
    }
}

/// Assembles rounds from lines.
struct Rounds<'a> {
    truth: Option<&'a Truth>,
    current: PageRound,
    /// Time of the last round passed on.
    newest: Option<i64>,
    reading: Reading,
}

impl Rounds<'_> {
    /// Processes a line of a part that applies up to the round `end`.
    fn line(&mut self, line: Line<'_>, end: Option<u64>, take: &mut dyn FnMut(&PageRound)) {
        let record = match line {
            Line::Whole(bytes) => match serde_json::from_slice::<OffsetRecord>(bytes) {
                Ok(record) => record,
                // The first line of a file says who the nodes are.
                Err(_) if bytes.starts_with(b"{\"meta\":true") || bytes.trim_ascii().is_empty() => return,
                Err(_) => return self.reading.unreadable_lines += 1,
            },
            Line::TooLong => return self.reading.unreadable_lines += 1,
        };
        let number = record.round_id.0;
        if end.is_some_and(|end| number >= end) {
            return;
        }
        let at = record.window_start.midpoint(record.window_end);
        if self.current.nodes.is_empty() || self.current.number != number {
            self.end(take);
            (self.current.number, self.current.at_ns) = (number, at.as_ns());
        }
        if self.current.nodes.len() >= NODES_MAX {
            return self.reading.unreadable_lines += 1;
        }
        let estimate = &record.estimate;
        let truth = self.truth.and_then(|truth| truth.offset_ns(estimate.node_id, at));
        self.current.nodes.push(Estimate {
            node: estimate.node_id,
            reachable: estimate.reachable,
            disturbed: record.clock_disturbed,
            offset_ns: estimate.offset_ns,
            rate_ppm: estimate.drift_ppm,
            half_width_ns: estimate.sigma_ns * SIGMAS_95,
            hard_ns: [estimate.bound_lo_ns, estimate.bound_hi_ns],
            truth_ns: truth.unwrap_or(f64::NAN),
        });
    }

    /// Completes the current round.
    fn end(&mut self, take: &mut dyn FnMut(&PageRound)) {
        if self.current.nodes.is_empty() {
            return;
        }
        if self.newest.is_none_or(|newest| newest < self.current.at_ns) {
            self.newest = Some(self.current.at_ns);
            take(&self.current);
        } else {
            self.reading.unordered_rounds += 1;
        }
        self.current.nodes.clear();
    }
}

/// A line of a file.
#[derive(Copy, Clone)]
enum Line<'a> {
    Whole(&'a [u8]),
    TooLong,
}

/// Passes on every complete line; returns whether the last one is complete.
fn each_line(mut reader: impl BufRead, mut take: impl FnMut(Line<'_>)) -> std::io::Result<bool> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)?;
        match line.last() {
            None => return Ok(true),
            Some(b'\n') => take(Line::Whole(&line[..read - 1])),
            Some(_) if (read as u64) < LINE_MAX => return Ok(false),
            Some(_) => {
                reader.skip_until(b'\n')?;
                take(Line::TooLong);
            }
        }
    }
}

const BUFFER: usize = 1 << 18;
/// A record has some 600 bytes; the first line of a file names all nodes.
const LINE_MAX: u64 = 16 << 20;
/// No run has more: a foreign file must not fill the memory.
const NODES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(round: u64, node: u32, offset_ns: f64) -> String {
        let start = 1_000_000_000 * round;
        format!(
            r#"{{"round_id":{round},"window_id":{round},"window_start_ns":{start},"window_end_ns":{},"node_id":{node},"offset_ns":{offset_ns},"drift_ppm":0.5,"residual":1.0,"reachable":true,"converged":true,"sigma_ns":10.0,"drift_sigma_ppm":0.1,"bound_lo_ns":null,"bound_hi_ns":500.0,"edges_used":2,"edges_excluded":0}}"#,
            start + 1_000_000_000
        )
    }

    fn check(text: &str, rounds: &[(u64, usize)], expected: &Reading) {
        let folder = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(folder.path().join("offsets.jsonl"), text).expect("writable");
        let recording = Recording::of(folder.path());
        let mut found = Vec::new();
        let reading = recording.with_truth(None).each(&mut |round| found.push((round.number, round.nodes.len())));
        assert_eq!((found.as_slice(), &reading.expect("readable")), (rounds, expected), "{text}");
    }

    #[test]
    fn rounds_are_read_however_the_file_ends() {
        let whole =
            format!("{{\"meta\":true,\"nodes\":[]}}\n{}\n{}\n{}\n", line(0, 0, 0.0), line(0, 1, 5.0), line(1, 0, 0.0));
        check(&whole, &[(0, 2), (1, 1)], &Reading::default());
        check("", &[], &Reading::default());
        let cut = &whole[..whole.len() - 9];
        check(cut, &[(0, 2)], &Reading { ends_mid_line: true, ..Reading::default() });
        let broken = whole.replace("\"offset_ns\":5", "\"offset_ns\":five");
        check(&broken, &[(0, 1), (1, 1)], &Reading { unreadable_lines: 1, ..Reading::default() });
        let again = format!("{whole}{}\n", line(0, 1, 5.0));
        check(&again, &[(0, 2), (1, 1)], &Reading { unordered_rounds: 1, ..Reading::default() });
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let long = vec![b'x'; LINE_MAX as usize + 5];
        let mut lines = Vec::new();
        let whole = each_line([&long[..], b"\nshort\n"].concat().as_slice(), |line| {
            lines.push(matches!(line, Line::Whole(b"short")));
        });
        assert_eq!((whole.expect("readable"), lines), (true, vec![false, true]));
    }

    #[test]
    fn who_took_the_place_of_a_lost_master_goes_on_from_its_first_round() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let later = folder.path().join("rank1-from-round2");
        std::fs::create_dir(&later).expect("writable");
        let of = |rounds: &[u64]| rounds.iter().map(|round| line(*round, 0, 0.0) + "\n").collect::<String>();
        std::fs::write(folder.path().join("offsets.jsonl"), of(&[0, 1, 2])).expect("writable");
        std::fs::write(later.join("offsets.jsonl"), of(&[2, 3])).expect("writable");
        let mut found = Vec::new();
        let recording = Recording::of(folder.path());
        recording.with_truth(None).each(&mut |round| found.push(round.number)).expect("readable");
        assert_eq!(found, [0, 1, 2, 3]);
        assert!(recording.refuse_longer(Limit::Bytes(10)).is_err() && recording.refuse_longer(Limit::None).is_ok());
    }
}

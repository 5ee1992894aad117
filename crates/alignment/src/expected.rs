//! The number of trace bytes that a command will read, for progress displays.
//!
//! It is computed before the work and compared with
//! [`bytes_read()`](probe_sync_formats::bytes_read()) meanwhile. Formats state how many passes over
//! a file each purpose takes. It reads no more than the beginning of a file, and refuses none.

use std::path::{Path, PathBuf};

use probe_sync_formats::{Passes, TraceFormat, detect};

use crate::folders;
use crate::merge::{all_kineto, format_for_viewers};
use crate::request::Request;

/// What is done with traces once their clocks are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceUse {
    /// What is written.
    pub output: TraceOutput,
    /// Additional passes over all traces: for steps, for lateness, for marks.
    pub looks: u32,
    /// Some events may be omitted.
    pub filtered: bool,
    /// The output may be written twice, for example if a first attempt is too large; the estimate
    /// assumes that it is.
    pub twice: bool,
    /// Only this many ranks are written.
    pub ranks: Option<u64>,
}

/// What is written of traces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TraceOutput {
    /// Nothing.
    #[default]
    Nothing,
    /// Each in its own format.
    Each,
    /// Output of [`merge()`](crate::merge()), under this name.
    Merged(PathBuf),
    /// A file for viewers.
    ForViewers,
}

/// Expected amount of reading: bytes, and their relative cost.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Expected {
    /// To read facts, and for other passes over the events.
    facts: Part,
    /// To write the output.
    written: Part,
    /// Some of it lies in databases, whose pages SQLite reads:
    /// [`bytes_read()`](probe_sync_formats::bytes_read()) knows nothing of them.
    pub has_databases: bool,
}

#[derive(Copy, Clone, Debug, Default, PartialEq)]
struct Part {
    bytes: f64,
    cost: f64,
}

/// Estimates how much will be read of the requested traces; traces that will be refused count as
/// nothing.
pub fn bytes_expected(request: &Request, used: &TraceUse) -> Expected {
    let paths = folders::of_request(request).map_or_else(|_| Vec::new(), |found| found.paths);
    let known = |path: PathBuf| Some((path.metadata().ok()?.len(), detect(&path).ok()?, path));
    let traces: Vec<(u64, &dyn TraceFormat, PathBuf)> = paths.into_iter().filter_map(known).collect();
    let all_kineto = all_kineto(traces.iter().map(|(_, format, _)| *format));
    let written = used.ranks.map_or(1.0, |ranks| f64::min(1.0, ranks as f64 / traces.len().max(1) as f64));
    let attempts = if used.twice { 2.0 } else { 1.0 };
    let mut expected = Expected::default();
    for (length, format, path) in &traces {
        let of = format.readings(is_packed(path));
        expected.facts.add(*length, of.facts, 1.0);
        expected.facts.add(*length, of.look, f64::from(used.looks));
        let passes = match &used.output {
            TraceOutput::Nothing => Passes { times: 0.0, ..of.facts },
            TraceOutput::Each => of.rewritten,
            TraceOutput::Merged(output) if format_for_viewers(output, all_kineto).is_none() => {
                let times = of.merged.times + if used.filtered { 1.0 } else { 0.0 };
                Passes { times, ..of.merged }
            }
            TraceOutput::Merged(_) | TraceOutput::ForViewers => of.shown,
        };
        expected.written.add(*length, passes, written * attempts);
        expected.has_databases |= of.by_sqlite;
    }
    expected
}

fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"))
}

impl Expected {
    /// Total bytes.
    pub fn bytes(&self) -> f64 {
        self.facts.bytes + self.written.bytes
    }

    /// Fraction of the time that has passed once `read` bytes have been read, 0 to 1.
    pub fn share(&self, read: f64) -> f64 {
        let all = self.facts.cost + self.written.cost;
        let of_facts = self.facts.until(read);
        let of_written = self.written.until(read - self.facts.bytes);
        if all > 0.0 { (of_facts + of_written) / all } else { 0.0 }
    }
}

impl Part {
    fn add(&mut self, length: u64, passes: Passes, again: f64) {
        let bytes = length as f64 * passes.times * again;
        self.bytes += bytes;
        self.cost += bytes * passes.ns_per_byte;
    }

    /// Its cost until this many bytes of it are read.
    fn until(&self, read: f64) -> f64 {
        if self.bytes > 0.0 { self.cost * (read / self.bytes).clamp(0.0, 1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_takes_longer_than_what_is_looked_at() {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = folder.path().join("node0.pt.trace.json");
        std::fs::write(&trace, format!("{{\"traceEvents\": [{}]}}", " ".repeat(1000))).expect("a file");
        let length = trace.metadata().expect("it is there").len() as f64;
        std::fs::write(folder.path().join("notes.txt"), "no trace").expect("a file");
        let of = |used: TraceUse| {
            let request = Request { traces: vec![folder.path().to_owned()], ..Request::default() };
            bytes_expected(&request, &used)
        };
        let looked = of(TraceUse { looks: 1, ..TraceUse::default() });
        assert_eq!((looked.bytes(), looked.has_databases, looked.share(length)), (2.0 * length, false, 0.5));
        let shown = of(TraceUse { output: TraceOutput::ForViewers, twice: true, ..TraceUse::default() });
        assert_eq!(shown.bytes(), 3.0 * length);
        // Facts are read by then: a third of the bytes, and little of the time.
        assert!(shown.share(length) < 0.1 && shown.share(3.0 * length) == 1.0 && shown.share(9.0 * length) == 1.0);
        let merged = |name: &str, filtered, ranks| {
            of(TraceUse { output: TraceOutput::Merged(name.into()), filtered, ranks, ..TraceUse::default() }).bytes()
        };
        assert_eq!(merged("all.pftrace", true, None), 2.0 * length);
        assert_eq!(merged("all.json.gz", false, None), 3.0 * length);
        assert_eq!(merged("all.json", true, Some(7)), 4.0 * length);
        let absent = Request { traces: vec![folder.path().join("absent")], ..Request::default() };
        assert_eq!(bytes_expected(&absent, &TraceUse::default()).share(5.0), 0.0);
    }
}

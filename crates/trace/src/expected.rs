//! How much of its traces a command will read: for whoever shows how far long work is.
//!
//! Place in the flow: before the work, against [`bytes_read()`](crate::bytes_read()) while it goes on. Formats say how often they look at a file for what. What it does not do: read more of a
//! file than its beginning, or refuse one.

use std::path::{Path, PathBuf};

use crate::formats::{self, Passes};

/// What is done with traces once their clocks are known.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// What is written of them.
    pub written: Written,
    /// How often all of them are looked at beside that: for steps, for who was late.
    pub looks: u32,
    /// Events are left out.
    pub by_event: bool,
    /// The output is written twice, as where a first attempt is too large.
    pub twice: bool,
}

/// What is written of traces.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Written {
    /// Nothing.
    #[default]
    Nothing,
    /// Each in its own format.
    Each,
    /// One file of their own format.
    One,
    /// A file for viewers.
    ForViewers,
}

impl Written {
    /// What [`merge()`](crate::merge()) makes of traces under this name.
    pub fn merged(output: &Path, traces: &[PathBuf]) -> Self {
        let name = output.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let is_kineto = |trace: &PathBuf| trace.is_dir() || formats::is_kineto(trace);
        match plain.rsplit_once('.').map(|(_, ending)| ending) {
            Some("pftrace") => Self::ForViewers,
            Some("json") if !traces.iter().all(is_kineto) => Self::ForViewers,
            _ => Self::One,
        }
    }
}

/// What is going to be read: bytes, and what they cost in comparison with each other.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Expected {
    /// To learn facts, and for what else is asked of events.
    facts: Part,
    /// To write.
    written: Part,
    /// Some of it lies in databases, whose pages SQLite reads: [`bytes_read()`](crate::bytes_read()) knows nothing of them.
    pub has_databases: bool,
}

#[derive(Copy, Clone, Debug, Default, PartialEq)]
struct Part {
    bytes: f64,
    cost: f64,
}

/// What of these traces, or of those in these folders, is going to be read; what is no trace counts nothing.
pub fn bytes_expected(traces: &[PathBuf], reading: &Reading) -> Expected {
    let mut expected = Expected::default();
    for path in traces {
        match std::fs::read_dir(path) {
            Ok(entries) => entries.flatten().for_each(|entry| expected.add(&entry.path(), reading)),
            Err(_) => expected.add(path, reading),
        }
    }
    expected
}

impl Expected {
    /// All of it.
    pub fn bytes(&self) -> f64 {
        self.facts.bytes + self.written.bytes
    }

    /// Which share of the time is over when so much has been read, 0 to 1.
    pub fn share(&self, read: f64) -> f64 {
        let all = self.facts.cost + self.written.cost;
        let of_facts = self.facts.until(read);
        let of_written = self.written.until(read - self.facts.bytes);
        if all > 0.0 { (of_facts + of_written) / all } else { 0.0 }
    }

    fn add(&mut self, path: &Path, reading: &Reading) {
        let Some(length) = path.metadata().ok().filter(std::fs::Metadata::is_file).map(|of| of.len()) else { return };
        let Ok(format) = formats::detect(path) else { return };
        let of = format.readings(path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz")));
        let attempts = if reading.twice { 2.0 } else { 1.0 };
        self.facts.add(length, of.facts, 1.0);
        self.facts.add(length, of.look, f64::from(reading.looks));
        match reading.written {
            Written::Nothing => {}
            Written::Each => self.written.add(length, of.rewritten, attempts),
            Written::One => {
                let Passes(times, cost) = of.merged;
                let times = if reading.by_event { times + 1.0 } else { times };
                self.written.add(length, Passes(times, cost), attempts);
            }
            Written::ForViewers => self.written.add(length, of.shown, attempts),
        }
        self.has_databases |= of.by_sqlite;
    }
}

impl Part {
    fn add(&mut self, length: u64, Passes(times, cost): Passes, again: f64) {
        let bytes = length as f64 * times * again;
        self.bytes += bytes;
        self.cost += bytes * cost;
    }

    /// What it costs until so many bytes of it are read.
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
        let of = |reading: &Reading| bytes_expected(&[folder.path().to_owned()], reading);
        let looked = of(&Reading { looks: 1, ..Reading::default() });
        assert_eq!((looked.bytes(), looked.has_databases, looked.share(length)), (2.0 * length, false, 0.5));
        let traces = [folder.path().to_owned()];
        let merged = |name: &str| Written::merged(Path::new(name), &traces);
        assert_eq!(
            [merged("a.pftrace"), merged("a.json.gz"), merged("a.xplane.pb")],
            [Written::ForViewers, Written::One, Written::One]
        );
        let shown = of(&Reading { written: Written::ForViewers, twice: true, ..Reading::default() });
        assert_eq!(shown.bytes(), 3.0 * length);
        // Facts are read by then: a third of the bytes, and little of the time.
        assert!(shown.share(length) < 0.1 && shown.share(3.0 * length) == 1.0 && shown.share(9.0 * length) == 1.0);
        let filtered = of(&Reading { written: Written::One, by_event: true, ..Reading::default() });
        assert_eq!(filtered.bytes(), 4.0 * length);
        assert_eq!(bytes_expected(&[], &Reading::default()).share(5.0), 0.0);
    }
}

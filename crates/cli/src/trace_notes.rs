//! What there is to say of traces: each thing once, of however many traces it holds.
//!
//! The commands that read traces print a line for each, and collect what else there is to say of it
//! here. Notes that differ in their numbers alone are one kind; `-v` prints all of them, each below
//! its trace.

use std::path::{Path, PathBuf};

use probe_sync_alignment::NodeTrace;

use crate::telling::telling;

/// Notes on some traces, by kind, in the order in which the kinds first appeared.
#[derive(Debug, Default)]
pub struct TraceNotes {
    traces: usize,
    kinds: Vec<Kind>,
}

#[derive(Debug)]
struct Kind {
    key: String,
    first: (PathBuf, String),
    traces: usize,
    is_the_same: bool,
}

impl TraceNotes {
    /// Collects the notes on a trace except those that were logged as warnings, and returns what is
    /// to be printed below its line.
    pub fn take(&mut self, path: &Path, trace: Option<&NodeTrace>, notes: &[String]) -> String {
        self.traces += 1;
        let is_warning = |note: &String| trace.is_some_and(|trace| trace.facts.warnings.contains(note));
        let notes = notes.iter().filter(|note| !is_warning(note));
        if telling().verbose {
            return notes.map(|note| format!("  {note}\n")).collect();
        }
        notes.for_each(|note| self.add(path, note));
        String::new()
    }

    fn add(&mut self, path: &Path, note: &str) {
        let key = without_numbers(note);
        match self.kinds.iter_mut().find(|kind| kind.key == key) {
            Some(kind) => {
                kind.traces += 1;
                kind.is_the_same &= kind.first.1 == note;
            }
            None => {
                let first = (path.to_owned(), note.to_owned());
                self.kinds.push(Kind { key, first, traces: 1, is_the_same: true });
            }
        }
    }

    /// One line for each kind.
    pub fn text(&self) -> String {
        let line = |Kind { first: (path, note), traces, is_the_same, .. }: &Kind| {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            match *traces {
                1 => format!("{name}: {note}\n"),
                all if *is_the_same && all == self.traces => format!("all traces: {note}\n"),
                some if *is_the_same => format!("{some} traces: {note}\n"),
                more => format!("{name} and {} more: {note}\n", more - 1),
            }
        };
        let mut text: String = self.kinds.iter().map(line).collect();
        if self.kinds.iter().any(|kind| !kind.is_the_same) {
            text.push_str("use -v to print the notes of each trace\n");
        }
        text
    }
}

/// The text with each number and its unit replaced by one character; names of hosts and files have
/// numbers, too.
fn without_numbers(note: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in note.split(' ') {
        let bare = word.trim_matches(|sign: char| sign.is_ascii_punctuation());
        let is_number = bare.contains(|sign: char| sign.is_ascii_digit());
        let is_unit = ["ns", "µs", "ms", "s", "min", "h"].contains(&bare) && words.last() == Some(&NUMBER);
        match () {
            () if is_number => words.push(NUMBER),
            () if is_unit => {}
            () => words.push(word),
        }
    }
    words.join(" ")
}

const NUMBER: &str = "#";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_differ_in_numbers_alone_are_said_once() {
        let mut notes = TraceNotes::default();
        let of = |trace: usize| {
            [
                format!("matched {} clock markers: residual median {}", 10 + trace, ["2 µs", "30.5 ns"][trace % 2]),
                format!("node {trace}, by its host gpu-{trace}"),
                "its clock is unknown".to_owned(),
            ]
        };
        for trace in 0..3 {
            assert_eq!(notes.take(Path::new(&format!("in/rank{trace}.json")), None, &of(trace)), "");
        }
        notes.take(Path::new("in/rank3.json"), None, &["its clock is unknown".into(), "no times".into()]);
        let said = "rank0.json and 2 more: matched 10 clock markers: residual median 2 µs\n\
                    rank0.json and 2 more: node 0, by its host gpu-0\n\
                    all traces: its clock is unknown\nrank3.json: no times\nuse -v to print the notes of each trace\n";
        assert_eq!(notes.text(), said);
    }
}

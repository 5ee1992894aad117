//! What stands on a terminal while a run goes on: a terminal of the system's, and what it would show.

use std::process::{Command, Stdio};

use crate::support::output;

const WIDTH: usize = 200;

/// What a terminal shows of what was written to it, as far as one line is drawn anew: the lines, without spaces at their ends.
fn shown(written: &str) -> Vec<String> {
    let (mut lines, mut row, mut column): (Vec<Vec<char>>, usize, usize) = (vec![Vec::new()], 0, 0);
    let mut rest = written.chars();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\u{1b}' => {
                let mut sequence = String::new();
                for c in rest.by_ref() {
                    sequence.push(c);
                    if c.is_ascii_alphabetic() {
                        break;
                    }
                }
                let count = sequence.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(1);
                match sequence.chars().last() {
                    Some('A') => row = row.saturating_sub(count),
                    Some('B') => row += count,
                    Some('K') if sequence.contains('2') => lines[row].clear(),
                    Some('K') => lines[row].truncate(column),
                    Some('J') => lines.truncate(row + 1),
                    _ => {}
                }
            }
            c => {
                lines.resize(lines.len().max(row + 1), Vec::new());
                // The cursor waits at a line's end until something follows.
                if column == WIDTH {
                    (row, column) = (row + 1, 0);
                    lines.resize(lines.len().max(row + 1), Vec::new());
                }
                let line = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
        while lines.len() <= row {
            lines.push(Vec::new());
        }
    }
    lines.into_iter().map(|line| line.into_iter().collect::<String>().trim_end().to_owned()).collect()
}

#[test]
fn a_line_that_is_drawn_anew_leaves_what_is_above() {
    assert_eq!(shown("one\r\n\r\u{1b}[2Ktwo\r\u{1b}[2Kthree\r\n"), ["one", "three", ""]);
    assert_eq!(shown("long text\rnew\u{1b}[K\n"), ["new", ""]);
}

/// A clock is stepped early in the run: what was said of it is there at the end, in a line of its own.
#[test]
fn a_fault_that_was_named_stays_on_the_screen() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let run = format!(
        "stty cols {WIDTH} rows 50; {} run --local 3 --fixed --window 500ms --duration 6s --inject-skew 7 --skew-model steps --out {}",
        env!("CARGO_BIN_EXE_probe_sync"),
        folder.path().join("out").display()
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--flush", "--command", &run, "/dev/null"]).stdin(Stdio::null());
    let output = output(command);
    let written = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{written}");
    let lines = shown(&written);
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("out/report.json")).expect("a report")).expect("JSON");
    let steps = report["clock_events"].as_array().expect("a list");
    assert!(!steps.is_empty(), "no clock was stepped: {report:#}");
    let named = |line: &&String| line.starts_with("round ") && line.contains("disturbed") && !line.contains("step");
    assert!(lines.iter().filter(named).count() > 0, "{lines:#?}");
    let drawn = lines.iter().filter(|line| line.contains("solved in")).count();
    assert_eq!(drawn, 1, "one line is drawn anew: {lines:#?}");
}

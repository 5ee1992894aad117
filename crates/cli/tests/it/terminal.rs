//! What stands on a terminal while a run goes on: a terminal of the system's, and what it would show.

use std::process::{Command, Stdio};

use crate::support::output;

/// What a terminal of so many columns shows of what was written to it, as far as lines are drawn anew: the lines, without spaces at their ends.
fn shown(written: &str, columns: usize) -> Vec<String> {
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
                if column == columns {
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
    assert_eq!(shown("one\r\n\r\u{1b}[2Ktwo\r\u{1b}[2Kthree\r\n", 80), ["one", "three", ""]);
    assert_eq!(shown("long text\rnew\u{1b}[K\n", 80), ["new", ""]);
}

/// What a command writes to a terminal of this size, whole.
fn on_terminal(columns: usize, arguments: &str) -> String {
    let line = format!("stty cols {columns} rows 50; {} {arguments}", env!("CARGO_BIN_EXE_probe_sync"));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]).stdin(Stdio::null());
    let output = output(command);
    let written = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments}: {written}");
    written
}

/// A clock is stepped early in the run: what was said of it is there at the end, in a line of its own, above the table that was drawn anew.
#[test]
fn a_fault_that_was_named_stays_on_the_screen() {
    for columns in [80, 120] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let out = folder.path().join("out");
        let run = "run --local 3 --fixed --window 500ms --duration 6s --inject-skew 7 --skew-model steps --out";
        let lines = shown(&on_terminal(columns, &format!("{run} {}", out.display())), columns);
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(out.join("report.json")).expect("a report")).expect("JSON");
        let steps = report["clock_events"].as_array().expect("a list");
        assert!(!steps.is_empty(), "no clock was stepped: {report:#}");
        let named = |line: &&String| line.starts_with("round ") && line.contains("disturbed") && !line.contains("step");
        assert!(lines.iter().filter(named).count() > 0, "{lines:#?}");
        // One table of the run under way, and the one of the report.
        let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!((count("solved in"), count("hard  state"), count("±95 %  ")), (1, 1, 2), "{columns}: {lines:#?}");
    }
}

/// Progress of what takes long: on a terminal a bar that is gone at the end, elsewhere lines without a single escape code, with -q nothing.
#[test]
fn long_work_says_how_far_it_is() {
    let sim = "sim --nodes 48 --neighbors 8 --duration 8s --window 1s";
    let written = on_terminal(80, sim);
    assert!(written.contains(" % after ") && written.contains(" left"), "{written}");
    let lines = shown(&written, 80);
    assert!(!lines.iter().any(|line| line.contains(" % after ")), "{lines:#?}");
    let piped = |quiet: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_probe_sync"));
        command.args(sim.split(' ')).args(quiet);
        let output = output(command);
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let told = piped(&[]);
    assert!(told.contains("sim, scenario: ") && !told.contains('\u{1b}'), "{told}");
    assert_eq!(piped(&["-q"]), "");
    let json = piped(&["--log-format", "json"]);
    let first: serde_json::Value = serde_json::from_str(json.lines().next().expect("a line")).expect("JSON");
    assert!(first["message"].as_str().is_some_and(|text| text.starts_with("sim, scenario: ")), "{first}");
}

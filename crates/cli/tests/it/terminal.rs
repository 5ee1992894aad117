//! What stands on a terminal while a run goes on: a terminal of the system's, and what it would
//! show.

use std::process::{Command, Stdio};

use crate::support::{collective_traces, complaint, few_packets, output, probe_sync, right_clocks, short_recording};

/// What a terminal with this many columns shows of the text written to it, as far as lines are
/// redrawn: the lines, without trailing spaces.
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
    let (success, written) = any_on_terminal(columns, arguments);
    assert!(success, "{arguments}: {written}");
    written
}

/// The same, and whether it came to a good end.
fn any_on_terminal(columns: usize, arguments: &str) -> (bool, String) {
    let line = format!("stty cols {columns} rows 50; {} {arguments}", env!("CARGO_BIN_EXE_probe_sync"));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]).stdin(Stdio::null());
    command.env("TERM", "xterm");
    let output = output(command);
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Every command on real input, and every help page: no line is longer than the terminal, but where
/// a single word is.
#[test]
#[ignore = "long: starts every command at two widths of a terminal"]
fn every_command_and_help_page_fits_its_terminal() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let [one, two] = collective_traces(folder.path(), Some([10, 12])).map(|path| path.display().to_string());
    let inputs = [right_clocks, few_packets, short_recording].map(|make| make(folder.path()));
    let [clocks, packets, recording] = inputs.map(|path| path.display().to_string());
    let run = at("run");
    let traces = format!("{one} {two} --offsets {clocks} --nodes 0 1");
    let short = "--duration 1s --window 500ms";
    let measure = |out: &str| format!("run --local 3 --fixed {short} --inject-skew 7 --out {out}");
    let commands = [
        measure(&run),
        format!("status {run}"),
        format!("report {run}"),
        format!("doctor --peers --local 2 {short}"),
        format!("solve --packets {packets} -o {}", at("solved.jsonl")),
        format!("solve --windows {run}/windows/node0.jsonl -o {}", at("fits.jsonl")),
        format!("check {traces}"),
        format!("stragglers {traces}"),
        format!("align {traces} --validate -o {}", at("aligned")),
        format!("merge {traces} --mark-late -o {}", at("all.json")),
        format!("merge {traces} --only gpu -o {}", at("gpu.json")),
        format!("convert {traces} -f pftrace -d {}", at("converted")),
        format!("record inspect {recording}"),
        format!("record recover {recording}"),
        format!("record convert {recording} -f kineto -o {}", at("rank0.pt.trace.json")),
        format!("record convert {recording} -f rocpd -o {}", at("rank0_results.db")),
        format!("query {} --no-correction --sql 'SELECT name, start FROM regions'", at("rank0_results.db")),
        "sim --nodes 4 --neighbors 3 --rate 20 --duration 8s --window 2s".to_owned(),
        format!("sim --adaptive --nodes 4 --neighbors 3 --load 0.2 --seeds 1 {short}"),
        "doctor".to_owned(),
        "--version".to_owned(),
    ];
    let pages = help_pages();
    for columns in [80, 120] {
        // A database is never replaced; the first time there is none.
        let _ = std::fs::remove_file(at("rank0_results.db"));
        for command in commands.iter().chain(&pages) {
            let (success, written) = any_on_terminal(columns, command);
            // A machine that cannot measure is told in the same lines.
            assert!(success || command.starts_with("doctor"), "{command}: {written}");
            for line in plain_lines(&written) {
                let length = line.trim_end().chars().count();
                let is_one_word = line.split_whitespace().count() == 1;
                let holds = length <= columns || is_one_word || is_drawn(&line, columns);
                assert!(holds, "{command} at {columns}: {length} columns: {line}");
            }
            let lines = shown(&written, columns);
            assert!(lines.iter().any(|line| !line.is_empty()), "{command} says nothing");
        }
    }
}

/// Whether a line is several that were drawn in place: each is filled up with spaces to the
/// terminal's width, and what is next follows at once.
fn is_drawn(line: &str, columns: usize) -> bool {
    let letters: Vec<char> = line.chars().collect();
    letters.chunks_exact(columns).all(|row| row.ends_with(&[' ', ' ']))
}

/// All that was ever written as a line, also what was drawn over later; without colours and the
/// like.
fn plain_lines(written: &str) -> Vec<String> {
    let mut parts = written.split('\u{1b}');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|letter: char| letter.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        // Where the cursor goes elsewhere another line begins.
        if !part[..end].ends_with('m') {
            text.push('\n');
        }
        text.push_str(&part[end..]);
    }
    text.split(['\r', '\n']).map(str::to_owned).collect()
}

#[test]
fn lines_are_measured_without_what_is_no_letter() {
    assert_eq!(plain_lines("\u{1b}[1mbold\u{1b}[0m text\u{1b}[2Knext\r\nlast"), ["bold text", "next", "", "last"]);
}

/// The lines that print all help pages, short and long.
fn help_pages() -> Vec<String> {
    fn pages_of(path: &str, pages: &mut Vec<String>) {
        let asked = output(probe_sync(&[path.split_whitespace().collect::<Vec<_>>(), vec!["--help"]].concat()));
        assert!(asked.status.success(), "{path}: {}", complaint(&asked));
        let text = String::from_utf8_lossy(&asked.stdout).into_owned();
        pages.extend([format!("{path} -h"), format!("{path} --help")]);
        let mut is_list = false;
        let verbs = text.lines().filter(|line| {
            is_list = match line.is_empty() {
                true => false,
                false => is_list || ["Commands:", "Measure:", "Traces:", "Operate:", "Plan:"].contains(line),
            };
            is_list
        });
        // A name stands two columns in, and what it does further.
        for line in verbs.filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
            let verb = line.split_whitespace().next().expect("a name");
            if verb != "help" {
                pages_of(&format!("{path} {verb}"), pages);
            }
        }
    }
    let mut pages = Vec::new();
    pages_of("", &mut pages);
    assert!(pages.len() > 50, "{pages:?}");
    pages
}

/// A clock is stepped early in the run: what was said of it is there at the end, in a line of its
/// own, above the table that was drawn anew.
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
        let named = |line: &&String| line.contains(" disturbed") && !line.contains("was disturbed");
        assert!(lines.iter().filter(named).count() > 0, "{lines:#?}");
        // One table of the run under way, and the one of the report.
        let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!((count("solved in"), count("hard  state"), count("±95 %  ")), (1, 1, 2), "{columns}: {lines:#?}");
    }
}

/// Progress of what takes long: on a terminal a bar that is gone at the end, elsewhere lines
/// without a single escape code, with -q nothing.
#[test]
#[ignore = "long: follows a large alignment on a terminal"]
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

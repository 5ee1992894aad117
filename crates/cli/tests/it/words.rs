//! A snapshot test of command output: `words.txt` holds the exact text, so any change to it shows
//! up in review.
//!
//! `WORDS_WRITE=1` writes the file anew. Numbers that a machine decides are `N`, the folder is
//! `DIR`.

use std::fmt::Write as _;
use std::path::Path;

use crate::support::{
    collective_traces, complaint, few_packets, output, probe_sync, right_clocks, short_recording, text,
};

#[test]
fn commands_say_what_is_written_down() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| text(&folder.path().join(name)).to_owned();
    let [one, two] = collective_traces(folder.path(), Some([10, 12])).map(|path| text(&path).to_owned());
    let (clocks, packets) = (right_clocks(folder.path()), few_packets(folder.path()));
    // Of two clocks of which one ends before the traces do.
    let short = "node,node_realtime_ns,offset_vs_node0_ns,sigma_ns\n0,0,0,1\n0,11000,0,1\n1,0,0,1\n1,11000,0,1\n";
    std::fs::write(at("short.csv"), short).expect("writable");
    let recording = text(&short_recording(folder.path())).to_owned();
    let given = |clocks: &str| format!("{one} {two} --offsets {clocks} --nodes 0 1");
    let (all, short) = (given(text(&clocks)), given(&at("short.csv")));
    let commands = [
        format!("solve --packets {} -o {}", text(&packets), at("solved.jsonl")),
        format!("check {one} {two} --assume-order"),
        format!("check {all}"),
        format!("check {short}"),
        format!("check {short} --extrapolate 1s"),
        format!("stragglers {all}"),
        format!("align {all} --validate -o {}", at("aligned")),
        format!("merge {all} --mark-late -o {}", at("all.json")),
        format!("merge {all} --only gpu --ranks 0 -o {}", at("gpu.json")),
        format!("merge {all} --ranks 7 -o {}", at("none.json")),
        format!("convert {all} -f pftrace -d {}", at("converted")),
        format!("record inspect {recording}"),
        format!("record recover {recording}"),
        format!("record convert {recording} -f kineto -o {}", at("rank0.pt.trace.json")),
        format!("status {}", at("nothing")),
        format!("report {}", at("nothing")),
        "sim --nodes 5 --neighbors 3 --load 0.5 --rate 20 --duration 12s --seeds 2 --wide".to_owned(),
        "sim --adaptive --nodes 4 --neighbors 3 --load 0.2 --seeds 1 --duration 4s --window 1s --wide".to_owned(),
    ];
    let program = std::env::current_exe().expect("this test");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a host");
    let here = std::env::current_dir().expect("a folder");
    let names = [
        (text(folder.path()).to_owned(), "DIR"),
        // Tables shorten paths.
        (folder.path().file_name().expect("a name").to_string_lossy().into_owned(), "DIR"),
        (text(&here).to_owned(), "HERE"),
        (program.file_name().expect("a name").to_string_lossy().into_owned(), "PROGRAM"),
        (format!("{} pid", host.trim()), "HOST pid"),
        (format!("{} rank 0 pid", host.trim()), "HOST rank 0 pid"),
        (format!("on {},", host.trim()), "on HOST,"),
        ("clock monotonic_raw,".to_owned(), "clock CLOCK,"),
        ("clock tsc,".to_owned(), "clock CLOCK,"),
    ];
    let mut said = String::new();
    for command in commands {
        let found = output(probe_sync(&command.split(' ').collect::<Vec<_>>()));
        let (out, error) = (String::from_utf8_lossy(&found.stdout).into_owned(), complaint(&found));
        let status = found.status.code().unwrap_or(-1);
        let of_machine = command.starts_with("record") || command.starts_with("sim");
        let plain = |text: &str| {
            let named = names.iter().fold(text.to_owned(), |text, (name, sign)| text.replace(name.as_str(), sign));
            plain(&named, of_machine)
        };
        // Writing to a string cannot fail.
        let _ = write!(said, "$ probe_sync {}\n{}{}status {status}\n\n", plain(&command), plain(&out), plain(&error));
    }
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/words.txt");
    if std::env::var_os("WORDS_WRITE").is_some() {
        std::fs::write(&kept, &said).expect("writable");
    }
    let expected = std::fs::read_to_string(&kept).expect("tests/it/words.txt");
    let other = said.lines().zip(expected.lines()).find(|(said, expected)| said != expected);
    assert!(
        said == expected,
        "the words are others than tests/it/words.txt has, first {other:?}; read them, and write the file with WORDS_WRITE=1 where they are better:\n{said}"
    );
}

/// "INFO sim, sw 1: 40 % after 2 s, about 3 s left", which a busy machine writes and a quick one
/// does not.
fn is_progress(line: &str) -> bool {
    let elapsed = line.strip_prefix("INFO ").and_then(|said| said.rsplit_once(" after "));
    elapsed.is_some_and(|(_, elapsed)| elapsed.starts_with(|first: char| first.is_ascii_digit()))
}

/// Without times of log lines and, of what this machine decides, without numbers and names.
fn plain(text: &str, of_machine: bool) -> String {
    let mut all = String::new();
    for line in text.split_inclusive('\n') {
        // 2026-11-25T23:27:31.968996Z  INFO
        let line = line
            .split_once("Z ")
            .filter(|(time, _)| time.starts_with("20") && !time.contains(' '))
            .map_or(line, |(_, rest)| rest.trim_start());
        if is_progress(line) {
            continue;
        }
        if !of_machine {
            all.push_str(line);
            continue;
        }
        let mut in_number = false;
        let mut numbers = String::new();
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            let goes_on = in_number && letter == '.' && letters.peek().is_some_and(char::is_ascii_digit);
            in_number = letter.is_ascii_digit() || goes_on;
            match in_number {
                true if numbers.ends_with('N') => {}
                true => numbers.push('N'),
                // Columns are as wide as their numbers.
                false if letter == ' ' && numbers.ends_with(' ') => {}
                false => numbers.push(letter),
            }
        }
        for unit in ["N ns", "N µs", "N ms"] {
            numbers = numbers.replace(unit, "N UNIT");
        }
        // On a machine that hardly gets on.
        numbers = numbers.replace("N s long", "N UNIT long").replace("N s of their", "N UNIT of their");
        // A clock that somebody set meanwhile.
        if numbers.contains("the system clock was set") {
            continue;
        }
        all.push_str(&numbers);
    }
    all
}

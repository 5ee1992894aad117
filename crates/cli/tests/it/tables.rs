//! Tables and help fit a terminal of 80 columns.

use crate::support::{complaint, output, probe_sync, text};

/// Lines of tables, which begin with the column of a node, a rank, a method or an operation.
fn check(arguments: &[&str], header: &str) {
    let found = output(probe_sync(arguments));
    assert!(found.status.success(), "{arguments:?}: {}", complaint(&found));
    let all = String::from_utf8_lossy(&found.stdout).into_owned();
    let lines: Vec<&str> = all.lines().collect();
    let first = lines.iter().position(|line| line.trim_start().starts_with(header));
    let first = first.unwrap_or_else(|| panic!("{arguments:?}: no table with {header}: {all}"));
    for line in lines[first..].iter().take_while(|line| line.starts_with(' ')) {
        assert!(line.chars().count() <= 80, "{arguments:?}: {} columns: {line}", line.chars().count());
    }
}

#[test]
fn every_table_fits_80_columns() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = text(folder.path()).to_owned() + "/run";
    check(&["run", "--local", "3", "--duration", "2s", "--window", "500ms", "--inject-skew", "1", "-o", &out], "node");
    check(&["status", &out], "node");
    check(&["doctor", "--peers", "--local", "2"], "node");
    let small = ["sim", "--nodes", "3", "--duration", "2s", "--window", "1s"];
    check(&small, "method");
    let wide = output(probe_sync(&["status", "--wide", &out]));
    let narrow = output(probe_sync(&["status", &out]));
    assert!(wide.stdout.len() >= narrow.stdout.len());
}

#[test]
fn every_help_fits_its_terminal() {
    for command in [
        "run",
        "solve",
        "compose",
        "doctor",
        "align",
        "merge",
        "convert",
        "check",
        "stragglers",
        "sim",
        "clock",
        "status",
        "ctl",
        "record",
        "export",
        "config",
        "completions",
        "man",
    ] {
        for columns in ["80", "120"] {
            let mut asked = probe_sync(&[command, "-h"]);
            asked.env("COLUMNS", columns);
            let found = output(asked);
            let all = String::from_utf8_lossy(&found.stdout).into_owned();
            let limit: usize = columns.parse().expect("a number");
            let longest = all.lines().max_by_key(|line| line.chars().count()).unwrap_or_default();
            assert!(longest.chars().count() <= limit, "{command} at {columns}: {longest}");
        }
    }
}

#[test]
fn the_version_says_what_is_built_in() {
    let found = output(probe_sync(&["--version"]));
    let all = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(
        all.contains(env!("CARGO_PKG_VERSION")) && all.contains("features: ") && all.contains("not built in: "),
        "{all}"
    );
    let example = output(probe_sync(&["config", "--example"]));
    assert!(example.status.success() && String::from_utf8_lossy(&example.stdout).contains("# Measuring"));
}

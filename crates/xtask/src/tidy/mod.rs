//! `cargo xtask tidy`, which checks the project rules that the compiler does not know.
//!
//! [`imports`] reads the manifests, and [`source`] takes Rust text apart. These are the rules: pure
//! crates stay pure, `unsafe` stays in its quarantine, every file states its purpose, and no path
//! of someone's machine remains (all in this file); crates import in one direction ([`imports`]),
//! and so do the files of a crate ([`circles`]); functions and files are short ([`lengths`]); tests
//! are in their standard places ([`layout`]). It does not
//! fully parse Rust: it blanks comments and literals and counts braces, which is enough for these
//! rules.

mod circles;
mod imports;
mod layout;
mod lengths;
mod modules;
mod paths;
mod places;
mod source;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use places::{is_crate_root, is_test_file, package};
use source::Source;

/// Checks everything and prints every complaint as `file:line: what`.
///
/// # Errors
/// When there is a complaint.
pub fn tidy(root: &Path) -> Result<()> {
    let mut complaints = imports::check(root)?;
    let files = files(root)?;
    let mut sources = BTreeMap::new();
    for file in &files {
        let name = file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned();
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        complaints.extend(machine_paths(&name, &text));
        if name.ends_with(".rs") {
            complaints.extend(rust_file(&name, &text));
            sources.insert(name, text);
        }
    }
    complaints.extend(lengths::check(&sources));
    complaints.extend(layout::check(&sources));
    complaints.extend(circles::check(&sources));
    for complaint in &complaints {
        println!("{complaint}");
    }
    println!("tidy: {} files", files.len());
    if complaints.is_empty() { Ok(()) } else { bail!("{} complaint(s)", complaints.len()) }
}

/// The rules that look at one Rust file alone; `name` is its path from the root.
fn rust_file(name: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if !text.starts_with("//!") {
        complaints.push(format!("{name}:1: does not open with //! (what it is, its place in the flow)"));
    }
    if is_crate_root(name) && !UNSAFE_ALLOWED.contains(&package(name)) && !text.contains("#![forbid(unsafe_code)]") {
        complaints.push(format!("{name}:1: lacks #![forbid(unsafe_code)]"));
    }
    if PURE.contains(&package(name)) && name.contains("/src/") && !is_test_file(name) {
        complaints.extend(impurities(name, &Source::new(text)));
    }
    complaints
}

/// What a pure crate must not touch, outside its tests.
fn impurities(name: &str, source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in source.code_lines() {
        // A span is a value.
        let line = &line.replace("core::time::Duration", "");
        let direct = IMPURE.iter().find(|word| line.contains(**word)).map(|word| (*word).to_owned());
        if let Some(word) = direct.or_else(|| grouped_import(line)) {
            complaints.push(format!("{name}:{number}: a pure crate uses {word}"));
        }
    }
    complaints
}

/// The impure module in `use std::{fmt, net::IpAddr}` on one line.
fn grouped_import(line: &str) -> Option<String> {
    let (_, group) = line.split_once("std::{")?;
    let modules = group.split([',', '{', '}', ' ']).map(|path| path.split("::").next().unwrap_or(path));
    modules.into_iter().find(|module| IMPURE_MODULES.contains(module)).map(|module| format!("std::{module}"))
}

/// Paths that exist on one machine only.
fn machine_paths(name: &str, text: &str) -> Vec<String> {
    let hit = |line: &str| MACHINE_PATHS.iter().any(|prefix| line.contains(prefix));
    let lines = text.lines().enumerate().filter(|(_, line)| hit(line));
    lines.map(|(index, line)| format!("{name}:{}: a path of one machine: {}", index + 1, line.trim())).collect()
}

/// All files that belong to the project, in order of name.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        let entries = std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() && !is_foreign(&name, directory == root) {
                open.push(entry.path());
            } else if kind.is_file() && !is_written_by_tools(&name) {
                found.push(entry.path());
            }
        }
        if found.len() > MAX_FILES {
            bail!("more than {MAX_FILES} files; a run's output inside the checkout?");
        }
    }
    found.sort();
    Ok(found)
}

/// The file `.git` of a linked worktree names a folder of this machine.
fn is_written_by_tools(name: &str) -> bool {
    name == "Cargo.lock" || name == ".git"
}

/// Build output, version control, output of runs: what .gitignore names.
fn is_foreign(name: &str, at_root: bool) -> bool {
    let hidden = name.starts_with('.') && name != ".ci" && name != ".cargo" && name != ".github";
    hidden
        || name == "__pycache__"
        // The workspaces below `bench` have build directories, too.
        || name == "target"
        || at_root && (name == "probe_sync_out" || name.starts_with("out"))
}

/// Crates that get time and bytes as arguments and touch nothing.
const PURE: [&str; 5] = ["time", "probe", "estimate", "sim", "lateness"];

/// Text that betrays input, output, a clock, a thread or logging.
const IMPURE: [&str; 17] = [
    "std::time",
    "core::time",
    "SystemTime",
    "Instant::now",
    "std::net",
    "std::fs",
    "std::io",
    "std::env",
    "std::process",
    "std::thread",
    "std::os",
    "tracing::",
    "println!",
    "print!",
    "dbg!",
    "rand::rng(",
    "OsRng",
];

const IMPURE_MODULES: [&str; 8] = ["time", "net", "fs", "io", "env", "process", "thread", "os"];

/// Where unsafe code is quarantined; `mpi-tests` calls raw MPI to compare with it, `otf2` is the
/// calls of libotf2 and nothing else, `bench/record` calls the C functions and reads the counter.
const UNSAFE_ALLOWED: [&str; 8] = ["sys", "mpi", "record", "capi", "python", "mpi-tests", "otf2", "bench/record"];

/// Split, so that this file does not complain about itself.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/", "home/"), concat!("/", "root/"), concat!("/", "Users/"), concat!("/", "work/")];

const MAX_FILES: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the Rust rules; every complaint must hold its expected part, in order.
    fn check(name: &str, text: &str, expected: &[&str]) {
        let complaints = rust_file(name, text);
        assert_eq!(complaints.len(), expected.len(), "{complaints:?}");
        for (complaint, part) in complaints.iter().zip(expected) {
            assert!(complaint.contains(part), "{complaint} lacks {part}");
        }
    }

    #[test]
    fn a_file_says_what_it_is_and_roots_forbid_unsafe() {
        check("crates/probe/src/a.rs", "//! A.\n", &[]);
        check("crates/probe/src/a.rs", "fn a() {}\n", &["does not open with //!"]);
        check("crates/cli/src/main.rs", "//! A.\n", &["forbid"]);
        check("crates/cli/src/main.rs", "//! A.\n#![forbid(unsafe_code)]\n", &[]);
        check("crates/sys/src/lib.rs", "//! A.\n", &[]);
        check("mpi-tests/src/main.rs", "//! A.\n", &[]);
    }

    #[test]
    fn pure_crates_touch_nothing_outside_tests_and_comments() {
        check("crates/time/src/a.rs", "//! std::fs\nuse std::fs;\n", &[":2: a pure crate uses std::fs"]);
        check("crates/time/src/a.rs", "//! A.\nuse std::{fmt, net::IpAddr};\n", &["std::net"]);
        check("crates/time/src/a.rs", "//! A.\nuse std::{fmt, cmp};\n", &[]);
        check("crates/time/src/a.rs", "//! A.\nconst A: &str = \"std::fs\"; // println!\n", &[]);
        check("crates/time/src/a.rs", "//! A.\n#[cfg(test)]\nmod tests {\n use std::fs;\n}\n", &[]);
        check("crates/time/src/a.rs", "//! A.\n#[cfg(test)]\nmod tests {\n}\nuse std::thread;\n", &[":5:"]);
        check("crates/sys/src/a.rs", "//! A.\nuse std::fs;\n", &[]);
    }

    #[test]
    fn a_path_of_one_machine_is_named_with_its_line() {
        let text = format!("fine\nsee {}me/notes\n", concat!("/", "home/"));
        assert_eq!(machine_paths("README.md", &text).len(), 1);
        assert!(machine_paths("README.md", &text)[0].starts_with("README.md:2:"));
    }
}

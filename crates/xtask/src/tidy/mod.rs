//! `cargo xtask tidy`, which checks the project rules that the compiler does not know.
//!
//! In this file are the rules for one file at a time: pure crates stay pure, `unsafe` stays in its
//! quarantine, every file states its purpose, is short and is in its place, and contains no path of
//! one machine. Crates import in one direction ([`imports`]), and so do the files of a crate
//! ([`circles`]). [`names`] reads Rust. Clippy checks the length of functions.

mod circles;
mod imports;
mod names;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use imports::PURE;
use names::Names;

/// Checks everything and prints every complaint as `file:line: what`.
///
/// # Errors
/// There is a complaint, or git does not list the files.
pub fn tidy(root: &Path) -> Result<()> {
    let mut complaints = imports::check(root)?;
    let files = files(root)?;
    let mut sources = BTreeMap::new();
    for name in &files {
        let Ok(text) = std::fs::read_to_string(root.join(name)) else { continue };
        complaints.extend(machine_paths(name, &text));
        if name.ends_with(".rs") {
            match Names::new(&text) {
                Ok(names) => {
                    complaints.extend(rust_file(name, &text, &names));
                    sources.insert(name.clone(), names);
                }
                Err(error) => complaints.push(format!("{name}:{}: is not Rust: {error}", error.span().start().line)),
            }
        }
    }
    complaints.extend(sources.keys().filter_map(|name| layout(name, &files)));
    let roots = sources.keys().filter(|name| is_crate_root(name));
    complaints.extend(roots.flat_map(|root| circles::check(root, &sources)));
    for complaint in &complaints {
        println!("{complaint}");
    }
    println!("tidy: {} files", files.len());
    if complaints.is_empty() { Ok(()) } else { bail!("{} complaint(s)", complaints.len()) }
}

/// All files of the project, also those that are not committed yet, in order of name.
fn files(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let output = git.output().context("starting git, which lists the files")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    let mut names: Vec<String> =
        listed.split_terminator('\0').filter(|name| *name != "Cargo.lock").map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

/// The rules that look at one Rust file alone; `name` is its path from the root.
fn rust_file(name: &str, text: &str, names: &Names) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut complain = |line: usize, what: &str| complaints.push(format!("{name}:{line}: {what}"));
    if !text.starts_with("//!") {
        complain(1, "does not open with //! (what it is, its place in the flow)");
    }
    if is_crate_root(name) && !UNSAFE_ALLOWED.contains(&package(name)) && !text.contains("#![forbid(unsafe_code)]") {
        complain(1, "lacks #![forbid(unsafe_code)]");
    }
    for (index, _) in text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("#[path")) {
        complain(index + 1, "#[path]: a module's file is where its name says");
    }
    let lines = names.lines.len();
    let is_generated = text.lines().take(HEADER_LINES).any(|line| line.contains("@generated"));
    if lines > LINES_MAX && !is_test_file(name) && !is_generated {
        complain(1, &format!("{lines} lines of code without tests, more than {LINES_MAX}"));
    }
    if PURE.contains(&package(name)) && name.contains("/src/") && !is_test_file(name) {
        let imports = names.imports.iter().map(|import| (import.line, &import.path));
        for (line, path) in imports.chain(names.paths.iter().map(|path| (path.line, &path.words))) {
            if let Some(word) = impurity(&path.join("::")) {
                complain(line, &format!("a pure crate uses {word}"));
            }
        }
    }
    complaints
}

/// What a path names that a pure crate must not touch.
fn impurity(path: &str) -> Option<&'static str> {
    // A span is a value.
    let is_value = path.starts_with("core::time::Duration");
    let path = format!("::{path}::");
    IMPURE.split(' ').find(|word| !is_value && path.contains(&format!("::{word}::")))
}

/// Complains about a module or a test that is in another place than in other crates: a module with
/// children is `foo/mod.rs`, small tests are at the end of their file, larger ones in `tests.rs` in
/// the folder of their module, and external ones in `tests/it/main.rs`.
fn layout(name: &str, files: &[String]) -> Option<String> {
    let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
    let stem = file.trim_end_matches(".rs");
    let of_children = format!("{}/", name.trim_end_matches(".rs"));
    if files.iter().any(|other| other.starts_with(&of_children)) {
        Some(format!("{name}:1: a module with children is {stem}/mod.rs, not {stem}.rs beside {stem}/"))
    } else if stem.ends_with("_tests") || stem.starts_with("tests_") {
        Some(format!("{name}:1: larger tests stand in tests.rs in the folder of their module"))
    } else if name.starts_with("crates/") && folder.ends_with("/tests") && !folder.contains("/src/") {
        Some(format!("{name}:1: one program of integration tests per crate: tests/it/main.rs"))
    } else {
        None
    }
}

/// Paths that exist on one machine only.
fn machine_paths(name: &str, text: &str) -> Vec<String> {
    let hit = |line: &str| MACHINE_PATHS.iter().any(|prefix| line.contains(prefix));
    let lines = text.lines().enumerate().filter(|(_, line)| hit(line));
    lines.map(|(index, line)| format!("{name}:{}: a path of one machine: {}", index + 1, line.trim())).collect()
}

/// A file of tests only: it may hold long scenario tables and touch what it likes.
fn is_test_file(name: &str) -> bool {
    name.ends_with("/tests.rs") || name.contains("/tests/")
}

/// `lib.rs`, `main.rs` or a program under `src/bin`.
fn is_crate_root(name: &str) -> bool {
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
    ["/src/lib.rs", "/src/main.rs"].iter().any(|end| name.ends_with(end)) || folder.ends_with("/src/bin")
}

/// The package's folder: `time` of `crates/time/src/lib.rs`, `mpi-tests` of
/// `mpi-tests/src/main.rs`, `bench/hosts` of `bench/hosts/src/main.rs`.
fn package(name: &str) -> &str {
    let name = name.strip_prefix("crates/").unwrap_or(name);
    let folders = if name.starts_with("bench/") { 2 } else { 1 };
    name.match_indices('/').nth(folders - 1).map_or(name, |(end, _)| &name[..end])
}

/// Input, output, clocks, threads and logging, as they stand in paths.
const IMPURE: &str = "std::time core::time SystemTime Instant::now std::net std::fs std::io std::env std::process std::thread \
                      std::os tracing println! print! dbg! rand::rng OsRng";

/// Where unsafe code is quarantined; `mpi-tests` calls raw MPI to compare with it, `otf2` is the
/// calls of libotf2 and nothing else, `bench/record` calls the C functions and reads the counter.
const UNSAFE_ALLOWED: [&str; 8] = ["sys", "mpi", "record", "capi", "python", "mpi-tests", "otf2", "bench/record"];

/// Split, so that this file does not complain about itself.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/", "home/"), concat!("/", "root/"), concat!("/", "Users/"), concat!("/", "work/")];

const LINES_MAX: usize = 450;

/// How far down a generator's mark may stand.
const HEADER_LINES: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the Rust rules; every complaint must hold its expected part, in order.
    fn check(name: &str, text: &str, expected: &[&str]) {
        let complaints = rust_file(name, text, &Names::new(text).expect("tokens"));
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
        check("crates/time/src/a.rs", "//! A.\nuse std::{fmt,\n net::IpAddr};\n", &[":3: a pure crate uses std::net"]);
        check("crates/time/src/a.rs", "//! A.\nfn a() { println!(\"{:?}\", Instant::now()) }\n", &["println!", "now"]);
        check("crates/time/src/a.rs", "//! A.\nuse core::time::Duration;\n", &[]);
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

    #[test]
    fn files_have_limits() {
        let lines = "const A: u8 = 1;\n".repeat(450);
        check("crates/page/src/a.rs", &format!("//! A.\n{lines}"), &[]);
        check("crates/page/src/a.rs", &format!("//! A.\n{lines}\nfn a() {{}}\n"), &["451 lines of code"]);
        check("crates/page/src/a.rs", &format!("//! A, @generated.\n{lines}fn a() {{}}\n"), &[]);
        check("crates/page/src/tests.rs", &format!("//! A.\n{lines}fn a() {{}}\n"), &[]);
        check("crates/page/src/a.rs", "//! A.\n#[path = \"c.rs\"]\nmod c;\n", &["a.rs:2: #[path]"]);
    }

    #[test]
    fn modules_and_tests_have_their_places() {
        let check = |names: &[&str], expected: &[&str]| {
            let files: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let found: Vec<_> = names.iter().filter_map(|name| layout(name, &files)).collect();
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(found.iter().zip(expected).all(|(found, part)| found.contains(part)), "{found:?}");
        };
        let children = "b.rs:1: a module with children is b/mod.rs";
        check(&["crates/a/src/b.rs", "crates/a/src/b/c.rs"], &[children]);
        check(&["crates/a/src/b.rs", "crates/a/src/b/tests.rs"], &[children]);
        check(&["crates/a/src/b/mod.rs", "crates/a/src/b/c.rs", "crates/a/src/b_c.rs"], &[]);
        check(&["crates/a/src/b/tests.rs", "crates/a/src/tests/b.rs", "crates/a/tests/it/main.rs"], &[]);
        check(&["crates/a/src/b_tests.rs"], &["b_tests.rs:1: larger tests stand in tests.rs"]);
        check(&["crates/a/tests/b.rs"], &["tests/it/main.rs"]);
    }
}

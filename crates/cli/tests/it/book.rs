//! The shell blocks of the README and of the guide, run as they stand.
//!
//! A block marked `sh` is run, those of one page one after the other in one folder, which has the project's `examples`; `exit=3` is the status of its last command. `sh launcher`
//! needs a cluster, a job or hours, `sh build` the sources: of these the syntax is checked, and the command lines are in `src/pages.rs`. What it does not do: Python's blocks.

use std::path::Path;
use std::process::Command;

use crate::support::{output, text};

struct Block {
    place: String,
    marks: Vec<String>,
    script: String,
}

/// The shell blocks of a page.
fn blocks(page: &str) -> Vec<Block> {
    let content = std::fs::read_to_string(root().join(page)).expect("a page");
    let mut found = Vec::new();
    let mut rest = content.as_str();
    while let Some((_, after)) = rest.split_once("\n```") {
        let (info, after) = after.split_once('\n').expect("a line's end");
        let (script, after) = after.split_once("\n```").expect("the block's end");
        let place = format!("{page}:{}", content.len() - after.len());
        let mut marks = info.split(' ').map(str::to_owned);
        if marks.next().as_deref() == Some("sh") {
            found.push(Block { place, marks: marks.collect(), script: script.to_owned() });
        }
        rest = after;
    }
    found
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Bash in a folder, with the program in its path; it stops at the first error.
fn bash(folder: &Path, script: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_probe_sync")).parent().expect("a folder");
    let path = format!("{}:{}", text(program), std::env::var("PATH").expect("a path"));
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(format!("set -euo pipefail\n{script}")).current_dir(folder).env("PATH", path);
    bash
}

/// Runs a page's blocks.
fn check(page: &str, runs: usize) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::os::unix::fs::symlink(
        root().canonicalize().expect("it is there").join("examples"),
        folder.path().join("examples"),
    )
    .expect("a link");
    let mut count = 0;
    for Block { place, marks, script } in blocks(page) {
        let syntax = Command::new("bash").args(["-n", "-c", &script]).output().expect("bash is installed");
        assert!(syntax.status.success(), "{place}: {}", String::from_utf8_lossy(&syntax.stderr));
        if marks.iter().any(|mark| ["launcher", "build"].contains(&mark.as_str())) {
            continue;
        }
        let status =
            marks.iter().find_map(|mark| mark.strip_prefix("exit=")).map_or(0, |text| text.parse().expect("a number"));
        let result = output(bash(folder.path(), &script));
        let told = String::from_utf8_lossy(&result.stderr);
        assert_eq!(result.status.code(), Some(status), "{place}:\n{script}\n{told}");
        count += 1;
    }
    assert_eq!(count, runs, "{page}: blocks that were run");
}

#[test]
fn the_first_run_works_as_written() {
    check("docs/guide/first_run.md", 5);
}

#[test]
fn the_ways_to_the_viewers_work_as_written() {
    check("docs/guide/jax_xprof.md", 1);
    check("docs/guide/hta.md", 1);
    check("docs/guide/pytorch_perfetto.md", 0);
}

#[test]
fn the_straggler_is_found_as_written() {
    check("docs/guide/find_the_straggler.md", 3);
}

#[test]
fn an_installed_program_works_as_written() {
    check("docs/guide/install.md", 1);
    check("docs/guide/recipes.md", 0);
}

#[test]
fn the_readme_works_as_written() {
    check("README.md", 3);
}

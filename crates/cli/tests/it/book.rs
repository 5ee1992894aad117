//! Runs the shell blocks of the README and of the guide verbatim.
//!
//! A block marked `sh` is run, those of one page one after the other in one folder, which has the
//! project's `examples`; `exit=3` is the status of its last command. `sh launcher` needs a cluster,
//! a job or hours, `sh build` the sources: of these the syntax is checked, and the command lines
//! are in `src/pages.rs`. It does not run Python blocks.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::fences::{Block, blocks, pages, root};
use crate::support::{output, text};

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
    for block in blocks(&root().join(page)).into_iter().filter(Block::is_shell) {
        let Block { place, info, text: script } = block;
        let marks: Vec<&str> = info.split(' ').skip(1).collect();
        let syntax = Command::new("bash").args(["-n", "-c", &script]).output().expect("bash is installed");
        assert!(syntax.status.success(), "{place}: {}", String::from_utf8_lossy(&syntax.stderr));
        if marks.iter().any(|mark| ["launcher", "build"].contains(mark)) {
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
fn exports_of_nsight_systems_are_read_as_written() {
    check("docs/nsys.md", 1);
}

#[test]
fn traces_of_rocm_profile_data_are_read_as_written() {
    check("docs/rpd.md", 1);
}

#[test]
fn two_nodes_are_aligned_as_computed_by_hand() {
    check("docs/alignment.md", 1);
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
fn the_other_guides_work_as_written() {
    check("docs/guide/record.md", 2);
    for page in ["c", "hosts", "plan", "python", "rocprof", "rust"] {
        check(&format!("docs/guide/{page}.md"), 0);
    }
}

#[test]
fn perfetto_traces_are_read_as_written() {
    check("docs/guide/traces.md", 1);
}

#[test]
fn the_readme_works_as_written() {
    check("README.md", 2);
}

/// What a checker says of a block; None, aloud, where it is not installed.
fn judged(checker: &str, arguments: &[&str], block: &Block) -> Option<Output> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    // Checkers take a file for what its ending says.
    let ending = block.info.split(' ').next().unwrap_or_default();
    let file = folder.path().join(format!("block.{ending}"));
    std::fs::write(&file, &block.text).expect("writable");
    let Ok(found) = Command::new(checker).args(arguments).arg(&file).output() else {
        println!("skipped: {checker} is not installed; cargo xtask book installs it");
        return None;
    };
    Some(found)
}

fn deployed(ending: &str) -> Vec<Block> {
    files("examples/deploy", ending)
}

/// Files of a folder with this ending, as blocks.
fn files(folder: &str, ending: &str) -> Vec<Block> {
    let entries = std::fs::read_dir(root().join(folder)).expect("a folder");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let found: Vec<_> = paths.filter(|path| path.extension().is_some_and(|found| found == ending)).collect();
    assert!(!found.is_empty(), "no file of {folder} ends with .{ending}");
    let block = |path: PathBuf| {
        let content = std::fs::read_to_string(&path).expect("text");
        Block { place: text(&path).to_owned(), info: ending.to_owned(), text: content }
    };
    found.into_iter().map(block).collect()
}

#[test]
fn scripts_for_deployment_are_valid_and_call_the_command_as_it_is() {
    for block in deployed("sh") {
        let syntax = Command::new("bash").args(["-n", "-c", &block.text]).output().expect("bash is installed");
        assert!(syntax.status.success(), "{}: {}", block.place, String::from_utf8_lossy(&syntax.stderr));
    }
    let unit = deployed("service").remove(0);
    let line =
        unit.text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/probe_sync ")).expect("a command");
    let arguments: Vec<&str> = line.split(' ').chain(["--help"]).collect();
    let accepted = Command::new(env!("CARGO_BIN_EXE_probe_sync")).args(arguments).output().expect("the command");
    assert!(accepted.status.success(), "{line}");
}

/// Blocks are parts of a session: words that a reader replaces, variables that somebody else sets.
#[test]
fn checked_shell_blocks_have_no_faults() {
    let arguments = ["--shell=bash", "--severity=warning", "--exclude=SC2148,SC2034,SC2046"];
    let mut all: Vec<Block> = pages().iter().flat_map(|page| blocks(page)).filter(Block::is_shell).collect();
    all.extend(deployed("sh"));
    assert!(all.len() > 20, "only {} shell blocks were found", all.len());
    for block in &all {
        let Some(found) = judged("shellcheck", &arguments, block) else { return };
        assert!(found.status.success(), "{}:\n{}", block.place, String::from_utf8_lossy(&found.stdout));
    }
}

#[test]
fn checked_manifests_of_kubernetes_are_valid() {
    let is_manifest = |block: &Block| block.info == "yaml" && block.text.contains("apiVersion");
    let mut all: Vec<Block> = pages().iter().flat_map(|page| blocks(page)).filter(is_manifest).collect();
    all.extend(deployed("yaml"));
    assert!(!all.is_empty(), "no manifest was found");
    for block in &all {
        let Some(found) = judged("kubernetes-validate", &["--strict"], block) else { return };
        assert!(found.status.success(), "{}:\n{}", block.place, String::from_utf8_lossy(&found.stderr));
    }
}

#[test]
fn checked_workflows_are_valid() {
    for block in files(".github/workflows", "yml") {
        let arguments = ["--builtin-schema", "vendor.github-workflows"];
        let Some(found) = judged("check-jsonschema", &arguments, &block) else { return };
        assert!(found.status.success(), "{}:\n{}", block.place, String::from_utf8_lossy(&found.stdout));
    }
}

#[test]
fn checked_spelling_has_no_mistakes() {
    let Ok(found) = Command::new("typos").args(["--format", "brief"]).current_dir(root()).output() else {
        println!("skipped: typos is not installed; cargo xtask book installs it");
        return;
    };
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stdout));
}

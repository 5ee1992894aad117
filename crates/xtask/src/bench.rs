//! `cargo xtask bench`: the figures of `docs/RESULTS.md` from this machine, one command.
//!
//! Place in the flow: runs the bench targets in release mode, one after another because they would disturb each other,
//! and under `mpirun` the rounds beside raw MPI calls. With `--accuracy` it lets `probe_sync sim --cells` simulate instead and
//! puts its tables between the two marks in docs/RESULTS.md: those figures depend on seeds alone, on every machine.
//! What it does not do: judge the figures. Machines differ; only times of one run may be compared.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::setup::{self, Tools};
use crate::steps;

/// Runs the benches.
///
/// # Errors
/// Names the benches that failed, after all have run.
pub fn bench(root: &Path) -> Result<()> {
    let tools = setup::setup(root)?;
    let mut failed = Vec::new();
    let mut attempt = |name: &str, command: &mut Command| {
        println!("\n== {name}");
        if let Err(error) = steps::visible(command.current_dir(root), LIMIT) {
            println!("{error:#}");
            failed.push(name.to_owned());
        }
    };
    attempt("bench targets", Command::new("cargo").args(["bench", "--locked", "--benches"]));
    rounds(root, tools, &mut attempt);
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

/// Simulates the twelve cells and writes their tables into docs/RESULTS.md.
///
/// # Errors
/// When the simulation fails or the marks are missing.
pub fn accuracy(root: &Path, seeds: u32) -> Result<()> {
    let out = root.join("target/accuracy");
    let mut simulate = Command::new("cargo");
    simulate.args(["run", "--release", "--locked", "--package", "probe-sync-cli", "--", "sim", "--cells", "--seeds"]);
    steps::visible(simulate.arg(seeds.to_string()).arg("--out").arg(&out).current_dir(root), ACCURACY_LIMIT)?;
    let tables = std::fs::read_to_string(out.join("accuracy.md")).context("reading the tables")?;
    let results = root.join("docs/RESULTS.md");
    let text = std::fs::read_to_string(&results).with_context(|| format!("reading {}", results.display()))?;
    let changed = between_marks(&text, &tables).context("docs/RESULTS.md lacks the marks of the accuracy tables")?;
    std::fs::write(&results, changed).with_context(|| format!("writing {}", results.display()))?;
    println!("\ntables written to {}; plots in {}", results.display(), out.display());
    Ok(())
}

/// `text` with `tables` between the marks; None when a mark is missing.
fn between_marks(text: &str, tables: &str) -> Option<String> {
    let begin = text.find(BEGIN)? + BEGIN.len();
    let end = begin + text[begin..].find(END)?;
    Some(format!("{}\n\n{}\n\n{}", &text[..begin], tables.trim(), &text[end..]))
}

fn rounds(root: &Path, tools: Tools, attempt: &mut dyn FnMut(&str, &mut Command)) {
    if !tools.mpi() {
        println!("\nskipped rounds over MPI: missing {}", tools.missing());
        return;
    }
    let mut build = Command::new("cargo");
    attempt("build mpi-tests", build.args(["build", "--release", "--locked", "--package", "probe-sync-mpi-tests"]));
    for ranks in ["2", "4", "8", "64", "128"] {
        let mut command = Command::new("mpirun");
        command.args(["--timeout", "300", "-n", ranks]).envs(setup::MPI_ENVIRONMENT);
        command.arg(root.join("target/release/probe-sync-mpi-tests")).arg("bench");
        attempt(&format!("one round, {ranks} ranks"), &mut command);
    }
}

const LIMIT: Duration = Duration::from_secs(900);

/// 600 simulated runs, of which half have millions of packets.
const ACCURACY_LIMIT: Duration = Duration::from_secs(7200);

const BEGIN: &str = "<!-- accuracy: begin -->";

const END: &str = "<!-- accuracy: end -->";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_replace_what_is_between_the_marks() {
        let text = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let once = between_marks(&text, "new\n").expect("both marks");
        assert_eq!(once, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(between_marks(&once, "new").as_ref(), Some(&once), "twice is as once");
        assert_eq!(between_marks(END, "new"), None);
        assert_eq!(between_marks(BEGIN, "new"), None);
    }
}

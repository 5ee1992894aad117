//! The harness of the steps that start our programs as users do: `steps.txt` has one line for each.
//!
//! Words in capitals that name places are found, built or installed when a wanted step first needs
//! them. A step whose place cannot be had is skipped with the reason. `probe-sync-testbed verify`
//! reads only the files of a run and recomputes every true error, so a run that judges itself
//! wrongly is detected.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::lines::{Job, lines, spelled_out};
use crate::setup::{MPI_ENVIRONMENT, Tools};
use crate::steps::{self, Count, Runner};
use crate::tools::{self, empty_folder};

/// The places that lines name, as far as a step has needed them.
pub struct Places<'a> {
    root: &'a Path,
    tools: Tools,
    found: BTreeMap<&'static str, Result<String, String>>,
    /// Profile of the Python package.
    wheel: &'static str,
}

/// Runs steps of `cargo xtask test` by their sections, with the tools that are there.
///
/// # Errors
/// When anything failed.
pub fn run(root: &Path, sections: &[&str]) -> Result<()> {
    let mut runner = Runner::new(root, None)?;
    Places::new(root, Tools::find(), "wheel").run(&mut runner, sections);
    runner.finish()
}

impl<'a> Places<'a> {
    /// No place has been looked for yet. The Python package is built in the profile `wheel`.
    pub fn new(root: &'a Path, tools: Tools, wheel: &'static str) -> Self {
        Self { root, tools, found: BTreeMap::new(), wheel }
    }

    /// Runs the wanted steps of some sections.
    pub fn run(&mut self, runner: &mut Runner, sections: &[&str]) {
        for job in sections.iter().flat_map(|section| lines(section)).map(Job::new) {
            if !runner.wants(job.name) {
                continue;
            }
            let out = self.root.join("target/xtask/runs").join(steps::file_name(job.name));
            if let Err(error) = empty_folder(&out) {
                runner.check(job.name, || Err(error));
                continue;
            }
            match self.command(runner, job.line, &out) {
                Ok(command) => self.judge(runner, &job, command, &out),
                Err(reason) => runner.skip(job.name, &reason),
            }
        }
    }

    /// Builds all programs and tests, once for all steps; otherwise the reason why they are missing.
    pub fn programs(&mut self, runner: &mut Runner) -> Result<(), String> {
        self.place(runner, "BIN").map(|_| ())
    }

    fn judge(&self, runner: &mut Runner, job: &Job, mut command: Command, out: &Path) {
        match job.judged.split_once(": ").unwrap_or((job.judged, "")) {
            ("fails", says) => {
                runner.check(job.name, || {
                    let log = out.join("log");
                    let status = steps::logged(&mut command, &log, LIMIT)?;
                    let said = std::fs::read_to_string(&log)?;
                    ensure!(!status.success() && said.contains(says), "{status}, and not \"{says}\" but:\n{said}");
                    Ok(())
                });
            }
            ("truth", limits) => {
                if runner.command(job.name, Count::Step, LIMIT, &mut command).is_ok() {
                    let mut verify = Command::new(steps::target(self.root).join("debug/probe-sync-testbed"));
                    verify.arg("verify").args(limits.split(' ')).arg(out).current_dir(self.root);
                    let _ = runner.command(&format!("truth of the {}", job.name), Count::Figures, LIMIT, &mut verify);
                }
            }
            (count, _) => {
                let count = match count {
                    "tests" => Count::Tests,
                    "figures" => Count::Figures,
                    _ => Count::Step,
                };
                let _ = runner.command(job.name, count, LIMIT, &mut command);
            }
        }
    }

    /// What a line means on this machine; otherwise why it cannot run.
    fn command(&mut self, runner: &mut Runner, line: &str, out: &Path) -> Result<Command, String> {
        let mut words = Vec::new();
        for word in spelled_out(line).split(' ') {
            if word == "SELECTION" {
                words.extend(selection(self.tools));
                continue;
            }
            // `NAME=PLACE/below:PLACE`
            let (name, paths) = word.split_at(word.find('=').map_or(0, |at| at + 1));
            let mut resolved = Vec::new();
            for path in paths.split(':') {
                let (place, below) = path.split_once('/').map_or((path, None), |(place, below)| (place, Some(below)));
                let found = match PLACES.split(' ').find(|known| *known == place) {
                    Some(place) => self.place(runner, place)?,
                    None if place == "OUT" => out.to_string_lossy().into_owned(),
                    None => place.to_owned(),
                };
                resolved.push(below.map_or(found.clone(), |below| format!("{found}/{below}")));
            }
            words.push(format!("{name}{}", resolved.join(":")));
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(self.root).envs(MPI_ENVIRONMENT).env("MPIEXEC_TIMEOUT", "120");
        Ok(command)
    }

    fn place(&mut self, runner: &mut Runner, name: &'static str) -> Result<String, String> {
        if let Some(found) = self.found.get(name) {
            return found.clone();
        }
        let found = self.find(runner, name);
        self.found.insert(name, found.clone());
        found
    }

    /// Finds, builds or installs what a word names; otherwise why it cannot be had.
    fn find(&self, runner: &mut Runner, name: &str) -> Result<String, String> {
        let (root, tools) = (self.root, self.tools);
        let has_mpi = if tools.mpi() { Ok(()) } else { Err(format!("missing {}", tools.missing())) };
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let said = |error: anyhow::Error| format!("{error:#}");
        let cargo_answers = |arguments: &[&str], reason: &str| match steps::answer("cargo", arguments) {
            Some(_) => Ok("cargo".to_owned()),
            None => Err(reason.to_owned()),
        };
        match name {
            "mpirun" => has_mpi.map(|()| name.to_owned()),
            "ROOT" => Ok(text(root.to_owned())),
            "TARGET" => Ok(text(steps::target(root))),
            "PATH" => Ok(std::env::var("PATH").unwrap_or_default()),
            "BIN" => self
                .build(runner, "build tests", &["build", "--bins", "--tests"])
                .map(|()| text(steps::target(root).join("debug"))),
            "RELEASE" => {
                let mut build = Command::new("cargo");
                build.args(["build", "--release", "--locked", "--package", "probe-sync-mpi-tests"]).current_dir(root);
                runner.prerequisite("build mpi-tests", Count::Step, LIMIT, &mut build)?;
                Ok(text(steps::target(root).join("release")))
            }
            "MPICHBIN" => mpich(runner, root, tools).map(text),
            "ULFM" => has_mpi.and_then(|()| tools::venv(root, name)).map(text),
            "JAX" | "TORCH" | "CHECKERS" => tools::venv(root, name).map(text),
            "MDBOOK" => tools::cargo_tool(root, "mdbook", "0.5.4", &["--no-default-features", "--features", "search"])
                .map(text)
                .map_err(said),
            "PYTHON" => match steps::answer("python3", &["-m", "venv", "--help"]) {
                Some(_) => Ok("python3".to_owned()),
                None => Err("python3 with venv is not installed".to_owned()),
            },
            "READERS" => {
                self.build(runner, "build the recorder of nested scopes", &["build", "--example", "nested_scopes"])?;
                let mut install = Command::new("python3");
                install.args(["bench/readers/install.py", "target/readers"]).current_dir(root);
                runner.prerequisite("install readers", Count::Figures, LIMIT, &mut install)?;
                Ok(text(root.join("target/readers/venv/bin/python")))
            }
            "VENV" => {
                let mut install = Command::new("python3");
                install.args(["crates/python/tests/install.py", "target/python", self.wheel]).current_dir(root);
                runner.prerequisite("python, install", Count::Step, LIMIT, &mut install)?;
                Ok(text(root.join("target/python/venv/bin/python")))
            }
            "BROWSER" => {
                let mut install = Command::new(root.join("bench/browser/install.sh"));
                runner.prerequisite("install a browser", Count::Step, LIMIT, install.current_dir(root))?;
                Ok("cargo".to_owned())
            }
            "DENY" => cargo_answers(
                &["deny", "--version"],
                "cargo-deny is not installed; `cargo install --locked cargo-deny`",
            ),
            "ADVISORIES" => cargo_answers(
                &["deny", "fetch", "db"],
                "no cargo-deny, or the advisory database cannot be fetched here",
            ),
            _ => Err(format!("{name} is not known")),
        }
    }

    fn build(&self, runner: &mut Runner, name: &str, arguments: &[&str]) -> Result<(), String> {
        let mut build = Command::new("cargo");
        build.args(arguments).args(selection(self.tools)).current_dir(self.root);
        runner.prerequisite(name, Count::Step, LIMIT, &mut build)
    }
}

/// Builds the programs against MPICH, which Debian installs next to Open MPI. rsmpi binds to the
/// MPI whose `mpicc` it finds, so everything that uses it is built again in a directory of its own.
fn mpich(runner: &mut Runner, root: &Path, tools: Tools) -> Result<PathBuf, String> {
    let is_there = |program: &str, ask: &str| steps::answer(program, &[ask]).is_some();
    if !tools.libclang || !is_there("mpicc.mpich", "-show") || !is_there("mpirun.mpich", "--version") {
        return Err(
            "no mpicc.mpich and mpirun.mpich, or no libclang; Debian: apt-get install mpich libmpich-dev".into()
        );
    }
    let target = steps::target(root).join("mpich");
    let mut build = Command::new("cargo");
    build.args([
        "build",
        "--locked",
        "--bins",
        "-p",
        "probe-sync-mpi-tests",
        "-p",
        "probe-sync-cli",
        "--features",
        "probe-sync-cli/mpi",
    ]);
    build.env("MPICC", "mpicc.mpich").env("CARGO_TARGET_DIR", &target).current_dir(root);
    runner.prerequisite("build programs over MPICH", Count::Step, LIMIT, &mut build)?;
    Ok(target.join("debug"))
}

/// The packages and features that build here, for cargo. It compiles a dependency again for every
/// set of features, so that all steps use this one; leaving out packages whose tests have already
/// run looks cheaper but is not.
pub fn selection(tools: Tools) -> Vec<String> {
    let mut words = vec!["--locked", "--workspace"];
    let mut features = tools.features();
    // What needs nothing of the machine, and is no default.
    features.extend([
        "probe-sync-cli/otlp",
        "probe-sync-record/tracing",
        "probe-sync-record/symbols",
        "probe-sync-record/itt",
        "probe-sync-record/cupti",
    ]);
    if tools.mpi() {
        // Both need libclang.
        features.push("probe-sync-record/nvtx");
    } else {
        words.extend([
            "--exclude",
            "probe-sync-mpi",
            "--exclude",
            "probe-sync-mpi-tests",
            "--exclude",
            "probe-sync-mpi-launcher",
        ]);
    }
    if tools.otf2() {
        features.push("probe-sync-cli/otf2");
    } else {
        words.extend(["--exclude", "probe-sync-otf2"]);
    }
    let features = features.join(",");
    words.into_iter().chain(["--features", &features]).map(str::to_owned).collect()
}

/// What [`Places`] finds.
const PLACES: &str = "mpirun ROOT TARGET PATH BIN RELEASE MPICHBIN ULFM JAX TORCH CHECKERS MDBOOK PYTHON READERS VENV BROWSER \
                      DENY ADVISORIES";

/// Above the limits of `mpirun --timeout`, of the scripts and of what builds from a cold cache on a
/// busy machine, which normally end what hangs.
const LIMIT: Duration = Duration::from_secs(2700);

#[cfg(test)]
mod tests {
    use super::super::lines::STEPS;
    use super::*;

    #[test]
    fn every_line_can_be_read() {
        let mut names = Vec::new();
        for job in STEPS.lines().filter(|line| line.contains(" | ") && !line.starts_with('#')).map(Job::new) {
            let judged = job.judged.split(": ").next().unwrap_or_default();
            assert!(["tests", "figures", "step", "fails", "truth"].contains(&judged), "{}: {judged}", job.name);
            for word in spelled_out(job.line).split(' ') {
                let place = word.split(['/', '=']).next().unwrap_or_default();
                let is_capital =
                    !place.is_empty() && place.chars().all(|c| c.is_ascii_uppercase()) && !word.contains('=');
                let is_known = ["OUT", "SELECTION"].contains(&place) || PLACES.split(' ').any(|known| known == place);
                assert!(!is_capital || is_known, "{}: {place} is not known", job.name);
            }
            names.push(job.name);
        }
        let listed = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), listed, "two steps of one name");
        assert_eq!(spelled_out("MPIRUN 4 MEASURE").split(' ').nth(4), Some("4"));
    }
}

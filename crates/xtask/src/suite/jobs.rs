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

use anyhow::ensure;

use super::build::{BUILD, cargo, everything};
use crate::setup::{MPI_ENVIRONMENT, Tools};
use crate::steps::{self, Count, Runner};
use crate::tools::{self, fresh_directory};

/// The places that lines name, as far as a step has needed them.
pub struct Places<'a> {
    root: &'a Path,
    tools: Tools,
    found: BTreeMap<&'static str, Result<PathBuf, String>>,
}

/// One line of `steps.txt`.
struct Job {
    name: &'static str,
    judged: &'static str,
    line: &'static str,
}

impl<'a> Places<'a> {
    /// No place has been looked for yet.
    pub fn new(root: &'a Path, tools: Tools) -> Self {
        Self { root, tools, found: BTreeMap::new() }
    }

    /// Runs the wanted steps of a section.
    pub fn run(&mut self, runner: &mut Runner, section: &str) {
        for job in lines(section).map(Job::new) {
            if !runner.wants(job.name) {
                continue;
            }
            let out = match fresh_directory(&self.root.join("target/xtask/runs")) {
                Ok(out) => out,
                Err(error) => {
                    runner.check(job.name, || Err(error));
                    continue;
                }
            };
            match self.command(runner, job.line, &out) {
                Ok(command) => self.judge(runner, &job, command, &out),
                Err(reason) => runner.skip(job.name, &reason),
            }
        }
    }

    /// Builds all programs and tests, once for all steps; otherwise the reason why there are none.
    pub fn programs(&mut self, runner: &mut Runner) -> Result<PathBuf, String> {
        self.place(runner, "BIN")
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
                if runner.command(job.name, Count::Step, LIMIT, &mut command) {
                    let mut verify = Command::new(steps::target(self.root).join("debug/probe-sync-testbed"));
                    verify.arg("verify").args(limits.split(' ')).arg(out).current_dir(self.root);
                    runner.command(&format!("truth of the {}", job.name), Count::Figures, LIMIT, &mut verify);
                }
            }
            (count, _) => {
                let count = match count {
                    "tests" => Count::Tests,
                    "figures" => Count::Figures,
                    _ => Count::Step,
                };
                runner.command(job.name, count, LIMIT, &mut command);
            }
        }
    }

    /// What a line means on this machine; otherwise why it cannot run.
    fn command(&mut self, runner: &mut Runner, line: &str, out: &Path) -> Result<Command, String> {
        let mut words = Vec::new();
        for word in spelled_out(line).split(' ') {
            let (place, below) = word.split_once('/').unwrap_or((word, ""));
            let path = match place {
                "OUT" => out.to_owned(),
                _ => match PLACES.iter().find(|known| **known == place) {
                    Some(place) => self.place(runner, place)?,
                    None => PathBuf::from(place),
                },
            };
            words.push(if below.is_empty() { path } else { path.join(below) });
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(self.root).envs(MPI_ENVIRONMENT).env("MPIEXEC_TIMEOUT", "120");
        if line.starts_with("ULFM") {
            command.env("LD_LIBRARY_PATH", self.place(runner, "ULFM")?.join("lib"));
        }
        Ok(command)
    }

    fn place(&mut self, runner: &mut Runner, name: &'static str) -> Result<PathBuf, String> {
        if let Some(found) = self.found.get(name) {
            return found.clone();
        }
        let found = self.find(runner, name);
        self.found.insert(name, found.clone());
        found
    }

    fn find(&self, runner: &mut Runner, name: &str) -> Result<PathBuf, String> {
        let (root, tools) = (self.root, self.tools);
        let has_mpi = if tools.mpi() { Ok(()) } else { Err(format!("missing {}", tools.missing())) };
        match name {
            "mpirun" => has_mpi.map(|()| "mpirun".into()),
            "ULFM" => has_mpi.and_then(|()| tools::ULFM.install(root)),
            "JAX" => Ok(tools::JAX.install(root)?.join("bin/python")),
            "PYTHON" => steps::answer("python3", &["-m", "venv", "--help"])
                .map(|_| "python3".into())
                .ok_or_else(|| "python3 with venv is not installed".to_owned()),
            "READERS" => {
                let mut example = everything(root, tools, &["build", "--example", "nested_scopes"]);
                runner.prerequisite("build the recorder of nested scopes", Count::Step, BUILD, &mut example);
                runner.prerequisite("install readers", Count::Figures, LIMIT, &mut readers(root));
                let python = root.join("target/readers/venv/bin/python");
                if python.exists() { Ok(python) } else { Err("no virtual environment for the readers".to_owned()) }
            }
            "MPICHBIN" => mpich(runner, root, tools),
            _ => {
                let mut build = everything(root, tools, &["build", "--bins", "--tests"]);
                let is_built = runner.prerequisite("build tests", Count::Step, BUILD, &mut build);
                is_built
                    .then(|| steps::target(root).join("debug"))
                    .ok_or_else(|| "the programs do not build".to_owned())
            }
        }
    }
}

impl Job {
    fn new(line: &'static str) -> Self {
        let mut parts = line.splitn(3, " | ");
        let [name, judged, line] = [(); 3].map(|()| parts.next().expect("three parts, as a test of steps.txt checks"));
        Self { name, judged, line }
    }
}

/// The lines of a section.
fn lines(section: &str) -> impl Iterator<Item = &'static str> {
    let (_, rest) = STEPS.split_once(&format!("\n[{section}]\n")).expect("a section of steps.txt");
    let lines = rest.lines().take_while(|line| !line.starts_with('['));
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// A line without abbreviations.
fn spelled_out(line: &str) -> String {
    let words = line.split(' ').map(|word| {
        let meaning = lines("words").find_map(|line| line.strip_prefix(word)?.strip_prefix(" = "));
        meaning.map_or_else(|| word.to_owned(), spelled_out)
    });
    words.collect::<Vec<_>>().join(" ")
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
    let mut build = cargo(root, &["build", "--locked", "--bins", "-p", "probe-sync-mpi-tests", "-p", "probe-sync-cli"]);
    build.args(["--features", "probe-sync-cli/mpi"]).env("MPICC", "mpicc.mpich").env("CARGO_TARGET_DIR", &target);
    let is_built = runner.prerequisite("build programs over MPICH", Count::Step, BUILD, &mut build);
    is_built.then(|| target.join("debug")).ok_or_else(|| "the programs do not build over MPICH".to_owned())
}

/// What makes the virtual environment of the readers; one that cannot be had is a skip of its
/// steps.
pub fn readers(root: &Path) -> Command {
    let mut install = Command::new("python3");
    install.args(["bench/readers/install.py", "target/readers"]).current_dir(root);
    install
}

const STEPS: &str = include_str!("steps.txt");

/// What [`Places`] finds.
const PLACES: [&str; 7] = ["mpirun", "ULFM", "MPICHBIN", "BIN", "JAX", "READERS", "PYTHON"];

/// Above the limits of `mpirun --timeout` and of the scripts, which normally end what hangs.
const LIMIT: Duration = Duration::from_secs(900);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_can_be_read() {
        let mut names = Vec::new();
        for job in
            ["quick", "survivors", "judged", "others", "flow", "installed"].into_iter().flat_map(lines).map(Job::new)
        {
            let judged = job.judged.split(": ").next().unwrap_or_default();
            assert!(["tests", "figures", "step", "fails", "truth"].contains(&judged), "{}: {judged}", job.name);
            for word in spelled_out(job.line).split(' ') {
                let place = word.split('/').next().unwrap_or_default();
                let is_capital = !place.is_empty() && place.chars().all(|c| c.is_ascii_uppercase());
                assert!(!is_capital || place == "OUT" || PLACES.contains(&place), "{}: {place} is not known", job.name);
            }
            names.push(job.name);
        }
        let listed = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), listed, "two steps of one name");
        assert_eq!(spelled_out("MPIRUN 4 MEASURE").split(' ').nth(3), Some("4"));
    }
}

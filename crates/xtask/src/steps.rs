//! Child processes with a deadline, and the tally of passed, failed and skipped steps.
//!
//! Every command of `cargo xtask` runs its programs through [`Runner`]. The output of a step goes
//! to `target/xtask/logs`. It is shown if the step fails, and always for steps whose output a
//! person wants to read. A step that runs tests counts as the tests it reports, any other step as
//! one. It does not retry.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Runs steps one after another and keeps the tally.
pub struct Runner {
    logs: PathBuf,
    only: Option<String>,
    tally: Tally,
    skipped: Vec<(String, String)>,
    failed: Vec<(String, String)>,
    /// What a runner in the background has to say, until [`Runner::absorb`] prints it.
    held_back: Option<String>,
}

/// How a step's result is counted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Count {
    /// As one check.
    Step,
    /// As one check, whose output holds figures worth reading.
    Figures,
    /// As the tests that its output reports.
    Tests,
}

/// How many checks and tests passed, failed and were skipped.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Runner {
    /// A runner whose logs go below `root/target/xtask/logs`; with `only`, other steps are left out
    /// silently.
    pub fn new(root: &Path, only: Option<&str>) -> Result<Self> {
        let logs = root.join("target/xtask/logs");
        std::fs::create_dir_all(&logs).with_context(|| format!("creating {}", logs.display()))?;
        Ok(Self::empty(logs, only.map(str::to_owned), None))
    }

    /// Returns a runner for steps that run at the same time as this one's, and says nothing
    /// meanwhile.
    pub fn in_background(&self) -> Self {
        Self::empty(self.logs.clone(), self.only.clone(), Some(String::new()))
    }

    fn empty(logs: PathBuf, only: Option<String>, held_back: Option<String>) -> Self {
        Self { logs, only, tally: Tally::default(), skipped: Vec::new(), failed: Vec::new(), held_back }
    }

    /// Prints what a runner in the background held back, and adds its results to this one's.
    pub fn absorb(&mut self, background: Self) {
        print!("{}", background.held_back.unwrap_or_default());
        self.tally.add(background.tally);
        self.skipped.extend(background.skipped);
        self.failed.extend(background.failed);
    }

    /// Prints text, or holds it back.
    fn say(&mut self, text: &str) {
        match &mut self.held_back {
            Some(held) => held.push_str(text),
            None => print!("{text}"),
        }
    }

    /// Whether the step called `name` is among those asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| name.contains(only))
    }

    /// Runs a program as the step `name` if it was asked for.
    ///
    /// # Errors
    /// The reason why it was skipped, or that it failed; both are in the tally.
    pub fn command(&mut self, name: &str, count: Count, limit: Duration, command: &mut Command) -> Result<(), String> {
        if !self.wants(name) {
            return Ok(());
        }
        self.prerequisite(name, count, limit, command)
    }

    /// Runs a program that later steps need, whether it was asked for or not.
    ///
    /// # Errors
    /// The reason why it was skipped, or that it failed; both are in the tally.
    pub fn prerequisite(
        &mut self,
        name: &str,
        count: Count,
        limit: Duration,
        command: &mut Command,
    ) -> Result<(), String> {
        let log = self.logs.join(format!("{}.log", file_name(name)));
        self.say(&format!("== {name}: {}\n", shown(command)));
        let start = Instant::now();
        let outcome = logged(command, &log, limit);
        let output = std::fs::read_to_string(&log).unwrap_or_default();
        let counted = if count == Count::Tests { Tally::parse(&output) } else { Tally::default() };
        let left_out = skip_reasons(&output);
        if !left_out.is_empty() {
            self.skipped.push((format!("inside of {name}"), left_out));
        }
        match outcome {
            Ok(status) if status.code() == Some(EXIT_SKIPPED) => {
                self.skip(name, last_line(&output));
                return Err(last_line(&output).to_owned());
            }
            Ok(status) if status.success() => {
                if count == Count::Figures {
                    self.say(&output);
                }
                self.pass(start, counted);
                return Ok(());
            }
            Ok(status) => self.fail(name, start, counted, &status.to_string(), &output),
            Err(error) => self.fail(name, start, counted, &format!("{error:#}"), &output),
        }
        Err(format!("{name}: failed"))
    }

    /// Runs a check inside this process as the step `name` if it was asked for.
    pub fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) {
        if !self.wants(name) {
            return;
        }
        self.say(&format!("== {name}\n"));
        let start = Instant::now();
        match check() {
            Ok(()) => self.pass(start, Tally::default()),
            Err(error) => self.fail(name, start, Tally::default(), &format!("{error:#}"), ""),
        }
    }

    /// Leaves the step `name` out, and says why.
    pub fn skip(&mut self, name: &str, reason: &str) {
        if self.wants(name) {
            self.say(&format!("   skipped: {reason}\n"));
            self.tally.skipped += 1;
            self.skipped.push((name.to_owned(), reason.to_owned()));
        }
    }

    /// Prints the summary.
    ///
    /// # Errors
    /// When anything failed.
    pub fn finish(self) -> Result<()> {
        for (name, reason) in &self.skipped {
            println!("skipped {name}: {reason}");
        }
        for (name, why) in &self.failed {
            println!("failed {name}: {why}");
        }
        println!("{}", self.tally);
        if let Some(only) = self.only.filter(|_| self.tally == Tally::default()) {
            bail!("no step's name contains \"{only}\"");
        }
        if self.failed.is_empty() { Ok(()) } else { bail!("{} step(s) failed", self.failed.len()) }
    }

    fn pass(&mut self, start: Instant, counted: Tally) {
        let counted = if counted == Tally::default() { Tally { passed: 1, ..counted } } else { counted };
        self.say(&format!("   ok in {:.1} s ({counted})\n", start.elapsed().as_secs_f64()));
        self.tally.add(counted);
    }

    /// `how` it ended, and what it had printed by then.
    fn fail(&mut self, name: &str, start: Instant, counted: Tally, how: &str, output: &str) {
        let free = free_space(&self.logs);
        let seconds = start.elapsed().as_secs_f64();
        self.say(&format!("{how}\n{}\n   FAILED in {seconds:.1} s: {name}; {free}\n", tail(output)));
        // A program that broke off may have reported no failed test; the step is one failure then.
        self.tally.add(Tally { failed: counted.failed.max(1), ..counted });
        self.failed.push((name.to_owned(), reason(how, output)));
    }
}

impl Tally {
    /// Sums the summary lines of `cargo test` ("4 passed; 0 failed; 1 ignored") and of our own
    /// runners ("4 passed, 0 failed, 1 skipped").
    fn parse(output: &str) -> Self {
        let mut sum = Self::default();
        // Not what a test that passes prints of others.
        let is_summary =
            |line: &&str| line.starts_with("test result: ") || line.starts_with(|c: char| c.is_ascii_digit());
        for line in
            output.lines().filter(is_summary).filter(|line| line.contains(" passed") && line.contains(" failed"))
        {
            let words: Vec<&str> = line.split([' ', ';', ',', '.', ':']).filter(|word| !word.is_empty()).collect();
            for pair in words.windows(2) {
                let Ok(number) = pair[0].parse::<u32>() else { continue };
                match pair[1] {
                    "passed" => sum.passed += number,
                    "failed" => sum.failed += number,
                    "ignored" | "skipped" => sum.skipped += number,
                    _ => {}
                }
            }
        }
        sum
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Where cargo builds.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Runs a program with the terminal as its output.
///
/// # Errors
/// It cannot be started, fails, or runs past `limit` (it is ended then, with what it started).
pub fn visible(command: &mut Command, limit: Duration) -> Result<()> {
    println!("$ {}", shown(command));
    let child = command.spawn().with_context(|| format!("starting {}", shown(command)))?;
    let status = wait(child, limit)?;
    if status.success() { Ok(()) } else { bail!("{} ended with {status}", shown(command)) }
}

/// Runs a program in the workspace, with the terminal as its output, however long it takes.
///
/// # Errors
/// It cannot be started, or fails.
pub fn call(root: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    let program = if program.contains('/') { root.join(program) } else { program.into() };
    visible(Command::new(program).args(arguments).current_dir(root), ANY_TIME)
}

/// Builds packages in a profile; returns the folder of the programs.
///
/// # Errors
/// They do not build.
pub fn build(root: &Path, profile: &str, options: &[&str]) -> Result<PathBuf> {
    let mut command = Command::new("cargo");
    command.args(["build", "--locked", "--profile", profile]).args(options).current_dir(root);
    visible(&mut command, BUILD)?;
    Ok(target(root).join(if profile == "dev" { "debug" } else { profile }))
}

/// Runs a program quietly and returns its standard output if it succeeds within a few seconds.
pub fn answer(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program with its output in the file `log`.
///
/// # Errors
/// It cannot be started, or runs past `limit` (it is ended then, with what it started).
pub fn logged(command: &mut Command, log: &Path, limit: Duration) -> Result<ExitStatus> {
    let file = File::create(log).with_context(|| format!("creating {}", log.display()))?;
    command.stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file);
    let child = command.spawn().with_context(|| format!("starting {}", shown(command)))?;
    wait(child, limit)
}

fn wait(mut child: Child, limit: Duration) -> Result<ExitStatus> {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(POLL);
    }
    // Ending cargo alone would leave the test that hangs.
    for pid in descendants(child.id()).into_iter().chain([child.id()]) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _already_gone = kill_process(pid, Signal::KILL);
        }
    }
    child.wait()?;
    bail!("still running after {} s, ended", limit.as_secs())
}

/// Children, grandchildren and so on, from what `/proc` says about parents.
fn descendants(ancestor: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| Some((pid, parent(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    // Every process enters the list at most once, so the loop ends.
    while next < found.len() {
        let current = found[next];
        let children = parents.iter().filter(|(pid, parent)| *parent == current && !found.contains(pid));
        found.extend(children.map(|(pid, _)| *pid).collect::<Vec<_>>());
        next += 1;
    }
    found.split_off(1)
}

/// The parent in a line of `/proc/PID/stat`; the command name in front of it may hold spaces and
/// brackets.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The name of a step as that of a file.
pub fn file_name(step: &str) -> String {
    step.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// A command as one would type it.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// The last lines of a program's output.
pub fn tail(output: &str) -> String {
    let lines = of_failures(output);
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// What an output says beside what passing tests have printed, which is no reason.
fn of_failures(output: &str) -> Vec<&str> {
    let mut of_success = false;
    let is_shown = |line: &&str| {
        of_success = match line.trim_end() {
            "successes:" => true,
            other => of_success && other != "failures:" && !other.starts_with("test result: "),
        };
        !of_success
    };
    output.lines().filter(is_shown).collect()
}

/// Why a step failed, short enough for a list of all failures, which remains visible at the end of
/// a long log.
fn reason(how: &str, output: &str) -> String {
    let lines: Vec<&str> = of_failures(output).into_iter().filter(|line| !line.trim().is_empty()).collect();
    let (mut said, mut goes_on) = (Vec::new(), false);
    for line in &lines {
        let is_fault = FAULTS.iter().any(|fault| line.contains(fault));
        if is_fault || goes_on {
            said.push(*line);
        }
        // A panic's message, and the target that cargo names, stand in the next line.
        goes_on = is_fault && line.ends_with(':');
    }
    if said.is_empty() {
        said = lines[lines.len().saturating_sub(REASON_LINES)..].to_vec();
    }
    let shown = said.iter().take(REASON_LINES).map(|line| {
        let end = line.char_indices().nth(REASON_WIDTH).map_or(line.len(), |(end, _)| end);
        format!("\n   {}", &line[..end])
    });
    format!("{how}{}", shown.collect::<String>())
}

/// Free disk space, in words: a full disk breaks steps in ways that do not say so.
pub fn free_space(folder: &Path) -> String {
    free_gb(folder).map_or_else(
        || format!("the free space of {} is not known", folder.display()),
        |free| format!("{free:.1} GB of the disk are free"),
    )
}

/// Free disk space, in units of 10⁹ bytes.
pub fn free_gb(folder: &Path) -> Option<f64> {
    rustix::fs::statvfs(folder).ok().map(|disk| disk.f_bavail as f64 * disk.f_frsize as f64 / 1e9)
}

/// Why tests were skipped, equal reasons counted: from `skip NAME: REASON` of our own runners,
/// `test NAME ... ignored, REASON` of cargo's, and lines `skipped: REASON` of tests that pass.
fn skip_reasons(output: &str) -> String {
    let mut reasons = BTreeMap::<&str, u32>::new();
    for line in output.lines() {
        let own = line.strip_prefix("skip ").and_then(|rest| rest.rsplit_once(": "));
        let ignored = line.starts_with("test ").then(|| line.split_once("... ignored")).flatten();
        let reason = own.or(ignored).map(|(_, reason)| reason).or_else(|| line.strip_prefix("skipped: "));
        if let Some(reason) = reason.map(|reason| reason.trim_start_matches(", ").trim()) {
            *reasons.entry(if reason.is_empty() { "ignored" } else { reason }).or_default() += 1;
        }
    }
    reasons.iter().map(|(reason, count)| format!("{count} × {reason}")).collect::<Vec<_>>().join(", ")
}

fn last_line(output: &str) -> &str {
    output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason given")
}

/// The exit code by which a program says that it cannot run here (as automake's tests do).
pub const EXIT_SKIPPED: i32 = 77;

/// For what a user waits for: benches and fuzzing.
const ANY_TIME: Duration = Duration::from_secs(24 * 3600);

/// Two cores and a cold cache.
const BUILD: Duration = Duration::from_secs(1800);

const POLL: Duration = Duration::from_millis(20);

const TAIL_LINES: usize = 120;

/// By which a line says what went wrong: cargo's and the compiler's, the test runners' of Rust and
/// Python, exceptions of Python.
const FAULTS: [&str; 6] = ["error: ", "error[", "panicked at ", "FAIL: ", "ERROR: ", "Error: "];

/// Lines repeated of a failed step.
const REASON_LINES: usize = 8;

const REASON_WIDTH: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: &str, passed: u32, failed: u32, skipped: u32) {
        assert_eq!(Tally::parse(output), Tally { passed, failed, skipped }, "{output}");
    }

    #[test]
    fn what_failed_is_said_again_at_the_end() {
        let python = "FAIL: test_a\nAssertionError: 1 != 0 : x\n\nFAILED\nskip b: c\n63 passed, 1 failed, 3 skipped";
        let said = reason("exit status: 1", python);
        assert_eq!(said, "exit status: 1\n   FAIL: test_a\n   AssertionError: 1 != 0 : x");
        let passed = "test more ... ok\n".repeat(500);
        let rust = format!(
            "successes:\nerror: of a test that passes\nfailures:\n\n---- a stdout ----\nthread 'a' panicked at a.rs:1:2:\n3 is not 4\n\n{passed}error: 1 target failed:\n    `-p x --test it`"
        );
        let said = reason("exit status: 101", &rust);
        let lines: Vec<&str> = said.lines().map(str::trim).collect();
        let asked = ["thread 'a' panicked at a.rs:1:2:", "3 is not 4", "error: 1 target failed:", "`-p x --test it`"];
        assert_eq!(lines, [&["exit status: 101"][..], &asked].concat());
        assert_eq!(
            reason("still running after 9 s, ended", "a\nlast"),
            "still running after 9 s, ended\n   a\n   last"
        );
        assert_eq!(reason("", &"é".repeat(900)).chars().count(), REASON_WIDTH + 4);
    }

    #[test]
    fn summaries_of_all_runners_are_summed() {
        check("test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.1s", 5, 0, 1);
        check("noise\n12 passed, 1 failed, 2 skipped\nnoise", 12, 1, 2);
        check("test result: FAILED. 1 passed; 2 failed; 0 ignored;\n3 passed, 0 failed, 0 skipped", 4, 2, 0);
        check("the test passed", 0, 0, 0);
    }

    #[test]
    fn reasons_of_skips_are_counted() {
        let output = "ok   a (1 ms)\nskip b, 2 ranks: needs more ranks\nskip c: needs more ranks\n\
                      test d ... ignored, takes long\ntest e ... ignored\ntest f ... ok\n---- b stdout ----\n\
                      skipped: no data\nskipped: no data\n";
        assert_eq!(skip_reasons(output), "1 × ignored, 2 × needs more ranks, 2 × no data, 1 × takes long");
    }

    #[test]
    fn the_end_of_an_output_leaves_out_what_passing_tests_print() {
        let output = "test a ... ok\n\nsuccesses:\n\n---- a stdout ----\nmuch\n\nfailures:\n\n---- b stdout ----\nwhy\n\ntest result: FAILED.\nnext\n\nsuccesses:\n    a\n\ntest result: ok.";
        assert_eq!(
            tail(output),
            "test a ... ok\n\nfailures:\n\n---- b stdout ----\nwhy\n\ntest result: FAILED.\nnext\n\ntest result: ok."
        );
    }

    #[test]
    fn a_parent_is_read_past_an_odd_command_name() {
        assert_eq!(parent("42 (a ) b) S 7 42 42 0"), Some(7));
        assert_eq!(parent("42 (broken"), None);
    }

    #[test]
    fn a_program_past_its_limit_is_ended_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & wait"]);
        let child = command.spawn().expect("sh is everywhere");
        let id = child.id();
        // The shell needs a moment to start its child, and a killed process one to die.
        eventually(|| !descendants(id).is_empty());
        let children = descendants(id);
        assert!(!children.is_empty());
        assert!(wait(child, Duration::ZERO).is_err());
        let gone =
            |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "));
        eventually(|| children.iter().all(gone));
        assert!(children.iter().all(gone));
    }

    /// Waits for a condition, with a bound that only a hang reaches.
    fn eventually(condition: impl Fn() -> bool) {
        let started = Instant::now();
        while !condition() && started.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(POLL);
        }
    }
}

//! `cargo xtask fuzz`: arbitrary bytes into every parser, by libFuzzer where a C++ compiler is there.
//!
//! Place in the flow: a command of its own, and with few seconds a step of `cargo xtask test`. The targets and their seeds
//! lie in `fuzz/`, a workspace of its own; here it is built and run.
//!
//! First every seed and a fixed number of mutations of it, on every machine alike. Then libFuzzer for the given time:
//! coverage comes from flags that the stable compiler has (`-C passes=sancov-module`); no sanitizer, because those need
//! a nightly compiler and our own code in the parsers is safe Rust. Without a C++ compiler, which libFuzzer's runtime
//! needs, the mutations go on for the given time instead. What libFuzzer learns stays in `target/fuzz/corpus`, what
//! breaks a target in `target/fuzz/artifacts`.
//! What it does not do: minimise inputs (`cargo fuzz tmin` does, in `fuzz/`).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::steps::{self, Count, Runner};

/// Fuzzes for `seconds`, all targets together; with `only`, the steps whose name contains it.
///
/// # Errors
/// When a target failed.
pub fn fuzz(root: &Path, seconds: u32, only: Option<&str>) -> Result<()> {
    let mut runner = Runner::new(root, only)?;
    run(&mut runner, root, seconds)?;
    runner.finish()
}

/// The steps, for `seconds` together.
///
/// # Errors
/// When `fuzz/` is not as it should be.
pub fn run(runner: &mut Runner, root: &Path, seconds: u32) -> Result<()> {
    let targets = targets(root)?;
    runner.command("fuzz, format", Count::Step, SHORT, &mut cargo(root, &["fmt", "--check"]));
    let clippy = ["clippy", "--locked", "--all-targets", "--", "-D", "warnings"];
    runner.command("fuzz, clippy", Count::Step, BUILD, &mut cargo(root, &clippy));
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let host = host();
    let with_compiler = steps::answer(&compiler, &["--version"]).is_some();
    let mut mutations = cargo(root, &["test", "--locked", "--", "--nocapture"]);
    if host.is_none() || !with_compiler {
        mutations.env("FUZZ_SECONDS", seconds.to_string());
    }
    let limit = BUILD + Duration::from_secs(seconds.into());
    runner.command("fuzz, mutations", Count::Tests, limit, &mut mutations);
    let names: Vec<String> = targets.iter().map(|target| format!("fuzz, {target}")).collect();
    if !names.iter().any(|name| runner.wants(name)) {
        return Ok(());
    }
    let Some(host) = host.filter(|_| with_compiler) else {
        runner.skip("fuzz, libFuzzer", &format!("no C++ compiler ({compiler}); mutations ran instead"));
        return Ok(());
    };
    let profile = if seconds < LONG { "short" } else { "release" };
    if runner.prerequisite("fuzz, build", Count::Step, BUILD, &mut instrumented_build(root, &host, profile)) {
        let built = root.join("target/fuzz").join(&host).join(profile);
        let share = (seconds / u32::try_from(targets.len()).unwrap_or(u32::MAX)).max(1);
        for (target, name) in targets.iter().zip(&names) {
            let mut command = libfuzzer(root, &built, target, share)?;
            runner.command(name, Count::Step, SHORT + Duration::from_secs(share.into()), &mut command);
        }
    }
    Ok(())
}

/// The targets by name: the folder of their programs.
fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let files = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = files.filter_map(|name| name.strip_suffix(".rs").map(str::to_owned)).collect();
    names.sort();
    Ok(names)
}

fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    // The main workspace's target directory: equal profiles, so that most dependencies are there already.
    command.args(arguments).current_dir(root.join("fuzz")).env("CARGO_TARGET_DIR", root.join("target"));
    command
}

fn instrumented_build(root: &Path, host: &str, profile: &str) -> Command {
    // Naming the target, even the host, keeps the flags away from build scripts, which could not be linked with them.
    let mut command =
        cargo(root, &["build", "--locked", "--profile", profile, "--features", "libfuzzer", "--target", host]);
    command.env("CARGO_TARGET_DIR", root.join("target/fuzz")).env("RUSTFLAGS", COVERAGE.join(" "));
    command
}

fn libfuzzer(root: &Path, built: &Path, target: &str, seconds: u32) -> Result<Command> {
    let build = root.join("target/fuzz");
    let (learned, artifacts) = (build.join("corpus").join(target), build.join("artifacts").join(target));
    for folder in [&learned, &artifacts] {
        std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    // Its own code for a failure, 77, means skipped to the runner.
    let mut command = Command::new(built.join(target));
    command
        .arg(format!("-max_total_time={seconds}"))
        .args(["-seed=1", "-error_exitcode=1", "-timeout=10", "-rss_limit_mb=512", "-print_final_stats=1"])
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(learned)
        .arg(root.join("fuzz/corpus").join(target))
        .current_dir(root);
    Ok(command)
}

/// The compiler's own target, when libFuzzer runs on it.
fn host() -> Option<String> {
    let version = steps::answer("rustc", &["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "))?;
    host.contains("linux").then(|| host.to_owned())
}

/// What cargo-fuzz passes, less what needs a nightly compiler.
const COVERAGE: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
];

/// From so many seconds on it pays to build faster targets.
const LONG: u32 = 600;

const SHORT: Duration = Duration::from_secs(120);

/// Two cores and a cold cache.
const BUILD: Duration = Duration::from_secs(900);

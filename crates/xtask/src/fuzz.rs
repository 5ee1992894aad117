//! `cargo xtask fuzz`, which feeds arbitrary bytes to every parser, using libFuzzer if a C++
//! compiler is available.
//!
//! It is a separate command. The tests of the package `fuzz`, which `cargo xtask test` runs with
//! all others, give every target its seeds and a fixed number of mutations of them, the same on
//! every machine.
//!
//! libFuzzer's coverage comes from flags that the stable compiler has (`-C passes=sancov-module`);
//! no sanitizer, because those need a nightly compiler and our own code in the parsers is safe
//! Rust. Without a C++ compiler, which libFuzzer's runtime needs, mutations go on for the given
//! time instead. What libFuzzer learns stays in `target/fuzz/corpus`, what breaks a target in
//! `target/fuzz/artifacts`. It does not minimise inputs; libFuzzer does:
//! `FUZZ_TARGET=NAME target/fuzz/HOST/fuzz/any -minimize_crash=1 FILE`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::steps::{self, Count, Runner};
use crate::suite::build::cargo;

/// Fuzzes for `seconds`, all targets together; with `only`, the steps whose name contains it.
///
/// # Errors
/// When a target failed.
pub fn fuzz(root: &Path, seconds: u32, only: Option<&str>) -> Result<()> {
    let mut runner = Runner::new(root, only)?;
    run(&mut runner, root, seconds)?;
    runner.finish()
}

fn run(runner: &mut Runner, root: &Path, seconds: u32) -> Result<()> {
    let targets = targets(root)?;
    let names: Vec<String> = targets.iter().map(|target| format!("fuzz, {target}")).collect();
    if !names.iter().any(|name| runner.wants(name)) {
        return Ok(());
    }
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let Some(host) = host().filter(|_| steps::answer(&compiler, &["--version"]).is_some()) else {
        runner.skip("fuzz, libFuzzer", &format!("no C++ compiler ({compiler}); mutations run instead"));
        let mut mutations = cargo(root, &["test", "--locked", "--package", PACKAGE, "--", "--nocapture"]);
        mutations.env("FUZZ_SECONDS", seconds.to_string());
        let mut wanted = targets.iter().zip(&names).filter(|(_, name)| runner.wants(name));
        if let (Some((target, _)), None) = (wanted.next(), wanted.next()) {
            mutations.env("FUZZ_TARGET", target);
        }
        runner.prerequisite("fuzz, mutations", Count::Tests, BUILD + after(seconds), &mut mutations);
        return Ok(());
    };
    let profile = if seconds < LONG { "fuzz-short" } else { "fuzz" };
    if runner.prerequisite("fuzz, build", Count::Step, BUILD, &mut instrumented_build(root, &host, profile)) {
        let program = folder(root).join(&host).join(profile).join("any");
        let share = (seconds / u32::try_from(targets.len()).unwrap_or(u32::MAX)).max(1);
        for (target, name) in targets.iter().zip(&names) {
            let mut command = libfuzzer(root, &program, target, share)?;
            runner.command(name, Count::Step, after(share), &mut command);
        }
    } else {
        names.iter().for_each(|name| runner.skip(name, "the targets do not build"));
    }
    Ok(())
}

/// The targets by name: each has a folder of seeds, which the tests of the package hold.
fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/corpus");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn instrumented_build(root: &Path, host: &str, profile: &str) -> Command {
    // Naming the target, even the host, keeps the flags away from build scripts, which could not be
    // linked with them.
    let arguments = ["build", "--locked", "--package", PACKAGE, "--features", "libfuzzer", "--target", host];
    let mut command = cargo(root, &arguments);
    command.args(["--profile", profile]).env("CARGO_TARGET_DIR", folder(root)).env("RUSTFLAGS", COVERAGE.join(" "));
    command
}

/// Apart: the flags would have everything else built anew.
fn folder(root: &Path) -> PathBuf {
    steps::target(root).join("fuzz")
}

/// A limit for what runs for `seconds`.
fn after(seconds: u32) -> Duration {
    SHORT + Duration::from_secs(seconds.into())
}

fn libfuzzer(root: &Path, program: &Path, target: &str, seconds: u32) -> Result<Command> {
    let folder = folder(root);
    let (learned, artifacts) = (folder.join("corpus").join(target), folder.join("artifacts").join(target));
    for folder in [&learned, &artifacts] {
        std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    // Its own code for a failure, 77, means skipped to the runner.
    let mut command = Command::new(program);
    command
        .env("FUZZ_TARGET", target)
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

const PACKAGE: &str = "probe-sync-fuzz";

/// Duration, s, from which it pays to build faster targets.
const LONG: u32 = 600;

const SHORT: Duration = Duration::from_secs(120);

/// Two cores and a cold cache.
const BUILD: Duration = Duration::from_secs(900);

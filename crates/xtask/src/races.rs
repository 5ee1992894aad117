//! `cargo xtask races`, which runs the recorder under ThreadSanitizer, and once more with a memory
//! ordering removed, which must be detected.
//!
//! It is a separate command that builds the recorder twice and its dependencies once, instrumented.
//! The sanitizer is the compiler's; the pinned stable compiler offers it if `RUSTC_BOOTSTRAP=1` is
//! set. The standard library is not instrumented, so `tests/races` is written not to depend on its
//! synchronisation. It does not explore all interleavings; loom does, in the recorder's own tests.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::steps::{self, Count, Runner};

/// Runs both.
///
/// # Errors
/// There is a race, or the one that is planted is not seen.
pub fn races(root: &Path) -> Result<()> {
    let mut runner = Runner::new(root, None)?;
    run(&mut runner, root);
    runner.finish()
}

/// The steps.
pub fn run(runner: &mut Runner, root: &Path) {
    let Some(target) = target() else {
        return runner.skip(NAME, "this compiler has no ThreadSanitizer for this machine");
    };
    if !runner.wants(NAME) {
        return;
    }
    runner.command(NAME, Count::Tests, LIMIT, &mut test(root, &target, ""));
    runner.check(PLANTED, || {
        let log = root.join("target/xtask/races_planted.log");
        let status = steps::logged(&mut test(root, &target, "--cfg=probe_sync_planted"), &log, LIMIT)?;
        let said = std::fs::read_to_string(&log)?;
        let seen = !status.success() && said.contains("WARNING: ThreadSanitizer: data race");
        ensure!(seen, "an order was taken away and nothing was seen; see {}", log.display());
        Ok(())
    });
}

/// The compiler's own target, if it has the sanitizer for it.
fn target() -> Option<String> {
    let version = steps::answer("rustc", &["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "))?.to_owned();
    let sysroot = steps::answer("rustc", &["--print", "sysroot"])?;
    let folder = Path::new(sysroot.trim()).join("lib/rustlib").join(&host).join("lib");
    let is_there = |name: &str| name.starts_with("librustc-") && name.ends_with("rt.tsan.a");
    let mut files = std::fs::read_dir(folder).ok()?.flatten();
    files.any(|file| is_there(&file.file_name().to_string_lossy())).then_some(host)
}

/// With `flags` for the recorder's own compiler calls.
fn test(root: &Path, target: &str, flags: &str) -> Command {
    let mut command = Command::new("cargo");
    command.args(["test", "--locked", "--package", "probe-sync-record", "--test", "races", "--target", target]);
    if !flags.is_empty() {
        // By the profile: as `RUSTFLAGS` they would have all dependencies built anew.
        command.args(["-Zprofile-rustflags", "--config"]);
        command.arg(format!("profile.dev.package.probe-sync-record.rustflags = [\"{flags}\"]"));
    }
    // Apart: the flags would have everything else built anew.
    command.env("CARGO_TARGET_DIR", steps::target(root).join("races")).env("RUSTC_BOOTSTRAP", "1");
    command.env("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer");
    let suppressions = root.join("crates/record/tests/races/suppressions.txt");
    command.env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display())).current_dir(root);
    command
}

const NAME: &str = "races, ThreadSanitizer";
const PLANTED: &str = "races, a planted one";

/// Two cores and a cold cache.
const LIMIT: Duration = Duration::from_secs(900);

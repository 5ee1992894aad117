//! `cargo xtask package`: the command as people install it: a tarball, Debian packages with and without MPI, a Python wheel.
//!
//! Place in the flow: a command; nothing of `cargo xtask test` builds in release mode. Everything comes into `target/package`. Tarball and Debian packages carry the manual pages and
//! completions that the built program itself prints. cargo-deb makes the Debian packages, as `crates/cli/Cargo.toml` describes them; maturin makes the wheel.
//!
//! What it does not do: publish.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::{python, steps, tools};

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `probe_sync-VERSION-ARCH-linux-gnu.tar.gz`, to be unpacked below any prefix; without MPI.
    Tarball,
    /// `probe-sync_VERSION_ARCH.deb`; without MPI.
    Deb,
    /// `probe-sync-openmpi_VERSION_ARCH.deb`; with Debian's Open MPI and hwloc.
    DebOpenmpi,
    /// `probe_sync-VERSION-….whl`.
    Wheel,
}

/// Makes one kind, or all.
///
/// # Errors
/// A build fails, a tool is missing, or a file cannot be written.
pub fn package(root: &Path, kind: Option<Kind>) -> Result<()> {
    let kinds = kind.map_or_else(|| Kind::value_variants().to_vec(), |kind| vec![kind]);
    let folder = root.join(FOLDER);
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    for kind in kinds {
        let made = match kind {
            Kind::Tarball => tarball(root, &folder)?,
            Kind::Deb => deb(root, &folder, None)?,
            Kind::DebOpenmpi => deb(root, &folder, Some("openmpi"))?,
            Kind::Wheel => wheel(root, &folder)?,
        };
        println!("made {}", made.display());
    }
    Ok(())
}

/// Builds the command, and puts it without debug information into `bin`, and what it prints of itself, packed pages into `man`, completions into `completions`, below the
/// staging folder, whose path it returns.
fn staged(root: &Path, target: &Path, features: &str) -> Result<PathBuf> {
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--locked", "--package", "probe-sync-cli", "--features", features]);
    steps::visible(build.env("CARGO_TARGET_DIR", target).current_dir(root), BUILD)?;
    let program = target.join("release/probe_sync");
    // Where the assets of the Debian packages are looked for.
    let stage = target.join("release/packaged");
    if stage.exists() {
        std::fs::remove_dir_all(&stage).with_context(|| format!("removing {}", stage.display()))?;
    }
    let (completions, bin) = (stage.join("completions"), stage.join("bin"));
    for folder in [&completions, &bin] {
        std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let mut strip = Command::new("strip");
    steps::visible(strip.arg("-o").arg(bin.join("probe_sync")).arg(&program), LIMIT)?;
    steps::visible(Command::new(&program).args(["man", "--output"]).arg(stage.join("man")), LIMIT)?;
    for page in std::fs::read_dir(stage.join("man"))?.flatten() {
        steps::visible(Command::new("gzip").arg("-9n").arg(page.path()), LIMIT)?;
    }
    for (shell, name) in [("bash", "probe_sync"), ("zsh", "_probe_sync"), ("fish", "probe_sync.fish")] {
        let program = program.to_str().context("a path that is not UTF-8")?;
        let text =
            steps::answer(program, &["completions", shell]).with_context(|| format!("no completions for {shell}"))?;
        std::fs::write(completions.join(name), text).with_context(|| format!("writing {name}"))?;
    }
    Ok(stage)
}

/// The same bytes of the same sources and tools: sorted, without owners, at the time of the sources' last commit.
fn tarball(root: &Path, folder: &Path) -> Result<PathBuf> {
    let target = steps::target(root);
    let stage = staged(root, &target, "rocpd")?;
    let name = format!("probe_sync-{}-{}-linux-gnu", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let tree = folder.join(&name);
    if tree.exists() {
        std::fs::remove_dir_all(&tree).with_context(|| format!("removing {}", tree.display()))?;
    }
    let place = |from: &Path, to: &str| -> Result<()> {
        let to = tree.join(to);
        std::fs::create_dir_all(to.parent().context("a path without a folder")?)?;
        std::fs::copy(from, &to).with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
        Ok(())
    };
    place(&stage.join("bin/probe_sync"), "bin/probe_sync")?;
    for page in std::fs::read_dir(stage.join("man"))?.flatten() {
        let name = page.file_name();
        place(&page.path(), &format!("share/man/man1/{}", name.to_string_lossy()))?;
    }
    let completions = stage.join("completions");
    place(&completions.join("probe_sync"), "share/bash-completion/completions/probe_sync")?;
    place(&completions.join("_probe_sync"), "share/zsh/site-functions/_probe_sync")?;
    place(&completions.join("probe_sync.fish"), "share/fish/vendor_completions.d/probe_sync.fish")?;
    for document in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        place(&root.join(document), &format!("share/doc/probe_sync/{document}"))?;
    }
    let committed =
        steps::answer("git", &["-C", root.to_str().context("a path that is not UTF-8")?, "log", "-1", "--format=%ct"]);
    let time = committed.map_or_else(|| "0".to_owned(), |text| text.trim().to_owned());
    let archive = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--use-compress-program=gzip -9n"]);
    tar.arg(format!("--mtime=@{time}")).arg("-cf").arg(&archive).arg("-C").arg(folder).arg(&name);
    steps::visible(&mut tar, LIMIT)?;
    Ok(archive)
}

/// A Debian package of the command alone, or of a variant.
fn deb(root: &Path, folder: &Path, variant: Option<&str>) -> Result<PathBuf> {
    // A target folder of its own for each: the programs have one name.
    let (target, features) = match variant {
        None => (steps::target(root), "rocpd"),
        Some(variant) => (folder.join(format!("target-{variant}")), "mpi,hwloc"),
    };
    staged(root, &target, features)?;
    let tool = tools::cargo_tool(root, "cargo-deb", CARGO_DEB, &[])?;
    let made = folder.join(format!("new-{}", variant.unwrap_or("plain")));
    if made.exists() {
        std::fs::remove_dir_all(&made).with_context(|| format!("removing {}", made.display()))?;
    }
    let mut package = Command::new(tool);
    package.args(["deb", "--no-build", "--locked", "--package", "probe-sync-cli", "--output"]).arg(&made);
    if let Some(variant) = variant {
        package.args(["--variant", variant]);
    }
    std::fs::create_dir_all(&made)?;
    steps::visible(package.env("CARGO_TARGET_DIR", &target).current_dir(root), LIMIT)?;
    moved(&made, folder, "deb")
}

/// The Python package, and the command beside Python's own.
fn wheel(root: &Path, folder: &Path) -> Result<PathBuf> {
    let stage = staged(root, &steps::target(root), "rocpd")?;
    // maturin puts there what it finds here; in wheels that tests make is no command.
    let scripts = root.join("crates/python/wheel_data/scripts");
    std::fs::create_dir_all(&scripts).with_context(|| format!("creating {}", scripts.display()))?;
    let placed = std::fs::copy(stage.join("bin/probe_sync"), scripts.join("probe_sync"));
    let made = placed.context("copying the command").and_then(|_| python::wheel(root));
    let removed = std::fs::remove_dir_all(&scripts).with_context(|| format!("removing {}", scripts.display()));
    let made = made?;
    removed?;
    // As pip has just installed it.
    let installed = steps::target(root).join("python/venv/bin/probe_sync");
    steps::visible(Command::new(installed).arg("--version"), LIMIT)?;
    let placed = folder.join(made.file_name().context("a wheel without a name")?);
    std::fs::copy(&made, &placed).with_context(|| format!("copying {}", made.display()))?;
    Ok(placed)
}

/// Puts the only file with this ending where people look for it.
fn moved(from: &Path, to: &Path, ending: &str) -> Result<PathBuf> {
    let files = std::fs::read_dir(from)?.flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == ending)).collect();
    let (Some(file), true) = (found.pop(), found.is_empty()) else { bail!("not one .{ending} in {}", from.display()) };
    let placed = to.join(file.file_name().context("a file without a name")?);
    std::fs::rename(&file, &placed).with_context(|| format!("moving {}", file.display()))?;
    std::fs::remove_dir_all(from).with_context(|| format!("removing {}", from.display()))?;
    Ok(placed)
}

const FOLDER: &str = "target/package";
const CARGO_DEB: &str = "3.8.0";
const LIMIT: Duration = Duration::from_secs(120);
/// Two cores and a cold cache.
const BUILD: Duration = Duration::from_secs(1800);

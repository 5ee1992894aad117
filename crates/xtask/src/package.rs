//! `cargo xtask package`: the command as people install it: a tarball, Debian packages with and
//! without MPI, a Python wheel.
//!
//! Everything comes into `target/package`, with its `SHA256SUMS`. What has no MPI is linked by zig
//! against [`GLIBC`], so that it runs on distributions older than the one that builds it:
//! cargo-zigbuild and zig come from PyPI as programs, and need no other Rust target. cargo-deb
//! makes the Debian packages, as `crates/cli/Cargo.toml` describes them; maturin makes the wheel.
//! Tarball and Debian packages carry the manual pages and completions that the built program itself
//! prints. [`check`] installs them into bare Debian roots.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::{steps, tools};

/// Kind of package.
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
    sums(&folder)
}

/// Installs tarball and wheel into bare Debian roots, without a compiler, and runs
/// `probe_sync demo` in each.
///
/// # Errors
/// debootstrap is missing or ends with an error, or something does not run there.
pub fn check(root: &Path) -> Result<()> {
    let mut check = Command::new("python3");
    check.arg(root.join("bench/install/bare_roots.py")).arg(root.join(FOLDER)).current_dir(root);
    steps::visible(&mut check, ROOTS)
}

/// Writes the checksums of all packages that lie in the folder, for `sha256sum --check`.
fn sums(folder: &Path) -> Result<()> {
    let files = std::fs::read_dir(folder)?.flatten().map(|entry| entry.file_name());
    let endings = [".tar.gz", ".deb", ".whl"];
    let is_package = |name: &String| endings.iter().any(|ending| name.ends_with(ending));
    let mut names: Vec<String> = files.filter_map(|name| name.into_string().ok()).filter(is_package).collect();
    names.sort();
    let sums = Command::new("sha256sum").args(names).current_dir(folder).output().context("sha256sum")?;
    anyhow::ensure!(sums.status.success(), "sha256sum: {}", String::from_utf8_lossy(&sums.stderr));
    std::fs::write(folder.join("SHA256SUMS"), sums.stdout).context("writing SHA256SUMS")
}

/// The folder of programs of PyPI that build against an old glibc.
fn zig(folder: &Path) -> Result<PathBuf> {
    let venv = folder.join("venv");
    let installed = steps::answer("python3", &["-m", "venv", &venv.to_string_lossy()]);
    installed.context("python3 makes no virtual environment; on Debian: apt-get install python3-venv")?;
    let mut install = Command::new(venv.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    steps::visible(install.args(PROGRAMS), LIMIT)?;
    Ok(venv.join("bin"))
}

/// `PATH` with these programs first.
fn path_with(programs: &Path) -> Result<std::ffi::OsString> {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(programs.to_owned()).chain(std::env::split_paths(&rest));
    std::env::join_paths(all).context("a folder that PATH cannot name")
}

/// Builds the command against an old glibc, or with Debian's MPI, and puts it without debug
/// information into `bin`, and what it prints of itself, packed pages into `man`, completions into
/// `completions`, below the staging folder, whose path it returns.
fn staged(root: &Path, folder: &Path, target: &Path, features: Option<&str>) -> Result<PathBuf> {
    let mut build = Command::new("cargo");
    let built = if let Some(features) = features {
        build.args(["build", "--features", features]);
        target.join("release")
    } else {
        let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        build.args(["zigbuild", "--target", &format!("{triple}.{GLIBC}")]).env("PATH", path_with(&zig(folder)?)?);
        target.join(triple).join("release")
    };
    build.args(["--release", "--locked", "--package", "probe-sync-cli"]);
    steps::visible(build.env("CARGO_TARGET_DIR", target).current_dir(root), BUILD)?;
    let program = built.join("probe_sync");
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

/// The same bytes of the same sources and tools: sorted, without owners, at the time of the
/// sources' last commit.
fn tarball(root: &Path, folder: &Path) -> Result<PathBuf> {
    let target = steps::target(root);
    let stage = staged(root, folder, &target, None)?;
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
        None => (steps::target(root), None),
        Some(variant) => (folder.join(format!("target-{variant}")), Some("mpi,hwloc")),
    };
    staged(root, folder, &target, features)?;
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
    let stage = staged(root, folder, &steps::target(root), None)?;
    let scripts = root.join("crates/python/wheel_data/scripts");
    std::fs::create_dir_all(&scripts).with_context(|| format!("creating {}", scripts.display()))?;
    let placed = std::fs::copy(stage.join("bin/probe_sync"), scripts.join("probe_sync"));
    let made = folder.join("new-wheel");
    let build = || {
        let programs = zig(folder)?;
        let mut build = Command::new(programs.join("maturin"));
        build.args(["build", "--profile", "wheel", "--locked", "--zig", "--compatibility"]);
        build
            .arg(format!("manylinux_{}", GLIBC.replace('.', "_")))
            .args(["--manifest-path", "crates/python/Cargo.toml"]);
        build.arg("--interpreter").arg(programs.join("python")).arg("--out").arg(&made);
        steps::visible(build.env("PATH", path_with(&programs)?).current_dir(root), BUILD)?;
        moved(&made, folder, "whl")
    };
    let made = placed.context("copying the command").and_then(|_| build());
    std::fs::remove_dir_all(&scripts).with_context(|| format!("removing {}", scripts.display()))?;
    made
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
/// The glibc of Debian 10, RHEL 8 and what is newer; Rust itself asks for 2.17.
const GLIBC: &str = "2.28";
const PROGRAMS: [&str; 3] = ["cargo-zigbuild==0.24.1", "ziglang==0.17.1", "maturin==1.16.0"];
const CARGO_DEB: &str = "3.8.0";
const LIMIT: Duration = Duration::from_secs(120);
/// Two roots of Debian, each of which downloads some 100 MB.
const ROOTS: Duration = Duration::from_secs(1800);
/// Two cores and a cold cache.
const BUILD: Duration = Duration::from_secs(1800);

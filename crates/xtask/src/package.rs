//! `cargo xtask package`: the command as people install it.
//!
//! `bench/install/package.sh` makes the packages; this provides the programs that it calls:
//! cargo-zigbuild, zig and maturin come from PyPI and need no other Rust target, cargo-deb is built
//! from the registry. `bench/install/bare_roots.py` installs the packages into bare roots.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Error, Result};
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

/// Makes one kind, or all. With `check`, installs tarball and wheel into bare Debian roots, without a
/// compiler, and runs `probe_sync demo` in each.
///
/// # Errors
/// A build fails, a tool is missing, or a file cannot be written.
pub fn package(root: &Path, kind: Option<Kind>, check: bool) -> Result<()> {
    let kinds = kind.map_or_else(|| Kind::value_variants().to_vec(), |kind| vec![kind]);
    let mut make = Command::new(root.join("bench/install/package.sh"));
    let mut path: Vec<_> = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    for kind in kinds {
        make.args(kind.to_possible_value().map(|kind| kind.get_name().to_owned()));
        if matches!(kind, Kind::Deb | Kind::DebOpenmpi) {
            let tool = tools::cargo_tool(root, "cargo-deb", "3.8.0", &[])?;
            path.splice(..0, tool.parent().map(Path::to_owned));
        }
        if kind != Kind::DebOpenmpi {
            path.insert(0, tools::venv(root, "ZIG").map_err(Error::msg)?.join("bin"));
        }
    }
    make.env("PATH", std::env::join_paths(path).context("a folder that PATH cannot name")?);
    steps::visible(make.current_dir(root), LIMIT)?;
    if check { steps::call(root, "python3", &["bench/install/bare_roots.py", "target/package"]) } else { Ok(()) }
}

/// Builds from a cold cache.
const LIMIT: Duration = Duration::from_secs(3600);

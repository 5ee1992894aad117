//! `cargo xtask setup`, which finds or installs the dependencies of the optional features `mpi`,
//! `hwloc` and `otf2`.
//!
//! `demo` and `test` start with it and ask [`Tools`] what can be built. The default build needs
//! none of these dependencies, so nothing here is fatal: a missing one is reported with the command
//! that would install it. It runs a package manager only as root, and only Debian's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::steps;

/// What this machine offers.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    /// `mpicc` compiles against MPI.
    pub mpicc: bool,
    /// `mpirun` starts ranks.
    pub mpirun: bool,
    /// bindgen can load libclang and find its headers.
    pub libclang: bool,
    /// pkg-config knows hwloc.
    pub hwloc: bool,
    /// `otf2-config` says that libotf2 is new enough.
    pub otf2: bool,
}

impl Tools {
    /// Looks for everything; well under a second.
    pub fn find() -> Self {
        Self {
            mpicc: steps::answer("mpicc", &["-show"]).is_some(),
            mpirun: steps::answer("mpirun", &["--version"]).is_some(),
            libclang: has_libclang(),
            hwloc: steps::answer("pkg-config", &["--exists", "hwloc"]).is_some(),
            otf2: steps::answer("otf2-config", &["--version"]).is_some_and(|version| is_otf2_3(&version)),
        }
    }

    /// Everything is there.
    pub fn complete(self) -> bool {
        self.mpi() && self.hwloc && self.otf2
    }

    /// The feature `mpi` builds and runs.
    pub fn mpi(self) -> bool {
        self.mpicc && self.mpirun && self.libclang
    }

    /// The feature `otf2` builds.
    pub fn otf2(self) -> bool {
        self.otf2 && self.libclang
    }

    /// The features of runs that build here, for `--features`.
    pub fn features(self) -> Vec<&'static str> {
        let mut features = Vec::new();
        if self.mpi() {
            features.push("probe-sync-cli/mpi");
        }
        // hwloc2 generates nothing, but libhwloc must be there to link.
        if self.hwloc {
            features.push("probe-sync-cli/hwloc");
        }
        features
    }

    /// Message about what is missing.
    pub fn missing(self) -> String {
        let all = [
            (self.mpicc, "mpicc"),
            (self.mpirun, "mpirun"),
            (self.libclang, "libclang"),
            (self.hwloc, "libhwloc"),
            (self.otf2, "libotf2"),
        ];
        all.iter().filter(|(there, _)| !there).map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
    }
}

/// Which tools a command needs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The distribution's MPI, with what building against it takes.
    Mpi,
    /// libotf2 as well.
    Everything,
}

impl Wanted {
    fn is_met(self, tools: Tools) -> bool {
        tools.mpi() && tools.hwloc && (tools.otf2 || self == Self::Mpi)
    }

    /// Debian's names. Those of OTF2 are apart, because not every release of Debian has them as
    /// new.
    fn packages(self) -> &'static [&'static [&'static str]] {
        const ALL: [&[&str]; 2] = [
            &["openmpi-bin", "libopenmpi-dev", "libclang-dev", "libhwloc-dev", "pkg-config"],
            // The library with its headers, and the reader that tests ask.
            &["libotf2-trace-dev", "otf2-tools"],
        ];
        if self == Self::Mpi { &ALL[..1] } else { &ALL }
    }
}

/// Finds or installs the wanted tools, and returns what is there afterwards.
///
/// # Errors
/// None for missing tools; those are reported and the caller does without.
pub fn setup(root: &Path, wanted: Wanted) -> Result<Tools> {
    let tools = Tools::find();
    if wanted.is_met(tools) {
        println!("setup: all wanted tools are installed");
        return Ok(tools);
    }
    let packages = wanted.packages().concat().join(" ");
    println!("setup: missing {}", tools.missing());
    if steps::answer("apt-get", &["--version"]).is_none() {
        println!("setup: install these by your package manager: an MPI with its compiler wrapper (Open MPI or MPICH),");
        println!("       libclang with headers, hwloc with headers, pkg-config, OTF2 3.0 or newer. Debian's names:");
        println!("       {packages}");
        return Ok(tools);
    }
    if !rustix::process::geteuid().is_root() {
        println!("setup: not root; to install it: sudo apt-get install {packages}");
        return Ok(tools);
    }
    if let Err(error) = wanted.packages().iter().try_for_each(|packages| install_all(root, packages)) {
        println!("setup: {error:#}");
        println!("setup: continuing without; to try again: apt-get update && apt-get install {packages}");
    }
    let tools = Tools::find();
    if !wanted.is_met(tools) {
        println!("setup: still missing {}", tools.missing());
    }
    Ok(tools)
}

/// Installs Debian's packages. The lists are fetched only when they lack a package, because that
/// alone takes a while.
pub fn install_all(root: &Path, packages: &[&str]) -> Result<()> {
    let apt = |verb: &str, packages: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["--quiet", "--yes", "--no-install-recommends"]).env("DEBIAN_FRONTEND", "noninteractive");
        // Another package manager may hold the lock, and a mirror may hang.
        command.args(["-o", "DPkg::Lock::Timeout=60", "-o", "Acquire::http::Timeout=30", "-o", "Acquire::Retries=2"]);
        steps::visible(command.arg(verb).args(packages).current_dir(root), INSTALL_LIMIT)
    };
    apt("install", packages).or_else(|_| apt("update", &[]).and_then(|()| apt("install", packages)))
}

/// `otf2-config: version 3.0.2`: before 3.0 functions had fewer arguments.
fn is_otf2_3(version: &str) -> bool {
    let number = version.split_whitespace().last().and_then(|number| number.split('.').next());
    number.and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 3)
}

/// bindgen finds libclang through these places, too; the loader's cache covers an ordinary
/// installation.
fn has_libclang() -> bool {
    let named = std::env::var_os("LIBCLANG_PATH").is_some();
    let cached = ["ldconfig", "/sbin/ldconfig"]
        .iter()
        .filter_map(|program| steps::answer(program, &["-p"]))
        // libclang-cpp is another library, which bindgen cannot use.
        .any(|list| list.lines().any(|line| line.contains("libclang") && !line.contains("libclang-cpp")));
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let versioned = folders.filter(|folder| folder.file_name().to_string_lossy().starts_with("llvm"));
    let holds = |folder: PathBuf| {
        let mut names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.any(|name| name.to_string_lossy().starts_with("libclang.so"))
    };
    named
        || cached
        || versioned.into_iter().any(|folder| ["lib", "lib64"].iter().any(|lib| holds(folder.path().join(lib))))
}

/// Environment that lets `mpirun` start as root and start more ranks than there are cores.
pub const MPI_ENVIRONMENT: [(&str, &str); 3] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
];

const INSTALL_LIMIT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tools: Tools, features: &[&str], missing: &str) {
        assert_eq!(tools.features(), features, "{tools:?}");
        assert_eq!(tools.missing(), missing, "{tools:?}");
        assert_eq!(tools.complete(), missing.is_empty(), "{tools:?}");
    }

    #[test]
    fn features_follow_from_what_is_there() {
        let all = Tools { mpicc: true, mpirun: true, libclang: true, hwloc: true, otf2: true };
        check(all, &["probe-sync-cli/mpi", "probe-sync-cli/hwloc"], "");
        check(Tools { libclang: false, ..all }, &["probe-sync-cli/hwloc"], "libclang");
        check(Tools { hwloc: false, ..all }, &["probe-sync-cli/mpi"], "libhwloc");
        check(Tools { otf2: false, ..all }, &["probe-sync-cli/mpi", "probe-sync-cli/hwloc"], "libotf2");
        check(Tools::default(), &[], "mpicc, mpirun, libclang, libhwloc, libotf2");
        assert!(all.otf2() && !Tools { libclang: false, ..all }.otf2(), "bindgen reads its header");
    }

    #[test]
    fn an_older_otf2_is_none() {
        let check = |version: &str, expected: bool| assert_eq!(is_otf2_3(version), expected, "{version}");
        check("otf2-config: version 3.0.2", true);
        check("otf2-config: version 2.3", false);
        check("10.1", true);
        check("", false);
    }
}

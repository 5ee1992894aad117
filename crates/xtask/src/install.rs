//! `cargo xtask install --prefix DIR`, which installs the C interface where C programs look for it.
//!
//! | file | what |
//! |---|---|
//! | `lib/libprobe_sync.so.0`, `libprobe_sync.so` | the shared library; its symbols bear the version `PROBE_SYNC_0` |
//! | `lib/libprobe_sync.a` | the same for static linking |
//! | `include/probe_sync.h`, `probe_sync_mpi.h` | the headers |
//! | `share/probe_sync/probe_sync_mpi.c` | sessions over MPI, to be compiled by the user's mpicc |
//! | `share/probe_sync/probe_sync_pmpi.c` | finds late ranks of programs that do not know of it; compiled likewise |
//! | `lib/pkgconfig/probe_sync.pc` | for pkg-config, relative to itself |
//! | `lib/cmake/probe_sync/` | for `find_package(probe_sync)` |
//! | `bin/probe_sync` | the command, where it was built in release mode |
//!
//! cargo makes the archive and gcc links the library of it: rustc hands a version script of its own
//! to the linker for a cdylib, and another one beside it has no effect. Everything but `ps_*` is
//! local, so that two libraries written in Rust live in one process.
//!
//! It does not build the command.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::steps;

/// Builds in release mode and installs.
///
/// # Errors
/// The build, gcc, or a file fails.
pub fn install(root: &Path, prefix: &Path) -> Result<()> {
    steps::visible(&mut build(root, Profile::Release), BUILD_LIMIT)?;
    let prefix = std::path::absolute(prefix)?;
    put(root, Profile::Release, &prefix)?;
    println!("installed into {}; `pkg-config --cflags --libs probe_sync` with", prefix.display());
    println!("  PKG_CONFIG_PATH={}", prefix.join("lib/pkgconfig").display());
    Ok(())
}

/// How the archive is built.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// For users.
    Release,
    /// For tests.
    Dev,
}

/// What makes the archive.
pub fn build(root: &Path, profile: Profile) -> Command {
    let mut command = Command::new("cargo");
    command.args(["rustc", "--locked", "--package", "probe-sync-capi", "--lib", "--crate-type", "staticlib"]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    command.current_dir(root);
    command
}

/// Links the shared library of the archive that was built, and puts all files below `prefix`.
///
/// # Errors
/// gcc fails, or a file cannot be written.
pub fn put(root: &Path, profile: Profile, prefix: &Path) -> Result<()> {
    let built = steps::target(root).join(if profile == Profile::Release { "release" } else { "debug" });
    let archive = built.join("libprobe_sync_capi.a");
    for folder in ["lib/pkgconfig", "lib/cmake/probe_sync", "include", "bin", "share/probe_sync"] {
        std::fs::create_dir_all(prefix.join(folder)).with_context(|| format!("creating {folder}"))?;
    }
    let lib = prefix.join("lib");
    copy(&archive, &lib.join("libprobe_sync.a"))?;
    // Two thirds of it are lines of source that nobody steps through.
    let mut strip = Command::new("strip");
    strip.args(["--strip-debug", "libprobe_sync.a"]).current_dir(&lib);
    steps::visible(&mut strip, LINK_LIMIT)?;
    link(&lib)?;
    for header in ["probe_sync.h", "probe_sync_mpi.h"] {
        copy(&root.join("crates/capi/include").join(header), &prefix.join("include").join(header))?;
    }
    copy(&root.join("crates/capi/src/probe_sync_mpi.c"), &prefix.join(MPI_SOURCE))?;
    copy(&root.join("crates/capi/src/probe_sync_pmpi.c"), &prefix.join(PMPI_SOURCE))?;
    let version = env!("CARGO_PKG_VERSION");
    let files = [
        ("lib/pkgconfig/probe_sync.pc", PKG_CONFIG),
        ("lib/cmake/probe_sync/probe_syncConfig.cmake", CMAKE),
        ("lib/cmake/probe_sync/probe_syncConfigVersion.cmake", CMAKE_VERSION),
    ];
    for (name, text) in files {
        let text = text.replace("@VERSION@", version).replace("@LIBRARIES@", &LIBRARIES.join(" "));
        std::fs::write(prefix.join(name), text).with_context(|| format!("writing {name}"))?;
    }
    let program = built.join("probe_sync");
    if profile == Profile::Release && program.exists() {
        copy(&program, &prefix.join("bin/probe_sync"))?;
    }
    Ok(())
}

/// `libprobe_sync.so.0` of the archive beside it, and the link that `-lprobe_sync` finds.
fn link(lib: &Path) -> Result<()> {
    let script = lib.join("libprobe_sync.map");
    std::fs::write(&script, VERSION_SCRIPT).context("writing the version script")?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-o", SONAME]).arg(format!("-Wl,-soname,{SONAME}"));
    // Everything of the archive, of which then only what `ps_*` needs stays. It is never unloaded:
    // a thread may run in it.
    gcc.args(["-Wl,--version-script=libprobe_sync.map", "-Wl,--gc-sections", "-Wl,-z,nodelete", "-Wl,-z,defs"]);
    gcc.args([
        "-Wl,--strip-debug",
        "-Wl,--as-needed",
        "-Wl,--whole-archive",
        "libprobe_sync.a",
        "-Wl,--no-whole-archive",
    ]);
    gcc.args(LIBRARIES).current_dir(lib);
    let linked = steps::visible(&mut gcc, LINK_LIMIT);
    std::fs::remove_file(&script).context("removing the version script")?;
    linked?;
    let short = lib.join("libprobe_sync.so");
    if short.symlink_metadata().is_ok() {
        std::fs::remove_file(&short).context("replacing libprobe_sync.so")?;
    }
    std::os::unix::fs::symlink(SONAME, short).context("linking libprobe_sync.so")
}

/// A new file beside an old one, so that a program that runs with the old one is not disturbed.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        std::fs::remove_file(to).with_context(|| format!("replacing {}", to.display()))?;
    }
    std::fs::copy(from, to).with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// The file, which is also the name that programs ask for.
pub const SONAME: &str = "libprobe_sync.so.0";

/// What users compile against their MPI, relative to the prefix.
pub const MPI_SOURCE: &str = "share/probe_sync/probe_sync_mpi.c";

/// The source that programs compile to find late ranks without changes to their code, relative to
/// the prefix.
pub const PMPI_SOURCE: &str = "share/probe_sync/probe_sync_pmpi.c";

/// What Rust's standard library needs of the system.
const LIBRARIES: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

const VERSION_SCRIPT: &str = "PROBE_SYNC_0 { global: ps_*; local: *; };\n";

const PKG_CONFIG: &str = "\
prefix=${pcfiledir}/../..
libdir=${prefix}/lib
includedir=${prefix}/include
mpi_source=${prefix}/share/probe_sync/probe_sync_mpi.c

Name: probe_sync
Description: How the clocks of a job's nodes differ, and the reference's time on all of them
Version: @VERSION@
Cflags: -I${includedir}
Libs: -L${libdir} -lprobe_sync
Libs.private: @LIBRARIES@
";

const CMAKE: &str = "\
# probe_sync::probe_sync (shared) and probe_sync::probe_sync_static. With COMPONENTS mpi also probe_sync::probe_sync_mpi (static): sessions over the MPI that
# find_package(MPI) finds, compiled here, because MPIs differ in their binary interfaces.
get_filename_component(_probe_sync_prefix \"${CMAKE_CURRENT_LIST_DIR}/../../..\" ABSOLUTE)
if(NOT TARGET probe_sync::probe_sync)
  add_library(probe_sync::probe_sync SHARED IMPORTED)
  set_target_properties(probe_sync::probe_sync PROPERTIES
    IMPORTED_LOCATION \"${_probe_sync_prefix}/lib/libprobe_sync.so.0\"
    IMPORTED_SONAME \"libprobe_sync.so.0\"
    INTERFACE_INCLUDE_DIRECTORIES \"${_probe_sync_prefix}/include\")
  add_library(probe_sync::probe_sync_static STATIC IMPORTED)
  set_target_properties(probe_sync::probe_sync_static PROPERTIES
    IMPORTED_LOCATION \"${_probe_sync_prefix}/lib/libprobe_sync.a\"
    INTERFACE_LINK_LIBRARIES \"gcc_s;util;rt;pthread;m;dl\"
    INTERFACE_INCLUDE_DIRECTORIES \"${_probe_sync_prefix}/include\")
endif()
if(\"mpi\" IN_LIST probe_sync_FIND_COMPONENTS AND NOT TARGET probe_sync::probe_sync_mpi)
  include(CMakeFindDependencyMacro)
  find_dependency(MPI COMPONENTS C)
  find_dependency(Threads)
  add_library(probe_sync_mpi STATIC \"${_probe_sync_prefix}/share/probe_sync/probe_sync_mpi.c\")
  set_target_properties(probe_sync_mpi PROPERTIES C_STANDARD 11 POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(probe_sync_mpi PUBLIC probe_sync::probe_sync MPI::MPI_C PRIVATE Threads::Threads)
  add_library(probe_sync::probe_sync_mpi ALIAS probe_sync_mpi)
endif()
unset(_probe_sync_prefix)
";

const CMAKE_VERSION: &str = "\
set(PACKAGE_VERSION \"@VERSION@\")
# Before 1.0 every minor version may change something.
string(REGEX REPLACE \"^([0-9]+[.][0-9]+).*\" \"\\\\1\" _probe_sync_minor \"${PACKAGE_VERSION}\")
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION OR NOT \"${PACKAGE_FIND_VERSION}.\" MATCHES \"^${_probe_sync_minor}[.]\")
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
unset(_probe_sync_minor)
";

const BUILD_LIMIT: Duration = Duration::from_secs(1200);

const LINK_LIMIT: Duration = Duration::from_secs(120);

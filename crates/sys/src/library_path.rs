//! Detects libraries that the loader would take from the process's current directory.
//!
//! The check runs before `library` loads one.
//! `LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/opt/rocm/lib` has an empty part if the variable was unset. An
//! empty part means the current directory, which on shared scratch space may belong to another
//! user. The loader searches it for the library and all its dependencies, including in
//! subdirectories for the machine's type. It cannot protect libraries that the program itself is
//! linked with, because the loader loads those before the program starts.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// A library, or a folder of libraries, that the loader would find through an empty or relative
/// component of `LD_LIBRARY_PATH`.
pub(crate) fn planted() -> Option<PathBuf> {
    // The loader goes by what it was when the process began.
    let at_start = std::fs::read("/proc/self/environ").unwrap_or_default();
    let at_start = at_start.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"LD_LIBRARY_PATH="));
    let now = std::env::var_os("LD_LIBRARY_PATH");
    at_start
        .map(|folders| OsString::from_vec(folders.to_vec()))
        .iter()
        .chain(&now)
        .find_map(|folders| planted_by(folders))
}

/// An empty list has no components.
fn planted_by(folders: &OsStr) -> Option<PathBuf> {
    let parts = folders.as_bytes().split(|byte| b":;".contains(byte)).filter(|_| !folders.is_empty());
    let relative = parts.map(|part| Path::new(OsStr::from_bytes(part))).filter(|part| part.is_relative());
    relative.map(|part| Path::new(".").join(part)).find_map(|folder| {
        let entries = std::fs::read_dir(&folder).ok()?.flatten().map(|entry| entry.file_name());
        let mut taken: Vec<OsString> = entries.filter(|name| is_taken(name)).collect();
        taken.sort();
        taken.first().map(|name| folder.join(name))
    })
}

/// Whether the loader takes files of this name, or searches a folder of this name.
fn is_taken(name: &OsStr) -> bool {
    name.as_bytes().windows(3).any(|part| part == b".so") || SUBFOLDERS.iter().any(|folder| name == *folder)
}

/// `glibc-hwcaps`, and the folders that glibc before 2.37 searched.
const SUBFOLDERS: [&str; 9] =
    ["glibc-hwcaps", "tls", "x86_64", "haswell", "xeon_phi", "avx512_1", "aarch64", "atomics", "power9"];

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_the_loader_would_take_from_a_relative_folder_is_found() {
        // Tests run in their package's folder.
        let check = |folders: &str, expected: Option<&str>| {
            assert_eq!(planted_by(OsStr::new(folders)).as_deref(), expected.map(Path::new), "{folders:?}");
        };
        let within = tempfile::tempdir_in(".").expect("writable");
        let name = within.path().file_name().and_then(OsStr::to_str).expect("UTF-8");
        let found = |file: &str| format!("./{name}/{file}");
        check(name, None);
        std::fs::write(within.path().join("libneeded.so.3"), "").expect("writable");
        check(name, Some(&found("libneeded.so.3")));
        check(&format!("/opt/rocm/lib:{name}"), Some(&found("libneeded.so.3")));
        check(&format!("{name};/opt/rocm/lib"), Some(&found("libneeded.so.3")));
        std::fs::create_dir(within.path().join("glibc-hwcaps")).expect("writable");
        check(name, Some(&found("glibc-hwcaps")));
        for harmless in ["", ":", "/opt/rocm/lib", "$ORIGIN/../lib", "nowhere"] {
            check(harmless, None);
        }
    }

    /// Loads a vendor's library in a separate process, which begins with this `LD_LIBRARY_PATH` in
    /// a folder with planted libraries: the loader reads the variable once. The libraries leave a
    /// file when they are loaded.
    #[test]
    fn no_library_is_loaded_from_the_current_folder() {
        const CHILD: &str = "PROBE_SYNC_TEST_OF_LOADER";
        if std::env::var_os(CHILD).is_some() {
            let error = crate::TracerClock::open(crate::TracerClockName::Rocprofiler).expect_err("not installed");
            println!("said: {error}");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let code = "#include <stdio.h>\n__attribute__((constructor)) static void taken(void) { FILE *f = fopen(\"taken\", \"w\"); if (f) fclose(f); }\n\
                    int rocprofiler_get_timestamp(unsigned long *ns) { *ns = 1; return 0; }\n";
        std::fs::write(at("planted.c"), code).expect("writable");
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(at("planted")).arg(at("planted.c")).status();
        if !built.is_ok_and(|status| status.success()) {
            println!("skipped: no C compiler here");
            return;
        }
        for (place, folders) in [
            ("librocprofiler-sdk.so.1", ":/opt/rocm/lib"),
            ("glibc-hwcaps/x86-64-v2/librocprofiler-sdk.so.1", "/opt/rocm/lib:"),
            ("below/librocprofiler-sdk.so", "below"),
        ] {
            std::fs::create_dir_all(at(place).parent().expect("a folder")).expect("writable");
            std::fs::copy(at("planted"), at(place)).expect("writable");
            let mut child = Command::new(std::env::current_exe().expect("this program"));
            child.args(["--exact", "library_path::tests::no_library_is_loaded_from_the_current_folder", "--nocapture"]);
            child.current_dir(folder.path()).env(CHILD, "1").env("LD_LIBRARY_PATH", folders);
            let done = child.output().expect("it starts");
            let said = String::from_utf8_lossy(&done.stdout).into_owned();
            assert!(done.status.success() && said.contains("use only absolute paths"), "{place}: {said}");
            assert!(!at("taken").exists(), "{place}: its code ran");
            std::fs::remove_file(at(place)).expect("ours");
            let _ = std::fs::remove_dir_all(at("glibc-hwcaps"));
        }
    }
}

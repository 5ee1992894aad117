//! The properties of a file that follow from its path: its package, whether it is a crate root, and
//! whether it contains only tests.
//!
//! Paths are relative to the workspace root. It does not open files.

/// A file of tests only: it may hold long scenario tables and touch what it likes.
pub fn is_test_file(name: &str) -> bool {
    name.ends_with("/tests.rs") || name.contains("/tests/")
}

/// `lib.rs`, `main.rs` or a program under `src/bin`.
pub fn is_crate_root(name: &str) -> bool {
    let crate_root = ["/src/lib.rs", "/src/main.rs"].iter().any(|end| name.ends_with(end));
    crate_root || name.rsplit_once('/').is_some_and(|(directory, _)| directory.ends_with("/src/bin"))
}

/// The package's folder: `time` of `crates/time/src/lib.rs`, `mpi-tests` of
/// `mpi-tests/src/main.rs`, `bench/hosts` of `bench/hosts/src/main.rs`.
pub fn package(name: &str) -> &str {
    let name = name.strip_prefix("crates/").unwrap_or(name);
    let folders = if name.starts_with("bench/") { 2 } else { 1 };
    name.match_indices('/').nth(folders - 1).map_or(name, |(end, _)| &name[..end])
}

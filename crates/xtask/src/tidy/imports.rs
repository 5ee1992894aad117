//! The allowed imports between crates, checked against `cargo metadata`.
//!
//! Data flows one way through the program, so a crate may depend only on crates of earlier stages;
//! the table below is that order, and a new crate needs a line in it. In addition, pure crates may
//! use only external crates without side effects. Dev-dependencies are exempt, because tests may
//! drive a crate from a later stage.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Returns complaints about all manifests of the workspace.
///
/// # Errors
/// `cargo metadata` fails.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(root);
    let output = cargo.output().context("starting cargo")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    Ok(packages.iter().flat_map(complaints_about).collect())
}

fn complaints_about(package: &Value) -> Vec<String> {
    let name = short(package["name"].as_str().unwrap_or_default());
    let Some((_, allowed)) = MAY_IMPORT.iter().find(|(known, _)| *known == name) else {
        return vec![format!("{name} has no place in the order of crates (xtask's tidy/imports.rs)")];
    };
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let of_program = dependencies.filter(|dependency| dependency["kind"] != "dev");
    let complaint = |dependency: &Value| {
        let full = dependency["name"].as_str().unwrap_or_default();
        let imported = short(full);
        if dependency["path"].is_string() {
            let is_allowed = *allowed == ALL || allowed.split(' ').any(|allowed| allowed == imported);
            (!is_allowed).then(|| format!("{name} imports {full}, which is a later stage"))
        } else {
            let is_harmless = !PURE.contains(&name) || HARMLESS.split(' ').any(|known| known == full);
            (!is_harmless).then(|| format!("{name} is pure and imports {full}"))
        }
    };
    of_program.filter_map(complaint).collect()
}

/// The name that the table has.
fn short(package: &str) -> &str {
    package.strip_prefix(PREFIX).unwrap_or(package)
}

const PREFIX: &str = "probe-sync-";

/// Every package of ours and what it may import of ours, without [`PREFIX`].
const MAY_IMPORT: [(&str, &str); 30] = [
    ("time", ""),
    ("files", ""),
    ("probe", "time"),
    ("lines", "time"),
    ("estimate", "time lines"),
    ("sim", "time lines probe estimate"),
    ("sys", "time"),
    ("global-clock", "time"),
    ("record", "time files sys estimate rocpd formats writers alignment"),
    ("collective", "time files sys"),
    ("mpi", "time collective"),
    ("probe-sync", "time files probe lines estimate lateness global-clock sys record collective mpi"),
    ("rocpd", "time files"),
    ("otf2", ""),
    ("hang", ""),
    ("lateness", ""),
    ("formats", "time files lines rocpd hang"),
    ("writers", "files estimate formats otf2"),
    ("alignment", "time files lines estimate formats writers otf2"),
    ("analysis", "files lines estimate sys formats alignment lateness rocpd"),
    ("page", "time files lines estimate formats probe-sync alignment analysis hang"),
    ("cli", ALL),
    ("capi", ALL),
    ("python", ALL),
    ("fuzz", ALL),
    ("mpi-tests", "time sys collective mpi probe-sync"),
    ("mpi-launcher", "probe-sync"),
    ("testbed", ""),
    ("codegen", ""),
    ("xtask", ""),
];

/// A front end imports whatever it needs.
const ALL: &str = "*";

/// Crates that get time and bytes as arguments and touch nothing.
pub const PURE: [&str; 7] = ["time", "lines", "global-clock", "probe", "estimate", "sim", "lateness"];

/// External crates that read no clock and do no input or output in the features that we use.
const HARMLESS: &str = "serde schemars thiserror toml nalgebra nalgebra-sparse rand rand_chacha smallvec blake3";

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    fn check(package: &str, dependencies: &[Value], expected: &[&str]) {
        let complaints = super::complaints_about(&json!({ "name": package, "dependencies": dependencies }));
        assert_eq!(complaints.len(), expected.len(), "{complaints:?}");
        for (complaint, part) in complaints.iter().zip(expected) {
            assert!(complaint.contains(part), "{complaint} lacks {part}");
        }
    }

    #[test]
    fn imports_run_one_way() {
        let path = |name: &str| name.starts_with("probe-sync").then_some("/a");
        let needs = |name: &str| json!({ "name": name, "kind": null, "path": path(name) });
        let tests_need = |name: &str| json!({ "name": name, "kind": "dev" });
        check("probe-sync-probe", &[needs("probe-sync-time"), needs("serde")], &[]);
        check("probe-sync-probe", &[needs("probe-sync-estimate")], &["imports probe-sync-estimate"]);
        check("probe-sync-probe", &[needs("tokio"), needs("libc")], &["is pure and imports tokio", "imports libc"]);
        check("probe-sync-probe", &[needs("mpi")], &["is pure and imports mpi"]);
        check("probe-sync-probe", &[tests_need("probe-sync-sim"), tests_need("proptest")], &[]);
        check("probe-sync-cli", &[needs("probe-sync")], &[]);
        check(
            "probe-sync-sys",
            &[needs("tokio"), needs("probe-sync")],
            &["imports probe-sync, which is a later stage"],
        );
        check("xtask", &[json!({ "name": "probe-sync-time", "kind": "build", "path": "/a" })], &["later stage"]);
        check("unknown", &[], &["no place"]);
    }
}

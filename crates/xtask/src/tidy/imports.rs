//! The allowed imports between crates, checked against the manifests.
//!
//! Data flows one way through the program, so a crate may depend only on crates of earlier stages;
//! the table below is that order, and a new crate needs a line in it. In addition, pure crates may
//! use only external crates without side effects. Dev-dependencies are exempt, because tests may
//! drive a crate from a later stage.

use std::path::Path;

use anyhow::{Context, Result};
use toml::{Table, Value};

/// Complaints about all manifests of the workspace.
///
/// # Errors
/// A manifest cannot be read or parsed.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for manifest in manifests(root)? {
        let name = format!("{manifest}/Cargo.toml");
        let text = std::fs::read_to_string(root.join(&name)).with_context(|| format!("reading {name}"))?;
        complaints.extend(complaints_about(&name, &text)?);
    }
    Ok(complaints)
}

/// The folders of all packages: the members of the root manifest, `crates/*` spelled out.
fn manifests(root: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join("Cargo.toml")).context("reading Cargo.toml")?;
    let table: Table = text.parse().context("parsing Cargo.toml")?;
    let members = table["workspace"]["members"].as_array().context("Cargo.toml: workspace.members is not a list")?;
    let mut found = Vec::new();
    for member in members.iter().filter_map(Value::as_str) {
        let Some(parent) = member.strip_suffix("/*") else {
            found.push(member.to_owned());
            continue;
        };
        let entries = std::fs::read_dir(root.join(parent)).with_context(|| format!("reading {parent}"))?;
        for entry in entries {
            let entry = entry?;
            if entry.path().join("Cargo.toml").is_file() {
                found.push(format!("{parent}/{}", entry.file_name().to_string_lossy()));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn complaints_about(name: &str, text: &str) -> Result<Vec<String>> {
    let table: Table = text.parse().with_context(|| format!("parsing {name}"))?;
    let package = table["package"]["name"].as_str().with_context(|| format!("{name}: no package.name"))?;
    let Some((_, allowed)) = MAY_IMPORT.iter().find(|(known, _)| *known == package) else {
        return Ok(vec![format!("{name}: {package} has no place in the order of crates (xtask's tidy/imports.rs)")]);
    };
    let mut complaints = Vec::new();
    for dependency in dependencies(&table) {
        let ours = MAY_IMPORT.iter().any(|(known, _)| *known == dependency);
        if ours && !allowed.contains(&dependency.as_str()) && *allowed != ALL {
            complaints.push(format!("{name}: {package} imports {dependency}, which is a later stage"));
        }
        if !ours && PURE.contains(&package) && !HARMLESS.contains(&dependency.as_str()) {
            complaints.push(format!("{name}: {package} is pure and imports {dependency}"));
        }
    }
    Ok(complaints)
}

/// Names under [dependencies] and [build-dependencies], with those of all targets.
fn dependencies(manifest: &Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    let tables = targets.filter_map(|(_, target)| target.as_table()).chain([manifest]);
    let kinds = tables.flat_map(|table| [table.get("dependencies"), table.get("build-dependencies")]);
    let names = kinds.flatten().filter_map(Value::as_table).flat_map(Table::keys);
    names.cloned().collect()
}

/// Every package of ours and what it may import of ours.
const MAY_IMPORT: [(&str, &[&str]); 30] = [
    ("probe-sync-time", &[]),
    ("probe-sync-files", &[]),
    ("probe-sync-probe", &["probe-sync-time"]),
    ("probe-sync-lines", &["probe-sync-time"]),
    ("probe-sync-estimate", &["probe-sync-time", "probe-sync-lines"]),
    ("probe-sync-sim", &["probe-sync-time", "probe-sync-lines", "probe-sync-probe", "probe-sync-estimate"]),
    ("probe-sync-sys", &["probe-sync-time"]),
    ("probe-sync-global-clock", &["probe-sync-time"]),
    (
        "probe-sync-record",
        &[
            "probe-sync-time",
            "probe-sync-files",
            "probe-sync-sys",
            "probe-sync-estimate",
            "probe-sync-rocpd",
            "probe-sync-formats",
            "probe-sync-writers",
            "probe-sync-alignment",
        ],
    ),
    ("probe-sync-collective", &["probe-sync-time", "probe-sync-files", "probe-sync-sys"]),
    ("probe-sync-mpi", &["probe-sync-time", "probe-sync-collective"]),
    (
        "probe-sync",
        &[
            "probe-sync-time",
            "probe-sync-files",
            "probe-sync-probe",
            "probe-sync-lines",
            "probe-sync-estimate",
            "probe-sync-lateness",
            "probe-sync-global-clock",
            "probe-sync-sys",
            "probe-sync-record",
            "probe-sync-collective",
            "probe-sync-mpi",
        ],
    ),
    ("probe-sync-rocpd", &["probe-sync-time", "probe-sync-files"]),
    ("probe-sync-otf2", &[]),
    ("probe-sync-hang", &[]),
    ("probe-sync-lateness", &[]),
    ("probe-sync-formats", &["probe-sync-time", "probe-sync-files", "probe-sync-lines", "probe-sync-rocpd"]),
    ("probe-sync-writers", &["probe-sync-files", "probe-sync-estimate", "probe-sync-formats", "probe-sync-otf2"]),
    (
        "probe-sync-alignment",
        &[
            "probe-sync-time",
            "probe-sync-files",
            "probe-sync-lines",
            "probe-sync-estimate",
            "probe-sync-formats",
            "probe-sync-writers",
            "probe-sync-otf2",
        ],
    ),
    (
        "probe-sync-analysis",
        &[
            "probe-sync-files",
            "probe-sync-lines",
            "probe-sync-estimate",
            "probe-sync-sys",
            "probe-sync-formats",
            "probe-sync-alignment",
            "probe-sync-lateness",
            "probe-sync-rocpd",
        ],
    ),
    (
        "probe-sync-page",
        &[
            "probe-sync-time",
            "probe-sync-files",
            "probe-sync-lines",
            "probe-sync-estimate",
            "probe-sync-formats",
            "probe-sync",
            "probe-sync-alignment",
            "probe-sync-analysis",
        ],
    ),
    ("probe-sync-cli", ALL),
    ("probe-sync-capi", ALL),
    ("probe-sync-python", ALL),
    ("probe-sync-fuzz", ALL),
    (
        "probe-sync-mpi-tests",
        &["probe-sync-time", "probe-sync-sys", "probe-sync-collective", "probe-sync-mpi", "probe-sync"],
    ),
    ("probe-sync-mpi-launcher", &["probe-sync"]),
    ("probe-sync-testbed", &[]),
    ("codegen", &[]),
    ("xtask", &[]),
];

/// A front end imports whatever it needs.
const ALL: &[&str] = &["*"];

const PURE: [&str; 7] = [
    "probe-sync-time",
    "probe-sync-lines",
    "probe-sync-global-clock",
    "probe-sync-probe",
    "probe-sync-estimate",
    "probe-sync-sim",
    "probe-sync-lateness",
];

/// External crates that read no clock and do no input or output in the features that we use.
const HARMLESS: [&str; 10] = [
    "serde",
    "schemars",
    "thiserror",
    "toml",
    "nalgebra",
    "nalgebra-sparse",
    "rand",
    "rand_chacha",
    "smallvec",
    "blake3",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(manifest: &str, expected: &[&str]) {
        let complaints = complaints_about("a/Cargo.toml", manifest).expect("valid TOML");
        assert_eq!(complaints.len(), expected.len(), "{complaints:?}");
        for (complaint, part) in complaints.iter().zip(expected) {
            assert!(complaint.contains(part), "{complaint} lacks {part}");
        }
    }

    #[test]
    fn imports_run_one_way() {
        let probe = "[package]\nname = \"probe-sync-probe\"\n[dependencies]\n";
        check(&format!("{probe}probe-sync-time = \"1\"\nserde = \"1\"\n"), &[]);
        check(&format!("{probe}probe-sync-estimate = \"1\"\n"), &["imports probe-sync-estimate"]);
        check(&format!("{probe}tokio = \"1\"\n"), &["is pure and imports tokio"]);
        check(&format!("{probe}[dev-dependencies]\nprobe-sync-sim = \"1\"\nproptest = \"1\"\n"), &[]);
        check(&format!("{probe}[target.'cfg(unix)'.dependencies]\nlibc = \"1\"\n"), &["imports libc"]);
        check("[package]\nname = \"probe-sync-cli\"\n[dependencies]\nprobe-sync = \"1\"\n", &[]);
        check(
            "[package]\nname = \"probe-sync-sys\"\n[dependencies]\ntokio = \"1\"\nprobe-sync = \"1\"\n",
            &["later stage"],
        );
        check("[package]\nname = \"unknown\"\n", &["no place"]);
    }
}

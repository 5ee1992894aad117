//! The layout of modules and tests, which is the same for all crates.
//!
//! A module with children is `foo/mod.rs`. Small tests are at the end of their file, larger ones in
//! `tests.rs` in the directory of their module, and external ones in `tests/it/main.rs`. It checks
//! only where a test's file is, not where the test belongs.

use std::collections::BTreeMap;

use super::source::Source;

/// Complaints about all Rust files; `sources` holds their texts by name.
pub fn check(sources: &BTreeMap<String, String>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, text) in sources {
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
        let stem = file.trim_end_matches(".rs");
        if has_folder(name, sources) {
            complaints.push(format!("{name}:1: a module with children is {stem}/mod.rs, not {stem}.rs beside {stem}/"));
        }
        if stem.ends_with("_tests") || stem.starts_with("tests_") {
            complaints.push(format!("{name}:1: larger tests stand in tests.rs in the folder of their module"));
        }
        if name.starts_with("crates/") && folder.ends_with("/tests") && !folder.contains("/src/") {
            complaints.push(format!("{name}:1: one program of integration tests per crate: tests/it/main.rs"));
        }
        let source = Source::new(text);
        let paths = source.code().lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("#[path"));
        complaints.extend(
            paths.map(|(index, _)| format!("{name}:{}: #[path]: a module's file is where its name says", index + 1)),
        );
    }
    complaints
}

/// Whether the folder of the file's child modules exists, which then should hold the file itself.
fn has_folder(name: &str, sources: &BTreeMap<String, String>) -> bool {
    let of_children = format!("{}/", name.trim_end_matches(".rs"));
    sources.range(of_children.clone()..).next().is_some_and(|(next, _)| next.starts_with(&of_children))
}

#[cfg(test)]
mod tests {
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let sources = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let complaints = super::check(&sources);
        assert_eq!(complaints.len(), expected.len(), "{complaints:?}");
        for (complaint, part) in complaints.iter().zip(expected) {
            assert!(complaint.contains(part), "{complaint} lacks {part}");
        }
    }

    #[test]
    fn a_module_with_children_is_a_folder() {
        check(
            &[("crates/a/src/b.rs", ""), ("crates/a/src/b/c.rs", "")],
            &["b.rs:1: a module with children is b/mod.rs"],
        );
        check(&[("crates/a/src/b/mod.rs", ""), ("crates/a/src/b/c.rs", ""), ("crates/a/src/b_c.rs", "")], &[]);
        check(&[("crates/a/src/b.rs", ""), ("crates/a/src/b/tests.rs", "")], &["b/mod.rs"]);
    }

    #[test]
    fn tests_have_their_places() {
        check(
            &[("crates/a/src/b/tests.rs", ""), ("crates/a/src/tests/b.rs", ""), ("crates/a/tests/it/main.rs", "")],
            &[],
        );
        check(&[("crates/a/src/b_tests.rs", "")], &["b_tests.rs:1: larger tests stand in tests.rs"]);
        check(&[("crates/a/tests/b.rs", "")], &["tests/it/main.rs"]);
        check(&[("crates/a/src/b.rs", "\n#[path = \"c.rs\"]\nmod c;\n")], &["b.rs:2: #[path]"]);
        check(&[("crates/a/src/b.rs", "// #[path = \"c.rs\"]\n")], &[]);
    }
}

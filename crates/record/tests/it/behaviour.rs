//! `docs/recorder_behaviour.md` names a test per behaviour: each of them is there, and each test
//! here is named.

use std::collections::BTreeSet;
use std::path::Path;

/// Tests of a file, by its path below the crate.
fn tests_of(file: &str) -> BTreeSet<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (mut found, mut is_test) = (BTreeSet::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("fn ").filter(|_| is_test) {
            found.insert((file.to_owned(), rest.split('(').next().unwrap_or_default().to_owned()));
        }
        is_test = line == "#[test]" || (is_test && line.starts_with("#["));
    }
    found
}

fn named() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recorder_behaviour.md");
    // Not as it was when this was built: the files of tests are read now, too.
    let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    rows.map(|row| {
        let texts: Vec<&str> = row.rsplit('`').collect();
        let [_, test, _, file, ..] = texts[..] else { panic!("no file and test: {row}") };
        (file.to_owned(), test.to_owned())
    })
    .collect()
}

#[test]
fn every_behaviour_has_a_test_that_is_there() {
    let named = named();
    assert!(named.len() > 100, "{}", named.len());
    for (file, test) in &named {
        assert!(tests_of(file).contains(&(file.clone(), test.clone())), "{file} has no test {test}");
    }
    assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len(), "each stands there once");
}

#[test]
fn every_test_of_these_folders_is_named() {
    let named: BTreeSet<_> = named().into_iter().collect();
    for folder in ["tests/it", "tests/sessions"] {
        let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("there");
        let files = entries.map(|entry| entry.expect("there").file_name().into_string().expect("plain"));
        for file in files.filter(|file| !["behaviour.rs", "child.rs"].contains(&file.as_str())) {
            let missing: Vec<_> =
                tests_of(&format!("{folder}/{file}")).into_iter().filter(|test| !named.contains(test)).collect();
            assert!(missing.is_empty(), "docs/recorder_behaviour.md lacks {missing:?}");
        }
    }
}

//! The limits on the length of functions and files.

use std::collections::BTreeMap;

use super::places::is_test_file;
use super::source::Source;

/// Returns a complaint for each file above the limit; `sources` holds their texts by name.
pub fn check(sources: &BTreeMap<String, String>) -> Vec<String> {
    let judged = sources.iter().filter(|(name, text)| !is_test_file(name) && !is_generated(text));
    let lines = judged.map(|(name, text)| (name, Source::new(text).lines_without_tests()));
    lines
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(name, lines)| format!("{name}:1: {lines} lines of code without tests, more than {LINES_MAX}"))
        .collect()
}

fn is_generated(text: &str) -> bool {
    text.lines().take(HEADER_LINES).any(|line| line.contains("@generated"))
}

const LINES_MAX: usize = 450;

/// How far down a generator's mark may stand.
const HEADER_LINES: usize = 10;

#[cfg(test)]
mod tests {
    fn check(text: &str, expected: &[&str]) {
        let found = super::check(&[("crates/cli/src/a.rs".to_owned(), text.to_owned())].into());
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (complaint, part) in found.iter().zip(expected) {
            assert!(complaint.contains(part), "{complaint} lacks {part}");
        }
    }

    #[test]
    fn files_have_limits() {
        let lines = "const A: u8 = 1;\n".repeat(450);
        check(&lines, &[]);
        check(&format!("//! A.\n{lines}"), &[]);
        check(&format!("{lines}\nfn a() {{}}\n"), &["451 lines of code"]);
        check(&format!("//! A, @generated.\n{lines}"), &[]);
        check(&format!("//! A.\n#[cfg(test)]\nmod tests {{\n{lines}}}\n"), &[]);
    }
}

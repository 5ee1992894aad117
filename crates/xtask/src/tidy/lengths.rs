//! How long functions and files are.
//!
//! Place in the flow: a rule of `cargo xtask tidy`, over all Rust code that is neither generated nor a test.
//! Formula: of n functions in order of length, the 99th percentile is the one at place ⌈0.99·n⌉ (nearest rank).
//! What it does not do: count statements. A table of forty lines is as long as forty lines of code.

use std::collections::BTreeMap;

use super::places::is_test_file;
use super::source::Source;

/// What the rule found.
pub struct Lengths {
    /// Files and functions above their limits, and the percentile when it is.
    pub complaints: Vec<String>,
    /// How many functions there are.
    pub functions: usize,
    /// Lines of all but the longest one in a hundred, at most.
    pub percentile: usize,
}

/// Measures all files; `sources` holds their texts by name.
pub fn check(sources: &BTreeMap<String, String>) -> Lengths {
    let mut complaints = Vec::new();
    let mut lengths = Vec::new();
    for (name, text) in sources.iter().filter(|(name, text)| !is_test_file(name) && !is_generated(text)) {
        let source = Source::new(text);
        let lines = source.lines_without_tests();
        if lines > MAX_FILE_LINES {
            complaints.push(format!("{name}:1: {lines} lines without tests, more than {MAX_FILE_LINES}"));
        }
        for function in source.functions() {
            let (line, called, lines) = (function.line, &function.name, function.lines);
            if lines > MAX_FUNCTION_LINES {
                complaints
                    .push(format!("{name}:{line}: fn {called} has {lines} lines, more than {MAX_FUNCTION_LINES}"));
            }
            lengths.push((lines, format!("{name}:{line}: fn {called} has {lines} lines")));
        }
    }
    lengths.sort();
    let place = (lengths.len() * PERCENT).div_ceil(100).saturating_sub(1);
    let percentile = lengths.get(place).map_or(0, |(lines, _)| *lines);
    if percentile > MAX_PERCENTILE_LINES {
        let above = lengths[place..].iter().filter(|(lines, _)| *lines > MAX_PERCENTILE_LINES);
        let why = format!("one function in a hundred may have more than {MAX_PERCENTILE_LINES}");
        complaints.extend(above.map(|(_, function)| format!("{function}; {why}")));
    }
    Lengths { complaints, functions: lengths.len(), percentile }
}

fn is_generated(text: &str) -> bool {
    text.lines().take(HEADER_LINES).any(|line| line.contains("@generated"))
}

const MAX_FILE_LINES: usize = 500;

const MAX_FUNCTION_LINES: usize = 70;

/// All but one function in a hundred stay within this, so that 70 remains the exception.
const MAX_PERCENTILE_LINES: usize = 45;

const PERCENT: usize = 99;

/// How far down a generator's mark may stand.
const HEADER_LINES: usize = 10;

#[cfg(test)]
mod tests {
    fn check(name: &str, text: &str, percentile: usize, expected: &[&str]) {
        let found = super::check(&[(name.to_owned(), text.to_owned())].into());
        assert_eq!(found.percentile, percentile);
        assert_eq!(found.complaints.len(), expected.len(), "{:?}", found.complaints);
        for (complaint, part) in found.complaints.iter().zip(expected) {
            assert!(complaint.contains(part), "{complaint} lacks {part}");
        }
    }

    fn function(lines: usize) -> String {
        format!("fn a() {{\n{}}}\n", "    work();\n".repeat(lines - 2))
    }

    #[test]
    fn functions_have_limits() {
        let many = function(45).repeat(9);
        check("crates/cli/src/a.rs", &function(45), 45, &[]);
        check("crates/cli/src/a.rs", &function(46), 46, &[":1: fn a has 46 lines; one function in a hundred"]);
        check(
            "crates/cli/src/a.rs",
            &(many + &function(71)),
            71,
            &["fn a has 71 lines, more than 70", "fn a has 71 lines; one"],
        );
        // One of a hundred may be longer than the percentile's limit, but not than the other.
        let hundred = |last: usize| function(4).repeat(99) + &function(last);
        check("crates/cli/src/a.rs", &hundred(70), 4, &[]);
        check("crates/cli/src/a.rs", &hundred(71), 4, &[":397: fn a has 71 lines, more than 70"]);
        check("crates/cli/tests/it/a.rs", &function(90), 0, &[]);
    }

    #[test]
    fn files_have_limits() {
        let lines = "const A: u8 = 1;\n".repeat(500);
        check("crates/cli/src/a.rs", &lines, 0, &[]);
        check("crates/cli/src/a.rs", &format!("//! A.\n{lines}"), 0, &["501 lines without tests"]);
        check("crates/cli/src/a.rs", &format!("//! A, @generated.\n{lines}"), 0, &[]);
        check("crates/cli/src/a.rs", &format!("//! A.\n#[cfg(test)]\nmod tests {{\n{lines}}}\n"), 0, &[]);
    }
}

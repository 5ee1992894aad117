//! Formats counts with their nouns for human-readable output.
//!
//! The report page and the command line use it too. It supports English only.

use std::fmt::Display;

/// `1 event`, `2 events`: for nouns with a plural in s.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    format!("{count} {noun}{}", if count == N::from(1) { "" } else { "s" })
}

/// `a, b and 3 more`: some of `of`.
pub fn joined(some: impl Iterator<Item = String>, of: usize) -> String {
    let some: Vec<String> = some.collect();
    let more = of - some.len();
    let listed = some.join(", ");
    if more == 0 { listed } else { format!("{listed} and {more} more") }
}

/// Whether a spreadsheet would run a cell of this text. Numbers begin the same way and are not
/// formulas.
pub fn is_formula(text: &[u8]) -> bool {
    let begins = text.first().is_some_and(|first| b"=+-@\t\r".contains(first));
    begins && std::str::from_utf8(text).map_or(true, |text| text.parse::<f64>().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let said = [counted(0_u64, "event"), counted(1_u32, "event"), counted(2_usize, "event")];
        assert_eq!(said, ["0 events", "1 event", "2 events"]);
    }

    #[test]
    fn what_is_not_named_is_counted() {
        let said = |of: usize| joined(["a", "b"].map(str::to_owned).into_iter(), of);
        assert_eq!([said(2), said(5)], ["a, b", "a, b and 3 more"]);
    }
}

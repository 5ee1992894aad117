//! Formats counts with their nouns for human-readable output, and names of flags in messages.
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

/// Replaces the command line's flags in a message, as in `--assume-order`, by what `name` gives for
/// `assume-order`.
pub fn with_flags(text: &str, name: impl Fn(&str) -> String) -> String {
    let mut parts = text.split("--");
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let length = part.find(|c: char| !(c.is_ascii_lowercase() || c == '-')).unwrap_or(part.len());
        let (flag, rest) = part.split_at(length);
        let is_flag = flag.starts_with(|c: char| c.is_ascii_lowercase()) && !replaced.ends_with(char::is_alphanumeric);
        if is_flag {
            replaced.push_str(&name(flag));
        } else {
            replaced.extend(["--", flag]);
        }
        replaced.push_str(rest);
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_replaced_and_other_dashes_stay() {
        let text = "give --nodes, or --assume-order -- not a--b; --from-collectives and --from";
        let replaced = "give nodes, or assume_order -- not a--b; from_collectives and from";
        assert_eq!(with_flags(text, |flag| flag.replace('-', "_")), replaced);
    }

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

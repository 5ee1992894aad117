//! Numbers with the things that they count, for people.
//!
//! Place in the flow: under everything that prints, here, on the report page and in the command line. What it does not do: know other languages.

use std::fmt::Display;

/// `1 event`, `2 events`, `0 processes`: the noun in the singular becomes a regular plural.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let sibilant = ["s", "x", "ch", "sh"].iter().any(|ending| noun.ends_with(ending));
    let plural = if sibilant { "es" } else { "s" };
    format!("{count} {noun}{}", if count == N::from(1) { "" } else { plural })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let said =
            [counted(0_u64, "event"), counted(1_u32, "event"), counted(2_usize, "event"), counted(3_i64, "process")];
        assert_eq!(said, ["0 events", "1 event", "2 events", "3 processes"]);
    }
}

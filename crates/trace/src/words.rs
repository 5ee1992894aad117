//! Numbers with the things that they count, for people.
//!
//! Place in the flow: under everything that prints, here, on the report page and in the command line. What it does not do: know other languages.

use std::fmt::Display;

/// `1 event`, `2 events`: of a noun that takes an s.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    format!("{count} {noun}{}", if count == N::from(1) { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let said = [counted(0_u64, "event"), counted(1_u32, "event"), counted(2_usize, "event")];
        assert_eq!(said, ["0 events", "1 event", "2 events"]);
    }
}

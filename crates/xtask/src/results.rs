//! Tables in `bench/LOG.md` that a command writes between their markers.
//!
//! A table stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`; the rest of the page is
//! written by hand.

use std::path::Path;

use anyhow::{Context, Result};

/// Puts each table between the marks of its name.
///
/// # Errors
/// When marks are missing; then nothing is written.
pub fn write(root: &Path, tables: &[(&str, String)]) -> Result<()> {
    let page = root.join(PAGE);
    let mut text = std::fs::read_to_string(&page).with_context(|| format!("reading {PAGE}"))?;
    for (name, table) in tables {
        text =
            between_marks(&text, name, table).with_context(|| format!("{PAGE} lacks the marks of the table {name}"))?;
    }
    std::fs::write(&page, text).with_context(|| format!("writing {PAGE}"))?;
    println!("\ntables written to {PAGE}");
    Ok(())
}

/// `text` with `tables` between the marks of that name; `None` if a mark is missing.
fn between_marks(text: &str, name: &str, tables: &str) -> Option<String> {
    let [begin, end] = ["begin", "end"].map(|side| format!("<!-- {name}: {side} -->"));
    let from = text.find(&begin)? + begin.len();
    let to = from + text[from..].find(&end)?;
    Some(format!("{}\n\n{}\n\n{}", &text[..from], tables.trim(), &text[to..]))
}

/// Relative to the root.
const PAGE: &str = "bench/LOG.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_replace_what_is_between_the_marks() {
        let marks = |inner: &str| format!("before\n<!-- some: begin -->{inner}<!-- some: end -->\nafter\n");
        let once = between_marks(&marks("\nold\n"), "some", "new\n").expect("both marks");
        assert_eq!(once, marks("\n\nnew\n\n"));
        assert_eq!(between_marks(&once, "some", "new").as_ref(), Some(&once), "twice is as once");
        assert_eq!(between_marks(&once, "other", "new"), None);
        assert_eq!(between_marks("<!-- some: begin -->", "some", "new"), None);
    }
}

//! Text adapted to a terminal.

use std::borrow::Cow;

use console::Term;
use probe_sync_lines::is_invisible;

/// A text as safe for a terminal: names cannot control it, and long lines are wrapped.
pub(crate) fn shown(text: &str, terminal: &Term) -> String {
    fitted(&plain(text), terminal).into_owned()
}

/// A text without invisible characters except line ends and tabs: names are untrusted.
fn plain(text: &str) -> Cow<'_, str> {
    let is_control = |letter: char| is_invisible(letter) && !matches!(letter, '\n' | '\t');
    match text.contains(is_control) {
        true => Cow::Owned(text.replace(is_control, "?")),
        false => Cow::Borrowed(text),
    }
}

/// Wraps lines that are too long, continued two columns further in. Words are never broken, so that
/// paths can be copied; if the output is not a terminal, the text is unchanged.
fn fitted<'a>(text: &'a str, terminal: &Term) -> Cow<'a, str> {
    match terminal.size_checked() {
        Some((_, columns)) if !crate::table::is_wide() => broken(text, usize::from(columns)),
        _ => Cow::Borrowed(text),
    }
}

/// Wraps the lines of a text that exceed this many columns, at spaces.
pub(crate) fn broken(text: &str, columns: usize) -> Cow<'_, str> {
    // Tables are made for 80 columns; on a narrower terminal nothing helps.
    let columns = columns.max(80);
    let is_long = |line: &str| textwrap::core::display_width(line.trim_end()) > columns;
    if !text.lines().any(is_long) {
        return Cow::Borrowed(text);
    }
    let mut all = String::new();
    for line in text.split_inclusive('\n') {
        let words = line.trim_start_matches(' ');
        if !is_long(line) {
            all.push_str(line);
            continue;
        }
        let own = &line[..line.len() - words.len()];
        let further = format!("{own}  ");
        let options = textwrap::Options::new(columns)
            .initial_indent(own)
            .subsequent_indent(&further)
            .break_words(false)
            .word_separator(textwrap::WordSeparator::AsciiSpace)
            .word_splitter(textwrap::WordSplitter::NoHyphenation);
        all.push_str(&textwrap::fill(words.trim_end(), options));
        all.push_str(if line.ends_with('\n') { "\n" } else { "" });
    }
    Cow::Owned(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_nothing_to_a_terminal() {
        assert_eq!(plain("gpu\u{1b}[2J\u{7}\r\u{9b}1m\tis\nfine"), "gpu?[2J???1m\tis\nfine");
        assert!(matches!(plain("fine\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn long_lines_are_broken_at_spaces_and_short_ones_stay() {
        let long = "word ".repeat(20);
        let text = format!("short  line\n  {long}\n{}\n", "/path".repeat(30));
        let all = broken(&text, 80);
        let lines: Vec<&str> = all.lines().collect();
        assert_eq!((lines[0], lines.len()), ("short  line", 4), "{all}");
        assert!(lines[1].starts_with("  word word") && lines[1].len() <= 80, "{all}");
        assert!(lines[2].starts_with("    word"), "{all}");
        assert_eq!(lines[3].len(), 150, "a path is one word: {all}");
        assert!(all.ends_with('\n'));
        assert!(matches!(broken("a\n", 80), Cow::Borrowed(_)));
    }
}

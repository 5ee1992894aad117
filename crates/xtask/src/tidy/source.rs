//! Rust text split as far as the tidy rules need it: code without comments and literals, tests, and
//! functions.
//!
//! Comments and the contents of string and character literals are replaced by blanks of the same
//! shape, so that line numbers stay valid and braces can be counted. It does not understand macros
//! or types; `{` and `}` outside literals always pair up in Rust, which is enough.

use std::ops::Range;

/// One Rust file.
pub struct Source {
    code: String,
    /// Byte ranges of items under `#[cfg(test)]`.
    tests: Vec<Range<usize>>,
}

impl Source {
    /// Takes `text` apart.
    pub fn new(text: &str) -> Self {
        let code = blank(text);
        let mut tests = Vec::new();
        let mut from = 0;
        while let Some(at) = code[from..].find("#[cfg(test)]").map(|at| from + at) {
            // `mod tests;` has its body in another file and ends at the semicolon.
            let end = body(&code, at).or_else(|| code[at..].find(';').map(|end| at..at + end + 1));
            let end = end.map_or(code.len(), |item| item.end);
            tests.push(at..end);
            from = end;
        }
        Self { code, tests }
    }

    /// Returns how many lines hold code outside tests.
    pub fn lines_without_tests(&self) -> usize {
        self.code_lines().filter(|(_, line)| !line.trim().is_empty()).count()
    }

    /// The lines outside tests with their numbers from 1, comments and literals blanked.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut start = 0;
        self.code.split('\n').enumerate().filter_map(move |(index, line)| {
            let at = start;
            start += line.len() + 1;
            let in_tests = self.tests.iter().any(|range| range.contains(&at));
            (!in_tests).then_some((index + 1, line))
        })
    }

    /// The code, tests included, comments and literals blanked.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The code with everything under `#[cfg(test)]` blanked too; lines keep their numbers.
    pub fn code_without_tests(&self) -> String {
        let mut code = self.code.clone().into_bytes();
        for range in &self.tests {
            code[range.clone()].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        }
        // Blanks replace whole items, so no letter is cut in two.
        String::from_utf8_lossy(&code).into_owned()
    }
}

/// The braces that open after `from`, up to the closing one; `None` when a `;` outside brackets
/// comes first.
fn body(code: &str, from: usize) -> Option<Range<usize>> {
    let bytes = code.as_bytes();
    let mut round = 0_i32;
    let open = (from..bytes.len()).find(|&at| {
        round += i32::from(matches!(bytes[at], b'(' | b'[')) - i32::from(matches!(bytes[at], b')' | b']'));
        round == 0 && matches!(bytes[at], b'{' | b';')
    })?;
    if bytes[open] == b';' {
        return None;
    }
    let mut depth = 0_i32;
    let close = (open..bytes.len()).find(|&at| {
        depth += i32::from(bytes[at] == b'{') - i32::from(bytes[at] == b'}');
        depth == 0
    })?;
    Some(open..close + 1)
}

/// Replaces comments and the insides of literals by blanks, keeping every line break and the length
/// in bytes.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    while code.len() < bytes.len() {
        let at = code.len();
        let end = literal_end(bytes, at);
        if end == at {
            code.push(bytes[at]);
        } else {
            code.extend(bytes[at..end].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
        }
    }
    // Outside comments and literals Rust may hold letters of other scripts; they are copied as they
    // are.
    String::from_utf8(code).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Where the comment or literal that starts at `at` ends; `at` when none starts there.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return at + block_comment(rest);
    }
    match rest[0] {
        b'"' => at + quoted(rest, b'"'),
        b'\'' if is_character(rest) => at + quoted(rest, b'\''),
        b'r' if at == 0 || !is_word(bytes[at - 1]) || matches!(bytes[at - 1], b'b' | b'c') => at + raw_string(rest),
        _ => at,
    }
}

/// Block comments nest in Rust.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// A literal that ends at the next `quote` that no backslash precedes.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// `r"…"`, `r#"…"#` and so on; 0 when it is not one (a raw identifier, a word that begins with r).
fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let content = 2 + hashes;
    let length = rest[content..].windows(end.len()).position(|window| window == end.as_slice());
    length.map_or(rest.len(), |length| content + length + end.len())
}

/// `'a'` and `'\n'` are characters; `'a` is a lifetime.
fn is_character(rest: &[u8]) -> bool {
    match rest.get(1) {
        Some(b'\\') => true,
        // A character of several bytes cannot start a lifetime of ours.
        Some(byte) => *byte >= 0x80 || rest.get(2) == Some(&b'\''),
        None => false,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(blank(text), expected, "{text}");
    }

    #[test]
    fn comments_and_literals_become_blanks() {
        check("a // {\nb", "a     \nb");
        check("a /* { /* } */ \n { */ b", "a              \n      b");
        check("x(\"{\\\"}\", '{', '\\'')", "x(      ,    ,     )");
        check("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}");
        check("r#\"{\"\"#;", "       ;");
        check("let raw = for_r\"{\";", "let raw = for_r   ;");
        check("br\"{\" r#type", "b     r#type");
        check("'é' {", "     {");
        check("\"never ends {", "             ");
    }

    #[test]
    fn lines_of_tests_do_not_count() {
        let source = Source::new("a\n#[cfg(test)]\nmod tests {\n  x\n}\nb\n");
        assert_eq!(source.lines_without_tests(), 2);
        let numbers: Vec<_> = source.code_lines().filter(|(_, line)| !line.is_empty()).map(|(at, _)| at).collect();
        assert_eq!(numbers, [1, 6]);
        assert_eq!(Source::new("//! A.\na\n\n#[cfg(test)]\nmod tests;\nb // c\n").lines_without_tests(), 2);
    }
}

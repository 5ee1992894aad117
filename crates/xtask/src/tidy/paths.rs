//! The declarations and names in one Rust file: `mod` declarations, `use` declarations and paths in
//! the code.
//!
//! [`super::modules`] resolves them. Comments, literals and tests are already blanked in the text
//! ([`super::source`]), so it consists only of words and punctuation. It does not expand macros; a
//! path that only a macro produces is not seen.

/// Everything that a file says about other files.
#[derive(Debug, Default)]
pub struct Names {
    /// Its modules: the file's own first, then the inline ones.
    pub modules: Vec<Inline>,
    /// `mod name;` with the module that declares it.
    pub declared: Vec<(usize, String)>,
    /// Every name that a `use` brings in.
    pub imports: Vec<Import>,
    /// Every `a::b` outside `use` declarations.
    pub paths: Vec<Path>,
    /// Every word outside `use` declarations.
    pub words: Vec<String>,
}

/// A module whose text stands in the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Inline {
    /// Its name; empty for the file's own module.
    pub name: String,
    /// The module around it, an index into the same list.
    pub parent: Option<usize>,
}

/// One leaf of a `use` declaration.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    /// The module that it stands in, an index into [`Names::modules`].
    pub module: usize,
    /// From the first word to the imported name; a glob has no last word of its own.
    pub path: Vec<String>,
    /// The name that it has here; `*` for a glob.
    pub name: String,
    /// Whether others can import it from here.
    pub public: bool,
    /// Line of the name, from 1.
    pub line: usize,
}

/// A path in the code.
#[derive(Debug, PartialEq, Eq)]
pub struct Path {
    /// The module that it stands in, an index into [`Names::modules`].
    pub module: usize,
    /// Its words.
    pub words: Vec<String>,
    /// Line of its first word, from 1.
    pub line: usize,
}

impl Names {
    /// Reads blanked code.
    pub fn new(code: &str) -> Self {
        let mut reader = Reader { tokens: tokens(code), at: 0, names: Self::default(), open: Vec::new() };
        reader.names.modules.push(Inline { name: String::new(), parent: None });
        reader.read();
        reader.names
    }
}

/// A word, `::`, or one character of punctuation.
#[derive(Clone, Copy, Debug)]
struct Token<'code> {
    text: &'code str,
    line: usize,
}

struct Reader<'code> {
    tokens: Vec<Token<'code>>,
    at: usize,
    names: Names,
    /// For every open brace, the inline module that it opened, if it is one's.
    open: Vec<Option<usize>>,
}

impl<'code> Reader<'code> {
    fn read(&mut self) {
        let mut public = false;
        while let Some(token) = self.tokens.get(self.at).copied() {
            match token.text {
                "pub" => {
                    public = true;
                    self.at += 1;
                    self.skip_restriction();
                    continue;
                }
                // `impl Trait + use<'a>` captures a lifetime and imports nothing.
                "use" if self.text(self.at + 1) != "<" => self.use_declaration(public),
                "mod" if self.word(self.at + 1) => self.module(),
                "{" => self.brace(None),
                "}" => {
                    self.open.pop();
                    self.at += 1;
                }
                _ if self.word(self.at) => self.path(),
                _ => self.at += 1,
            }
            public = false;
        }
    }

    /// `(crate)`, `(super)`, `(in path)` after `pub`; they restrict, they import nothing.
    fn skip_restriction(&mut self) {
        let restricts = matches!(self.text(self.at + 1), "crate" | "super" | "self" | "in");
        if self.text(self.at) == "(" && restricts {
            while !matches!(self.text(self.at), ")" | "") {
                self.at += 1;
            }
            self.at += 1;
        }
    }

    fn module(&mut self) {
        let name = self.text(self.at + 1).to_owned();
        let parent = self.current();
        self.at += 2;
        if self.text(self.at) == "{" {
            self.names.modules.push(Inline { name, parent: Some(parent) });
            self.brace(Some(self.names.modules.len() - 1));
        } else {
            self.names.declared.push((parent, name));
        }
    }

    fn brace(&mut self, module: Option<usize>) {
        self.open.push(module);
        self.at += 1;
    }

    /// The innermost module that is open.
    fn current(&self) -> usize {
        self.open.iter().rev().find_map(|module| *module).unwrap_or(0)
    }

    fn use_declaration(&mut self, public: bool) {
        self.at += 1;
        self.tree(&[], public);
        while !matches!(self.text(self.at), ";" | "") {
            self.at += 1;
        }
        self.at += 1;
    }

    /// One tree of a `use` below `prefix`; stops at `,`, `}` or `;`.
    fn tree(&mut self, prefix: &[String], public: bool) {
        let mut path = prefix.to_vec();
        let line = self.tokens.get(self.at).map_or(0, |token| token.line);
        loop {
            match self.text(self.at) {
                "::" => self.at += 1,
                "{" => return self.group(&path, public),
                "*" => {
                    self.at += 1;
                    return self.import(path, "*".to_owned(), public, line);
                }
                "as" => {
                    let name = self.text(self.at + 1).to_owned();
                    self.at += 2;
                    return self.import(path, name, public, line);
                }
                _ if self.word(self.at) => {
                    path.push(self.text(self.at).to_owned());
                    self.at += 1;
                }
                _ => {
                    // `a::{self}` imports a; a lone `self` cannot be imported.
                    if path.len() > 1 && path.last().is_some_and(|word| word == "self") {
                        path.pop();
                    }
                    let name = path.last().cloned().unwrap_or_default();
                    return self.import(path, name, public, line);
                }
            }
        }
    }

    fn group(&mut self, prefix: &[String], public: bool) {
        self.at += 1;
        while !matches!(self.text(self.at), "}" | "") {
            self.tree(prefix, public);
            if self.text(self.at) == "," {
                self.at += 1;
            }
        }
        self.at += 1;
    }

    fn import(&mut self, mut path: Vec<String>, name: String, public: bool, line: usize) {
        if path.len() > 1 && path.last().is_some_and(|word| word == "self") {
            path.pop();
        }
        if !path.is_empty() {
            self.names.imports.push(Import { module: self.current(), path, name, public, line });
        }
    }

    /// A word, or several joined by `::`.
    fn path(&mut self) {
        let line = self.tokens[self.at].line;
        let before = self.at.checked_sub(1).map_or("", |at| self.text(at));
        let mut words = vec![self.text(self.at).to_owned()];
        self.at += 1;
        while self.text(self.at) == "::" && self.word(self.at + 1) {
            words.push(self.text(self.at + 1).to_owned());
            self.at += 2;
        }
        self.names.words.extend(words.iter().cloned());
        // After `::` stands the rest of a path from a type or from another crate; after `$` a
        // macro's.
        if words.len() > 1 && !matches!(before, "::" | "." | "$") {
            self.names.paths.push(Path { module: self.current(), words, line });
        }
    }

    fn text(&self, at: usize) -> &'code str {
        self.tokens.get(at).map_or("", |token| token.text)
    }

    fn word(&self, at: usize) -> bool {
        self.text(at).starts_with(|first: char| first.is_alphabetic() || first == '_')
    }
}

fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    for (index, mut rest) in code.lines().enumerate() {
        while let Some(first) = rest.chars().next() {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let length = match first {
                _ if word(first) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
                ':' if rest.starts_with("::") => 2,
                _ => first.len_utf8(),
            };
            let (text, after) = rest.split_at(length);
            if !first.is_whitespace() {
                found.push(Token { text, line: index + 1 });
            }
            rest = after;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Imports as `module path name`, public ones with a leading `pub`.
    fn check(code: &str, expected: &[&str]) {
        let imports = Names::new(code).imports.into_iter().map(|import| {
            let public = if import.public { "pub " } else { "" };
            format!("{public}{} {} {}", import.module, import.path.join("::"), import.name)
        });
        assert_eq!(imports.collect::<Vec<_>>(), expected, "{code}");
    }

    #[test]
    fn a_use_declaration_is_taken_apart() {
        check("use crate::a;", &["0 crate::a a"]);
        check("pub(crate) use self::a::B as C;", &["pub 0 self::a::B C"]);
        check(
            "use super::{a::{self, B}, c::*, D as _,};",
            &["0 super::a a", "0 super::a::B B", "0 super::c *", "0 super::D _"],
        );
        check("mod a { use super::b; mod c { pub use d::E; } } use f;", &["1 super::b b", "pub 2 d::E E", "0 f f"]);
        check("mod a { fn f<'a>() -> impl T + use<'a> { g() } use super::b; } use c;", &["1 super::b b", "0 c c"]);
    }

    #[test]
    fn paths_and_modules_are_found() {
        let names = Names::new(
            "mod a;\npub mod b { fn f(x: crate::c::D) -> u8 { e::g::<T>::h(x) } }\n<A as B>::c(); x.d::<E>();",
        );
        assert_eq!(names.declared, [(0, "a".to_owned())]);
        assert_eq!(names.modules[1], Inline { name: "b".to_owned(), parent: Some(0) });
        let paths: Vec<_> = names.paths.iter().map(|path| (path.module, path.words.join("::"), path.line)).collect();
        assert_eq!(paths, [(1, "crate::c::D".to_owned(), 2), (1, "e::g".to_owned(), 2)]);
        assert!(names.words.contains(&"x".to_owned()));
    }
}

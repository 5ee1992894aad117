//! What one Rust file names: its modules, `use` declarations, the paths in its code, and the lines
//! that hold code.
//!
//! `proc_macro2` splits the text, so comments and literals need no thought here. Items under
//! `#[cfg(test)]` are left out. Macros are not expanded: what their arguments name is seen, what
//! only their expansion names is not.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Group, LexError, TokenStream, TokenTree};

/// Everything that a file names outside its tests.
#[derive(Debug, Default)]
pub struct Names {
    /// Modules whose text is in the file, the file's own first: `""`, `"::tests"`.
    pub modules: Vec<String>,
    /// `mod child;` as the declaring module and the child's name.
    pub declared: Vec<(String, String)>,
    /// Every name that a `use` brings in.
    pub imports: Vec<Import>,
    /// Every path or single word outside `use` declarations.
    pub paths: Vec<Path>,
    /// Numbers of the lines on which code begins or ends.
    pub lines: BTreeSet<usize>,
}

/// One leaf of a `use` declaration.
#[derive(Clone, Debug)]
pub struct Import {
    /// Module that contains it, as in [`Names::modules`].
    pub module: String,
    /// Words up to the imported name; a glob adds none.
    pub path: Vec<String>,
    /// The name that it has here; `*` for a glob.
    pub name: String,
    /// True if other modules can import it from here.
    pub public: bool,
    /// Line of the name, from 1.
    pub line: usize,
}

/// A path in the code.
#[derive(Clone, Debug)]
pub struct Path {
    /// Module that contains it, as in [`Names::modules`].
    pub module: String,
    /// Its words; the name of a macro ends in `!`.
    pub words: Vec<String>,
    /// Line of its first word, from 1.
    pub line: usize,
}

impl Names {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// It does not consist of Rust tokens.
    pub fn new(text: &str) -> Result<Self, LexError> {
        let mut names = Self { modules: vec![String::new()], ..Self::default() };
        names.read(text.parse()?, "");
        Ok(names)
    }

    fn read(&mut self, stream: TokenStream, module: &str) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let (mut at, mut public) = (0, false);
        while let Some(token) = tokens.get(at) {
            if let Some((attribute, length)) = attribute(&tokens[at..]) {
                at += length;
                match attribute.stream().to_string().replace(' ', "").as_str() {
                    "cfg(test)" => at += item_length(&tokens[at..]),
                    text if text.starts_with("doc=") => {}
                    _ => self.read(attribute.stream(), module),
                }
                continue;
            }
            self.lines.extend([token.span().start().line, token.span().end().line]);
            let next = tokens.get(at + 1);
            match token {
                TokenTree::Group(group) => self.read(group.stream(), module),
                TokenTree::Ident(word) if word == "pub" => {
                    public = true;
                    at += if next.is_some_and(is_restriction) { 2 } else { 1 };
                    continue;
                }
                // `impl Trait + use<'a>` captures a lifetime and imports nothing.
                TokenTree::Ident(word) if word == "use" && !next.is_some_and(|next| is(next, '<')) => {
                    let length = tokens[at..].iter().take_while(|token| !is(token, ';')).count();
                    self.import(&tokens[at + 1..at + length], &[], public, module);
                    at += length;
                    continue;
                }
                TokenTree::Ident(word) if word == "mod" => at += self.module(&tokens[at + 1..], module),
                TokenTree::Ident(_) => at += self.path(&tokens, at, module) - 1,
                _ => {}
            }
            public = false;
            at += 1;
        }
    }

    /// Reads what follows `mod`; returns the number of its tokens.
    fn module(&mut self, tokens: &[TokenTree], parent: &str) -> usize {
        let Some(TokenTree::Ident(name)) = tokens.first() else { return 0 };
        if let Some(TokenTree::Group(body)) = tokens.get(1) {
            let inside = format!("{parent}::{name}");
            self.modules.push(inside.clone());
            self.read(body.stream(), &inside);
        } else {
            self.declared.push((parent.to_owned(), name.to_string()));
        }
        2
    }

    /// Reads `use` trees that are separated by commas and begin with `prefix`.
    fn import(&mut self, trees: &[TokenTree], prefix: &[String], public: bool, module: &str) {
        for tree in trees.split(|token| is(token, ',')) {
            let (mut path, mut name, mut line) = (prefix.to_vec(), None, 0);
            for token in tree {
                line = token.span().start().line;
                self.lines.insert(line);
                match token {
                    TokenTree::Ident(word) if name.is_some() => name = Some(word.to_string()),
                    TokenTree::Ident(word) if word == "as" => name = Some(String::new()),
                    TokenTree::Ident(word) => path.push(word.to_string()),
                    TokenTree::Punct(star) if star.as_char() == '*' => name = Some("*".to_owned()),
                    TokenTree::Group(group) => {
                        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                        self.import(&inner, &path, public, module);
                        path.clear();
                    }
                    _ => {}
                }
            }
            // `a::{self}` imports a; a lone `self` cannot be imported.
            if path.len() > 1 && path.last().is_some_and(|word| word == "self") {
                path.pop();
            }
            if let Some(last) = path.last().filter(|_| !tree.is_empty()) {
                let name = name.unwrap_or_else(|| last.clone());
                self.imports.push(Import { module: module.to_owned(), path, name, public, line });
            }
        }
    }

    /// Reads a word, or several joined by `::`; returns the number of tokens.
    fn path(&mut self, tokens: &[TokenTree], at: usize, module: &str) -> usize {
        let mut words = vec![tokens[at].to_string()];
        let mut end = at + 1;
        while let Some([first, second, TokenTree::Ident(word)]) = tokens.get(end..end + 3)
            && is(first, ':')
            && is(second, ':')
        {
            words.push(word.to_string());
            end += 3;
        }
        // After `::` stands the rest of a path from a type or from another crate; after `$` a
        // macro's.
        let continues = at > 0 && [':', '.', '$'].iter().any(|mark| is(&tokens[at - 1], *mark));
        let is_type = at > 1 && is(&tokens[at - 1], ':') && !is(&tokens[at - 2], ':');
        if words.len() == 1 || !continues || is_type {
            let is_macro = tokens.get(end).is_some_and(|next| is(next, '!'));
            words.last_mut().expect("begins with one").push_str(if is_macro { "!" } else { "" });
            self.paths.push(Path { module: module.to_owned(), words, line: tokens[at].span().start().line });
        }
        end - at
    }
}

/// The group of an attribute at the front, and the number of its tokens.
fn attribute(tokens: &[TokenTree]) -> Option<(&Group, usize)> {
    let (group, length) = match tokens {
        [hash, TokenTree::Group(group), ..] if is(hash, '#') => (group, 2),
        [hash, inner, TokenTree::Group(group), ..] if is(hash, '#') && is(inner, '!') => (group, 3),
        _ => return None,
    };
    (group.delimiter() == Delimiter::Bracket).then_some((group, length))
}

/// The number of tokens up to the end of an item: its braces or its semicolon.
fn item_length(tokens: &[TokenTree]) -> usize {
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => is(token, ';'),
    };
    tokens.iter().position(is_end).map_or(tokens.len(), |end| end + 1)
}

/// True for `(crate)`, `(super)`, `(in path)` after `pub`, which import nothing.
fn is_restriction(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    let first = group.stream().into_iter().next().map(|first| first.to_string());
    first.is_some_and(|first| ["crate", "super", "self", "in"].contains(&first.as_str()))
}

fn is(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Imports as `module path name`, public ones with a leading `pub`.
    fn check(code: &str, expected: &[&str]) {
        let imports = Names::new(code).expect("tokens").imports.into_iter().map(|import| {
            let public = if import.public { "pub " } else { "" };
            format!("{public}m{} {} {}", import.module, import.path.join("::"), import.name)
        });
        assert_eq!(imports.collect::<Vec<_>>(), expected, "{code}");
    }

    #[test]
    fn a_use_declaration_is_taken_apart() {
        check("use crate::a;", &["m crate::a a"]);
        check("pub(crate) use self::a::B as C;", &["pub m self::a::B C"]);
        check(
            "use super::{a::{self, B}, c::*, D as _,};",
            &["m super::a a", "m super::a::B B", "m super::c *", "m super::D _"],
        );
        check(
            "mod a { use super::b; mod c { pub use d::E; } } use f;",
            &["m::a super::b b", "pub m::a::c d::E E", "m f f"],
        );
        check("mod a { fn f<'a>() -> impl T + use<'a> { g() } use super::b; } use c;", &["m::a super::b b", "m c c"]);
        check("const A: &str = r#\"use a;\"#; // use b;\nfn r#type() {} use c;", &["m c c"]);
    }

    #[test]
    fn paths_and_modules_are_found() {
        let text = "mod a;\npub mod b { fn f(x: crate::c::D) -> u8 { e::g::<T>::h(x) } }\n<A as B>::c(); x.d::<E>();";
        let names = Names::new(text).expect("tokens");
        assert_eq!(names.declared, [(String::new(), "a".to_owned())]);
        assert_eq!(names.modules, ["", "::b"]);
        let long = names.paths.iter().filter(|path| path.words.len() > 1);
        let paths: Vec<_> = long.map(|path| (path.module.as_str(), path.words.join("::"), path.line)).collect();
        assert_eq!(paths, [("::b", "crate::c::D".to_owned(), 2), ("::b", "e::g".to_owned(), 2)]);
        let in_macros = Names::new("a!(\"{}\", b::c, d!())").expect("tokens").paths;
        let words: Vec<_> = in_macros.iter().map(|path| path.words.join("::")).collect();
        assert_eq!(words, ["a!", "b::c", "d!"]);
    }

    #[test]
    fn lines_of_comments_and_tests_do_not_count() {
        let lines = |text: &str| Names::new(text).expect("tokens").lines.into_iter().collect::<Vec<_>>();
        assert_eq!(lines("//! A.\na // b\n\n#[cfg(test)]\nmod tests {\n  x\n}\nb\n"), [2, 8]);
        assert_eq!(lines("a\n#[cfg(test)]\nmod tests;\n/* b\n*/ c(\"\n\n\")"), [1, 5, 7]);
        assert!(Names::new("fn a() {").is_err());
    }
}

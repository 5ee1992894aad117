//! Circles among the files of one crate: files that need each other, directly or through others.
//!
//! An arrow from one file to another means that the first names an item that the second defines.
//! Names are followed through re-exports to the defining file. A declaration `mod child;` is not an
//! arrow, and neither is `pub use child::Item` in a parent that does not use the item itself,
//! because a table of contents depends on nothing. Types are not known: a method is found through
//! the name of its type, which some `use` must import.

use std::collections::{BTreeMap, HashSet};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use super::names::{Import, Names, Path};

/// Returns a complaint for each circle of the crate whose root is that file; `sources` holds
/// what each Rust file names.
pub fn check(root: &str, sources: &BTreeMap<String, Names>) -> Vec<String> {
    Crate::new(root, sources).complaints()
}

/// The modules of one crate by path, `crate` first, and what each file names.
#[derive(Default)]
struct Crate<'a> {
    modules: BTreeMap<String, Module<'a>>,
    /// Paths of several words, each with its module.
    paths: Vec<(String, &'a Path)>,
    /// Every word outside `use` declarations, with its file.
    words: HashSet<(&'a str, &'a str)>,
}

struct Module<'a> {
    file: &'a str,
    imports: Vec<&'a Import>,
}

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Module(String),
    /// An item that this module defines.
    Item(String),
}

/// By the two files: the line in the first, and the item's path as written there.
type Arrows<'a> = BTreeMap<(&'a str, &'a str), (usize, String)>;

impl<'a> Crate<'a> {
    /// Follows the `mod` declarations from the file `root`.
    fn new(root: &'a str, sources: &'a BTreeMap<String, Names>) -> Self {
        let mut made = Self::default();
        let mut open = vec![(root, ROOT.to_owned())];
        while let Some((file, module)) = open.pop() {
            let names = &sources[file];
            let whole = |relative: &str| format!("{module}{relative}");
            for relative in &names.modules {
                made.modules.entry(whole(relative)).or_insert(Module { file, imports: Vec::new() });
            }
            for import in &names.imports {
                made.modules.entry(whole(&import.module)).and_modify(|module| module.imports.push(import));
            }
            made.words.extend(names.paths.iter().flat_map(|path| &path.words).map(|word| (file, word.as_str())));
            let long = names.paths.iter().filter(|path| path.words.len() > 1);
            made.paths.extend(long.map(|path| (whole(&path.module), path)));
            for (parent, child) in &names.declared {
                let stem = format!("{}{}/{child}", folder_of_children(file), parent.replace("::", "/"));
                let candidates = [format!("{stem}.rs"), format!("{stem}/mod.rs")];
                let found = candidates.iter().find_map(|name| sources.get_key_value(name));
                open.extend(found.map(|(file, _)| (file.as_str(), whole(&format!("{parent}::{child}")))));
            }
        }
        made
    }

    fn complaints(&self) -> Vec<String> {
        let arrows = self.arrows();
        let graph: DiGraphMap<&str, ()> = arrows.keys().copied().collect();
        let circles = tarjan_scc(&graph).into_iter().filter(|files| files.len() > 1);
        let complaint = |files: Vec<&str>| {
            let inside = arrows.iter().filter(|((from, to), _)| files.contains(from) && files.contains(to));
            let short = |file: &'a str| file.split_once("/src/").map_or(file, |(_, below)| below);
            let steps =
                inside.map(|((from, to), (line, item))| format!("{}:{line} → {} ({item})", short(from), short(to)));
            let first = files.iter().min().expect("more than one");
            format!("{first}:1: circle of files: {}", steps.collect::<Vec<_>>().join(", "))
        };
        circles.map(complaint).collect()
    }

    /// The first arrow between any two files.
    fn arrows(&self) -> Arrows<'a> {
        let mut found = Arrows::new();
        let mut add = |from: &str, target: Option<Target>, line: usize, path: &[String]| {
            let (Target::Module(to) | Target::Item(to)) = target?;
            let files = (self.modules[from].file, self.modules[&to].file);
            if files.0 != files.1 {
                found.entry(files).or_insert_with(|| (line, path.join("::")));
            }
            Some(())
        };
        for (name, module) in &self.modules {
            for import in &module.imports {
                add(name, self.target_of_import(name, import), import.line, &import.path);
            }
        }
        for (module, path) in &self.paths {
            let target = self.resolve(module, &path.words, true, DEPTH_MAX).and_then(|target| match target {
                // Code names no modules: this is an item of the same name, and the parent defines
                // it.
                Target::Module(module) => parent(&module).map(|parent| Target::Item(parent.to_owned())),
                item @ Target::Item(_) => Some(item),
            });
            add(module, target, path.line, &path.words);
        }
        found
    }

    fn target_of_import(&self, module: &str, import: &Import) -> Option<Target> {
        let file = self.modules[module].file;
        let target = self.resolve(module, &import.path, true, DEPTH_MAX)?;
        let (Target::Module(module) | Target::Item(module)) = &target;
        if matches!(target, Target::Module(_)) && import.name != "*" {
            // Only a name for a module; the paths that begin with it are arrows.
            return None;
        }
        let of_children = std::iter::successors(parent(module), |module| parent(module));
        let is_contents = import.public && of_children.into_iter().any(|above| self.modules[above].file == file);
        (!is_contents || self.words.contains(&(file, import.name.as_str()))).then_some(target)
    }

    /// Where `path`, written in `module`, leads; `None` for what other crates define. `relative` is
    /// true for the path's first word, which may also be the name of another crate.
    fn resolve(&self, module: &str, path: &[String], relative: bool, depth: usize) -> Option<Target> {
        let Some((word, rest)) = path.split_first() else { return Some(Target::Module(module.to_owned())) };
        let depth = depth.checked_sub(1)?;
        match word.as_str() {
            "self" => return self.resolve(module, rest, false, depth),
            "super" => return self.resolve(parent(module)?, rest, false, depth),
            "crate" => return self.resolve(ROOT, rest, false, depth),
            _ => {}
        }
        let imports = &self.modules[module].imports;
        let imported = || {
            let import = imports.iter().find(|import| import.name == *word && import.path != path)?;
            let whole: Vec<String> = import.path.iter().chain(rest).cloned().collect();
            self.resolve(module, &whole, true, depth)
        };
        let child = format!("{module}::{word}");
        let has_child = self.modules.contains_key(&child);
        // A function may have its module's name; alone, the name means the function.
        let item = if rest.is_empty() || !has_child { imported() } else { None };
        match item {
            Some(Target::Item(module)) => Some(Target::Item(module)),
            _ if has_child => self.resolve(&child, rest, false, depth),
            Some(module) => Some(module),
            // Imported, but from another crate.
            None if imports.iter().any(|import| import.name == *word) => None,
            None => (!relative).then(|| Target::Item(module.to_owned())),
        }
    }
}

fn parent(module: &str) -> Option<&str> {
    module.rsplit_once("::").map(|(parent, _)| parent)
}

/// Where the files of a file's child modules are.
fn folder_of_children(file: &str) -> &str {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    if ["lib.rs", "main.rs", "mod.rs"].contains(&name) { folder } else { file.trim_end_matches(".rs") }
}

const ROOT: &str = "crate";

/// More re-exports of re-exports than anybody writes; also ends a `use` that names itself.
const DEPTH_MAX: usize = 32;

#[cfg(test)]
mod tests {
    /// The circles of a crate of these files below `crates/a/src/`, as the steps that a complaint
    /// tells.
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let named =
            files.iter().map(|(name, text)| (format!("crates/a/src/{name}"), super::Names::new(text).expect("tokens")));
        let found = super::check("crates/a/src/lib.rs", &named.collect());
        let told = found.iter().map(|complaint| complaint.split_once("files: ").map_or("", |(_, told)| told));
        assert_eq!(told.collect::<Vec<_>>(), expected, "{files:?}");
    }

    #[test]
    fn two_files_that_need_each_other_are_a_circle() {
        let root = ("lib.rs", "mod a;\nmod b;\nmod c;\n");
        let (to_b, to_c) = ("use crate::b::B;\n", "fn c() { super::c::d(); }\n");
        check(&[root, ("a.rs", to_b), ("b.rs", to_c), ("c.rs", "")], &[]);
        let circle = "a.rs:1 → b.rs (crate::b::B), b.rs:1 → a.rs (crate::a::A)";
        check(&[root, ("a.rs", to_b), ("b.rs", "use crate::a::A;\n")], &[circle]);
        let long = "a.rs:1 → b.rs (crate::b::B), b.rs:1 → c.rs (super::c::d), c.rs:1 → a.rs (crate::a::d)";
        check(&[root, ("a.rs", to_b), ("b.rs", to_c), ("c.rs", "fn d() { crate::a(); }\n")], &[]);
        check(&[root, ("a.rs", to_b), ("b.rs", to_c), ("c.rs", "fn d() { crate::a::d(); }\n")], &[long]);
    }

    #[test]
    fn tests_and_comments_make_no_circle() {
        let root = ("lib.rs", "mod a;\nmod b;\n");
        let tests = "/// crate::a::A\nfn b() {}\n#[cfg(test)]\nmod tests { use crate::a::A; }\n";
        check(&[root, ("a.rs", "use crate::b::B;\n"), ("b.rs", tests)], &[]);
        let parent = ("lib.rs", "mod a;\n#[cfg(test)]\nmod tests;\n");
        check(&[parent, ("a.rs", "use crate::tests::B;\n"), ("tests.rs", "use crate::a::A;\n")], &[]);
    }

    #[test]
    fn a_page_of_contents_makes_no_circle() {
        let root = ("lib.rs", "mod a;\nmod error;\npub use error::Error;\npub use a::A;\n");
        let files = [root, ("a.rs", "use crate::Error;\npub struct A;\n"), ("error.rs", "pub enum Error {}\n")];
        check(&files, &[]);
        // But what the parent defines itself, or uses itself, ties it to the child.
        let root = ("lib.rs", "mod a;\npub use a::A;\npub struct Shared(A);\n");
        let circle = "a.rs:1 → lib.rs (crate::Shared), lib.rs:2 → a.rs (a::A)";
        check(&[root, ("a.rs", "use crate::Shared;\npub struct A;\n")], &[circle]);
        let root = ("lib.rs", "mod a;\nfn run() { a::go(); }\npub struct Shared;\n");
        check(&[root, ("a.rs", "use super::Shared;\n")], &["a.rs:1 → lib.rs (super::Shared), lib.rs:2 → a.rs (a::go)"]);
    }

    #[test]
    fn names_are_followed_to_the_defining_file() {
        let root = ("lib.rs", "mod a;\nmod b;\n");
        let page = ("b/mod.rs", "mod c;\nmod d;\npub use self::c::C;\npub use self::d::d;\n");
        // a needs c, d needs a: no circle, although both pass through b.
        let files = [root, page, ("a.rs", "use crate::b::C;\n"), ("b/c.rs", ""), ("b/d.rs", "use crate::a::A;\n")];
        check(&files, &[]);
        // A module that is only named makes no arrow; the path behind the name does.
        let files = [root, page, ("a.rs", "use crate::b::{self};\nfn a() { b::d(); }\n"), ("b/c.rs", ""), files[4]];
        check(&files, &["a.rs:2 → b/d.rs (b::d), b/d.rs:1 → a.rs (crate::a::A)"]);
    }
}

//! Detects cycles between the files of one crate, in which a file depends on itself through others.
//!
//! It is a rule of `cargo xtask tidy`, over the arrows of [`super::modules`]. An arrow a → b lies
//! on a cycle if b reaches a. For every such arrow a breadth-first search finds the shortest way
//! back, and each cycle is reported once; a crate without reports therefore has no cycle among the
//! visible arrows. It does not list longer cycles made of arrows already reported, or follow names
//! through `*` imports or macros.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::modules::{Arrow, Crate};
use super::places::is_crate_root;

/// Complaints about all circles of the workspace; `sources` holds the texts of all Rust files by
/// name.
pub fn check(sources: &BTreeMap<String, String>) -> Vec<String> {
    let roots = sources.keys().filter(|name| is_crate_root(name));
    roots.flat_map(|root| complaints(&Crate::new(root, sources))).collect()
}

/// One complaint per circle: its files in order, and for each the line that needs the next.
fn complaints(of: &Crate) -> Vec<String> {
    let mut first = BTreeMap::<(usize, usize), Arrow>::new();
    for arrow in of.arrows() {
        first.entry((arrow.from, arrow.to)).or_insert(arrow);
    }
    let mut circles = BTreeSet::new();
    for &(from, to) in first.keys() {
        circles.extend(way(&first, of.len(), to, from).map(|files| rotated(files, of)));
    }
    circles.iter().map(|files| complaint(files, &first, of)).collect()
}

/// The shortest way from one file to another, both included.
fn way(arrows: &BTreeMap<(usize, usize), Arrow>, files: usize, from: usize, to: usize) -> Option<Vec<usize>> {
    let mut came_from = vec![None; files];
    let mut open = VecDeque::from([from]);
    while let Some(file) = open.pop_front() {
        if file == to {
            let back = std::iter::successors(Some(to), |file| if *file == from { None } else { came_from[*file] });
            let mut files: Vec<usize> = back.collect();
            files.reverse();
            return Some(files);
        }
        for (_, next) in arrows.range((file, 0)..(file + 1, 0)).map(|(pair, _)| *pair) {
            if next != from && came_from[next].is_none() {
                came_from[next] = Some(file);
                open.push_back(next);
            }
        }
    }
    None
}

/// The same circle, from the file whose name comes first.
fn rotated(mut files: Vec<usize>, of: &Crate) -> Vec<usize> {
    let first = (0..files.len()).min_by_key(|at| of.file(files[*at])).unwrap_or(0);
    files.rotate_left(first);
    files
}

fn complaint(files: &[usize], arrows: &BTreeMap<(usize, usize), Arrow>, of: &Crate) -> String {
    let steps = files.iter().zip(files.iter().cycle().skip(1)).filter_map(|(&from, &to)| {
        let arrow = arrows.get(&(from, to))?;
        Some((arrow.line, format!("{}:{} → {} ({})", short(of, from), arrow.line, short(of, to), arrow.item)))
    });
    let steps: Vec<(usize, String)> = steps.collect();
    let line = steps.first().map_or(1, |(line, _)| *line);
    let told: Vec<&str> = steps.iter().map(|(_, told)| told.as_str()).collect();
    format!("{}:{line}: circle of files: {}", of.file(files[0]), told.join(", "))
}

/// The file's path below `src/`.
fn short(of: &Crate, file: usize) -> &str {
    of.file(file).split_once("/src/").map_or(of.file(file), |(_, below)| below)
}

#[cfg(test)]
mod tests {
    /// The circles of a crate of these files below `crates/a/src/`, as the steps that a complaint
    /// tells.
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let named = files.iter().map(|(name, text)| (format!("crates/a/src/{name}"), (*text).to_owned()));
        let found = super::check(&named.collect());
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

//! The modules of one crate, and the dependencies between its files.
//!
//! [`super::paths`] reads each file; this module follows the names, through re-exports, to the file
//! that defines the item. An arrow from one file to another means that the first names an item that
//! the second defines. A declaration `mod child;` is not an arrow, and neither is
//! `pub use child::Item` in a parent that does not use the item itself, because a table of contents
//! depends on nothing. It does not know types: a method is found through the name of its type,
//! which some `use` must import.

use std::collections::{BTreeMap, HashSet};

use super::paths::{Import, Names};
use super::source::Source;

/// One file needs another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// Index of the file that names the item.
    pub from: usize,
    /// Index of the file that defines it.
    pub to: usize,
    /// Line in the first file, from 1.
    pub line: usize,
    /// The item's path as written.
    pub item: String,
}

/// The files of one crate by module.
#[derive(Debug, Default)]
pub struct Crate {
    files: Vec<String>,
    modules: Vec<Module>,
    /// What each file's code names, in order of the files.
    named: Vec<Named>,
}

#[derive(Debug)]
struct Module {
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    imports: Vec<Import>,
}

/// The paths of a file, with modules as indices into [`Crate::modules`], and its words outside
/// `use` declarations.
#[derive(Debug)]
struct Named {
    paths: Vec<super::paths::Path>,
    words: HashSet<String>,
}

/// Where a module hangs in the tree.
#[derive(Debug)]
struct Place {
    parent: usize,
    name: String,
}

/// Where a path leads.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// An item that this module defines.
    Item(usize),
}

impl Crate {
    /// Follows the `mod` declarations from the file `root`; `sources` holds texts by file name.
    /// Test modules are left out.
    pub fn new(root: &str, sources: &BTreeMap<String, String>) -> Self {
        let mut made = Self::default();
        let mut open = sources.get(root).map_or_else(Vec::new, |text| made.add(root, text, None, sources));
        while let Some((name, place)) = open.pop() {
            open.extend(made.add(&name, &sources[&name], Some(&place), sources));
        }
        made
    }

    /// The file of that index, by its path from the workspace's root.
    pub fn file(&self, index: usize) -> &str {
        &self.files[index]
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Which file needs which; the same two files may occur more than once.
    pub fn arrows(&self) -> Vec<Arrow> {
        let mut found = Vec::new();
        for (index, module) in self.modules.iter().enumerate() {
            for import in &module.imports {
                found.extend(self.arrow_of_import(index, import));
            }
        }
        for path in self.named.iter().flat_map(|named| &named.paths) {
            let target = self.resolve(path.module, &path.words, true, DEPTH_MAX).and_then(|target| match target {
                // Code names no modules: this is an item of the same name, and the parent defines
                // it.
                Target::Module(module) => self.modules[module].parent.map(Target::Item),
                item @ Target::Item(_) => Some(item),
            });
            found.extend(self.arrow(path.module, target, path.line, &path.words));
        }
        found
    }

    /// Adds a file with its inline modules; returns the files that it declares, each with its
    /// place.
    fn add(
        &mut self,
        name: &str,
        text: &str,
        place: Option<&Place>,
        sources: &BTreeMap<String, String>,
    ) -> Vec<(String, Place)> {
        let names = Names::new(&Source::new(text).code_without_tests());
        let (file, first) = (self.files.len(), self.modules.len());
        self.files.push(name.to_owned());
        let mut folders = vec![folder_of_children(name)];
        for (index, inline) in names.modules.iter().enumerate() {
            let inside = inline.parent.map(|parent| Place { parent: first + parent, name: inline.name.clone() });
            let place = inside.as_ref().or(place);
            if let Some(Place { parent, name }) = place {
                self.modules[*parent].children.insert(name.clone(), first + index);
            }
            if let Some(parent) = inline.parent {
                folders.push(format!("{}/{}", folders[parent], inline.name));
            }
            let parent = place.map(|place| place.parent);
            self.modules.push(Module { file, parent, children: BTreeMap::new(), imports: Vec::new() });
        }
        for import in names.imports {
            self.modules[first + import.module].imports.push(import);
        }
        let mut paths = names.paths;
        paths.iter_mut().for_each(|path| path.module += first);
        self.named.push(Named { paths, words: names.words.into_iter().collect() });
        let declared = names.declared.into_iter().filter_map(|(module, child)| {
            let folder = &folders[module];
            let candidates = [format!("{folder}/{child}.rs"), format!("{folder}/{child}/mod.rs")];
            let file = candidates.into_iter().find(|file| sources.contains_key(file))?;
            Some((file, Place { parent: first + module, name: child }))
        });
        declared.collect()
    }

    fn arrow_of_import(&self, module: usize, import: &Import) -> Option<Arrow> {
        let target = self.resolve(module, &import.path, true, DEPTH_MAX)?;
        if matches!(target, Target::Module(_)) && import.name != "*" {
            // Only a name for a module; the paths that begin with it are arrows.
            return None;
        }
        let own_file = self.modules[module].file;
        let of_children = self.is_below(self.module_of(target), own_file);
        if import.public && of_children && !self.named[own_file].words.contains(&import.name) {
            return None;
        }
        self.arrow(module, Some(target), import.line, &import.path)
    }

    fn arrow(&self, module: usize, target: Option<Target>, line: usize, path: &[String]) -> Option<Arrow> {
        let (from, to) = (self.modules[module].file, self.modules[self.module_of(target?)].file);
        (from != to).then(|| Arrow { from, to, line, item: path.join("::") })
    }

    fn module_of(&self, target: Target) -> usize {
        let (Target::Module(module) | Target::Item(module)) = target;
        module
    }

    /// Whether the module lies below one whose text is that file.
    fn is_below(&self, module: usize, file: usize) -> bool {
        let mut above = self.modules[module].parent;
        while let Some(parent) = above {
            if self.modules[parent].file == file {
                return true;
            }
            above = self.modules[parent].parent;
        }
        false
    }

    /// Where `path`, written in `module`, leads; `None` for what other crates define. `relative` is
    /// true for the path's first word, which may also be the name of another crate.
    fn resolve(&self, module: usize, path: &[String], relative: bool, depth: usize) -> Option<Target> {
        let Some((word, rest)) = path.split_first() else { return Some(Target::Module(module)) };
        let depth = depth.checked_sub(1)?;
        let here = &self.modules[module];
        match word.as_str() {
            "self" => return self.resolve(module, rest, false, depth),
            "super" => return self.resolve(here.parent?, rest, false, depth),
            "crate" => return self.resolve(ROOT, rest, false, depth),
            _ => {}
        }
        let imported = || {
            let import = here.imports.iter().find(|import| import.name == *word && import.path != path)?;
            let whole: Vec<String> = import.path.iter().chain(rest).cloned().collect();
            self.resolve(module, &whole, true, depth)
        };
        let child = here.children.get(word).copied();
        // A function may have its module's name; alone, the name means the function.
        let item = if rest.is_empty() || child.is_none() { imported() } else { None };
        match (item, child) {
            (Some(item @ Target::Item(_)), _) => Some(item),
            (_, Some(child)) => self.resolve(child, rest, false, depth),
            (Some(item), None) => Some(item),
            // Imported, but from another crate.
            (None, None) if here.imports.iter().any(|import| import.name == *word) => None,
            (None, None) => (!relative).then_some(Target::Item(module)),
        }
    }
}

/// Where the files of a file's child modules are.
fn folder_of_children(file: &str) -> String {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        _ => file.trim_end_matches(".rs").to_owned(),
    }
}

/// The index of the crate's root: the first module read.
const ROOT: usize = 0;

/// More re-exports of re-exports than anybody writes; also ends a `use` that names itself.
const DEPTH_MAX: usize = 32;

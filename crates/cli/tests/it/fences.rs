//! The fenced blocks of the README and of the pages of `docs`.
//!
//! The tests of the command-line parser (`src/pages.rs`) are part of the program and cannot share
//! this code.

use std::path::{Path, PathBuf};

/// A fenced block: where it begins, what stands behind the fence, its text.
pub struct Block {
    pub place: String,
    pub info: String,
    pub text: String,
}

impl Block {
    /// Whether it is for the shell.
    pub fn is_shell(&self) -> bool {
        self.info.split(' ').next() == Some("sh")
    }
}

/// The blocks of a page.
pub fn blocks(page: &Path) -> Vec<Block> {
    let content = std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let (mut blocks, mut open): (Vec<Block>, bool) = (Vec::new(), false);
    for (number, line) in content.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), open) {
            (Some(info), false) => {
                let place = format!("{}:{}", page.display(), number + 1);
                blocks.push(Block { place, info: info.trim().to_owned(), text: String::new() });
                open = true;
            }
            (Some(_), true) => open = false,
            (None, true) => blocks.last_mut().expect("it was opened").text += &format!("{line}\n"),
            (None, false) => {}
        }
    }
    assert!(!open, "{}: a block does not end", page.display());
    blocks
}

/// The README and all pages.
pub fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    for folder in ["docs", "docs/guide", "docs/reference"] {
        let entries = std::fs::read_dir(root().join(folder)).expect("a folder");
        let paths = entries.map(|entry| entry.expect("readable").path());
        pages.extend(paths.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    }
    pages.sort();
    pages
}

/// The project.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

//! The databases that a caller means by files and folders.
//!
//! Place in the flow: first step of a query. What it does not do: look into a file.

use std::path::{Path, PathBuf};

use crate::Error;

/// Files as they are, and for each folder the databases in it and below, by name. `ordered` says what is given in the order of the traces.
///
/// # Errors
/// A folder that cannot be listed, holds no database, too many, or folders too deep; a folder where the order of traces decides.
pub(super) fn databases(named: &[PathBuf], ordered: Option<&str>) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for path in named {
        if !path.is_dir() {
            found.push(path.clone());
            continue;
        }
        if let Some(ordered) = ordered {
            let problem = format!(
                "{}: the files of a folder have no order (node10 comes before node2), and {ordered} goes by the order of the traces: \
                 name the files",
                path.display()
            );
            return Err(Error::Request { problem });
        }
        let before = found.len();
        list(path, DEPTH, &mut found)?;
        if found.len() == before {
            let problem = format!("{}: there is no database (*.db) in this folder", path.display());
            return Err(Error::Request { problem });
        }
        found[before..].sort();
    }
    Ok(found)
}

fn list(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder, "list"))? {
        let path = entry.map_err(Error::io(folder, "list"))?.path();
        if path.is_dir() {
            // A link that leads back up ends here too.
            if depth == 0 {
                let problem = format!(
                    "{}: folders lie more than {DEPTH} deep, or a link leads back up: name the folders that hold databases",
                    path.display()
                );
                return Err(Error::Request { problem });
            }
            list(&path, depth - 1, found)?;
        } else if path.is_file() && path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("db")) {
            found.push(path);
        }
        if found.len() > FILES_MAX {
            let problem = format!("{}: there are more than {FILES_MAX} databases in this folder", folder.display());
            return Err(Error::Request { problem });
        }
    }
    Ok(())
}

/// How many folders below the named one are looked into.
const DEPTH: usize = 8;
const FILES_MAX: usize = 1 << 16;

//! Asks a run in progress for the evidence of a hang: `probe_sync hang --live`.

use std::path::{Path, PathBuf};

use super::ctl::{ask_line, no_answer};
use super::hang::LINE;
use crate::Error;
use crate::store::received;

/// Asks all ranks of the run in `directory`, on this host, for evidence of a hang, and returns its
/// folder: the dumps and stacks of the ranks whose program writes them, and `arrivals.json`, which
/// says who has answered and how far each rank is. It takes as long as the slowest rank that
/// answers, at most five seconds.
///
/// # Errors
/// [`Error::File`] if no run listens there or files cannot be moved, [`Error::Request`] if the run
/// does not collect evidence.
pub fn collect_hang_evidence(directory: &Path) -> Result<PathBuf, Error> {
    let (master, told) = ask_line(directory, LINE)?;
    let collected = told.collected.ok_or_else(no_answer)?;
    let folder = master.join(&collected.folder);
    for rank in 0..collected.ranks {
        let sent = received(&master, rank, &collected.folder);
        let Ok(files) = std::fs::read_dir(&sent) else { continue };
        for file in files.flatten() {
            std::fs::rename(file.path(), folder.join(file.file_name())).map_err(Error::file(&file.path(), "move"))?;
        }
    }
    Ok(folder)
}

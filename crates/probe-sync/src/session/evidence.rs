//! Asks a run in progress for the evidence of a hang: `probe_sync hang --live`.

use std::path::{Path, PathBuf};

use super::ctl::{ask_line, no_answer};
use super::hang::{ARRIVALS, LINE};
use crate::Error;
use crate::store::received;

/// Evidence of a hang.
#[derive(Clone, Debug)]
pub struct HangEvidence {
    /// Its folder.
    pub folder: PathBuf,
    /// Files in it: dumps and stacks of the ranks whose program writes them, and `arrivals.json`,
    /// which says who has answered and how far each rank is.
    pub files: Vec<PathBuf>,
}

/// Asks all ranks of the run in `directory`, on this host, for evidence of a hang. It takes as long
/// as the slowest rank that answers, some three to five seconds.
///
/// # Errors
/// [`Error::File`] if no run listens there or files cannot be moved, [`Error::Request`] if the run
/// does not collect evidence.
pub fn collect_hang_evidence(directory: &Path) -> Result<HangEvidence, Error> {
    let (master, told) = ask_line(directory, LINE)?;
    let collected = told.collected.ok_or_else(no_answer)?;
    let folder = master.join(&collected.folder);
    let mut files = vec![folder.join(ARRIVALS)];
    for rank in 0..collected.ranks {
        for name in [format!("rank_{rank}"), format!("rank_{rank}.stack")] {
            // By its name: a shared folder may be listed as it was before.
            let path = folder.join(&name);
            // A rank that took over has a folder of its own, and the others write beside it.
            let elsewhere = [
                received(&master, rank, &format!("{}/{name}", collected.folder)),
                directory.join(&collected.folder).join(&name),
            ];
            for other in elsewhere.iter().filter(|other| !path.exists() && other.is_file()) {
                std::fs::rename(other, &path).map_err(Error::file(other, "move"))?;
            }
            if path.is_file() {
                files.push(path);
            }
        }
    }
    Ok(HangEvidence { folder, files })
}

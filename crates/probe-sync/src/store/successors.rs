//! The possible successors of the master, kept for the next process of this rank, because rank 0's
//! address is useless once rank 0 is lost.
//!
//! A session writes `successors/rankR.json` in its own run directory when the line of succession is
//! set up, and removes it when the run has ended well; a launcher reads it before the ranks meet
//! (`Tcp::join_or_return`). It contains addresses but no secret: a process that returns through it
//! still proves itself with the run's key.
//!
//! It does not tell whether the run that wrote it is still in progress; the successors do.

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use probe_sync_collective::EarlierRun;
use probe_sync_files::OwnFolder;
use probe_sync_time::RunId;
use serde::{Deserialize, Serialize};

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// Run id.
    run: u64,
    successors: Vec<Successor>,
}

/// A rank that may take over as master.
#[derive(Debug, Serialize, Deserialize)]
struct Successor {
    rank: usize,
    /// Addresses on which it listens.
    addresses: Vec<SocketAddr>,
}

/// Returns what an earlier process of `rank` was told in the run directory `out`: its run, and the
/// potential successors of rank 0. Empty if there was none, or its run has ended well. An
/// unreadable file is logged and ignored, because rank 0 may be reachable.
pub fn kept_successors(out: &Path, rank: usize) -> EarlierRun {
    let path = out.join(place(rank));
    match read(out, rank) {
        Ok(Kept { run, successors }) => EarlierRun {
            run,
            successors: successors.into_iter().map(|one| (one.rank, one.addresses)).collect(),
            kept_in: Some(path),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => EarlierRun::default(),
        Err(error) => {
            tracing::warn!(
                "cannot read {}: {error}; if rank 0 of the current run is lost, this rank cannot find its successor. Remove the file \
                to start a new run",
                path.display()
            );
            EarlierRun::default()
        }
    }
}

/// Saves the successors for the next process of this rank. If that fails the run continues, but the
/// rank may be unable to return.
pub(crate) fn keep_successors(out: &Path, rank: usize, run: RunId, successors: &[(usize, Vec<SocketAddr>)]) {
    // Where ranks are not reached by address (MPI) nobody can come back.
    if successors.iter().all(|(_, addresses)| addresses.is_empty()) {
        return forget_successors(out, rank);
    }
    let of = |(rank, addresses): &(usize, Vec<SocketAddr>)| Successor { rank: *rank, addresses: addresses.clone() };
    let kept = Kept { run: run.0, successors: successors.iter().map(of).collect() };
    let write = || {
        let folder = OwnFolder::create(out)?;
        folder.make_folder(SUCCESSORS_FOLDER)?;
        folder.write_whole(place(rank), &serde_json::to_vec(&kept)?)
    };
    if let Err(error) = write() {
        let path = out.join(place(rank));
        tracing::warn!("{}: {error}; if this rank is lost after rank 0, it cannot rejoin", path.display());
    }
}

/// Removes the file after the run has ended well, since no rank is to return.
pub(crate) fn forget_successors(out: &Path, rank: usize) {
    // It may not be there; what stays leads to nobody. The last of a host takes the folder with it.
    let _ = OwnFolder::open(out).and_then(|folder| {
        folder.remove(place(rank))?;
        folder.remove(SUCCESSORS_FOLDER)
    });
}

fn place(rank: usize) -> PathBuf {
    Path::new(SUCCESSORS_FOLDER).join(format!("rank{rank}.json"))
}

fn read(out: &Path, rank: usize) -> io::Result<Kept> {
    let mut text = Vec::new();
    OwnFolder::open(out)?.read(place(rank))?.take(LONGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is longer than {LONGEST} bytes")));
    }
    Ok(serde_json::from_slice(&text)?)
}

/// Folder of these files.
pub(super) const SUCCESSORS_FOLDER: &str = "successors";

/// Largest file, bytes: the addresses of some ten thousand ranks.
const LONGEST: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_kept_is_read_until_the_run_has_ended_well() {
        let out = tempfile::tempdir().expect("a temporary directory");
        let line = vec![
            (2, vec!["127.0.0.1:4711".parse().expect("an address")]),
            (1, vec!["[fd00::1]:9".parse().expect("an address")]),
        ];
        let none = EarlierRun::default();
        let kept =
            |rank| EarlierRun { run: u64::MAX, successors: line.clone(), kept_in: Some(out.path().join(place(rank))) };
        assert_eq!(kept_successors(out.path(), 3), none);
        keep_successors(out.path(), 3, RunId(u64::MAX), &line);
        keep_successors(out.path(), 4, RunId(u64::MAX), &line);
        assert_eq!(kept_successors(out.path(), 3), kept(3));
        keep_successors(out.path(), 3, RunId(u64::MAX), &[]);
        assert_eq!(kept_successors(out.path(), 3), none);
        assert_eq!(kept_successors(out.path(), 4), kept(4), "every rank has its own");
        forget_successors(out.path(), 4);
        assert!(!out.path().join(SUCCESSORS_FOLDER).exists());
    }

    #[test]
    fn a_damaged_file_counts_as_none() {
        let out = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(out.path().join(SUCCESSORS_FOLDER)).expect("writable");
        let long = vec![b' '; LONGEST as usize + 2];
        for bytes in
            [&b""[..], b"{\"run\":7,", b"{\"run\":7,\"successors\":[{\"rank\":-1,\"addresses\":[]}]}", b"[]", &long]
        {
            fs::write(out.path().join(place(1)), bytes).expect("writable");
            assert_eq!(kept_successors(out.path(), 1), EarlierRun::default());
        }
    }
}

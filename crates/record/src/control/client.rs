//! The client side of the control socket.

use std::fs::File;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use probe_sync_sys::private_socket;

use super::line;
use super::{Answer, PREFIX, Request, SUFFIX, Told};
use crate::error::Error;

/// Returns the sockets that a path names: itself, or those in a folder, in order of their names.
///
/// # Errors
/// [`Error::Control`] if there are none; errors of reading the folder.
pub fn sockets(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let refuse = |reason: String| Error::Control { path: path.to_path_buf(), reason };
    let metadata = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
    if metadata.file_type().is_socket() {
        return Ok(vec![path.to_path_buf()]);
    }
    if !metadata.is_dir() {
        return Err(refuse(
            "it is neither a folder nor a socket; give the folder that the sessions record into".into(),
        ));
    }
    let ours = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let name = name.to_str()?;
        let named = name.starts_with(PREFIX) && name.ends_with(SUFFIX);
        (named && entry.file_type().ok()?.is_socket()).then(|| entry.path())
    };
    let entries = std::fs::read_dir(path).map_err(|error| refuse(error.to_string()))?;
    let mut found: Vec<PathBuf> = entries.filter_map(ours).take(SOCKETS_MAX).collect();
    if found.is_empty() {
        return Err(refuse(
            "no session on this host listens here; start one with on_demand or control, and give the same folder"
                .into(),
        ));
    }
    found.sort_unstable();
    Ok(found)
}

/// Sends a request to the session that listens at a socket, and returns its answer when it is done.
///
/// # Errors
/// [`Error::Control`] if no process listens, if one of another user does, or if there is no answer
/// in time; [`Error::Asked`] if the request is refused.
pub fn ask(socket: &Path, request: &Request) -> Result<Answer, Error> {
    let refuse = |reason: String| Error::Control { path: socket.to_path_buf(), reason };
    let failed = |error: std::io::Error| refuse(format!("{error}: is its process still running on this host?"));
    let stream = connect(socket).map_err(failed)?;
    let told =
        line::write(&stream, request, ASK_LIMIT).and_then(|()| line::read(&stream, ANSWER_LIMIT)).map_err(failed)?;
    match serde_json::from_str(&told) {
        Ok(Told::Answer(answer)) => Ok(*answer),
        Ok(Told::Error(reason)) => Err(Error::Asked { path: socket.to_path_buf(), reason }),
        Err(_) if told.is_empty() => Err(refuse("the session ended without answering".into())),
        Err(error) => Err(refuse(format!("its answer is not valid: {error}"))),
    }
}

fn connect(socket: &Path) -> std::io::Result<UnixStream> {
    let name = socket.file_name().ok_or(std::io::ErrorKind::InvalidInput)?;
    let folder = socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    private_socket::connect(File::open(folder)?, name, ASK_LIMIT)
}

/// Most processes of a host that record into one folder.
const SOCKETS_MAX: usize = 4096;
/// Time limit for a session to accept a request.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// Time limit for the answer; a copy is written to disk.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

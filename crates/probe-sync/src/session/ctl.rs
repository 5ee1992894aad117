//! The socket in a run's directory at which another process asks something of the run: `probe_sync ctl`.
//!
//! Place in the flow: rank 0 listens at `control.sock`, which only its user may open, from the first round to the end; what is asked there goes the way of all
//! [`Requests`]. One line each way: `pause`, `resume`, `phase NAME`, `phase`, `end-round` or `stop`; then the first round for which it holds, or
//! why it does not, as JSON. One asker after the other; each has limited time.
//!
//! A socket's address has room for some hundred bytes, and directories have longer names: both ends name it by their open directory.
//!
//! What it does not do: reach other hosts. The directory may be shared, the socket is the host's own.

use std::fs::{File, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use probe_sync_sys::{fork, process, timer};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::round::request::{Request, Requests, Since};

/// The socket of a run under way. Dropping it removes it.
#[derive(Debug)]
pub(super) struct ControlSocket {
    path: PathBuf,
    ended: Arc<AtomicBool>,
}

/// What the asker is told.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Since>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl ControlSocket {
    /// Listens in `directory`. None, and a line in the log, where that cannot be: the run does without.
    pub fn open(directory: &Path, requests: Requests) -> Option<Self> {
        match Self::try_open(directory, requests) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!("probe_sync ctl will not reach this run: {}: {error}", directory.join(NAME).display());
                None
            }
        }
    }

    fn try_open(directory: &Path, requests: Requests) -> std::io::Result<Self> {
        let opened = File::open(directory)?;
        let listener = UnixListener::bind(short_path(&opened))?;
        fork::close_in_children(&listener);
        let (path, ended) = (directory.join(NAME), Arc::new(AtomicBool::new(false)));
        let socket = Self { path: path.clone(), ended: Arc::clone(&ended) };
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let body = move || {
            // A launcher's handlers are for its own threads.
            let _ = process::block_signals();
            while !ended.load(Ordering::Relaxed) {
                if !timer::sleep_unless_told(listener.as_fd(), LOOK).unwrap_or(false) {
                    continue;
                }
                match listener.accept() {
                    Ok((stream, _)) => {
                        fork::close_in_children(&stream);
                        // Whoever asks badly or goes away is his own problem.
                        let _ = serve(&stream, &requests);
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    // Without descriptors the socket stays ready.
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        };
        std::thread::Builder::new().name("control".into()).spawn(body)?;
        Ok(socket)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Somebody may have removed the directory.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Hears one asker and answers.
fn serve(stream: &UnixStream, requests: &Requests) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(ASKER_LIMIT))?;
    stream.set_write_timeout(Some(ASKER_LIMIT))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX)).read_line(&mut line)?;
    let asked = line.trim_end_matches('\n').parse::<Request>().map_err(|reason| Error::Request { reason });
    let told = match asked.and_then(|request| requests.ask(request)).and_then(|ticket| ticket.wait(ANSWER_LIMIT)) {
        Ok(since) => Told { since: Some(since), error: None },
        Err(error) => Told { since: None, error: Some(error.to_string()) },
    };
    let mut answer = serde_json::to_vec(&told).map_err(std::io::Error::other)?;
    answer.push(b'\n');
    { stream }.write_all(&answer)
}

/// Asks the run under way in `directory`, on this host, and returns when it holds.
///
/// # Errors
/// [`Error::File`] when no run listens there, [`Error::Request`] when it is refused or there is no answer.
pub fn ask(directory: &Path, request: &Request) -> Result<Since, Error> {
    let path = directory.join(NAME);
    let cannot = |source| Error::File {
        path: path.clone(),
        action: "ask a run at (is one under way there, on this host?)",
        source,
    };
    let opened = File::open(directory).map_err(cannot)?;
    let stream = UnixStream::connect(short_path(&opened)).map_err(cannot)?;
    let limit = Some(ANSWER_LIMIT + 2 * ASKER_LIMIT);
    let timeouts = stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit));
    let mut answer = Vec::new();
    timeouts
        .and_then(|()| (&stream).write_all(format!("{request}\n").as_bytes()))
        .and_then(|()| (&stream).take(LINE_MAX).read_to_end(&mut answer))
        .map_err(cannot)?;
    let told: Told = serde_json::from_slice(&answer)
        .map_err(|_| Error::Request { reason: "the run has ended without an answer".into() })?;
    match told {
        Told { since: Some(since), .. } => Ok(since),
        Told { error, .. } => Err(Error::Request { reason: error.unwrap_or_default() }),
    }
}

/// The socket's path by the open directory.
fn short_path(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{NAME}", directory.as_raw_fd()))
}

/// The socket's name in the run's directory.
const NAME: &str = "control.sock";
/// How soon the thread sees that the run has ended.
const LOOK: StdDuration = StdDuration::from_millis(500);
/// How long an asker has for its line.
const ASKER_LIMIT: StdDuration = StdDuration::from_secs(2);
/// How long an asker is kept waiting: windows in which nobody knows a common clock yet end by themselves.
const ANSWER_LIMIT: StdDuration = StdDuration::from_secs(60);
/// The longest line.
const LINE_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_a_long_name_is_reached_and_silent_or_foreign_askers_do_not_stop_it() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let long = directory.path().join("x".repeat(200));
        std::fs::create_dir(&long).expect("a directory");
        let requests = Requests::default();
        let socket = ControlSocket::open(&long, requests.clone()).expect("it listens");
        let mode = std::fs::metadata(long.join(NAME)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let opened = File::open(&long).expect("a directory");
        let silent = UnixStream::connect(short_path(&opened)).expect("it listens");
        let mut foreign = UnixStream::connect(short_path(&opened)).expect("it listens");
        foreign.write_all(&[0xff; 5000]).expect("there is room");
        requests.close("this run is deaf");
        let error = ask(&long, &Request::Pause).expect_err("it is closed").to_string();
        assert_eq!(error, "this run is deaf");
        drop((silent, foreign, socket));
        let error = ask(&long, &Request::Pause).expect_err("it is gone").to_string();
        assert!(error.contains("control.sock") && error.contains("under way"), "{error}");
    }
}

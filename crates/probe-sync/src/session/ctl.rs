//! The socket in a run's directory through which another process sends requests to the run:
//! `probe_sync ctl`.
//!
//! The master listens at `control.sock`, which only its user may open, from the first round to the
//! end: rank 0 in the run's directory, and a rank that took a lost master's place in its own folder
//! there, where [`ask`] looks first. A request is handled like all [`Requests`]. The protocol is
//! one line in each direction: `pause`, `resume`, `phase NAME`, `phase`, `end-round` or `stop`;
//! then, as JSON, the first round for which it holds, or the reason why it does not. `hang` asks for
//! evidence of a hang and is answered with its folder (`hang`). At most
//! [`ASKERS_MAX`] clients are served at a time, each on its own thread and in limited time, so a
//! client that waits for a decision holds up no other.
//!
//! It does not reach other hosts: the directory may be shared, but the socket belongs to the host.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration as StdDuration, Instant};

use probe_sync_files::{OwnFolder, continuations};
use probe_sync_sys::{fork, private_socket, process, timer};
use serde::{Deserialize, Serialize};

use super::hang::{self, Collected, HangSource};
use crate::Error;
use crate::round::request::{Request, Requests, Since};

/// Checks whether a request is permitted at a socket, or returns why not.
pub(crate) type May = fn(&Request) -> Result<(), String>;

/// What clients may ask at a socket.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    requests: Requests,
    may: May,
    hang: Option<HangSource>,
}

/// The socket of a running run. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    folder: OwnFolder,
    ended: Arc<AtomicBool>,
}

/// Answer to the client.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Told {
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Since>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collected: Option<Collected>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl ControlSocket {
    /// Listens in `directory`. Returns `None`, and logs a message, if that is impossible; the run
    /// continues without it.
    pub fn open(directory: &Path, served: Served) -> Option<Self> {
        match Self::try_open(directory, served) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!("probe_sync ctl cannot reach this run: {}: {error}", directory.join(NAME).display());
                None
            }
        }
    }

    fn try_open(directory: &Path, served: Served) -> std::io::Result<Self> {
        let folder = OwnFolder::open(directory)?;
        let listener = private_socket::listen(&folder, NAME)?;
        let ended = Arc::new(AtomicBool::new(false));
        let socket = Self { folder: folder.clone(), ended: Arc::clone(&ended) };
        let askers = Arc::new(AtomicUsize::new(0));
        let body = move || {
            // A launcher's handlers are for its own threads.
            let _ = process::block_signals();
            while !ended.load(Ordering::Relaxed) {
                if !timer::sleep_unless_told(listener.as_fd(), LOOK).unwrap_or(false) {
                    continue;
                }
                match fork::opened(|| listener.accept().map(|(stream, _)| stream)) {
                    Ok(stream) => attend(stream, &served, &folder, &askers),
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
        let _ = self.folder.remove(NAME);
    }
}

/// Serves a client on a thread of its own, or refuses it there if there are too many; beyond a
/// second limit its connection is closed.
fn attend(stream: UnixStream, served: &Served, folder: &OwnFolder, askers: &Arc<AtomicUsize>) {
    let here = AskerCount(Arc::clone(askers));
    let before = here.0.fetch_add(1, Ordering::Relaxed);
    // Whoever asks badly or goes away is his own problem.
    let ready = stream.set_nonblocking(false).and_then(|()| stream.set_write_timeout(Some(ASKER_LIMIT)));
    if ready.is_err() || before >= 2 * ASKERS_MAX {
        return;
    }
    let (served, folder) = (served.clone(), folder.clone());
    let body = move || {
        let _here = here;
        let _ = process::block_signals();
        let _ = if before < ASKERS_MAX { serve(&stream, &served, &folder) } else { refuse(&stream) };
    };
    // Without a thread the asker finds its connection closed.
    let _ = std::thread::Builder::new().name("control asker".into()).spawn(body);
}

/// Counts one client; the count decreases on drop.
struct AskerCount(Arc<AtomicUsize>);

impl Drop for AskerCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads one client's request and answers it.
fn serve(stream: &UnixStream, served: &Served, folder: &OwnFolder) -> std::io::Result<()> {
    let line = read_line(stream, ASKER_LIMIT)?;
    if !private_socket::is_heard(stream)? {
        return answer(stream, Err("this run belongs to another user".into()));
    }
    if line == hang::LINE {
        let collected = served.hang.as_ref().ok_or_else(|| hang::NOT_HERE.to_owned());
        let collected = collected.and_then(|source| source.collect(folder).map_err(|error| error.to_string()));
        return answer(stream, collected.map(|collected| Told { collected: Some(collected), ..Told::default() }));
    }
    let asked = line.parse::<Request>().and_then(|request| (served.may)(&request).map(|()| request));
    let ask = |request| served.requests.ask(request).and_then(|ticket| ticket.wait(ANSWER_LIMIT));
    let since = asked.and_then(|request| ask(request).map_err(|error| error.to_string()));
    answer(stream, since.map(|since| Told { since: Some(since), ..Told::default() }))
}

/// Refuses a client because there are too many. Its line is read first: closing the connection
/// earlier would break it at the client's end before the answer is read.
fn refuse(stream: &UnixStream) -> std::io::Result<()> {
    read_line(stream, ASKER_LIMIT)?;
    answer(stream, Err(format!("{ASKERS_MAX} clients are already connected; try again")))
}

/// Reads the other end's line, within `limit` however slowly it arrives. The connection may stay
/// open after it.
fn read_line(stream: &UnixStream, limit: StdDuration) -> std::io::Result<String> {
    let until = Instant::now() + limit;
    let mut line = Vec::new();
    let mut part = [0; 256];
    while line.len() < LINE_MAX && !line.contains(&b'\n') {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let read = { stream }.read(&mut part)?;
        if read == 0 {
            break;
        }
        line.extend_from_slice(&part[..read]);
    }
    let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
    line.truncate(end);
    String::from_utf8(line).map_err(std::io::Error::other)
}

fn answer(stream: &UnixStream, result: Result<Told, String>) -> std::io::Result<()> {
    let told = result.unwrap_or_else(|error| Told { error: Some(error), ..Told::default() });
    let mut answer = serde_json::to_vec(&told).map_err(std::io::Error::other)?;
    answer.push(b'\n');
    { stream }.write_all(&answer)
}

/// Makes a request to the run in `directory`, on this host, and returns when it has taken effect.
/// If ranks took over from a lost master, the last of them that listens on this host is asked.
///
/// # Errors
/// [`Error::File`] if no run listens there, [`Error::Request`] if it is refused, there is no
/// answer, or its master is on another host.
pub fn ask(directory: &Path, request: &Request) -> Result<Since, Error> {
    let (_, told) = ask_line(directory, &request.to_string())?;
    told.since.ok_or_else(no_answer)
}

/// Sends a line to the run in `directory`; returns the folder in which its master listens, and the
/// answer.
pub(super) fn ask_line(directory: &Path, line: &str) -> Result<(PathBuf, Told), Error> {
    let masters: Vec<PathBuf> = continuations(&directory.join("run.json"))
        .into_iter()
        .rev()
        .filter_map(|(_, file)| file.parent().map(Path::to_path_buf))
        .collect();
    for folder in &masters {
        if let Ok(stream) = connect(folder) {
            return ask_at(&folder.join(NAME), &stream, line).map(|told| (folder.clone(), told));
        }
    }
    match (connect(directory), masters.first()) {
        (Ok(stream), _) => ask_at(&directory.join(NAME), &stream, line).map(|told| (directory.to_path_buf(), told)),
        (Err(source), None) => Err(cannot_ask(&directory.join(NAME), source)),
        (Err(source), Some(last)) => Err(Error::Request {
            reason: format!(
                "no master of this run listens on this host, neither in {} nor in {} ({source}); if the run continues, use the host \
                of the rank that {} is named after",
                directory.display(),
                last.display(),
                last.file_name().unwrap_or_default().display()
            ),
        }),
    }
}

fn connect(directory: &Path) -> std::io::Result<UnixStream> {
    private_socket::connect(File::open(directory)?, NAME, ASKER_LIMIT)
}

fn cannot_ask(path: &Path, source: std::io::Error) -> Error {
    Error::File {
        path: path.to_path_buf(),
        action: "connect to a run at (is one in progress there, on this host?)",
        source,
    }
}

fn ask_at(path: &Path, stream: &UnixStream, line: &str) -> Result<Told, Error> {
    let cannot = |source| cannot_ask(path, source);
    let limit = ANSWER_LIMIT + 2 * ASKER_LIMIT;
    // Not to the end: a process that the run has forked may keep the connection.
    let answer = stream
        .set_write_timeout(Some(limit))
        .and_then(|()| { stream }.write_all(format!("{line}\n").as_bytes()))
        .and_then(|()| read_line(stream, limit))
        .map_err(cannot)?;
    let told: Told = serde_json::from_str(&answer).map_err(|_| no_answer())?;
    match told.error {
        Some(reason) => Err(Error::Request { reason }),
        None => Ok(told),
    }
}

pub(super) fn no_answer() -> Error {
    Error::Request { reason: "the run ended without answering".into() }
}

impl Served {
    /// Passes all requests to the run.
    pub fn new(requests: Requests, hang: HangSource) -> Self {
        Self { requests, may: |_| Ok(()), hang: Some(hang) }
    }

    /// Passes the requests to the run that `may` permits.
    pub fn restricted(requests: Requests, may: May) -> Self {
        Self { requests, may, hang: None }
    }
}

/// Name of the socket in the run's directory.
const NAME: &str = "control.sock";
/// Interval at which the thread checks whether the run has ended.
const LOOK: StdDuration = StdDuration::from_millis(500);
/// Time limit for a client's line.
const ASKER_LIMIT: StdDuration = StdDuration::from_secs(2);
/// Longest wait of a client: windows in which no node knows a common clock yet end by themselves.
const ANSWER_LIMIT: StdDuration = StdDuration::from_secs(60);
/// Most clients at a time.
const ASKERS_MAX: usize = 8;
/// Longest line, bytes.
const LINE_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn served(requests: &Requests) -> Served {
        Served::restricted(requests.clone(), |_| Ok(()))
    }

    #[test]
    fn a_run_with_a_long_name_is_reached_and_silent_or_foreign_askers_do_not_stop_it() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let long = directory.path().join("x".repeat(200));
        std::fs::create_dir(&long).expect("a directory");
        let requests = Requests::default();
        let socket = ControlSocket::open(&long, served(&requests)).expect("it listens");
        let silent = connect(&long).expect("it listens");
        let mut foreign = connect(&long).expect("it listens");
        foreign.write_all(&[0xff; 5000]).expect("there is room");
        requests.close("this run is deaf");
        let error = ask(&long, &Request::Pause).expect_err("it is closed").to_string();
        assert_eq!(error, "this run is deaf");
        drop((silent, foreign, socket));
        // A rank that took its place listens in its own folder; then it, too, is gone.
        let second = long.join("rank1-from-round17");
        std::fs::create_dir(&second).expect("a directory");
        std::fs::write(second.join("run.json"), "{}").expect("writable");
        let socket = ControlSocket::open(&second, served(&requests)).expect("it listens");
        assert_eq!(ask(&long, &Request::Pause).expect_err("it is closed").to_string(), "this run is deaf");
        drop(socket);
        let error = ask(&long, &Request::Pause).expect_err("both are gone").to_string();
        assert!(error.contains("no master of this run") && error.contains("rank1-from-round17"), "{error}");
        std::fs::remove_dir_all(second).expect("ours");
        let error = ask(&long, &Request::Pause).expect_err("it is gone").to_string();
        assert!(error.contains("control.sock") && error.contains("in progress"), "{error}");
    }

    #[test]
    fn an_answer_is_heard_although_the_connection_stays_open() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let listener = std::os::unix::net::UnixListener::bind(directory.path().join(NAME)).expect("a short path");
        let (kept, answers) = std::sync::mpsc::channel();
        let run = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("somebody asks");
            read_line(&stream, ASKER_LIMIT).expect("a line");
            answer(&stream, Err("not now".into())).expect("it listens");
            // As a child does that was forked meanwhile.
            kept.send(stream).expect("the test waits for it");
        });
        let error = ask(directory.path(), &Request::Pause).expect_err("refused").to_string();
        assert_eq!(error, "not now");
        drop(answers.recv().expect("it was open until now"));
        run.join().expect("no panic");
    }

    #[test]
    fn several_ask_at_once_and_one_too_many_is_told_so() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let requests = Requests::default();
        let _socket = ControlSocket::open(directory.path(), served(&requests)).expect("it listens");
        let path = directory.path().to_path_buf();
        let asking: Vec<_> = (0..ASKERS_MAX)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || ask(&path, &Request::Pause).map_err(|error| error.to_string()))
            })
            .collect();
        // All of them wait for a decision; one after the other they would never all be there.
        let until = Instant::now() + StdDuration::from_secs(30);
        let mut waiting = Vec::new();
        while waiting.len() < ASKERS_MAX {
            waiting.extend(requests.take());
            assert!(Instant::now() < until, "{} ask", waiting.len());
            std::thread::sleep(StdDuration::from_millis(10));
        }
        let error = ask(&path, &Request::Pause).expect_err("one too many").to_string();
        assert!(error.contains("8 clients are already connected"), "{error}");
        waiting.into_iter().for_each(|asked| asked.refuse("not now"));
        for asker in asking {
            assert_eq!(asker.join().expect("no panic").expect_err("refused"), "not now");
        }
    }
}

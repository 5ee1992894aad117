//! The control socket of a session: the server side of [`crate::control`].
//!
//! It is bound when a session is prepared and served until the session ends, by one thread plus one
//! for each client. There are at most [`ASKERS_MAX`] clients, each with limited time. A client must
//! run as the session's user or as root: the file's mode enforces this, and the peer's credentials
//! are checked as well. A forked child has neither the thread nor the socket.

use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use probe_sync_files::{NewFolders, OwnFolder};
use probe_sync_sys::{fork, private_socket, timer};

use super::live::Live;
use super::standing::Standing;
use super::worker::Worker;
use crate::control::line::{self, LINE_MAX};
use crate::control::{Answer, PREFIX, Request, SUFFIX, Told};
use crate::error::Error;

/// The socket. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Server {
    folder: OwnFolder,
    path: PathBuf,
    listener: Arc<UnixListener>,
    ended: Arc<AtomicBool>,
    thread: Option<Worker>,
    live: Arc<Live>,
}

impl Server {
    /// Creates the socket in `folder`, which is created if it is missing.
    pub fn bind(folder: &Path, rank: Option<u32>, live: Arc<Live>) -> Result<Self, Error> {
        let rank = rank.map_or_else(String::new, |rank| format!("rank{rank}."));
        let (pid, session) = (std::process::id(), live.core.number);
        // Several sessions of a process may listen in one folder.
        let names = [format!("{PREFIX}{rank}{pid}{SUFFIX}"), format!("{PREFIX}{rank}{pid}.{session}{SUFFIX}")];
        let failed = |error: std::io::Error| Error::Control {
            path: folder.to_path_buf(),
            reason: format!("cannot create a socket in this folder: {error}; choose another with control"),
        };
        NewFolders::create(folder).map_err(failed)?.keep();
        let opened = OwnFolder::open(folder).map_err(failed)?;
        let [first, second] = &names;
        let (name, listener) = match listen(&opened, first) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => (second, listen(&opened, second)),
            other => (first, other),
        };
        let listener = Arc::new(listener.map_err(failed)?);
        let path = folder.join(name);
        Ok(Self { folder: opened, path, listener, ended: Arc::default(), thread: None, live })
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts requests from now on.
    pub fn serve(&mut self) -> Result<(), Error> {
        let (listener, ended) = (Arc::clone(&self.listener), Arc::clone(&self.ended));
        let (live, path, askers) = (Arc::clone(&self.live), self.path.clone(), Arc::new(AtomicUsize::new(0)));
        let body = move || {
            while !ended.load(Ordering::Acquire) {
                if !timer::sleep_unless_told(listener.as_fd(), LOOK).unwrap_or(false) {
                    continue;
                }
                match fork::opened(|| listener.accept().map(|(stream, _)| stream)) {
                    Ok(stream) => attend(stream, &live, &path, &askers),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    // Without descriptors the socket stays ready.
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        };
        let started = Worker::start(c"recorder-ctl", body);
        self.thread = Some(started.map_err(|error| Error::Thread { reason: error.to_string() })?);
        Ok(())
    }

    /// In a child, which has neither the thread nor the socket: the file stays, since it belongs to
    /// the parent.
    pub fn abandon(self) {
        std::mem::forget(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Somebody may have removed the folder.
        let _ = self.path.file_name().map(|name| self.folder.remove(name));
        // Wakes the thread; where it cannot, the thread looks by itself.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

/// A name that a process before left is taken over.
fn listen(folder: &OwnFolder, name: &str) -> std::io::Result<UnixListener> {
    match private_socket::listen(folder, name) {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let asked = private_socket::connect(folder, name, ASKER_LIMIT);
            if !asked.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused) {
                return Err(error);
            }
            folder.remove(name)?;
            private_socket::listen(folder, name)
        }
        other => other,
    }
}

/// Serves a client on a separate thread; if there are too many, its connection is closed.
fn attend(stream: UnixStream, live: &Arc<Live>, path: &Path, askers: &Arc<AtomicUsize>) {
    let here = AskerCount(Arc::clone(askers));
    let before = here.0.fetch_add(1, Ordering::Relaxed);
    if before >= ASKERS_MAX || stream.set_nonblocking(false).is_err() {
        return;
    }
    let (live, path) = (Arc::clone(live), path.to_path_buf());
    let body = move || {
        let _here = here;
        // Whoever asks badly or goes away is his own problem.
        let _ = serve(&stream, &live, &path);
        let _ = stream.shutdown(Shutdown::Both);
    };
    // Without a thread the asker finds its connection closed.
    if let Ok(thread) = Worker::start(c"recorder-asker", body) {
        thread.detach();
    }
}

/// Counts one client until it is dropped.
struct AskerCount(Arc<AtomicUsize>);

impl Drop for AskerCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads one request and answers it.
fn serve(stream: &UnixStream, live: &Live, path: &Path) -> std::io::Result<()> {
    let asked = line::read(stream, ASKER_LIMIT);
    let told = if !private_socket::is_heard(stream)? {
        Err("this session belongs to another user".to_owned())
    } else {
        match asked.map(|line| serde_json::from_str::<Request>(&line)) {
            Ok(Ok(request)) => answer(live, &request, path).map_err(|error| error.to_string()),
            Ok(Err(error)) => Err(format!("not a valid request: {error}")),
            Err(error) => Err(format!("no line of at most {LINE_MAX} bytes arrived in time: {error}")),
        }
    };
    line::write(stream, &told.map_or_else(Told::Error, |answer| Told::Answer(Box::new(answer))), ASKER_LIMIT)
}

fn answer(live: &Live, request: &Request, path: &Path) -> Result<Answer, Error> {
    let mut saved = None;
    match request {
        Request::Start { window_ns: None } => live.start_as_asked()?,
        Request::Start { window_ns: Some(window_ns) } => live.arrange(*window_ns)?,
        Request::Stop => live.stop_as_asked()?,
        Request::Snapshot { folder } => saved = Some(save(live, folder.as_deref(), path)?),
        Request::Status => {}
    }
    Ok(Answer {
        standing: Standing::of(&live.core),
        window_ns: live.window_ns(),
        reference_ns: live.reference_ns(),
        saved,
    })
}

/// Saves a copy beside the socket or in `folder`, named after the socket and numbered; copies are
/// never replaced.
fn save(live: &Live, folder: Option<&Path>, socket: &Path) -> Result<PathBuf, Error> {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let beside = socket.parent().unwrap_or(Path::new("."));
    let folder = folder.unwrap_or(beside);
    let name = socket.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(SUFFIX)).unwrap_or("process");
    let named =
        (0..NAMES_MAX).map(|_| folder.join(format!("snapshot.{name}.{}.rec", NUMBER.fetch_add(1, Ordering::Relaxed))));
    let path = named.into_iter().find(|path| !path.exists()).ok_or_else(|| Error::Spill {
        path: folder.to_path_buf(),
        reason: "there are already thousands of copies here; move some away, or choose another folder".into(),
    })?;
    live.snapshot()?.save(&path)?;
    Ok(path)
}

/// How soon the thread notices that the session has ended, if nothing wakes it.
const LOOK: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);
/// Time limit for a client to send its line, and to receive the answer.
const ASKER_LIMIT: Duration = Duration::from_secs(2);
/// Most concurrent clients.
const ASKERS_MAX: usize = 8;
/// Copies that were left by an earlier process of the same number.
const NAMES_MAX: usize = 10_000;

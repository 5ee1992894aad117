//! The way back into a group in progress.
//!
//! A separate thread at the root listens at the address of the rendezvous from the first round on,
//! so a connection attempt there costs the rounds nothing. A process that proves to be a rank of
//! the run waits until that rank's place is free, that is, until the connection of the previous
//! process is closed or given up. Until then it may be a second process started by mistake. Then:
//!
//! | from | `Back` frame | content |
//! |---|---|---|
//! | root | 0 | the notice: what a rank must know of the run |
//! | rank | 0 | its statement |
//! | root | 1 | the sequence of the group's latest operation: the rank takes part from the next on |
//!
//! The thread goes as far as the statement and hands the connection to the root, which decides
//! ([`Door::returned`]). A process that brings a file needs no place: it is handed on to
//! `receiving`. One that has given its connection up and comes anew (`reconnecting`) has its place
//! at once.

use std::io::{PipeReader, PipeWriter, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::connection::Connection;
use super::frame::{Hashed, Kind, Leaving};
use super::greeting::{Errand, Verdict};
use super::newcomers::{Expected, Newcomers, Proven};
use super::options::TcpOptions;
use super::process::replaces;
use super::receiving::{Delivery, Receiving};
use super::secret::Secret;
use super::sockets::poll_sockets;
use crate::labels::renamed;
use crate::{Error, FilePlaces, Rank};

/// The thread that readmits ranks. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Door {
    shared: Arc<Mutex<Shared>>,
    returned: Receiver<Connection>,
    /// Writing to it ends the thread.
    open: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the root and the thread.
#[derive(Debug)]
struct Shared {
    notice: Secret,
    /// By rank: the process that has the place, or is about to have it. `None`: the place is free.
    places: Vec<Option<Place>>,
}

/// Holder of a rank's place.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Number of the process.
    process: u64,
    stream: Arc<TcpStream>,
}

impl Place {
    /// Returns the place of the process at the other end.
    pub fn of(connection: &Connection) -> Self {
        Self { process: connection.process(), stream: Arc::clone(connection.stream()) }
    }
}

/// A rank that has its place back and is being sent the notice.
struct Returning {
    connection: Connection,
    notice: Vec<u8>,
    /// None once the notice is sent.
    leaving: Option<Leaving>,
    since: Instant,
}

/// State of the thread.
struct Porter {
    listener: TcpListener,
    newcomers: Newcomers,
    options: TcpOptions,
    /// Rank whose label is exchanged with rank 0's.
    root: Rank,
    /// Ranks whose place is not free yet.
    held: Vec<(Proven, Instant)>,
    returning: Vec<Returning>,
    shared: Arc<Mutex<Shared>>,
    returned: Sender<Connection>,
    /// Receiver of files.
    files: Option<Receiving>,
    /// Last complaint, so that each is logged once.
    complaint: String,
}

impl Door {
    /// Opens the door for returning ranks. `places` is indexed by rank; the root's own place is
    /// never available. Files are accepted if they have places too.
    ///
    /// # Errors
    /// Returns an error if the system cannot provide a thread or a pipe.
    pub fn open(
        listener: TcpListener,
        expected: Expected,
        places: Vec<Option<Place>>,
        notice: Secret,
        files: Option<Arc<dyn FilePlaces>>,
    ) -> Result<Self, Error> {
        let setup = |error: std::io::Error| Error::Setup {
            what: "accepting ranks that rejoin".to_owned(),
            reason: error.to_string(),
        };
        let (closed, open) = std::io::pipe().map_err(setup)?;
        listener.set_nonblocking(true).map_err(setup)?;
        let (sender, returned) = channel();
        let newcomers = Newcomers::new(expected);
        let options = expected.options;
        let shared = Arc::new(Mutex::new(Shared { notice, places }));
        let porter = Porter {
            listener,
            newcomers,
            options,
            root: expected.root,
            held: Vec::new(),
            returning: Vec::new(),
            shared: Arc::clone(&shared),
            returned: sender,
            files: files.map(Receiving::new),
            complaint: String::new(),
        };
        let body = move || porter.serve(&closed);
        let thread = std::thread::Builder::new().name("door".into()).spawn(body).map_err(setup)?;
        Ok(Self { shared, returned, open: Some(open), thread: Some(thread) })
    }

    /// Sets the notice for returning ranks.
    pub fn set_notice(&self, notice: Secret) {
        lock(&self.shared).notice = notice;
    }

    /// Frees a rank's place held by the process of this number. A different process that already
    /// has the place keeps it.
    pub fn leave(&self, rank: Rank, process: u64) {
        lock(&self.shared).leave(rank, process);
    }

    /// Returns the ranks that ask to return, each with its statement as the payload of its
    /// connection.
    pub fn returned(&self) -> Vec<Connection> {
        self.returned.try_iter().collect()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // A process that was forked off may hold the pipe open too, so its end alone would tell
        // nothing.
        if let Some(mut open) = self.open.take() {
            let _ = open.write(&[0]);
        }
        if let Some(thread) = self.thread.take() {
            // It does nothing that blocks; if it has panicked, nobody can come back, and that is
            // all.
            let _ = thread.join();
        }
    }
}

impl Porter {
    fn serve(mut self, closed: &PipeReader) {
        loop {
            let idle = self.newcomers.is_empty() && self.held.is_empty() && self.returning.is_empty();
            let mut sockets = vec![(closed.as_fd(), PollFlags::IN), (self.listener.as_fd(), PollFlags::IN)];
            sockets.extend(self.newcomers.sockets());
            let before = sockets.len();
            sockets.extend(self.returning.iter().map(Returning::socket));
            let heard = match poll_sockets(&sockets, if idle { IDLE } else { TICK }, OPERATION) {
                Ok(ready) if ready[0] => return,
                Ok(ready) => self.go_on(&ready[2..before], ready[1]),
                Err(error) => Err(error),
            };
            if let Err(error) = heard {
                let complaint = renamed(error, self.root).to_string();
                if complaint != self.complaint {
                    tracing::warn!("{complaint}");
                    self.complaint = complaint;
                }
                // Only the end counts until the cause has passed.
                if poll_sockets(&[(closed.as_fd(), PollFlags::IN)], TICK, OPERATION).is_ok_and(|ended| ended == [true])
                {
                    return;
                }
            }
            self.tell_and_listen();
        }
    }

    /// Processes newcomers, and gives those their places that have proven to be ranks and whose
    /// places are free.
    fn go_on(&mut self, ready: &[bool], knocked: bool) -> Result<(), Error> {
        let now = Instant::now();
        for proven in self.newcomers.advance(ready, |_| false)? {
            match proven.errand {
                Errand::File => {
                    self.take_file(proven);
                    continue;
                }
                Errand::Child => {
                    proven.refuse(Verdict::NoSuchRank);
                    continue;
                }
                Errand::Look => {
                    proven.show();
                    continue;
                }
                Errand::Place | Errand::Return => {}
            }
            // The latest of a rank is the one that somebody waits for.
            let earlier = self.held.iter().position(|(held, _)| held.rank == proven.rank);
            if let Some((earlier, _)) = earlier.map(|place| self.held.swap_remove(place)) {
                earlier.refuse(Verdict::Duplicate);
            }
            self.held.push((proven, now));
        }
        self.let_in_who_may()?;
        if knocked {
            self.newcomers.accept(&self.listener)?;
        }
        Ok(())
    }

    /// Admits ranks that need not wait any longer.
    fn let_in_who_may(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        for (proven, since) in std::mem::take(&mut self.held) {
            let mut shared = lock(&self.shared);
            if shared.is_free(&proven) {
                let notice = shared.notice.0.clone();
                if let Some(mut connection) = proven.welcome(Verdict::Back) {
                    let leaving =
                        Some(connection.begin(Kind::Back, 0, (&notice, &mut Hashed::default()), OPERATION)?);
                    shared.places[connection.rank()] = Some(Place::of(&connection));
                    self.returning.push(Returning { connection, notice, leaving, since: now });
                }
            } else if since.elapsed() < self.options.place {
                self.held.push((proven, since));
            } else {
                proven.refuse(Verdict::Duplicate);
            }
        }
        Ok(())
    }

    /// Lets a rank send its file.
    fn take_file(&mut self, proven: Proven) {
        let rank = proven.rank;
        match &mut self.files {
            None => proven.refuse(Verdict::NoFiles),
            Some(files) if !files.has_room(rank) => proven.refuse(Verdict::Later),
            Some(files) => {
                if let Some((stream, seal)) = proven.bring() {
                    files.take(Delivery { rank, stream, seal });
                }
            }
        }
    }

    /// Sends the notice to returning ranks, and passes on those that have made their statement.
    fn tell_and_listen(&mut self) {
        for mut returning in std::mem::take(&mut self.returning) {
            match returning.advance() {
                // The root may have ended; then this thread ends next.
                Ok(true) => {
                    let _ = self.returned.send(returning.connection);
                    continue;
                }
                Ok(false) if returning.since.elapsed() < self.options.statement => {
                    self.returning.push(returning);
                    continue;
                }
                Ok(false) => returning.connection.send_dismissal("it did not identify itself in time"),
                Err(error) => {
                    tracing::warn!("lost a rank that had rejoined: {}", renamed(error, self.root));
                }
            }
            lock(&self.shared).leave(returning.connection.rank(), returning.connection.process());
        }
    }
}

impl Shared {
    /// Frees a rank's place, if the process of this number has it.
    fn leave(&mut self, rank: Rank, process: u64) {
        self.places[rank].take_if(|there| there.process == process);
    }

    /// Returns true if the rank's place is free, or its process has ended or has connected again.
    fn is_free(&self, proven: &Proven) -> bool {
        let Some(there) = &self.places[proven.rank] else { return true };
        if replaces(proven.process, there.process) {
            return true;
        }
        let ended = poll_sockets(&[(there.stream.as_fd(), PollFlags::RDHUP)], Duration::ZERO, OPERATION);
        ended.is_ok_and(|ended| ended == [true])
    }
}

impl Returning {
    fn socket(&self) -> (std::os::fd::BorrowedFd<'_>, PollFlags) {
        let wanted = if self.leaving.is_some() { PollFlags::OUT } else { PollFlags::IN };
        (self.connection.stream().as_fd(), wanted)
    }

    /// Returns true once the statement has arrived.
    fn advance(&mut self) -> Result<bool, Error> {
        if let Some(leaving) = &mut self.leaving {
            if !self.connection.send(leaving, &self.notice, OPERATION)? {
                return Ok(false);
            }
            self.leaving = None;
        }
        self.connection.tell(false);
        self.connection.receive(Kind::Back, 0, OPERATION)
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

const OPERATION: &str = "coming back";

/// Time between two checks while a connection has a time limit or a place is awaited.
const TICK: Duration = Duration::from_millis(50);

/// Longest sleep when there are no connections; ending the thread wakes it.
const IDLE: Duration = Duration::from_secs(3600);

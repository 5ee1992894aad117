//! The root's side of files that ranks send.
//!
//! `door` hands over each authenticated rank that brings a file. Separate threads receive the
//! files, so that neither the rounds nor a returning rank wait for a disk. At most [`WORKERS`]
//! files arrive at a time, one per rank; up to [`WAITING_MAX`] others wait for their turn, and a
//! rank turned away after that tries again. A rank that tries again has lost its earlier
//! connection, which is then given up. Incomplete files are removed.
//!
//! A rank is told that its file is whole when the disk has it: some disks tell only then that they
//! have no room.

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use blake3::Hash;
use probe_sync_files::{AtomicFile, OwnFolder};

use super::delivery::{Answer, Broken, OPERATION, PIECE, Side, Talk, hear_announcement};
use crate::{Deadline, FilePlaces, Rank, Wait};

/// Receives files. Dropping it discards incomplete ones.
#[derive(Debug)]
pub(super) struct Receiving {
    places: Arc<dyn FilePlaces>,
    queue: Arc<Mutex<Queue>>,
    workers: Vec<JoinHandle<()>>,
}

/// A rank that has proven its identity and sends a file.
#[derive(Debug)]
pub(super) struct Delivery {
    pub rank: Rank,
    pub stream: TcpStream,
    pub seal: Hash,
}

/// State shared by the door and the threads.
#[derive(Debug, Default)]
struct Queue {
    /// Waiting deliveries, at most one per rank.
    waiting: VecDeque<Delivery>,
    /// Ranks whose files are being received, with flags that cancel them.
    coming: Vec<(Rank, Arc<AtomicBool>)>,
    workers: usize,
}

impl Receiving {
    pub fn new(places: Arc<dyn FilePlaces>) -> Self {
        Self { places, queue: Arc::default(), workers: Vec::new() }
    }

    /// Returns true if one more rank may wait for its turn; each costs the root a descriptor.
    pub fn has_room(&self, rank: Rank) -> bool {
        let queue = lock(&self.queue);
        queue.waiting.len() < WAITING_MAX || queue.waiting.iter().any(|delivery| delivery.rank == rank)
    }

    /// Receives a file as soon as it is its turn.
    pub fn take(&mut self, delivery: Delivery) {
        self.workers.retain(|worker| !worker.is_finished());
        let mut queue = lock(&self.queue);
        queue.give_up(|rank| rank == delivery.rank);
        queue.waiting.push_back(delivery);
        if queue.workers == WORKERS {
            return;
        }
        let (places, shared) = (Arc::clone(&self.places), Arc::clone(&self.queue));
        let body = move || work(&*places, &shared);
        match std::thread::Builder::new().name("files".into()).spawn(body) {
            Ok(worker) => {
                queue.workers += 1;
                self.workers.push(worker);
            }
            // A thread that takes another file takes this one next; else its rank comes again.
            Err(error) => {
                tracing::warn!("cannot start a thread to receive a rank's file: {error}");
                if queue.workers == 0 {
                    queue.waiting.clear();
                }
            }
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        lock(&self.queue).give_up(|_| true);
        // Each looks every tenth of a second whether it is wanted; one that has panicked takes
        // nothing more.
        self.workers.drain(..).for_each(|worker| drop(worker.join()));
    }
}

impl Queue {
    fn give_up(&mut self, which: impl Fn(Rank) -> bool) {
        self.waiting.retain(|delivery| !which(delivery.rank));
        self.coming.iter().filter(|(rank, _)| which(*rank)).for_each(|(_, end)| end.store(true, Ordering::Relaxed));
    }

    /// Returns the next file, of a rank without another in progress.
    fn next(&mut self) -> Option<(Delivery, Arc<AtomicBool>)> {
        let free = |delivery: &Delivery| self.coming.iter().all(|(rank, _)| *rank != delivery.rank);
        let place = self.waiting.iter().position(free)?;
        let delivery = self.waiting.remove(place)?;
        let end = Arc::new(AtomicBool::new(false));
        self.coming.push((delivery.rank, Arc::clone(&end)));
        Some((delivery, end))
    }
}

/// A thread that receives files; the count decreases even after a panic.
struct Worker<'a>(&'a Mutex<Queue>);

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(self.0).workers -= 1;
        }
    }
}

/// A file in progress, until it is complete or given up, or its thread panics.
struct Coming<'a>(&'a Mutex<Queue>, Rank);

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        lock(self.0).coming.retain(|(rank, _)| *rank != self.1);
    }
}

/// Runs a thread: receives files while some are waiting.
fn work(places: &dyn FilePlaces, queue: &Mutex<Queue>) {
    let _worker = Worker(queue);
    // Of this thread alone, on Linux: rounds go first where there are few cores. Without it files
    // come all the same.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    loop {
        let next = {
            let mut queue = lock(queue);
            let next = queue.next();
            // Under the same lock: who brings a file later finds that this thread has gone.
            queue.workers -= usize::from(next.is_none());
            next
        };
        let Some((delivery, end)) = next else { return };
        let rank = delivery.rank;
        let coming = Coming(queue, rank);
        let came = receive(delivery, places, &end);
        drop(coming);
        match came {
            Ok(Some((path, length))) => {
                tracing::info!("received {} ({length} bytes) from rank {rank}", path.display());
            }
            Ok(None) => tracing::info!("rank {rank} sent a file that already exists here"),
            Err(reason) => tracing::warn!("did not receive a file of rank {rank}: {reason}"),
        }
    }
}

/// Receives one file; returns its path and length. `None`: it existed already.
fn receive(
    Delivery { rank, stream, seal }: Delivery,
    places: &dyn FilePlaces,
    end: &Arc<AtomicBool>,
) -> Result<Option<(PathBuf, u64)>, String> {
    let within = |limit| Deadline { grace: Duration::ZERO, ..Deadline::new(limit, Some(Arc::clone(end))) };
    let mut talk = Talk::new(stream, seal, Side::Root);
    let deadline = within(ANNOUNCEMENT_LIMIT);
    let mut wait = Wait::begin(OPERATION, &deadline);
    let announced = hear_announcement(&mut talk, &mut wait).map_err(reason)?;
    let begun = announced.and_then(|(length, name)| {
        let place = places.place(rank, &name)?;
        Ok((place.map(|(folder, name)| Taken::begin(&folder, &name, length)).transpose()?, length))
    });
    let (mut taken, length) = tell(&mut talk, begun, &mut wait)?;
    let deadline = within(ANNOUNCEMENT_LIMIT + Duration::from_secs(length / SLOWEST));
    let mut wait = Wait::begin(OPERATION, &deadline);
    let mut piece = vec![0; length.min(PIECE as u64) as usize];
    let mut left = length;
    while left > 0 {
        piece.truncate(left.min(PIECE as u64) as usize);
        talk.hear(&mut piece, &mut wait).and_then(|()| talk.hear_seal(&mut wait)).map_err(reason)?;
        left -= piece.len() as u64;
        if let Err(refused) = taken.as_mut().map_or(Ok(()), |taken| taken.add(&piece, left)) {
            return tell(&mut talk, Err(refused), &mut wait);
        }
    }
    let whole = taken.map(|taken| taken.end().map(|path| (path, length))).transpose();
    tell(&mut talk, whole, &mut wait)
}

/// A file being received.
struct Taken {
    path: PathBuf,
    folder: OwnFolder,
    file: AtomicFile,
    /// Bytes since the free space was last checked.
    unlooked: u64,
}

impl Taken {
    /// Creates the file, if there is space for it and for what the run itself still writes.
    fn begin(folder: &OwnFolder, name: &str, length: u64) -> Result<Self, String> {
        if length > FILE_MAX {
            return Err(format!("it has {length} bytes, more than the limit of {FILE_MAX}; copy it by hand"));
        }
        check_room(folder, length)?;
        let path = folder.path_of(name);
        let begin = || {
            let (below, last) = name.rsplit_once('/').unwrap_or(("", name));
            let parts = below.split('/').filter(|part| !part.is_empty());
            let folder = parts.map(Path::new).try_fold(folder.clone(), |folder, part| folder.make_folder(part))?;
            let file = folder.atomic(last)?;
            Ok((folder, file))
        };
        let (folder, file) = begin().map_err(|error| unwritable(&path, &error))?;
        Ok(Self { path, folder, file, unlooked: 0 })
    }

    /// Adds the next bytes, after which `left` follow.
    fn add(&mut self, piece: &[u8], left: u64) -> Result<(), String> {
        self.file.write_all(piece).map_err(|error| unwritable(&self.path, &error))?;
        self.unlooked += piece.len() as u64;
        if self.unlooked >= LOOK_AT_ROOM {
            self.unlooked = 0;
            // Other files come at the same time and have taken room since this one began.
            check_room(&self.folder, left)?;
        }
        Ok(())
    }

    /// Completes the file.
    fn end(self) -> Result<PathBuf, String> {
        self.file.commit().map_err(|error| unwritable(&self.path, &error))?;
        Ok(self.path)
    }
}

/// Accepts what the disk has space for, in addition to what the run itself still writes.
fn check_room(folder: &OwnFolder, bytes: u64) -> Result<(), String> {
    let Ok(disk) = rustix::fs::fstatvfs(folder) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let folder = folder.path().display();
    // File systems that make room for names as they need it say that they have none at all.
    if disk.f_files > 0 && disk.f_favail < RESERVE_FILES {
        return Err(format!(
            "{folder} has room for only {} more files on rank 0's host; free some space there",
            disk.f_favail
        ));
    }
    if free >= bytes.saturating_add(RESERVE) {
        return Ok(());
    }
    Err(format!(
        "it still needs {bytes} bytes, but {folder} has only {free} left on rank 0's host; free some space there"
    ))
}

/// Sends the rank the result, and returns it.
fn tell<T>(talk: &mut Talk, result: Result<T, String>, wait: &mut Wait<'_>) -> Result<T, String> {
    let (answer, passed): (Answer, _) = match result {
        Ok(value) => (Ok(()), Ok(value)),
        Err(reason) => (Err(reason.clone()), Err(reason)),
    };
    let told = talk.answer(&answer, wait).map_err(reason);
    passed.and_then(|value| told.map(|()| value))
}

fn reason(broken: Broken) -> String {
    match broken {
        Broken::Off(reason) => reason,
        Broken::Interjected => "it sent an unexpected message".to_owned(),
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> String {
    format!("rank 0 cannot write {}: {error}", path.display())
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Most files received at a time.
pub(super) const WORKERS: usize = 4;

/// Most ranks waiting for their turn; others try again later.
pub(super) const WAITING_MAX: usize = 64;

/// Priority of a thread that receives files.
const NICENESS: i32 = 10;

/// Largest file, bytes.
const FILE_MAX: u64 = 1 << 40;

/// Bytes on the disk reserved for the run's own files.
const RESERVE: u64 = 64 << 20;

/// Number of files reserved for the run.
const RESERVE_FILES: u64 = 4096;

/// Bytes between two checks of the free space.
const LOOK_AT_ROOM: u64 = 64 << 20;

/// Slowest rate of a rank, from its turn to the end, bytes per second.
const SLOWEST: u64 = 1 << 20;

/// Time limit for the announcement, and beyond the time that the bytes take.
const ANNOUNCEMENT_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_looked_at_again_while_a_file_comes() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let own = OwnFolder::open(folder.path()).expect("ours");
        let mut taken = Taken::begin(&own, "a/b", 1).expect("there is room");
        let piece = vec![0; PIECE];
        for _ in 1..LOOK_AT_ROOM / PIECE as u64 {
            taken.add(&piece, 1 << 60).expect("it is not looked at");
        }
        let reason = taken.add(&piece, 1 << 60).expect_err("no disk has that room");
        assert!(reason.contains("still needs") && reason.contains("free some space there"), "{reason}");
        drop(taken);
        let left = std::fs::read_dir(folder.path().join("a")).expect("a folder").count();
        assert_eq!(left, 0, "what is not whole is removed");
    }
}

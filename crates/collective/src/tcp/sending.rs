//! A rank's side of sending files to the root.
//!
//! Any rank but the root can send, from any thread, independently of its group; `receiving` is the
//! other end. Each file has its own connection to the address of the rendezvous, and after a broken
//! connection the file is sent once more from the start. Threads of one rank take turns.
//!
//! It does not remove the files it has sent or send several at once.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use super::delivery::{Answer, Broken, OPERATION, PIECE, Side, Talk, announce, check_name};
use super::greeting::{Errand, Hello, Verdict};
use super::job_key::JobKey;
use super::joining::{Attempt, Greeted, attempt, jittered};
use super::options::TcpOptions;
use crate::{Deadline, Error, Rank, Wait, random_bytes};

/// Sends a rank's files to the root of its group: see [`crate::Admission::receive_files`].
#[derive(Clone, Debug)]
pub struct FileSender {
    addresses: Vec<String>,
    rank: Rank,
    size: usize,
    job: JobKey,
    /// Held while a file is sent: the root drops an earlier connection of a rank that connects
    /// again.
    turn: Arc<Mutex<()>>,
}

/// Why a file has not arrived.
enum Failure {
    /// Another attempt would not help.
    Final(String),
    /// The connection broke.
    Passing(String),
    /// The root is receiving files of others.
    Busy(String),
}

impl FileSender {
    /// Creates the sender of rank `rank` of `size`, whose root listens at one of these addresses
    /// (`host:port`).
    pub fn new(addresses: Vec<String>, rank: Rank, size: usize, job: JobKey) -> Self {
        Self { addresses, rank, size, job, turn: Arc::default() }
    }

    /// Returns the rank that sends the files.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Sends the file at `path`, with its present bytes, to the root under `name`: a relative path
    /// with `/` as separator. Returns when the root has all of it. A later file of the same name
    /// replaces it. Holds 1 MiB of it at a time. Waits while another thread sends a file with this
    /// sender or a clone of it.
    ///
    /// # Errors
    /// [`Error::File`] states why the root does not have it, and what to do.
    pub fn send(&self, path: &Path, name: &str, deadline: &Deadline) -> Result<(), Error> {
        let failed = |reason: String| Error::File { rank: self.rank, name: name.to_owned(), reason };
        check_name(name).map_err(failed)?;
        let mut wait = Wait::begin(OPERATION, deadline);
        let (mut retries, mut busy) = (RETRIES, BACKOFF);
        let _turn = self.turn(&mut wait).map_err(failed)?;
        loop {
            match self.attempt(path, name, &mut wait) {
                Ok(()) => return Ok(()),
                Err(Failure::Final(reason)) => return Err(failed(reason)),
                Err(Failure::Busy(reason)) => {
                    if !pause(busy, &mut wait) {
                        return Err(failed(format!(
                            "{reason}, until the time limit expired; the file is still here: copy it by hand"
                        )));
                    }
                    busy = (busy * 2).min(BUSY_LAST);
                }
                Err(Failure::Passing(reason)) if retries == 0 || !pause(BACKOFF, &mut wait) => {
                    let to = self.addresses.join(" or ");
                    let advice = "did rank 0 end its run, or does a firewall block that port? The file is still here: copy it by hand";
                    return Err(failed(format!("{reason} (rank 0 at {to}); {advice}")));
                }
                Err(Failure::Passing(reason)) => {
                    tracing::warn!("{name} did not reach rank 0: {reason}; retrying");
                    retries -= 1;
                }
            }
        }
    }

    /// Sends these messages with their seals, whatever they are, disconnects and waits until the
    /// root has too; for tests of messages that no rank would send.
    #[cfg(feature = "suite")]
    #[doc(hidden)]
    pub fn say(&self, messages: &[&[u8]], deadline: &Deadline) {
        let mut wait = Wait::begin(OPERATION, deadline);
        let Ok(mut talk) = self.greet(&mut wait) else { return };
        if messages.iter().all(|message| talk.say(&[message], &mut wait).is_ok()) {
            talk.hang_up(&mut wait);
        }
    }

    /// Waits until no other thread sends a file.
    fn turn(&self, wait: &mut Wait<'_>) -> Result<MutexGuard<'_, ()>, String> {
        loop {
            match self.turn.try_lock() {
                Ok(turn) => return Ok(turn),
                Err(TryLockError::Poisoned(turn)) => return Ok(turn.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            let slice = wait.slice().ok_or("the time limit expired while another file of this rank was being sent")?;
            std::thread::sleep(slice.min(TURN));
        }
    }

    fn greet(&self, wait: &mut Wait<'_>) -> Result<Talk, Failure> {
        let nonce = random_bytes().map_err(|error| Failure::Final(error.to_string()))?;
        let hello = Hello::new(self.rank, self.size, Errand::File, nonce);
        let options = TcpOptions::from_environment().map_err(|error| Failure::Final(error.to_string()))?;
        let Greeted { stream, seal, .. } = attempt(&self.addresses, &hello, self.job, &options, wait)?;
        Ok(Talk::new(stream, seal, Side::Rank))
    }

    fn attempt(&self, path: &Path, name: &str, wait: &mut Wait<'_>) -> Result<(), Failure> {
        let unreadable = |error: io::Error| Failure::Final(format!("cannot read {}: {error}", path.display()));
        let mut file = File::open(path).map_err(unreadable)?;
        let facts = file.metadata().map_err(unreadable)?;
        if !facts.is_file() {
            return Err(unreadable(io::Error::other("it is not a file")));
        }
        let mut talk = self.greet(wait)?;
        let mut left = facts.len();
        say(&mut talk, &announce(left, name), wait)?;
        accepted(talk.wait_for_answer(wait))?;
        let mut piece = vec![0; left.min(PIECE as u64) as usize];
        while left > 0 {
            piece.truncate(left.min(PIECE as u64) as usize);
            file.read_exact(&mut piece).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => unreadable(io::Error::other("it was truncated while it was read")),
                _ => unreadable(error),
            })?;
            left -= piece.len() as u64;
            say(&mut talk, &piece, wait)?;
        }
        accepted(talk.wait_for_answer(wait))
    }
}

impl From<Attempt> for Failure {
    fn from(attempt: Attempt) -> Self {
        match attempt {
            Attempt::Refused(Verdict::NoFiles) => Self::Passing(Verdict::NoFiles.explain().to_owned()),
            Attempt::Refused(Verdict::Later) => Self::Busy(Verdict::Later.explain().to_owned()),
            other @ (Attempt::Refused(_) | Attempt::AllForeign(_)) => Self::Final(other.reason()),
            other => Self::Passing(other.reason()),
        }
    }
}

/// Sends a message; if the root interrupts it, the root's answer is the reason.
fn say(talk: &mut Talk, message: &[u8], wait: &mut Wait<'_>) -> Result<(), Failure> {
    match talk.say(&[message], wait) {
        Ok(()) => Ok(()),
        Err(Broken::Off(reason)) => Err(Failure::Passing(reason)),
        Err(Broken::Interjected) => {
            accepted(talk.hear_answer(wait))?;
            Err(Failure::Passing("rank 0 answered before it had received the file".to_owned()))
        }
    }
}

fn accepted(heard: Result<Answer, Broken>) -> Result<(), Failure> {
    match heard {
        Ok(answer) => answer.map_err(|reason| Failure::Final(format!("rank 0 rejected it: {reason}"))),
        Err(Broken::Off(reason)) => Err(Failure::Passing(reason)),
        Err(Broken::Interjected) => Err(Failure::Passing("rank 0 interrupted".to_owned())),
    }
}

/// Sleeps before the next attempt; returns false if there is no time for one.
fn pause(pause: Duration, wait: &mut Wait<'_>) -> bool {
    let begun = wait.elapsed();
    let pause = random_bytes().map_or(pause, |drawn| jittered(pause, drawn));
    while let Some(slice) = wait.slice() {
        let left = pause.saturating_sub(wait.elapsed().saturating_sub(begun));
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(slice.min(left));
    }
    false
}

/// Further attempts after a broken connection.
const RETRIES: u32 = 1;

/// Interval of checks whether another thread's file is still being sent.
const TURN: Duration = Duration::from_millis(20);

/// Pause before a further attempt.
const BACKOFF: Duration = Duration::from_secs(1);

/// Longest pause of a rank that is told to try later: a thousand such ranks knock about a hundred
/// times per second.
const BUSY_LAST: Duration = Duration::from_secs(16);

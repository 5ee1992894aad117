//! Waits and long work that release the interpreter and end with Ctrl-C.
//!
//! A wait is cut into slices, and Python's own handlers run between them. Work that cannot be cut
//! runs on a separate thread, which the caller abandons when a handler raises: the thread continues
//! to the end of the file that it writes, and the next call that writes waits for it.
//!
//! It does not install handlers. Python runs them only on its main thread; waits on other threads
//! end with their timeout.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::errors::Failure;

/// End of a wait; None: no limit.
#[derive(Copy, Clone, Debug)]
pub struct Until {
    limit: Option<Duration>,
    at: Option<Instant>,
}

impl Until {
    /// Ends `seconds` from now.
    ///
    /// # Errors
    /// Raised if the time is negative or not a number.
    pub fn new(seconds: Option<f64>) -> Result<Self, Failure> {
        let Some(seconds) = seconds else { return Ok(Self { limit: None, at: None }) };
        if seconds == f64::INFINITY {
            return Ok(Self { limit: None, at: None });
        }
        let limit = Duration::try_from_secs_f64(seconds).map_err(|error| {
            Failure::config(format!("timeout={seconds}: {error}; give seconds, or None to wait indefinitely"))
        })?;
        Ok(Self { limit: Some(limit), at: Instant::now().checked_add(limit) })
    }

    /// Returns the next slice of the wait.
    pub fn slice(&self) -> Duration {
        self.left().min(SLICE)
    }

    /// Returns the remaining time.
    pub fn left(&self) -> Duration {
        self.at.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }

    /// Returns the failure of a wait whose time is over; `so_far` describes its progress.
    pub fn over(&self, what: &str, so_far: &str) -> Option<Failure> {
        let at = self.at.filter(|at| Instant::now() >= *at)?;
        let limit = self.limit.unwrap_or_else(|| at.elapsed());
        Some(Failure::timeout(format!("timed out waiting for {what} after {limit:.1?}; {so_far}")))
    }
}

/// Lets work on a thread of its own report its progress, and learn that its caller has gone.
#[derive(Debug)]
pub struct Worker<T> {
    sender: Sender<Message<T>>,
    left: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Message<T> {
    Share(f64),
    Done(T),
}

impl<T> Worker<T> {
    /// Reports the share that is done.
    pub fn share(&self, share: f64) {
        // Nobody listens any more: the next look at `left` ends the work.
        let _nobody = self.sender.send(Message::Share(share));
    }

    /// Returns true if the caller has gone, so that further parts need not be started.
    pub fn is_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

/// Runs `work` on a thread of its own and waits for it; `progress` is called with the share that is
/// done.
///
/// # Errors
/// Exceptions of a signal handler or of `progress`; a panic of the work.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Worker<T>) -> T + Send + 'static,
) -> PyResult<T> {
    wait_for_those_left(py)?;
    let (sender, receiver) = channel();
    let left = Arc::new(AtomicBool::new(false));
    let phase = Arc::new(Mutex::new(Phase::Running));
    let (for_thread, worker) = (Arc::clone(&phase), Worker { sender, left: Arc::clone(&left) });
    let body = move || {
        let _end = End(for_thread);
        let result = work(&worker);
        let _nobody = worker.sender.send(Message::Done(result));
    };
    std::thread::Builder::new().name("probe_sync".into()).stack_size(STACK).spawn(body)?;
    let result = listen(py, receiver, progress);
    if result.is_err() {
        left.store(true, Ordering::Relaxed);
        leave_it(&phase);
    }
    result
}

fn listen<T: Send>(py: Python<'_>, receiver: Receiver<Message<T>>, progress: Option<&Bound<'_, PyAny>>) -> PyResult<T> {
    // The interpreter is released with a lock around what only this thread uses: a receiver cannot
    // be shared.
    let receiver = Mutex::new(receiver);
    loop {
        let next = py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SLICE));
        match next {
            Ok(Message::Done(result)) => return Ok(result),
            Ok(Message::Share(share)) => {
                if let Some(progress) = progress {
                    progress.call1((share,))?;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let text = "it panicked; the message is on standard error. Please report it";
                return Err(Failure::failed(text).into());
            }
        }
        py.check_signals()?;
    }
}

/// Whether a caller still waits for the thread.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Left,
    Done,
}

/// Marks the end of a thread, even after a panic.
struct End(Arc<Mutex<Phase>>);

impl Drop for End {
    fn drop(&mut self) {
        let mut phase = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *phase == Phase::Left {
            LEFT.fetch_sub(1, Ordering::Relaxed);
        }
        *phase = Phase::Done;
    }
}

fn leave_it(phase: &Mutex<Phase>) {
    let mut phase = phase.lock().unwrap_or_else(PoisonError::into_inner);
    if *phase == Phase::Running {
        *phase = Phase::Left;
        LEFT_BY.store(std::process::id(), Ordering::Relaxed);
        LEFT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits for abandoned threads, because two writers of one file within a process would share a
/// partial file.
fn wait_for_those_left(py: Python<'_>) -> PyResult<()> {
    while some_are_left() {
        py.detach(|| std::thread::sleep(SLICE));
        py.check_signals()?;
    }
    Ok(())
}

/// Called at the end of the process: removes files that abandoned threads have begun to write.
#[pyfunction]
pub fn leave() {
    if some_are_left() {
        probe_sync_files::remove_partials();
    }
}

fn some_are_left() -> bool {
    LEFT.load(Ordering::Relaxed) > 0 && LEFT_BY.load(Ordering::Relaxed) == std::process::id()
}

/// Number of abandoned threads.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Process of these threads: a fork inherits the number but not the threads.
static LEFT_BY: AtomicU32 = AtomicU32::new(0);

/// Time within which Ctrl-C ends a wait.
const SLICE: Duration = Duration::from_millis(50);

/// Stack size, equal to that of a main thread, because formats nest.
const STACK: usize = 8 << 20;

//! This program again, as a process of its own that may be killed, or handles signals.
//!
//! What such a process does is told by its environment; it runs the one test here that is otherwise
//! ignored.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use probe_sync_record::{Policy, Recorder, Session, scope};

/// Starts this program for one of [`entry`]'s tasks.
pub fn start(task: &str, folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("Linux"));
    command.args(["--exact", "child::entry", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("RECORD_TASK", task).env("RECORD_FOLDER", folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().expect("it runs already")
}

/// Runs it to its end.
pub fn succeeds(task: &str, folder: &Path) {
    let mut child = start(task, folder);
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                child.kill().expect("a child");
                panic!("{task} hangs");
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    assert!(status.success(), "{task}: {status}");
}

#[test]
#[ignore = "a process that other tests start"]
fn entry() {
    let Ok(task) = std::env::var("RECORD_TASK") else { return };
    let folder = PathBuf::from(std::env::var("RECORD_FOLDER").expect("set by `start`"));
    match task.split_once(' ') {
        Some(("record", policy)) => record(policy, &folder),
        Some(("memory", policy)) => crate::memory::stays(policy, &folder),
        Some(("exit", policy)) => exit(policy, &folder),
        #[cfg(target_arch = "x86_64")]
        Some(("stepped", task)) => crate::stepped::run(task, &folder),
        _ => match task.as_str() {
            "handlers" => crate::signals::handlers(),
            "first" => crate::signals::first_event_in_a_handler(),
            "starts" => crate::signals::handlers_while_sessions_start_and_stop(),
            "ending" => crate::signals::handlers_while_threads_end(),
            "names" => crate::edges::names_without_room(),
            "too many names" => crate::edges::too_many_names(),
            "forking" => crate::forks::forking_handlers(),
            "nothing" => assert!(gate_is_closed()),
            _ => panic!("no such task: {task}"),
        },
    }
}

fn gate_is_closed() -> bool {
    let scope = scope!("nobody records");
    !scope.is_recorded()
}

/// A policy by its name, with so little memory that it is full soon.
pub fn policy_of(name: &str) -> Policy {
    match name {
        "drop_newest" => Policy::DropNewest { bytes: 8 << 20 },
        "flight" => Policy::Flight { bytes: 1 << 20 },
        _ => Policy::Stream { bytes: 1 << 20, every: Duration::from_millis(2) },
    }
}

fn session(policy: &str, folder: &Path) -> Session {
    let builder = Recorder::builder().policy(policy_of(policy)).spill(folder.join("killed.rec")).threads(8);
    builder.pair_period(Duration::from_millis(10)).start().expect("a fresh folder")
}

/// Records on several threads until it is killed, and says after each scope that it has ended.
fn record(policy: &str, folder: &Path) {
    let session = session(policy, folder);
    let progress: &'static Progress = Box::leak(Box::new(Progress::create(&folder.join("progress"))));
    for thread in 0..THREADS {
        let body = move || {
            let _always = scope!("outer", thread = thread);
            for n in 0..u64::MAX {
                let inner = scope!("work", n = n);
                if n % 3 == 0 {
                    drop(scope!("inner"));
                }
                drop(inner);
                progress.of(thread).store(n + 1, Ordering::Release);
                if n % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        };
        std::thread::Builder::new().name(format!("w{thread}")).spawn(body).expect("a thread");
    }
    std::thread::sleep(LIMIT);
    drop(session);
}

/// Ends without ending its session.
fn exit(policy: &str, folder: &Path) {
    let session = session(policy, folder);
    std::mem::forget(scope!("open"));
    for n in 0..1000_u64 {
        drop(scope!("work", n = n));
    }
    if policy == "abort" {
        std::process::abort();
    }
    std::mem::forget(session);
    std::process::exit(0);
}

/// How many scopes have ended on each thread, in a file that several processes share.
pub struct Progress(*const AtomicU64);

// SAFETY: atomic words of a mapping that stays.
unsafe impl Sync for Progress {}
// SAFETY: as above.
unsafe impl Send for Progress {}

impl Progress {
    fn create(path: &Path) -> Self {
        let part = path.with_extension("part");
        std::fs::write(&part, [0; 4096]).expect("room");
        let mapped = Self::open(&part);
        std::fs::rename(part, path).expect("room");
        mapped
    }

    /// Opens an existing file.
    pub fn open(path: &Path) -> Self {
        use std::os::fd::AsRawFd as _;
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("a file");
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: the system chooses an address where nothing is.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, kind, file.as_raw_fd(), 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        Self(mapped.cast())
    }

    pub fn of(&self, thread: usize) -> &AtomicU64 {
        assert!(thread < THREADS);
        // SAFETY: within the page; each has a line of its own.
        unsafe { &*self.0.add(thread * 8) }
    }
}

/// Threads of a process that records until it is killed.
pub const THREADS: usize = 4;
/// A test that takes longer hangs.
pub const LIMIT: Duration = Duration::from_secs(60);

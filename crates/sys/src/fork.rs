//! Closes, in a forked child, the sockets of the process that it was forked from.
//!
//! Each socket that is opened for a session (`udp` here, `collective`) is registered once. A
//! launcher's process may fork at any time, for data loaders, `multiprocessing` or a shell. The
//! child has copies of all descriptors but none of the threads. While it lived, its copies would
//! hold the ports and keep connections open after their owner had died, and the other ranks would
//! wait for a deadline instead of seeing the connection close.
//!
//! In the child every such socket becomes `/dev/null` under the same number: its end is seen by the
//! others as soon as the parent's ends, and a descriptor that somebody in the child closes later is
//! nobody else's. Which descriptor is still which socket is asked of the kernel (its file system
//! and inode), so nobody has to tell when a socket is closed. What is executed instead of forked
//! inherits nothing: sockets are opened with `CLOEXEC`.
//!
//! It does not touch the child's memory; a session that is called in the child reports the fork
//! itself.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FileType, fstat, makedev};

/// Opens a socket that no child process inherits, not even one that another thread forks meanwhile:
/// that waits until the socket is registered. So `open` must not block.
///
/// # Errors
/// Errors of `open`.
pub fn opened<S: AsFd, E>(open: impl FnOnce() -> Result<S, E>) -> Result<S, E> {
    let prepared = is_prepared();
    let mut kept = sockets();
    let socket = open()?;
    if prepared {
        name(&mut kept, socket.as_fd());
    }
    Ok(socket)
}

/// Keeps a socket that was opened elsewhere out of children forked from now on. If the system has
/// no memory for it, children inherit the socket.
pub fn close_in_children(socket: impl AsFd) {
    if is_prepared() {
        name(&mut sockets(), socket.as_fd());
    }
}

fn name(kept: &mut Vec<Kept>, socket: BorrowedFd<'_>) {
    let Some(identity) = identity(socket) else { return };
    if kept.len() >= kept.capacity() {
        // Closed ones go before the list grows.
        kept.retain(|socket| socket.is_open());
    }
    kept.push(Kept { number: socket.as_raw_fd(), identity });
}

/// A socket as it was when it was opened.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Kept {
    number: RawFd,
    /// File system and inode.
    identity: [u64; 2],
}

impl Kept {
    fn is_open(self) -> bool {
        // SAFETY: only asked what it is; whatever it is now, it is not closed here.
        let now = unsafe { BorrowedFd::borrow_raw(self.number) };
        identity(now) == Some(self.identity)
    }
}

fn identity(socket: BorrowedFd<'_>) -> Option<[u64; 2]> {
    fstat(socket).ok().map(|status| [status.st_dev, status.st_ino])
}

fn sockets() -> MutexGuard<'static, Vec<Kept>> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the replacement for the sockets, and registers, once, a handler for every fork. No lock: a
/// child forked meanwhile would find it locked for ever.
fn is_prepared() -> bool {
    let known = NULL.load(Ordering::Acquire);
    // Somebody may have closed it, as daemons close whatever they find.
    if known >= 0 && is_null(known) {
        return true;
    }
    let Ok(opened) = File::open("/dev/null") else { return false };
    let opened = opened.into_raw_fd();
    if NULL.compare_exchange(known, opened, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: it is this function's own, and nobody else knows it.
        drop(unsafe { OwnedFd::from_raw_fd(opened) });
        return true;
    }
    if known >= 0 {
        return true;
    }
    // SAFETY: the three functions live as long as the program. `before` and `in_parent` take and
    // give back a lock; `in_child` calls only what may be called between fork and exec of a program
    // with threads: fstat and dup3.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) == 0 }
}

/// Whether this descriptor is `/dev/null`, which Linux numbers 1:3.
fn is_null(number: RawFd) -> bool {
    // SAFETY: only asked what it is; whatever it is, it is not closed here.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    fstat(descriptor).is_ok_and(|status| {
        FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice && status.st_rdev == makedev(1, 3)
    })
}

/// No thread may change the list while the process is copied.
extern "C" fn before() {
    // A fork out of another library's handler: the list is held already.
    if HELD.try_with(|held| held.try_borrow().is_ok_and(|held| held.is_some())).unwrap_or(false) {
        return;
    }
    let list = sockets();
    // A thread that is about to end has no place for it: the child may then find the list in
    // change, and leaves it.
    let _ = HELD.try_with(|held| *held.borrow_mut() = Some(list));
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(|held| held.borrow_mut().take());
}

extern "C" fn in_child() {
    let held = HELD.try_with(|held| held.borrow_mut().take()).ok().flatten();
    let (Some(mut list), null) = (held, NULL.load(Ordering::Acquire)) else { return };
    if null < 0 || !is_null(null) {
        return;
    }
    for socket in list.iter().filter(|socket| socket.is_open()) {
        // SAFETY: both numbers are open descriptors of this process, of which this is the only
        // thread. Where the system refuses, the child keeps the socket.
        unsafe { libc::dup3(null, socket.number, libc::O_CLOEXEC) };
    }
    // Without freeing: the allocator is as some other thread has left it.
    list.clear();
}

static SOCKETS: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
/// The replacement; below 0 until it has been opened.
static NULL: AtomicI32 = AtomicI32::new(-1);

thread_local! {
    /// The list, locked, in the thread that forks.
    static HELD: RefCell<Option<MutexGuard<'static, Vec<Kept>>>> = const { RefCell::new(None) };
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Forks a child that lives until it is told to end: by a byte, since a child of another test
    /// may hold copies of these pipes, which would not close.
    fn fork_child() -> (libc::pid_t, impl FnOnce()) {
        let (hold, mut held) = std::io::pipe().expect("a pipe");
        let (mut ready, begun) = std::io::pipe().expect("a pipe");
        // SAFETY: the child only reads from a pipe, writes to another and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut byte = [0];
            let _ = ((&begun).write(&byte), (&hold).read(&mut byte));
            // SAFETY: ends this process without running anything of the parent's.
            unsafe { libc::_exit(0) };
        }
        assert!(child > 0, "no memory for a child");
        assert_eq!(ready.read(&mut [0]).expect("it has begun"), 1);
        let end = move || {
            held.write_all(&[1]).expect("the child reads it");
            // SAFETY: waits for our own child.
            assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
        };
        (child, end)
    }

    #[test]
    fn a_child_holds_no_socket_that_was_named() {
        let [(own, mut other), (kept, mut of_kept), (closed, _)] =
            std::array::from_fn(|_| UnixStream::pair().expect("sockets"));
        close_in_children(&own);
        close_in_children(&closed);
        let number = closed.as_raw_fd();
        drop(closed);
        // Most likely under the number of the one that was closed, and nobody named it.
        let file = File::open("/proc/self/stat").expect("readable");
        let (child, end) = fork_child();
        let link = |number: RawFd| std::fs::read_link(format!("/proc/{child}/fd/{number}")).expect("open in the child");
        assert_eq!(link(own.as_raw_fd()).to_str(), Some("/dev/null"));
        assert!(link(kept.as_raw_fd()).to_string_lossy().starts_with("socket:"));
        assert!(!link(file.as_raw_fd()).to_string_lossy().contains("null"), "{number}");
        // The parent's end is the end, child or not.
        drop(own);
        let mut byte = [0];
        assert_eq!(other.read(&mut byte).expect("its end"), 0);
        of_kept.set_read_timeout(Some(std::time::Duration::from_millis(50))).expect("a limit");
        drop(kept);
        assert!(of_kept.read(&mut byte).is_err(), "the child holds the one that was not named");
        end();
    }

    #[test]
    fn a_fork_waits_for_a_socket_that_is_being_opened() {
        let (opening, begun) = std::sync::mpsc::channel();
        let (go_on, told) = std::sync::mpsc::channel::<()>();
        let opener = std::thread::spawn(move || {
            opened(|| {
                let (one, other) = UnixStream::pair()?;
                opening.send(one.as_raw_fd()).expect("heard");
                // Nobody tells; the other thread forks, or would, meanwhile.
                let _ = told.recv_timeout(std::time::Duration::from_millis(300));
                drop(other);
                std::io::Result::Ok(one)
            })
        });
        let number = begun.recv().expect("it opens one");
        let (child, end) = fork_child();
        let link = std::fs::read_link(format!("/proc/{child}/fd/{number}")).expect("open in the child");
        drop(go_on);
        end();
        assert_eq!(link.to_str(), Some("/dev/null"));
        opener.join().expect("no panic").expect("a socket");
    }

    #[test]
    fn closed_sockets_do_not_fill_the_list() {
        for _ in 0..1_000 {
            let (one, _) = UnixStream::pair().expect("sockets");
            close_in_children(&one);
        }
        assert!(sockets().len() < 100, "{}", sockets().len());
    }
}

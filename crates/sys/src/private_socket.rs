//! A socket of this host that accepts connections only from this user and root.
//!
//! It serves a run's `control.sock` and a recorder's socket. The socket's file has mode 600 before
//! anyone can connect, and the peer's credentials are checked as well, because a file system may
//! not preserve modes. Both ends address it relative to its open directory, because an address
//! holds only about a hundred bytes and directory paths can be longer.
//!
//! It does not check the directory; `files::OwnFolder` does.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{Mode, fchmod};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect as connect_to, listen as hear,
};
use rustix::process::geteuid;

use crate::fork;

/// Listens under this name in an open folder; accepts do not block.
///
/// # Errors
/// Returns an error if the name exists already, or if the system refuses.
pub fn listen(folder: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(short_path(&folder, name))?;
    let socket = fork::opened(|| socket(SocketFlags::NONBLOCK))?;
    // Before it has a name: the file that `bind` makes takes its mode from here.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &address)?;
    hear(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Connects to the socket of this name in an open folder, within `limit`; the listener must be this
/// user or root, or anybody if this user is root.
///
/// # Errors
/// Returns an error if there is no listener, or if it is another user.
pub fn connect(folder: impl AsFd, name: impl AsRef<OsStr>, limit: Duration) -> io::Result<UnixStream> {
    // The folder stays open until the end: its number is part of the address.
    let address = SocketAddrUnix::new(short_path(&folder, name))?;
    let socket = fork::opened(|| socket(SocketFlags::empty()))?;
    // Whoever does not accept must not hold this end up.
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    connect_to(&socket, &address)?;
    let stream = UnixStream::from(socket);
    if !is_heard(&stream)? && !geteuid().is_root() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another user listens there; run the command as that user",
        ));
    }
    Ok(stream)
}

/// Whether the process at the other end belongs to this user or root.
///
/// # Errors
/// Returns an error if the system does not tell.
pub fn is_heard(stream: &UnixStream) -> io::Result<bool> {
    let peer = socket_peercred(stream)?.uid;
    Ok(peer == geteuid() || peer.is_root())
}

fn socket(flags: SocketFlags) -> rustix::io::Result<rustix::fd::OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | flags, None)
}

/// The path of the socket through the open folder.
fn short_path(folder: impl AsFd, name: impl AsRef<OsStr>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd())).join(name.as_ref())
}

/// Clients that wait to be accepted.
const BACKLOG: i32 = 128;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_socket_is_this_users_alone_from_its_first_moment() {
        let folder = tempfile::tempdir().expect("a folder");
        let long = folder.path().join("x".repeat(200));
        std::fs::create_dir(&long).expect("a folder");
        let opened = File::open(&long).expect("a folder");
        // The mode of the file that `bind` makes, whatever the umask: between the two calls nobody
        // has changed it.
        let socket = socket(SocketFlags::empty()).expect("a socket");
        fchmod(&socket, Mode::RUSR | Mode::WUSR).expect("ours");
        bind(&socket, &SocketAddrUnix::new(short_path(&opened, "bound")).expect("short")).expect("bound");
        let listener = listen(&opened, "s.sock").expect("it listens");
        for name in ["bound", "s.sock"] {
            let mode = std::fs::metadata(long.join(name)).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert_eq!(listen(&opened, "s.sock").expect_err("taken").kind(), io::ErrorKind::AddrInUse);
        let asker = connect(&opened, "s.sock", Duration::from_secs(5)).expect("it listens");
        let (heard, _) = listener.accept().expect("somebody asks");
        assert!(is_heard(&heard).expect("known") && is_heard(&asker).expect("known"));
        let refused = connect(opened, "bound", Duration::from_secs(5)).expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "also where the folder is handed over");
    }
}

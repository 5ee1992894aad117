//! A folder that no other user can redirect. It is held open, its contents are opened relative to
//! its descriptor, and links in it are not followed.
//!
//! It protects a run's directory, sockets, recordings and all other output in a folder that the
//! program names itself. The folder must belong to this user or root and others must not be able to
//! write to it. Anything opened in it is a regular file owned by this user or root; no open blocks
//! waiting for another end, as on a pipe; and existing files are not truncated. Folders shared on
//! purpose, such as `/tmp`, are accepted if the sticky bit keeps users' files apart.
//!
//! It does not check the parent folders: a user who may rename this folder can hide it, but writes
//! continue into the folder that was opened.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};

use crate::atomic::{AtomicFile, OWN_FILE};
use crate::folders::{FOLDER_MODE, NewFolders};
use crate::links::follow_own_links;
use crate::owner;
use crate::place::Place;

/// An open folder that belongs to this user or to root.
///
/// Names are relative to it and may lead through folders in it, each of which is checked by the
/// same rule.
///
/// ```
/// use std::io::Write as _;
///
/// let parent = tempfile::tempdir()?;
/// let folder = probe_sync_files::OwnFolder::create(&parent.path().join("run"))?;
/// folder.make_folder("windows")?;
/// folder.create_new("windows/node0.jsonl")?.write_all(b"{}\n")?;
/// std::os::unix::fs::symlink("/etc/passwd", parent.path().join("run/lock"))?;
/// assert!(folder.open_or_create("lock").is_err(), "a link is not followed");
/// folder.write_whole("lock", b"")?;
/// assert!(folder.read("lock")?.metadata()?.len() == 0, "but may be replaced");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OwnFolder {
    path: PathBuf,
    descriptor: Arc<OwnedFd>,
    /// The user ID of this process's files here.
    user: u32,
}

impl OwnFolder {
    /// Opens a folder. A link to it is followed if this user or root created the link.
    ///
    /// # Errors
    /// Returns an error if it does not exist, or if another user could change what is in it: the
    /// message names the folder, its owner and mode, and what to do.
    pub fn open(path: &Path) -> io::Result<Self> {
        let descriptor = open_folder(path)?;
        let about = rustix::fs::fstat(&descriptor)?;
        let user = accepted_user(path, &descriptor, &about)?;
        if owner::others_may_write(&about)
            && !(owner::is_sticky(&about) && about.st_uid == 0)
            && !is_own_group(&about, user)
        {
            return Err(refused(path, &about));
        }
        Ok(Self { path: path.to_owned(), descriptor: Arc::new(descriptor), user })
    }

    /// Opens a folder of this user that others may not write, and creates it if it is missing. If
    /// it was created with a umask that lets others write, that permission is removed.
    ///
    /// # Errors
    /// Errors of [`Self::open`]; an error if the folder cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        NewFolders::create(path)?.keep();
        Self::take(path)
    }

    /// As [`Self::create`], for an existing folder.
    ///
    /// # Errors
    /// Errors of [`Self::open`].
    pub fn take(path: &Path) -> io::Result<Self> {
        let descriptor = open_folder(path)?;
        Self::close_to_others(path, descriptor)
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of an entry, for messages and for read-only uses.
    pub fn path_of(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Creates a folder in it, or opens the existing one.
    ///
    /// # Errors
    /// Errors of [`Self::create`]; links are not followed.
    pub fn make_folder(&self, name: impl AsRef<Path>) -> io::Result<Self> {
        let (folder, last) = self.parent_of(name.as_ref())?;
        match rustix::fs::mkdirat(&*folder.descriptor, &last, Mode::from_raw_mode(FOLDER_MODE)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Self::close_to_others(&folder.path_of(&last), folder.descend(&last)?)
    }

    /// Opens a folder in it.
    ///
    /// # Errors
    /// Errors of [`Self::open`]; links are not followed.
    pub fn folder(&self, name: impl AsRef<Path>) -> io::Result<Self> {
        let (folder, last) = self.parent_of(name.as_ref())?;
        let path = folder.path_of(&last);
        let descriptor = folder.descend(&last)?;
        let about = rustix::fs::fstat(&descriptor)?;
        if about.st_uid != folder.user && !owner::is_trusted(about.st_uid)
            || owner::others_may_write(&about) && !is_own_group(&about, folder.user)
        {
            return Err(refused(&path, &about));
        }
        Ok(Self { path, descriptor: Arc::new(descriptor), user: folder.user })
    }

    /// Opens a file in it for reading.
    ///
    /// # Errors
    /// Returns an error if it is missing, a link, not a regular file, or belongs to another user.
    pub fn read(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.opened(name.as_ref(), OFlags::RDONLY)
    }

    /// Creates a file in it.
    ///
    /// # Errors
    /// Returns an error if the name exists already, or if the file cannot be created.
    pub fn create_new(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let (folder, last) = self.parent_of(name.as_ref())?;
        Place::in_folder(folder.descriptor, last).create_new(OWN_FILE)
    }

    /// Opens a file in it for reading and appending, and creates it if it is missing.
    ///
    /// # Errors
    /// Errors of [`Self::read`]; an error for a file with another hard link.
    pub fn append(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.opened(name.as_ref(), OFlags::RDWR | OFlags::CREATE | OFlags::APPEND)
    }

    /// Opens a file in it for reading and writing, and creates it if it is missing; it is not
    /// truncated.
    ///
    /// # Errors
    /// Errors of [`Self::append`].
    pub fn open_or_create(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.opened(name.as_ref(), OFlags::RDWR | OFlags::CREATE)
    }

    /// Begins a file that appears in it under this name when it is complete, replacing whatever has
    /// the name then.
    ///
    /// # Errors
    /// Returns an error if the file beside it cannot be created.
    pub fn atomic(&self, name: impl AsRef<Path>) -> io::Result<AtomicFile> {
        let (folder, last) = self.parent_of(name.as_ref())?;
        let path = folder.path_of(&last);
        AtomicFile::in_folder(&path, Place::in_folder(folder.descriptor, last))
    }

    /// Writes a complete file in it, synced, then renamed.
    ///
    /// # Errors
    /// Errors of [`AtomicFile`].
    pub fn write_whole(&self, name: impl AsRef<Path>, content: &[u8]) -> io::Result<()> {
        let mut file = self.atomic(name)?;
        io::Write::write_all(&mut file, content)?;
        file.commit()
    }

    /// Whether it has an entry of this name, including a dangling link.
    pub fn contains(&self, name: impl AsRef<Path>) -> bool {
        self.place(name.as_ref()).is_ok_and(|place| place.stat().is_ok())
    }

    /// Renames a file or folder within it.
    ///
    /// # Errors
    /// Returns an error if it cannot be renamed.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        self.place(from.as_ref())?.rename(&self.place(to.as_ref())?)
    }

    /// Removes a file, a link or an empty folder in it; a missing one is not an error.
    ///
    /// # Errors
    /// Returns an error if it cannot be removed.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        self.place(name.as_ref())?.remove()
    }

    /// Opens the folder itself again, for example to lock it for as long as that descriptor is
    /// open.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn reopen(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&*self.descriptor, ".", flags, Mode::empty())?.into())
    }

    /// Whether the folder was removed: nothing can be created in it any more.
    ///
    /// # Errors
    /// Returns an error if the system cannot tell.
    pub fn is_removed(&self) -> io::Result<bool> {
        Ok(rustix::fs::fstat(&self.descriptor)?.st_nlink == 0)
    }

    /// Removes the write permission of others, if the folder belongs to this user.
    fn close_to_others(path: &Path, descriptor: OwnedFd) -> io::Result<Self> {
        let about = rustix::fs::fstat(&descriptor)?;
        let user = accepted_user(path, &descriptor, &about)?;
        if owner::others_may_write(&about) {
            let mode = Mode::from_raw_mode(about.st_mode & 0o7777 & !0o022);
            let changed = rustix::fs::fchmod(&descriptor, mode).and_then(|()| rustix::fs::fstat(&descriptor));
            if changed.map_or(true, |about| owner::others_may_write(&about)) {
                return Err(refused(path, &about));
            }
        }
        Ok(Self { path: path.to_owned(), descriptor: Arc::new(descriptor), user })
    }

    fn opened(&self, name: &Path, flags: OFlags) -> io::Result<File> {
        let (folder, last) = self.parent_of(name)?;
        // Without O_NONBLOCK a pipe would wait for its other end.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&*folder.descriptor, &last, flags, OWN_FILE) {
            Err(rustix::io::Errno::LOOP) => {
                return Err(io::Error::other("it is a link, and links are not followed here; remove it"));
            }
            Err(rustix::io::Errno::NXIO) => return Err(not_regular()),
            other => other?,
        };
        let about = rustix::fs::fstat(&file)?;
        if !FileType::from_raw_mode(about.st_mode).is_file() {
            return Err(not_regular());
        }
        if about.st_uid != folder.user && !owner::is_trusted(about.st_uid) {
            let reason = format!("user {} created this file; remove it", about.st_uid);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        if flags.contains(OFlags::RDWR) && about.st_nlink > 1 {
            return Err(io::Error::other("this file has another name elsewhere (a hard link); remove it"));
        }
        Ok(file.into())
    }

    fn place(&self, name: &Path) -> io::Result<Place> {
        let (folder, last) = self.parent_of(name)?;
        Ok(Place::in_folder(folder.descriptor, last))
    }

    /// The folder with the last component of a name, and that component.
    fn parent_of(&self, name: &Path) -> io::Result<(Self, PathBuf)> {
        let mut parts = name.components();
        let plain = |part: Component<'_>| match part {
            Component::Normal(part) => Ok(PathBuf::from(part)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "a name in a folder does not lead out of it")),
        };
        let last = parts
            .next_back()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "an empty name"))
            .and_then(plain)?;
        let folder = parts.try_fold(self.clone(), |folder, part| folder.folder(plain(part)?))?;
        Ok((folder, last))
    }

    fn descend(&self, name: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&*self.descriptor, name, flags, Mode::empty())?)
    }
}

impl AsFd for OwnFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Opens a folder; a link to it is followed if this user or root created it.
fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, &follow_own_links(path)?, flags, Mode::empty())?)
}

/// The user ID of this process's files in a folder owned by its user or root.
fn accepted_user(path: &Path, descriptor: &OwnedFd, about: &Stat) -> io::Result<u32> {
    if owner::is_trusted(about.st_uid) {
        return Ok(rustix::process::geteuid().as_raw());
    }
    // Where the file system numbers users in its own way, a new file shows who this one is there.
    match owner::of_new_files(descriptor) {
        Ok(user) if user == about.st_uid => Ok(user),
        _ => Err(refused(path, about)),
    }
}

/// Whether only the group, besides the user, may write a folder of this user: with umask 002 that
/// is the user's private group, or one that the user has chosen.
fn is_own_group(about: &Stat, user: u32) -> bool {
    about.st_mode & 0o002 == 0 && about.st_uid == user
}

fn refused(path: &Path, about: &Stat) -> io::Error {
    let (path, user, mode) = (path.display(), about.st_uid, about.st_mode & 0o7777);
    let remedy = if owner::is_trusted(user) {
        "remove their permission (chmod go-w), or choose a folder of your own in it"
    } else {
        "choose a folder of your own"
    };
    let reason = format!(
        "{path} belongs to user {user} and has mode {mode:04o}: other users could change what is in it; {remedy}"
    );
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

fn not_regular() -> io::Error {
    io::Error::other("it is not a regular file; remove it")
}

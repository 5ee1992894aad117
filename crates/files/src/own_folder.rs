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

/// A folder of this user's own, or of root's, held open.
///
/// Names are relative to it and may lead through folders in it, each of which is judged by the same
/// rule.
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
    /// Whose number this process's files have here.
    user: u32,
}

impl OwnFolder {
    /// Opens a folder. A link to it is followed where this user or root has made the link.
    ///
    /// # Errors
    /// It is not there, or another user could change what is in it: the message names the folder,
    /// its owner and mode, and what to do.
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

    /// Opens a folder of one's own that others may not write, and makes it where it is missing.
    /// Where it was made under a umask that lets others write, that permission is taken away.
    ///
    /// # Errors
    /// Those of [`Self::open`], and the folder cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        NewFolders::create(path)?.keep();
        Self::take(path)
    }

    /// As [`Self::create`], of a folder that is there.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn take(path: &Path) -> io::Result<Self> {
        let descriptor = open_folder(path)?;
        Self::close_to_others(path, descriptor)
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of something in it, for messages and for those who only look.
    pub fn path_of(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Makes a folder in it, or takes the one that is there.
    ///
    /// # Errors
    /// Those of [`Self::create`]; a link is not followed.
    pub fn make_folder(&self, name: impl AsRef<Path>) -> io::Result<Self> {
        let (folder, last) = self.parent_of(name.as_ref())?;
        match rustix::fs::mkdirat(&*folder.descriptor, &last, Mode::from_raw_mode(FOLDER_MODE)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Self::close_to_others(&folder.path_of(&last), folder.descend(&last)?)
    }

    /// A folder in it.
    ///
    /// # Errors
    /// Those of [`Self::open`]; a link is not followed.
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
    /// It is missing, a link, no regular file, or another user's.
    pub fn read(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.opened(name.as_ref(), OFlags::RDONLY)
    }

    /// Makes a file in it.
    ///
    /// # Errors
    /// Something of that name is there already, or it cannot be made.
    pub fn create_new(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let (folder, last) = self.parent_of(name.as_ref())?;
        Place::in_folder(folder.descriptor, last).create_new(OWN_FILE)
    }

    /// Opens a file in it for reading and appending, and makes it where it is missing.
    ///
    /// # Errors
    /// Those of [`Self::read`], and a file that has another name elsewhere.
    pub fn append(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.opened(name.as_ref(), OFlags::RDWR | OFlags::CREATE | OFlags::APPEND)
    }

    /// Opens a file in it for reading and writing, and makes it where it is missing; it is not
    /// emptied.
    ///
    /// # Errors
    /// Those of [`Self::append`].
    pub fn open_or_create(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.opened(name.as_ref(), OFlags::RDWR | OFlags::CREATE)
    }

    /// Begins a file that appears in it under this name when it is whole, in place of whatever has
    /// the name then.
    ///
    /// # Errors
    /// The file beside it cannot be made.
    pub fn atomic(&self, name: impl AsRef<Path>) -> io::Result<AtomicFile> {
        let (folder, last) = self.parent_of(name.as_ref())?;
        let path = folder.path_of(&last);
        AtomicFile::in_folder(&path, Place::in_folder(folder.descriptor, last))
    }

    /// Writes a whole file in it, synced, then renamed.
    ///
    /// # Errors
    /// Those of [`AtomicFile`].
    pub fn write_whole(&self, name: impl AsRef<Path>, content: &[u8]) -> io::Result<()> {
        let mut file = self.atomic(name)?;
        io::Write::write_all(&mut file, content)?;
        file.commit()
    }

    /// Whether something of this name is in it, be it a link that leads nowhere.
    pub fn contains(&self, name: impl AsRef<Path>) -> bool {
        self.place(name.as_ref()).is_ok_and(|place| place.stat().is_ok())
    }

    /// Renames a file or folder within it.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        self.place(from.as_ref())?.rename(&self.place(to.as_ref())?)
    }

    /// Removes a file, a link or an empty folder in it; a missing one is no error.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        self.place(name.as_ref())?.remove()
    }

    /// Opens the folder itself once more, as to lock it for as long as that descriptor is open.
    ///
    /// # Errors
    /// The system refuses.
    pub fn reopen(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&*self.descriptor, ".", flags, Mode::empty())?.into())
    }

    /// Whether the folder was removed: nothing can be made in it any more.
    ///
    /// # Errors
    /// The system does not say.
    pub fn is_removed(&self) -> io::Result<bool> {
        Ok(rustix::fs::fstat(&self.descriptor)?.st_nlink == 0)
    }

    /// Takes the permission to write from others, where it is this user's folder.
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

    /// The folder in which a name's last part is, and that part.
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

/// Opens a folder; a link to it is followed where this user or root has made it.
fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, &follow_own_links(path)?, flags, Mode::empty())?)
}

/// Whose number this process's files have in a folder that its user or root owns.
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

/// Whether only the group may write a folder of this user's: where umask is 002, that is the user's
/// own group, or one that the user has chosen.
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

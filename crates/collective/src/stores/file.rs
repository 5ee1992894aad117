//! A file that all ranks can see.
//!
//! It implements [`super::Store`]. The file is written atomically and only its owner can read it; a
//! file that others can read or may have written is rejected. On a file system that shows a rename
//! to other hosts late, readers find the file only when they look again.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use probe_sync_files::follow_own_links;
use rustix::fs::OFlags;

use super::kept::{Store, VALUE_MAX};
use crate::{Deadline, Error, random_bytes};

/// A shared file.
#[derive(Debug)]
pub struct FileStore(PathBuf);

impl FileStore {
    /// Creates a store in the file at this path, whose folder must exist.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    fn refused(&self, what: &str, reason: &dyn ToString) -> Error {
        Error::Setup { what: format!("cannot {what} {}", self.0.display()), reason: reason.to_string() }
    }
}

impl Store for FileStore {
    fn put(&mut self, value: &[u8], _: &Deadline) -> Result<(), Error> {
        let drawn = u64::from_le_bytes(random_bytes()?);
        let path = follow_own_links(&self.0).map_err(|error| self.refused("write", &error))?;
        let mut beside = path.clone().into_os_string();
        beside.push(format!(".{drawn:016x}.partial"));
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(value)?;
            file.sync_all()?;
            fs::rename(&beside, &path)
        };
        write().map_err(|error: io::Error| {
            // It may never have been there.
            let _ = fs::remove_file(&beside);
            self.refused("write", &format!("{error}; choose a file in a folder that all ranks can see and write to"))
        })
    }

    fn find(&mut self, _: &Deadline) -> Result<Option<Vec<u8>>, Error> {
        let path = follow_own_links(&self.0).map_err(|error| self.refused("trust", &error))?;
        // A pipe of that name would wait for its other end.
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => file,
            // Not there yet, or replaced on another host just now (ESTALE).
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(self.refused("read", &error)),
            Err(_) => return Ok(None),
        };
        let about = file.metadata().map_err(|error| self.refused("read", &error))?;
        if !about.is_file() || about.uid() != rustix::process::geteuid().as_raw() || about.mode() & 0o077 != 0 {
            let reason = "it is not owned by this user with mode 600, so others may have written it; remove it";
            return Err(self.refused("trust", &reason));
        }
        let mut value = Vec::new();
        match file.take(VALUE_MAX as u64).read_to_end(&mut value) {
            Ok(_) => Ok(Some(value)),
            Err(_) => Ok(None),
        }
    }

    fn name(&self) -> String {
        format!("the file {}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_another_user_may_have_left_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("rendezvous");
        let mut store = FileStore::new(path.clone());
        let deadline = Deadline::new(Duration::from_secs(60), None);
        assert_eq!(store.find(&deadline).expect("nothing yet"), None);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("coreutils").success());
        let error = store.find(&deadline).expect_err("a pipe").to_string();
        assert!(error.contains("mode 600") && error.contains("remove it"), "{error}");
        store.put(b"id", &deadline).expect("it is replaced");
        assert_eq!(store.find(&deadline).expect("our own").as_deref(), Some(&b"id"[..]));
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").expect("writable");
        fs::remove_file(&path).expect("ours");
        std::os::unix::fs::symlink(&victim, &path).expect("a link");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(&path, Some(54_321), None).expect("root may");
            for error in
                [store.put(b"id", &deadline).expect_err("foreign"), store.find(&deadline).expect_err("foreign")]
            {
                assert!(error.to_string().contains("link created by user 54321"), "{error}");
            }
            assert_eq!(fs::read(&victim).expect("untouched"), b"precious");
        } else {
            println!("skipped: only root can give a link to another user");
        }
    }
}

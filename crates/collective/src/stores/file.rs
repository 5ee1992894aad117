//! A file that all ranks see.
//!
//! Place in the flow: [`super::Store`]. It appears whole or not at all, and only its owner reads it; one that others may have written or can read is refused.
//! What it does not do: work on a file system that shows other hosts a rename late; they look again.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use super::kept::{Store, VALUE_MAX};
use crate::{Deadline, Error, random_bytes};

/// A shared file.
#[derive(Debug)]
pub struct FileStore(PathBuf);

impl FileStore {
    /// The file at this path; its folder must be there.
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
        let mut beside = self.0.clone().into_os_string();
        beside.push(format!(".{drawn:016x}.partial"));
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(value)?;
            file.sync_all()?;
            fs::rename(&beside, &self.0)
        };
        write().map_err(|error: io::Error| {
            // It may never have been there.
            let _ = fs::remove_file(&beside);
            self.refused("write", &format!("{error}; name a file in a folder that all ranks see and may write to"))
        })
    }

    fn find(&mut self, _: &Deadline) -> Result<Option<Vec<u8>>, Error> {
        let file = match fs::File::open(&self.0) {
            Ok(file) => file,
            // Not there yet, or replaced on another host just now (ESTALE).
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(self.refused("read", &error)),
            Err(_) => return Ok(None),
        };
        let about = file.metadata().map_err(|error| self.refused("read", &error))?;
        if !about.is_file() || about.uid() != rustix::process::geteuid().as_raw() || about.mode() & 0o077 != 0 {
            let reason = "it is not this user's own file with mode 600, so others may have written it; remove it";
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

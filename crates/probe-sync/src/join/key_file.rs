//! The secret that a user gives to all ranks, and the keys derived from it.
//!
//! With `--key-file` the ranks of the TCP rendezvous prove to each other that they have it
//! (`JobKey`), hellos carry its fingerprint, and the session key is derived from it and from rank
//! 0's random bytes, so no secret is transmitted. Without it the session key itself is transmitted,
//! over MPI or TCP, and anyone who can read that traffic has it.
//!
//! It does not create a key; `head -c 32 /dev/urandom` does.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use probe_sync_collective::JobKey;
use probe_sync_time::{RunId, SessionKey};

use crate::Error;

/// Content of a key file; it exposes nothing but keys derived from it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyFile {
    content: Vec<u8>,
}

impl KeyFile {
    /// Reads a key file.
    ///
    /// # Errors
    /// [`Error::Configuration`] if it cannot be read, is not a regular file, is accessible to
    /// others, or is too short or too long.
    pub fn read(path: &Path) -> Result<Self, Error> {
        read(path).map(|content| Self { content }).map_err(|reason| Error::Configuration {
            origin: path.display().to_string(),
            key: "key_file".into(),
            reason,
        })
    }

    /// Returns the key with which ranks authenticate in the TCP rendezvous.
    pub fn job_key(&self) -> JobKey {
        JobKey::of(&self.content)
    }

    /// Returns the session key of a run for which rank 0 drew `drawn`.
    pub(super) fn session_key(&self, run: RunId, drawn: SessionKey) -> SessionKey {
        let key = blake3::derive_key(SESSION, &self.content);
        let mut hasher = blake3::Hasher::new_keyed(&key);
        hasher.update(&run.0.to_le_bytes()).update(&drawn.0);
        SessionKey(*hasher.finalize().as_bytes())
    }

    /// Returns a value that is equal for equal files and reveals nothing else.
    pub(super) fn fingerprint(&self) -> [u8; FINGERPRINT] {
        let mut fingerprint = [0; FINGERPRINT];
        fingerprint.copy_from_slice(&blake3::derive_key(CHECK, &self.content)[..FINGERPRINT]);
        fingerprint
    }
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFile(..)")
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    // Opening a pipe would wait for a writer.
    if !path.metadata().map_err(cannot)?.is_file() {
        return Err("is not a regular file".into());
    }
    let file = File::open(path).map_err(cannot)?;
    let mode = file.metadata().map_err(cannot)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "is accessible to other users (mode {mode:04o}): run chmod 600 on it, and create a new key if others may have read it"
        ));
    }
    let mut content = Vec::new();
    file.take(BYTES.end as u64).read_to_end(&mut content).map_err(cannot)?;
    if !BYTES.contains(&content.len()) {
        let (least, most) = (BYTES.start, BYTES.end - 1);
        return Err(format!(
            "must have {least} to {most} bytes; create it with: head -c {least} /dev/urandom > FILE; chmod 600 FILE"
        ));
    }
    Ok(content)
}

/// Valid lengths of a key file: fewer bytes could be guessed, and more are not a key.
const BYTES: std::ops::Range<usize> = 32..4097;
const FINGERPRINT: usize = 16;
/// Separates the keys derived from one secret for several purposes.
const SESSION: &str = "probe_sync 2026-11-22 session";
const CHECK: &str = "probe_sync 2026-11-22 fingerprint";

#[cfg(test)]
pub(super) mod tests {
    use std::fs::{Permissions, set_permissions, write};

    use super::*;

    /// Returns a key as if read from a file.
    pub fn key(content: &[u8]) -> KeyFile {
        KeyFile { content: content.to_vec() }
    }

    fn check(content: &[u8], mode: u32, expected: Result<usize, &str>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        write(&path, content).expect("writable");
        set_permissions(&path, Permissions::from_mode(mode)).expect("our own file");
        match (KeyFile::read(&path), expected) {
            (Ok(key), Ok(length)) => assert_eq!(key.content.len(), length),
            (Err(error), Err(part)) => {
                let text = error.to_string();
                assert!(text.contains(part) && text.contains("key: key_file"), "{text} lacks {part}");
            }
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn a_key_file_is_secret_and_long_enough() {
        check(&[1; 32], 0o600, Ok(32));
        check(&[1; 4096], 0o400, Ok(4096));
        check(&[1; 31], 0o600, Err("32 to 4096 bytes"));
        check(&[1; 4097], 0o600, Err("32 to 4096 bytes"));
        check(&[1; 32], 0o640, Err("mode 0640"));
        check(&[1; 32], 0o604, Err("chmod 600"));
        let error = KeyFile::read(Path::new("/no/such/key")).expect_err("no file").to_string();
        assert!(error.contains("/no/such/key") && error.contains("cannot be read"), "{error}");
        let error = KeyFile::read(Path::new("/dev")).expect_err("a folder").to_string();
        assert!(error.contains("regular file"), "{error}");
    }

    #[test]
    fn keys_hang_on_the_file_the_run_and_what_was_drawn() {
        let (one, other) = (key(&[1; 32]), key(&[2; 32]));
        let drawn = SessionKey([9; 32]);
        let keys = [
            drawn,
            one.session_key(RunId(1), drawn),
            one.session_key(RunId(2), drawn),
            one.session_key(RunId(1), SessionKey([8; 32])),
            other.session_key(RunId(1), drawn),
        ];
        for (index, own) in keys.iter().enumerate() {
            assert!(keys[..index].iter().all(|earlier| earlier.0 != own.0), "key {index} is one of the others");
        }
        assert_eq!(one.fingerprint(), key(&[1; 32]).fingerprint());
        assert_ne!(one.fingerprint(), other.fingerprint());
        assert_eq!(format!("{one:?}"), "KeyFile(..)");
    }
}

//! Parts of collective operations on disk, as fixed-size records in one unnamed file.
//!
//! [`super::CollectiveParts`] writes sorted runs here once it holds many parts, and reads them back
//! in order. All traces of a command share one file, because a thousand traces would need a
//! thousand descriptors. The file is created in the directory for temporary files (`TMPDIR`) when
//! the first run is written. Its name is removed at once, so that nothing is left behind however
//! the program ends. A [`Region`] that is no longer in use is reused for one of the same length, so
//! merging runs does not make the file grow each time.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::model::collective::Recipients;
use crate::model::time::Picoseconds;

/// The file that traces share; clones refer to the same file.
#[derive(Clone, Debug, Default)]
pub struct Spill(Arc<Mutex<Option<Arc<SpillFile>>>>);

/// The file, and its used regions.
#[derive(Debug)]
struct SpillFile {
    file: File,
    space: Mutex<Space>,
}

#[derive(Debug, Default)]
struct Space {
    length: u64,
    /// Free regions, by length.
    free: BTreeMap<u64, Vec<u64>>,
}

/// A place for records in the file.
#[derive(Debug)]
pub(super) struct Region {
    file: Arc<SpillFile>,
    at: u64,
    bytes: u64,
}

impl Spill {
    /// Reserves a region for this many records. The file is created on first use.
    pub(super) fn reserve(&self, records: usize) -> io::Result<Region> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &*slot {
            Some(file) => Arc::clone(file),
            None => {
                let made = Arc::new(SpillFile { file: nameless()?, space: Mutex::default() });
                *slot = Some(Arc::clone(&made));
                made
            }
        };
        drop(slot);
        let bytes = (records * RECORD_BYTES) as u64;
        let mut space = file.space.lock().unwrap_or_else(PoisonError::into_inner);
        let again = space.free.get_mut(&bytes).and_then(Vec::pop);
        let at = again.unwrap_or(space.length);
        space.length = space.length.max(at + bytes);
        drop(space);
        Ok(Region { file, at, bytes })
    }

    /// Final length of the file.
    #[cfg(test)]
    pub(super) fn length(&self) -> u64 {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().map_or(0, |file| file.space.lock().unwrap_or_else(PoisonError::into_inner).length)
    }
}

impl Region {
    /// Writes records from the `first` on.
    pub(super) fn write(&self, first: usize, records: &[Record]) -> io::Result<()> {
        let bytes: Vec<u8> = records.iter().flat_map(Record::encode).collect();
        self.file.file.write_all_at(&bytes, self.at + (first * RECORD_BYTES) as u64)
    }

    /// Reads `count` records from the `first` on.
    pub(super) fn read(&self, first: usize, count: usize) -> io::Result<Vec<Record>> {
        let mut bytes = vec![0; count * RECORD_BYTES];
        self.file.file.read_exact_at(&mut bytes, self.at + (first * RECORD_BYTES) as u64)?;
        Ok(bytes.as_chunks().0.iter().map(Record::decode).collect())
    }

    /// Makes it unreadable.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn lose(&mut self) {
        self.at = 1 << 50;
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let mut space = self.file.space.lock().unwrap_or_else(PoisonError::into_inner);
        space.free.entry(self.bytes).or_default().push(self.at);
    }
}

/// Creates a file that no other process can open and that disappears with its last user.
pub fn nameless() -> io::Result<File> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("probe_sync_parts.{}.{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// One part as stored: its label by number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) label: u32,
    pub(super) number: i64,
    pub(super) start_ps: Picoseconds,
    pub(super) end_ps: Picoseconds,
    /// Place among all parts of the file.
    pub(super) ordinal: u64,
    pub(super) recipients: Recipients,
}

impl Record {
    /// The order in which parts of one label are read back.
    pub(super) fn key(&self) -> (i64, Picoseconds, Picoseconds, u64) {
        (self.number, self.start_ps, self.end_ps, self.ordinal)
    }

    fn encode(&self) -> [u8; RECORD_BYTES] {
        let (tag, members) = match self.recipients {
            Recipients::All => (0u32, 0),
            Recipients::Members(members) => (1, members),
            Recipients::Unknown => (2, 0),
        };
        let mut bytes = [0; RECORD_BYTES];
        bytes[..16].copy_from_slice(&self.start_ps.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.end_ps.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.number.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.ordinal.to_le_bytes());
        bytes[48..56].copy_from_slice(&members.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.label.to_le_bytes());
        bytes[60..].copy_from_slice(&tag.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; RECORD_BYTES]) -> Record {
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let wide = |at: usize| i128::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let short = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let recipients = match short(60) {
            0 => Recipients::All,
            1 => Recipients::Members(long(48)),
            _ => Recipients::Unknown,
        };
        Record {
            label: short(56),
            number: long(32) as i64,
            start_ps: wide(0),
            end_ps: wide(16),
            ordinal: long(40),
            recipients,
        }
    }
}

/// Bytes of a record in the file.
const RECORD_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_went() {
        let record = |label: u32, recipients| Record {
            label,
            number: -7,
            start_ps: -(1 << 100),
            end_ps: (1 << 99) + 5,
            ordinal: u64::MAX - 1,
            recipients,
        };
        let records = [
            record(1, Recipients::All),
            record(u32::MAX, Recipients::Members(0x8000_0000_0000_0001)),
            record(0, Recipients::Unknown),
        ];
        let spill = Spill::default();
        let first = spill.reserve(1).expect("a place");
        first.write(0, &records[..1]).expect("written");
        let second = spill.clone().reserve(3).expect("a place");
        assert_eq!((first.at, second.at), (0, RECORD_BYTES as u64), "clones share one file");
        second.write(1, &records[1..]).expect("written");
        second.write(0, &records[..1]).expect("written");
        assert_eq!(first.read(0, 1).expect("read"), records[..1]);
        assert_eq!(second.read(0, 3).expect("read"), records);
        assert_eq!(second.read(2, 1).expect("read"), records[2..]);
        assert!(second.read(0, 4).is_err(), "past the end");
        // What nobody holds any more is used again, by one of the same length.
        drop(first);
        assert_eq!(spill.reserve(2).expect("a place").at, 4 * RECORD_BYTES as u64);
        assert_eq!(spill.reserve(1).expect("a place").at, 0);
        assert_eq!((spill.length(), Spill::default().length()), (6 * RECORD_BYTES as u64, 0));
    }
}

//! The choice of a journal mode that the file system supports.
//!
//! It is made once, when a database is created. With SQLite's write-ahead log (WAL), readers and
//! the writer share memory through a mapped file, which works only among processes of one host; on
//! Lustre and NFS a reader on another host would see a corrupt database. There the writer uses a
//! rollback journal, whose locks those file systems support. It does not detect whether locks work:
//! a Lustre mount without `flock` has none, and SQLite then refuses to open the file.

use std::io;
use std::path::Path;

/// How a database is kept consistent if a process or machine dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Journal {
    /// A write-ahead log: readers never wait. Only for local file systems.
    WriteAhead,
    /// A rollback journal: a reader waits while a commit is written. Works everywhere.
    Rollback,
}

impl Journal {
    /// Returns the journal for files in `folder`.
    ///
    /// # Errors
    /// Returns an error if the system does not tell the file system of the folder.
    pub fn for_folder(folder: &Path) -> io::Result<Self> {
        let kind = rustix::fs::statfs(folder)?.f_type;
        // The word is 32 or 64 bits wide, signed or not, by architecture; the numbers have 32 bits.
        Ok(Self::for_kind(kind as u32))
    }

    fn for_kind(kind: u32) -> Self {
        // An unknown file system may be shared between hosts.
        if LOCAL.contains(&kind) { Self::WriteAhead } else { Self::Rollback }
    }
}

/// `f_type` of file systems that only one host mounts (statfs(2)).
const LOCAL: [u32; 9] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x794c_7630, // overlayfs
    0x2fc1_2fc1, // zfs
    0xf2f5_2010, // f2fs
    0x8584_58f6, // ramfs
    0xca45_1a4e, // bcachefs
];

#[cfg(test)]
mod tests {
    use super::Journal;

    #[test]
    fn shared_file_systems_have_a_rollback_journal() {
        for (kind, expected) in [
            (0x0bd0_0bd0, Journal::Rollback), // Lustre
            (0x6969, Journal::Rollback),      // NFS
            (0xfe53_4d42, Journal::Rollback), // SMB2
            (0x6573_5546, Journal::Rollback), // FUSE: whatever is behind it
            (0x4750_4653, Journal::Rollback), // GPFS
            (0xef53, Journal::WriteAhead),
            (0x5846_5342, Journal::WriteAhead),
            (0x0102_1994, Journal::WriteAhead),
        ] {
            assert_eq!(Journal::for_kind(kind), expected, "{kind:#x}");
        }
    }
}

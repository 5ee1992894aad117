//! Detects gzip files by their first two bytes, not by their names.

use std::fs::File;
use std::io::{Read, Seek};

/// The first `most` bytes of a file; the file is back at its beginning afterwards.
pub fn head(file: &mut File, most: usize) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(most);
    Read::by_ref(file).take(most as u64).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head)
}

/// Whether a file that begins with `head` is packed.
pub fn is_packed(head: &[u8]) -> bool {
    head.starts_with(&MAGIC)
}

/// First bytes of a gzip file.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

//! Reads a dump from its file, and the rank from the file's name.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use probe_sync_hang::{Dump, DumpError, MAX_BYTES, rank_in_name};

use crate::{Error, gzip};

/// A dump and the rank that wrote it, if the file's name ends with one.
pub(super) struct RankDump {
    pub(super) dump: Dump,
    pub(super) rank: Option<u32>,
}

/// Reads a file, plain or gzip.
///
/// # Errors
/// Names the file and the byte; refuses a dump whose groups do not have the rank as a member.
pub(super) fn read(path: &Path) -> Result<RankDump, Error> {
    let mut file = File::open(path).map_err(Error::io(path, "open"))?;
    let is_packed = gzip::is_packed(&gzip::head(&mut file, 2).map_err(Error::io(path, "read"))?);
    let mut input: Box<dyn Read> = if is_packed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let mut bytes = Vec::new();
    let most = MAX_BYTES as u64 + 1;
    input.by_ref().take(most).read_to_end(&mut bytes).map_err(Error::io(path, "read"))?;
    let refused = |error| match error {
        DumpError::Malformed { position, problem } => Error::malformed(path, position, problem),
        other => Error::malformed(path, 0, other.to_string()),
    };
    let dump = Dump::read(&bytes).map_err(refused)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let rank = rank_in_name(name.strip_suffix(".gz").unwrap_or(&name));
    if let Some(rank) = rank {
        dump.refuse_other_rank(rank).map_err(refused)?;
    }
    Ok(RankDump { dump, rank })
}

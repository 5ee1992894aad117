//! One module per file format; each reads facts, rewrites times, and merges. [`Format`] tells which one a file is.

pub mod kineto;
pub mod xspace;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Serialize;

use crate::Error;
use crate::model::TraceFacts;

/// A format of trace files.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// XSpace protobuf, as JAX and xprof write it.
    XSpace,
    /// Chrome JSON, as PyTorch's Kineto writes it.
    Kineto,
}

impl Format {
    /// The format of a file: by its name where that says so, else by its first bytes, unpacked where they are gzip. JSON
    /// begins with a brace or a bracket, an XSpace with the tag of a field (the first of which is also a line feed).
    ///
    /// # Errors
    /// When the file cannot be read or begins like neither.
    pub fn detect(path: &Path) -> Result<Self, Error> {
        let mut file = File::open(path).map_err(Error::io(path, "open"))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let name = name.trim_end_matches(".gz");
        if name.ends_with(".pb") {
            return Ok(Self::XSpace);
        }
        if name.ends_with(".json") {
            return Ok(Self::Kineto);
        }
        let mut head = Vec::with_capacity(HEAD_BYTES);
        file.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(Error::io(path, "read"))?;
        if head.starts_with(&GZIP_MAGIC) {
            let mut unpacked = Vec::with_capacity(HEAD_BYTES);
            let packed = std::io::Cursor::new(&head).chain(file);
            let mut reader = flate2::read::MultiGzDecoder::new(packed).take(HEAD_BYTES as u64);
            reader.read_to_end(&mut unpacked).map_err(Error::io(path, "unpack"))?;
            head = unpacked;
        }
        let text = head.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(&head);
        match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{' | b'[') => Ok(Self::Kineto),
            // Fields 1 to 4 of an XSpace are all length-delimited.
            _ if matches!(head.first(), Some(0x0a | 0x12 | 0x1a | 0x22)) => Ok(Self::XSpace),
            Some(_) => Err(Error::malformed(path, 0, "begins like neither JSON nor an XSpace protobuf")),
            None => Err(Error::malformed(path, 0, "holds nothing but spaces at its beginning")),
        }
    }

    /// Refuses an output whose name promises another format than is going to be written.
    ///
    /// # Errors
    /// [`Error::Nodes`] with the endings that fit.
    pub fn refuse_other_ending(self, output: &Path) -> Result<(), Error> {
        let name = output.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let (wrong, right) = match self {
            Self::XSpace => ([".json", ".gz"], ".xplane.pb"),
            Self::Kineto => ([".pb", ".pb.gz"], ".json or .json.gz"),
        };
        if wrong.iter().any(|ending| name.ends_with(ending)) {
            let problem = format!("{}: the traces' format wants a name that ends in {right}", output.display());
            return Err(Error::Nodes { problem });
        }
        Ok(())
    }

    /// What the file says of itself, its clock and its collectives.
    ///
    /// # Errors
    /// Names file and byte.
    pub fn read_facts(self, path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
        match self {
            Self::XSpace => xspace::read_facts(path, options),
            Self::Kineto => kineto::read_facts(path, options),
        }
    }
}

/// What a reader of facts is told beyond the file.
#[derive(Clone, Debug, Default)]
pub struct FactOptions {
    /// Further clock markers: event names that match, with the system time, ns, in the group named `system_ns`.
    pub markers: Option<regex::Regex>,
}

const HEAD_BYTES: usize = 4096;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

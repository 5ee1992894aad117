//! Addresses as functions, files and lines, from the debug information of the program's files.
//!
//! The hook works in the recording process or later in another one, as long as the files are still
//! those that ran: their build IDs must be those that were recorded. If a file has no debug
//! information, an address gets the function that the file's symbols name, or else its position in
//! the file.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use addr2line::{Loader, demangle_auto};

use super::modules::{ModuleMap, add_stacks};
use super::{Additions, Hook};
use crate::error::Error;
use crate::read::Recording;
use crate::session::modules::{Module, build_id};
use crate::tree::Item;

/// Adds to each stack, as `call_stack`, functions with file and line, innermost first; inlined
/// functions have a line of their own.
#[derive(Default)]
pub struct Symbols {
    modules: ModuleMap,
    /// By path and build ID: a file may have been replaced and loaded again.
    files: BTreeMap<(String, String), Binary>,
    names: HashMap<u64, String>,
}

/// A file that ran.
struct Binary {
    /// `Err`: why it does not name anything.
    loader: Result<Loader, String>,
    /// It is not known to be unchanged.
    unverified: bool,
    /// Addresses looked up.
    addresses: u64,
}

impl Binary {
    fn of(module: &Module) -> Self {
        let unverified = module.build_id.is_empty();
        let loader = match of_file(&module.path) {
            Err(error) => Err(format!("cannot be read: {error}")),
            Ok(found) if !unverified && found.as_deref() != Some(&module.build_id) => Err(CHANGED.to_owned()),
            Ok(_) => Loader::new(&module.path).map_err(|error| format!("cannot be read: {error}")),
        };
        Self { loader, unverified, addresses: 0 }
    }

    fn note(&self, path: &str) -> Option<String> {
        match &self.loader {
            Err(reason) => Some(format!("{path} {reason}; {} of its addresses have no names", self.addresses)),
            Ok(_) if self.unverified => Some(format!("{path} {UNVERIFIED}")),
            Ok(_) => None,
        }
    }
}

impl std::fmt::Debug for Symbols {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Symbols").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

impl Hook for Symbols {
    fn name(&self) -> &str {
        "symbols"
    }

    fn begin(&mut self, recording: &Recording) -> Result<(), Error> {
        self.modules = ModuleMap::of(recording);
        self.names.clear();
        self.files.clear();
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        self.files.iter().filter_map(|((path, _), file)| file.note(path)).collect()
    }

    fn event(&mut self, item: &Item<'_>, additions: &mut Additions) {
        add_stacks(item, additions, |address| self.named(address));
    }
}

impl Symbols {
    fn named(&mut self, address: u64) -> String {
        if let Some(known) = self.names.get(&address) {
            return known.clone();
        }
        let name = self.look_up(address).unwrap_or_else(|| self.modules.place(address));
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        self.names.insert(address, name.clone());
        name
    }

    fn look_up(&mut self, address: u64) -> Option<String> {
        let (module, own) = self.modules.find(address)?;
        let key = (module.path.clone(), module.build_id.clone());
        let file = self.files.entry(key).or_insert_with(|| Binary::of(module));
        file.addresses += 1;
        let file = file.loader.as_ref().ok()?;
        // The symbol has the whole path of the function; debug information may have its last part
        // only, but knows what was inlined.
        let symbol = file.find_symbol(own).map(|symbol| demangle_auto(symbol.into(), None).into_owned());
        let mut lines: Vec<(String, String)> = Vec::new();
        let mut frames = file.find_frames(own).ok()?;
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.as_ref().and_then(|name| name.demangle().ok());
            let place = frame.location.and_then(|place| Some(format!(" ({}:{})", place.file?, place.line?)));
            lines.push((function.map_or_else(String::new, Into::into), place.unwrap_or_default()));
            if lines.len() >= INLINED_MAX {
                break;
            }
        }
        match (lines.last_mut(), symbol) {
            (Some(outermost), Some(symbol)) => outermost.0 = symbol,
            (None, symbol) => return symbol,
            (Some(_), None) => {}
        }
        let lines: Vec<String> = lines.into_iter().map(|(function, place)| function + &place).collect();
        Some(lines.join("\n"))
    }
}

/// Reads the build ID of a file; `None` if it has none that this machine's programs may have.
fn of_file(path: &str) -> io::Result<Option<String>> {
    // A recording from elsewhere may name anything; opening a pipe would wait for ever.
    if !(path.starts_with('/') && std::fs::metadata(path)?.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file with an absolute path"));
    }
    let file = File::open(path)?;
    let mut head = [0; HEADER];
    file.read_exact_at(&mut head, 0)?;
    if !head.starts_with(ELF_OF_64_BITS) {
        return Ok(None);
    }
    let (first, count) = (number(&head[32..40]), number(&head[56..58]));
    for at in 0..count {
        let mut segment = [0; SEGMENT];
        file.read_exact_at(&mut segment, first.saturating_add(at * SEGMENT as u64))?;
        if number(&segment[..4]) != PT_NOTE {
            continue;
        }
        let (offset, length) = (number(&segment[8..16]), number(&segment[32..40]));
        let mut notes = vec![0; length.min(NOTES_MAX) as usize];
        file.read_exact_at(&mut notes, offset)?;
        if let Some(found) = build_id(&notes) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// A number of an ELF file, whose first byte is its lowest.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The start of a 64-bit little-endian ELF file.
const ELF_OF_64_BITS: &[u8] = b"\x7fELF\x02\x01";
/// Sizes of the header and of a program header.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const PT_NOTE: u64 = 4;
/// Largest part of a segment of notes that is read.
const NOTES_MAX: u64 = 1 << 16;
const CHANGED: &str = "is not the file that ran (another build ID)";
const UNVERIFIED: &str = "has no recorded build ID: its names hold only if the file has not changed";
/// Most names cached.
const NAMES_MAX: usize = 1 << 20;
/// Most functions inlined into each other at one address.
const INLINED_MAX: usize = 32;

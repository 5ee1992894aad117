//! Texts, regions and metrics, defined at their first use.
//!
//! OTF2 accepts definitions at any time. Texts are forgotten when there are many; one that recurs
//! is defined again under another number, which readers treat as equal.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use probe_sync_formats::Error;
use probe_sync_formats::chunk::{Chunk, StringId};
use probe_sync_otf2::{Archive, Region, RegionRole};

/// Definitions so far.
#[derive(Debug, Default)]
pub(super) struct Texts {
    numbers: HashMap<Box<str>, u32, FixedState>,
    bytes: usize,
    next_text: u32,
    /// By name, category and whether it is an instant.
    regions: HashMap<(u32, u32, bool), u32, FixedState>,
    /// The same by the chunk's own numbers.
    of_chunk: HashMap<(StringId, StringId, bool), u32, FixedState>,
    next_region: u32,
    next_metric: u32,
}

impl Texts {
    /// Forgets the numbers of the last chunk's texts; all texts if there are too many.
    pub(super) fn next_chunk(&mut self) {
        self.of_chunk.clear();
        if self.bytes > TEXT_BYTES_MAX {
            self.numbers.clear();
            self.regions.clear();
            self.bytes = 0;
        }
    }

    /// The number of a text.
    pub(super) fn text(&mut self, archive: &mut Archive, text: &str) -> Result<u32, Error> {
        if let Some(number) = self.numbers.get(text) {
            return Ok(*number);
        }
        let number = next(&mut self.next_text, "texts")?;
        let mut end = text.len().min(TEXT_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        archive.string(number, &text[..end]).map_err(refused)?;
        self.numbers.insert(text.into(), number);
        self.bytes += text.len() + ENTRY_BYTES;
        Ok(number)
    }

    /// The region of a name and a category, which is its description.
    #[inline]
    pub(super) fn region(
        &mut self,
        archive: &mut Archive,
        chunk: &Chunk,
        name: StringId,
        category: StringId,
        role: RegionRole,
    ) -> Result<u32, Error> {
        let key = (name, category, role == RegionRole::Moment);
        if let Some(region) = self.of_chunk.get(&key) {
            return Ok(*region);
        }
        let name = self.text(archive, chunk.strings.text(name))?;
        let description = self.text(archive, chunk.strings.text(category))?;
        let known = self.regions.get(&(name, description, key.2)).copied();
        let region = match known {
            Some(region) => region,
            None => {
                let region = next(&mut self.next_region, "names of slices")?;
                archive.region(region, Region { name, description, role }).map_err(refused)?;
                self.regions.insert((name, description, key.2), region);
                region
            }
        };
        self.of_chunk.insert(key, region);
        Ok(region)
    }

    /// A metric of one member.
    pub(super) fn metric(&mut self, archive: &mut Archive, name: &str, unit: &str) -> Result<u32, Error> {
        let [name, description, unit] = [name, "", unit].map(|text| self.text(archive, text));
        let metric = next(&mut self.next_metric, "counters")?;
        archive.metric_class(metric, name?, description?, unit?).map_err(refused)?;
        Ok(metric)
    }
}

/// The next number of a definition; the last is reserved for "none" in OTF2.
fn next(number: &mut u32, what: &str) -> Result<u32, Error> {
    if *number == u32::MAX {
        return Err(Error::Chunk { problem: format!("an OTF2 archive holds fewer than 2^32 different {what}") });
    }
    *number += 1;
    Ok(*number - 1)
}

/// The library's refusals are those of an output.
pub(super) fn refused(error: probe_sync_otf2::Error) -> Error {
    Error::Sink { source: std::io::Error::other(error) }
}

/// Longer texts are cut: a definition must fit into a buffer of libotf2.
const TEXT_BYTES: usize = 64 << 10;
/// Interned texts are forgotten beyond this size, including the map's overhead per entry.
const TEXT_BYTES_MAX: usize = 16 << 20;
/// Approximate overhead of a map's entry in addition to its text.
const ENTRY_BYTES: usize = 48;

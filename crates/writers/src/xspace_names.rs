//! Names of events and stats by number, plane by plane.
//!
//! An event states the number of its name, which its plane defines. An entry goes to the plane's
//! stream when a name first occurs. Memory holds only the data needed to find it again, which is
//! discarded when it becomes large; the name then gets a second number, which readers treat as the
//! same name.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use probe_sync_formats::Error;
use probe_sync_formats::protobuf::{put_bytes, put_number};
use probe_sync_formats::xspace_fields::{metadata, plane};

use super::spool::Spool;

/// Kind of names.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Named {
    /// Of events.
    Event,
    /// Of stats, and texts that stats refer to.
    Stat,
}

/// The names of a plane.
#[derive(Debug)]
pub(super) struct PlaneNames {
    plane: u32,
    /// Numbers of names of events and of stats.
    counts: [u64; 2],
    /// Streams for the entries of events and of stats.
    pub(super) streams: [usize; 2],
}

impl PlaneNames {
    /// For the plane with this number.
    pub(super) fn new(plane: u32, spool: &mut Spool) -> Self {
        Self { plane, counts: [0; 2], streams: [spool.add(), spool.add()] }
    }
}

/// The names of all planes that are remembered.
#[derive(Debug)]
pub(super) struct Names {
    table: HashTable<Known>,
    text: String,
    scratch: Vec<u8>,
    text_max: usize,
}

#[derive(Copy, Clone, Debug)]
struct Known {
    plane: u32,
    named: Named,
    start: u32,
    end: u32,
    number: u64,
}

impl Default for Names {
    fn default() -> Self {
        Self::with_memory(TEXT_MAX)
    }
}

impl Names {
    fn with_memory(text_max: usize) -> Self {
        Self { table: HashTable::new(), text: String::new(), scratch: Vec::new(), text_max }
    }

    /// The number of a name in its plane.
    ///
    /// # Errors
    /// The folder for temporary files takes no more.
    #[inline]
    pub(super) fn number(
        &mut self,
        of: &mut PlaneNames,
        named: Named,
        name: &str,
        spool: &mut Spool,
    ) -> Result<u64, Error> {
        let hash = hash(of.plane, named, name);
        let text = &self.text;
        let same = |known: &Known| {
            known.plane == of.plane && known.named == named && text[known.start as usize..known.end as usize] == *name
        };
        match self.table.find(hash, same) {
            Some(known) => Ok(known.number),
            None => self.add(of, named, name, hash, spool),
        }
    }

    fn add(
        &mut self,
        of: &mut PlaneNames,
        named: Named,
        name: &str,
        hash_of_name: u64,
        spool: &mut Spool,
    ) -> Result<u64, Error> {
        let index = usize::from(named == Named::Stat);
        of.counts[index] += 1;
        let number = of.counts[index];
        self.scratch.clear();
        put_number(&mut self.scratch, metadata::ID, number);
        put_bytes(&mut self.scratch, metadata::NAME, name.as_bytes());
        let (scratch, field) = (&self.scratch, [plane::EVENT_METADATA, plane::STAT_METADATA][index]);
        let mut entry = Vec::with_capacity(scratch.len() + 24);
        put_number(&mut entry, metadata::KEY, number);
        put_bytes(&mut entry, metadata::VALUE, scratch);
        spool.append(of.streams[index], |out| put_bytes(out, field, &entry))?;
        if name.len() > LONG_BYTES {
            return Ok(number);
        }
        if self.text.len() + name.len() > self.text_max || self.table.len() >= NAMES_MAX {
            self.text.clear();
            self.table.clear();
        }
        let start = self.text.len() as u32;
        self.text.push_str(name);
        let known = Known { plane: of.plane, named, start, end: self.text.len() as u32, number };
        let text = &self.text;
        let again = |known: &Known| hash(known.plane, known.named, &text[known.start as usize..known.end as usize]);
        self.table.insert_unique(hash_of_name, known, again);
        Ok(number)
    }
}

#[inline]
fn hash(plane: u32, named: Named, name: &str) -> u64 {
    HASHER.hash_one((plane, named, name))
}

/// Deterministic: numbers must not depend on a run.
const HASHER: FixedState = FixedState::with_seed(0);
/// Bytes of names that are remembered at most.
const TEXT_MAX: usize = 8 << 20;
/// Names that are remembered at most.
const NAMES_MAX: usize = 1 << 17;
/// Longer names are not remembered: they rarely occur twice.
const LONG_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_number_in_each_plane_until_it_is_forgotten() {
        let mut spool = Spool::default();
        let mut planes = [PlaneNames::new(0, &mut spool), PlaneNames::new(1, &mut spool)];
        let mut names = Names::with_memory(4);
        let mut check = |plane: usize, named: Named, name: &str, expected: u64| {
            let found = names.number(&mut planes[plane], named, name, &mut spool).expect("room for temporary files");
            assert_eq!(found, expected, "{name} of plane {plane}");
        };
        check(0, Named::Event, "a", 1);
        check(0, Named::Event, "bb", 2);
        check(0, Named::Event, "a", 1);
        check(1, Named::Event, "bb", 1);
        // Four bytes were too few for these, so that the earlier ones are forgotten.
        check(0, Named::Event, "a", 3);
        check(0, Named::Stat, "a", 1);
        check(0, Named::Event, "a", 3);
    }
}

//! The selection of an input's events for a merged file.
//!
//! `merge` creates it from a filter, and `rewrite` asks it about each event with a time. Names
//! follow the events that use them, so they are looked up before the events are read; only the
//! numbers of relevant names are kept.

use std::collections::HashMap;
use std::path::Path;

use foldhash::fast::FixedState;

use super::event::EventTimes;
use super::fields::space;
use super::outline::{self, MetadataVisitor};
use crate::Error;
use crate::model::Picoseconds;
use crate::protobuf::Source;
use crate::{EventFilter, Named, Seen};

/// What is kept of one input.
pub(super) struct Kept<'a> {
    filter: &'a dyn EventFilter,
    input: usize,
    /// In file order.
    planes: Vec<Plane>,
}

#[derive(Default)]
struct Plane {
    on_device: bool,
    /// By name number; the other names say nothing.
    named: HashMap<u64, Named, FixedState>,
}

impl<'a> Kept<'a> {
    /// Scans the names of a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not XSpace.
    pub(super) fn of(filter: &'a dyn EventFilter, input: usize, path: &Path) -> Result<Self, Error> {
        let mut kept = Self { filter, input, planes: Vec::new() };
        let mut source = Source::open(path)?;
        while let Some(field) = outline::next_space_field(&mut source)? {
            if field.number != space::PLANES {
                source.skip(field.body())?;
                continue;
            }
            let mut names = Names { filter, plane: Plane::default() };
            outline::walk_plane(&mut source, &field, &mut names)?;
            kept.planes.push(names.plane);
        }
        Ok(kept)
    }

    /// Whether an event of the file's `plane`-th plane stays, whose line starts at `line_ps`.
    pub(super) fn takes(&self, plane: usize, line_ps: Picoseconds, times: &EventTimes, bytes: usize) -> bool {
        let start_ps = line_ps + Picoseconds::from(times.offset.value);
        let end_ps = start_ps + Picoseconds::from(times.duration.value);
        if !self.filter.knows(self.input) {
            return self.filter.is_within(start_ps, end_ps);
        }
        let named = self.planes.get(plane).and_then(|plane| plane.named.get(&times.metadata));
        let seen = Seen {
            start_ps,
            end_ps,
            named: named.copied().unwrap_or_default(),
            on_device: self.planes.get(plane).is_some_and(|plane| plane.on_device),
            of_collective: false,
            bytes: bytes as u64,
        };
        self.filter.take(self.input, &seen)
    }
}

struct Names<'a> {
    filter: &'a dyn EventFilter,
    plane: Plane,
}

impl MetadataVisitor for Names<'_> {
    fn name(&mut self, name: &str) {
        self.plane.on_device = name.starts_with(DEVICE_PREFIX);
    }

    fn event_metadata(&mut self, number: u64, name: &str) {
        let named = self.filter.named(name);
        if named != Named::default() && self.plane.named.len() < NAMES_MAX {
            self.plane.named.insert(number, named);
        }
    }

    fn stat_metadata(&mut self, _number: u64, _name: &str) {}
}

/// Planes of devices begin so.
const DEVICE_PREFIX: &str = "/device:";
/// Most names held for a plane; events with others count as ordinary ones.
const NAMES_MAX: usize = 1 << 20;

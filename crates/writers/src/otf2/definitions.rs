//! The definitions of an archive's locations, written after all events.
//!
//! The system tree is the machine with its hosts. Each host has groups of locations: one per
//! process, and one per device, with the process as its creator. Regions and metrics are not
//! included, because they are defined at their first use.

use std::collections::BTreeMap;

use probe_sync_formats::Error;
use probe_sync_formats::chunk::TrackKind;
use probe_sync_otf2::{GroupKind, LocationGroup, LocationKind, UNDEFINED};

use super::Otf2;
use super::communicators::Found;
use super::texts::refused;

/// Groups of locations that were defined, and the hosts that they are on.
#[derive(Debug, Default)]
struct Tree {
    hosts: BTreeMap<String, u32>,
    /// By track.
    groups: BTreeMap<usize, u32>,
}

impl Otf2 {
    /// Defines clock, system tree, locations and communicators, and closes the locations' files.
    pub(super) fn define(&mut self) -> Result<(), Error> {
        let [first, last] = self.span_ns.unwrap_or_default();
        self.archive.clock(first as u64, (last - first) as u64).map_err(refused)?;
        let [name, class] = ["job", "machine"].map(|text| self.texts.text(&mut self.archive, text));
        self.archive.system_tree_node(ROOT, name?, class?, None).map_err(refused)?;
        let mut tree = Tree::default();
        for location in 0..self.locations.len() {
            self.define_location(location, &mut tree)?;
        }
        let found = std::mem::take(&mut self.communicators).finish(self.locations.len());
        self.define_communicators(&found)?;
        self.report.communicators = found.communicators.len() as u64;
        self.archive.close_locations().map_err(refused)?;
        for (location, communicators) in found.of_location.iter().enumerate() {
            self.archive.communicators_of(location as u64, communicators).map_err(refused)?;
        }
        Ok(())
    }

    fn define_location(&mut self, location: usize, tree: &mut Tree) -> Result<(), Error> {
        let known = &self.locations[location];
        let (track, lane, events) = (known.track.0 as usize, known.lane, known.events);
        let above = self.above(track);
        let group = self.group(above, tree)?;
        let on_device = matches!(self.tracks[above].track.kind, TrackKind::Agent);
        let described = &self.tracks[track].track;
        let kind = match described.kind {
            TrackKind::Counter { .. } => LocationKind::Metric,
            TrackKind::Agent | TrackKind::Stream | TrackKind::Queue => LocationKind::Stream,
            TrackKind::Thread { .. } if on_device => LocationKind::Stream,
            TrackKind::Thread { .. } | TrackKind::Process(_) => LocationKind::Thread,
        };
        let name = match lane {
            0 => described.label(),
            _ => format!("{} (lane {})", described.label(), lane + 1),
        };
        let name = self.texts.text(&mut self.archive, &name)?;
        self.archive.location(location as u64, name, kind, events, group).map_err(refused)
    }

    /// The process or device that a track is below, or is; else the topmost track.
    fn above(&self, track: usize) -> usize {
        let mut at = track;
        for _ in 0..TREE_DEPTH_MAX {
            let known = &self.tracks[at].track;
            match (&known.kind, known.parent) {
                (TrackKind::Process(_) | TrackKind::Agent, _) | (_, None) => break,
                (_, Some(parent)) => at = parent.0 as usize,
            }
        }
        at
    }

    /// The process above a device.
    fn process_above(&self, track: usize) -> Option<usize> {
        let mut at = track;
        for _ in 0..TREE_DEPTH_MAX {
            let known = &self.tracks[at].track;
            if matches!(known.kind, TrackKind::Process(_)) {
                return Some(at);
            }
            at = known.parent?.0 as usize;
        }
        None
    }

    /// The group of locations of a track, defined if it is not yet.
    fn group(&mut self, track: usize, tree: &mut Tree) -> Result<u32, Error> {
        if let Some(group) = tree.groups.get(&track) {
            return Ok(*group);
        }
        let process = self.process_above(track);
        let creator = match process.filter(|process| *process != track) {
            Some(process) => self.group(process, tree)?,
            None => UNDEFINED,
        };
        let host = process.map(|process| &self.tracks[process].track.kind);
        let host =
            host.and_then(|kind| if let TrackKind::Process(process) = kind { Some(&process.host) } else { None });
        let host = host.filter(|host| !host.is_empty()).map_or(UNKNOWN_HOST, String::as_str).to_owned();
        let node = self.host(host, tree)?;
        let described = &self.tracks[track].track;
        let kind = match described.kind {
            TrackKind::Process(_) => GroupKind::Process,
            TrackKind::Agent => GroupKind::Accelerator,
            _ => GroupKind::Unknown,
        };
        let name = described.label();
        let name = self.texts.text(&mut self.archive, &name)?;
        let group = tree.groups.len() as u32;
        self.archive.location_group(group, LocationGroup { name, kind, node, creator }).map_err(refused)?;
        tree.groups.insert(track, group);
        Ok(group)
    }

    fn host(&mut self, host: String, tree: &mut Tree) -> Result<u32, Error> {
        if let Some(node) = tree.hosts.get(&host) {
            return Ok(*node);
        }
        let [name, class] = [host.as_str(), "node"].map(|text| self.texts.text(&mut self.archive, text));
        let node = ROOT + 1 + tree.hosts.len() as u32;
        self.archive.system_tree_node(node, name?, class?, Some(ROOT)).map_err(refused)?;
        tree.hosts.insert(host, node);
        Ok(node)
    }

    fn define_communicators(&mut self, found: &Found) -> Result<(), Error> {
        if found.communicators.is_empty() {
            return Ok(());
        }
        let members = found.communicators.iter().flat_map(|communicator| &communicator.locations);
        let mut locations: Vec<u64> = members.copied().collect();
        locations.sort_unstable();
        locations.dedup();
        let name = self.texts.text(&mut self.archive, "locations of collectives")?;
        self.archive.communicating(0, name, &locations).map_err(refused)?;
        for (number, communicator) in found.communicators.iter().enumerate() {
            let name = match communicator.group.as_str() {
                "" => format!("{} locations", communicator.locations.len()),
                group => group.to_owned(),
            };
            let name = self.texts.text(&mut self.archive, &name)?;
            let place = |location: &u64| locations.partition_point(|known| known < location) as u64;
            let places: Vec<u64> = communicator.locations.iter().map(place).collect();
            let number = number as u32;
            self.archive.communicator(number, name, number + 1, &places).map_err(refused)?;
        }
        Ok(())
    }
}

const ROOT: u32 = 0;
/// For processes whose trace names none.
const UNKNOWN_HOST: &str = "unknown host";
/// Most levels of tracks; deeper ones are in a group of their own.
const TREE_DEPTH_MAX: usize = 16;

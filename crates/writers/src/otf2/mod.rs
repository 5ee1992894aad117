//! OTF2 archives, written event by event: host → process or device → thread, stream or queue.
//!
//! Its output is a directory, so it is opened separately from the formats behind
//! [`super::TraceWriter`]. A row of a trace is a location. OTF2 knows only regions that nest:
//! overlapping slices go to lanes, each a location of its own (`stream 3 (lane 2)`), and none is
//! dropped or shortened. A moment is a region of zero length with the role `ARTIFICIAL`, and a
//! counter is a metric with one member. Parts of collective operations are MpiCollectiveBegin and
//! MpiCollectiveEnd within their region, in a communicator of the locations that took part
//! (`communicators`). Memory holds the open regions of each location, distinct texts (forgotten
//! when there are many), and two numbers per part of a collective. It does not sort, and it does
//! not write flows or arguments.

mod communicators;
mod definitions;
mod part;
#[cfg(test)]
mod tests;
mod texts;

use std::path::Path;

use probe_sync_formats::Error;
use probe_sync_formats::chunk::order::{Row, in_order};
use probe_sync_formats::chunk::{Chunk, Track, TrackId, TrackKind};
use probe_sync_otf2::{Archive, CollectiveEnd, RegionRole};

use self::communicators::Communicators;
use self::texts::{Texts, refused};
use super::lanes::Lanes;
use super::report::{Meta, WriteReport};

pub use self::part::CollectivePart;

/// An archive being written. Dropped without [`Otf2::finish`] it leaves files that are not a valid
/// archive.
#[derive(Debug)]
#[must_use = "an archive is whole only when it was finished"]
pub struct Otf2 {
    archive: Archive,
    tracks: Vec<Known>,
    /// Number of tracks, from the first on, that get no more events.
    ended: usize,
    lanes: Lanes,
    /// By lane, which is the number of the location.
    locations: Vec<Location>,
    /// Number of locations, from the first on, that are closed.
    closed: usize,
    texts: Texts,
    communicators: Communicators,
    span_ns: Option<[i64; 2]>,
    report: WriteReport,
}

/// State of a track.
#[derive(Debug)]
struct Known {
    track: Track,
    /// The metric of its values, once there was one.
    metric: Option<u32>,
}

/// State of a location.
#[derive(Debug)]
struct Location {
    track: TrackId,
    /// Lane of its track, from 0.
    lane: u32,
    open: Vec<Open>,
    events: u64,
}

/// An event waiting for its end.
#[derive(Copy, Clone, Debug)]
enum Open {
    Region(u32),
    Collective(u32, CollectiveEnd),
    /// A counter value, which has none.
    Value,
}

impl Otf2 {
    /// Begins the archive `name` in an existing folder.
    ///
    /// # Errors
    /// [`Error::Sink`] if libotf2 cannot create its files.
    pub fn open(folder: &Path, name: &str, meta: &Meta) -> Result<Self, Error> {
        let mut archive = Archive::create(folder, name).map_err(refused)?;
        for (name, value) in &meta.metadata {
            let name = name.strip_prefix("probe_sync_").unwrap_or(name).to_uppercase();
            archive.property(&format!("PROBE_SYNC::{name}"), value).map_err(refused)?;
        }
        Ok(Self {
            archive,
            tracks: Vec::new(),
            ended: 0,
            lanes: Lanes::default(),
            locations: Vec::new(),
            closed: 0,
            texts: Texts::default(),
            communicators: Communicators::default(),
            span_ns: None,
            report: WriteReport::default(),
        })
    }

    /// Writes a chunk, as [`super::TraceWriter::write`] does. `parts` names the slices in it that
    /// are parts of collective operations, by their row, in order of row.
    ///
    /// # Errors
    /// [`Error::Chunk`] if the chunk is inconsistent, a time is before the zero of the clock or a
    /// track was ended; [`Error::Sink`] if writing the archive fails.
    pub fn write(&mut self, chunk: &Chunk, parts: &[(usize, CollectivePart<'_>)]) -> Result<(), Error> {
        chunk.check(self.tracks.len())?;
        chunk.refuse_negative_times("an OTF2 trace")?;
        let fresh = chunk.tracks.iter().map(|track| Known { track: track.clone(), metric: None });
        self.tracks.extend(fresh);
        self.lanes.add_rows(chunk.tracks.len());
        self.texts.next_chunk();
        let mut parts = parts.iter().peekable();
        for row in in_order(chunk) {
            match row {
                Row::Flow(_) => {}
                Row::Slice(row) => {
                    let part = parts.next_if(|(of, _)| *of == row).map(|(_, part)| part);
                    self.slice(chunk, row, part)?;
                }
                Row::Instant(row) => self.instant(chunk, row)?,
                Row::Counter(row) => self.counter(chunk, row)?,
            }
        }
        Ok(())
    }

    /// Declares that no more events come on the tracks declared so far, so that what is held of
    /// them is written.
    ///
    /// # Errors
    /// [`Error::Sink`].
    pub fn end_tracks(&mut self) -> Result<(), Error> {
        self.end_until(i64::MAX)?;
        for location in self.closed..self.locations.len() {
            self.archive.close_location(location as u64).map_err(refused)?;
        }
        (self.closed, self.ended) = (self.locations.len(), self.tracks.len());
        Ok(())
    }

    /// Names a part of an operation that no slice shows. The first location of the tracks that are
    /// not ended stands for it in the communicator, without an event; must be called before
    /// [`Self::end_tracks`].
    pub fn absent(&mut self, part: &CollectivePart<'_>) {
        if self.closed < self.locations.len() {
            self.communicators.absent(part, self.closed as u64);
        }
    }

    /// Ends the archive and returns what was written. Its size in bytes is that of the folder.
    ///
    /// # Errors
    /// [`Error::Sink`].
    pub fn finish(mut self) -> Result<WriteReport, Error> {
        self.end_tracks()?;
        self.define()?;
        self.report.tracks = self.tracks.len() as u64;
        self.archive.close().map_err(refused)?;
        Ok(self.report)
    }

    fn slice(&mut self, chunk: &Chunk, row: usize, part: Option<&CollectivePart<'_>>) -> Result<(), Error> {
        let slices = &chunk.slices;
        let region =
            self.texts.region(&mut self.archive, chunk, slices.name[row], slices.category[row], RegionRole::Code)?;
        self.report.slices += 1;
        self.place(slices.track[row], slices.start_ns[row], slices.end_ns[row], region, part)
    }

    fn instant(&mut self, chunk: &Chunk, row: usize) -> Result<(), Error> {
        let instants = &chunk.instants;
        let (name, category, time) = (instants.name[row], instants.category[row], instants.time_ns[row]);
        let region = self.texts.region(&mut self.archive, chunk, name, category, RegionRole::Moment)?;
        self.report.instants += 1;
        self.place(instants.track[row], time, time, region, None)
    }

    /// Enters a region on the lane where it nests.
    fn place(
        &mut self,
        track: TrackId,
        start: i64,
        end: i64,
        region: u32,
        part: Option<&CollectivePart<'_>>,
    ) -> Result<(), Error> {
        let location = self.location(track, start, end)?;
        self.archive.enter(location, start as u64, region).map_err(refused)?;
        // Readers match operations by the order in which they end, which one within another turns
        // round: it stays a region.
        let nests = |open: &Open| matches!(open, Open::Collective(..));
        let part = match part {
            Some(part) if self.locations[location as usize].open.iter().any(nests) => {
                self.communicators.absent(part, location);
                None
            }
            part => part,
        };
        // A location has one part of an operation; a second one stays a region.
        let joined = part.and_then(|part| Some((part, self.communicators.join(part, location)?)));
        let open = match joined {
            None => Open::Region(region),
            Some((part, communicator)) => {
                self.archive.collective_begin(location, start as u64).map_err(refused)?;
                self.report.collectives += 1;
                Open::Collective(region, CollectiveEnd { operation: part.kind, communicator, root: part.root })
            }
        };
        let known = &mut self.locations[location as usize];
        known.events += 1 + u64::from(matches!(open, Open::Collective(..)));
        known.open.push(open);
        Ok(())
    }

    fn counter(&mut self, chunk: &Chunk, row: usize) -> Result<(), Error> {
        let counters = &chunk.counters;
        let (track, time) = (counters.track[row], counters.time_ns[row]);
        let location = self.location(track, time, time)?;
        let known = &mut self.tracks[track.0 as usize];
        let metric = match known.metric {
            Some(metric) => metric,
            None => {
                let unit = if let TrackKind::Counter { unit } = &known.track.kind { unit.as_str() } else { "" };
                let metric = self.texts.metric(&mut self.archive, &known.track.name, unit)?;
                known.metric = Some(metric);
                metric
            }
        };
        self.archive.metric(location, time as u64, metric, counters.value[row]).map_err(refused)?;
        let known = &mut self.locations[location as usize];
        known.events += 1;
        known.open.push(Open::Value);
        self.report.counters += 1;
        Ok(())
    }

    /// The location for something on a track; everything that has ended by then has left its
    /// location.
    #[inline]
    fn location(&mut self, track: TrackId, start: i64, end: i64) -> Result<u64, Error> {
        if (track.0 as usize) < self.ended {
            let problem = format!("track {}: events follow its end", track.0);
            return Err(Error::Chunk { problem });
        }
        self.end_until(start)?;
        let [first, last] = self.span_ns.unwrap_or([start, end]);
        self.span_ns = Some([first.min(start), last.max(end)]);
        let place = self.lanes.place(track.0, start, end);
        if place.new {
            let location = self.archive.open_location().map_err(refused)?;
            debug_assert_eq!(u64::from(place.lane), location, "lanes are numbered as they are opened");
            self.locations.push(Location { track, lane: place.of_row, open: Vec::new(), events: 0 });
            self.report.lanes += u64::from(place.of_row > 0);
        }
        Ok(u64::from(place.lane))
    }

    /// Ends everything that ends until `time`.
    #[inline]
    fn end_until(&mut self, time: i64) -> Result<(), Error> {
        while let Some((end, lane)) = self.lanes.ended(time) {
            let location = &mut self.locations[lane as usize];
            let (lane, end) = (u64::from(lane), end as u64);
            let region = match location.open.pop().expect("what ends was opened") {
                Open::Value => continue,
                Open::Region(region) => region,
                Open::Collective(region, collective) => {
                    self.archive.collective_end(lane, end, collective).map_err(refused)?;
                    location.events += 1;
                    region
                }
            };
            self.archive.leave(lane, end, region).map_err(refused)?;
            location.events += 1;
        }
        Ok(())
    }
}

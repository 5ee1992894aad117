//! Recordings that are finished, copied from a running session, or left behind by a killed process.
//!
//! A [`Recording`] knows its threads, definitions and clock pairs. It returns events thread by
//! thread in the order in which they ended ([`Recording::visit`]), with one piece in memory at a
//! time. Files are untrusted: every number is checked before it is used.

mod collectives;
mod decode;
mod definitions;
mod device;
mod index;
mod save;
mod source;
mod thread;
mod view;
mod window;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use crate::active::core::Core;
use crate::clock::ClockPair;
use crate::error::Error;
use crate::layout::{Layout, MAGIC, WORD, clock, header, policy, state};
use crate::session::Facts;

pub use crate::session::modules::Module;
pub use crate::value::ArgumentValue;
pub use collectives::CollectiveScope;
pub use decode::{Arguments, Event, What};
pub use definitions::SiteFacts;
pub use device::{Device, Track};
pub(crate) use source::Source;
pub use thread::{Loss, Omitted, OpenScope, Thread};
pub use window::Window;

use definitions::Definitions;
use index::Index;
use view::View;

/// Content of a recording.
#[derive(Debug)]
pub struct Recording {
    source: Source,
    layout: Layout,
    facts: Facts,
    status: Status,
    definitions: Definitions,
    pairs: Vec<ClockPair>,
    threads: Vec<Thread>,
    windows: Vec<Window>,
    index: Index,
}

/// State of a recording.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// True if it ended normally; otherwise it is in progress, or its process was killed.
    pub finished: bool,
    /// True if times are ticks of the time-stamp counter, of unknown length; otherwise they are ns.
    pub counter: bool,
    /// Start, ticks.
    pub start: u64,
    /// End, ticks; if it has not ended, the last known time.
    pub end: u64,
    /// Ticks at which the counter was found unusable as a clock; 0: never.
    pub clock_failed: u64,
    /// Definitions lost for lack of room; their names are unknown.
    pub definitions_lost: u64,
    /// Events lost on threads that could not count them.
    pub lost: Loss,
    /// Events that a flight recorder has replaced by newer ones, as far as its memory reaches;
    /// including those lost among them.
    pub replaced: u64,
    /// Events of signal handlers that interrupted another event of a thread without a slot.
    pub interrupted: u64,
    /// Bytes missing from a truncated file, which is read up to there.
    pub missing: u64,
    /// Parts that were overwritten while they were read.
    pub overwritten: u64,
    /// Number of times that the file could not be written.
    pub blocks_lost: u64,
    /// Number of pauses and resumptions.
    pub pauses: u64,
    /// True for a copy of a session in progress.
    pub copy: bool,
    /// Events that filters omitted, on all threads.
    pub omitted: Omitted,
    /// Events that are in the recording but in no window, such as those of warm-up steps and around
    /// an agreed window; they are omitted.
    pub outside: u64,
}

impl Recording {
    /// Reads the file of a session that ended, was killed, or is in progress.
    ///
    /// # Errors
    /// [`Error::Damaged`] names the byte; [`Error::File`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::File { path: path.to_path_buf(), source };
        // Opening a pipe would wait for whoever writes it.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(failed(std::io::Error::other("it is not a file")));
        }
        let file = std::fs::File::open(path).map_err(failed)?;
        Self::of(Source::File(file, path.to_path_buf()))
    }

    /// Copies the present content of a session.
    pub(crate) fn of_live(core: &Arc<Core>) -> Result<Self, Error> {
        Self::of(Source::copied(core)?)
    }

    pub(crate) fn of(source: Source) -> Result<Self, Error> {
        Self::of_windows(source, None)
    }

    /// Reads a recording; `only` restricts it to this window.
    fn of_windows(source: Source, only: Option<u32>) -> Result<Self, Error> {
        let words = source.words(0, header::ALL_BYTES / WORD)?;
        if source.length()? < header::ALL_BYTES as u64 || words[header::MAGIC] != MAGIC {
            return Err(source.damaged(0, NO_RECORDING));
        }
        let layout = Layout::of_header(&words).ok_or_else(|| source.damaged(WORD as u64, BAD_PARTS))?;
        // It may be under way: chunks that are used again would be overwritten while they are read.
        let may_change = words[header::STATE] == state::RECORDING && words[header::POLICY] != policy::DROP_NEWEST;
        let source = if may_change && layout.bytes() <= HELD_MAX { source.held(&layout)? } else { source };
        let facts = facts(&source, &words)?;
        let pairs = pairs(&source, &layout, words[header::PAIRS_WRITTEN])?;
        // Records first, and then what they refer to.
        let streams = words[header::POLICY] == policy::STREAM;
        let mut index = Index::read(&source, &layout, streams)?;
        let taken = source.words((header::DEFINITIONS_TAKEN * WORD) as u64, 1)?[0];
        let mut definitions = Definitions::read(&source, &layout, taken)?;
        definitions.finish(device::ticks_per_second(&pairs, words[header::CLOCK] == clock::TSC));
        let windowed = words[header::WINDOWED] != 0 || only.is_some();
        let wanted = |(number, _): &(u32, Window)| only.is_none_or(|only| only == *number);
        let windows: Vec<Window> = definitions.windows().filter(wanted).map(|(_, window)| window).collect();
        index.see(View::new(keep_from(&words, &pairs), windowed.then_some(&windows)));
        let threads = index.threads(&source, &layout, &definitions)?;
        let missing = (layout.bytes() as u64).saturating_sub(source.length()?);
        let status = Status { missing, ..status(&words, &pairs, &threads, &index) };
        Ok(Self { source, layout, facts, status, definitions, pairs, threads, windows, index })
    }

    /// Returns the process and its configuration.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the state.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Returns simultaneous readings of counter and system clock, in order of time.
    pub fn pairs(&self) -> &[ClockPair] {
        &self.pairs
    }

    /// Returns its threads, in order of their serial numbers.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Returns its file, if it has one.
    #[cfg(feature = "export")]
    pub(crate) fn path(&self) -> Option<&Path> {
        self.source.path()
    }

    /// Returns the devices whose events are among its threads'.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.definitions.devices()
    }

    /// Returns the mapped executable files, if stacks were recorded.
    pub fn modules(&self) -> impl Iterator<Item = &Module> {
        self.definitions.modules()
    }

    /// Returns notes, for example on backends that were absent or failed.
    pub fn notes(&self) -> &[String] {
        self.definitions.notes()
    }

    /// Returns its windows, if only their content was requested: the active steps of each
    /// repetition of a schedule, and spans requested from outside.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Returns one of its windows as a recording of its own, counted from 0. A nonexistent window
    /// is empty.
    ///
    /// # Errors
    /// Errors of [`Recording::open`].
    pub fn window(self, number: u32) -> Result<Self, Error> {
        Self::of_windows(self.source, Some(number))
    }

    /// Returns the sites of its events.
    pub fn sites(&self) -> impl Iterator<Item = &SiteFacts> {
        self.definitions.sites()
    }

    /// Checks whether any event may have an argument with this key.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.definitions.has_key(key)
    }

    /// Visits events of a thread in the order in which they ended, with losses at their places.
    /// Scopes that had not ended are in [`Thread::open`].
    ///
    /// # Errors
    /// Errors of `each`; [`Error::Damaged`] and [`Error::File`], as the caller's type.
    pub fn visit<E: From<Error>>(
        &self,
        serial: u32,
        mut each: impl FnMut(&Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.index.visit(&self.source, &self.layout, &self.definitions, serial, &mut each)
    }
}

fn facts(source: &Source, words: &[u64]) -> Result<Facts, Error> {
    let at = (header::WORDS * WORD) as u64;
    let length = usize::try_from(words[header::WORDS]).unwrap_or(usize::MAX);
    let bytes: Vec<u8> = words[header::WORDS + 1..].iter().flat_map(|word| word.to_le_bytes()).collect();
    let text = bytes.get(..length).ok_or_else(|| source.damaged(at, "the metadata is longer than its page"))?;
    serde_json::from_slice(text).map_err(|error| source.damaged(at, &format!("the metadata is not JSON: {error}")))
}

/// Reads the pairs with a valid checksum, in order of time, each once.
fn pairs(source: &Source, layout: &Layout, written: u64) -> Result<Vec<ClockPair>, Error> {
    let count = usize::try_from(written).unwrap_or(usize::MAX).min(layout.pairs);
    let words = source.words(layout.pairs_at() as u64, count * crate::layout::PAIR_WORDS)?;
    let sound = |words: &&[u64]| words[..3].iter().fold(MAGIC, |check, word| check ^ word) == words[3];
    let chunks = words.chunks_exact(crate::layout::PAIR_WORDS).filter(sound);
    let mut pairs: Vec<ClockPair> = chunks
        .map(|words| ClockPair { ticks: words[0], system_ns: words[1] as i64, bracket_ticks: words[2] })
        .collect();
    pairs.sort_by_key(|pair| pair.ticks);
    pairs.dedup_by_key(|pair| pair.ticks);
    Ok(pairs)
}

/// Anything that ended earlier is beyond a flight recorder's span.
fn keep_from(words: &[u64], pairs: &[ClockPair]) -> u64 {
    let end = match words[header::END] {
        0 => pairs.last().map_or(0, |pair| pair.ticks),
        end => end,
    };
    match words[header::KEEP_TICKS] {
        0 => 0,
        keep => end.saturating_sub(keep),
    }
}

fn status(words: &[u64], pairs: &[ClockPair], threads: &[Thread], index: &Index) -> Status {
    let open = threads.iter().flat_map(|thread| &thread.open).map(|scope| scope.start);
    let known = pairs.last().map(|pair| pair.ticks).into_iter().chain(open).chain([index.latest()]).max();
    let left = Omitted::of(&words[header::OMITTED..]);
    let lost = words[header::LOST];
    let span = (lost > 0).then_some([words[header::LOST_FIRST], words[header::LOST_LAST]]);
    Status {
        finished: words[header::STATE] == state::FINISHED,
        counter: words[header::CLOCK] == clock::TSC,
        start: words[header::START],
        end: if words[header::END] == 0 { known.unwrap_or(0) } else { words[header::END] },
        clock_failed: words[header::CLOCK_FAILED],
        definitions_lost: words[header::DEFINITIONS_LOST],
        lost: Loss { events: lost, span },
        replaced: words[header::REPLACED],
        interrupted: words[header::INTERRUPTED],
        missing: 0,
        overwritten: index.overwritten(),
        blocks_lost: words[header::BLOCKS_LOST],
        pauses: words[header::PAUSES],
        copy: words[header::STATE] == state::COPY,
        omitted: threads.iter().map(|thread| thread.omitted).fold(left, Omitted::with),
        outside: index.outside(),
    }
}

/// Longer recordings are read from their files, where a flight recorder may overtake the reader.
const HELD_MAX: usize = 256 << 20;
const NO_RECORDING: &str = "it is not a probe_sync recording, or uses another version of the format";
const BAD_PARTS: &str = "its parts have impossible sizes: the file is damaged";

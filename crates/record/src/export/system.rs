//! A recording on its machine's system clock, and its export to a file.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use probe_sync_files::no_more_open_than;
use probe_sync_formats::chunk::{Chunk, Sorter};
use probe_sync_writers::{Meta, OutputFormat, TraceFile};

use super::clock::SystemClock;
#[cfg(feature = "rocpd")]
use super::database;
use super::error::ExportError;
use super::fill::Fill;
use super::format::Format;
use super::pipe::{beside, end, pipe};
use super::report::Exported;
use super::with::{Devices, WithTrace};
use crate::clock::ClockPair;
use crate::hook::Hooks;
use crate::read::Recording;

/// Creates the hooks of a recording.
pub(super) type EachHooks<'a> = dyn Fn(&Recording) -> Result<Hooks, crate::Error> + 'a;

/// A recording whose times are on the system clock of its machine.
#[derive(Debug)]
pub struct OnSystem<'a> {
    pub(super) recording: &'a Recording,
    pub(super) clock: SystemClock,
    with: Option<WithTrace>,
    /// Hooks whose additions are written; `None`: the standard ones, which have not been needed yet.
    hooks: Mutex<Option<Hooks>>,
    /// Base of times, in formats whose readers show files of several nodes from the start of each,
    /// ns.
    from: i64,
}

impl Recording {
    /// Converts its times to its machine's system clock.
    ///
    /// # Errors
    /// [`ExportError::Clock`]: its clock pairs do not say how.
    pub fn on_system(&self) -> Result<OnSystem<'_>, ExportError> {
        Ok(OnSystem::of(self, SystemClock::of(self)?))
    }

    /// Converts its times by the caller's pairs, in order of their ticks, instead of its own.
    ///
    /// # Errors
    /// Errors of [`Self::on_system`].
    pub fn on_system_by(&self, pairs: &[ClockPair]) -> Result<OnSystem<'_>, ExportError> {
        Ok(OnSystem::of(self, SystemClock::by(self, pairs)?))
    }
}

impl<'a> OnSystem<'a> {
    fn of(recording: &'a Recording, clock: SystemClock) -> Self {
        let (start, _) = clock.at(recording.status().start);
        let from = start.div_euclid(NS_PER_S).saturating_mul(NS_PER_S);
        Self { recording, clock, with: None, hooks: Mutex::new(None), from }
    }

    /// Converts several recordings that are shown together, for their outputs: they count from the
    /// earliest start.
    pub(super) fn of_each(
        recordings: &'a [Recording],
        hooks: &EachHooks<'_>,
        with: &[WithTrace],
        outputs: &[PathBuf],
    ) -> Result<Vec<Self>, ExportError> {
        let one = |(at, recording): (usize, &'a Recording)| {
            let system = recording.on_system().map_err(|error| error.of(&outputs[at]))?;
            let system = Self { with: with.get(at).cloned(), ..system };
            Ok::<_, ExportError>(system.with_hooks(hooks(recording)?))
        };
        let mut all: Vec<Self> = recordings.iter().enumerate().map(one).collect::<Result<_, _>>()?;
        let from = all.iter().map(|system| system.from).min().unwrap_or(0);
        all.iter_mut().for_each(|system| system.from = from);
        Ok(all)
    }

    /// Returns the map of its times.
    pub fn clock(&self) -> &SystemClock {
        &self.clock
    }

    /// Shows the devices of another profiler's trace of the process, too.
    pub fn with_trace(self, with: WithTrace) -> Self {
        Self { with: Some(with), ..self }
    }

    /// Writes the additions of these hooks instead of those of [`Hooks::with_standard`].
    pub fn with_hooks(self, hooks: Hooks) -> Self {
        Self { hooks: Mutex::new(Some(hooks)), ..self }
    }

    /// Writes a trace, which appears when it is complete. It is compressed if the name ends in
    /// `.gz`.
    ///
    /// # Errors
    /// [`ExportError::Output`]: the name is not one of this format; else whatever reading and
    /// writing meet. Nothing appears then.
    pub fn write(&self, format: Format, path: &Path) -> Result<Exported, ExportError> {
        format.refuse_other_ending(path)?;
        if let Some(input) = self.recording.path() {
            no_more_open_than(&[input], &[path]);
        }
        let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        let hooks = match &mut *hooks {
            Some(hooks) => hooks,
            none => none.insert(Hooks::with_standard(self.recording, Vec::new())?),
        };
        let mut exported = match format.output() {
            Some(output) => self.write_trace(output, hooks, path)?,
            None if self.with.is_some() => {
                return Err(ExportError::Output { path: path.into(), reason: NO_OTHER_TRACE.into() });
            }
            #[cfg(feature = "rocpd")]
            None => database::write(self.recording, &self.clock, hooks, path)?,
            #[cfg(not(feature = "rocpd"))]
            None => return Err(ExportError::Output { path: path.into(), reason: super::format::NO_DATABASES.into() }),
        };
        let others = std::mem::take(&mut exported.notes);
        exported.notes = self.notes(&exported);
        exported.notes.extend(others);
        exported.notes.extend(hooks.notes());
        Ok(exported)
    }

    fn write_trace(&self, format: OutputFormat, hooks: &mut Hooks, path: &Path) -> Result<Exported, ExportError> {
        let (sorter, mut exported) = self.sorted(hooks)?;
        let mut file = TraceFile::create(path, format, &self.meta(format))?;
        let (inlet, outlet) = pipe();
        std::thread::scope(|scope| {
            let ordered = beside(scope, move || {
                let (mut sorted, mut chunk) = (sorter.finish(0)?, Chunk::default());
                while sorted.next(&mut chunk)? && inlet.hand_on(&mut chunk) {}
                Ok::<_, probe_sync_formats::Error>(())
            })?;
            let written = outlet.each(|chunk| file.write(chunk));
            end(ordered)?;
            written.map_err(ExportError::from)
        })?;
        let report = file.commit()?;
        exported.path = path.to_owned();
        // What is no file, as a pipe, has no length.
        exported.bytes =
            std::fs::metadata(path).ok().filter(Metadata::is_file).map_or(report.bytes, |found| found.len());
        Ok(exported)
    }

    /// Returns all events in a sorter, with counts by sort.
    fn sorted(&self, hooks: &mut Hooks) -> Result<(Sorter, Exported), ExportError> {
        let (inlet, outlet) = pipe();
        let mut devices = self.with.as_ref().map(|with| Devices::of(with, self.recording, &self.clock)).transpose()?;
        let launches = devices.as_mut().map(|devices| std::mem::take(&mut devices.launches)).unwrap_or_default();
        std::thread::scope(|scope| {
            let sorting = beside(scope, move || {
                let mut sorter = Sorter::of_ends();
                outlet.each(|chunk| sorter.push(chunk, |_, _| true)).map(|()| sorter)
            })?;
            let filled = Fill::new(self.recording, &self.clock, hooks, launches, inlet).all(devices);
            let sorter = end(sorting)?;
            Ok((sorter, filled?))
        })
    }

    fn meta(&self, format: OutputFormat) -> Meta {
        // Other formats have bases that files of several nodes share, or none.
        let base_ns = match format {
            OutputFormat::ChromeJson => self.from.saturating_sub(NS_PER_S).max(0),
            OutputFormat::XSpace => self.from,
            _ => 0,
        };
        let facts = self.recording.facts();
        let metadata = [("probe_sync_recorder", &facts.version), ("probe_sync_record_clock", &facts.clock)];
        let metadata = metadata.map(|(key, text)| (key.to_owned(), text.clone())).into();
        Meta { base_ns, metadata, world_size: facts.ranks, ..Meta::default() }
    }

    fn notes(&self, exported: &Exported) -> Vec<String> {
        let status = self.recording.status();
        let mut notes = Vec::new();
        let mut note = |count: u64, text: &str| {
            if count > 0 {
                notes.push(format!("{count} {text}"));
            }
        };
        note(exported.lost, "events were lost; slices mark the times");
        note(exported.unfinished, "scopes were not closed and are marked");
        note(exported.outside, "events lie outside the clock pairs and are marked");
        note(exported.near_step, "events lie near a step of the system clock and are marked");
        note(exported.clock_failed, "events occurred while the counter was unusable as a clock and are marked");
        note(status.definitions_lost, "definitions did not fit, so their events have no names");
        note(status.overwritten, "pieces were overwritten while they were being read");
        notes
    }
}

const NS_PER_S: i64 = 1_000_000_000;
const NO_OTHER_TRACE: &str = "a database holds no other trace's events; choose another format";

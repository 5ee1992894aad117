//! A recording on the reference clock of a run.
//!
//! The export first writes a trace on the system clock to a temporary file; then `align` of the
//! crate `alignment` puts it on the reference clock or, for a format that `align` does not write,
//! `convert` does. The result is therefore byte-identical to that of a later `align`, and the
//! arithmetic exists only once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use probe_sync_alignment::{
    AlignSettings, ClockSource, ConvertSettings, Output, OutputKind, Request, align, calibrate, convert,
};
use probe_sync_time::Duration;
use probe_sync_writers::OutputFormat;

use super::error::ExportError;
use super::format::Format;
use super::report::Exported;
use super::system::{EachHooks, OnSystem};
use super::with::WithTrace;
#[cfg(doc)]
use crate::hook::Hooks;
use crate::read::Recording;

/// Source of the reference clock.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The directory of a run, or a file of offsets.
    pub clocks: ClockSource,
    /// Nodes that recorded, one for each recording; empty: those whose hosts or ranks the run
    /// recorded.
    pub nodes: Vec<u32>,
    /// How far events may be outside the measured span.
    pub extrapolate: Duration,
}

impl Reference {
    /// Uses a run's directory.
    pub fn run(directory: impl Into<PathBuf>) -> Self {
        Self { clocks: ClockSource::Run(directory.into()), nodes: Vec::new(), extrapolate: Duration::ZERO }
    }

    /// Uses a file of offsets.
    pub fn offsets(file: impl Into<PathBuf>) -> Self {
        Self { clocks: ClockSource::Offsets(file.into()), nodes: Vec::new(), extrapolate: Duration::ZERO }
    }

    /// Sets the node that recorded.
    pub fn of_node(self, node: u32) -> Self {
        Self { nodes: vec![node], ..self }
    }
}

/// A recording whose times will be converted to a reference clock.
#[derive(Debug)]
pub struct OnReference<'a> {
    system: OnSystem<'a>,
    reference: Reference,
}

impl Recording {
    /// Converts its times to the reference clock of a run.
    ///
    /// # Errors
    /// Errors of [`Self::on_system`]; problems of the run show when something is written.
    pub fn on_reference(&self, reference: &Reference) -> Result<OnReference<'_>, ExportError> {
        Ok(self.on_system()?.on_reference(reference))
    }
}

impl<'a> OnSystem<'a> {
    /// Converts its times to the reference clock of a run.
    pub fn on_reference(self, reference: &Reference) -> OnReference<'a> {
        OnReference { system: self, reference: reference.clone() }
    }
}

impl OnReference<'_> {
    /// Writes a trace, with the same bytes as [`OnSystem::write`] followed by `align`, and next to
    /// it the statistics of the alignment.
    ///
    /// # Errors
    /// Errors of [`OnSystem::write`], and those of `calibrate` and `align`: the node of the
    /// recording is unknown, or the run was not measuring at that time.
    pub fn write(&self, format: Format, path: &Path) -> Result<Exported, ExportError> {
        let to = Outputs { all: &[path.to_owned()], at: path, format };
        let mut written = to.write(std::slice::from_ref(&self.system), &self.reference)?;
        Ok(written.remove(0))
    }
}

/// Writes recordings of several processes, each as the trace at its place in `outputs`, all in one
/// folder. What viewers need in common for traces shown together is common: an XSpace counts from
/// the earliest start. `hooks` creates those of a recording; [`Hooks::with_standard`] is what a single
/// recording is written with. With a `reference`, the bytes are those without one followed by one `align`
/// of all, if they are of different ranks; without, times are on each machine's system clock.
///
/// # Errors
/// Errors as for a single recording; outputs already written remain.
pub fn write_each(
    recordings: &[Recording],
    hooks: &EachHooks<'_>,
    with: &[WithTrace],
    reference: Option<&Reference>,
    format: Format,
    outputs: &[PathBuf],
) -> Result<Vec<Exported>, ExportError> {
    assert_eq!(recordings.len(), outputs.len(), "each recording has its output");
    let systems = OnSystem::of_each(recordings, hooks, with, outputs)?;
    let pairs = systems.iter().zip(outputs);
    let Some(reference) = reference else { return pairs.map(|(system, path)| system.write(format, path)).collect() };
    // One alignment has one trace of a rank: where somebody brings several, or they say nothing of
    // ranks, each is aligned alone.
    let ranks: BTreeSet<u32> = recordings.iter().filter_map(|recording| recording.facts().rank).collect();
    let together = ranks.len() == recordings.len() && format.can_be_aligned();
    if let ([first, _, ..], true) = (outputs, together) {
        let folder = first.parent().unwrap_or(Path::new(""));
        return Outputs { all: outputs, at: folder, format }.write(&systems, reference);
    }
    let of = |at: usize| reference.nodes.get(at).map(|node| vec![*node]).unwrap_or_default();
    let alone = |(at, (system, path)): (usize, (&OnSystem<'_>, &PathBuf))| {
        let to = Outputs { all: std::slice::from_ref(path), at: path, format };
        let mut written = to.write(std::slice::from_ref(system), &Reference { nodes: of(at), ..reference.clone() })?;
        Ok(written.remove(0))
    };
    pairs.enumerate().map(alone).collect()
}

/// Destination of traces.
struct Outputs<'a> {
    all: &'a [PathBuf],
    /// The argument for `align`: the file, or the folder for several.
    at: &'a Path,
    format: Format,
}

impl Outputs<'_> {
    /// Writes traces on the system clock into a folder that goes, and aligns them.
    fn write(&self, systems: &[OnSystem<'_>], reference: &Reference) -> Result<Vec<Exported>, ExportError> {
        let Self { all, at, format } = *self;
        all.iter().try_for_each(|path| format.refuse_other_ending(path))?;
        // A format that cannot be aligned is made of one that can.
        let own = if format.can_be_aligned() { format } else { Format::Kineto };
        let folder = folder_beside(&all[0])?;
        let (mut exported, mut traces) = (Vec::new(), Vec::new());
        #[cfg_attr(not(feature = "rocpd"), expect(unused_mut, reason = "only databases have them"))]
        let mut snapshots: Vec<PathBuf> = Vec::new();
        for (system, path) in systems.iter().zip(all) {
            let name = Path::new(path.file_name().unwrap_or_default());
            let before = folder.path().join(if own == format { name } else { Path::new("recording.pt.trace.json") });
            exported.push(system.write(own, &before).map_err(|error| error.of(path))?);
            #[cfg(feature = "rocpd")]
            if format == Format::Rocpd {
                snapshots.push(super::database::pairs_beside(&before));
            }
            traces.push(before);
        }
        let calibrated = calibrate(&Request {
            traces,
            snapshots,
            nodes: reference.nodes.clone(),
            clocks: reference.clocks.clone(),
            extrapolate: reference.extrapolate,
            outputs: all.to_vec(),
            ..Request::default()
        })?;
        match format.output().filter(|_| own != format) {
            Some(output) => converted(&calibrated, output, at, &mut exported[0])?,
            None => {
                for (aligned, exported) in align(&calibrated, at, AlignSettings::default())?.zip(&mut exported) {
                    exported.notes.extend(aligned?.stats.notes);
                }
            }
        }
        for (exported, path) in exported.iter_mut().zip(all) {
            exported.path = path.to_owned();
            exported.pairs = None;
            exported.bytes = std::fs::metadata(path).map_or(0, |found| found.len());
        }
        Ok(exported)
    }
}

/// A folder for traces that are not on the reference clock yet: on the output's disk, if there is
/// room for it, unless the output is not a file.
fn folder_beside(output: &Path) -> Result<tempfile::TempDir, ExportError> {
    let beside = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = if output.exists() && !output.is_file() { std::env::temp_dir() } else { beside.to_owned() };
    let made = tempfile::Builder::new().prefix(".probe_sync_record").tempdir_in(&parent);
    Ok(made.map_err(|source| crate::Error::File { path: parent, source })?)
}

fn converted(
    calibrated: &probe_sync_alignment::Calibrated,
    format: OutputFormat,
    path: &Path,
    exported: &mut Exported,
) -> Result<(), ExportError> {
    let output = Output { path: path.to_owned(), kind: OutputKind::File(format) };
    let report = convert(calibrated, &[output], &ConvertSettings::default())?;
    exported.notes.extend(report.traces.into_iter().flat_map(|trace| trace.alignment.notes));
    Ok(())
}

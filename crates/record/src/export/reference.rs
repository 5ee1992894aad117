//! A recording on the reference clock of a run.
//!
//! Place in the flow: what is written first is a trace on the system clock, in a file that nobody sees; then `align` of the crate `trace` puts it on the
//! reference clock, or, in a format that `align` does not write, `convert`. So a recording that is put there at once and one that `align` puts there
//! later are the same bytes, and there is one arithmetic. What it does not do: make maps.

use std::path::{Path, PathBuf};

use probe_sync_time::Duration;
use probe_sync_trace::write::OutputFormat;
use probe_sync_trace::{
    AlignSettings, ClockSource, ConvertSettings, Output, OutputKind, Request, align, calibrate, convert,
};

use super::error::ExportError;
use super::format::Format;
use super::report::Exported;
use super::system::OnSystem;
use crate::read::Recording;

/// Where the reference clock is learnt from.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The directory of a run, or a file of offsets.
    pub clocks: ClockSource,
    /// The node that recorded; None: the one for which the run recorded the host or the rank.
    pub node: Option<u32>,
    /// How far outside of the measured span events may lie.
    pub extrapolate: Duration,
}

impl Reference {
    /// A run's directory.
    pub fn run(directory: impl Into<PathBuf>) -> Self {
        Self { clocks: ClockSource::Run(directory.into()), node: None, extrapolate: Duration::ZERO }
    }

    /// A file of offsets.
    pub fn offsets(file: impl Into<PathBuf>) -> Self {
        Self { clocks: ClockSource::Offsets(file.into()), node: None, extrapolate: Duration::ZERO }
    }

    /// The node that recorded.
    pub fn of_node(self, node: u32) -> Self {
        Self { node: Some(node), ..self }
    }
}

/// A recording whose times will be on a reference clock.
#[derive(Debug)]
pub struct OnReference<'a> {
    system: OnSystem<'a>,
    reference: Reference,
}

impl Recording {
    /// Puts its times on the reference clock of a run.
    ///
    /// # Errors
    /// As [`Self::on_system`]; what is wrong with the run shows when something is written.
    pub fn on_reference(&self, reference: &Reference) -> Result<OnReference<'_>, ExportError> {
        Ok(self.on_system()?.on_reference(reference))
    }
}

impl<'a> OnSystem<'a> {
    /// The same on the reference clock of a run.
    pub fn on_reference(self, reference: &Reference) -> OnReference<'a> {
        OnReference { system: self, reference: reference.clone() }
    }
}

impl OnReference<'_> {
    /// Writes a trace, the same bytes as [`OnSystem::write`] and `align` after it. Beside it lies what `align` says of the correction.
    ///
    /// # Errors
    /// Those of [`OnSystem::write`]; those of `calibrate` and `align`: whose the recording is is not known, or the run was not under way then.
    pub fn write(&self, format: Format, path: &Path) -> Result<Exported, ExportError> {
        format.refuse_other_ending(path)?;
        // A format that cannot be aligned is made of one that can.
        let own = if format.can_be_aligned() { format } else { Format::Kineto };
        let folder = tempfile::Builder::new()
            .prefix("probe_sync_record")
            .tempdir()
            .map_err(|source| crate::Error::File { path: std::env::temp_dir(), source })?;
        let name = Path::new(path.file_name().unwrap_or_default());
        let name = if own == format { name.into() } else { PathBuf::from("recording.pt.trace.json") };
        let before = folder.path().join(name);
        let mut exported = self.system.write(own, &before)?;
        let snapshots = self.boot_pairs(format, folder.path())?;
        let calibrated = calibrate(&Request {
            traces: vec![before],
            snapshots,
            nodes: self.reference.node.into_iter().collect(),
            clocks: self.reference.clocks.clone(),
            extrapolate: self.reference.extrapolate,
            outputs: vec![path.to_owned()],
            ..Request::default()
        })?;
        match format.output().filter(|_| own != format) {
            Some(output) => converted(&calibrated, output, path, &mut exported)?,
            None => {
                for aligned in align(&calibrated, path, AlignSettings::default())? {
                    exported.notes.extend(aligned?.stats.notes);
                }
            }
        }
        exported.path = path.to_owned();
        exported.bytes = std::fs::metadata(path).map_or(0, |found| found.len());
        Ok(exported)
    }

    /// What ties a database's clock to the system clock: the recording's own pairs, as a file of snapshots.
    #[cfg(feature = "rocpd")]
    fn boot_pairs(&self, format: Format, folder: &Path) -> Result<Vec<PathBuf>, ExportError> {
        if format != Format::Rocpd {
            return Ok(Vec::new());
        }
        let path = folder.join("boot.snapshot_pairs.jsonl");
        let lines = super::database::boot_pairs(self.system.recording, &self.system.clock);
        std::fs::write(&path, lines).map_err(|source| crate::Error::File { path: path.clone(), source })?;
        Ok(vec![path])
    }

    #[cfg(not(feature = "rocpd"))]
    fn boot_pairs(&self, _: Format, _: &Path) -> Result<Vec<PathBuf>, ExportError> {
        Ok(Vec::new())
    }
}

fn converted(
    calibrated: &probe_sync_trace::Calibrated,
    format: OutputFormat,
    path: &Path,
    exported: &mut Exported,
) -> Result<(), ExportError> {
    let output = Output { path: path.to_owned(), kind: OutputKind::File(format) };
    let report = convert(calibrated, &[output], &ConvertSettings::default())?;
    exported.notes.extend(report.traces.into_iter().flat_map(|trace| trace.alignment.notes));
    Ok(())
}

//! The formats of traces, by their names and the endings of their files.

use std::path::Path;

use probe_sync_writers::OutputFormat;

use super::error::ExportError;

/// A trace format.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// PyTorch Kineto's JSON: HolisticTraceAnalysis, TensorBoard, Perfetto.
    Kineto,
    /// XSpace: xprof, TensorBoard.
    XSpace,
    /// Perfetto's protobuf.
    Perfetto,
    /// Chrome's JSON.
    ChromeJson,
    /// A database of rocprofv3, on `CLOCK_BOOTTIME`; with the feature `rocpd`.
    Rocpd,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Kineto, Self::XSpace, Self::Perfetto, Self::ChromeJson, Self::Rocpd];

    /// Returns its name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kineto => "kineto",
            Self::XSpace => "xspace",
            Self::Perfetto => "pftrace",
            Self::ChromeJson => "json",
            Self::Rocpd => "rocpd",
        }
    }

    /// Returns the endings of its file names; the first is the one for new files.
    pub fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Kineto => &[".pt.trace.json.gz", ".pt.trace.json", ".json", ".json.gz"],
            Self::XSpace => &[".xplane.pb"],
            Self::Perfetto => &[".pftrace", ".perfetto-trace", ".pftrace.gz", ".perfetto-trace.gz"],
            Self::ChromeJson => &[".json", ".json.gz"],
            Self::Rocpd => &["_results.db", ".db"],
        }
    }

    pub(super) fn output(self) -> Option<OutputFormat> {
        match self {
            Self::Kineto => Some(OutputFormat::Kineto),
            Self::XSpace => Some(OutputFormat::XSpace),
            Self::Perfetto => Some(OutputFormat::Perfetto),
            Self::ChromeJson => Some(OutputFormat::ChromeJson),
            Self::Rocpd => None,
        }
    }

    /// Returns true if files of the format can be moved to another clock afterwards.
    pub(super) fn can_be_aligned(self) -> bool {
        matches!(self, Self::Kineto | Self::XSpace | Self::Rocpd)
    }

    pub(super) fn refuse_other_ending(self, path: &Path) -> Result<(), ExportError> {
        let name = path.as_os_str().as_encoded_bytes();
        // What is no file, as a pipe, has the name that it has.
        if path.exists() && !path.is_file() || self.endings().iter().any(|ending| name.ends_with(ending.as_bytes())) {
            return Ok(());
        }
        let reason = format!("names of {} files must end in {}", self.as_str(), self.endings().join(", "));
        Err(ExportError::Output { path: path.to_owned(), reason })
    }
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|format| format.as_str() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|format| format.as_str()).collect();
            format!("`{text}` is not a format; use one of {}", names.join(", "))
        })
    }
}

#[cfg(not(feature = "rocpd"))]
pub(super) const NO_DATABASES: &str = "this program was built without databases; build it with the feature rocpd";

//! Existing Perfetto traces side by side in one TAR, with a `perfetto_manifest` that states their
//! machines and the offsets between their clocks.
//!
//! It is one of the outputs of [`merge()`](crate::merge()), for traces in Perfetto's format.
//! Reference: Perfetto's `docs/reference/perfetto-manifest.md` and its reader
//! `perfetto_manifest_reader.cc` (v58.2). All times stay unchanged. All traces are put on the clock
//! of the first; every other file states one `offset_ns`: at an instant at which its clock shows T,
//! that of the first file shows T + `offset_ns`. With R_i → S_0 the map of a file and S_0 → R_1 the
//! inverse of that of the first, `offset_ns` is the middle of the amounts that R_i → R_1 adds to
//! the times of the file. Half of their range remains as an error: the drift, which one number
//! cannot state (`offset`). Files of one machine and clock share their offset, because Perfetto
//! treats one clock of one machine as a single clock. It does not inspect events, and it does not
//! include traces without a clock.

mod document;
mod machines;
mod offset;

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::Error;
use probe_sync_files::AtomicFile;
use probe_sync_formats::ALIGNED_TO;
use serde::Serialize;
use tar::{Builder, EntryType, Header};

use crate::calibrated::Calibrated;
use crate::outputs;
use crate::provenance;
use document::{Clocks, Entry, Manifest, Reference, TraceTime};
use machines::Machine;

/// Clock relations stated in a TAR of Perfetto traces.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TarReport {
    /// Members in the order of the traces; all are put on the clock of the first.
    pub files: Vec<TarMember>,
}

/// A trace in a TAR.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TarMember {
    /// Name in the TAR.
    pub member: String,
    /// Machine to which the manifest assigns it.
    pub machine: String,
    /// Clock that is related, by Perfetto's name; `None` (JSON: null) if the file states none, in
    /// which case its own timeline is related.
    pub clock: Option<&'static str>,
    /// Offset, ns: at the instant when its clock shows T, the first file's shows T + this. `None`
    /// (JSON: null) for a file without events.
    pub offset_ns: Option<i64>,
    /// Largest distance between an event of the file with this offset and its mapped time, ns.
    pub drift_left_ns: Option<u64>,
    /// Time from the first to the last event of all files of its machine and clock, ns.
    pub over_ns: Option<i64>,
}

impl TarMember {
    /// Returns the note for the user.
    pub(crate) fn note(&self, reference: &str) -> String {
        let Self { member, machine, clock, offset_ns, drift_left_ns, over_ns } = self;
        let clock = clock.unwrap_or("its own timeline");
        let mut text = format!("{member} from the machine {machine}, on {clock}: ");
        match (offset_ns, drift_left_ns, over_ns) {
            (Some(offset), Some(left), Some(over)) => {
                let seconds = *over as f64 * 1e-9;
                text.push_str(&format!(
                    "offset_ns {offset} relative to {reference}, constant over {seconds:.3} s, with a remaining drift of at most {left} ns"
                ));
            }
            _ => text.push_str("no events, and no offset"),
        }
        text
    }
}

/// Returns true if an output is such a TAR.
pub(crate) fn is_meant(output: &Path) -> bool {
    output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("tar"))
}

/// Writes all traces and the manifest into `output`, which appears when it is complete.
///
/// # Errors
/// Fails if a trace has another format or no clock, and on errors of reading and writing.
pub(crate) fn write(calibrated: &Calibrated, output: &Path) -> Result<TarReport, Error> {
    let machines = machines::machines(calibrated)?;
    let members = members(calibrated);
    let report = TarReport { files: described(&machines, &members) };
    let manifest = manifest(calibrated, &report.files);
    let text = serde_json::to_string_pretty(&manifest).map_err(|error| Error::io(output, "write")(error.into()))?;
    let wrong = |source| Error::io(output, "write")(source);
    let mut tar = Builder::new(AtomicFile::create(output).map_err(Error::io(output, "create"))?);
    append(&mut tar, MANIFEST, text.len() as u64, text.as_bytes()).map_err(wrong)?;
    // Trace processor reads members in the order of their names, and v52 ends where that is not
    // their order in the TAR.
    let mut by_name: Vec<usize> = (0..members.len()).collect();
    by_name.sort_by_key(|&part| &members[part]);
    for part in by_name {
        let path = &calibrated.traces[part].trace.path;
        let mut input = File::open(path).map_err(Error::io(path, "open"))?;
        let length = input.metadata().map_err(Error::io(path, "read"))?.len();
        let mut whole = Whole { input: (&mut input).take(length), left: length };
        append(&mut tar, &members[part], length, &mut whole).map_err(wrong)?;
    }
    tar.into_inner().map_err(wrong)?.commit().map_err(Error::io(output, "write"))?;
    Ok(report)
}

/// Returns the names of the traces in the TAR: their file names, distinguished by their folders.
/// Perfetto skips names that begin with a full stop, and the manifest's name is reserved.
fn members(calibrated: &Calibrated) -> Vec<String> {
    let paths: Vec<&Path> = calibrated.traces.iter().map(|of| of.trace.path.as_path()).collect();
    let mut members: Vec<String> = Vec::with_capacity(paths.len());
    for (number, name) in outputs::names(&paths).into_iter().map(OsString::into_string).enumerate() {
        let name = name.unwrap_or_else(|bytes| bytes.to_string_lossy().into_owned());
        let is_free = !name.starts_with('.') && name != MANIFEST && !members.contains(&name);
        members.push(if is_free { name } else { format!("{number}_{name}") });
    }
    members
}

/// Describes the traces of all machines, in order.
fn described(machines: &[Machine], members: &[String]) -> Vec<TarMember> {
    let mut files = vec![TarMember::default(); members.len()];
    for machine in machines {
        for &part in &machine.parts {
            files[part] = TarMember {
                member: members[part].clone(),
                machine: machine.name.clone(),
                clock: machine.clock,
                offset_ns: machine.constant.map(|constant| constant.offset_ns),
                drift_left_ns: machine.constant.map(|constant| constant.left_ns),
                over_ns: machine.over_ns,
            };
        }
    }
    files
}

fn manifest(calibrated: &Calibrated, files: &[TarMember]) -> Manifest {
    let Some(first) = files.first() else { return Manifest::default() };
    let reference = || Reference { file: first.member.clone(), clock: first.clock };
    let entry = |(index, file): (usize, &TarMember)| {
        // A clock cannot be related to itself.
        let is_reference =
            index == 0 || file.clock.is_some() && (&file.machine, file.clock) == (&first.machine, first.clock);
        let offset_ns = file.offset_ns.filter(|_| !is_reference);
        let clocks = offset_ns.map(|offset_ns| Clocks { clock: file.clock, sync_to: reference(), offset_ns });
        Entry::new(file.member.clone(), file.machine.clone(), clocks)
    };
    let trace_time = first.clock.map(|clock| TraceTime { clock, file: first.member.clone() });
    // No time is on the common clock.
    let attributes = provenance::of_calibration(calibrated).into_iter().filter(|(key, _)| key != ALIGNED_TO).collect();
    Manifest::new(trace_time, files.iter().enumerate().map(entry).collect(), attributes)
}

fn append(tar: &mut Builder<AtomicFile>, name: &str, length: u64, content: impl Read) -> std::io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_size(length);
    header.set_mode(0o644);
    // Same input, same bytes.
    header.set_mtime(0);
    tar.append_data(&mut header, name, content)
}

/// A file whose length is stated before it is read.
struct Whole<R> {
    input: R,
    left: u64,
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.left -= count as u64;
        if count == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(std::io::Error::other("a trace was truncated while it was copied"));
        }
        Ok(count)
    }
}

/// Conventional name of the manifest.
const MANIFEST: &str = "perfetto_manifest.json";

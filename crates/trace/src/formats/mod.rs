//! The formats of trace files, each a value behind one interface.
//!
//! Place in the flow: [`detect`] tells which format a file is of; the format reads its facts for `clocks` and `collectives`,
//! and rewrites or merges its files for `align` and `merge`, which hand it a map per trace. Everything that is shared between
//! formats ([`RewriteOptions`], [`MergeInput`], the statistics) is here; what only one format knows stays in its folder.
//!
//! A new format is a folder with a type that implements [`TraceFormat`], and a line in [`FORMATS`]. Inputs and outputs are
//! paths, not streams of bytes: a database is opened by its own library.
//!
//! What it does not do: know nodes, make maps, mix formats.

pub(crate) mod gzip;
mod kineto;
mod xspace;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Error;
use crate::model::{Picoseconds, TraceFacts};

pub use kineto::Kineto;
pub use xspace::XSpace;

/// One format of trace files.
///
/// Times that go through a map are absolute picoseconds on the trace's own timeline. An output appears under its name when it
/// is whole; after an error there is none.
pub trait TraceFormat: std::fmt::Debug + Sync {
    /// The format's name, for messages and reports.
    fn name(&self) -> &'static str;

    /// Endings of the names that profilers give their files: how traces are found in a folder.
    fn profiler_endings(&self) -> &'static [&'static str];

    /// The ending that an output should have, for people.
    fn output_ending(&self) -> &'static str;

    /// Whether an output whose name ends in `.gz` is packed with gzip.
    fn packs_outputs(&self) -> bool;

    /// Whether a file is of this format, as far as `evidence` tells.
    fn detect(&self, evidence: Evidence<'_>) -> bool;

    /// What a file says of itself, its clock and its collectives.
    ///
    /// # Errors
    /// Names file and byte.
    fn read_facts(&self, path: &Path, options: &FactOptions) -> Result<TraceFacts, Error>;

    /// The start of the recording that a file states, ns on its own timeline, where viewers draw every node from its own
    /// start; such formats need one base for the aligned files of several nodes.
    ///
    /// # Errors
    /// Names file and byte.
    fn session_start_ns(&self, _path: &Path) -> Result<Option<i64>, Error> {
        Ok(None)
    }

    /// Writes `input` to `output` with every time sent through `map`. What is not a time stays as it is, and so does a time
    /// that the map leaves alone. The map is asked in the order of the file; a pass that has to be repeated asks again.
    ///
    /// # Errors
    /// Names file and byte.
    fn rewrite(
        &self,
        input: &Path,
        output: &Path,
        options: &RewriteOptions,
        map: &mut MapFunction<'_>,
    ) -> Result<RewriteStats, Error>;

    /// Writes all inputs into one file, each through its own map, with no name or number used for two things.
    ///
    /// # Errors
    /// Names file and byte.
    fn merge(&self, inputs: &mut [MergeInput<'_>], output: &Path, options: &MergeOptions) -> Result<MergeStats, Error>;
}

impl PartialEq for dyn TraceFormat + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

/// Where a time goes: absolute picoseconds on a trace's timeline to those on the new one.
pub type MapFunction<'a> = dyn FnMut(Picoseconds) -> Picoseconds + 'a;

/// What tells a file's format: its name; its first bytes only where no format knows the name.
#[derive(Copy, Clone, Debug)]
pub enum Evidence<'a> {
    /// The file's name in lower case, without `.gz`.
    Name(&'a str),
    /// The file's first bytes, unpacked where they are gzip.
    Head(&'a [u8]),
}

/// What a reader of facts is told beyond the file.
#[derive(Clone, Debug, Default)]
pub struct FactOptions {
    /// Further clock markers: event names that match, with the system time, ns, in the group named `system_ns`.
    pub markers: Option<regex::Regex>,
}

/// What to do beside mapping.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct RewriteOptions {
    /// What the output's times count from, ns. `None`: the format's own choice, which is the input's base where the format
    /// can keep it, else where the map puts the input's start.
    pub base_ns: Option<i64>,
    /// Whether each event keeps how far its start was moved, new minus old, under the name `timestamp_correction_ns`.
    pub annotate: bool,
}

/// What rewriting one trace did.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RewriteStats {
    /// Events, as the format counts them: in Kineto all, in XSpace those with a time.
    pub events: u64,
    /// Events without a time of their own, which stay as they are.
    pub untimed: u64,
    /// Events whose digits below the picosecond were lost; an event that the map leaves alone loses none.
    pub rounded: u64,
    /// Events (XSpace: lines of events) that begin before the output's base; some viewers drop them.
    pub before_base: u64,
    /// Metadata events before the output's base, put at it.
    pub metadata_clamped: u64,
    /// The base of the output's times, ns, where it has one.
    pub base_ns: Option<i64>,
    /// Bytes read, after unpacking.
    pub bytes_read: u64,
    /// Bytes written, before packing; 0 for one of several inputs of a merge.
    pub bytes_written: u64,
}

/// One trace of a merge.
pub struct MergeInput<'a> {
    /// The file.
    pub path: PathBuf,
    /// What tells it from the others: its rank, else its node.
    pub node: u32,
    /// Its host's name, or whatever tells people which node it is.
    pub name: String,
    /// From the trace's timeline to the one that all share.
    pub map: &'a mut MapFunction<'a>,
}

impl MergeInput<'_> {
    /// `node1` or, where its host is known by another name, `rank1 (gpu-07)`.
    pub(crate) fn label(&self) -> String {
        label(self.node, &self.name)
    }
}

/// `node1` or, where its host is known by another name, `rank1 (gpu-07)`.
pub(crate) fn label(node: u32, name: &str) -> String {
    let plain = format!("node{node}");
    if name == plain { plain } else { format!("rank{node} ({name})") }
}

/// What to do beside mapping and joining.
#[derive(Clone, Debug, Default)]
pub struct MergeOptions {
    /// What all times count from, ns. `None`: the format's own choice.
    pub base_ns: Option<i64>,
    /// As in [`RewriteOptions`].
    pub annotate: bool,
    /// How planes are laid out; formats without planes do not look at it.
    pub layout: PlaneLayout,
    /// Written into the output as text: method, uncertainty, versions.
    pub metadata: Vec<(String, String)>,
}

/// How the planes of an XSpace are laid out.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum PlaneLayout {
    /// `/host:CPU`, `/host:CPU node1`…, devices `/device:GPU:<node·stride+local>`: for xprof.
    #[default]
    Xprof,
    /// Host planes of other nodes become device tracks above all devices, for viewers that know only standard names.
    GpuTracks,
}

/// What merging did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MergeStats {
    /// Per input, in the order given.
    pub inputs: Vec<RewriteStats>,
    /// The common base, ns.
    pub base_ns: i64,
    /// By how much the numbers of a node (XSpace: of devices; Kineto: of links) are above those of the one before.
    pub stride: u64,
    /// What the inputs say beside their events and the output does not.
    pub headers_left_out: u64,
    /// Bytes written, before packing.
    pub bytes_written: u64,
}

/// The format of a file: by its name where a format knows it, else by its first bytes, unpacked where they are gzip.
///
/// # Errors
/// When the file cannot be read or begins like none.
pub fn detect(path: &Path) -> Result<&'static dyn TraceFormat, Error> {
    let mut file = File::open(path).map_err(Error::io(path, "open"))?;
    let name = plain_name(path);
    if let Some(format) = known(Evidence::Name(&name)) {
        return Ok(format);
    }
    let mut head = gzip::head(&mut file, HEAD_BYTES).map_err(Error::io(path, "read"))?;
    if gzip::is_packed(&head) {
        let mut unpacked = Vec::with_capacity(HEAD_BYTES);
        let mut reader = flate2::read::MultiGzDecoder::new(file).take(HEAD_BYTES as u64);
        reader.read_to_end(&mut unpacked).map_err(Error::io(path, "unpack"))?;
        head = unpacked;
    }
    if let Some(format) = known(Evidence::Head(&head)) {
        return Ok(format);
    }
    let spaces = head.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(&head).iter().all(u8::is_ascii_whitespace);
    let problem = if spaces {
        "holds nothing but spaces at its beginning"
    } else {
        "begins like neither JSON nor an XSpace protobuf"
    };
    Err(Error::malformed(path, 0, problem))
}

/// Refuses an output whose name promises another format than is going to be written.
///
/// # Errors
/// [`Error::Nodes`] with the endings that fit.
pub(crate) fn refuse_other_ending(format: &dyn TraceFormat, output: &Path) -> Result<(), Error> {
    let of_other = known(Evidence::Name(&plain_name(output))).is_some_and(|other| other != format);
    let packed = output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
    if of_other || packed && !format.packs_outputs() {
        let right = format.output_ending();
        let problem = format!("{}: the traces' format wants a name that ends in {right}", output.display());
        return Err(Error::Nodes { problem });
    }
    Ok(())
}

fn known(evidence: Evidence<'_>) -> Option<&'static dyn TraceFormat> {
    FORMATS.into_iter().find(|format| format.detect(evidence))
}

/// A file's name in lower case, without `.gz`.
fn plain_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    name.trim_end_matches(".gz").to_owned()
}

/// All formats, in the order in which they are asked: a file of text may begin with a line feed, which is also the tag of an
/// XSpace's first field.
pub const FORMATS: [&dyn TraceFormat; 2] = [&Kineto, &XSpace];

/// What a text file may begin with.
pub(crate) const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
const HEAD_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, content: &[u8], expected: Result<&str, &str>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("a file");
        let found = detect(&path).map(TraceFormat::name).map_err(|error| error.to_string());
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{name}"),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{name}: {found}"),
            (found, _) => panic!("{name}: {found:?}"),
        }
    }

    #[test]
    fn names_count_before_first_bytes() {
        check("a.xplane.pb", b"{", Ok("xspace"));
        check("A.PB.GZ", b"", Ok("xspace"));
        check("a.pt.trace.json.gz", b"\x0a", Ok("kineto"));
        check("a", b"\xef\xbb\xbf \n[", Ok("kineto"));
        check("a", b"\x0a{", Ok("kineto"));
        check("a", b"\x0a\x10plane", Ok("xspace"));
        check("a", b"text", Err("begins like neither"));
        check("a", b" \n", Err("nothing but spaces"));
        let packed = {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut packer, b"{}").expect("packed");
            packer.finish().expect("packed")
        };
        check("a", &packed, Ok("kineto"));
    }

    #[test]
    fn outputs_keep_the_promise_of_their_names() {
        let refused = |format: &dyn TraceFormat, name: &str| refuse_other_ending(format, Path::new(name)).is_err();
        for name in ["a.json", "a.json.gz", "a.gz"] {
            assert!(refused(&XSpace, name) && !refused(&Kineto, name), "{name}");
        }
        for name in ["a.pb", "a.xplane.pb", "A.PB"] {
            assert!(refused(&Kineto, name) && !refused(&XSpace, name), "{name}");
        }
        assert!(refused(&Kineto, "a.pb.gz") && refused(&XSpace, "a.pb.gz"));
        assert!(!refused(&Kineto, "a") && !refused(&XSpace, "a"));
    }
}

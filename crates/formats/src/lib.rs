//! The formats of trace files, each a value behind one interface.
//!
//! [`detect`] recognises a file's format. The format reads what the file says of its clock and its
//! collectives ([`model`]), returns its events as tables ([`chunk`]), and rewrites or merges files
//! through a map of times that the caller supplies: everything that is not a time is copied,
//! unknown fields included. What formats share ([`RewriteOptions`], [`MergeInput`], the statistics)
//! is in `interface`; knowledge about a single format stays in its directory. Inputs and outputs
//! are paths, not streams of bytes: a database is opened by its own library.
//!
//! A new format is a folder with a type that implements [`TraceFormat`], and a line in [`FORMATS`].
//!
//! This crate quarantines SQLite (feature `rocpd`). It knows no clocks: where they come from and
//! which trace belongs to which node is decided in later crates. It uses `time`, `files`,
//! `lines`, `hang` (dumps of the Flight Recorder) and `rocpd`.
#![forbid(unsafe_code)]

mod aligned;
pub mod chunk;
#[cfg(feature = "rocpd")]
mod environment;
mod error;
mod flight_recorder;
pub mod gzip;
mod in_order;
mod interface;
mod keep;
mod kineto;
mod marker;
pub mod model;
#[cfg(feature = "rocpd")]
mod nccl;
mod nccl_inspector;
#[cfg(feature = "rocpd")]
mod nsys;
mod output;
pub mod perfetto;
pub mod protobuf;
#[cfg(feature = "rocpd")]
pub mod rocpd;
#[cfg(feature = "rocpd")]
mod rpd;
#[cfg(feature = "rocpd")]
mod sqlite;
mod stated;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod torch_operations;
pub mod words;
mod workers;
mod xspace;

use std::fs::File;
use std::io::Read;
use std::path::Path;

pub use aligned::{ALIGNED_PLANE, ALIGNED_SIGMA, ALIGNED_TO};
pub use error::Error;
pub use flight_recorder::FlightRecorder;
pub use in_order::{Stages, in_order};
pub use interface::{
    AgentIndex, ChunkOptions, ChunkSink, ChunkStats, CpuClock, Evidence, FactOptions, MapFunction, MergeInput,
    MergeOptions, MergeStats, PlaneLayout, RewriteOptions, RewriteStats, TraceFormat, WantedArgs,
};
pub(crate) use interface::{BYTE_ORDER_MARK, rank_marker};
pub use keep::{EventFilter, Named, Seen};
pub use kineto::{ChromeJson, Kineto, quarter_before_ns};
pub use nccl_inspector::NcclInspector;
#[cfg(feature = "rocpd")]
pub use nsys::Nsys;
pub use perfetto::Perfetto;
#[cfg(feature = "rocpd")]
pub use rocpd::Rocpd;
#[cfg(feature = "rocpd")]
pub use rpd::Rpd;
pub use workers::{limit_workers, side_by_side, with_workers, workers};
pub use xspace::XSpace;
#[doc(hidden)]
pub use xspace::fields as xspace_fields;

/// Detects the format of a file: by its name if a format recognises it and accepts its contents,
/// otherwise by its first bytes, decompressed if they are gzip. Flight Recorder dumps, NCCL Inspector
/// logs and JSON of other programs may be named like Kineto traces, so only the first bytes
/// distinguish these.
///
/// # Errors
/// Returns an error if the file cannot be read or matches no format.
pub fn detect(path: &Path) -> Result<&'static dyn TraceFormat, Error> {
    let mut file = File::open(path).map_err(Error::io(path, "open"))?;
    let name = plain_name(path);
    if let Some(format) = known(Evidence::Name(&name)) {
        let kineto: &dyn TraceFormat = &Kineto;
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let begins = (format == kineto && is_file).then(|| head(path, &mut file).ok()).flatten();
        let others: [&dyn TraceFormat; 3] = [&FlightRecorder, &NcclInspector, &ChromeJson];
        let is_other =
            |other: &&dyn TraceFormat| begins.as_ref().is_some_and(|head| other.detect(Evidence::Head(head)));
        if let Some(other) = others.into_iter().find(is_other) {
            return Ok(other);
        }
        let of_other = is_file && !format.accepts(path);
        return Ok(if of_other { known(Evidence::Head(&head(path, &mut file)?)).unwrap_or(format) } else { format });
    }
    let head = head(path, &mut file)?;
    if let Some(format) = known(Evidence::Head(&head)) {
        return Ok(format);
    }
    let spaces = head.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(&head).iter().all(u8::is_ascii_whitespace);
    let problem = if spaces { "begins with nothing but white space" } else { NONE_OF_OURS };
    Err(Error::malformed(path, 0, problem))
}

/// The first bytes of a file, decompressed if they are gzip.
fn head(path: &Path, file: &mut File) -> Result<Vec<u8>, Error> {
    let head = gzip::head(file, HEAD_BYTES).map_err(Error::io(path, "read"))?;
    if !gzip::is_packed(&head) {
        return Ok(head);
    }
    let mut unpacked = Vec::with_capacity(HEAD_BYTES);
    let mut reader = flate2::read::MultiGzDecoder::new(file).take(HEAD_BYTES as u64);
    reader.read_to_end(&mut unpacked).map_err(Error::io(path, "unpack"))?;
    Ok(unpacked)
}

/// Returns true for the formats that are Chrome's JSON, which can be merged with each other.
pub fn is_chrome_json(format: &dyn TraceFormat) -> bool {
    let (kineto, other): (&dyn TraceFormat, &dyn TraceFormat) = (&Kineto, &ChromeJson);
    format == kineto || format == other
}

/// Whether a file of JSON begins as traces do; one that cannot be read does not.
pub fn begins_as_trace(path: &Path) -> bool {
    let kineto: &dyn TraceFormat = &Kineto;
    if known(Evidence::Name(&plain_name(path))).is_none_or(|format| format != kineto) {
        return false;
    }
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let read = |file: File, head: &mut Vec<u8>| {
        let mut file = std::io::BufReader::new(file);
        let packed = std::io::BufRead::fill_buf(&mut file).is_ok_and(gzip::is_packed);
        match packed {
            true => flate2::read::MultiGzDecoder::new(file).take(HEAD_BYTES as u64).read_to_end(head),
            false => file.take(HEAD_BYTES as u64).read_to_end(head),
        }
    };
    let begins = File::open(path).is_ok_and(|file| read(file, &mut head).is_ok());
    let holds = |key: &[u8]| memchr::memmem::find(&head, key).is_some();
    let keys: [&[u8]; 3] = [b"\"traceEvents\"", b"\"schemaVersion\"", b"\"baseTimeNanoseconds\""];
    begins && (keys.into_iter().any(holds) || ChromeJson.detect(Evidence::Head(&head)))
}

/// Refuses an output whose name suggests another format than will be written, or whose name ending
/// matches neither a format nor an input. Formats that are never written refuse it themselves.
///
/// # Errors
/// [`Error::Request`] with the endings that fit.
pub fn refuse_other_ending<'a>(
    format: &dyn TraceFormat,
    output: &Path,
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Error> {
    if probe_sync_files::is_stream(output) || format.output_ending().is_empty() {
        return Ok(());
    }
    let name = plain_name(output);
    let inputs: Vec<&Path> = inputs.into_iter().filter(|input| input.extension() == output.extension()).collect();
    let like_input = |is_same: &dyn Fn(&Path) -> bool| inputs.iter().any(|input| is_same(input));
    let of_other = match known(Evidence::Name(&name)) {
        Some(other) => other != format && !like_input(&|input| detect(input).is_ok_and(|found| found == format)),
        // Inputs may be called as their user likes, and so may what comes of them.
        None => Path::new(&name).extension().is_some() && !like_input(&|_| true),
    };
    let packed = output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
    if of_other || packed && !format.packs_outputs() {
        let right = format.output_ending();
        let problem = format!("{}: for this trace format the name must end in {right}", output.display());
        return Err(Error::Request { problem });
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

/// All formats, in the order in which they are tried: dumps, logs and events of other programs are
/// JSON, as Kineto's traces are,
/// and a text file may begin with a line feed, which is also the tag of the first field of an
/// XSpace and of the packets of a Perfetto trace.
#[cfg(feature = "rocpd")]
pub const FORMATS: [&dyn TraceFormat; 9] =
    [&FlightRecorder, &NcclInspector, &ChromeJson, &Kineto, &Perfetto, &XSpace, &Nsys, &Rpd, &Rocpd];
/// All formats of a build without databases, in the order in which they are tried.
#[cfg(not(feature = "rocpd"))]
pub const FORMATS: [&dyn TraceFormat; 6] = [&FlightRecorder, &NcclInspector, &ChromeJson, &Kineto, &Perfetto, &XSpace];

const HEAD_BYTES: usize = 4096;
#[cfg(feature = "rocpd")]
const NONE_OF_OURS: &str = "is not JSON, protobuf (XSpace, Perfetto), a Flight Recorder dump, a log of the NCCL Inspector or a SQLite database";
#[cfg(not(feature = "rocpd"))]
const NONE_OF_OURS: &str = "is not JSON, protobuf (XSpace, Perfetto), a Flight Recorder dump or a log of the NCCL Inspector; reading databases needs a build with the feature rocpd";

#[cfg(test)]
mod tests {
    use crate::*;

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
        check("a", b"text", Err("is not JSON"));
        if cfg!(feature = "rocpd") {
            check("report1.sqlite", b"", Ok("nsys"));
            check("a", b"SQLite format 3\0", Ok("rocpd"));
        }
        check("a", b" \n", Err("nothing but white space"));
        let packed = {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut packer, b"{}").expect("packed");
            packer.finish().expect("packed")
        };
        check("a", &packed, Ok("kineto"));
    }

    #[test]
    fn outputs_keep_the_promise_of_their_names() {
        let input = Path::new("rank0.trace");
        let refused =
            |format: &dyn TraceFormat, name: &str| refuse_other_ending(format, Path::new(name), [input]).is_err();
        for name in ["a.json", "a.json.gz", "a.gz"] {
            assert!(refused(&XSpace, name) && !refused(&Kineto, name), "{name}");
        }
        for name in ["a.pb", "a.xplane.pb", "A.PB"] {
            assert!(refused(&Kineto, name) && !refused(&XSpace, name), "{name}");
        }
        assert!(refused(&Kineto, "a.pb.gz") && refused(&XSpace, "a.pb.gz"));
        assert!(!refused(&Kineto, "a") && !refused(&XSpace, "a"));
        assert!(refused(&Kineto, "a.foo") && refused(&XSpace, "a.foo.gz"));
        assert!(!refused(&Kineto, "a.trace") && !refused(&Kineto, "/dev/null"));
    }
}

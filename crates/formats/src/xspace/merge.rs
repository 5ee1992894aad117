//! Merges the files of several nodes into one, each through its own map.
//!
//! All inputs share one session start, the earliest one after mapping. Planes, lines, displays and
//! hosts get unique names and ids; ids that link events of one host (correlation, producer and
//! consumer) are shifted by node. Node 0's planes keep their names, because readers look for some
//! of them by exact name. It does not merge the metadata of equal programs.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use super::fields::space;
use super::kept::Kept;
use super::metadata_plane::{METADATA_PLANE, metadata_plane};
use super::outline::{self, Outline};
use super::rewrite::{Renaming, Rewriter};
use super::sink::Sink;
use crate::Error;
use crate::model::{PS_PER_NS, Picoseconds};
use crate::protobuf::put_bytes;
use crate::{MergeInput, MergeOptions, MergeStats, PlaneLayout, RewriteOptions};

/// Merges all inputs into `output`, which appears when it is complete.
///
/// # Errors
/// Returns an error if a file cannot be read or written, or if an input is not XSpace.
pub(super) fn merge(inputs: &mut [MergeInput<'_>], output: &Path, options: &MergeOptions) -> Result<MergeStats, Error> {
    let outlines = inputs.iter().map(|input| outline::outline(&input.path)).collect::<Result<Vec<_>, _>>()?;
    let stride = device_stride(&outlines);
    let base_ns = common_base(inputs, &outlines, options)?;
    let mut names =
        Names::new(options.layout, stride, inputs.iter().map(|input| u64::from(input.part)).max().unwrap_or(0));
    let mut line_ids = LineIds::default();
    let mut stats = MergeStats { base_ns, stride, ..MergeStats::default() };
    let mut sink = Sink::create(output)?;
    for (index, (input, outline)) in inputs.iter_mut().zip(&outlines).enumerate() {
        let planes = outline.planes.iter().map(|plane| names.plane(&plane.name, input)).collect::<Vec<_>>();
        let mut fresh = |id| line_ids.unique(id);
        let link_addend = u64::from(input.part) << LINK_SHIFT;
        let kept = options.filter.as_deref().map(|filter| Kept::of(filter, index, &input.path)).transpose()?;
        let renaming = Renaming { planes: &planes, line_ids: &mut fresh, link_addend, kept };
        let rewriting = RewriteOptions {
            base_ns: Some(base_ns),
            annotate: options.annotate,
            reach: input.reach,
            ..RewriteOptions::default()
        };
        let rewriter = Rewriter::open(&input.path, outline, rewriting, Some(renaming), &mut sink, input.map)?;
        stats.inputs.push(rewriter.run(outline)?);
    }
    let (name, id) = names.claim(METADATA_PLANE, None);
    put_bytes(sink.out(), space::PLANES, &metadata_plane(&name, id, &options.metadata));
    for hostname in hostnames(inputs, &outlines) {
        put_bytes(sink.out(), space::HOSTNAMES, hostname.as_bytes());
    }
    if let Some(filter) = &options.filter {
        filter.accept(sink.written())?;
    }
    stats.bytes_written = sink.finish()?;
    Ok(stats)
}

/// The session start that all share.
fn common_base(inputs: &mut [MergeInput<'_>], outlines: &[Outline], options: &MergeOptions) -> Result<i64, Error> {
    if let Some(base_ns) = options.base_ns {
        return Ok(base_ns);
    }
    let mut earliest: Option<Picoseconds> = None;
    for (input, outline) in inputs.iter_mut().zip(outlines) {
        if let Some(start_ns) = outline.start_ns {
            let mapped = (input.map)(Picoseconds::from(start_ns) * PS_PER_NS).div_euclid(PS_PER_NS);
            earliest = Some(earliest.map_or(mapped, |earliest| earliest.min(mapped)));
        }
    }
    let path = inputs.first().map_or(Path::new(""), |input| &input.path);
    i64::try_from(earliest.unwrap_or(0))
        .map_err(|_| Error::malformed(path, 0, "the mapped session start does not fit in 64 bits"))
}

/// One more than the largest device number of any input.
fn device_stride(outlines: &[Outline]) -> u64 {
    let planes = outlines.iter().flat_map(|outline| &outline.planes);
    let ordinals = planes.filter_map(|plane| device(&plane.name)).map(|device| device.ordinal + 1);
    ordinals.max().unwrap_or(1)
}

/// A device plane's name in its parts: `/device:GPU:`, `3`, ` anything`.
struct Device<'a> {
    prefix: &'a str,
    ordinal: u64,
    rest: &'a str,
}

/// Takes a plane's name apart, if it is a numbered device's.
fn device(name: &str) -> Option<Device<'_>> {
    let after = name.strip_prefix(DEVICE_PREFIX)?;
    let colon = DEVICE_PREFIX.len() + after.find(':')?;
    let (prefix, numbered) = name.split_at(colon + 1);
    let digits = numbered.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = numbered.split_at(digits);
    let ordinal = number.parse().ok().filter(|&ordinal| ordinal < ORDINAL_MAX)?;
    Some(Device { prefix, ordinal, rest })
}

/// Gives each plane a name and an id that no other has.
struct Names {
    layout: PlaneLayout,
    stride: u64,
    /// First id of device tracks made from host planes.
    next_track: u64,
    /// First id of planes that are not devices.
    next_id: u64,
    names: HashSet<String>,
    ids: HashSet<u64>,
}

impl Names {
    fn new(layout: PlaneLayout, stride: u64, last_node: u64) -> Names {
        let next_track = stride * (last_node + 1);
        // Every plane may need one, and ids of tracks come from the same range as those of devices.
        let next_id = next_track + (1 << 20);
        Names { layout, stride, next_track, next_id, names: HashSet::new(), ids: HashSet::new() }
    }

    /// The name and id of an input's plane.
    fn plane(&mut self, name: &str, input: &MergeInput<'_>) -> (String, u64) {
        if let Some(device) = device(name) {
            let ordinal = u64::from(input.part) * self.stride + device.ordinal;
            return self.claim(&format!("{}{ordinal}{}", device.prefix, device.rest), Some(ordinal));
        }
        if input.part == 0 {
            return self.claim(name, None);
        }
        if self.layout == PlaneLayout::GpuTracks && name.starts_with(HOST_THREADS) {
            let ordinal = self.next_track;
            self.next_track += 1;
            return self.claim(&format!("{GPU_PREFIX}{ordinal} {} {name}", input.label()), Some(ordinal));
        }
        self.claim(&format!("{name} {}", input.label()), None)
    }

    /// The wanted name, or one like it; the wanted id, or a new one.
    fn claim(&mut self, wanted: &str, id: Option<u64>) -> (String, u64) {
        let mut name = wanted.to_owned();
        let mut copy = 2u64;
        // Ends: each turn has a name not tried before, and finitely many are taken.
        while !self.names.insert(name.clone()) {
            name = format!("{wanted} ({copy})");
            copy += 1;
        }
        if let Some(id) = id.filter(|&id| self.ids.insert(id)) {
            return (name, id);
        }
        while !self.ids.insert(self.next_id) {
            self.next_id += 1;
        }
        (name, self.next_id)
    }
}

/// Gives each line a unique id; the first line with an id keeps it.
#[derive(Default)]
struct LineIds {
    taken: HashSet<u64>,
    fresh: u64,
}

impl LineIds {
    fn unique(&mut self, id: u64) -> u64 {
        let remembers = self.taken.len() < LINE_IDS_MAX;
        if id != 0 && remembers && (id < FRESH_LINE_ID || id > FRESH_LINE_ID + self.fresh) && self.taken.insert(id) {
            return id;
        }
        // Ends: at most as many turns as ids are remembered.
        loop {
            let candidate = FRESH_LINE_ID + self.fresh;
            self.fresh += 1;
            if !self.taken.contains(&candidate) {
                return candidate;
            }
        }
    }
}

/// All host names, each once; hosts of the same name are distinguished by their nodes' names.
fn hostnames(inputs: &[MergeInput<'_>], outlines: &[Outline]) -> Vec<String> {
    let mut owners: HashMap<&str, BTreeSet<u32>> = HashMap::new();
    for (input, outline) in inputs.iter().zip(outlines) {
        for hostname in &outline.hostnames {
            owners.entry(hostname).or_default().insert(input.part);
        }
    }
    let mut names = Vec::new();
    for (input, outline) in inputs.iter().zip(outlines) {
        let label = input.label();
        let own = if outline.hostnames.is_empty() { std::slice::from_ref(&label) } else { &outline.hostnames[..] };
        for hostname in own {
            let shared = owners.get(hostname.as_str()).is_some_and(|nodes| nodes.len() > 1);
            let name = if shared { format!("{hostname} ({label})") } else { hostname.clone() };
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// Prefix of planes of devices.
const DEVICE_PREFIX: &str = "/device:";
/// Prefix of the planes that show as graphics processors.
const GPU_PREFIX: &str = "/device:GPU:";
/// Prefix of planes of host threads.
const HOST_THREADS: &str = "/host:CPU";
/// Larger device numbers are part of a name, not a count of devices.
const ORDINAL_MAX: u64 = 1 << 20;
/// Line ids that are remembered; later lines are numbered anew without looking at their own.
const LINE_IDS_MAX: usize = 1 << 20;
/// First of the new line ids: above the stream and thread numbers that people know, below the limit
/// of exact integers in scripts.
const FRESH_LINE_ID: u64 = 1 << 40;
/// Linking ids of node k are moved by k times this: above real counters, and inside the 56 bits of
/// an id within a `flow`.
const LINK_SHIFT: u32 = 44;

//! CUPTI's activity records as bytes: which versions are known, and where their fields are.
//!
//! NVIDIA appends fields to a kind's record from release to release and has not moved those used
//! here since CUDA 11.7, so that one table serves all [`VERSIONS`]. `tests/tools/cupti_offsets.sh`
//! asks a C compiler and the headers of each release; `tests/tools/cupti_offsets.txt` is its
//! output, and the test below compares. A version outside of the list is refused.

/// Values of `CUPTI_API_VERSION`: CUDA 11.7 to 13.5.
pub(super) const VERSIONS: [u32; 22] = [
    17, 18, 20, 21, 22, 23, 24, 26, 27, 28, 130_000, 130_001, 130_100, 130_101, 130_200, 130_201, 130_202, 130_300,
    130_301, 130_400, 130_401, 130_500,
];

/// Returns the versions as a text.
pub(super) fn known_versions() -> String {
    VERSIONS.map(|version| version.to_string()).join(" ")
}

/// A record.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) enum Record {
    /// Work on a device.
    Work(Work),
    /// The id that the program had given to the call with this correlation.
    Link { correlation: u32, id: u64 },
    /// A kind that is not used.
    Other,
}

/// Work on a device.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Work {
    pub what: What,
    /// CUPTI's time, ns; 0 if it was not measured.
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    /// CUPTI's number of the call that launched it.
    pub correlation: u32,
}

/// Sorts of work.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) enum What {
    Kernel {
        /// Address of the name, a C string of CUPTI's.
        name: u64,
        grid: [u32; 3],
        block: [u32; 3],
    },
    Copy {
        direction: u8,
        bytes: u64,
    },
    Set {
        bytes: u64,
    },
}

/// Decodes the record at the start of these bytes. `None` if it does not fit.
pub(super) fn decode(bytes: &[u8]) -> Option<Record> {
    let kind = number(bytes, 0)?;
    let Some(layout) = LAYOUTS.iter().find(|layout| layout.kind == kind) else { return Some(Record::Other) };
    let bytes = bytes.get(..layout.size)?;
    if kind == EXTERNAL_CORRELATION {
        let (correlation, id) = (number(bytes, layout.correlation)?, wide(bytes, EXTERNAL_ID)?);
        let is_own = number(bytes, EXTERNAL_KIND)? == CUSTOM;
        return Some(if is_own { Record::Link { correlation, id } } else { Record::Other });
    }
    let what = match kind {
        CONCURRENT_KERNEL => {
            let three = |at: usize| Some([number(bytes, at)?, number(bytes, at + 4)?, number(bytes, at + 8)?]);
            What::Kernel { name: wide(bytes, NAME)?, grid: three(GRID)?, block: three(BLOCK)? }
        }
        MEMSET => What::Set { bytes: wide(bytes, BYTES)? },
        _ => What::Copy { direction: bytes[COPY_KIND], bytes: wide(bytes, BYTES)? },
    };
    let at = layout.device;
    Some(Record::Work(Work {
        what,
        start: wide(bytes, START)?,
        end: wide(bytes, END)?,
        device: number(bytes, at)?,
        context: number(bytes, at + 4)?,
        stream: number(bytes, at + 8)?,
        correlation: number(bytes, layout.correlation)?,
    }))
}

/// Returns the name of a copy, as CUPTI's own tools write it.
pub(super) fn copy_name(direction: u8) -> &'static str {
    const NAMES: [&str; 11] = [
        "Memcpy",
        "Memcpy HtoD",
        "Memcpy DtoH",
        "Memcpy HtoA",
        "Memcpy AtoH",
        "Memcpy AtoA",
        "Memcpy AtoD",
        "Memcpy DtoA",
        "Memcpy DtoD",
        "Memcpy HtoH",
        "Memcpy PtoP",
    ];
    NAMES.get(usize::from(direction)).unwrap_or(&NAMES[0])
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn wide(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Record of a kind.
struct Layout {
    kind: u32,
    /// Size in the oldest version, bytes; later ones are larger.
    size: usize,
    /// Place of the device's number; those of context and stream follow.
    device: usize,
    correlation: usize,
}

/// Values of `CUpti_ActivityKind`.
pub(super) const MEMCPY: u32 = 1;
pub(super) const MEMSET: u32 = 2;
pub(super) const DRIVER: u32 = 4;
pub(super) const RUNTIME: u32 = 5;
pub(super) const CONCURRENT_KERNEL: u32 = 10;
pub(super) const MEMCPY2: u32 = 22;
pub(super) const EXTERNAL_CORRELATION: u32 = 39;

/// `CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2`: Kineto uses the other two.
pub(super) const CUSTOM: u32 = 5;

const LAYOUTS: [Layout; 5] = [
    Layout { kind: CONCURRENT_KERNEL, size: 176, device: 40, correlation: 92 },
    Layout { kind: MEMCPY, size: 88, device: 32, correlation: 44 },
    Layout { kind: MEMSET, size: 88, device: 32, correlation: 44 },
    Layout { kind: MEMCPY2, size: 96, device: 32, correlation: 60 },
    Layout { kind: EXTERNAL_CORRELATION, size: 24, device: 0, correlation: 16 },
];

/// Places within records of work.
const START: usize = 16;
const END: usize = 24;
/// Those of a kernel.
const GRID: usize = 52;
const BLOCK: usize = 64;
const NAME: usize = 104;
/// Those of copies and sets.
const COPY_KIND: usize = 4;
const BYTES: usize = 8;
/// Those of an external correlation.
const EXTERNAL_KIND: usize = 4;
const EXTERNAL_ID: usize = 8;

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// The compiler's places of the fields in every release's headers are those of the table.
    #[test]
    fn records_are_laid_out_as_in_the_headers_of_each_version() {
        let mut versions = BTreeSet::new();
        let mut sizes = BTreeMap::new();
        for line in include_str!("../../../tests/tools/cupti_offsets.txt").lines() {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("release, version, kind, structure");
            let (_release, version, kind, _structure) = (word(), word(), word(), word());
            versions.insert(version.parse().expect("a number"));
            let (name, kind) = kind.split_once('=').expect("name and number");
            let kind: u32 = kind.parse().expect("a number");
            let layout = LAYOUTS.iter().find(|layout| layout.kind == kind).unwrap_or_else(|| panic!("{line}"));
            for (field, at) in words.map(|word| word.split_once('=').expect("field and place")) {
                let at: usize = at.parse().expect("a number");
                let expected = match (name, field) {
                    (_, "size") => {
                        let least = sizes.entry(kind).or_insert(at);
                        *least = at.min(*least);
                        continue;
                    }
                    ("EXTERNAL_CORRELATION", "externalKind") => EXTERNAL_KIND,
                    ("EXTERNAL_CORRELATION", "externalId") => EXTERNAL_ID,
                    (_, "start") => START,
                    (_, "end") => END,
                    (_, "deviceId") => layout.device,
                    (_, "contextId") => layout.device + 4,
                    (_, "streamId") => layout.device + 8,
                    (_, "correlationId") => layout.correlation,
                    (_, "name") => NAME,
                    (_, "gridX") => GRID,
                    (_, "blockX") => BLOCK,
                    (_, "bytes") => BYTES,
                    (_, "copyKind") => COPY_KIND,
                    other => panic!("{other:?}"),
                };
                assert_eq!(at, expected, "{field}: {line}");
            }
        }
        assert_eq!(versions.into_iter().collect::<Vec<u32>>(), VERSIONS);
        assert_eq!(sizes, LAYOUTS.iter().map(|layout| (layout.kind, layout.size)).collect());
    }

    #[test]
    fn a_record_that_is_cut_off_is_refused() {
        for layout in &LAYOUTS {
            let mut bytes = vec![0; layout.size];
            bytes[..4].copy_from_slice(&layout.kind.to_ne_bytes());
            assert!(decode(&bytes).is_some());
            assert_eq!(decode(&bytes[..layout.size - 1]), None, "kind {}", layout.kind);
        }
        assert_eq!(decode(&[99, 0, 0, 0]), Some(Record::Other));
        assert_eq!(decode(&[1, 0, 0]), None);
    }
}

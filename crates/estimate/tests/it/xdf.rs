//! As much of the Extensible Data Format as clock offsets need.
//!
//! A file is `XDF:`, then chunks: one byte that says how many bytes the length has (1, 4 or 8), the
//! length, a u16 tag, the content; all little-endian. Tag 4 is a clock offset: u32 stream, f64 time
//! on the stream's clock in seconds, f64 offset, which added to that time gives the recorder's.

use std::collections::BTreeMap;

/// A reading of a stream's clock beside the recorder's, seconds.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct ClockOffset {
    /// On the stream's clock.
    pub time: f64,
    /// The recorder's clock minus the stream's.
    pub offset: f64,
}

/// The clock offsets of each stream, in order of the file.
pub fn clock_offsets(file: &[u8]) -> BTreeMap<u32, Vec<ClockOffset>> {
    let mut rest = file.strip_prefix(b"XDF:").expect("the magic");
    let mut found: BTreeMap<u32, Vec<ClockOffset>> = BTreeMap::new();
    while let Some((&width, after)) = rest.split_first() {
        let (length, after) = after.split_at(usize::from(width));
        let length = length.iter().rev().fold(0usize, |value, byte| value << 8 | usize::from(*byte));
        let (chunk, after) = after.split_at(length);
        rest = after;
        if chunk[..2] == CLOCK_OFFSET {
            let seconds = |from: usize| f64::from_le_bytes(chunk[from..from + 8].try_into().expect("eight bytes"));
            let stream = u32::from_le_bytes(chunk[2..6].try_into().expect("four bytes"));
            found.entry(stream).or_default().push(ClockOffset { time: seconds(6), offset: seconds(14) });
        }
    }
    found
}

const CLOCK_OFFSET: [u8; 2] = [4, 0];

#[test]
fn a_file_by_hand() {
    let mut file = b"XDF:".to_vec();
    file.extend([1, 3, 1, 0, b'x']);
    file.extend([4, 22, 0, 0, 0, 4, 0, 7, 0, 0, 0]);
    file.extend(1.5f64.to_le_bytes());
    file.extend((-0.25f64).to_le_bytes());
    let expected = BTreeMap::from([(7, vec![ClockOffset { time: 1.5, offset: -0.25 }])]);
    assert_eq!(clock_offsets(&file), expected);
}

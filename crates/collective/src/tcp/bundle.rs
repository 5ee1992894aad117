//! Several ranks' frames combined into one, as a rank of the tree forwards them.
//!
//! All numbers are little-endian. A bundle consists of the number of frames (u32), then a rank
//! (u32) and a length (u32) for each frame, then the bytes of the frames in the same order.

use crate::Rank;

/// Frames by rank.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Bundle {
    index: Vec<(u32, u32)>,
    bytes: Vec<u8>,
}

impl Bundle {
    pub fn push(&mut self, rank: Rank, frame: &[u8]) {
        self.index.push((rank as u32, frame.len() as u32));
        self.bytes.extend_from_slice(frame);
    }

    /// Appends the bundle to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.index.len() as u32).to_le_bytes());
        for (rank, length) in &self.index {
            out.extend_from_slice(&rank.to_le_bytes());
            out.extend_from_slice(&length.to_le_bytes());
        }
        out.extend_from_slice(&self.bytes);
    }

    /// The frames in `bytes`, of ranks below `size`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn frames(bytes: &[u8], size: usize) -> Result<Vec<(Rank, &[u8])>, String> {
        let broken = || format!("{} bytes that are not frames of ranks", bytes.len());
        let (count, rest) = bytes.split_first_chunk::<4>().ok_or_else(broken)?;
        let indexed = (u32::from_le_bytes(*count) as usize).checked_mul(8).ok_or_else(broken)?;
        let (index, mut rest) = rest.split_at_checked(indexed).ok_or_else(broken)?;
        let mut frames = Vec::with_capacity(index.len() / 8);
        for [a, b, c, d, length @ ..] in index.as_chunks::<8>().0 {
            let rank = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            let (frame, after) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(broken)?;
            if rank >= size {
                return Err(format!("a frame of rank {rank} in a group of {size}"));
            }
            frames.push((rank, frame));
            rest = after;
        }
        if rest.is_empty() { Ok(frames) } else { Err(broken()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bundles_survive_the_wire(parts in proptest::collection::vec((0usize..50, proptest::collection::vec(any::<u8>(), 0..30)), 0..20)) {
            let (mut bundle, mut bytes) = (Bundle::default(), Vec::new());
            parts.iter().for_each(|(rank, frame)| bundle.push(*rank, frame));
            bundle.encode(&mut bytes);
            let found = Bundle::frames(&bytes, 50).expect("our own");
            let expected: Vec<(Rank, &[u8])> = parts.iter().map(|(rank, frame)| (*rank, &frame[..])).collect();
            prop_assert_eq!(found, expected);
            bytes.push(0);
            prop_assert!(Bundle::frames(&bytes, 50).is_err());
        }

        #[test]
        fn other_bytes_are_refused_or_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(frames) = Bundle::frames(&bytes, 4) {
                prop_assert!(frames.iter().map(|(_, frame)| 8 + frame.len()).sum::<usize>() + 4 == bytes.len());
            }
        }
    }
}

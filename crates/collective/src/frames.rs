//! The frames of all ranks, stored contiguously.

/// Frames of a gather, one per rank; the frame of a rank that did not take part is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Frames {
    /// Removes all frames, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Appends the next rank's frame.
    pub fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if there are no frames.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the frame of `rank`.
    ///
    /// # Panics
    /// Panics if there is no such rank.
    pub fn frame(&self, rank: usize) -> &[u8] {
        let start = if rank == 0 { 0 } else { self.ends[rank - 1] };
        &self.bytes[start..self.ends[rank]]
    }

    /// Returns all frames in order of rank.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|rank| self.frame(rank))
    }

    /// Appends all frames to `out`: count, lengths (`u64`, little-endian), bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.len() as u64).to_le_bytes());
        for frame in self.iter() {
            out.extend_from_slice(&(frame.len() as u64).to_le_bytes());
        }
        out.extend_from_slice(&self.bytes);
    }

    /// Replaces the frames by those written by [`Frames::encode`]; returns false, leaving no
    /// frames, if `encoded` is invalid.
    pub fn decode(&mut self, encoded: &[u8]) -> bool {
        self.clear();
        self.append_encoded(encoded).unwrap_or_else(|| {
            self.clear();
            false
        })
    }

    fn append_encoded(&mut self, encoded: &[u8]) -> Option<bool> {
        let (count, rest) = encoded.split_first_chunk::<8>()?;
        let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
        let (lengths, mut bytes) = rest.split_at_checked(count.checked_mul(8)?)?;
        for length in lengths.as_chunks::<8>().0 {
            let (frame, after) = bytes.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
            self.push(frame);
            bytes = after;
        }
        Some(bytes.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_survive_one_piece(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20)) {
            let mut frames = Frames::default();
            parts.iter().for_each(|part| frames.push(part));
            let mut encoded = Vec::new();
            frames.encode(&mut encoded);
            let mut decoded = Frames::default();
            prop_assert!(decoded.decode(&encoded));
            prop_assert_eq!(&decoded, &frames);
            encoded.push(0);
            prop_assert!(!decoded.decode(&encoded));
        }

        #[test]
        fn corrupt_frames_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut frames = Frames::default();
            let accepted = frames.decode(&bytes);
            prop_assert!(accepted || frames.is_empty());
        }
    }
}

//! Arrivals of one rank as bytes: what it says about once a second.
//!
//! A word stands for itself, so that one that is lost takes nothing else with it. All numbers are
//! LEB128 varints, signed ones in zigzag:
//!
//! ```text
//! as_of_ns (signed), whole (0 or 1), dropped, number of groups,
//! per group: length of its name, the name, number of arrivals,
//!            per arrival: step − step before (signed), time − time before (signed)
//! ```
//!
//! The first step of a group counts from 0 and its first time from `as_of_ns`. An arrival of a loop
//! that counts its steps takes 1 byte for the step and 4 for a time within a quarter of a second of
//! the one before.

/// Arrivals of one rank, in order of time within each group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Time up to which the rank collected arrivals, on its node's clock, ns.
    pub as_of_ns: i64,
    /// True if every arrival before `as_of_ns` is in this batch or an earlier one, or is counted in
    /// `dropped`.
    pub is_whole: bool,
    /// Arrivals that this rank has dropped since its start.
    pub dropped: u64,
    /// Groups with at least one arrival.
    pub groups: Vec<GroupArrivals>,
}

/// Arrivals of one rank in one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupArrivals {
    /// Name of the group.
    pub name: String,
    /// Arrivals, in order.
    pub arrivals: Vec<Stamp>,
}

/// One arrival.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the operation in its group.
    pub step: u64,
    /// Time of the arrival on the node's clock, ns.
    pub at_ns: i64,
}

impl Batch {
    /// Encodes the batch as messages of at most `word_max` bytes, and returns how many arrivals did
    /// not fit into `words_max` of them.
    pub fn encode(&self, word_max: usize, words_max: usize) -> (Vec<Vec<u8>>, u64) {
        let mut words = Vec::new();
        let (mut part, mut room) = (self.empty(), word_max.saturating_sub(HEADER_MAX));
        let mut left_out = 0;
        for group in &self.groups {
            let name_bytes = group.name.len() + 2 * VARINT_MAX;
            let mut open = false;
            for stamp in &group.arrivals {
                let needed = if open { STAMP_MAX } else { STAMP_MAX + name_bytes };
                if room < needed && !part.groups.is_empty() {
                    words.push(part.bytes());
                    (part, room, open) = (self.empty(), word_max.saturating_sub(HEADER_MAX), false);
                }
                let needed = if open { STAMP_MAX } else { STAMP_MAX + name_bytes };
                if words.len() >= words_max || room < needed {
                    left_out += 1;
                    continue;
                }
                if !open {
                    part.groups.push(GroupArrivals { name: group.name.clone(), arrivals: Vec::new() });
                    open = true;
                }
                room -= needed;
                if let Some(last) = part.groups.last_mut() {
                    last.arrivals.push(*stamp);
                }
            }
        }
        if words.len() < words_max {
            part.is_whole = self.is_whole && left_out == 0;
            words.push(part.bytes());
        }
        (words, left_out)
    }

    fn empty(&self) -> Self {
        Self { as_of_ns: self.as_of_ns, is_whole: false, dropped: self.dropped, groups: Vec::new() }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_signed(&mut out, self.as_of_ns);
        put(&mut out, u64::from(self.is_whole));
        put(&mut out, self.dropped);
        put(&mut out, self.groups.len() as u64);
        for group in &self.groups {
            put(&mut out, group.name.len() as u64);
            out.extend_from_slice(group.name.as_bytes());
            put(&mut out, group.arrivals.len() as u64);
            let mut before = Stamp { step: 0, at_ns: self.as_of_ns };
            for stamp in &group.arrivals {
                put_signed(&mut out, stamp.step.wrapping_sub(before.step).cast_signed());
                put_signed(&mut out, stamp.at_ns.wrapping_sub(before.at_ns));
                before = *stamp;
            }
        }
        out
    }

    /// Parses a message; `None` if it was not written by [`Batch::encode`].
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let from = &mut bytes;
        let (as_of_ns, is_whole, dropped) = (take_signed(from)?, take(from)?, take(from)?);
        let mut batch = Self { as_of_ns, is_whole: is_whole == 1, dropped, groups: Vec::new() };
        for _ in 0..take(from)? {
            let length = usize::try_from(take(from)?).ok()?;
            let (name, rest) = from.split_at_checked(length)?;
            *from = rest;
            let name = std::str::from_utf8(name).ok()?.to_owned();
            let mut group = GroupArrivals { name, arrivals: Vec::new() };
            let mut before = Stamp { step: 0, at_ns: as_of_ns };
            // Each takes two bytes at least, so the loop ends with the word.
            for _ in 0..take(from)? {
                let step = before.step.wrapping_add(take_signed(from)?.cast_unsigned());
                before = Stamp { step, at_ns: before.at_ns.wrapping_add(take_signed(from)?) };
                group.arrivals.push(before);
            }
            batch.groups.push(group);
        }
        from.is_empty().then_some(batch)
    }
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

fn take(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..VARINT_MAX {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(byte & 0x7f).checked_shl(7 * place as u32)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take_signed(from: &mut &[u8]) -> Option<i64> {
    let value = take(from)?;
    Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
}

/// Longest varint, bytes.
const VARINT_MAX: usize = 10;
/// Longest encoding of an arrival, bytes.
const STAMP_MAX: usize = 2 * VARINT_MAX;
/// Longest encoding of the part before the groups, bytes.
const HEADER_MAX: usize = 4 * VARINT_MAX;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batch(groups: &[(&str, &[(u64, i64)])]) -> Batch {
        let stamps =
            |all: &[(u64, i64)]| all.iter().map(|(step, at_ns)| Stamp { step: *step, at_ns: *at_ns }).collect();
        let group = |(name, all): &(&str, &[(u64, i64)])| GroupArrivals { name: (*name).into(), arrivals: stamps(all) };
        Batch {
            as_of_ns: 1_800_000_000_000_000_000,
            is_whole: true,
            dropped: 7,
            groups: groups.iter().map(group).collect(),
        }
    }

    fn joined(words: &[Vec<u8>]) -> Vec<(String, Stamp)> {
        let read = |word: &Vec<u8>| Batch::decode(word).expect("our own");
        let flat = |batch: Batch| {
            batch
                .groups
                .into_iter()
                .flat_map(|group| group.arrivals.into_iter().map(move |stamp| (group.name.clone(), stamp)))
        };
        words.iter().map(read).flat_map(flat).collect()
    }

    #[test]
    fn an_arrival_of_a_loop_takes_few_bytes() {
        let base = 1_800_000_000_000_000_000_i64;
        let steps: Vec<(u64, i64)> =
            (0..100_u64).map(|k| (4000 + k, base - 1_000_000_000 + k.cast_signed() * 10_000_000)).collect();
        let (words, left_out) = batch(&[("grads", &steps)]).encode(4096, 4);
        assert_eq!((words.len(), left_out), (1, 0));
        assert!(words[0].len() <= 530, "{} bytes for 100 arrivals", words[0].len());
        assert_eq!(Batch::decode(&words[0]), Some(batch(&[("grads", &steps)])));
    }

    #[test]
    fn what_does_not_fit_is_counted_and_the_last_word_alone_is_whole() {
        let steps: Vec<(u64, i64)> = (0..1000_u64).map(|k| (k, i64::MIN + k.cast_signed())).collect();
        let all = batch(&[("a", &steps), ("b", &steps)]);
        let (words, left_out) = all.encode(4096, 64);
        assert_eq!((left_out, joined(&words).len()), (0, 2000));
        let whole: Vec<bool> = words.iter().map(|word| Batch::decode(word).expect("our own").is_whole).collect();
        assert!(whole.split_last().is_some_and(|(last, others)| *last && others.iter().all(|whole| !whole)));
        let (words, left_out) = all.encode(4096, 2);
        assert_eq!((words.len(), joined(&words).len() as u64 + left_out), (2, 2000));
        assert!(words.iter().all(|word| !Batch::decode(word).expect("our own").is_whole));
    }

    proptest! {
        #[test]
        fn any_arrivals_survive(steps in proptest::collection::vec((any::<u64>(), any::<i64>()), 0..300), name in ".{0,64}") {
            let all = batch(&[(&name, &steps)]);
            let (words, left_out) = all.encode(4096, 64);
            let expected: Vec<(String, Stamp)> = steps.iter().map(|(step, at_ns)| (name.clone(), Stamp { step: *step, at_ns: *at_ns })).collect();
            prop_assert_eq!(left_out, 0);
            prop_assert!(words.iter().all(|word| word.len() <= 4096));
            prop_assert_eq!(joined(&words), expected);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Batch::decode(&bytes);
        }
    }
}

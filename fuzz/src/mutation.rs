//! A simple fuzzer that derives slightly mutated seeds from a number. Equal numbers give equal
//! inputs.
//!
//! It has no feedback from the program, so it finds less than libFuzzer in the same time, but it
//! needs only the compiler and finds the same on every machine.

/// A source of changed seeds.
#[derive(Debug)]
pub struct Mutator<'a> {
    seeds: &'a [Vec<u8>],
    state: u64,
}

impl<'a> Mutator<'a> {
    /// Changes `seeds`, of which there is at least one, by the number `seed`.
    pub fn new(seeds: &'a [Vec<u8>], seed: u64) -> Self {
        // Zero is the one state that xorshift never leaves.
        Self { seeds, state: seed ^ 0x9e37_79b9_7f4a_7c15 | 1 }
    }

    /// The next input: a seed with one to eight changes.
    pub fn next_input(&mut self) -> Vec<u8> {
        let pick = self.below(self.seeds.len());
        let mut input = self.seeds.get(pick).cloned().unwrap_or_default();
        for _ in 0..=self.below(8) {
            self.change(&mut input);
        }
        input.truncate(MAX_INPUT);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let length = self.below(16).min(input.len() - at);
        match self.below(9) {
            0 => input.truncate(at),
            1 => drop(input.drain(at..at + length)),
            2 => {
                let copy = input[at..at + length].to_vec();
                let to = self.below(input.len() + 1);
                input.splice(to..to, copy);
            }
            3 => {
                let other = self.below(self.seeds.len());
                let other = self.seeds.get(other).map_or(&[][..], Vec::as_slice);
                let tail = other.get(at..).unwrap_or_default().to_vec();
                input.truncate(at);
                input.extend(tail);
            }
            4 => {
                let token = TOKENS[self.below(TOKENS.len())];
                input.splice(at..at + length, token.iter().copied());
            }
            5 => {
                let value = INTEGERS[self.below(INTEGERS.len())].to_le_bytes();
                let size = [1, 2, 4, 8][self.below(4)];
                let bytes: Vec<u8> = if self.below(2) == 0 {
                    value[..size].into()
                } else {
                    value[..size].iter().rev().copied().collect()
                };
                input.splice(at..(at + size).min(input.len()), bytes);
            }
            6 => {
                let byte = self.random() as u8;
                input.splice(at..at, std::iter::repeat_n(byte, length));
            }
            _ => {
                let bit = self.below(8);
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.random() % limit.max(1) as u64) as usize
    }

    /// Marsaglia's xorshift64*.
    fn random(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Text that parsers of text stumble over.
const TOKENS: [&[u8]; 14] = [
    b"-1",
    b"0",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551616",
    b"1e308",
    b"0.0000001",
    b"null",
    b"[",
    b"{",
    b"\"",
    b"\\u0000",
    b"\n",
    b"\xff",
];

const INTEGERS: [u64; 8] = [0, 1, 0x7f, 0x80, 0xffff, 0x7fff_ffff, 0x8000_0000_0000_0000, u64::MAX];

const MAX_INPUT: usize = 64 << 10;

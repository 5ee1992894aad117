//! A map in a page of shared memory: the position of each word, who may read it, and how it is read
//! fast.
//!
//! `sys` maps the page. The session that measures writes it; its own threads, its forked children
//! and processes that open the page by its path read it. All words are 64 bits in the host's byte
//! order, because a page never leaves its host.
//!
//! | words | what |
//! |---|---|
//! | 0 to 6 | magic number and layout, the host's boot (two), the writer's process, its node, the reference |
//! | 16 | the version of the record |
//! | 32 to 71, 72 to 111 | two copies of the record: see `latch` |
//!
//! The reader reads the counter that the record names, between its two looks at the version, as far
//! as the processor keeps the order: the second look may come before the count by a fraction of 1
//! µs. That does no harm, since a new map shows the same as the old one until long after it was
//! written ([`crate::map`]).
//!
//! All readings in a page are of the machine's own clocks, outside of any time namespace: writer
//! and readers may be in different ones.
//!
//! A page of another layout, or of an earlier boot (whose counters were other ones), is refused.
//! What its words may be, whatever they are, is only a wrong time: nothing panics.

use std::sync::atomic::{AtomicU64, Ordering};

use probe_sync_time::{Counter, NodeId, Timestamp};

use crate::latch::Latch;
use crate::line::{Line, Rate};
use crate::map::{self, Estimate, KNOTS, Map, Pairs, Reading, Status};
use crate::source::Source;

/// A page that contains a map.
#[derive(Copy, Clone, Debug)]
pub struct Page<'a> {
    words: &'a [AtomicU64; WORDS],
}

/// Writer of a page, and the clocks it relates.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Boot of the host.
    pub boot: u128,
    /// Process that writes the page.
    pub writer: u32,
    /// Node of the host's clocks.
    pub node: NodeId,
    /// Node whose clock is shown.
    pub reference: NodeId,
}

/// Why a page cannot be used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It is not a clock page, or has another version.
    Foreign,
    /// The host was rebooted since.
    EarlierBoot,
}

impl<'a> Page<'a> {
    /// Creates a page in words that no reader uses yet, or resets an existing page to unknown. Its
    /// maps will be based on `source`.
    pub fn begin(words: &'a [AtomicU64; WORDS], identity: Identity, source: Source) -> Self {
        let Identity { boot, writer, node, reference } = identity;
        let header = [boot as u64, (boot >> 64) as u64, writer.into(), node.0.into(), reference.0.into()];
        words[1..].iter().zip(header).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        let page = Self { words };
        page.latch().write(&encoded(&Map { source, ..Map::default() }), || true);
        words[0].store(MAGIC, Ordering::Release);
        page
    }

    /// Opens an existing page.
    ///
    /// # Errors
    /// Returns an error if it has another layout, or is from another boot.
    pub fn open(words: &'a [AtomicU64; WORDS], boot: u128) -> Result<Self, Unusable> {
        if words[0].load(Ordering::Acquire) != MAGIC {
            return Err(Unusable::Foreign);
        }
        let page = Self { words };
        if page.identity().boot == boot { Ok(page) } else { Err(Unusable::EarlierBoot) }
    }

    /// Returns true if a page of this or an earlier version begins with this word.
    pub fn is_page(first: u64) -> bool {
        // All but the number of the layout.
        first >> 8 == MAGIC >> 8
    }

    /// Returns a page that has been opened before.
    #[inline]
    pub fn trusted(words: &'a [AtomicU64; WORDS]) -> Self {
        Self { words }
    }

    /// Returns the identity of the page.
    pub fn identity(&self) -> Identity {
        let word = |at: usize| self.words[at].load(Ordering::Relaxed);
        Identity {
            boot: u128::from(word(1)) | u128::from(word(2)) << 64,
            writer: word(3) as u32,
            node: NodeId(word(4) as u32),
            reference: NodeId(word(5) as u32),
        }
    }

    /// Publishes `map` to all readers if `still` returns true at the last moment, that is, early
    /// enough. Only one thread of one process may write.
    pub fn publish(&self, map: &Map, still: impl FnOnce() -> bool) -> bool {
        self.latch().write(&encoded(map), still)
    }

    /// Returns the reference time, ns, where `count` reads the given counter; `None` if it is
    /// unknown.
    #[inline]
    pub fn now_ns(&self, mut count: impl FnMut(Source) -> Timestamp<Counter>) -> Option<i64> {
        let read =
            |copy: &Record| (word(copy, STATUS) != UNSYNCHRONISED).then(|| time(copy, count(source(copy)).as_ns()));
        self.latch().read(read).flatten()
    }

    /// Returns the reference time with its bounds, where `count` reads the given counter; `None` if
    /// it is unknown.
    #[inline]
    pub fn now(&self, mut count: impl FnMut(Source) -> Timestamp<Counter>) -> Option<Reading> {
        let read = |copy: &Record| {
            let status = status(word(copy, STATUS));
            (status != Status::Unsynchronised).then(|| {
                let (estimate, counter) = (estimate(copy), count(source(copy)).as_ns());
                let (epoch, fresh_until) = (word(copy, EPOCH), signed(copy, FRESH_UNTIL));
                map::reading(status, epoch, fresh_until, time(copy, counter), &estimate, counter)
            })
        };
        self.latch().read(read).flatten()
    }

    /// Returns the whole map.
    pub fn map(&self) -> Map {
        let read = |copy: &Record| Map {
            source: source(copy),
            status: status(word(copy, STATUS)),
            epoch: word(copy, EPOCH),
            round: word(copy, ROUND),
            fresh_until: signed(copy, FRESH_UNTIL),
            knots: std::array::from_fn(|at| knot(copy, at)),
            estimate: estimate(copy),
            pairs: Pairs {
                counter: signed(copy, PAIRS),
                raw: signed(copy, PAIRS + 1),
                system: signed(copy, PAIRS + 2),
                boot: signed(copy, PAIRS + 3),
                rate: Rate(signed(copy, PAIRS + 4)),
                raw_rate: Rate(signed(copy, PAIRS + 5)),
                steady_since: signed(copy, PAIRS + 6),
                error: signed(copy, PAIRS + 7),
            },
        };
        self.latch().read(read).unwrap_or_default()
    }

    #[inline]
    fn latch(&self) -> Latch<'a, AtomicU64, RECORD> {
        const LONG_ENOUGH: &str = "a page has room for both copies";
        let (before, second) = self.words.split_last_chunk::<RECORD>().expect(LONG_ENOUGH);
        let (_, first) = before.split_last_chunk::<RECORD>().expect(LONG_ENOUGH);
        Latch::new(&self.words[VERSION], [first, second])
    }
}

/// One copy of the record.
type Record = [AtomicU64; RECORD];

fn encoded(map: &Map) -> [u64; RECORD] {
    let mut words = [0; RECORD];
    let mut put = |at: usize, values: &[i64]| {
        words[at..at + values.len()].iter_mut().zip(values).for_each(|(place, value)| *place = *value as u64);
    };
    let status = match map.status {
        Status::Unsynchronised => UNSYNCHRONISED,
        Status::Synchronised => 1,
        Status::Holdover => 2,
        Status::Failed => 3,
    };
    put(STATUS, &[status as i64, map.epoch as i64, map.source.word() as i64, map.fresh_until]);
    for (at, knot) in map.knots.iter().enumerate() {
        put(KNOT + 3 * at, &[knot.x, knot.y, knot.rate.0]);
    }
    let Estimate { line, half95, growth95, hard, hard_growth } = map.estimate;
    put(ESTIMATE, &[line.x, line.y, line.rate.0, half95, growth95.0, hard[0], hard[1], hard_growth.0]);
    let Pairs { counter, raw, system, boot, rate, raw_rate, steady_since, error } = map.pairs;
    put(PAIRS, &[counter, raw, system, boot, rate.0, raw_rate.0, steady_since, error]);
    put(ROUND, &[map.round as i64]);
    words
}

#[inline]
fn time(copy: &Record, counter: i64) -> i64 {
    map::shown(counter, |at| knot(copy, at))
}

#[inline]
fn source(copy: &Record) -> Source {
    Source::of_word(word(copy, SOURCE))
}

#[inline]
fn knot(copy: &Record, at: usize) -> Line {
    line(copy, KNOT + 3 * at)
}

#[inline]
fn line(copy: &Record, at: usize) -> Line {
    Line { x: signed(copy, at), y: signed(copy, at + 1), rate: Rate(signed(copy, at + 2)) }
}

#[inline]
fn estimate(copy: &Record) -> Estimate {
    let value = |at: usize| signed(copy, ESTIMATE + at);
    Estimate {
        line: line(copy, ESTIMATE),
        half95: value(3),
        growth95: Rate(value(4)),
        hard: [value(5), value(6)],
        hard_growth: Rate(value(7)),
    }
}

fn status(word: u64) -> Status {
    match word {
        1 => Status::Synchronised,
        2 => Status::Holdover,
        3 => Status::Failed,
        _ => Status::Unsynchronised,
    }
}

#[inline]
fn word(copy: &Record, at: usize) -> u64 {
    copy[at].load(Ordering::Relaxed)
}

#[inline]
fn signed(copy: &Record, at: usize) -> i64 {
    word(copy, at) as i64
}

/// Number of words used; a memory page is longer.
pub const WORDS: usize = COPIES[1] + RECORD;
/// `psclock` and the version of the layout.
const MAGIC: u64 = u64::from_be_bytes(*b"psclock\x03");
/// Position of the version word, in a cache line of its own.
const VERSION: usize = 16;
const COPIES: [usize; 2] = [32, 32 + RECORD];
/// Words of a record: a whole number of cache lines.
const RECORD: usize = 40;

const STATUS: usize = 0;
const EPOCH: usize = 1;
const SOURCE: usize = 2;
const FRESH_UNTIL: usize = 3;
const KNOT: usize = 4;
const ESTIMATE: usize = KNOT + 3 * KNOTS;
const PAIRS: usize = ESTIMATE + 8;
const ROUND: usize = PAIRS + 8;
const UNSYNCHRONISED: u64 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Adjust;

    const IDENTITY: Identity = Identity { boot: 7 << 64 | 9, writer: 42, node: NodeId(3), reference: NodeId(1) };

    fn words() -> [AtomicU64; WORDS] {
        std::array::from_fn(|_| AtomicU64::new(0))
    }

    fn map() -> Map {
        let estimate = Estimate {
            line: Line { x: 1_000, y: 1 << 60, rate: Rate::from_ppm(-20.0) },
            half95: 60,
            growth95: Rate::from_ppm(0.03),
            hard: [700, 800],
            hard_growth: Rate::from_ppm(1.0),
        };
        let first = Map {
            round: 9,
            fresh_until: 77_000,
            pairs: Pairs {
                counter: 8,
                raw: 1,
                system: 2,
                boot: 3,
                rate: Rate(4),
                raw_rate: Rate(7),
                steady_since: 5,
                error: 6,
            },
            ..Map::first(estimate)
        };
        let later = Estimate { line: Line { y: (1 << 60) + 10_000, ..estimate.line }, ..estimate };
        first.follow(later, 2_000, 5_000, Adjust::Slew).expect("free")
    }

    #[test]
    fn what_is_published_is_read() {
        let words = words();
        assert_eq!(Page::open(&words, IDENTITY.boot).err(), Some(Unusable::Foreign));
        let page = Page::begin(&words, IDENTITY, Source::Raw);
        assert_eq!((page.now_ns(|_| Timestamp::from_ns(0)), page.now(|_| Timestamp::from_ns(0))), (None, None));
        assert!(page.publish(&map(), || true));
        let read = Page::open(&words, IDENTITY.boot).expect("a page");
        assert_eq!((read.identity(), read.map()), (IDENTITY, map()));
        for count in [0, 1_000, 5_001, 6_000_000, 1 << 50].map(Timestamp::from_ns) {
            assert_eq!(read.now_ns(|_| count), Some(map().time(count.as_ns())));
            assert_eq!(read.now(|_| count), Some(map().reading(count)));
        }
        assert!(!page.publish(&Map::default(), || false), "too late");
        assert_eq!(read.map(), map());
        assert_eq!(Page::open(&words, 1).err(), Some(Unusable::EarlierBoot));
    }

    #[test]
    fn readers_are_told_the_counter_of_the_record() {
        let words = words();
        let tsc = Source::Tsc(crate::Scale::of(2, 5).expect("2.5 GHz"));
        let page = Page::begin(&words, IDENTITY, tsc);
        assert_eq!(page.map(), Map { source: tsc, ..Map::default() });
        for source in [tsc, Source::Raw] {
            page.publish(&Map { source, ..map() }, || true);
            let mut told = Vec::new();
            let mut count = |source| {
                told.push(source);
                Timestamp::from_ns(5)
            };
            assert!(page.now(&mut count).is_some() && page.now_ns(&mut count).is_some());
            assert_eq!(told, [source; 2]);
        }
        page.publish(&map(), || true);
        Page::begin(&words, IDENTITY, tsc);
        assert_eq!(page.now_ns(|_| unreachable!("nothing is known")), None);
    }

    #[test]
    fn the_record_has_room_for_all() {
        assert!(ROUND < RECORD && COPIES[0] > VERSION);
    }

    #[test]
    fn whatever_a_page_holds_nothing_panics() {
        for word in [u64::MAX, 1 << 63, 1, 0x5555_5555_5555_5555] {
            let words: [AtomicU64; WORDS] = std::array::from_fn(|_| AtomicU64::new(word));
            words[0].store(MAGIC, Ordering::Relaxed);
            let page = Page { words: &words };
            let _ =
                (page.identity(), page.now(|_| Timestamp::from_ns(5)), page.now_ns(|_| Timestamp::from_ns(i64::MIN)));
            let map = page.map();
            let _ =
                (map.interval(Timestamp::from_ns(1)), map.of_system(&Pairs::default()).and_then(|of| of.interval(9)));
            let _ = map.follow(Estimate::default(), 4, 8, Adjust::Slew);
        }
    }
}

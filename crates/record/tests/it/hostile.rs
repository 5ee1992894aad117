//! Files that are no recordings any more: cut anywhere, bits turned over, numbers that cannot be.
//! Reading gives what there is or an error that names the byte; never a panic, nor memory beyond a
//! bound.

use std::path::Path;
use std::time::{Duration, Instant};

use probe_sync_record::read::Event;
use probe_sync_record::{Error, Policy, Recorder, Recording, instant, scope};

use crate::support::{alone, most_bytes, sums};

/// A small recording of each policy, as bytes.
fn recordings() -> Vec<(&'static str, Vec<u8>)> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (bytes, every) = (512 << 10, Duration::from_millis(1));
    let policies = [
        ("drop_newest", Policy::DropNewest { bytes }),
        ("flight", Policy::Flight { bytes }),
        ("stream", Policy::Stream { bytes, every }),
    ];
    let made = policies.map(|(name, policy)| {
        let path = folder.path().join(name);
        let session = Recorder::builder().policy(policy).spill(&path).threads(2).start().expect("room");
        for round in 0..4 {
            std::thread::spawn(move || {
                let outer = scope!("outer", text = "some words", number = round, ratio = 0.5);
                for n in 0..1500_u64 {
                    drop(scope!("work", n = n));
                }
                instant!("moment", bytes = 3);
                std::mem::forget(outer);
                std::mem::forget(scope!("open", n = 1));
            })
            .join()
            .expect("no panic");
            std::thread::sleep(every * 2);
        }
        std::mem::forget(scope!("open here", text = "words"));
        drop(session);
        (name, std::fs::read(path).expect("there"))
    });
    made.into()
}

/// Reads all there is. What it says where it refuses.
fn read(path: &Path) -> Result<u64, String> {
    let recording = Recording::open(path).map_err(|error| error.to_string())?;
    let mut events = 0;
    for thread in recording.threads() {
        let take = |event: &Event<'_>| {
            events += 1 + event.arguments().map(|(key, _)| key.len() as u64).sum::<u64>().min(1) / 2;
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, take).map_err(|error| error.to_string())?;
    }
    Ok(events)
}

/// Reads a file that somebody has changed, within bounds of memory and time.
fn check(path: &Path, bytes: &[u8], what: &str) -> Result<u64, String> {
    std::fs::write(path, bytes).expect("room");
    let begun = Instant::now();
    let (result, most) = most_bytes(|| read(path));
    assert!(most < MEMORY_MOST, "{what}: {most} bytes of memory");
    assert!(begun.elapsed() < Duration::from_secs(120), "{what}: it does not come to an end");
    if let Err(said) = &result {
        assert!(said.contains("byte "), "{what}: {said}");
    }
    result
}

/// Numbers without a pattern, the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

#[test]
fn a_file_that_was_cut_is_read_up_to_there() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("cut.rec");
    let mut numbers = Numbers(7);
    for (policy, bytes) in recordings() {
        let whole = check(&path, &bytes, policy).expect("sound");
        assert!(whole > 5000, "{policy}: {whole}");
        let mut lengths: Vec<usize> = (0..60).map(|_| numbers.below(bytes.len())).collect();
        lengths.sort_unstable();
        let mut before = 0;
        for length in lengths {
            let what = format!("{policy} cut at {length}");
            match check(&path, &bytes[..length], &what) {
                Ok(events) => {
                    assert!(before <= events && events <= whole, "{what}: {events} of {whole}, {before} before");
                    before = events;
                    let missing = Recording::open(&path).expect("as before").status().missing;
                    assert!(missing > 0 || policy == "stream", "{what}");
                }
                Err(said) => assert!(length < 8192, "{what}: {said}"),
            }
        }
    }
}

#[test]
fn numbers_that_cannot_be_are_refused_or_do_no_harm() {
    impossible_numbers(7);
}

#[test]
#[ignore = "long: writes and reads 3000 damaged recordings"]
fn no_number_that_cannot_be_does_harm() {
    impossible_numbers(1);
}

/// Puts values that cannot be in every `stride`-th place and value.
fn impossible_numbers(stride: usize) {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("huge.rec");
    for (policy, bytes) in recordings() {
        // Every number of the header, and those of the first definitions, slots, chunks and blocks.
        let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("eight")) as usize;
        let definitions = 8192 + word(4) * 32;
        let slots = definitions + word(5);
        let chunks = (slots + word(6) * 16384).next_multiple_of(4096);
        let places = (0..40).map(|at| at * 8).chain([4096]).chain((0..12).map(|at| definitions + at * 8));
        let places = places.chain((0..20).map(|at| slots + at * 8)).chain((0..40).map(|at| chunks + at * 8));
        let blocks = (word(1) + 40 <= bytes.len()).then(|| (0..5).map(|at| word(1) + at * 8));
        let values = [0, 1, 255, 1 << 31, (1 << 32) - 1, 1 << 40, u64::MAX >> 1, u64::MAX, u64::MAX / 7 * 3];
        let places = places.chain(blocks.into_iter().flatten());
        // A stride that shares no factor with the number of values meets all of them.
        for (at, value) in places.flat_map(|at| values.map(|value| (at, value))).step_by(stride) {
            let mut changed = bytes.clone();
            changed[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
            let _ = check(&path, &changed, &format!("{policy}: {value:#x} at {at}"));
        }
    }
}

#[test]
fn bits_that_are_turned_over_do_no_harm() {
    flipped_bits(40);
}

#[test]
#[ignore = "long: writes and reads 1200 damaged recordings"]
fn many_bits_that_are_turned_over_do_no_harm() {
    flipped_bits(400);
}

fn flipped_bits(rounds: u32) {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("bits.rec");
    let mut numbers = Numbers(99);
    for (policy, bytes) in recordings() {
        for round in 0..rounds {
            let mut changed = bytes.clone();
            for _ in 0..=numbers.below(8) {
                let at = numbers.below(changed.len());
                changed[at] ^= 1 << numbers.below(8);
            }
            // Also where a recording is dense: facts, definitions, first chunks.
            let dense = numbers.below(150 << 10);
            changed[dense] = numbers.next() as u8;
            let _ = check(&path, &changed, &format!("{policy}: round {round}"));
        }
    }
}

/// A file of nearly nothing that claims to be huge.
#[test]
fn a_sparse_file_takes_no_memory() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("sparse.rec");
    let (_, mut bytes) = recordings().swap_remove(0);
    bytes.truncate(1 << 16);
    std::fs::write(&path, &bytes).expect("room");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("there");
    file.set_len(1 << 33).expect("sparse");
    let (_, most) = most_bytes(|| read(&path));
    assert!(most < MEMORY_MOST, "{most}");
}

#[test]
fn what_is_no_file_is_refused() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let said = Recording::open(folder.path()).expect_err("a folder").to_string();
    assert!(said.contains("not a file"), "{said}");
    let path = folder.path().join("empty");
    std::fs::write(&path, []).expect("room");
    let said = Recording::open(&path).expect_err("empty").to_string();
    assert!(said.contains("not a probe_sync recording"), "{said}");
    let (_, bytes) = recordings().swap_remove(0);
    std::fs::write(&path, bytes).expect("room");
    assert!(sums(&Recording::open(&path).expect("sound"))[0] > 5000);
}

/// For a file of less than 2 MiB.
const MEMORY_MOST: usize = 24 << 20;

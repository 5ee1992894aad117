//! Recordings of the recorder: files that a killed process may have left, and anything else.
//!
//! An input stands for a file in which most words are zero: so many zero words (16 bits), so many
//! words that are there (16 bits), those words, and so on. `make_recording_seeds.py` makes seeds of
//! that kind.

use probe_sync_record::read::{Event, What};
use probe_sync_record::{Error, Recording};

use crate::files::with_directory;

/// `Recording::open`: what is read is in order, is the same a second time, and takes no more memory
/// than the file.
pub fn recording(data: &[u8]) {
    let file = expand(data);
    with_directory(|directory| {
        let path = directory.join("fuzzed.rec");
        std::fs::write(&path, &file).expect("a directory of memory");
        let Ok(recording) = Recording::open(&path) else { return };
        let events = |recording: &Recording| -> Option<Vec<u64>> {
            let counted = recording.threads().iter().map(|thread| {
                let mut seen = 0;
                let take = |event: &Event<'_>| {
                    event.arguments().for_each(|argument| drop(std::hint::black_box(argument)));
                    seen += u64::from(!matches!(event.what, What::Lost { .. }));
                    Ok::<(), Error>(())
                };
                recording.visit(thread.serial, take).ok()?;
                Some(seen)
            });
            counted.collect()
        };
        let first = events(&recording).expect("it was read when it was opened");
        let told: Vec<u64> = recording.threads().iter().map(|thread| thread.events).collect();
        assert_eq!(first, told, "counts are those of what is there");
        assert!(first.iter().sum::<u64>() <= file.len() as u64, "more events than bytes");
        let again = Recording::open(&path).expect("as before");
        assert_eq!((events(&again), again.status()), (Some(first), recording.status()));
    });
}

/// The file of an input.
fn expand(mut data: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    while let Some((counts, rest)) = data.split_at_checked(4) {
        let [zeros, words] = [0, 2].map(|at| usize::from(u16::from_le_bytes([counts[at], counts[at + 1]])));
        file.resize(file.len() + zeros * 8, 0);
        let (here, after) = rest.split_at(rest.len().min(words * 8));
        file.extend_from_slice(here);
        data = after;
        if file.len() > FILE_MAX {
            break;
        }
    }
    file
}

const FILE_MAX: usize = 256 << 10;

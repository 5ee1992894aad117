//! Every seed and a bounded number of its mutations through every target: what runs where no fuzzer
//! does.
//!
//! `FUZZ_SECONDS` bounds the time of all targets together instead of their inputs; `FUZZ_TARGET`
//! names the only one that runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use probe_sync_fuzz::TARGETS;
use probe_sync_fuzz::mutation::Mutator;

#[test]
fn seeds_and_their_mutations_break_nothing() {
    mutations(20);
}

#[test]
#[ignore = "long: 500 mutations for each target"]
fn many_mutations_break_nothing() {
    mutations(500);
}

/// Feeds every target its seeds and this many mutations of them.
fn mutations(most: u64) {
    let seconds: Option<u64> = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let only = std::env::var("FUZZ_TARGET").ok();
    let targets: Vec<_> = TARGETS.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name)).collect();
    assert!(!targets.is_empty(), "there is no target {only:?}");
    for (name, target) in &targets {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut files: Vec<_> = std::fs::read_dir(&corpus).expect("every target has seeds").flatten().collect();
        files.sort_by_key(std::fs::DirEntry::path);
        let seeds: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file.path()).expect("a seed")).collect();
        assert!(!seeds.is_empty(), "{name} has no seeds");
        let check = |input: &[u8], origin: &str| {
            if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
                panic!("{name} failed on {origin}: {}", input.escape_ascii());
            }
        };
        for (seed, file) in seeds.iter().zip(&files) {
            check(seed, &file.path().display().to_string());
        }
        let mut mutator = Mutator::new(&seeds, 1);
        let deadline = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds) / targets.len() as u32);
        let mut inputs = 0_u64;
        while deadline.map_or(inputs < most, |deadline| Instant::now() < deadline) {
            check(&mutator.next_input(), &format!("mutation {inputs}"));
            inputs += 1;
        }
        println!("{name}: {} seeds, {inputs} mutations", seeds.len());
    }
}

/// `fuzz/run.sh` knows the targets by the folders of their seeds.
#[test]
fn every_folder_of_seeds_belongs_to_a_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let folders = std::fs::read_dir(corpus).expect("seeds").flatten().map(|entry| entry.file_name());
    for folder in folders {
        assert!(TARGETS.iter().any(|(name, _)| folder == *name), "no target is called {}", folder.display());
    }
}

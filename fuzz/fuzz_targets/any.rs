//! libFuzzer's inputs into the target of the library that the variable `FUZZ_TARGET` names; the library says what must hold.
//!
//! Place in the flow: the program that `cargo xtask fuzz` builds with coverage and starts once for each target. One program for all: most of
//! the time of a build went into linking the same code once for each.
//! What it does not do: choose a target itself; without a known name it lists them and ends with status 2.
#![no_main]

use std::process::exit;
use std::sync::LazyLock;

use probe_sync_fuzz::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.map(|(_, target)| *target).unwrap_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        eprintln!("FUZZ_TARGET is \"{name}\"; set it to one of: {}", names.join(", "));
        exit(2)
    })
});

libfuzzer_sys::fuzz_target!(init: { LazyLock::force(&TARGET); }, |data: &[u8]| TARGET(data));

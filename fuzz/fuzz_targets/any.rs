//! Passes libFuzzer's inputs to the fuzz target that the variable `FUZZ_TARGET` names; the library
//! defines what must hold.
//!
//! `cargo xtask fuzz` builds this program with coverage and starts it once for each target. All
//! targets share one program because most of the build time went into linking the same code once
//! per target. Without a known target name it lists the targets and exits with status 2.
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

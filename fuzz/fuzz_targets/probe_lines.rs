//! libFuzzer's inputs into the target `probe_lines` of the library, which says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| probe_sync_fuzz::run("probe_lines", data));

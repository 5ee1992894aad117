//! libFuzzer's inputs into the target `recording` of the library, which says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| probe_sync_fuzz::run("recording", data));

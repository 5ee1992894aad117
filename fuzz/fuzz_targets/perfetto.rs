//! libFuzzer's inputs into the target `perfetto` of the library, which says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| probe_sync_fuzz::run("perfetto", data));

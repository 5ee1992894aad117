//! libFuzzer's inputs into the target `round_messages` of the library, which says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| probe_sync_fuzz::run("round_messages", data));

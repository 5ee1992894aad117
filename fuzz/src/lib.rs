//! The fuzz targets, which feed arbitrary bytes to every parser and writer of probe_sync and check
//! the invariants that must hold for any input.
//!
//! `fuzz_targets/any.rs` passes libFuzzer's inputs to one function of [`TARGETS`]; `tests/seeds.rs`
//! passes the seeds and a bounded number of mutations ([`mutation`]) to all of them and needs only
//! the compiler. `cargo xtask fuzz --seconds N` runs the former if a C++ compiler is available,
//! otherwise the latter.
//!
//! A target fails by a panic. Beyond not panicking, hanging and growing, targets check what they
//! can: what was accepted encodes to the same bytes, books balance.
//!
//! Seeds lie in `corpus/NAME`, small and readable where the format is; an input that once failed is
//! added there under a name that says what it was. What this does not do: look for wrong numbers in
//! well-formed input (see the tests).
#![forbid(unsafe_code)]

mod files;
mod hang;
pub mod mutation;
mod packets;
mod recordings;
mod scenarios;
mod tcp;
mod traces;
mod writers;

/// A target: it panics when something is wrong.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("packet", packets::packet),
    ("endpoint", packets::endpoint),
    ("tcp_frames", tcp::frames),
    ("tcp_parsers", tcp::parsers),
    ("tcp_rendezvous", tcp::rendezvous),
    ("tcp_files", tcp::files),
    ("round_messages", files::round_messages),
    ("probe_lines", files::probe_lines),
    ("snapshot_pairs", files::snapshot_pairs),
    ("run_export", files::run_export),
    ("configuration", files::configuration),
    ("scenario", scenarios::scenario),
    ("xspace", traces::xspace),
    ("kineto", traces::kineto),
    ("perfetto", traces::perfetto),
    ("rocpd", traces::rocpd),
    ("nsys", traces::nsys),
    ("rpd", traces::rpd),
    ("recording", recordings::recording),
    ("trace_format", traces::trace_format),
    ("write_perfetto", writers::perfetto),
    ("write_chrome", writers::chrome),
    ("write_kineto", writers::kineto),
    ("write_xspace", writers::xspace),
    ("write_rocpd", writers::recorder),
    ("write_csv", writers::csv),
    ("offsets", traces::offsets),
    ("snapshot_files", traces::snapshot_files),
    ("marks", traces::marks),
    ("global_windows", traces::global_windows),
    ("hang_counts", hang::counts),
    ("hang_dump", hang::dump),
    ("hang_stack", hang::stack),
];

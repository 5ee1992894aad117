//! The lines of a run's files, as their writers and all readers see them.
//!
//! | file | line |
//! |---|---|
//! | `windows/*.jsonl` | [`NodeWindow`]: what a node measured in a window |
//! | `global_windows.jsonl` | [`Round`]: a solved round, with its [`Fault`]s and [`Decision`] |
//! | `offsets.jsonl`, `offsets.smoothed.jsonl` | [`OffsetsHeader`], then [`OffsetRecord`]: a node's offset |
//! | `marks/*` | [`MarksHeader`], then [`MarkRecord`]: ties a trace to its node's clock |
//!
//! Types only: `estimate` computes what they hold, the run writes them, alignment reads them, and
//! none of these needs another for the format of a file.
#![forbid(unsafe_code)]

mod fault;
mod findings;
mod hosts;
mod marks;
mod names;
mod offsets;
mod round;
mod window;

pub use fault::{Culprit, Fault, FaultKind};
pub use findings::{ClockBreak, Findings};
pub use hosts::Hosts;
pub use marks::{
    MARKS_FOLDER, MarkRecord, MarkToken, MarksHeader, mark_name, marks_file, parse_mark_name, token_of_file,
};
pub use names::{is_invisible, plain_name, read_plain_name};
pub use offsets::{
    Launcher, NodeRecord, OffsetRecord, OffsetsHeader, RankRecord, SMOOTHED_OFFSETS, StepRecord, slew_ppm,
};
pub use round::{Decision, Round};
pub use window::{ClockEvent, EdgeFit, NodeEstimate, NodeWindow, PeerPackets, Punctuality, SnapshotCounts};

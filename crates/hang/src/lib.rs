//! Finds the ranks that stopped a job, from the dumps of PyTorch's Flight Recorder, or from counts
//! of the operations that each rank has begun ([`Counts`]).
//!
//! [`Dump::read`] reads one rank's dump, [`Job`] matches the operations of all ranks, and
//! [`Job::judge`] returns a [`Verdict`]: the ranks that caused the stop, why, and how certain that
//! is. Ranks that wait only because others wait are never named. Where the dumps leave several
//! ranks, times decide if [`Clocks`] allow it; otherwise the verdict says which ranks cannot be
//! told apart. [`Stack::read`] reads where a rank's program is, for [`Verdict::with_stacks`], and
//! [`Job::timeline`] returns the last operations of some ranks.
//! [`Dump::operations`] lists what a dump records, for other views of it.
//!
//! # Examples
//! Rank 0 waits in an all-reduce that rank 1 never enqueued.
//! ```
//! use probe_sync_hang::{Clocks, Dump, Job};
//!
//! let dump = |entries: &str| {
//!     let text = format!(
//!         r#"{{"version": "2.10", "pg_config": {{"0": {{"desc": "default_pg", "ranks": "[0, 1]"}}}}, "entries": [{entries}]}}"#
//!     );
//!     Dump::read(text.as_bytes())
//! };
//! let entry = |sequence: u32, state: &str| {
//!     format!(
//!         r#"{{"record_id": {sequence}, "process_group": ["0", "default_pg"], "collective_seq_id": {sequence}, "profiling_name": "nccl:all_reduce", "state": "{state}"}}"#
//!     )
//! };
//! let mut job = Job::new();
//! job.add(0, &dump(&format!("{}, {}", entry(1, "completed"), entry(2, "scheduled")))?)?;
//! job.add(1, &dump(&entry(1, "completed"))?)?;
//! let verdict = job.judge(&Clocks::default());
//! assert_eq!(verdict.causes[0].ranks, [1]);
//! # Ok::<(), probe_sync_hang::DumpError>(())
//! ```

#![forbid(unsafe_code)]

mod clocks;
mod counts;
mod dump;
mod evidence;
mod items;
mod job;
mod judge;
mod observed;
mod pickle;
mod recent;
mod stack;
mod timeline;
mod times;
mod verdict;
mod waits;

pub use clocks::Clocks;
pub use counts::Counts;
pub use dump::{Dump, DumpError, MAX_BYTES, Recorded, rank_in_name};
pub use job::Job;
pub use observed::Observed;
pub use stack::Stack;
pub use timeline::{Enqueued, RankTimeline, Timeline};
pub use verdict::named as ranks;
pub use verdict::{Cause, Certainty, Fault, Missing, RankStack, Stop, Verdict, Waiting};

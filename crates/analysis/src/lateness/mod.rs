//! The ranks that were late to the collective operations of a job, by how much, and how certain
//! this is.
//!
//! It uses the maps and the pairing of [`check()`](probe_sync_alignment::check()), after
//! [`calibrate()`](probe_sync_alignment::calibrate()). `context` reads the steps and launches of
//! the traces, `operation` judges each operation, `history` connects them, `verdict` names the
//! stragglers, and `summary` builds the [`Lateness`], which `text` and `csv` print and `marks`
//! turns into a track. Everything except `context` is pure.
//!
//! # One operation
//!
//! Rank i begins its part at aᵢ (its ARRIVAL: the start of the event, of a kernel on its device)
//! and ends it at eᵢ, both on the reference clock. Nobody can end before all whom it needs have
//! arrived. Of an operation in which everybody needs everybody:
//!
//! * last = argmax aᵢ; lead = a_last − a_second; spread = max aᵢ − min aᵢ; wait of i = a_last − aᵢ;
//!   transfer = min eᵢ − a_last.
//! * The lead is wrong by the clocks of two ranks. Each mapped time has a standard deviation σᵢ, of
//!   which ωᵢ is the trace's own (how well its timeline is tied to its node's clock), and may be
//!   early by up to Eᵢ where only markers tie it: a delay between 0 and Eᵢ of which nothing else is
//!   known has the variance Eᵢ²/12. So σ² = sᵢ² + sⱼ² + Eᵢ²/12 + Eⱼ²/12 with s = ω for ranks on one
//!   node's clock, whose common error cancels, and s = σ for others. Errors of different nodes are
//!   taken as independent, as `check` does.
//! * The last rank is named where aₗₐₛₜ − aⱼ > 3σ against every other rank j. Otherwise those
//!   within 3σ are tied, and nobody is named. While every two clocks are off against each other by
//!   less than 3σ, every name is right. Clock errors last: of a job in which two are farther off
//!   all names may be wrong.
//! * The class says what the time goes to: SKEW where the spread is for certain (3σ) more than
//!   twice the transfer, TRANSFER the other way round, MIXED where neither can be, else UNDECIDED.
//!
//! Example: rank 0 arrives at 100 µs and rank 1, whose clock is known to σ = 3 µs against the
//! reference, rank 0's, at 400 µs; they end at 520 and 530 µs. Rank 1 is last with a lead of 300
//! µs; σ = √(0² + 3²) = 3 µs, so it is named. Rank 0 waits 300 µs, the transfer takes 120 µs, and
//! 300 > 2·120: skew. Had rank 1 arrived at 105 µs, 5 < 3·3: a tie. As recorded by a clock that is
//! 2 ms behind, rank 1 would have begun at −1600 µs, and rank 0 would be blamed.
//!
//! Where only some wait (a rooted operation, a message), aₗₐₛₜ is taken among those that a waiting
//! rank needs, and the longest wait stands for the operation; a root that came first, or a receiver
//! that came last, has imposed nothing. A host is late as a whole where all its ranks, two or more,
//! came more than 3σ after all others.
//!
//! # The job
//!
//! Let p(i, k) be the operation that ended last on rank i before it came to operation k, and c =
//! a(i, k) − e(i, p) the time between them. The critical path goes from the last end back to the
//! rank that was last there, over c to p, to the rank that was last there, and so on. What a rank
//! costs is found by running the operations again in order of time with e'(i, k) = max a'(j, k) +
//! (e(i, k) − max a(j, k)) and a'(i, k) = e'(i, p) + c', where c' of that rank is no more than the
//! median of the others' that come from the same operation, and c' = c of all others. Of a rank's
//! first operation e(i, p) is when it began the step, where steps are known. Nothing else moves:
//! what ranks do beside collectives overlaps with them as it did.
//!
//! A step's losses are the leads of named ranks. Who is a straggler is decided in `verdict`. The
//! trend of dₖ = aᵢ − median a over N operations at tₖ is the median of the slopes (dₖ₊ₘ − dₖ) /
//! (tₖ₊ₘ − tₖ), m = ⌈N/2⌉ (Theil's incomplete method), with the interval that the signs of their
//! differences from it give, of as many slopes as are independent (`dependence`), and only where a
//! line explains d better than one shift of its level does.

mod context;
mod csv;
mod dependence;
mod gather;
mod history;
mod left_out;
mod lines;
mod marks;
mod ranks;
mod report;
mod summary;
mod text;
mod verdict;
mod waits;

#[cfg(test)]
mod tests;

use crate::Error;
use probe_sync_alignment::collectives::{MapTime, MatchOptions, match_operations};
use probe_sync_alignment::one_clock::{self, Otherwise};
use probe_sync_alignment::{Calibrated, CalibratedTrace, StepNames, nodes, pairing};

use context::Context;
use gather::Gatherer;

pub use history::{CriticalPath, PathShare};
pub use lines::lost_ns;
pub use marks::LateTrack;
pub use probe_sync_lateness::operation::{Class, LateIn};
pub use report::{
    ArrivalLine, AsRecorded, HostLine, LateInstance, Lateness, OperationLine, RankLine, StepLine, Straggler, Unpaired,
};

/// Finds who was late.
///
/// ```
/// use probe_sync_alignment::{Request, StepNames, calibrate};
/// use probe_sync_analysis::lateness;
///
/// // Two ranks of one host: rank 1 comes to the all-reduce 300 µs after rank 0.
/// let folder = tempfile::tempdir()?;
/// let write = |rank: u32, ts: u32, dur: u32| {
///     let args = r#""Collective name": "allreduce", "Process Group Name": "0", "Seq": 7, "Process Group Ranks": "[0, 1]""#;
///     let event = format!(r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 7, "ts": {ts}, "dur": {dur}, "args": {{{args}}}}}"#);
///     let path = folder.path().join(format!("rank{rank}.json"));
///     let document = format!(r#"{{"distributedInfo": {{"rank": {rank}, "world_size": 2}}, "host_name": "gpu-01", "traceEvents": [{event}]}}"#);
///     std::fs::write(&path, document).map(|()| path)
/// };
/// let request = Request { traces: vec![write(0, 100, 420)?, write(1, 400, 130)?], ..Request::default() };
/// let found = lateness(&calibrate(&request)?, &StepNames::default())?;
/// let instance = &found.instances[0];
/// assert_eq!((instance.last_rank, instance.lead_ns, instance.transfer_ns), (Some(1), 300_000, 120_000));
/// assert_eq!(instance.arrivals[0].wait_ns, 300_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Request`] where nothing says that the traces are on one clock, or where there are more
/// parts than are held at once; a trace that cannot be read.
pub fn lateness(calibrated: &Calibrated, steps: &StepNames) -> Result<Lateness, Error> {
    one_clock::expect(calibrated, "to find stragglers", Otherwise::Nothing)?;
    let single: Vec<&CalibratedTrace> = calibrated.traces.iter().filter(|of| !of.trace.facts.merged).collect();
    // Without a map all are on one clock already.
    let maps: Vec<Option<Box<MapTime<'_>>>> = single.iter().copied().map(CalibratedTrace::look).collect();
    let traces: Vec<_> = single.iter().map(|of| &of.trace).collect();
    let pairing = pairing(calibrated);
    let ranks = nodes::of_ranks(&traces);
    let contexts = Context::of_ranks(Context::read_all(&single, steps)?, &ranks);
    let single: Vec<&CalibratedTrace> = ranks.iter().map(|rank| single[rank[0]]).collect();
    nodes::with_collectives(&traces, &maps, |nodes| {
        let mut gatherer = Gatherer::new(nodes, &contexts);
        let matching =
            match_operations(nodes, &pairing, MatchOptions::default(), &mut |operation| gatherer.take(operation));
        let mut gathered = gatherer.finish()?;
        gathered.notes.extend(pairing.notes());
        Ok(summary::summarize(calibrated, &single, gathered, &matching))
    })
}

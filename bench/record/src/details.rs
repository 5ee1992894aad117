//! The cost of what a session may record besides the events themselves: memory events, shapes,
//! call stacks, and the activity of a device.
//!
//! An operator allocates and frees a tensor, states its shapes and its call stack of some 20 frames,
//! and launches a kernel on a simulated device. It computes for half a microsecond, because the
//! noise of longer work hides costs of 100 ns; the costs are compared with an operator of 10 µs. The
//! code is the same in all cases; only the session's settings differ. Cases are measured in turn, by
//! the CPU time of the process, which includes the session's own threads and their collection of
//! the device's events. Figures are medians of differences within passes.

use std::hint::black_box;
use std::time::Duration;

use anyhow::Result;
use probe_sync_record::hook::stack;
use probe_sync_record::{Builder, Kind, Policy, Recorder, correlate, flow, memory, scope};
use rustix::time::{ClockId, clock_gettime};

use crate::gpu::Gpu;
use crate::measure::{Effort, median};
use crate::table::Table;
use crate::work::{DATA_WORDS, compute, per_word};

/// Fills in the rows.
///
/// # Errors
/// A session does not start.
pub fn measure(table: &mut Table, effort: Effort) -> Result<()> {
    let mut data: Vec<u64> = (0..DATA_WORDS as u64).collect();
    let words = (COMPUTED_NS / per_word(&mut data)) as usize;
    let operators = (effort.events / 5) as u32;
    let mut found = vec![Vec::new(); CASES.len()];
    for pass in 0..effort.passes {
        for at in 0..CASES.len() {
            let at = if pass % 2 == 0 { at } else { CASES.len() - 1 - at };
            found[at].push(case(CASES[at].1, &mut data, words, operators)?);
        }
    }
    // Within passes, since the load changes between them.
    let more =
        |at: usize, than: usize| median(found[at].iter().zip(&found[than]).map(|(one, other)| one - other).collect());
    for (at, (name, _, ask)) in CASES.iter().enumerate().skip(1) {
        table.percent_of(name, more(at, at.min(2) - 1), OPERATOR_NS, "an operator of 10 µs", *ask);
    }
    Ok(())
}

/// CPU time of the process per operator, ns.
fn case(setting: Setting, data: &mut [u64], words: usize, operators: u32) -> Result<f64> {
    let gpu = Gpu::default();
    let builder = || {
        let builder = Recorder::builder().policy(Policy::DropNewest { bytes: 64 << 20 });
        builder.pair_period(Duration::from_millis(10)).details(false).memory(false)
    };
    // Started in all cases, since taking memory empties caches.
    let session = match setting {
        Setting::Nothing => builder().paused(),
        Setting::With(with) => with(builder(), &gpu),
    };
    let session = session.start()?;
    run(&gpu, data, words, operators / 10);
    let before = process_ns();
    run(&gpu, data, words, operators);
    let took = process_ns() - before;
    let recording = session.finish()?;
    let lost: u64 = recording.threads().iter().map(|thread| thread.lost.events).sum();
    anyhow::ensure!(lost == 0, "{lost} events were lost");
    Ok(took / f64::from(operators))
}

fn run(gpu: &Gpu, data: &mut [u64], words: usize, operators: u32) {
    for number in 0..u64::from(operators) {
        nested(FRAMES, &mut || operator(gpu, number, data, words));
    }
}

/// Calls `work` under this many frames of the program.
#[inline(never)]
fn nested(frames: u32, work: &mut dyn FnMut()) {
    if frames == 0 {
        work();
    } else {
        nested(frames - 1, black_box(work));
    }
    // Not a tail call, which would need no frame.
    black_box(frames);
}

fn operator(gpu: &Gpu, number: u64, data: &mut [u64], words: usize) {
    let id = number + 1;
    let address = 4096 + 64 * number;
    let _link = correlate(id);
    let _operator = scope!(
        Kind::Function,
        "aten::mm",
        shapes = || black_box("[[64,1024],[1024,1024]]").to_owned(),
        stack = || stack().value()
    );
    memory!(Allocate, address = address, bytes = 262_144_u64, device = "cuda:0", total_allocated = 64 * number);
    {
        let _launch = scope!(Kind::Runtime, "cudaLaunchKernel");
        flow!(Out, "launch", id);
        gpu.launch("gemm", 1_000, id);
    }
    compute(data, words);
    memory!(Free, address = address, bytes = 262_144_u64, device = "cuda:0", total_allocated = 64 * number);
}

fn process_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// What a session records.
#[derive(Copy, Clone)]
enum Setting {
    /// Nothing: it is paused.
    Nothing,
    /// The scopes, and what this adds.
    With(fn(Builder, &Gpu) -> Builder),
}

/// Name, setting, and the largest cost in percent of an operator that is not recorded.
const CASES: [(&str, Setting, f64); 6] = [
    ("nothing", Setting::Nothing, 0.0),
    ("operator's two scopes and a flow, over nothing", Setting::With(|builder, _| builder), 10.0),
    ("two memory events, over scopes", Setting::With(|builder, _| builder.memory(true)), 15.0),
    ("shapes, over scopes", Setting::With(|builder, _| builder.shapes(true)), 10.0),
    ("call stack of some 20 frames, over scopes", Setting::With(|builder, _| builder.stacks(true)), 20.0),
    ("kernel of the simulated device, over scopes", Setting::With(|builder, gpu| builder.backend(gpu.clone())), 10.0),
];
const COMPUTED_NS: f64 = 500.0;
const OPERATOR_NS: f64 = 10_000.0;
/// Frames in addition to those of the benchmark.
const FRAMES: u32 = 15;

//! Records a program that launches kernels on a device with a clock of its own, and shows that they
//! come back on the recorder's clock.
//!
//! `cargo run -p probe-sync-record --example simulated_gpu`

mod gpu;

#[cfg(test)]
mod tests;

use std::time::Duration;

use gpu::{Gpu, Kernel};
use probe_sync_record::read::{Event, What};
use probe_sync_record::{Error, Kind, Policy, Recorder, Recording, correlate, flow, scope};

fn main() -> Result<(), Error> {
    let (recording, launched) = record(200)?;
    recording.notes().iter().for_each(|note| println!("{note}"));
    for thread in recording.threads() {
        let track = thread.device.as_ref().map(|track| format!("{}, {}", track.device, track.queue));
        println!(
            "{}: {} events, {} lost",
            track.unwrap_or_else(|| thread.name.clone()),
            thread.events,
            thread.lost.events
        );
    }
    let worst = errors(&recording, &launched)?.into_iter().max().unwrap_or(0);
    println!("{} kernels, each begins within {worst} ticks of when it truly did", launched.len());
    Ok(())
}

/// Launches two kernels per step; returns the recording, and when they truly ran.
fn record(steps: u64) -> Result<(Recording, Vec<Kernel>), Error> {
    let gpu = Gpu::default();
    let builder = Recorder::builder().policy(Policy::DropNewest { bytes: 8 << 20 }).backend(gpu.clone());
    let session = builder.pair_period(Duration::from_millis(10)).start()?;
    let mut launched = Vec::new();
    for step in 0..steps {
        let _step = scope!("step", step = step);
        for (queue, name) in [(0, "matmul"), (1, "all_reduce")] {
            let id = 1 << 40 | step << 1 | queue as u64;
            let _link = correlate(id);
            let _launch = scope!(Kind::Runtime, "launch");
            flow!(Out, "launch", id);
            launched.extend(gpu.launch(queue, name, 1_000_000, id));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok((session.finish()?, launched))
}

/// Error of the start of each kernel, ticks.
fn errors(recording: &Recording, launched: &[Kernel]) -> Result<Vec<u64>, Error> {
    let mut errors = Vec::new();
    for thread in recording.threads().iter().filter(|thread| thread.device.is_some()) {
        let check = |event: &Event<'_>| {
            if let What::Scope { start, id, .. } = event.what
                && let Some(kernel) = launched.iter().find(|kernel| kernel.correlation == id)
            {
                errors.push(start.abs_diff(kernel.start));
            }
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, check)?;
    }
    Ok(errors)
}

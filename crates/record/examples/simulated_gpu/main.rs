//! Records a program that launches kernels on a device with a clock of its own, and shows that they come back on the recorder's clock.
//!
//! `cargo run -p probe-sync-record --example simulated_gpu`

mod gpu;

use std::time::Duration;

use probe_sync_record::read::{Event, What};
use probe_sync_record::{Error, Kind, Policy, Recorder, correlate, flow, scope};

fn main() -> Result<(), Error> {
    let gpu = gpu::Gpu::default();
    let builder = Recorder::builder().policy(Policy::DropNewest { bytes: 8 << 20 }).backend(gpu.clone());
    let session = builder.pair_period(Duration::from_millis(50)).start()?;
    session.choices().iter().for_each(|line| println!("{line}"));
    let mut launched = Vec::new();
    for step in 0..200 {
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
    let recording = session.finish()?;
    let mut worst = 0;
    for thread in recording.threads() {
        let track = thread.device.as_ref().map(|track| format!("{}, {}", track.device, track.queue));
        println!(
            "{}: {} events, {} lost",
            track.unwrap_or_else(|| thread.name.clone()),
            thread.events,
            thread.lost.events
        );
        let check = |event: &Event<'_>| {
            let truth =
                launched.iter().find(|kernel| matches!(event.what, What::Scope { id, .. } if id == kernel.correlation));
            if let (Some(kernel), What::Scope { start, .. }, Some(_)) = (truth, event.what, &thread.device) {
                worst = worst.max(start.abs_diff(kernel.start));
            }
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, check)?;
    }
    println!("{} kernels, each begins within {worst} ticks of when it truly did", launched.len());
    Ok(())
}

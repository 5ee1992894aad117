//! The device's kernels come back where they were, joined to their launches, on the queues that ran
//! them.

use probe_sync_record::read::{Event, What};
use probe_sync_record::{Error, Reach, Recorder};

use super::gpu::{Gpu, WANDER_PERIOD_TICKS, WANDER_TICKS};
use super::{errors, record};

#[test]
fn kernels_of_a_drifting_device_come_back_where_they_were() {
    let (recording, launched) = record(60).expect("nothing else records this process");
    let device = recording.devices().next().expect("there is one");
    assert!(device.backend == "simulated GPU" && device.pairs.len() >= 2, "{device:?}");
    // Half way between two pairs a straight line is off by what the wave bends; a busy machine
    // takes pairs rarely.
    let bracket = device.pairs.iter().map(|pair| pair.bracket_ticks).max().expect("there are pairs");
    let between = device.pairs.windows(2).map(|two| two[1].ticks - two[0].ticks).max().expect("there are two");
    let bend = WANDER_TICKS * (std::f64::consts::TAU * between as f64 / WANDER_PERIOD_TICKS).powi(2);
    let bound = bracket + bend.min(4.0 * WANDER_TICKS) as u64 + 10;
    let errors = errors(&recording, &launched).expect("sound");
    assert_eq!(errors.len(), 120);
    assert!(errors.iter().all(|error| *error <= bound), "{bound} {errors:?}");
    let (mut launches, mut flows) = (0, 0);
    for thread in recording.threads() {
        let visit = |event: &Event<'_>| {
            match (event.what, &thread.device) {
                (What::Scope { id, .. }, None) if event.name() == "launch" => {
                    launches += u32::from(launched.iter().any(|kernel| kernel.correlation == id));
                }
                (What::Scope { id, .. }, Some(track)) => {
                    let kernel = launched.iter().find(|kernel| kernel.correlation == id).expect("it was launched");
                    assert_eq!(
                        (event.name(), &track.queue),
                        (kernel.name.as_str(), &format!("queue {}", kernel.queue))
                    );
                }
                (What::Flow { .. }, Some(_)) => flows += 1,
                _ => {}
            }
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, visit).expect("sound");
    }
    assert_eq!((launches, flows), (120, 120));
    assert_eq!(recording.notes(), ["backend simulated GPU: stopped"]);
    let refused = Recorder::builder().reach(Reach::Thread).backend(Gpu::default()).start();
    assert!(refused.expect_err("a device serves all threads").to_string().contains("record the process"));
}

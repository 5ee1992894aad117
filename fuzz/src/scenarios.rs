//! The simulator's scenario files: what is accepted runs, and gives the same bytes each time.

use probe_sync_sim::{Scenario, Simulation};
use probe_sync_time::Duration;

/// A scenario file: refused, or a run that ends.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(scenario) = Scenario::from_toml(text) else { return };
    // A large run takes long by right; the reader is what is looked for here.
    if scenario.nodes > MAX_NODES || scenario.gap_of(scenario.nodes as usize) < MIN_GAP {
        return;
    }
    let Ok(simulation) = Simulation::new(scenario, 1) else { return };
    let run = || {
        let mut running = simulation.start(RUN);
        for part in 1..=PARTS {
            running.advance_to(Simulation::START + Duration::from_ns(RUN.as_ns() / PARTS * part));
            assert!(running.cut().len() <= simulation.scenario().nodes as usize);
        }
        running.finish()
    };
    assert_eq!(run(), run());
}

const MAX_NODES: u32 = 16;
const MIN_GAP: Duration = Duration::from_us(100);
const RUN: Duration = Duration::from_ms(5);
const PARTS: i64 = 3;

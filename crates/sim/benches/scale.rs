//! What a simulated packet costs, endpoints included:
//! `cargo bench -p probe-sync-sim --bench scale [-- NAME]`.
//!
//! One line per run: quiet networks of several sizes, and cells with queues and noisy stamps. The
//! cost per packet is an upper limit of what the endpoint's own logic costs a real node. NAME runs
//! only the lines whose name begins with it.

use std::time::Instant;

use probe_sync_sim::{Error, Scenario, Simulation, Stamps};
use probe_sync_time::Duration;

fn main() -> Result<(), Error> {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    println!(
        "{:>14} {:>9} {:>10} {:>10} {:>9} {:>10}",
        "run", "exchanges", "packets", "events", "seconds", "ns/packet"
    );
    let quiet = [(2, 20_000), (16, 10_000), (1024, 500), (4096, 200), (10_240, 100)];
    for (nodes, milliseconds) in quiet {
        measure(&wanted, &format!("quiet {nodes}"), Scenario::new(nodes), milliseconds)?;
    }
    let base = Scenario::from_toml(include_str!("../../../bench/scenarios/cell.toml"))?;
    for (rate, load, milliseconds) in [(20.0, 0.5, 64_000), (200.0, 0.2, 16_000), (200.0, 0.8, 16_000)] {
        let mut cell = Scenario { pairs_per_second: Some(rate), ..base.clone() };
        cell.network.load = load;
        measure(&wanted, &format!("cell {rate} hw {load}"), cell.clone(), milliseconds)?;
        cell.stamps = Stamps::software();
        measure(&wanted, &format!("cell {rate} sw {load}"), cell, milliseconds)?;
    }
    Ok(())
}

fn measure(wanted: &str, name: &str, scenario: Scenario, milliseconds: i64) -> Result<(), Error> {
    if !name.starts_with(wanted) {
        return Ok(());
    }
    let simulation = Simulation::new(scenario, 1)?;
    let begin = Instant::now();
    let outcome = simulation.run(Duration::from_ms(milliseconds));
    let seconds = begin.elapsed().as_secs_f64();
    let exchanges: usize = outcome.exchanges.values().map(Vec::len).sum();
    let packets: u64 = outcome.ground_truth.directions.values().map(|direction| direction.sent).sum();
    let per_packet = seconds * 1e9 / packets as f64;
    println!("{name:>14} {exchanges:>9} {packets:>10} {:>10} {seconds:>9.3} {per_packet:>10.0}", outcome.events);
    Ok(())
}

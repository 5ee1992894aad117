//! What a simulated packet costs, endpoints included: `cargo bench -p probe-sync-sim --bench scale`.
//!
//! One line per size of run. The cost per packet is an upper limit of what the endpoint's own logic costs a real node.

use std::time::Instant;

use probe_sync_sim::{Error, Scenario, Simulation};
use probe_sync_time::Duration;

fn main() -> Result<(), Error> {
    println!(
        "{:>6} {:>9} {:>10} {:>10} {:>9} {:>10}",
        "nodes", "exchanges", "packets", "events", "seconds", "ns/packet"
    );
    for (nodes, milliseconds) in [(2, 20_000), (16, 10_000), (1024, 500), (4096, 200), (10_240, 100)] {
        let simulation = Simulation::new(Scenario::new(nodes), 1)?;
        let begin = Instant::now();
        let outcome = simulation.run(Duration::from_ms(milliseconds));
        let seconds = begin.elapsed().as_secs_f64();
        let exchanges: usize = outcome.exchanges.values().map(Vec::len).sum();
        let packets: u64 = outcome.ledger.directions.values().map(|direction| direction.sent).sum();
        let per_packet = seconds * 1e9 / packets as f64;
        println!("{nodes:>6} {exchanges:>9} {packets:>10} {:>10} {seconds:>9.3} {per_packet:>10.0}", outcome.events);
    }
    Ok(())
}

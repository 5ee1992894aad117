//! `probe_sync clock FILE`, which prints the current reference time from the page that a run on
//! this host maintains.

use probe_sync::GlobalClock;
use probe_sync::clock::{Reading, Status};

use crate::args::ClockArgs;
use crate::{documents, output};

/// Prints the time; returns an error if it is not known yet.
pub fn run(arguments: &ClockArgs) -> anyhow::Result<()> {
    let clock = GlobalClock::open(&arguments.page)?;
    let (system, now) = (std::time::SystemTime::now(), clock.now());
    let Some(now) = now else {
        anyhow::bail!(
            "{}: the reference time is not known yet; wait for the run's first round",
            arguments.page.display()
        );
    };
    // The reading of the system clock came first: the difference is too small by what a reading
    // takes.
    let system_ns = system.duration_since(std::time::UNIX_EPOCH)?.as_nanos() as i64;
    let (node, reference) = clock.nodes().map_or((None, None), |(node, reference)| (Some(node), Some(reference)));
    if arguments.json {
        let number = |node: Option<probe_sync_time::NodeId>| node.map(|node| node.0);
        return output::json(&documents::Clock {
            schema: 1,
            time_ns: now.time.as_ns(),
            earliest_ns: now.earliest.as_ns(),
            latest_ns: now.latest.as_ns(),
            bound95_ns: now.bound95.as_ns(),
            status: now.status.as_str(),
            epoch: now.epoch,
            system_ns,
            node: number(node),
            reference: number(reference),
        });
    }
    let of = |node: Option<probe_sync_time::NodeId>| node.map_or_else(|| "?".into(), |node| node.to_string());
    let (below, above) = hard(&now);
    output::tell(&format!(
        "{} ns, the time of node {} ({})\n  in 95 %  ± {} ns\n  hard     -{below} to +{above} ns\n  node {}'s system clock is {} ns {} it\n",
        now.time.as_ns(),
        of(reference),
        explained(now.status),
        now.bound95.as_ns(),
        of(node),
        (system_ns - now.time.as_ns()).abs(),
        if system_ns < now.time.as_ns() { "behind" } else { "ahead of" },
    ))
}

/// Largest distances of the reference below and above the time shown, ns.
fn hard(now: &Reading) -> (i64, i64) {
    ((now.time - now.earliest).as_ns(), (now.latest - now.time).as_ns())
}

fn explained(status: Status) -> String {
    let why = match status {
        Status::Unsynchronised | Status::Synchronised => "",
        Status::Holdover => ": no new estimate, bounds grow",
        Status::Failed => ": the measurement ended with an error, bounds grow",
    };
    format!("{}{why}", status.as_str())
}

//! Distinguishes machines that report the same boot id, such as virtual machines started from one
//! snapshot.
//!
//! The root compares the hellos before it makes a plan. Ranks on one kernel see the same system
//! clock and the same `CLOCK_MONOTONIC_RAW`, so the difference of the two is the same on all of
//! them, except for slewing of the system clock between two hellos. They also see the same
//! addresses if they are in one network namespace. If either differs, they are on several machines,
//! each of which becomes a separate node and is measured. A system clock stepped between two hellos
//! looks the same; its ranks are then measured individually, which costs only packets.
//!
//! It does not judge a returning rank (`back`), whose system clock may have been stepped in the
//! meantime.

use super::Hello;

/// Numbers the machines with the same clock identity, over all hellos.
pub(super) fn tell_apart(all: &mut [Hello]) {
    for rank in 0..all.len() {
        let (earlier, rest) = all.split_at_mut(rank);
        let Some(hello) = rest.first_mut() else { continue };
        let mut named = earlier.iter().filter(|other| other.clock_identity == hello.clock_identity);
        let mut machines = 0;
        hello.machine = loop {
            let Some(other) = named.next() else { break machines };
            machines = machines.max(other.machine + 1);
            if one_machine(other, hello) {
                break other.machine;
            }
        };
        if hello.machine > 0 {
            // A loopback that other machines do not share.
            let machine = format!(" machine {}", hello.machine);
            hello.network_identity.push_str(&machine);
            hello.offer.network.push_str(&machine);
            tell(rank, hello, earlier);
        }
    }
}

fn one_machine(one: &Hello, other: &Hello) -> bool {
    let (a, b) = (&one.clock.addresses, &other.clock.addresses);
    let one_network = one.offer.network.split(" machine ").next() == other.offer.network.split(" machine ").next();
    // An address may come or go between two hellos.
    one.clock.is_of_one_machine(&other.clock) && (!one_network || a.is_subset(b) || b.is_subset(a))
}

fn tell(rank: usize, hello: &Hello, earlier: &[Hello]) {
    let first = earlier.iter().position(|other| other.clock_identity == hello.clock_identity).unwrap_or_default();
    if earlier.iter().all(|other| other.one_clock() != hello.one_clock()) {
        tracing::warn!(
            "rank {rank} ({}) reports the same boot id as rank {first} ({}), but has the clocks or addresses of another machine (a \
            cloned virtual machine?); measuring it as a separate node",
            hello.hostname,
            earlier[first].hostname
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use probe_sync_time::TimeNamespace;

    use super::super::clock_reading::ClockReading;
    use super::super::plan::tests::hellos;
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// The machine of each rank, where rank r sent its hello `(system, raw)` ns after rank 0, from
    /// these addresses.
    fn machines(readings: &[(i64, i64, &str)]) -> Vec<u32> {
        let mut all = hellos(&vec!["clone"; readings.len()]);
        for (hello, (system, raw, addresses)) in all.iter_mut().zip(readings) {
            hello.clock = ClockReading {
                system_ns: 1_700_000_000 * SECOND + system,
                raw_ns: 9_000 * SECOND + raw,
                error_ns: 100,
                namespace: TimeNamespace::default(),
                addresses: addresses.split_whitespace().map(|ip| ip.parse().expect("an address")).collect(),
            };
        }
        tell_apart(&mut all);
        let identities: BTreeSet<(u32, String)> =
            all.iter().map(|hello| (hello.machine, hello.network_identity.clone())).collect();
        let found: Vec<u32> = all.iter().map(|hello| hello.machine).collect();
        assert_eq!(identities.len(), BTreeSet::from_iter(&found).len(), "loopback is one machine's");
        found
    }

    #[test]
    fn cloned_machines_of_one_boot_id_are_told_apart() {
        // One machine: hellos three seconds apart, slewed by 300 ppm meanwhile.
        assert_eq!(machines(&[(0, 0, "10.0.0.1"), (3 * SECOND, 3 * SECOND - 900_000, "10.0.0.1")]), [0, 0]);
        // Clones with right clocks: one was resumed an hour later, so that its raw clock is an hour
        // behind.
        let hour = 3600 * SECOND;
        let clones = [(0, 0, ""), (7, 7 - hour, ""), (900, 900, ""), (SECOND, SECOND - hour, ""), (0, 2 * hour, "")];
        assert_eq!(machines(&clones), [0, 1, 0, 1, 2]);
        // Clones with right clocks, resumed 2 ms apart.
        assert_eq!(machines(&[(0, 0, ""), (500, 2_000_500, "")]), [0, 1]);
        // Clones whose clocks both go on from the snapshot, with addresses of their own; docker has
        // the same on both.
        let clones = [(0, 0, "10.0.0.1 172.17.0.1"), (500, 500, "10.0.0.2 172.17.0.1")];
        assert_eq!(machines(&clones), [0, 1]);
        // An address came between two hellos of one machine.
        assert_eq!(machines(&[(0, 0, "10.0.0.1"), (500, 500, "10.0.0.1 fe80::1")]), [0, 0]);
    }
}

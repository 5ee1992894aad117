//! A rank's clocks at one moment, and its addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use probe_sync_sys::interfaces::Interface;
use probe_sync_sys::{NARROW_BRACKET, RawClock, SystemClock, host, read_pair};
use probe_sync_time::TimeNamespace;
use serde::{Deserialize, Serialize};

/// A rank's clocks at one instant, and its addresses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClockReading {
    /// System clock, ns.
    pub system_ns: i64,
    /// `CLOCK_MONOTONIC_RAW` of the machine, outside of all time namespaces, ns.
    pub raw_ns: i64,
    /// Bound of the error of the two readings, ns.
    pub error_ns: i64,
    /// Clock offsets of the rank's time namespace.
    pub namespace: TimeNamespace,
    /// Addresses, without loopback.
    pub addresses: BTreeSet<IpAddr>,
}

impl ClockReading {
    /// Reads the clocks.
    pub(super) fn now(interfaces: &[Interface]) -> Self {
        let pair = read_pair(&RawClock, &SystemClock, NARROW_BRACKET);
        let namespace = host::time_namespace();
        let others = interfaces.iter().filter(|interface| !interface.loopback);
        Self {
            system_ns: pair.b.as_ns(),
            raw_ns: pair.a.as_ns() - namespace.monotonic_ns,
            error_ns: pair.bracket.as_ns(),
            namespace,
            addresses: others
                .flat_map(|interface| &interface.addresses)
                .map(|address| address.ip)
                .take(ADDRESSES_MAX)
                .collect(),
        }
    }

    /// Returns true if both readings may be from one machine.
    pub(super) fn is_of_one_machine(&self, other: &Self) -> bool {
        let passed = i128::from(self.raw_ns) - i128::from(other.raw_ns);
        let off = i128::from(self.system_ns) - i128::from(other.system_ns) - passed;
        let slewed = passed.abs() / 1_000_000 * SLEWED_PPM;
        off.abs() <= slewed + i128::from(self.error_ns) + i128::from(other.error_ns) + UNSEEN_NS
    }
}

/// Most addresses in a hello; a host with many services has thousands.
const ADDRESSES_MAX: usize = 256;
/// Largest slew rate of a system clock: adjtimex(2) allows 500 ppm by its frequency, and adjtime(3)
/// another 500 ppm.
const SLEWED_PPM: i128 = 1_000;
/// Largest difference between two readings of one machine beyond their brackets.
const UNSEEN_NS: i128 = 10_000;

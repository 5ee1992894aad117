//! A rank's clocks at one moment, and its addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use probe_sync_sys::interfaces::Interface;
use probe_sync_sys::{NARROW_BRACKET, RawClock, SystemClock, host, read_pair};
use probe_sync_time::TimeNamespace;
use serde::{Deserialize, Serialize};

/// A rank's clocks at one moment, and its addresses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClockReading {
    /// The system clock, ns.
    pub system_ns: i64,
    /// The machine's `CLOCK_MONOTONIC_RAW`, outside of all time namespaces, ns.
    pub raw_ns: i64,
    /// What the two readings may be wrong by, ns.
    pub error_ns: i64,
    /// What the rank's time namespace adds to its clocks.
    pub namespace: TimeNamespace,
    /// Its addresses, but for those of loopback.
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

    /// Whether both readings can be of one machine.
    pub(super) fn is_of_one_machine(&self, other: &Self) -> bool {
        let passed = i128::from(self.raw_ns) - i128::from(other.raw_ns);
        let off = i128::from(self.system_ns) - i128::from(other.system_ns) - passed;
        let slewed = passed.abs() / 1_000_000 * SLEWED_PPM;
        off.abs() <= slewed + i128::from(self.error_ns) + i128::from(other.error_ns) + UNSEEN_NS
    }
}

/// Addresses of a hello: a host of many services has thousands.
const ADDRESSES_MAX: usize = 256;
/// What a system clock may be slewed by: adjtimex(2) allows 500 ppm by its frequency and as much
/// again by adjtime(3).
const SLEWED_PPM: i128 = 1_000;
/// What two readings of one machine may differ by beyond their brackets.
const UNSEEN_NS: i128 = 10_000;

//! The cost of probing to a host: packets, bytes and processor time.
//!
//! The simulation counts packets. Each packet is sent by one host and received by another, so on
//! average a host sends as many packets as it receives.
//!
//! It does not measure the processor time of a packet, which is a constant measured once on real
//! sockets.

use probe_sync_estimate::pacing::PACKET_CPU_NS;
use probe_sync_probe::PACKET_BYTES;
use probe_sync_time::Duration;
use serde::Serialize;

/// Cost of probing, per host.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cost {
    /// Packets sent per second by a host, which receives as many.
    pub packets_per_second: f64,
    /// Bytes per second on the wire, including UDP and IPv4 headers, sent and received together.
    pub bytes_per_second: f64,
    /// Share of one processor core.
    pub cpu_share: f64,
}

impl Cost {
    /// Returns the cost if `hosts` hosts sent `packets` in `duration`; `None` unless both are
    /// positive.
    pub fn new(packets: u64, hosts: u32, duration: Duration) -> Option<Self> {
        let host_seconds = f64::from(hosts) * duration.as_ns_f64() * 1e-9;
        (host_seconds > 0.0).then(|| {
            let packets_per_second = packets as f64 / host_seconds;
            Self {
                packets_per_second,
                bytes_per_second: 2.0 * packets_per_second * (PACKET_BYTES + HEADER_BYTES) as f64,
                cpu_share: packets_per_second * CPU_SECONDS_PER_PACKET,
            }
        })
    }
}

/// UDP (8) and IPv4 (20).
const HEADER_BYTES: usize = 28;

/// Processor time per packet at both ends, including wake-ups: see bench/LOG.md, "Cost of probing".
const CPU_SECONDS_PER_PACKET: f64 = PACKET_CPU_NS * 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_cadence_costs_what_was_measured() {
        // 1250 exchanges of six packets per second and host: 6.5 Mbit/s sent, as much received, 6 %
        // of a core.
        let cost = Cost::new(2 * 1250 * 6 * 4, 2, Duration::from_ms(4_000)).expect("hosts and time");
        assert_eq!(cost.packets_per_second, 7_500.0);
        assert_eq!(cost.bytes_per_second * 8.0, 2.0 * 6.48e6);
        assert!((cost.cpu_share - 0.06).abs() < 1e-12);
        assert_eq!(Cost::new(1, 0, Duration::from_ms(1)), None);
    }
}

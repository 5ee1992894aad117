//! The few header fields of an IPv4 packet that a link needs.
//!
//! The emulator parses each packet it reads from a TUN device to find the destination and to count
//! it. Reference: RFC 791, section 3.1. It does not support IPv6 (the namespaces have it disabled),
//! options or fragments.

use std::net::Ipv4Addr;

use serde::Serialize;

/// Where a packet comes from and goes to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Sender.
    pub(crate) source: Ipv4Addr,
    /// Receiver.
    pub(crate) destination: Ipv4Addr,
    /// Protocol of its payload.
    pub(crate) protocol: Protocol,
}

/// Protocols counted separately.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// Probe packets.
    Udp,
    /// Control traffic.
    Tcp,
    /// ICMP and whatever else.
    Other,
}

impl Header {
    /// The header of an IPv4 packet; `None` for anything else.
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<SHORTEST>()?;
        if header[0] >> 4 != 4 {
            return None;
        }
        let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        let protocol = match header[9] {
            17 => Protocol::Udp,
            6 => Protocol::Tcp,
            _ => Protocol::Other,
        };
        Some(Self { source: address(12), destination: address(16), protocol })
    }
}

/// An IPv4 header without options.
const SHORTEST: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(packet: &[u8], expected: Option<(&str, &str, Protocol)>) {
        let found = Header::parse(packet).map(|h| (h.source.to_string(), h.destination.to_string(), h.protocol));
        assert_eq!(found, expected.map(|(from, to, protocol)| (from.to_owned(), to.to_owned(), protocol)));
    }

    #[test]
    fn fields_are_found_and_foreign_packets_refused() {
        let mut packet = [0; 28];
        packet[0] = 0x45;
        packet[9] = 17;
        packet[12..20].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        check(&packet, Some(("10.77.0.1", "10.77.0.2", Protocol::Udp)));
        packet[9] = 6;
        check(&packet, Some(("10.77.0.1", "10.77.0.2", Protocol::Tcp)));
        packet[9] = 1;
        check(&packet, Some(("10.77.0.1", "10.77.0.2", Protocol::Other)));
        check(&packet[..19], None);
        check(&[], None);
        packet[0] = 0x60;
        check(&packet, None);
    }
}

//! Probe packets: the codec alone, and a whole endpoint that gets packets, stamps and time in any
//! order.

use probe_sync_probe::{Endpoint, EndpointConfig, PACKET_BYTES, Packet, Schedule};
use probe_sync_time::{Duration, NodeId, RunId, Stamp, StampSource, Timestamp};

/// What decodes encodes to the same bytes.
pub fn packet(data: &[u8]) {
    if let Ok(packet) = Packet::decode(data) {
        assert_eq!(packet.encode(None)[..64], data[..64]);
    }
}

/// Datagrams one after another, with time passing: nothing is sent to nodes outside the run, and
/// what is in flight is bounded.
pub fn endpoint(data: &[u8]) {
    let (spacing, timeout) = (Duration::from_us(100), Duration::from_ms(100));
    let Some(schedule) = Schedule::new(Duration::from_us(800), Duration::ZERO) else { return };
    let config = EndpointConfig {
        run: RunId(0),
        node: NodeId(0),
        nodes: NODES,
        out_edges: (1..NODES).map(NodeId).collect(),
        schedule,
        spacing,
        exchange_timeout: timeout,
        incarnation: 0,
        key: None,
    };
    let mut now = Timestamp::from_ns(0);
    let Ok(mut endpoint) = Endpoint::new(config, now) else { return };
    for step in data.chunks(PACKET_BYTES + STEP_HEADER).take(MAX_STEPS) {
        let Some((header, datagram)) = step.split_first_chunk::<STEP_HEADER>() else { break };
        now += Duration::from_us(i64::from(header[0]) * 10);
        let stamp = Stamp {
            at: Timestamp::from_ns(now.as_ns() + i64::from(header[1])),
            source: SOURCES[usize::from(header[2] % 3)],
        };
        endpoint.handle_timer(now);
        endpoint.handle_packet(datagram, Some(NodeId(u32::from(header[3] / 4) % NODES)), stamp, now);
        for _ in 0..MAX_SENT {
            let Some(transmit) = endpoint.poll_transmit() else { break };
            assert!(transmit.to.0 < NODES && transmit.to != NodeId(0), "a packet to {:?}", transmit.to);
            assert!(Packet::decode(&transmit.bytes).is_ok(), "sends what it would not take");
            match header[3] % 4 {
                0 => endpoint.handle_tx_lost(transmit.context, now),
                1 => endpoint.handle_send_failed(transmit.context, now),
                _ => endpoint.handle_tx_stamp(transmit.context, stamp, now),
            }
        }
        while endpoint.poll_exchange().is_some() {}
    }
    let counts = endpoint.counters().total().exchanges;
    let ended = counts.finished + counts.timed_out + counts.stamp_missing + counts.send_failed;
    assert_eq!(counts.started, ended + endpoint.in_flight() as u64, "{counts:?}");
}

const NODES: u32 = 4;
const STEP_HEADER: usize = 4;
const MAX_STEPS: usize = 200;
const MAX_SENT: usize = 1000;
const SOURCES: [StampSource; 3] = [StampSource::Hardware, StampSource::Kernel, StampSource::User];

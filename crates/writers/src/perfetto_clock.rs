//! The clock of a machine in a Perfetto trace: `RemoteClockSync` packets, each with one instant on
//! the machine's clock and on that of the trace.
//!
//! It is consulted before each packet that has a time. Reference: `remote_clock_sync.proto`, and
//! its use in trace processor (`ProtoTraceReader::CalculateClockOffsets`, v52 and v58), which
//! computes one offset from each packet, the mean over its pairs of neighbours. v52 applies it to
//! the packets that follow, v58 to the times that follow. Because there is no slope, a packet is
//! due whenever the map has moved away from the last offset by [`OFF_NS_MIN`]. Both pairs of a
//! packet are the same instant, so their mean is exact. If the machine's clock runs fast, a new
//! offset moves times back; it waits for a gap between events longer than that, because otherwise a
//! slice could begin before the end of the previous one. It does not change times.

use probe_sync_formats::model::{PS_PER_NS, Picoseconds, nearest_ns};
use probe_sync_formats::perfetto::fields as field;
use probe_sync_formats::protobuf::{put_bytes, put_number};

use super::machine::Machine;

/// What was stated about a machine's clock.
#[derive(Debug)]
pub(super) struct MachineClock {
    machine: Machine,
    /// The last stated offset: clock of the machine minus clock of the trace.
    offset_ns: Option<i64>,
    /// The latest requested time, on the machine's clock.
    latest_ns: i64,
    pub(super) pairs: u64,
    /// Largest distance of a time from its mapped value.
    pub(super) off_ns_max: u64,
}

impl MachineClock {
    pub(super) fn new(machine: Machine) -> Self {
        Self { machine, offset_ns: None, latest_ns: i64::MIN, pairs: 0, off_ns_max: 0 }
    }

    pub(super) fn id(&self) -> u64 {
        u64::from(self.machine.id)
    }

    /// A time on the trace's clock. Instants before the zero of a clock cannot be stated; trace
    /// processor takes 0 for none.
    pub(super) fn reference_ns(&self, time_ns: i64) -> Option<i64> {
        let mapped = self.machine.to_reference.map(Picoseconds::from(time_ns) * PS_PER_NS).time_ps;
        nearest_ns(mapped).filter(|reference| *reference > 0 && time_ns > 0)
    }

    /// The instant to state before an event at this time of the machine, if one is due: on its
    /// clock, and on that of the trace.
    pub(super) fn due(&mut self, time_ns: i64) -> Option<[i64; 2]> {
        let reference_ns = self.reference_ns(time_ns)?;
        let offset_ns = time_ns.saturating_sub(reference_ns);
        let gap_ns = time_ns.saturating_sub(self.latest_ns);
        self.latest_ns = self.latest_ns.max(time_ns);
        if let Some(known) = self.offset_ns {
            let off_ns = offset_ns.saturating_sub(known);
            if off_ns.unsigned_abs() < OFF_NS_MIN || gap_ns < 0 || off_ns >= gap_ns {
                self.off_ns_max = self.off_ns_max.max(off_ns.unsigned_abs());
                return None;
            }
        }
        self.offset_ns = Some(offset_ns);
        self.pairs += 1;
        Some([time_ns, reference_ns])
    }
}

/// A TracePacket of the trace's own machine that says nothing. Trace processor (v58) takes the
/// machine of a trace's first packet for the one that the trace was recorded on.
pub(super) fn first_packet(sequence: u64) -> Vec<u8> {
    let mut packet = Vec::new();
    put_number(&mut packet, field::PACKET_SEQUENCE, sequence);
    packet
}

/// A TracePacket of the trace's own machine that states a time of its clock.
pub(super) fn own_packet(sequence: u64, reference_ns: i64) -> Vec<u8> {
    let mut packet = Vec::new();
    put_number(&mut packet, field::PACKET_SEQUENCE, sequence);
    put_bytes(&mut packet, field::PACKET_CLOCK_SNAPSHOT, &snapshot(reference_ns));
    packet
}

/// A TracePacket that states an instant on both clocks.
pub(super) fn packet(sequence: u64, machine: u64, [own_ns, reference_ns]: [i64; 2]) -> Vec<u8> {
    let (mut pair, mut sync, mut packet) = (Vec::new(), Vec::new(), Vec::new());
    put_bytes(&mut pair, field::SYNCED_CLIENT, &snapshot(own_ns));
    put_bytes(&mut pair, field::SYNCED_HOST, &snapshot(reference_ns));
    put_bytes(&mut sync, field::SYNC_PAIR, &pair);
    put_bytes(&mut sync, field::SYNC_PAIR, &pair);
    put_number(&mut packet, field::PACKET_SEQUENCE, sequence);
    put_number(&mut packet, field::PACKET_MACHINE, machine);
    put_bytes(&mut packet, field::PACKET_CLOCK_SYNC, &sync);
    packet
}

/// A ClockSnapshot of the clock that a machine's times are on.
fn snapshot(time_ns: i64) -> Vec<u8> {
    let (mut clock, mut snapshot) = (Vec::new(), Vec::new());
    put_number(&mut clock, field::CLOCK_ID, field::TRACE_CLOCK);
    put_number(&mut clock, field::CLOCK_TIME, time_ns as u64);
    put_bytes(&mut snapshot, field::SNAPSHOT_CLOCKS, &clock);
    snapshot
}

/// An offset that is wrong by this much is stated again: at 20 ppm every ms, if there are events.
const OFF_NS_MIN: u64 = 20;

#[cfg(test)]
mod tests {
    use probe_sync_estimate::series::{Knot, Segment, TimeMap};

    use super::*;

    #[test]
    fn no_time_is_moved_before_an_earlier_one() {
        // Fast by 2 %: each event moves the offset by a fifth of a nanosecond, and there is no gap
        // that a new offset would fit in.
        let knot =
            |ns: i128, correction: i128| Knot { at_ps: ns * 1000, correction_ps: correction * 1000, sigma_ns: 1.0 };
        let knots = vec![knot(1_000_000, 0), knot(2_000_000, 20_000)];
        let to_reference = TimeMap::new(&[Segment { knots, ..Segment::default() }]).expect("usable knots");
        let mut clock = MachineClock::new(Machine { id: 1, to_reference });
        let (mut shown, mut known) = (i64::MIN, None);
        let dense = (0..1000).map(|event| 1_000_000 + event * 10);
        for time in dense.chain([1_010_000 + 5_000]) {
            if let Some([own, reference]) = clock.due(time) {
                known = Some(own - reference);
            }
            let now = time - known.expect("the first event states an instant");
            assert!(now >= shown, "{time}: {now} after {shown}");
            shown = now;
        }
        assert_eq!((clock.pairs, clock.off_ns_max), (2, 200), "what is left is told, and put right in the pause");
    }
}

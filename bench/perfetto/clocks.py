"""Times of a Perfetto trace's packets on any clock, by the rules of trace processor.

It follows `ClockSynchronizer` and `ProtoTraceReader` of trace processor v58 and shares nothing with
the program: a time is converted through the snapshot that precedes it by its own clock, as far as
the file has told snapshots; clocks 64 to 127 belong to a sequence and may count from the packet
before; clocks without a common snapshot are converted over others.
"""

import bisect
import collections

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

REALTIME, MONOTONIC, MONOTONIC_RAW, BOOTTIME = 1, 3, 5, 6
# A name of ours for the global and the local clock of ftrace.
OF_FTRACE = "ftrace"
CLEARED, NEEDED = schema.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED, schema.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE


def key(clock, sequence):
    return (clock, sequence) if 64 <= clock < 128 else clock


class Clocks:
    """What the packets read so far say about clocks."""

    def __init__(self):
        self.trace_clock = BOOTTIME
        self.defaults = {}
        # Sequences whose state is complete: what they interned and what their times count from.
        self.complete = set()
        # By clock: unit and whether it counts on, and the last reading.
        self.kinds, self.last = {}, {}
        # By kind of snapshot (its clocks): by clock, the readings and the numbers of their snapshots; by clock, what it can be converted to.
        self.readings = collections.defaultdict(lambda: collections.defaultdict(list))
        self.numbers = collections.defaultdict(lambda: collections.defaultdict(list))
        self.snapshots = 0
        self.edges = collections.defaultdict(dict)
        self.backward = set()
        self.problems = collections.Counter()
        self.ftrace_read = None

    def tell(self, packet):
        """Takes in what a packet says, before its time is read."""
        sequence = packet.trusted_packet_sequence_id
        if packet.sequence_flags & CLEARED or packet.incremental_state_cleared:
            self.defaults.pop(sequence, None)
            self.complete.add(sequence)
        elif packet.previous_packet_dropped:
            self.complete.discard(sequence)
        if packet.HasField("trace_packet_defaults"):
            self.defaults[sequence] = packet.trace_packet_defaults.timestamp_clock_id
        if packet.HasField("clock_snapshot"):
            snapshot = packet.clock_snapshot
            if snapshot.primary_trace_clock:
                self.trace_clock = snapshot.primary_trace_clock
            self.snapshot([(key(clock.clock_id, sequence), clock.timestamp, clock.unit_multiplier_ns or 1, clock.is_incremental) for clock in snapshot.clocks])

    def snapshot(self, clocks):
        kind = tuple(clock for clock, *_ in clocks)
        self.snapshots += 1
        if len(set(kind)) < len(kind):
            self.problems["a clock twice in a snapshot"] += 1
            return
        for clock, reading, unit_ns, counts_on in clocks:
            if self.kinds.setdefault(clock, (unit_ns, counts_on)) != (unit_ns, counts_on):
                self.problems["a clock changes its unit"] += 1
                return
            before = self.readings[kind][clock]
            if before and reading * unit_ns < before[-1]:
                if clock == self.trace_clock:
                    self.problems["the trace's clock goes back"] += 1
                    return
                self.backward.add(clock)
                self.edges[clock].clear()
            before.append(reading * unit_ns)
            self.numbers[kind][clock].append(self.snapshots)
            self.last[clock] = reading * unit_ns
        for clock in kind:
            for other in kind:
                if clock != other and clock not in self.backward:
                    self.edges[clock].setdefault(other, kind)

    def convert(self, clock, ns, target):
        """A time on another clock, ns; None if nothing relates them."""
        if clock == target:
            return ns
        ways, seen = collections.deque([(clock, [])]), {clock}
        while ways:
            at, way = ways.popleft()
            for other, kind in self.edges[at].items():
                if other == target:
                    return self.along(ns, [*way, (at, other, kind)])
                if other not in seen:
                    seen.add(other)
                    ways.append((other, [*way, (at, other, kind)]))
        return None

    def along(self, ns, way):
        for clock, other, kind in way:
            readings, numbers = self.readings[kind], self.numbers[kind]
            index = max(0, bisect.bisect_right(readings[clock], ns) - 1)
            # A snapshot that was refused half-way lacks clocks.
            there = bisect.bisect_left(numbers[other], numbers[clock][index])
            if there < len(numbers[other]) and numbers[other][there] == numbers[clock][index]:
                ns += readings[other][there] - readings[clock][index]
        return ns

    def time(self, packet):
        """The clock of a packet's time and its reading, ns; None if it has no time or is skipped. Once for each packet."""
        sequence = packet.trusted_packet_sequence_id
        if not packet.HasField("timestamp") or packet.sequence_flags & NEEDED and sequence not in self.complete:
            return None
        clock = packet.timestamp_clock_id or self.defaults.get(sequence) or self.trace_clock
        clock = key(clock, sequence)
        if isinstance(clock, tuple) and packet.HasField("clock_snapshot"):
            # The reader is done with a packet when it has taken its snapshot.
            return None
        unit_ns, counts_on = self.kinds.get(clock, (1, False))
        ns = packet.timestamp * unit_ns + (self.last[clock] if counts_on else 0)
        if counts_on:
            self.last[clock] = ns
        return clock, ns

    def ftrace_clock(self, bundle):
        """The clock of a bundle of the kernel's events; None if nothing relates it to others."""
        if bundle.ftrace_clock == schema.FTRACE_CLOCK_UNKNOWN:
            return None
        own = {schema.FTRACE_CLOCK_UNSPECIFIED: BOOTTIME, schema.FTRACE_CLOCK_MONO_RAW: MONOTONIC_RAW}
        clock = own.get(bundle.ftrace_clock, OF_FTRACE)
        if bundle.HasField("ftrace_timestamp") and bundle.HasField("boot_timestamp") and bundle.ftrace_timestamp != self.ftrace_read:
            self.ftrace_read = bundle.ftrace_timestamp
            self.snapshot([(clock, bundle.ftrace_timestamp, 1, False), (BOOTTIME, bundle.boot_timestamp, 1, False)])
        return clock

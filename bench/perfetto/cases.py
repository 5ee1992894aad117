"""Small Perfetto traces, one for each rule about times that recordings of one library do not reach.

    pip install perfetto; python3 bench/perfetto/cases.py FOLDER

Made with the published protobuf classes, the kernel's events as traced_probes writes them. Writes FOLDER/CASE.pftrace.
"""

import pathlib
import sys

from clocks import BOOTTIME, MONOTONIC, MONOTONIC_RAW, REALTIME
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

S, MS, US = 1_000_000_000, 1_000_000, 1_000
BOOT, UNIX = 5000 * S, 1_790_000_000 * S
CLEARED, NEEDED = schema.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED, schema.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
BEGIN, END, INSTANT, COUNTER = (getattr(schema.TrackEvent, f"TYPE_{name}") for name in ("SLICE_BEGIN", "SLICE_END", "INSTANT", "COUNTER"))


class Trace:
    """Packets of a trace; each method adds some."""

    def __init__(self):
        self.trace = schema.Trace()

    def packet(self, sequence=2, **fields):
        return self.trace.packet.add(trusted_packet_sequence_id=sequence, **fields)

    def snapshot(self, primary=None, sequence=1, **readings):
        """Readings by name: clock, or (clock, unit, counts on)."""
        packet = self.packet(sequence)
        if primary is not None:
            packet.clock_snapshot.primary_trace_clock = primary
        for clock, reading in readings.items():
            number = {"boot": BOOTTIME, "mono": MONOTONIC, "raw": MONOTONIC_RAW, "real": REALTIME}.get(clock) or int(clock[1:])
            reading = reading if isinstance(reading, tuple) else (reading, 1, False)
            packet.clock_snapshot.clocks.add(clock_id=number, timestamp=reading[0], unit_multiplier_ns=reading[1], is_incremental=reading[2])
        return packet

    def all_clocks(self, at, primary=None, suspended=0, real=0, jitter=0):
        """A service's snapshot at `at` after the begin; MONOTONIC lacks the time suspended, REALTIME was set by `real`."""
        self.snapshot(primary, boot=BOOT + at, real=UNIX + at + real + jitter, mono=BOOT + at - 7 * S - suspended + 2 * jitter, raw=BOOT + at - 9 * S - suspended - at // 20_000)

    def slices(self, times, clock=0, sequence=2, length=50 * US, track=7):
        """A slice from each of the times on a clock."""
        for number, at in enumerate(times):
            for kind, time in [(BEGIN, at), (END, at + length)]:
                packet = self.packet(sequence, timestamp=time)
                if clock:
                    packet.timestamp_clock_id = clock
                packet.track_event.type, packet.track_event.track_uuid = kind, track
                if kind == BEGIN:
                    packet.track_event.name = f"slice {number}"

    def track(self, uuid=7):
        descriptor = self.packet().track_descriptor
        descriptor.uuid, descriptor.thread.pid, descriptor.thread.tid, descriptor.thread.thread_name = uuid, 40, 40 + uuid, f"thread {uuid}"


def kernel(clock):
    """Bundles of two processors: columns of switches and wake-ups, events, an error."""
    trace = Trace()
    trace.track()
    trace.all_clocks(0)
    trace.all_clocks(2 * S)
    # What the clock of the bundles shows at BOOT + at.
    ahead = {schema.FTRACE_CLOCK_UNSPECIFIED: 0, schema.FTRACE_CLOCK_MONO_RAW: -9 * S}.get(clock, -777 * S)
    shown = lambda at: BOOT + ahead + at  # noqa: E731
    for number in range(6):
        for cpu in range(2):
            at = number * 300 * MS + cpu * 5 * MS
            packet = trace.packet(3)
            bundle = packet.ftrace_events
            bundle.cpu = cpu
            if clock:
                bundle.ftrace_clock = clock
            if clock in (schema.FTRACE_CLOCK_GLOBAL, schema.FTRACE_CLOCK_LOCAL):
                # Read together after the bundle; clocks of processors drift.
                read = at + 310 * MS
                bundle.ftrace_timestamp, bundle.boot_timestamp = shown(read) + number * 900, BOOT + read
            bundle.previous_bundle_end_timestamp = shown(at)
            bundle.last_read_event_timestamp = shown(at)
            columns = bundle.compact_sched
            columns.intern_table.extend(["python", "swapper", "nccl"])
            columns.switch_timestamp.extend([shown(at + MS), 1000, 2_345_678, 0])
            for index in range(4):
                columns.switch_prev_state.append(index % 2)
                columns.switch_next_pid.append((41, 0, 42, 41)[index])
                columns.switch_next_prio.append(120)
                columns.switch_next_comm_index.append((0, 1, 2, 0)[index])
            columns.waking_timestamp.extend([shown(at + MS) - 500, 3_000_000])
            for index in range(2):
                columns.waking_pid.append(41 + index)
                columns.waking_target_cpu.append(cpu)
                columns.waking_prio.append(120)
                columns.waking_comm_index.append(0)
                columns.waking_common_flags.append(1)
            event = bundle.event.add(timestamp=shown(at + 20 * MS), pid=41)
            event.sched_switch.prev_comm, event.sched_switch.prev_pid, event.sched_switch.next_comm, event.sched_switch.next_pid = "python", 41, "swapper", 0
            for kind, later in [(f"B|41|step {number}\n", 21), ("E|41\n", 22), (f"C|41|depth|{number}\n", 23)]:
                event = bundle.event.add(timestamp=shown(at + later * MS), pid=41)
                event.print.buf = kind
            bundle.error.add(timestamp=shown(at + 24 * MS), status=schema.FTRACE_STATUS_ABI_SHORT_DATA_LENGTH)
    trace.slices([BOOT + 100 * MS, BOOT + 900 * MS], sequence=2)
    return trace


def system():
    """Packets of the system: trees of processes, statistics, the log; their own times are BOOTTIME, the log's REALTIME."""
    trace = Trace()
    trace.track()
    trace.all_clocks(0)
    for number in range(4):
        at = BOOT + number * 400 * MS
        tree = trace.packet(timestamp=at).process_tree
        tree.processes.add(pid=41, ppid=1).cmdline.append("python")
        tree.collection_end_timestamp = at + 3 * MS
        statistics = trace.packet(timestamp=at + MS).process_stats
        statistics.processes.add(pid=41, vm_rss_kb=1000 + number)
        statistics.collection_end_timestamp = at + 2 * MS
        memory = trace.packet(timestamp=at + 5 * MS).sys_stats
        memory.meminfo.add(key=schema.MEMINFO_MEM_FREE, value=99 + number)
        memory.collection_end_timestamp = at + 6 * MS
        log = trace.packet(timestamp=at + 7 * MS).android_log
        log.events.add(timestamp=UNIX + number * 400 * MS + 6 * MS, pid=41, tid=41, prio=schema.PRIO_INFO, tag="t", message="m")
        trace.packet(timestamp=at + 8 * MS).trigger.trigger_name = "x"
    trace.slices([BOOT + 10 * MS])
    return trace


def own_clock(unit, snapshots=2, counts_on=True):
    """A sequence's clock with a unit, told again in the middle, as a library does when its state is cleared."""
    trace = Trace()
    trace.track()
    for part in range(snapshots):
        # Not on a whole unit.
        at = BOOT + part * 900 * MS + 777
        packet = trace.snapshot(sequence=2, boot=at, c64=(at // unit, unit, counts_on))
        packet.sequence_flags, packet.trace_packet_defaults.timestamp_clock_id = CLEARED, 64
        packet.timestamp = 0
        for number in range(20):
            step = (20 * MS + number) // unit
            for kind in (BEGIN, END):
                at += step * unit
                event = trace.packet(sequence_flags=NEEDED, timestamp=step if counts_on else at // unit)
                event.track_event.type, event.track_event.track_uuid = kind, 7
                if kind == BEGIN:
                    event.track_event.name = "counted"
    return trace


def cases():
    for name, clock in [("boot", schema.FTRACE_CLOCK_UNSPECIFIED), ("global", schema.FTRACE_CLOCK_GLOBAL), ("local", schema.FTRACE_CLOCK_LOCAL), ("raw", schema.FTRACE_CLOCK_MONO_RAW), ("unknown", schema.FTRACE_CLOCK_UNKNOWN)]:
        yield f"ftrace_{name}", kernel(clock)
    yield "system", system()
    yield "counted_us", own_clock(US)
    yield "counted_ns", own_clock(1)
    yield "own_us", own_clock(US, counts_on=False)

    # After the second snapshot, times before it.
    trace = own_clock(US, counts_on=False)
    trace.slices([(BOOT + at * MS) // US for at in (100, 300, 500)], clock=64, track=8, length=50)
    yield "own_us_past", trace

    # The clock of the trace is stated as unknown.
    trace = Trace()
    trace.all_clocks(0, primary=0)
    trace.track()
    trace.slices([BOOT + at * 100 * MS for at in range(5)])
    yield "primary_zero", trace

    # Defaults replace all earlier ones.
    trace = own_clock(1, snapshots=1)
    trace.packet().trace_packet_defaults.track_event_defaults.track_uuid = 7
    trace.slices([BOOT + at * 100 * MS for at in (15, 16)])
    yield "defaults_replaced", trace

    # Suspended for an hour between two snapshots, both before the events.
    trace = Trace()
    trace.all_clocks(0, MONOTONIC)
    trace.all_clocks(3602 * S, MONOTONIC, suspended=3600 * S)
    trace.track()
    trace.slices([BOOT - 7 * S + at * 100 * MS for at in (1, 2, 3, 21, 22, 23)])
    yield "suspended", trace

    # The system clock is set 2 s back between two snapshots; events are on it.
    trace = Trace()
    trace.all_clocks(0)
    trace.all_clocks(10 * S, real=-2 * S)
    trace.track()
    trace.slices([UNIX + at * S for at in (1, 2, 3)], clock=REALTIME)
    trace.slices([UNIX - 2 * S + at * S for at in (13, 14)], clock=REALTIME)
    yield "set_back", trace

    trace = Trace()
    for at in range(8):
        trace.all_clocks(at * 100 * MS, MONOTONIC, jitter=(at * 37) % 11 * 100)
    trace.track()
    trace.slices([BOOT - 7 * S + at * 25 * MS for at in range(28)])
    yield "jitter", trace

    # Snapshots without BOOTTIME, on the system clock.
    trace = Trace()
    trace.snapshot(REALTIME, real=UNIX)
    trace.track()
    trace.slices([UNIX + at * 100 * MS for at in range(5)])
    yield "system_clock", trace

    # A clock of a sequence that only the system clock, or MONOTONIC, was read with.
    for shared, begin in [("real", UNIX), ("mono", BOOT - 7 * S)]:
        trace = Trace()
        trace.all_clocks(0)
        trace.track()
        trace.snapshot(sequence=2, **{shared: begin + 10 * MS, "c70": (555, 1, False)})
        trace.slices([555 + at * 100 * MS for at in range(5)], clock=70)
        yield f"own_over_{shared}", trace

    # Lost packets: what needs the state is skipped until it is cleared.
    trace = own_clock(1)
    dropped = trace.trace.packet[14]
    dropped.previous_packet_dropped = 1
    yield "dropped", trace

    # The begin of a sequence was overwritten; another sequence is whole.
    trace = own_clock(1)
    del trace.trace.packet[1]
    trace.track(8)
    trace.slices([BOOT + at * 100 * MS for at in range(4)], clock=BOOTTIME, sequence=5, track=8)
    yield "overwritten", trace

    # An old flag clears the defaults.
    trace = own_clock(1, snapshots=1)
    trace.packet(sequence=2).incremental_state_cleared = True
    trace.slices([BOOT + 1500 * MS], sequence=2)
    yield "old_flag", trace

    # A snapshot's own packet states a time that counts on.
    trace = own_clock(1, snapshots=1)
    trace.trace.packet[1].timestamp = 5 * MS
    yield "snapshot_with_time", trace

    # Events on a clock that only a later snapshot relates.
    trace = Trace()
    trace.track()
    trace.slices([BOOT - 7 * S + at * 100 * MS for at in (1, 2)], clock=MONOTONIC)
    trace.all_clocks(0)
    trace.slices([BOOT - 7 * S + at * 100 * MS for at in (3, 4)], clock=MONOTONIC)
    yield "told_later", trace


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, trace in cases():
        (folder / f"{name}.pftrace").write_bytes(trace.trace.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()

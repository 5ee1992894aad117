"""Every time of a rewritten Perfetto trace against the exact map, and everything else against the input.

    pip install perfetto; python3 bench/perfetto/exact.py PROGRAM FILE...

For each file: `align` with offsets of zero must give the same packets; with a clock that drifts, and changes its rate, each time
must be the nearest nanosecond to the exact map of the old one, and every other field must be unchanged. What clock a time is on, is
decided by clocks.py. The map is exact only for traces on Unix time, so a trace that counts from boot is first moved there by a
constant. As it is, it is related to the system clock by its own snapshots: then the times must lie on one smooth map.
"""

import bisect
import collections
import fractions
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
import zlib

from clocks import BOOTTIME, MONOTONIC, REALTIME, Clocks, key
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

# By name: rates of the clock of node 1, ppm, before and after the middle of the trace, and its offset there, ns.
DRIFTS = {"identity": ((0, 0), 0), "drift": ((37, -12), 1_234_567), "from the middle": ((0, 30), 0)}
UNIX_NS = 1_000_000_000_000_000_000
ALIGNED = "probe_sync_timeline"
# Half a nanosecond, and the picosecond that a map is computed to.
TOLERANCE = fractions.Fraction(501, 1000)
SECOND_NS = 1_000_000_000


def read(path):
    """The packets of a trace, those that are packed into others in their place."""
    content = pathlib.Path(path).read_bytes()
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    packets = []
    for packet in schema.Trace.FromString(content).packet:
        packed = packet.compressed_packets
        packets += schema.Trace.FromString(zlib.decompress(packed)).packet if packed else [packet]
    return packets


class Times:
    """Times of a packet, by place: (clock, ns) or, of readings of snapshots, the whole snapshot."""

    def __init__(self, clocks, packet):
        clocks.tell(packet)
        self.boot, self.trace, self.plain = {}, {}, {}
        located = clocks.time(packet)
        if located:
            self.put(clocks, "timestamp", *located)
            if packet.HasField("gpu_render_stage_event"):
                self.put(clocks, "gpu_render_stage_event.duration", located[0], located[1] + packet.gpu_render_stage_event.duration)
        self.snapshot = {}
        for clock in packet.clock_snapshot.clocks:
            self.snapshot[clock.clock_id] = clock.timestamp * (clock.unit_multiplier_ns or 1)
        for name in ("process_tree", "process_stats", "sys_stats"):
            if packet.HasField(name) and getattr(packet, name).HasField("collection_end_timestamp"):
                self.put(clocks, f"{name}.collection_end_timestamp", BOOTTIME, getattr(packet, name).collection_end_timestamp)
        for index, event in enumerate(packet.android_log.events):
            self.put(clocks, f"android_log.events.{index}.timestamp", REALTIME, event.timestamp)
        if packet.HasField("ftrace_events"):
            self.kernel(clocks, packet.ftrace_events)

    def put(self, clocks, place, clock, ns):
        self.plain[place] = clock, ns
        # A trace on the system clock may never state BOOTTIME.
        on_boot = clocks.convert(clock, ns, BOOTTIME)
        self.boot[place] = ns if on_boot is None and clock == clocks.trace_clock == REALTIME else on_boot
        self.trace[place] = clocks.convert(clock, ns, clocks.trace_clock)

    def kernel(self, clocks, bundle):
        clock = clocks.ftrace_clock(bundle)
        for place, entries in [("event", bundle.event), ("error", bundle.error)]:
            for index, entry in enumerate(entries):
                self.put(clocks, f"{place}.{index}", clock, entry.timestamp)
        for place in ("switch_timestamp", "waking_timestamp"):
            at = 0
            for index, step in enumerate(getattr(bundle.compact_sched, place)):
                at += step
                self.put(clocks, f"{place}.{index}", clock, at)
        for place in ("last_read_event_timestamp", "previous_bundle_end_timestamp"):
            if bundle.HasField(place):
                self.put(clocks, place, clock, getattr(bundle, place))
        if bundle.HasField("boot_timestamp"):
            self.put(clocks, "boot_timestamp", BOOTTIME, bundle.boot_timestamp)


def without_times(packet):
    """The bytes of a packet whose times are zero; a copy is changed."""
    copy = type(packet)()
    copy.CopyFrom(packet)
    for message, names in [(copy, ["timestamp"]), (copy.gpu_render_stage_event, ["duration"]), (copy.process_tree, ["collection_end_timestamp"])]:
        clear(message, names)
    clear(copy.process_stats, ["collection_end_timestamp"])
    clear(copy.sys_stats, ["collection_end_timestamp"])
    for clock in copy.clock_snapshot.clocks:
        clear(clock, ["timestamp", "unit_multiplier_ns"])
    for event in copy.android_log.events:
        clear(event, ["timestamp"])
    bundle = copy.ftrace_events
    for entry in [*bundle.event, *bundle.error]:
        clear(entry, ["timestamp"])
    for times in (bundle.compact_sched.switch_timestamp, bundle.compact_sched.waking_timestamp):
        times[:] = [0] * len(times)
    clear(bundle, ["ftrace_timestamp", "boot_timestamp", "last_read_event_timestamp", "previous_bundle_end_timestamp"])
    return copy.SerializeToString(deterministic=True)


def clear(message, names):
    for name in names:
        if message.HasField(name):
            setattr(message, name, 0)


def on_unix_time(packets):
    """Copies of the packets, with BOOTTIME moved to Unix time by whole seconds, and REALTIME so that it is equal at first."""
    clocks, moved, by_ns, system_ns = Clocks(), [], None, 0
    for packet in packets:
        copy = type(packet)()
        copy.CopyFrom(packet)
        clocks.tell(packet)
        located = clocks.time(packet)
        readings = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
        if by_ns is None and (readings.get(BOOTTIME) or located):
            from_ns = readings.get(BOOTTIME) or located[1]
            to_ns = readings.get(REALTIME) or 1_750_000_000 * SECOND_NS
            by_ns = 0 if from_ns > UNIX_NS else (to_ns - from_ns) // SECOND_NS * SECOND_NS
            system_ns = from_ns + by_ns - to_ns if REALTIME in readings and by_ns else 0
        if located and located[0] == REALTIME:
            copy.timestamp += system_ns
        elif located and not clocks.kinds.get(located[0], (1, False))[1]:
            copy.timestamp += by_ns // clocks.kinds.get(located[0], (1, False))[0]
        for clock in copy.clock_snapshot.clocks:
            if clock.clock_id == REALTIME:
                clock.timestamp += system_ns
            else:
                clock.timestamp += by_ns // (clock.unit_multiplier_ns or 1)
        for event in copy.android_log.events:
            event.timestamp += system_ns
        for name in ("process_tree", "process_stats", "sys_stats"):
            if packet.HasField(name) and getattr(packet, name).HasField("collection_end_timestamp"):
                getattr(copy, name).collection_end_timestamp += by_ns
        if packet.HasField("ftrace_events"):
            bundle = copy.ftrace_events
            if bundle.ftrace_clock in (schema.FTRACE_CLOCK_UNSPECIFIED, schema.FTRACE_CLOCK_MONO_RAW):
                for entry in [*bundle.event, *bundle.error]:
                    entry.timestamp += by_ns
                for times in (bundle.compact_sched.switch_timestamp, bundle.compact_sched.waking_timestamp):
                    times[:1] = [time + by_ns for time in times[:1]]
                for name in ("last_read_event_timestamp", "previous_bundle_end_timestamp"):
                    if bundle.HasField(name):
                        setattr(bundle, name, getattr(bundle, name) + by_ns)
                if bundle.HasField("ftrace_timestamp"):
                    bundle.ftrace_timestamp += by_ns
            if bundle.HasField("boot_timestamp"):
                bundle.boot_timestamp += by_ns
        moved.append(copy)
    return moved


class Drift:
    """The exact map of a file of offsets: straight between its rows."""

    def __init__(self, first_ns, last_ns, rates_ppm, middle_ns):
        middle = (first_ns + last_ns) // 2
        self.rows = [(middle, middle_ns)]
        for rate_ppm, at in zip(rates_ppm, (first_ns - 2 * SECOND_NS, last_ns + 2 * SECOND_NS)):
            self.rows.append((at, middle_ns + (at - middle) * rate_ppm // 1_000_000))
        self.rows.sort()

    def write(self, path):
        rows = [f"1,{at},{offset}\n" for at, offset in self.rows]
        pathlib.Path(path).write_text("node,node_realtime_ns,offset_vs_node0_ns\n" + "".join(rows))

    def __call__(self, time_ns):
        index = min(max(1, bisect.bisect_right(self.rows, (time_ns,))), len(self.rows) - 1)
        (from_at, from_offset), (to_at, to_offset) = self.rows[index - 1 : index + 1]
        return time_ns - from_offset - fractions.Fraction((time_ns - from_at) * (to_offset - from_offset), to_at - from_at)


def align(program, source, offsets, output, *flags):
    """Runs `align`; the message if it refuses."""
    command = [program, "align", source, "--nodes", "1", "--offsets", offsets, "--output", output, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    return None if done.returncode == 0 else done.stderr.strip() or f"status {done.returncode}"


def pairs(before, after):
    """The packets of both files side by side, without the one that says which clock the output is on."""
    after = [packet for packet in after if not (packet.HasField("trace_attributes") and ALIGNED in str(packet.trace_attributes))]
    if len(before) != len(after):
        raise SystemExit(f"mismatch: {len(before)} packets became {len(after)}")
    return zip(before, after, strict=True)


def compare(before, after, expected):
    """Faults of the output by kind, with the first of each; `expected`: the exact map, or None for any smooth one."""
    faults, first, counts, points = collections.Counter(), {}, collections.Counter(), []

    def fault(kind, *facts):
        faults[kind] += 1
        first.setdefault(kind, facts)

    old_clocks, new_clocks = Clocks(), Clocks()
    for number, (old, new) in enumerate(pairs(before, after)):
        old_times, new_times = Times(old_clocks, old), Times(new_clocks, new)
        counts["packets"] += 1
        if without_times(old) != without_times(new):
            fault("a field that is no time changed", number, str(old)[:200], str(new)[:200])
        if old_times.boot.keys() != new_times.boot.keys():
            fault("times appear or vanish", number)
            continue
        for place, (clock, old_ns) in old_times.plain.items():
            old_boot, new_boot = old_times.boot[place], new_times.boot[place]
            counts["times"] += 1
            if old_boot is None or new_boot is None:
                counts["unrelated"] += 1
                if old_ns != new_times.plain[place][1]:
                    fault("a time that nothing relates to BOOTTIME moved", number, place, clock, old_ns, new_times.plain[place])
                continue
            points.append((old_boot, new_boot))
            if expected:
                off = abs(expected(old_boot) - new_boot)
                counts["largest error"] = max(counts["largest error"], off)
                if off > TOLERANCE:
                    fault("a time is off", number, place, clock, old_boot, new_boot, float(off))
            if old_clocks.trace_clock not in (BOOTTIME, REALTIME) and old_times.trace[place] is not None:
                by_boot, by_trace = new_boot - old_boot, new_times.trace[place] - old_times.trace[place]
                if by_boot != by_trace:
                    fault("a time on the trace's clock moved by something else", number, place, by_boot, by_trace)
        snapshot(number, old_times.snapshot, new_times.snapshot, expected, fault, counts)
    for kind in new_clocks.problems.keys() | old_clocks.problems.keys():
        if new_clocks.problems[kind] > old_clocks.problems[kind]:
            fault(f"new problem of snapshots: {kind}", new_clocks.problems[kind])
    if not expected:
        smooth(points, fault)
    return faults, first, counts


def snapshot(number, old, new, expected, fault, counts):
    """Readings move with BOOTTIME; REALTIME is the new time itself."""
    if not old:
        return
    counts["snapshots"] += 1
    if BOOTTIME not in old:
        return
    if expected and abs(expected(old[BOOTTIME]) - new[BOOTTIME]) > TOLERANCE:
        fault("a reading of BOOTTIME is off", number, old[BOOTTIME], new[BOOTTIME])
    by_ns = new[BOOTTIME] - old[BOOTTIME]
    for clock, reading in old.items():
        wanted = new[BOOTTIME] if clock == REALTIME and by_ns else reading + by_ns
        # A clock of a sequence may begin at 0, and then it cannot move back.
        if new[clock] != wanted and not (64 <= clock < 128 and new[clock] == reading):
            fault(f"reading of clock {clock}", number, reading, new[clock], wanted)


def smooth(points, fault):
    """Times between two others must be moved as a straight line between them does, to a nanosecond; the order must stay."""
    points = sorted(set(points))
    for (old0, new0), (old, new), (old1, new1) in zip(points, points[1:], points[2:]):
        if not new0 <= new <= new1:
            fault("times change their order", old, new)
        if old1 - old0 < 1_000_000 and old1 > old0:
            off = new - (new0 + fractions.Fraction((new1 - new0) * (old - old0), old1 - old0))
            if abs(off) > 1.5:
                fault("the map jumps", old, new, float(off))


def check(program, path, folder):
    """The faults of one file."""
    before = read(path)
    unix = f"{folder}/unix.pftrace"
    moved = on_unix_time(before)
    pathlib.Path(unix).write_bytes(schema.Trace(packet=moved).SerializeToString())
    clocks = Clocks()
    every = [time for packet in moved for time in Times(clocks, packet).boot.values() if time and time > UNIX_NS]
    if not every:
        print("  no packet states a time")
        return {}
    output, faults = f"{folder}/output.pftrace", collections.Counter()
    for name, (rates_ppm, middle_ns) in DRIFTS.items():
        drift = Drift(min(every), max(every), rates_ppm, middle_ns)
        drift.write(f"{folder}/drift.csv")
        refused = align(program, unix, f"{folder}/drift.csv", output, "--realtime-only")
        if refused:
            print(f"  {name}: refused: {refused[-300:]}")
            faults["refused"] += 1
            continue
        after = read(output)
        if name == "identity":
            changed = sum(old.SerializeToString() != new.SerializeToString() for old, new in pairs(moved, after))
            print(f"  identity: {len(moved)} packets, {changed} changed")
            faults["identity changes packets"] += changed
        else:
            faults += report(name, *compare(moved, after, drift))
    if unix_pairs(before):
        first = next(time for time in unix_pairs(before))
        wide = f"{folder}/wide.csv"
        pathlib.Path(wide).write_text("node,node_realtime_ns,offset_vs_node0_ns\n" + "".join(f"1,{first + at * SECOND_NS},{1_000_000 + at * 50_000}\n" for at in (-10_000, 10_000)))
        refused = align(program, path, wide, output)
        if refused:
            print(f"  as it is: refused: {refused[-300:]}")
            faults["refused"] += 1
        else:
            faults += report("as it is", *compare(before, read(output), None))
    return +faults


def unix_pairs(packets):
    """Readings of REALTIME in snapshots that state BOOTTIME too."""
    both = [{clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks} for packet in packets]
    return [readings[REALTIME] for readings in both if {REALTIME, BOOTTIME} <= readings.keys()]


def report(name, faults, first, counts):
    largest = float(counts.pop("largest error", 0))
    print(f"  {name}: {dict(counts)}, largest error {largest:.4f} ns")
    for kind, count in faults.items():
        print(f"    FAULT {kind}: {count}, first {first[kind]}")
    return faults


def main():
    program, *files = sys.argv[1:]
    bad = 0
    for path in files:
        print(path)
        with tempfile.TemporaryDirectory() as folder:
            bad += bool(check(program, path, folder))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

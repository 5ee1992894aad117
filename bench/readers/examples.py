#!/usr/bin/env python3
"""Other people's readers on what the examples with torch and JAX leave behind.

    target/readers/venv/bin/python bench/readers/examples.py xprof    TRACE ...         # the traces of one session folder
    target/readers/venv/bin/python bench/readers/examples.py perfetto MERGED TRACE ...
    target/readers/venv/bin/python bench/readers/examples.py hta      TRACE ...         # one of each rank

Called by crates/python/tests/flows.py after a job has run. xprof must show a host for every trace of the session, Perfetto's trace
processor must find in the merged file all slices and flows of its parts and no new fault, and HolisticTraceAnalysis must load every rank with rows.

It does not compare times.
"""

import pathlib
import sys

import hta_ranks
import perfetto_counts
import xprof_hosts
from common import need, require


def xprof(*traces):
    need("xprof")
    # By file names, as in the browser: the host is what stands before `.xplane.pb`.
    shown = sorted(xprof_hosts.hosts(xprof_hosts.converted(traces, "trace_viewer@")).values())
    print(f"one session of {len(traces)} files: xprof shows {shown}")
    require(len(shown) == len(traces), f"xprof shows {len(shown)} hosts, not {len(traces)}")
    for trace in traces:
        name = pathlib.Path(trace).name.removesuffix(".xplane.pb")
        require(any(name in host for host in shown), f"xprof shows no host {name}")


def perfetto(merged, *traces):
    perfetto_counts.need_processor()
    perfetto_counts.compare(merged, traces)


def hta(*traces):
    need("HolisticTraceAnalysis")
    rows = {rank: len(frame) for rank, (frame, _) in sorted(hta_ranks.loaded(traces).items())}
    print(f"HTA's rows by rank: {rows}")
    require(sorted(rows) == list(range(len(traces))) and all(rows.values()), "a rank is missing or empty")


if __name__ == "__main__":
    what, *files = sys.argv[1:]
    {"xprof": xprof, "perfetto": perfetto, "hta": hta}[what](*files)

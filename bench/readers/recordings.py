#!/usr/bin/env python3
"""HolisticTraceAnalysis, xprof and AMD's rocpd modules must read what the host event recorder exports.

    target/readers/venv/bin/python bench/readers/recordings.py hta | xprof | rocpd

Steps of `cargo xtask test`, after install.py. The recordings are those of a run's own rounds on four ranks whose clocks are milliseconds apart (`probe_sync run --inject-skew
--record`). `hta` must load all ranks and a row for each scope, also from the folder as a whole. `xprof` must draw all hosts with each of their scopes, together: no broadcast ends anywhere
before its root has begun it, as many do on the machines' own clocks. `rocpd` must open databases and find each scope as a region; it needs ROCPD_SRC, as rocpd_modules.py does.

It does not compare depths; perfetto_recording.py does.
"""

import json
import os
import pathlib
import subprocess
import sys

import hta_ranks
import rocpd_modules
import xprof_hosts
from common import LIMIT_S, PROGRAM, fresh_folder, need, require, skip

RANKS = 4
# What xprof rounds by: it draws microseconds, as floating-point numbers.
ROUNDED_US = 0.002


def probe_sync(work, *arguments):
    done = subprocess.run([PROGRAM, *arguments], cwd=work, capture_output=True, text=True, timeout=LIMIT_S)
    require(done.returncode == 0, f"probe_sync {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def recorded(work, *more):
    """The recordings of a run, in the order of ranks."""
    probe_sync(work, "run", "--local", str(RANKS), "--fixed", "--window", "200ms", "--duration", "3s", "--record", "records", "--out", "out", *more)
    files = [work / f"records/node{node}.rec" for node in range(RANKS)]
    require(all(file.exists() for file in files), "a rank has no recording")
    return files


def exported(work, form, folder, files, *clocks):
    """The traces, and how many scopes each is said to have."""
    lines = probe_sync(work, "record", "convert", "--json", "-f", form, "-o", folder, *clocks, "--", *files).splitlines()
    found = [json.loads(line) for line in lines]
    require(len(found) == len(files) and all(one["scopes"] > 20 for one in found), f"exported: {found}")
    return [work / one["path"] for one in found], [one["scopes"] for one in found]


def hta():
    need("HolisticTraceAnalysis")
    with fresh_folder() as work:
        work = pathlib.Path(work)
        files = recorded(work, "--inject-skew", "5")
        for name, clocks in (("own", ()), ("reference", ("--run-dir", "out"))):
            traces, scopes = exported(work, "kineto", name, files, *clocks)
            rows = [len(frame) for _, (frame, _) in sorted(hta_ranks.loaded(traces).items())]
            print(f"{name} clock: HTA's rows by rank {rows}, scopes recorded {scopes}")
            require(rows == scopes, "HTA reads other rows than were recorded")
            require(hta_ranks.ranks_of_folder(work / name) == RANKS, "HTA finds other ranks in the folder")


def scopes_of(events, pid, name):
    """Beginnings and ends of a host's scopes of this name, us, in order."""
    found = [event for event in events if event.get("ph") == "X" and event["pid"] == pid and event["name"] == name]
    return sorted((event["ts"], event["ts"] + event.get("dur", 0)) for event in found)


def broken(what, traces, scopes):
    """How many broadcasts end, as drawn, before the root has begun them."""
    events = xprof_hosts.converted(traces, "trace_viewer@")
    drawn = {xprof_hosts.node_of(name): pid for pid, name in xprof_hosts.hosts(events).items()}
    require(sorted(drawn) == list(range(RANKS)), f"{what}: xprof shows {sorted(xprof_hosts.hosts(events).values())}")
    for node, count in enumerate(scopes):
        seen = sum(event.get("ph") == "X" and event["pid"] == drawn[node] for event in events)
        require(seen == count, f"{what}: xprof draws {seen} scopes of node {node}, {count} were recorded")
    root, *others = (scopes_of(events, drawn[node], "broadcast") for node in range(RANKS))
    require(len(root) > 5 and all(len(other) == len(root) for other in others), f"{what}: other numbers of broadcasts")
    count = sum(end < start - ROUNDED_US for other in others for (start, _), (_, end) in zip(root, other, strict=True))
    print(f"{what}: {len(drawn)} hosts, {sum(scopes)} scopes, {count} of {len(root) * len(others)} broadcasts end before they begin")
    return count


def xprof():
    need("xprof")
    with fresh_folder() as work:
        work = pathlib.Path(work)
        files = recorded(work, "--inject-skew", "5")
        require(broken("own clocks", *exported(work, "xspace", "own", files)) > 5, "the hosts' own clocks agree already, so this check shows nothing")
        require(broken("reference clock", *exported(work, "xspace", "reference", files, "--run-dir", "out")) == 0, "hosts do not lie together")


def rocpd():
    if not rocpd_modules.TOOL.exists() or not pathlib.Path(os.environ.get("ROCPD_SRC", "/nowhere")).is_dir():
        skip("AMD's rocpd modules (ROCPD_SRC) or what stands in for their compiled part are not here")
    with fresh_folder() as work:
        work = pathlib.Path(work)
        files = recorded(work)
        for name, clocks in (("own", ()), ("reference", ("--run-dir", "out"))):
            databases, scopes = exported(work, "rocpd", name, files, *clocks)
            regions = [count for (view, _), (count, _) in rocpd_modules.sums(databases).items() if view == "regions"]
            print(f"{name} clock: {len(rocpd_modules.counts(databases))} views, regions by process {sorted(regions)}, scopes recorded {sorted(scopes)}")
            require(sorted(regions) == sorted(scopes), "AMD's modules find other regions than were recorded")


if __name__ == "__main__":
    sys.exit({"hta": hta, "xprof": xprof, "rocpd": rocpd}[sys.argv[1]]())

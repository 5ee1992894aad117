#!/usr/bin/env python3
"""AMD's own rocpd modules must find in aligned and merged databases what they find in the inputs.

    ROCPD_SRC=…/projects/rocprofiler-sdk/source target/readers/venv/bin/python bench/readers/rocpd_modules.py

A step of `cargo xtask test`, after install.py; skipped where ROCPD_SRC does not name AMD's sources (rocm-systems), or ../shared/tools/rocpd_official.py, which stands
in for their compiled part, is not here. Compared are the rows behind every view, the number and the length of kernels, regions and copies of each process, and the same of what AMD's own merge
makes of aligned databases. Lengths are those of other clocks, so they may differ by the clocks' rates.
It does not run AMD's conversions, which are compiled.
"""

import os
import pathlib
import subprocess
import sys

from common import DATA, LIMIT_S, PROGRAM, fresh_folder, require, skip

TOOL = DATA.parent / "tools" / "rocpd_official.py"
# The sets' clocks are at most 100 ppm from each other; a length is rounded at both ends.
RATE_MAX = 1e-4
VIEWS = ("kernels", "regions", "memory_copies")


def ask(command, *arguments):
    done = subprocess.run([sys.executable, TOOL, command, *arguments], capture_output=True, text=True, timeout=LIMIT_S)
    require(done.returncode == 0, f"{command} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def counts(databases):
    """Rows by view; tags are more where databases were aligned."""
    lines = (line.split() for line in ask("open", "-i", *databases).splitlines())
    return {name: int(rows) for name, rows in lines if name != "rocpd_metadata"}


def sums(databases):
    """By view and process: how many, and how long together, ns."""
    found = {}
    for view in VIEWS:
        table = ask("query", "-i", *databases, "--query", f"SELECT guid, count(*) AS n, sum(duration) AS ns FROM {view} GROUP BY guid")
        rows = (line.split() for line in table.splitlines())
        found |= {(view, row[0]): (int(row[1]), int(row[2])) for row in rows if len(row) == 3 and row[1].isdigit()}
    return found


def compare(name, databases, expected):
    rows, lengths = expected
    require(counts(databases) == rows, f"{name}: {counts(databases)}, in the inputs {rows}")
    seen = sums(databases)
    require(seen.keys() == lengths.keys(), f"{name}: other processes")
    for process, (count, ns) in lengths.items():
        ours, length = seen[process]
        require(ours == count and abs(length - ns) <= ns * RATE_MAX + count, f"{name}: {process} has {seen[process]}, in its input {(count, ns)}")
    print(f"  {name}: {len(rows)} views, {sum(rows.values())} rows, {len(seen)} sums")


def main():
    if not TOOL.exists() or not pathlib.Path(os.environ.get("ROCPD_SRC", "/nowhere")).is_dir():
        skip("AMD's rocpd modules (ROCPD_SRC) or what stands in for their compiled part are not here")
    for name in ("a_2node", "b_4node_offset_drift"):
        inputs = sorted((DATA / "rocpd" / name).glob("*.db"))
        nodes = [str(node) for node in range(len(inputs))]
        expected = counts(inputs), sums(inputs)
        require(all(expected), "AMD's modules find nothing in the inputs")
        print(name)
        with fresh_folder() as work:
            work = pathlib.Path(work)
            for verb, output in (("align", work / "aligned"), ("merge", work / "merged.db")):
                command = [PROGRAM, verb, "--traces", *inputs, "--from-collectives", "--nodes", *nodes, "--output", output]
                done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
                require(done.returncode == 0, f"{verb} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
            aligned = sorted((work / "aligned").glob("*.db"))
            compare("aligned", aligned, expected)
            compare("merged", [work / "merged.db"], expected)
            ask("merge", "-i", *aligned, "-o", str(work / "theirs.db"))
            compare("aligned, then merged by AMD", [work / "theirs.db"], expected)


if __name__ == "__main__":
    sys.exit(main())

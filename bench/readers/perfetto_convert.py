#!/usr/bin/env python3
"""Perfetto's trace processor must find in converted traces what is in their sources, and no error of any kind.

    target/readers/venv/bin/python bench/readers/perfetto_convert.py

Place in the flow: a step of `cargo xtask test`, after install.py. Each set of real Kineto traces is converted to Perfetto's protobuf and
to JSON. Of the sources, read by Python's own JSON with exact decimals, are counted: slices, moments, the sum of all lengths in ns, and
the arrows of flows (ends of one id less one). The trace processor must find the same in the protobuf, with no error and no loss of data
in its statistics. Of the JSON it must find the same numbers of slices; it reads its lengths as doubles and ends a flow at its first
end, so these are not compared.

What it does not do: look at the order of times; crates/cli/tests/it/convert.rs compares them with what align writes.
"""

import collections
import decimal
import gzip
import json
import pathlib
import subprocess
import sys

from common import DATA, LIMIT_S, PROGRAM, fresh_folder, require, skip
from perfetto_counts import need_processor, processor


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


def found(folder, trace):
    """The same of a converted trace, and the errors and losses that the trace processor counted."""
    script = pathlib.Path(__file__).with_name("perfetto.cjs")
    done = subprocess.run(["node", script, folder, trace], capture_output=True, text=True, timeout=LIMIT_S)
    require(done.returncode == 0, f"the trace processor refuses {trace.name}: {done.stderr.strip()[-500:]}")
    answer = json.loads(done.stdout)
    return (answer["slices"], answer["ns"], answer["flows"]), answer["errors"]


def main():
    need_processor()
    sets = sorted(path for path in (DATA / "torch").glob("*") if list(path.glob("*.json.gz")))
    if not sets:
        skip("the data of real traces (../shared/data) is not here")
    folder = processor()
    with fresh_folder() as work:
        for folder_of_set in sets:
            traces = sorted(folder_of_set.glob("*.json.gz"))
            command = [PROGRAM, "convert", "-f", "pftrace", "json", "-d", work, "-o", folder_of_set.name, "-i", *traces]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
            require(done.returncode == 0, f"convert ended with {done.returncode}: {done.stderr.strip()[-500:]}")
            expected = truth(traces)
            results = pathlib.Path(work) / f"{folder_of_set.name}_results"
            seen, errors = found(folder, results.with_suffix(".pftrace"))
            print(f"{folder_of_set.name}: {expected} in the sources, {seen} in the pftrace, errors {errors}")
            require(expected[0] > 0 and seen == expected, "slices, lengths or flows differ")
            require(not errors, f"errors: {errors}")
            in_json, errors = found(folder, results.with_suffix(".json"))
            require(in_json[0] == expected[0], f"the JSON has {in_json[0]} slices")
            lost = {name: count for name, count in errors.items() if "flow" not in name}
            require(not lost, f"errors of the JSON: {lost}")


if __name__ == "__main__":
    sys.exit(main())

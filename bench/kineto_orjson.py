#!/usr/bin/env python3
"""Rewrites every event of a Kineto trace with orjson: what the Rust rewrite is compared with.

    python3 bench/kineto_orjson.py INPUT.json OUTPUT.json

`cargo bench -p probe-sync-formats --bench kineto -- --python python3` runs it on the same file in
the same minute. It does what a script of a user would: parse the whole file, put `ts` and the end of each event through one
straight line, write the whole file. Prints MB/s of input and the peak of resident memory.

Needs the `orjson` package. It does not handle exact decimals (it computes in floating point, so the base must stay apart),
strings that are not UTF-8, knots, steps, or anything that a correct alignment needs beyond this.
"""

import os
import resource
import sys
import time

import orjson

KNOT_US = 1_000_000.0
SLOPE = 50e-6
OFFSET_US = 2500.0


def mapped(at_us):
    """A time through a straight line."""
    return at_us - OFFSET_US - (at_us - KNOT_US) * SLOPE


def main():
    source, target = sys.argv[1:3]
    begin = time.perf_counter()
    with open(source, "rb") as file:
        trace = orjson.loads(file.read())
    for event in trace["traceEvents"]:
        start = event.get("ts")
        if start is None:
            continue
        moved = mapped(start)
        event["ts"] = round(moved, 3)
        if "dur" in event:
            event["dur"] = round(mapped(start + event["dur"]) - moved, 3)
    with open(target, "wb") as file:
        file.write(orjson.dumps(trace))
    seconds = time.perf_counter() - begin
    megabytes = os.path.getsize(source) / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{'orjson ' + orjson.__version__:<34} {seconds:>8.3f} {megabytes / seconds:>9.0f} {'':>9} {peak:>9.1f}")


main()

#!/usr/bin/env python3
"""Compares every time of aligned JAX traces with the true one: jax_truth.py ORIGINAL_FOLDER ALIGNED_FOLDER

Runs after `examples/jax_distributed.py`, bend.py and an alignment; the reader is JAX's own, in whole ns. Prints a line of JSON.
It does not decide what is good enough.
"""

import pathlib
import sys

import summary
from judge import Trace


def main(original, aligned):
    errors, events = [], 0
    for path in sorted(original.glob("*.xplane.pb")):
        was, got = Trace(path), Trace(aligned / path.name)
        if [event[0] for event in was.events] != [event[0] for event in got.events]:
            sys.exit(f"{path.name}: the aligned trace has other events than the recorded one")
        events += len(was.events)
        for true, found in zip(was.since(was.base_ns), got.since(was.base_ns)):
            errors += [abs(found[1] - true[1]), abs(found[2] - true[2])]
    summary.tell(events, errors)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))

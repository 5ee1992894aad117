#!/usr/bin/env python3
"""Bends torch's traces by virtual clocks, and compares what was aligned of them with the truth.

    python torch_truth.py bend  TRUTH_JSON OUTPUT_FOLDER rank0.….json.gz rank1.….json.gz …
    python torch_truth.py judge ORIGINAL_FOLDER ALIGNED_FOLDER NAME …

Runs after `examples/torch_ddp.py FOLDER inject_skew=7`. All ranks ran on one machine, so the recorded times are the true ones; trace k
becomes what node k's profiler would have written under its virtual clock (`made_clock`), in whole picoseconds: a float would cost 128 ns. `judge`
prints how many starts and ends there are, and how far they are from the true ones, ns.

It shares no code with what it judges. It does not decide what is good enough.
"""

import decimal
import gzip
import json
import pathlib
import sys

import summary

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from made_clock import Clock

PS_PER_US = 1_000_000


def loaded(path):
    with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as file:
        return json.load(file, parse_float=decimal.Decimal)


def times(trace):
    """Every event's start and end, absolute, in whole picoseconds; None for one without a time."""
    base_ps = int(trace.get("baseTimeNanoseconds", 0)) * 1000
    for event in trace["traceEvents"]:
        if "ts" not in event:
            yield event, None
            continue
        start = base_ps + int(event["ts"] * PS_PER_US)
        yield event, (start, start + int(event.get("dur", 0) * PS_PER_US))


def bend(truth, output, traces):
    nodes = json.loads(truth.read_text())["nodes"]
    output.mkdir(parents=True)
    for node, path in enumerate(traces):
        restate(path, output / path.name, Clock(nodes[str(node)]).shows)


def restate(path, output, shows):
    """Writes a trace with every time as `shows` maps it, to the nanosecond, as torch writes."""
    trace = loaded(path)
    base_ps = int(trace.get("baseTimeNanoseconds", 0)) * 1000
    for event, at in list(times(trace)):
        if at is None:
            continue
        start, end = ((time + 500) // 1000 * 1000 for time in map(shows, at))
        event["ts"] = decimal.Decimal(start - base_ps) / PS_PER_US
        if "dur" in event:
            event["dur"] = decimal.Decimal(end - start) / PS_PER_US
    text = json.dumps(trace, default=lambda number: Number(number))
    output.write_bytes(gzip.compress(text.encode()))


class Number(float):
    """A decimal number that is written with all its digits."""

    def __new__(cls, number):
        made = super().__new__(cls, number)
        made.text = format(number, "f")
        return made

    def __repr__(self):
        return getattr(self, "text", float.__repr__(self))


def judge(original, aligned, names):
    errors, events = [], 0
    for name in names:
        true, got = loaded(original / name), loaded(aligned / name)
        pairs = list(zip(times(true), times(got), strict=True))
        for (event, was), (other, now) in pairs:
            if event.get("name") != other.get("name"):
                sys.exit(f"{name}: the aligned trace has other events than the recorded one")
            if was is not None:
                events += 1
                errors += [abs(now[0] - was[0]) / 1000, abs(now[1] - was[1]) / 1000]
    summary.tell(events, errors)


# json writes a float by its own `repr` only without the C encoder's short cut.
json.encoder.float = Number
json.encoder.c_make_encoder = None

if __name__ == "__main__":
    what, first, second, *rest = sys.argv[1:]
    if what == "bend":
        bend(pathlib.Path(first), pathlib.Path(second), [pathlib.Path(path) for path in rest])
    else:
        judge(pathlib.Path(first), pathlib.Path(second), rest)

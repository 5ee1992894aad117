#!/usr/bin/env python3
"""Makes multi-node trace sets whose clocks wander and step inside the traced window.

    python3 bench/wander_sets.py --data ../shared/data --out /tmp/sets [--seed 1] [--timeline line|realtime]

`probe_sync align`, `merge` and `check` are tried on these sets; nothing imports this file.
The events are real: they come from the recorded sets jax/b and torch/b, whose true times are known. Only the clocks are
made: each node but node 0 (the reference, which shows the true time) gets a clock

    node(t) = t + off_ns + ppm*1e-6*(t-t0) + amp_ns*sin(2*pi*(t-t0)/period_ns) + step_ns*[t-t0 >= step_at_ns]

drawn from the seed, and everything that a node's clock shows is restated by it:

* markers (`clkmark`): the system time that they carry becomes node(true time of that reading);
* clock_nodeK.json: the system times of the bracketed readings likewise;
* offsets.csv: node, its time, node minus node 0, every 20 ms and on both sides of a step; truth.json: the parameters;
* the trace's own timeline R. With `--timeline line` (the default) it is what Kineto gives: the counter of the CPU,
  turned into REALTIME by the ONE straight line through the readings at the window's two ends,

      R(t) = node(s) + (node(e) - node(s)) * (t - s) / (e - s),        s, e = first and last instant of the trace

  so that R is node's REALTIME at the ends only. With `--timeline realtime` every event is stamped with REALTIME itself,
  which wanders and jumps under it.

The true time of an event is found by turning its set's own clock around; markers keep the delay that the profiler had.
What a map must achieve: taking R for REALTIME leaves collectives that end before a peer has begun; the markers repair it.

Equal seeds give equal bytes. Needs Python 3.9 or later and the files beside it. It does not check causality (that is
`probe_sync check`), make rocpd sets.
"""

import argparse
import csv
import gzip
import json
import random
import re
import shutil
from pathlib import Path

from made_clock import Clock
from xspace import PS, XSpace


class Timeline:
    """Where the profiler puts an event of a given true time."""

    def __init__(self, clock, start_ps, end_ps, kind):
        self.clock, self.start, self.end, self.kind = clock, start_ps, end_ps, kind
        self.at_start, self.at_end = clock.shows(start_ps), clock.shows(end_ps)

    def stamp(self, t_ps):
        if self.kind == "realtime":
            return self.clock.shows(t_ps)
        rise, run = self.at_end - self.at_start, self.end - self.start
        return self.at_start + (rise * (t_ps - self.start) + run // 2) // run


# --- Kineto: the text is kept, only times and markers are replaced -----------------------------------------------------

NUMBER = r"-?\d+(?:\.\d+)?"
TIMES = re.compile(rf'("ts": )({NUMBER})(?:(,\s*"dur": )({NUMBER}))?')
MARKER = re.compile(r"clkmark#(\d+)#(\d+)")


def microseconds_to_ps(text):
    whole, _, fraction = text.partition(".")
    sign = -1 if whole.startswith("-") else 1
    return int(whole) * 1_000_000 + sign * int((fraction + "000000")[:6])


def ps_to_microseconds(ps):
    ns = (ps + PS // 2) // PS
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


class Kineto:
    def __init__(self, path):
        self.path = path
        self.text = gzip.decompress(path.read_bytes()).decode("utf-8", "surrogateescape")
        self.base = int(re.search(r'"baseTimeNanoseconds": (\d+)', self.text).group(1)) * PS

    def instants(self):
        for match in TIMES.finditer(self.text):
            start = self.base + microseconds_to_ps(match.group(2))
            yield start
            if match.group(4):
                yield start + microseconds_to_ps(match.group(4))

    def write(self, directory, restamp, restate):
        def times(match):
            old = self.base + microseconds_to_ps(match.group(2))
            start = restamp(old)
            text = match.group(1) + ps_to_microseconds(start - self.base)
            if match.group(4):
                end = restamp(old + microseconds_to_ps(match.group(4)))
                text += match.group(3) + ps_to_microseconds(max(end - start, 0))
            return text

        def marker(match):
            return f"clkmark#{match.group(1)}#{restate(int(match.group(2)) * PS) // PS}"

        text = MARKER.sub(marker, TIMES.sub(times, self.text))
        data = gzip.compress(text.encode("utf-8", "surrogateescape"), mtime=0)
        (directory / self.path.name).write_bytes(data)


# --- sets ---------------------------------------------------------------------------------------------------------------


def draw(rng, node, t0_ns, window_ns, step):
    """A clock for a node: wander that turns within the window, and with `step` a jump in its middle half."""
    if node == 0:
        return dict(t0_ns=t0_ns, off_ns=0, ppm=0, amp_ns=0, period_ns=1, step_ns=0, step_at_ns=0)
    return dict(
        t0_ns=t0_ns,
        off_ns=rng.randrange(-5_000_000, 5_000_000),
        ppm=round(rng.uniform(-60, 60), 3),
        amp_ns=rng.choice((-1, 1)) * rng.randrange(250_000, 500_000),
        period_ns=round(window_ns * rng.uniform(0.7, 1.3)),
        step_ns=rng.randrange(1_000_000, 2_000_000) if step and node % 2 == 1 else 0,
        step_at_ns=round(window_ns * rng.uniform(0.3, 0.7)) if step and node % 2 == 1 else 0,
    )


def write_offsets(directory, clocks, start_ns, end_ns):
    with (directory / "offsets.csv").open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["node", "node_realtime_ns", "offset_vs_node0_ns"])
        for node, clock in enumerate(clocks):
            instants = set(range(start_ns, end_ns, GRID_NS)) | {end_ns}
            if clock.p["step_ns"]:
                # The last nanosecond before the jump and the first after it: no line may be drawn
                # through a jump.
                at = clock.p["t0_ns"] + clock.p["step_at_ns"]
                instants |= {at - 1, at}
            for t in sorted(instants):
                shown, reference = clock.shows(t * PS), clocks[0].shows(t * PS)
                out.writerow([node, shown // PS, (shown - reference) // PS])


def make_set(source, target, rng, step, timeline):
    reader = Kineto if any(source.glob("*.pt.trace.json.gz")) else XSpace
    old = json.loads((source / "truth.json").read_text())
    old_clocks = [Clock(old["nodes"][str(node)]) for node in range(len(old["nodes"]))]
    traces = [reader(next(p for p in source.iterdir() if re.match(rf"node{n}\.", p.name))) for n in range(len(old_clocks))]
    spans = []
    for trace, clock in zip(traces, old_clocks):
        instants = [clock.true_time(instant) for instant in trace.instants()]
        spans.append((min(instants), max(instants)))
    start_ns, end_ns = min(s for s, _ in spans) // PS, max(e for _, e in spans) // PS + 1

    target.mkdir(parents=True)
    clocks = [Clock(draw(rng, node, start_ns, end_ns - start_ns, step)) for node in range(len(traces))]
    truth = {
        "reference": "true_ns = CLOCK_REALTIME of the one machine that ran all processes of the source set",
        "model": old["model"], "source": source.parent.name + "/" + source.name, "timeline": timeline,
        "nodes": {str(node): clock.p for node, clock in enumerate(clocks)},
        "windows_true_ns": {str(node): [s // PS, e // PS] for node, (s, e) in enumerate(spans)},
    }
    (target / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    write_offsets(target, clocks, start_ns - MARGIN_NS, end_ns + MARGIN_NS)
    for node, (trace, clock, before, span) in enumerate(zip(traces, clocks, old_clocks, spans)):
        line = Timeline(clock, *span, timeline)

        def restamp(shown):
            return line.stamp(before.true_time(shown))

        def restate(shown):
            return clock.shows(before.true_time(shown))

        trace.write(target, restamp, restate)
        readings = json.loads((source / f"clock_node{node}.json").read_text())
        for row in readings["snapshots"]:
            row["node_realtime_ns"] = clock.shows(row["true_ns"] * PS) // PS
        (target / f"clock_node{node}.json").write_text(json.dumps(readings) + "\n")
    print(f"{target}: {len(traces)} nodes, {(end_ns - start_ns) / 1e9:.2f} s")


GRID_NS = 20_000_000
MARGIN_NS = 200_000_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with jax/b_4node_offset_drift and torch/…")
    parser.add_argument("--out", type=Path, required=True, help="folder to make the sets in; replaced when it exists")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeline", choices=["line", "realtime"], default="line")
    arguments = parser.parse_args()
    for family in ("jax", "torch"):
        source = arguments.data / family / "b_4node_offset_drift"
        for step in (False, True):
            name = f"{family}_{'step' if step else 'wander'}"
            rng = random.Random(f"{arguments.seed} {name}")
            target = arguments.out / name
            if target.exists():
                shutil.rmtree(target)
            make_set(source, target, rng, step, arguments.timeline)


if __name__ == "__main__":
    main()

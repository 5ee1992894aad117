#!/usr/bin/env python3
"""Compares every time of the aligned traces with the true one.

    python judge.py FOLDER AROUND_STEP_NS WINDOW_NS JUDGED_JSON

The last step of `cargo xtask flow`. FOLDER holds rankK.xplane.pb as the profiler wrote them (true times:
one machine ran all ranks, and node 0 shows the true time), recorded/ (bend.py's), aligned/ (those that `probe_sync align`
wrote from them) and run/. The reader is JAX's own, `jax.profiler.ProfileData`: neither bend.py's nor ours.

An error is an aligned start or end minus the true one. Left out, and counted, are times within AROUND_STEP_NS of a step of
their node's clock, those within a backward step's size of it, as the clock showed such times twice, and those between two
steps less than a window apart, of which a run only knows the sum. An error lies outside where it exceeds 4 × the trace's
stated uncertainty + 100 ns. The result also holds the collectives of one step as they truly were, as recorded and as aligned,
for the picture.
JAX's reader gives starts and durations in whole ns, cut off: an error is known to 2 ns.

It does not decide what is good enough (xtask does) or match collectives (`probe_sync check` does).
"""

import json
import pathlib
import re
import statistics
import sys

from jax.profiler import ProfileData

COLLECTIVE = re.compile(r"(psum|pmin|all_gather|reduce_scatter|all-to-all|all_to_all)")
# What both 95 % and the limit for a single time refer to.
SIGMAS_95, SIGMAS_MAX, SLACK_NS = 1.959964, 4, 100


class Trace:
    """All times of a file, as (name, start, end) with ns since `base_ns`, in the file's order."""

    def __init__(self, path):
        planes = list(ProfileData.from_file(str(path)).planes)
        stats = {name: value for plane in planes for name, value in plane.stats}
        self.base_ns = int(stats["profile_start_time"])
        # Since the session's start: small numbers, which a float holds to far less than a ns.
        self.events = [
            (event.name, event.start_ns, event.start_ns + event.duration_ns)
            for plane in planes
            for line in plane.lines
            for event in line.events
        ]

    def since(self, origin_ns):
        return [(name, self.base_ns - origin_ns + start, self.base_ns - origin_ns + end) for name, start, end in self.events]


def unusable(clock, around_ns, window_ns, origin_ns):
    """The stretches of true time about steps that no map can be asked for."""
    all_steps = [clock, *clock.get("more_steps", [])]
    start_ns = clock["t0_ns"] - origin_ns
    steps = sorted((start_ns + step["step_at_ns"], step["step_ns"]) for step in all_steps if step["step_ns"] != 0)
    found = []
    for when, size in steps:
        width = max(around_ns, -size + around_ns)
        found.append((when - width, when + width))
    for (first, _), (second, _) in zip(steps, steps[1:]):
        if second - first < window_ns:
            found.append((first, second))
    return found


def percentile(ordered, share):
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def judge(folder, around_ns, window_ns):
    truth = json.loads((folder / "run/truth.json").read_text())["nodes"]
    run = json.loads((folder / "run/run.json").read_text())
    origin_ns = run["start_ns"]
    result = {"events": 0, "left_out": 0, "outside": 0, "covered_95": 0, "stated_ns": 0.0, "worst_at": None}
    errors, spans, picture = [], [], {"true": [], "recorded": [], "aligned": []}
    for node in range(len(truth)):
        name = f"rank{node}.xplane.pb"
        was, got = Trace(folder / name), Trace(folder / "aligned" / name)
        if [event[0] for event in was.events] != [event[0] for event in got.events]:
            sys.exit(f"{name}: the aligned trace has other events than the recorded one")
        stated = json.loads((folder / "aligned/alignment_stats" / f"{name}.json").read_text())["uncertainty_ns"]
        skipped = unusable(truth[str(node)], around_ns, window_ns, origin_ns)
        result["events"] += len(was.events)
        result["stated_ns"] = None if stated is None or result["stated_ns"] is None else max(result["stated_ns"], stated)
        true, aligned = was.since(origin_ns), got.since(origin_ns)
        spans.append((min(event[1] for event in true), max(event[2] for event in true)))
        for before, after in zip(true, aligned):
            for t, t_aligned in zip(before[1:], after[1:]):
                if any(low <= t <= high for low, high in skipped):
                    result["left_out"] += 1
                    continue
                error = t_aligned - t
                if not errors or abs(error) > result["worst_at"]["size_ns"]:
                    result["worst_at"] = {"node": node, "at_s": t / 1e9, "size_ns": abs(error), "event": before[0]}
                errors.append(abs(error))
                result["outside"] += stated is not None and abs(error) > SIGMAS_MAX * stated + SLACK_NS
                result["covered_95"] += stated is None or abs(error) <= SIGMAS_95 * stated
        recorded = Trace(folder / "recorded" / name).since(origin_ns)
        for which, events in (("true", true), ("recorded", recorded), ("aligned", aligned)):
            of_job = [(began, *event) for (_, began, _), event in zip(true, events) if COLLECTIVE.match(event[0])]
            picture[which].append(sorted(of_job))
    errors.sort()
    result["times"] = len(errors)
    result["error_ns"] = {"median": statistics.median(errors), "p99": percentile(errors, 0.99), "worst": errors[-1]}
    result["first_s"], result["last_s"] = min(s for s, _ in spans) / 1e9, max(e for _, e in spans) / 1e9
    steps = {which: by_step(nodes) for which, nodes in picture.items()}
    lengths = [
        max(end for parts in step.values() for _, end in parts) - min(start for parts in step.values() for start, _ in parts)
        for step in steps["true"]
    ]
    # One of the usual length.
    usual = sorted(range(len(lengths)), key=lengths.__getitem__)[len(lengths) // 2]
    result["picture"] = {
        which: [{"name": name, "parts": parts} for name, parts in found[usual].items()] for which, found in steps.items()
    }
    return result


def by_step(nodes):
    """The collectives of every step of the job: name -> [start, end] on each node, ns since the run's start.

    Every rank runs the same collectives equally often, so the k-th of a name, in true time, is one instance everywhere.
    """
    numbered = [{} for _ in nodes]
    for found, events in zip(numbered, nodes):
        for _, name, start, end in events:
            found.setdefault(name, []).append([start, end])
    counts = {len(times) for found in numbered for times in found.values()}
    if len({tuple(sorted(found)) for found in numbered}) != 1 or len(counts) != 1:
        sys.exit("the ranks do not show the same collectives equally often")
    return [{name: [found[name][k] for found in numbered] for name in sorted(numbered[0])} for k in range(counts.pop())]


if __name__ == "__main__":
    judged = judge(pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
    pathlib.Path(sys.argv[4]).write_text(json.dumps(judged) + "\n")

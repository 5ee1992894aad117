#!/usr/bin/env python3
"""A trace of a few steps with marks in it, and the readings of the system clock around them, as a session's recorder writes them.

    python marks.py torch|jax FOLDER [MARKS]

Run by hand. It made crates/alignment/fixtures/marks_*, against which `alignment` is tested, and says how many stamps are between their
readings and how wide those are. Leaves FOLDER/rank0.pt.trace.json.gz or FOLDER/rank0.xplane.pb, and FOLDER/marks/rank0-TOKEN.jsonl.

A mark is eight attempts in a row: read the clock, enter the event (torch stamps then; JAX when it is made), read the clock. The attempt
with the least time between its readings is written down. It does not use the crates or measure clocks.
"""

import gzip
import json
import os
import pathlib
import secrets
import sys
import tempfile
import time

ATTEMPTS = 8
PAUSE_S = 0.02


class Marks:
    """`around(name)` enters an event and returns the clock before and after, and how to leave it."""

    def __init__(self, around):
        self.around, self.token, self.number, self.kept = around, secrets.token_hex(8), 0, []

    def mark(self):
        attempts = []
        for _ in range(ATTEMPTS):
            self.number += 1
            before, after, leave = self.around(f"probe_sync.mark#{self.token}.{self.number}")
            leave(None, None, None)
            attempts.append((after - before, self.number, before, after))
        self.kept.append(min(attempts)[1:])

    def write(self, folder):
        (folder / "marks").mkdir(exist_ok=True)
        whose = {"token": self.token, "rank": 0, "world_size": 2, "node_id": 1, "hostname": os.uname().nodename}
        whose |= {"boot_id": pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "pid": os.getpid()}
        lines = [whose, *({"mark": number, "before_ns": before, "after_ns": after} for number, before, after in self.kept)]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (folder / "marks" / f"rank0-{self.token}.jsonl").write_text(text)


def with_torch(folder, count):
    import torch

    enter = torch._C._profiler._RecordFunctionFast

    def around(name):
        event = enter(name)
        before = time.time_ns()
        event.__enter__()
        return before, time.time_ns(), event.__exit__

    marks, values = Marks(around), torch.ones(64, 64)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(count):
            marks.mark()
            values = (values @ values).tanh()
            time.sleep(PAUSE_S)
    with tempfile.TemporaryDirectory() as made:
        profile.export_chrome_trace(f"{made}/trace.json")
        trace = json.loads(pathlib.Path(made, "trace.json").read_text())
    (folder / "rank0.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode(), mtime=0))
    base_ns = trace["baseTimeNanoseconds"]
    stamps = {event["name"]: base_ns + round(event["ts"] * 1000) for event in trace["traceEvents"] if "name" in event}
    return marks, stamps


def with_jax(folder, count):
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    from jax.profiler import ProfileData, TraceAnnotation

    def around(name):
        before = time.time_ns()
        event = TraceAnnotation(name)
        after = time.time_ns()
        event.__enter__()
        return before, after, event.__exit__

    # No folder of this machine goes into the trace.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    marks, values, work = Marks(around), jax.numpy.ones((64, 64)), jax.jit(lambda values: jax.numpy.tanh(values @ values))
    values = work(values).block_until_ready()
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as made:
        jax.profiler.start_trace(made, profiler_options=options)
        for _ in range(count):
            marks.mark()
            values = work(values).block_until_ready()
            time.sleep(PAUSE_S)
        jax.profiler.stop_trace()
        (file,) = pathlib.Path(made).rglob("*.xplane.pb")
        (folder / "rank0.xplane.pb").write_bytes(file.read_bytes())
        planes = list(ProfileData.from_file(str(file)).planes)
    start_ns = int({name: value for plane in planes for name, value in plane.stats}["profile_start_time"])
    events = (event for plane in planes for line in plane.lines for event in line.events)
    return marks, {event.name: start_ns + round(event.start_ns) for event in events}


def main(profiler, folder, count=24):
    folder.mkdir(parents=True, exist_ok=True)
    marks, stamps = {"torch": with_torch, "jax": with_jax}[profiler](folder, count)
    marks.write(folder)
    names = {number: f"probe_sync.mark#{marks.token}.{number}" for number, _, _ in marks.kept}
    inside = sum(before <= stamps[names[number]] <= after for number, before, after in marks.kept)
    widths = sorted(after - before for _, before, after in marks.kept)
    behind = sorted((stamps[names[number]] - before) / (after - before) for number, before, after in marks.kept)
    print(f"{profiler}: {inside} of {len(marks.kept)} stamps are between their readings, which are {widths[len(widths) // 2]} ns apart"
          f" (median; {widths[0]} to {widths[-1]}); the stamp is {behind[len(behind) // 2]:.2f} of the way")


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:]))

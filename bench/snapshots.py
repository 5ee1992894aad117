#!/usr/bin/env python3
"""Processor time of the thread that takes snapshot pairs, at several periods.

    python3 bench/snapshots.py target/release/probe_sync [--seconds 20]

Two ranks on this machine per period. The figure is the thread's own time as the scheduler counts it, from its start to a second before the end of the
run, as a share of one core and per pair.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time


def thread_times_ns(name):
    """The processor time of all threads of a name, by process."""
    times = {}
    for comm in pathlib.Path("/proc").glob("[0-9]*/task/*/comm"):
        try:
            if comm.read_text().strip() == name:
                times[comm.parts[2]] = int((comm.parent / "schedstat").read_text().split()[0])
        except OSError:
            pass
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    for period_ms in (10, 100, 1000, 4000):
        with tempfile.TemporaryDirectory() as folder:
            duration = ["--duration", f"{options.seconds + 1}s", "--snapshot-pair-period-ms", str(period_ms), "--out", f"{folder}/run"]
            run = subprocess.Popen([options.program, "run", "--local", "2", *duration], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(options.seconds)
            times = sorted(thread_times_ns("snapshots").values())
            run.wait(timeout=30)
            lines = [json.loads(line) for line in open(f"{folder}/run/snapshots/node1.snapshot_pairs.jsonl", encoding="utf-8")]
        brackets = sorted(line["bracket_ns"] for line in lines)
        share = [100e-9 * each / options.seconds for each in times]
        print(
            f"{period_ms} ms: {len(lines)} pairs, {', '.join(f'{each:.3f} %' for each in share)} of a core, "
            f"{times[-1] / 1e3 / len(lines):.0f} us per pair, bracket median {brackets[len(brackets) // 2]} ns, largest {brackets[-1]} ns"
        )


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What `--record` costs a run's rounds: runs of 8 ranks with and without it, in turn.

    python3 bench/record_rounds.py [PROGRAM [PAIRS]]

Run by hand, after `cargo build --release --bin probe_sync`; bench/LOG.md has figures. Of each pair the ratios with to without are taken: of the time that a round lasts, of the
median time from a window's end to its solved round, and of the processor time of all ranks; printed are the medians of both and of the ratios, and their quartiles. It does not judge: a busy machine
scatters by more than what is asked.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
RANKS, WINDOW, DURATION = 8, "200ms", "8s"
LIMIT_S = 60


def run(program, record):
    """Seconds a round, microseconds of latency, and processor time as a share of one core."""
    with tempfile.TemporaryDirectory() as folder:
        more = ["--record", f"{folder}/records"] if record else []
        command = [program, "run", "--local", str(RANKS), "--fixed", "--window", WINDOW, "--duration", DURATION, "--out", f"{folder}/out", *more]
        subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
        report = json.loads(pathlib.Path(folder, "out/report.json").read_text())
    return report["seconds"] / report["rounds"], report["round_latency_us"][0], report["cpu_cores"]


def main():
    program = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "target/release/probe_sync"
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    found = []
    for pair in range(pairs):
        # Who is first changes, so that what wanders during a pair is in both.
        order = (False, True) if pair % 2 == 0 else (True, False)
        by_record = {record: run(program, record) for record in order}
        found.append((by_record[False], by_record[True]))
    for at, name in enumerate(("seconds a round", "us from a window's end to its round", "cores of all ranks")):
        off, on = ([both[which][at] for both in found] for which in (0, 1))
        low, middle, high = statistics.quantiles([with_it / without for with_it, without in zip(on, off)], n=4)
        print(f"{name}: {statistics.median(off):.6g} without, {statistics.median(on):.6g} with; ratio {middle:.4f} ({low:.4f} to {high:.4f})")


if __name__ == "__main__":
    sys.exit(main())

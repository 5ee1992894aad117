"""How much memory databases take that are aligned, merged and converted, under a limit of virtual memory.

Two sizes of databases are made (`make.py`), ten times apart. Each command runs alone, under `RLIMIT_AS`, and its peak of resident memory is
what the system counts of it (`ru_maxrss`). Memory must not grow with the input: the table says by how much the larger one's peak is above.
Outputs are removed after each command, databases at the end. Exit status 1: a command failed, or took more than --most or --growth allow.

python3 limits.py --program ../../target/release/probe_sync --like node0_results.db --folder /dev/shm/limits
"""

import argparse
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

from make import STEP_NS, make, tables
from speed import clock

FILES = 2
"""Databases of a set: half of its size each."""


def limited(arguments, virtual_mib):
    """Runs a command under a limit of virtual memory: its status, peak of resident memory in MiB, seconds, and the end of what it said."""

    def bound():
        resource.setrlimit(resource.RLIMIT_AS, (virtual_mib << 20, virtual_mib << 20))

    begun = time.perf_counter()
    process = subprocess.Popen([str(argument) for argument in arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=bound)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    lines = said.decode(errors="replace").strip().splitlines()
    return process.returncode, usage.ru_maxrss / 1024, time.perf_counter() - begun, lines[-1] if lines else ""


def databases(folder, like, regions):
    """A set of databases, with the regions of each."""
    folder.mkdir(parents=True)
    uuid, definitions = tables(like)
    paths = [folder / f"node{number}_results.db" for number in range(FILES)]
    for number, path in enumerate(paths):
        make(path, definitions, uuid, number, FILES, regions)
    return paths


def removed(path):
    """Removes a file or a folder; what is not there may stay so."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def commands(inputs, folder, seconds, convert):
    """By name: a command on a set, and its output."""
    offsets, pairs = clock(folder, FILES, seconds)
    clocks = ["--nodes", *range(FILES), "--offsets", offsets, "--snapshots", *pairs]
    known = {
        "align, 1 file": ("align", inputs[:1], ["--nodes", 0, "--offsets", offsets, "--snapshots", pairs[0]], folder / "one.db"),
        f"align, {FILES} files": ("align", inputs, clocks, folder / "aligned"),
        f"merge, {FILES} files": ("merge", inputs, clocks, folder / "merged.db"),
    }
    for name, (command, traces, rest, output) in known.items():
        yield name, [command, "--traces", *traces, *rest, "--output", output], output
    for name in convert:
        output = folder / f"as_{name}"
        yield f"convert -f {name}", ["convert", "-i", *inputs, "-f", name, *clocks, "-o", "all", "-d", output], output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--like", type=pathlib.Path, required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="is made, and removed at the end")
    parser.add_argument("--regions", type=int, nargs=2, default=[300_000, 3_000_000], help="of each of two databases, small and large set")
    parser.add_argument("--convert", nargs="*", default=["pftrace", "json"], help="formats that both are converted to")
    parser.add_argument("--virtual-mib", type=int, default=1024)
    parser.add_argument("--most", type=float, default=200, help="MiB of resident memory")
    parser.add_argument("--growth", type=float, default=10, help="percent from the small set to the large one")
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    peaks, sizes, bad = {}, [], []
    try:
        for place, regions in enumerate(options.regions):
            folder = options.folder / str(place)
            inputs = databases(folder, options.like, regions)
            sizes.append(sum(path.stat().st_size for path in inputs) / 1e9)
            for name, arguments, output in commands(inputs, folder, regions * STEP_NS // 10**9 + 10, options.convert):
                status, peak, seconds, said = limited([options.program, *arguments], options.virtual_mib)
                removed(output)
                peaks.setdefault(name, []).append(peak)
                print(f"{sizes[-1]:5.2f} GB  {name:22} {peak:6.0f} MiB  {seconds:6.1f} s  {'' if status == 0 else f'exit {status}: {said}'}", flush=True)
                if status != 0:
                    bad.append(f"{name}: exit {status}")
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(options.folder, ignore_errors=True)
    for name, (small, large) in peaks.items():
        growth = 100 * (large / small - 1)
        print(f"{name:22} {small:6.0f} → {large:6.0f} MiB ({growth:+.0f} %)")
        bad += [f"{name}: more than {options.most:.0f} MiB"] * (max(small, large) > options.most)
        bad += [f"{name}: grows by more than {options.growth:.0f} %"] * (growth > options.growth)
    print(f"{sizes[0]:.2f} and {sizes[1]:.2f} GB under ulimit -v {options.virtual_mib} MiB: {'; '.join(bad) if bad else 'all hold'}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

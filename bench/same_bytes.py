#!/usr/bin/env python3
"""Compares two builds of probe_sync: the same commands on the same files must give the same bytes.

    python3 bench/same_bytes.py OLD NEW FOLDER... [--probes RECORDING]

OLD and NEW are binaries. Every folder below a FOLDER that holds traces is one set; align, merge,
check, stragglers, convert and query run on it with each way of knowing its clocks that it has (an
offsets.csv, a run, its collectives, none). `solve` runs on the probes/ of RECORDING, the folder of
a run with --record-probes, and `sim` with one seed. Compared are the exit status, both output
streams and every file that a command wrote, refusals included. Prints each difference, then one
line; exits with 1 if anything differs.
"""

import argparse
import filecmp
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ENDINGS = (".json", ".json.gz", ".xplane.pb", ".xplane.pb.gz", ".db", ".rpd")
NO_TRACES = ("truth.json", "clock_", "config", "run.json")
LIMIT_S = 300
PROGRESS = re.compile(rb"(?m)^\S+ +INFO .* after \d.*\n")
PASSING = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+Z|\bin \d+(\.\d+)? (s|ms|min)\b")


def sets_of(folder):
    """Yields each folder with traces, with these."""
    for place in sorted({path.parent for path in folder.rglob("*") if path.is_file()}):
        if "run" in place.relative_to(folder).parts:
            continue
        traces = [
            path
            for path in sorted(place.iterdir())
            if path.name.endswith(ENDINGS) and not path.name.startswith(NO_TRACES)
        ]
        if traces:
            yield place, [str(trace) for trace in traces]


def clocks_of(place):
    """Returns the arguments for each way in which the clocks of a set may be known."""
    ways = [[], ["--from-collectives"]]
    if (place / "offsets.csv").is_file():
        ways.append(["--offsets", str(place / "offsets.csv")])
    if (place / "run").is_dir():
        ways.append(["--run-dir", str(place / "run")])
    return ways


def commands_for(place, traces):
    """Yields the command lines for one set."""
    databases = all(trace.endswith((".db", ".rpd")) for trace in traces)
    for clocks in clocks_of(place):
        yield ["align", *traces, *clocks, "-o", "aligned", "--json"]
        for output in ["all.db"] if databases else ["all.json", "all.pftrace", "all.tar"]:
            yield ["merge", *traces, *clocks, "-o", output]
        yield ["check", *traces, *clocks, "--json"]
        yield ["check", *traces, *clocks]
        yield ["stragglers", *traces, *clocks, "--json"]
        yield ["stragglers", *traces, *clocks]
        yield ["convert", *traces, *clocks, "-f", "pftrace", "json", "kineto", "xspace", "csv", "-d", "out"]
        if databases:
            yield ["query", *traces, *clocks, "--sql", "SELECT * FROM kernels LIMIT 200", "--format", "csv"]


def run(binary, command, folder):
    """Runs a command in a folder of its own; returns its status and what it said."""
    said = subprocess.run([binary, *command], cwd=folder, capture_output=True, timeout=LIMIT_S, check=False)
    return said.returncode, *(plain(stream, folder) for stream in (said.stdout, said.stderr))


def plain(said, folder):
    """Returns what a command said, without the folder's name, progress, times of day and durations."""
    return PASSING.sub(b"TIME", PROGRESS.sub(b"", said.replace(str(folder).encode(), b".")))


def files_of(folder):
    """Returns the files below a folder, by name."""
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def differences(old, new, command):
    """Runs a command by both builds; returns the status of the first, and what differs."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        before, after = run(old, command, Path(one)), run(new, command, Path(other))
        found = [
            name for name, a, b in zip(("status", "standard output", "standard error"), before, after) if a != b
        ]
        there, here = files_of(Path(one)), files_of(Path(other))
        found += [f"{name} is written by one only" for name in sorted(there.keys() ^ here.keys())]
        same = there.keys() & here.keys()
        found += [name for name in sorted(same) if not filecmp.cmp(there[name], here[name], shallow=False)]
        return before[0], found


def main():
    """Runs all commands by both builds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--probes", type=Path)
    arguments = parser.parse_args()
    old, new = (str(Path(binary).resolve()) for binary in (arguments.old, arguments.new))
    commands = []
    for folder in arguments.folders:
        for place, traces in sets_of(folder.resolve()):
            commands += commands_for(place, traces)
    if arguments.probes:
        probes = sorted(str(path.resolve()) for path in (arguments.probes / "probes").iterdir())
        commands.append(["solve", "--probes", *probes, "-o", "offsets.jsonl"])
    commands.append(["sim", "--nodes", "16", "--duration", "5s", "--seed", "3", "-o", "sim", "--truth"])
    succeeded = differing = 0
    for command in commands:
        status, found = differences(old, new, command)
        succeeded += status == 0
        differing += bool(found)
        for what in found:
            print(f"differs: {what}: {' '.join(command)[:300]}")
    print(f"{len(commands)} runs, {succeeded} of them succeed: {differing} differ")
    return 1 if differing or not succeeded else 0


if __name__ == "__main__":
    sys.exit(main())

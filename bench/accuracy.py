#!/usr/bin/env python3
"""Simulates the cells, the faults, swinging clocks, adaptive probing and clocks that warm up: `cargo xtask bench --accuracy`.

    python3 bench/accuracy.py [--seeds 50]

Writes their tables into bench/LOG.md, each between `<!-- NAME: begin -->` and `<!-- NAME: end -->`; files and plots go to target/accuracy.
The figures depend only on seeds and are the same on every machine. Nothing is written if a simulation fails or a mark is missing.
"""

import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOG = ROOT / "bench/LOG.md"
OUT = ROOT / "target/accuracy"
SIM = ["run", "--release", "--locked", "--package", "probe-sync-cli", "--", "sim", "--out", OUT]
CLOCKS = ["bench", "--locked", "--package", "probe-sync-sim", "--bench", "clocks", "--"]


def printed(*command):
    print("$ cargo", *command, flush=True)
    return subprocess.run(["cargo", *map(str, command)], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=50, help="seeds per cell")
    seeds = parser.parse_args().seeds
    OUT.mkdir(parents=True, exist_ok=True)
    printed(*SIM, "--cells", "--seeds", seeds)
    # More seeds change these tables little and take hours; those of `warming` are as many as its demands are stated for.
    plain = {
        "faults": printed(*SIM, "--faults", "--seeds", min(seeds, 20)),
        "adaptive": printed(*SIM, "--adaptive", "--seeds", min(seeds, 5)),
        "swinging": printed(*CLOCKS, "swinging", min(4 * seeds, 200)),
        "warming": printed(*CLOCKS, "warming", min(seeds, 12)),
    }
    tables = {"accuracy": (OUT / "accuracy.md").read_text()} | {name: f"```\n{table.strip()}\n```" for name, table in plain.items()}
    text = LOG.read_text()
    for name, table in tables.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, found, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found or not found_end:
            sys.exit(f"{LOG} lacks the marks of the table {name}")
        text = f"{before}{begin}\n\n{table.strip()}\n\n{end}{after}"
    LOG.write_text(text)
    print(f"\ntables written to {LOG}; files and plots in {OUT}")


if __name__ == "__main__":
    main()

"""How fast databases are aligned and merged, beside what SQLite itself needs for the same rows.

In turns, on files in memory: `probe_sync align` and `merge` with a clock that drifts, and the peer, SQLite's own INSERT … SELECT of every
table with a constant added to its times, then `foreign_key_check` and `quick_check`, as ours does. Medians of the rounds.

python3 make.py --like node0_results.db --out /dev/shm/rocpd --files 2
python3 speed.py --program ../../target/release/probe_sync --databases /dev/shm/rocpd/*.db
"""

import argparse
import json
import os
import pathlib
import resource
import sqlite3
import statistics
import subprocess
import tempfile
import time

TIMES = {"start", "end", "timestamp", "init", "fini"}


def insert_select(inputs, output, checks):
    """The peer: all tables of all inputs into one database, times shifted by a constant."""
    output.unlink(missing_ok=True)
    out = sqlite3.connect(output)
    out.execute("PRAGMA journal_mode = OFF")
    out.execute("PRAGMA synchronous = OFF")
    out.execute("PRAGMA foreign_keys = OFF")
    for path in inputs:
        out.execute("ATTACH ? AS src", (str(path),))
        rows = out.execute("SELECT name, sql FROM src.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
        for name, sql in rows:
            out.execute(sql)
            columns = [row[1] for row in out.execute(f'PRAGMA src.table_info("{name}")')]
            terms = [f'"{column}" + 1000000' if column in TIMES else f'"{column}"' for column in columns]
            out.execute(f'INSERT INTO main."{name}" SELECT {", ".join(terms)} FROM src."{name}"')
        out.commit()
        out.execute("DETACH src")
    if checks:
        assert out.execute("PRAGMA foreign_key_check").fetchone() is None
        assert out.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    out.close()


def clock(folder, nodes, seconds=40):
    """Snapshot pairs of each node and offsets between them, for so many seconds: node k boots k hours earlier and is k ms ahead, at 10 ppm."""
    unix_ns, offsets = 1_795_187_682_000_000_000, ["node,node_realtime_ns,offset_vs_node0_ns"]
    pairs = []
    for node in range(nodes):
        boot_ns = 90_000_000_000_000 + node * 5_000_000_000_000
        path = folder / f"node{node}.snapshot_pairs.jsonl"
        with path.open("w") as out:
            for second in range(-2, seconds):
                system_ns = unix_ns + second * 1_000_000_000 + node * 1_000_000 + second * node * 10_000
                pair = {"sys_clock_ns": system_ns, "tracer_clock_ns": boot_ns + second * 1_000_000_000, "bracket_ns": 500}
                out.write(json.dumps({**pair, "tracer_clock": "boottime"}) + "\n")
                offsets.append(f"{node},{system_ns},{node * 1_000_000 + second * node * 10_000}")
        pairs.append(path)
    table = folder / "offsets.csv"
    table.write_text("\n".join(offsets) + "\n")
    return table, pairs


def timed(work):
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--databases", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    inputs = sorted(options.databases)
    size = sum(path.stat().st_size for path in inputs) / 1e6
    with tempfile.TemporaryDirectory(dir=inputs[0].parent) as temporary:
        folder = pathlib.Path(temporary)
        offsets, pairs = clock(folder, len(inputs))

        def ours(command, traces, clocks, output):
            nodes = [str(inputs.index(path)) for path in traces]
            arguments = [command, "--traces", *traces, "--nodes", *nodes, "--offsets", offsets, "--snapshots", *clocks, "--output", output]
            subprocess.run([options.program, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        ways = {
            "align, 1 file": (lambda: ours("align", inputs[:1], pairs[:1], folder / "one.db"), size / len(inputs)),
            "INSERT … SELECT with checks, 1 file": (lambda: insert_select(inputs[:1], folder / "peer.db", True), size / len(inputs)),
            "INSERT … SELECT, 1 file": (lambda: insert_select(inputs[:1], folder / "peer.db", False), size / len(inputs)),
            f"align, {len(inputs)} files": (lambda: ours("align", inputs, pairs, folder / "aligned"), size),
            f"merge, {len(inputs)} files": (lambda: ours("merge", inputs, pairs, folder / "merged.db"), size),
            f"INSERT … SELECT with checks, {len(inputs)} files": (lambda: insert_select(inputs, folder / "peer.db", True), size),
        }
        seconds = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, (work, _) in ways.items():
                seconds[name].append(timed(work))
        print(f"{len(inputs)} databases, {size:.0f} MB; load {os.getloadavg()[0]:.1f}; median of {options.rounds}")
        for name, (_, megabytes) in ways.items():
            median = statistics.median(seconds[name])
            print(f"{name:45} {median:7.2f} s {megabytes / median:7.0f} MB/s")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"peak memory of ours: {peak:.0f} MiB")


if __name__ == "__main__":
    main()

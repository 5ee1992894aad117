#!/usr/bin/env python3
"""`probe_sync.query` into a DataFrame against sqlite3 with pandas, on the same view of the same database, in turn.

    python bench/rocpd/query_pandas.py [DATABASE] [--runs 7]

Needs the package and pandas. Without a database it writes one of a million kernels. Both frames must have equal rows. Prints medians and the median
of the ratios within a run.
"""

import argparse
import pathlib
import sqlite3
import statistics
import tempfile
import time

import pandas
import probe_sync

COLUMNS = 'name, start, "end", duration, tid'
KERNELS = 1_000_000


def written(path):
    """A database of kernels on four streams."""
    with probe_sync.rocpd.Writer(path) as writer:
        agent = writer.agent("gpu", 0)
        for number in range(KERNELS):
            begin = 1_000_000_000 + 2_000 * number
            writer.kernel(f"gemm_{number % 97}", begin, begin + 1_500, agent=agent, stream=f"stream {number % 4}")
    return path


def ours(path):
    return probe_sync.query(f"SELECT {COLUMNS} FROM kernels", path, no_correction=True).to_pandas()


def theirs(path):
    with sqlite3.connect(path) as connection:
        return pandas.read_sql_query(f"SELECT {COLUMNS} FROM kernels", connection)


def timed(read, path):
    begun = time.perf_counter()
    frame = read(path)
    return time.perf_counter() - begun, frame


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("database", nargs="?")
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.database or written(str(pathlib.Path(folder) / "kernels.db"))
        seen = {read: [] for read in (ours, theirs)}
        for _ in range(options.runs):
            frames = []
            for read, times in seen.items():
                taken, frame = timed(read, path)
                times.append(taken)
                frames.append(frame)
            key = ["start", "name"]
            one, other = (frame.sort_values(key, ignore_index=True).astype(str) for frame in frames)
            assert one.equals(other), "the rows differ"
    ratio = statistics.median(a / b for a, b in zip(seen[ours], seen[theirs], strict=True))
    print(f"{len(one)} rows: query {statistics.median(seen[ours]):.2f} s, sqlite3 and pandas {statistics.median(seen[theirs]):.2f} s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()

"""CSV files of databases: `probe_sync convert -f csv`, and pandas over the databases' own views, in turn.

pandas reads the views `kernels` and `regions` of each database in the same order and writes them (`read_sql_query`, `to_csv`), as
`rocpd convert -f csv` does. Medians; the databases are those of make.py.

python3 export_csv.py --program target/release/probe_sync --databases FOLDER/*.db --pandas PYTHON
"""

import argparse
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

PANDAS = """
import pathlib, sqlite3, sys, pandas
rows = 0
for at, path in enumerate(sys.argv[2:]):
    connection = sqlite3.connect(path)
    for view in ("kernels", "regions"):
        frame = pandas.read_sql_query(f'SELECT * FROM {view} ORDER BY guid, start, "end" DESC', connection)
        frame.to_csv(pathlib.Path(sys.argv[1]) / f"{at}_{view}.csv", index=False)
        rows += len(frame)
print(rows, "rows")
"""


def run(command):
    """Rows, seconds, and the peak of all children so far in MiB."""
    begun = time.monotonic()
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    taken = time.monotonic() - begun
    rows = sum(int(count) for count in re.findall(r"(\d+) rows", done.stdout))
    return rows, taken, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--databases", nargs="+", required=True)
    parser.add_argument("--pandas", default=sys.executable, help="a Python that has pandas")
    parser.add_argument("--out", help="where files are written, for example in memory")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory(dir=options.out) as scratch:
        # Ours first: the peak is of all children so far.
        first = [options.program, "convert", "--no-correction", "-f", "csv", "-d", f"{scratch}/ours", "-i", *options.databases]
        peak = run(first)[2]
        for _ in range(options.runs):
            for path in pathlib.Path(scratch, "ours").iterdir():
                path.unlink()
            rows, taken, _ = run(first)
            ours.append(rows / taken)
            rows, taken, peak_of_pandas = run([options.pandas, "-c", PANDAS, scratch, *options.databases])
            theirs.append(rows / taken)
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    print(f"{rows} rows: {ours:.0f} rows/s at {peak} MiB, pandas {theirs:.0f} rows/s at {peak_of_pandas} MiB, {ours / theirs:.1f} times (medians of {options.runs})")


if __name__ == "__main__":
    main()

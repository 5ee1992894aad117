"""One query over many databases, and over two large ones beside SQLite's own ATTACH with union views.

Time to the first row and files open over many databases; kernels by guid over two, against rocprofv3's view `kernels` on temporary
views over attached tables, in the same minute. Medians; the databases are those of make.py.

python3 query.py --program target/release/probe_sync --many FOLDER --two FOLDER
"""

import argparse
import os
import pathlib
import sqlite3
import statistics
import subprocess
import time

KERNELS = "SELECT guid, count(*), sum(duration) FROM kernels GROUP BY guid ORDER BY guid"
# More rows than a pipe holds: the command is in the middle of its work while it is looked at.
LONG = 'SELECT a.file, a.id, b.id FROM rocpd_region a JOIN rocpd_region b'


def command(program, folder, sql):
    return [program, "query", "--no-correction", "--format", "csv", "--sql", sql, "--traces", str(folder)]


def first_row(program, folder):
    """Seconds to the first row of all, and databases open then."""
    begun = time.monotonic()
    sql = "SELECT host, rank, start FROM rocpd_kernel_dispatch UNION ALL " + LONG
    with subprocess.Popen(command(program, folder, sql), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        running.stdout.readline()
        running.stdout.readline()
        taken = time.monotonic() - begun
        most = 0
        for at, _ in enumerate(running.stdout):
            if at % 20_000 == 0:
                most = max(most, databases_open(running.pid))
            if at > 200_000:
                break
        running.stdout.close()
        running.wait(timeout=60)
    return taken, most


def databases_open(pid):
    count = 0
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            count += ".db" in os.readlink(entry.path)
        except FileNotFoundError:
            pass
    return count


def by_program(program, folder):
    begun = time.monotonic()
    done = subprocess.run(command(program, folder, KERNELS), check=True, capture_output=True, timeout=600)
    rows = [line.split(",") for line in done.stdout.decode().split()[1:]]
    return time.monotonic() - begun, [(guid, int(count), int(total)) for guid, count, total in rows]


def by_attaching(folder):
    """The same by SQLite alone: attached files, a union view for each table, rocprofv3's own text of the view."""
    begun = time.monotonic()
    connection = sqlite3.connect(":memory:")
    bases = {}
    for at, path in enumerate(sorted(folder.glob("*.db"))):
        connection.execute("ATTACH ? AS d" + str(at), (str(path),))
        [suffix] = [row[0] for row in connection.execute(f"SELECT value FROM d{at}.rocpd_metadata WHERE tag = 'uuid'")]
        for (name,) in connection.execute(f"SELECT name FROM d{at}.sqlite_master WHERE type = 'table' AND name LIKE 'rocpd_%'").fetchall():
            bases.setdefault(name.removesuffix(suffix), []).append(f'SELECT * FROM d{at}."{name}"')
    for base, selects in bases.items():
        connection.execute(f'CREATE TEMP VIEW "{base}" AS {" UNION ALL ".join(selects)}')
    [text] = connection.execute("SELECT sql FROM d0.sqlite_master WHERE name = 'kernels'").fetchone()
    connection.execute("CREATE TEMP" + text.strip().removeprefix("CREATE"))
    rows = connection.execute(KERNELS).fetchall()
    return time.monotonic() - begun, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--many", type=pathlib.Path, required=True)
    parser.add_argument("--two", type=pathlib.Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    firsts = [first_row(options.program, options.many) for _ in range(options.runs)]
    taken = statistics.median(first for first, _ in firsts)
    files = len(list(options.many.glob("*.db")))
    print(f"{files} databases: first row after {taken:.2f} s (median of {options.runs}), at most {max(most for _, most in firsts)} open")
    ours, theirs = [], []
    for _ in range(options.runs):
        (took, rows), (beside, expected) = by_program(options.program, options.two), by_attaching(options.two)
        assert rows == expected, (rows, expected)
        ours.append(took)
        theirs.append(beside)
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    print(f"kernels by guid: {ours:.2f} s, attached {theirs:.2f} s, {ours / theirs:.2f} of it (medians of {options.runs})")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The fault matrix: real processes, every fault over every way of talking, judged.

    sudo python3 bench/faults/run.py --out FOLDER [--program target/release/probe_sync] [--ulfm target/ulfm] [--backends star,tree,mpi,ulfm] [--only REGEX]

    star  TCP, 7 ranks, each on a namespace host of its own (`bench/hosts/hosts.sh`)
    tree  the same with PROBE_SYNC_TCP_FANOUT=2: the rank that is hurt passes on for another
    mpi   the installed Open MPI, 5 ranks on hosts of their own
    ulfm  Open MPI 5 with `--with-ft ulfm`, 5 ranks on this host (so no fault of the network can be made)

Clocks are virtual, so the truth is known. Per cell: seconds from the fault to the first line of a log that names it, who was named, rounds lost beyond the one in flight, exit
statuses, whether all files can be read and `probe_sync solve --windows` solves them again, and whether a true offset left its hard interval.
FOLDER gets `faults.md`, `faults.csv`, `faults.json`, and each cell's logs and files. The exit status is 1 when a cell does not do as it must, 77 where namespaces are not permitted or nft is missing.
It does not build the programs.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading

from cells import CELLS, cell_fields
from ranks import HOSTS, ROOT, Launch

SKIPPED = 77
COLUMNS = ["fault", "over", "detected_s", "named", "rounds", "lost", "statuses", "files", "outside", "verdict"]
HEADS = ["fault", "over", "detected after s", "named", "rounds", "rounds lost", "exit statuses by rank", "files", "true offsets outside", "verdict"]


def of_backend(backend, cells, options, rows, lock):
    """All cells over one way of talking, one after the other, on hosts of its own."""
    launch = None
    try:
        launch = Launch(backend, options)
        for cell in cells:
            if backend in cell.absent:
                fields = {"verdict": f"none: {cell.absent[backend]}"}
            else:
                fields = cell_fields(cell, launch, options)
            row = {"fault": cell.name, "over": backend, **fields}
            with lock:
                rows.append(row)
                print(line_of(row), flush=True)
    except Exception as error:
        # A defect of this script must not pass for cells that were not asked for.
        with lock:
            rows.append({"fault": "the script", "over": backend, "verdict": f"FAILED: {error!r}"})
        raise
    finally:
        if launch:
            launch.close()


def line_of(row):
    """A line of the table; `|` would end a field."""
    return "| " + " | ".join(str(row.get(column, "")).replace("|", "/") for column in COLUMNS) + " |"


def write(out, rows):
    """The table as Markdown, CSV and JSON, each whole or not there."""
    def beside(name, text):
        path = out / f"{name}.partial"
        path.write_text(text)
        path.rename(out / name)

    beside("faults.md", "\n".join(["| " + " | ".join(HEADS) + " |", "|---" * len(HEADS) + "|", *map(line_of, rows)]) + "\n")
    beside("faults.json", json.dumps(rows, indent=1) + "\n")
    with (out / "faults.csv.partial").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    (out / "faults.csv.partial").rename(out / "faults.csv")


def require_hosts():
    """Ends the program where hosts of their own cannot be made here."""
    if not shutil.which("nft"):
        print("nft is missing: apt-get install nftables")
        sys.exit(SKIPPED)
    tried = subprocess.run([HOSTS, "up", "1"], env=os.environ | {"HOSTS_NAME": "psfaults"}, capture_output=True, text=True)
    subprocess.run([HOSTS, "down"], env=os.environ | {"HOSTS_NAME": "psfaults"}, check=False)
    if tried.returncode:
        print(tried.stderr.strip())
        sys.exit(SKIPPED if tried.returncode == SKIPPED else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "target/release/probe_sync", help="probe_sync, built with MPI")
    parser.add_argument("--ulfm", type=pathlib.Path, default=ROOT / "target/ulfm", help="folder of Open MPI 5, as `cargo xtask test --only ULFM` installs it")
    parser.add_argument("--backends", default="star,tree,mpi,ulfm")
    parser.add_argument("--only", default="", metavar="REGEX", help="faults whose name matches")
    options = parser.parse_args()
    options.out, options.program, options.ulfm = options.out.resolve(), options.program.resolve(), options.ulfm.resolve()
    if not options.program.exists():
        sys.exit(f"{options.program} is missing: cargo build --release -p probe-sync-cli --features mpi")
    wanted = options.backends.split(",")
    if unknown := set(wanted) - {"star", "tree", "mpi", "ulfm"}:
        sys.exit(f"--backends: {', '.join(sorted(unknown))}: not one of star, tree, mpi, ulfm")
    if "mpi" in wanted and not shutil.which("mpirun"):
        print("skipped mpi: mpirun is not installed")
        wanted.remove("mpi")
    if "ulfm" in wanted and not (options.ulfm / "bin/mpirun").exists():
        print(f"skipped ulfm: {options.ulfm}/bin/mpirun is missing; `cargo xtask test --only ULFM` installs it")
        wanted.remove("ulfm")
    cells = [cell for cell in CELLS if re.search(options.only, cell.name)]
    if not cells or not wanted:
        sys.exit(f"nothing to do: no fault's name matches \"{options.only}\", or no backend is left")
    if wanted != ["ulfm"]:
        require_hosts()
    options.out.mkdir(parents=True, exist_ok=True)
    rows, lock = [], threading.Lock()
    workers = [threading.Thread(target=of_backend, args=(backend, cells, options, rows, lock)) for backend in wanted]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    order = {cell.name: number for number, cell in enumerate(CELLS)}
    rows.sort(key=lambda row: (order.get(row["fault"], len(order)), wanted.index(row["over"])))
    write(options.out, rows)
    failed = [row for row in rows if row["verdict"].startswith("FAILED")]
    print(f"{len(rows)} cells, {len(failed)} failed; {options.out}/faults.md")
    if missing := len(cells) * len(wanted) - len(rows):
        print(f"{missing} cells are missing: see above")
    sys.exit(1 if failed or missing else 0)


if __name__ == "__main__":
    main()

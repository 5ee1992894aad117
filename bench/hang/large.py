"""Time and memory of `probe_sync hang` on the dumps of a large job, next to `cat` of the same files.

python3 bench/hang/large.py target/release/probe_sync [--ranks 1024] [--entries 2000]

The dumps are made: pickles with the fields, group names and stacks of torch 2.15's, in which rank 7 never enqueued the last operation.
"""

import argparse
import os
import pathlib
import pickle
import subprocess
import tempfile
import time


def entry(number, is_finished, members):
    at_ns = 1_790_000_000_000_000_000 + 1_000_000 * number
    frames = [{"name": f"step_{depth}", "filename": f"/job/train_{depth}.py", "line": 10 * depth} for depth in range(6)]
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": at_ns,
        "time_discovered_started_ns": at_ns + 1000 if is_finished else None,
        "time_discovered_completed_ns": at_ns + 2000 if is_finished else None,
        "duration_ms": None,
        "input_sizes": ((1024, 1024),),
        "output_sizes": ((1024, 1024),),
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "state": "completed" if is_finished else "scheduled",
        "retired": is_finished,
        "timeout_ms": 600_000,
        "is_p2p": False,
        "thread_id": "140",
        "thread_name": "train",
        "frames": frames,
    }


def dump(rank, ranks, entries):
    last = entries if rank != 7 else entries - 1
    made = [entry(number, number < entries, ranks) for number in range(1, last + 1)]
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    status = {"0": {"last_enqueued_collective": last, "last_started_collective": last, "last_completed_collective": entries - 1}}
    return pickle.dumps({"version": "2.10", "pg_config": groups, "pg_status": status, "entries": made}, protocol=2)


def timed(command):
    """Seconds, and MB of the largest resident set."""
    begun = time.monotonic()
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    return time.monotonic() - begun, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=pathlib.Path, help="where the dumps are made, for example in memory")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        whole = dump(0, given.ranks, given.entries)
        for rank in range(given.ranks):
            content = dump(rank, given.ranks, given.entries) if rank == 7 else whole
            pathlib.Path(folder, f"rank_{rank}").write_bytes(content)
        size = given.ranks * len(whole) / 1e6
        print(f"{given.ranks} dumps of {given.entries} operations, {size:.0f} MB")
        files = sorted(pathlib.Path(folder).iterdir())
        for _ in range(given.runs):
            cat, _, _ = timed(["cat", *files])
            seconds, memory, status = timed([given.program, "hang", folder])
            print(f"cat {cat:.2f} s; hang {seconds:.2f} s, {memory:.0f} MB, exit status {status}")


main()

"""Makes gloo jobs hang and asks `probe_sync hang` and torch's own tool who did it.

python3 bench/hang/run.py --python PYTHON_WITH_TORCH --probe-sync target/release/probe_sync [--recorded DIR]

Rank 2 is guilty in every job, with "two" also rank 5; with "missing" and "truncated" the dump of innocent rank 6
is lost or cut in half. Jobs run under torchrun, except "kill", "stop" and "size": torchrun ends a job whose rank dies, and
waits for one that is stopped; gloo ends a process that gets another size. With --recorded, the recorded sets of DIR (a folder per set, with
fault_injection.log) are judged as well.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile

FAULTS = ["loop", "stop", "kill", "skip", "size", "order", "recv", "two", "missing", "truncated"]
RANKS = 8
PORT = "29555"


def ours(command, dumps):
    """Ranks that are named, and ranks that are candidates."""
    done = subprocess.run([command, "hang", "--json", str(dumps)], capture_output=True, text=True, timeout=60)
    causes = json.loads(done.stdout)["causes"]
    named = {rank for cause in causes if cause["certainty"] != "undecided" for rank in cause["ranks"]}
    return sorted(named), sorted({rank for cause in causes for rank in cause["ranks"]} - named)


def torchs(python, dumps, prefix):
    """Ranks that torch's tool calls missing, or its error."""
    line = [python.parent / "torchfrtrace", str(dumps), "-p", prefix]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    text = done.stdout + done.stderr
    missing = {int(rank) for found in re.findall(r"missing ranks: \{([^}]*)\}", text) for rank in found.split(",")}
    error = re.findall(r"^(\w*Error: .*)$", text, re.MULTILINE)
    return error[-1] if error and not missing else sorted(missing)


def hang(python, fault, folder, seconds):
    """Runs a job until its ranks have written their dumps."""
    job = [pathlib.Path(__file__).with_name("job.py"), fault, folder, str(seconds)]
    if fault not in ("kill", "stop", "size"):
        line = [python.parent / "torchrun", f"--nproc-per-node={RANKS}", f"--master-port={PORT}", *job]
        subprocess.run(line, capture_output=True, timeout=300, check=True)
        return
    common = {**os.environ, "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "localhost", "MASTER_PORT": PORT}
    ranks = [
        subprocess.Popen([python, *job], env={**common, "RANK": str(rank)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for rank in range(RANKS)
    ]
    for rank, process in enumerate(ranks):
        if rank != 2:
            process.wait(timeout=300)
    ranks[2].kill()
    ranks[2].wait(timeout=60)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=pathlib.Path, required=True)
    parser.add_argument("--probe-sync", required=True)
    parser.add_argument("--recorded", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=20, help="from the start of a job to its dumps")
    parser.add_argument("--only", choices=FAULTS, action="append", help="only these faults")
    parser.add_argument("--keep", type=pathlib.Path, help="copies the dumps into this folder")
    given = parser.parse_args()
    print("set, guilty, named, candidates, torchfrtrace")
    for log in sorted(given.recorded.glob("*/fault_injection.log")) if given.recorded else []:
        guilty = re.findall(r"Fault ranks: (\[.*\])", log.read_text())[0]
        print(log.parent.name, guilty, *ours(given.probe_sync, log.parent), torchs(given.python, log.parent, "_dump_"), sep="; ")
    for fault in given.only or FAULTS:
        with tempfile.TemporaryDirectory() as made:
            folder = (given.keep or pathlib.Path(made)) / fault
            folder.mkdir(parents=True)
            hang(given.python, fault, folder, given.seconds)
            dumps = folder / "pickle"
            innocent = dumps / "rank_6"
            if fault == "missing":
                innocent.unlink()
            if fault == "truncated":
                innocent.write_bytes(innocent.read_bytes()[: innocent.stat().st_size // 2])
            guilty = [2, 5] if fault == "two" else [2]
            print(fault, guilty, *ours(given.probe_sync, dumps), torchs(given.python, dumps, "rank_"), sep="; ", flush=True)


if __name__ == "__main__":
    main()

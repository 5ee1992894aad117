"""Makes gloo jobs hang under torchrun and asks `probe_sync hang` and torch's own tool who did it.

python3 bench/hang/run.py --python PYTHON_WITH_TORCH --probe-sync target/release/probe_sync [--recorded DIR]

Rank 2 is guilty in every job. With --recorded, the recorded sets of DIR (a folder per set, with
fault_injection.log) are judged as well.
"""

import argparse
import json
import pathlib
import re
import subprocess
import tempfile

FAULTS = ["loop", "recv", "skip", "order"]
RANKS = 8


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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=pathlib.Path, required=True)
    parser.add_argument("--probe-sync", required=True)
    parser.add_argument("--recorded", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=20, help="from the start of a job to its dumps")
    given = parser.parse_args()
    job = pathlib.Path(__file__).with_name("job.py")
    print("set, guilty, named, candidates, torchfrtrace")
    for log in sorted(given.recorded.glob("*/fault_injection.log")) if given.recorded else []:
        guilty = re.findall(r"Fault ranks: (\[.*\])", log.read_text())[0]
        print(log.parent.name, guilty, *ours(given.probe_sync, log.parent), torchs(given.python, log.parent, "_dump_"), sep="; ")
    for fault in FAULTS:
        with tempfile.TemporaryDirectory() as folder:
            line = [given.python.parent / "torchrun", f"--nproc-per-node={RANKS}", "--master-port=29555", job]
            subprocess.run([*line, fault, folder, str(given.seconds)], capture_output=True, timeout=300, check=True)
            dumps = pathlib.Path(folder)
            print(fault, [2], *ours(given.probe_sync, dumps / "pickle"), torchs(given.python, dumps / "pickle", "rank_"), sep="; ")


main()

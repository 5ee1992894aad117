"""How long `probe_sync hang --live` takes with many ranks, on one machine.

python3 bench/hang/live.py --python PYTHON_WITH_PROBE_SYNC --probe-sync target/release/probe_sync [--ranks 64]

Every rank is a process that arrives in one group and answers with its stack, as under `probe_sync.torch.watch`. Rank 5
stops before step 100, by SIGSTOP; the others arrive at that step and wait. All are asked twice: while rank 5 is
stopped, and when it runs again and answers.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import traceback

STOPPED = 5
STEPS = 100


def rank_main(folder):
    import probe_sync
    from probe_sync import launch

    rank = int(os.environ["RANK"])
    settings = {"out": folder / "out", "window": "1s", "tracer_clock": "none"}
    session = probe_sync.start(group=launch.from_env(), **settings)
    session.wait_until_bound(10_000_000, timeout=120)
    (folder / f"ready_{rank}").touch()
    while not (folder / "begin").exists():
        time.sleep(0.05)
    begun = float((folder / "begin").read_text())
    last = STEPS - 1 if rank == STOPPED else STEPS
    for step in range(last + 1):
        time.sleep(max(0.0, begun + 0.05 * step - time.time()))
        session.arrive("grads", step)
    if rank == STOPPED:
        time.sleep(1.5)
        os.kill(os.getpid(), signal.SIGSTOP)
    while not (folder / "end").exists():
        session._answer_hang(lambda: [(f"rank_{rank}.stack", stack())])
        time.sleep(0.5)
    os._exit(0)


def stack():
    return "".join(["MainThread (most recent call last):\n", *traceback.format_stack()]).encode()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--probe-sync", required=True)
    parser.add_argument("--ranks", type=int, default=64)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        common = {**os.environ, "WORLD_SIZE": str(given.ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": "29577"}
        ranks = [
            subprocess.Popen([given.python, __file__, "rank", folder], env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(given.ranks)
        ]
        try:
            until = time.monotonic() + 300
            while len(list(folder.glob("ready_*"))) < given.ranks and time.monotonic() < until:
                time.sleep(0.2)
            (folder / "begin.new").write_text(str(time.time() + 1))
            (folder / "begin.new").rename(folder / "begin")
            time.sleep(1 + 0.05 * STEPS + 4)
            for what in ("is stopped", "runs again"):
                begun = time.monotonic()
                done = subprocess.run([given.probe_sync, "hang", "--live", folder / "out"], capture_output=True, text=True, timeout=60)
                print(f"{given.ranks} ranks, rank {STOPPED} {what}: {time.monotonic() - begun:.2f} s\n{done.stdout}{done.stderr}")
                ranks[STOPPED].send_signal(signal.SIGCONT)
                time.sleep(3)
        finally:
            (folder / "end").touch()
            for process in ranks:
                process.send_signal(signal.SIGCONT)
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    process.kill()


if sys.argv[1:2] == ["rank"]:
    rank_main(pathlib.Path(sys.argv[2]))
else:
    main()

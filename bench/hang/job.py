"""One rank of a gloo job in which rank 2 (with "two" also rank 5) does something wrong; writes its Flight Recorder dumps.

Run by run.py. Groups: all ranks, two halves, and pairs across the halves.
"""

import datetime
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

GUILTY = 2
SECOND = 5
BAD_STEP = 6


def dump(folder, rank):
    """Writes both forms of the dump, as a watchdog would."""
    for name, data in [
        (f"pickle/rank_{rank}", _dump_fr_trace(True, False, False, backend="gloo")),
        (f"json/rank_{rank}.json", _dump_fr_trace_json(True, False, backend="gloo")),
    ]:
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


def main():
    fault, folder, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=10))
    world = dist.get_world_size()
    half = world // 2
    halves = [dist.new_group(list(range(start, start + half))) for start in (0, half)]
    pairs = [dist.new_group([first, first + half]) for first in range(half)]
    mine, pair = halves[rank // half], pairs[rank % half]

    def watchdog():
        time.sleep(seconds)
        dump(folder, rank)
        os._exit(0)

    threading.Thread(target=watchdog, daemon=True).start()
    try:
        work(fault, rank, mine, pair)
    except RuntimeError as error:
        # A peer has ended; a job on NCCL would wait for its own watchdog.
        print(f"rank {rank}: {error}", file=sys.stderr)
    time.sleep(3600)


def work(fault, rank, mine, pair):
    values = torch.ones(64)
    for step in range(10):
        for part in range(4):
            is_bad = (rank == GUILTY or fault == "two" and rank == SECOND) and step == BAD_STEP and part == 2
            bad = fault if is_bad else "none"
            if part == 2 and bad != "order":
                dist.all_reduce(values)
            if bad == "size":
                dist.all_reduce(torch.ones(32), group=mine)
            else:
                dist.all_reduce(values, group=mine)
            if bad == "order":
                dist.all_reduce(values)
            if bad in ("loop", "two", "missing", "truncated"):
                time.sleep(3600)
            if bad == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            if bad == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if bad == "recv":
                dist.recv(values, src=0)
            if bad != "skip":
                dist.all_reduce(values, group=pair)
    dist.barrier()


main()

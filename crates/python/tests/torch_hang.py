"""A rank of a job in which rank 2 never comes to an all-reduce: `torch_hang.py FOLDER [hookless] [ask loop|locked]`, as torch_late.py. Run by torchrun.

It ends itself after the dumps; with "ask" it writes none by itself, and ends when FOLDER/end is there.
"""

import ctypes
import os
import pathlib
import sys
import threading
import time

import probe_sync
import torch
import torch.distributed as dist


def stuck():
    if "locked" in sys.argv:
        # PyDLL keeps the lock of the interpreter.
        ctypes.PyDLL(None).sleep(20)
        os._exit(0)
    while True:
        pass


def main(folder):
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()

    def is_over():
        if "ask" in sys.argv:
            return (folder / "end").exists()
        return len(list((folder / "dumps").glob("rank_*"))) >= 2 * size

    def end():
        # torch's own watchdog would end the job only after half an hour.
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not is_over():
            time.sleep(0.2)
        time.sleep(1)
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()
    settings = {"window": "1s", "inject_skew": 7, "skew_offset": "50ms", "tracer_clock": "none", "out": folder / "out"}
    dumps = {} if "ask" in sys.argv else {"on_hang": folder / "dumps", "hang_after": 3}
    watch = probe_sync.torch.watch(**dumps, **settings)
    watch.session.wait_until_bound(1_000_000, timeout=60)
    values = torch.ones(1000)
    for step in range(400):
        if rank == 2 and step == 300:
            stuck()
        try:
            dist.all_reduce(values)
        except RuntimeError:
            # Another rank has seen all dumps and ended.
            os._exit(0)
        values.fill_(1.0)
        time.sleep(0.02)


if "hookless" in sys.argv:
    del dist.ProcessGroup.register_pre_hook
main(pathlib.Path(sys.argv[1]))

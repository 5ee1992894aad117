"""A rank of a job that is late in every third step for a while: `torch_late.py FOLDER [hookless] [FROM UNTIL END]`; writes what it was told into FOLDER/rankN.json.

`hookless` makes torch one whose process groups have no hooks, as before 2.15. It is late FROM 6 UNTIL 16 s of 46, if nothing else is given.

Clocks are wrong by up to 50 ms, so that recorded times would blame another rank. LATE_SEED chooses them. Run by torchrun.
"""

import json
import os
import pathlib
import random
import sys
import time

import probe_sync
import torch
import torch.distributed as dist


def main(folder, from_s=6.0, until_s=16.0, end_s=46.0):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    told = []
    begun = time.monotonic()

    def on_late(standing):
        told.append([time.monotonic() - begun, str(standing), [late.rank for late in standing.late]])

    settings = {"window": "1s", "inject_skew": int(os.environ.get("LATE_SEED", 7)), "skew_offset": "50ms", "tracer_clock": "none", "out": folder / "out"}
    watch = probe_sync.torch.watch(on_late=on_late, **settings)
    watch.session.wait_until_bound(1_000_000, timeout=60)
    values, verdict, steps = torch.ones(1000), "", 0
    dist.barrier()
    begun_ns, begun, since = time.time_ns(), time.monotonic(), 0.0
    while True:
        # All ranks end with the same step.
        dist.all_reduce(values)
        end = torch.tensor([since >= end_s], dtype=torch.int32)
        dist.broadcast(end, 0)
        if end.item():
            break
        values.fill_(1.0)
        # On a machine with fewer cores than ranks, equal pauses would make the scheduler's order of
        # the ranks that of every step, so that one of them were always late.
        time.sleep(0.02 + 0.002 * random.random())
        since = time.monotonic() - begun
        if rank == 2 and steps % 3 == 0 and from_s <= since < until_s:
            time.sleep(0.01)
        if since < until_s:
            verdict = watch.verdict() or verdict
        steps += 1
    after = watch.verdict()
    what = {"told": told, "verdict": verdict, "after": after, "missed": watch.missed, "steps": steps, "begun_ns": begun_ns}
    (folder / f"rank{rank}.json").write_text(json.dumps(what))
    watch.stop()
    dist.destroy_process_group()


if "hookless" in sys.argv:
    del dist.ProcessGroup.register_pre_hook
main(pathlib.Path(sys.argv[1]), *(float(time) for time in sys.argv[2:] if time != "hookless"))

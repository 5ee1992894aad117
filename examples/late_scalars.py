"""Which rank is late, next to the loss: scalars for TensorBoard, and for Weights & Biases if it is installed.

    torchrun --nproc-per-node 4 examples/late_scalars.py FOLDER [slow=RANK] [KEY=VALUE ...]

Rank 0 writes the curves of all ranks. `slow=2` lets rank 2 sleep for 10 ms in every step, to show what a late rank looks like. KEY=VALUE are settings
of probe_sync, as `inject_skew=7`. Weights & Biases writes to FOLDER only (offline mode).
"""

import importlib
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

import probe_sync

STEPS = 1500
EVERY = 50


def scalars(standing: probe_sync.LateStanding, ranks: int) -> dict[str, float]:
    """Returns the largest lead of each rank, and of each late host, in ms (0 if a rank is not late), the largest share of the time that one costs, and the longest wait in seconds."""
    found = {f"late/rank{rank}_ms": 0.0 for rank in range(ranks)}
    for late in standing.late:
        name = f"late/host_{late.host}_ms" if late.rank is None else f"late/rank{late.rank}_ms"
        found[name] = max(found.get(name, 0.0), late.lead_ns / 1e6)
    found["late/share"] = max((late.share for late in standing.late), default=0.0)
    found["waiting/seconds"] = max((wait.waited_ns / 1e9 for wait in standing.waiting), default=0.0)
    return found


def wandb_run(folder: str) -> Any:
    """Starts an offline run of Weights & Biases; None if it is not installed."""
    try:
        wandb = importlib.import_module("wandb")
    except ImportError:
        return None
    return wandb.init(project="probe_sync", dir=folder, mode="offline")


def main(folder: str, slow: int | None, settings: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    os.makedirs(folder, exist_ok=True)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    watch = probe_sync.torch.watch(out=f"{folder}/probe_sync_run", **settings)
    board = SummaryWriter(folder) if rank == 0 else None
    run = wandb_run(folder) if rank == 0 else None
    for step in range(STEPS):
        if rank == slow:
            time.sleep(0.01)
        optimizer.zero_grad()
        loss = model(torch.randn(64, 64)).square().mean()
        loss.backward()
        optimizer.step()
        if board and step % EVERY == 0:
            curves = {"loss": loss.item(), **scalars(watch.session.late(), ranks)}
            for name, value in curves.items():
                board.add_scalar(name, value, step)
            if run:
                run.log(curves, step=step)
    if board:
        board.close()
    if run:
        run.finish()
    watch.stop()
    dist.destroy_process_group()


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[2:])
    slow_rank = given.pop("slow", None)
    main(sys.argv[1], None if slow_rank is None else int(slow_rank), given)

"""Data-parallel training whose traces end on one clock.

    torchrun --nproc-per-node 4 examples/torch_ddp.py FOLDER [KEY=VALUE ...]

The lines that mention probe_sync are all that is added. KEY=VALUE are settings of probe_sync, as `inject_skew=7`.
"""

import sys
from typing import Any

import torch
import torch.distributed as dist

import probe_sync

STEPS = 60


def main(folder: str, settings: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    merge = "inject_skew" not in settings
    handler = probe_sync.torch.trace_handler(folder, merge=merge, **settings)
    # Finds which rank is late while the job runs: `probe_sync status FOLDER/probe_sync_run`, or
    # watch.verdict().
    watch = probe_sync.torch.watch()
    with probe_sync.torch.profile(activities=[torch.profiler.ProfilerActivity.CPU], on_trace_ready=handler) as profiler:
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.randn(64, 256)).square().mean().backward()
            optimizer.step()
            profiler.step()
    watch.stop()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], dict(argument.split("=", 1) for argument in sys.argv[2:]))

"""A real job of gloo in which rank 2 sleeps 10 ms in every third step (LATE=1), or nobody does; its traces are for `probe_sync stragglers`.

    probe_sync run --local 4 --fixed --window 500ms --duration 25s --snapshot-pair-period-ms 1000 --out run &
    for rank in 0 1 2 3; do
        RANK=$rank WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29510 LATE=1 OUT=traces python bench/gloo_late.py &
    done; wait
    probe_sync stragglers --traces traces/*.json --nodes 0 1 2 3 --run-dir run

Wants torch. All ranks are on one host and one clock.
"""

import os
import time

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

RANK, IS_LATE, FOLDER = int(os.environ["RANK"]), os.environ.get("LATE") == "1", os.environ["OUT"]

os.makedirs(FOLDER, exist_ok=True)
torch.set_num_threads(1)
dist.init_process_group("gloo")
matrix, values = torch.ones(64, 64), torch.ones(1024)
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    for step in range(90):
        matrix @ matrix
        if IS_LATE and RANK == 2 and step % 3 == 0:
            time.sleep(0.01)
        dist.all_reduce(values)
        dist.barrier()
        profiler.step()
profiler.export_chrome_trace(f"{FOLDER}/rank{RANK}.pt.trace.json")
dist.destroy_process_group()

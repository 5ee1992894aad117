"""A job of NCCL whose ranks share one GPU, in which one rank is late in every third step; its traces are for `probe_sync stragglers`.

    python bench/gpu/run.py FOLDER

run.py starts a process for each rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as a launcher sets them. Arguments: a folder, and
settings of probe_sync, as `inject_skew=7`. LATE=cpu: rank 2 sleeps 5 ms before it launches. LATE=gpu: it launches in time, but its device is busy for 5 ms.
Otherwise nobody is late. All ranks are on one host and one clock, so the times of the traces are the true ones.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

import probe_sync

RANK, STEPS, LATE_RANK, EVERY, LATE_S = int(os.environ["RANK"]), 30, 2, 3, 0.005


def spin_cycles():
    """Cycles of the device's clock in LATE_S, by measurement."""
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(1_000_000)
    begun.record()
    torch.cuda._sleep(10_000_000)
    ended.record()
    torch.cuda.synchronize()
    return round(10_000_000 / (begun.elapsed_time(ended) * 1e-3) * LATE_S)


def main(folder, settings):
    late = os.environ.get("LATE") if RANK == LATE_RANK else None
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    size = dist.get_world_size()
    cycles = spin_cycles()
    matrix, values = torch.ones(1024, 1024, device="cuda"), torch.ones(1 << 16, device="cuda")
    shard, whole = torch.ones(1 << 14, device="cuda"), torch.empty(size << 14, device="cuda")

    def step(number):
        matrix @ matrix
        if late == "cpu" and number % EVERY == 0:
            time.sleep(LATE_S)
        if late == "gpu" and number % EVERY == 0:
            torch.cuda._sleep(cycles)
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        matrix @ matrix
        dist.all_gather_into_tensor(whole, shard)
        dist.reduce_scatter_tensor(shard, whole, op=dist.ReduceOp.MAX)
        # As a loop that prints its loss: the host waits for the device.
        return values[0].item()

    for _ in range(10):
        step(1)
    handler = probe_sync.torch.trace_handler(folder, merge=False, **settings)
    # Only with a schedule does torch put its steps into the trace.
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=STEPS, repeat=1)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with probe_sync.torch.profile(activities=activities, schedule=schedule, on_trace_ready=handler) as profiler:
        for number in range(STEPS + 2):
            step(number)
            profiler.step()
    handler.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], dict(argument.split("=", 1) for argument in sys.argv[2:]))

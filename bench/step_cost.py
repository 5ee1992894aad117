#!/usr/bin/env python3
"""What a session costs the training loop that it runs beside: step times while it measures and while it is paused, in one job.

    torchrun --nproc-per-node 2 bench/step_cost.py torch FOLDER [--pairs N] [--seconds S] [KEY=VALUE ...]      # nccl in place of torch: on GPUs
    RANK=0 WORLD_SIZE=2 python bench/step_cost.py jax FOLDER --port PORT ...          # the same with RANK=1

Blocks of S seconds go in pairs, one measuring and one paused, in an order drawn for each pair; all ranks change at the same step. The ratio of a pair is that
of its blocks' median step times. Printed are the median ratio of all pairs and its 95 % interval by order statistics, which assumes nothing of how noise is spread.
`--null` pauses in both blocks: what the method says where there is nothing to see. `--watch hooks` compares blocks with and without `torch.watch()` next to a session
that always measures; `--watch hookless` is for a torch without hooks, which reads the Flight Recorder (export TORCH_FR_BUFFER_SIZE=64 and TORCH_NCCL_TRACE_BUFFER_SIZE=64).

It does not assert; a shared machine may say anything.
"""

import argparse
import json
import math
import os
import random
import statistics
import time

import probe_sync


def torch_loop(on, hookless=False):
    """A step of data-parallel training on processors or GPUs, its rank, and the group."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if on == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    if hookless:
        del dist.ProcessGroup.register_pre_hook
    dist.init_process_group("gloo" if on == "cpu" else "nccl")
    layers = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Tanh(), torch.nn.Linear(512, 1)).to(on)
    model = torch.nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(128, 512, device=on)

    def step():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        if on == "cuda":
            torch.cuda.synchronize()

    return step, dist.get_rank(), probe_sync.from_torch()


def jax_loop(port):
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", size, rank)
    mesh = Mesh(np.array(jax.devices()), ("node",))
    spread = PartitionSpec("node")
    mixed = jax.jit(jax.shard_map(lambda x: jnp.tanh(x @ x.T @ x) + jax.lax.psum(x, "node") * 1e-3, mesh=mesh, in_specs=spread, out_specs=spread))
    mine = jax.device_put(jnp.ones((256, 256)) * rank, jax.local_devices()[0])
    state = [jax.make_array_from_single_device_arrays((256 * size, 256), NamedSharding(mesh, spread), [mine])]

    def step():
        state[0] = mixed(state[0]).block_until_ready()

    return step, rank, probe_sync.from_jax()


def block(step, steps):
    """The median time of a step, s."""
    times = []
    for _ in range(steps):
        begun = time.perf_counter()
        step()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def interval(ratios):
    """The median's 95 % interval: the k-th smallest and largest, such that a fair coin stays between them."""
    ordered, count = sorted(ratios), len(ratios)
    below, k = 0.0, 0
    while k < count // 2 and below + math.comb(count, k) / 2**count <= 0.025:
        below += math.comb(count, k) / 2**count
        k += 1
    return ordered[max(k - 1, 0)], ordered[count - max(k, 1)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=["torch", "nccl", "jax"])
    parser.add_argument("folder")
    parser.add_argument("--port", type=int)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--null", action="store_true")
    parser.add_argument("--watch", choices=["hooks", "hookless"])
    parser.add_argument("settings", nargs="*")
    given = parser.parse_args()
    step, rank, group = jax_loop(given.port) if given.library == "jax" else torch_loop("cuda" if given.library == "nccl" else "cpu", given.watch == "hookless")
    block(step, 50)
    # All ranks take as many steps: by the settings, not by their clocks.
    session = probe_sync.start(dict(setting.split("=", 1) for setting in given.settings), window="1s", group=group, out=given.folder)
    session.wait_until_bound(1_000, timeout=60)
    begun = time.perf_counter()
    block(step, 200)
    # Of the job's slowest moment so far; rank 0's word would need a collective.
    guess = os.path.join(given.folder, "steps")
    if rank == 0:
        with open(guess + ".part", "w") as file:
            file.write(str(max(20, round(200 * given.seconds / (time.perf_counter() - begun)))))
        os.rename(guess + ".part", guess)
    while not os.path.exists(guess):
        time.sleep(0.01)
    with open(guess) as file:
        steps = int(file.read())
    watches = []

    def switch(on):
        if not given.watch:
            (session.resume if on else session.pause)()
        elif on and not watches:
            watches.append(probe_sync.torch.watch())
        elif not on and watches:
            watches.pop().stop()

    order, ratios = random.Random(1), []
    for _ in range(given.pairs):
        times = {}
        for measuring in order.sample([False, True], 2):
            switch(measuring and not given.null)
            # A pause holds from the next round on: a window and what is solved of it.
            block(step, 20 if given.watch else max(1, round(steps * 2.5 / given.seconds)))
            times[measuring] = block(step, steps)
        ratios.append(times[True] / times[False])
    switch(False)
    session.resume()
    report = session.stop(timeout=60)
    if rank == 0:
        low, high = interval(ratios)
        told = {"library": given.library, "pairs": len(ratios), "steps_per_block": steps, "median_step_ms": times[False] * 1e3}
        told |= {"median_ratio": statistics.median(ratios), "interval_95": [low, high], "null": given.null, "watch": given.watch, "rounds": report["rounds"]}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()

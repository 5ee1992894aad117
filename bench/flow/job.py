#!/usr/bin/env python3
"""A small distributed JAX job, one process per rank, each with its own profiler trace.

    python job.py RANK RANKS PORT FOLDER

`cargo xtask flow` starts it once per rank, beside `probe_sync run`; it knows nothing of clocks. Each rank
is a process of `jax.distributed` with one CPU device, joined to the others by gloo over loopback. A step is some work, of
another length on every rank, then four collectives (all_reduce, all_gather, reduce_scatter, all_to_all).

It compiles, then leaves FOLDER/rankR.ready. When FOLDER/go.json says from when to when (ns of the system clock), it
traces steps for that long and leaves FOLDER/rankR.xplane.pb. The ranks agree by a collective on the last step, so that none
waits for one that has left. All waiting is bounded by `DEADLINE_S`; whoever starts this ends it after that too.

It does not use the network beyond loopback, or bend any time.
"""

import json
import os
import pathlib
import sys
import time

DEADLINE_S = 90
# Steps per second of traced time, about; the rest of a step's time is work and waiting for the
# others.
PAUSE_S = 0.03


def waited_for(path):
    """The text of a file that appears whole."""
    end = time.monotonic() + DEADLINE_S
    while not path.exists():
        if time.monotonic() > end:
            sys.exit(f"{path.name} did not appear within {DEADLINE_S} s")
        time.sleep(0.005)
    return path.read_text()


def main(rank, ranks, port, folder):
    # One device per process, and one thread for it: the ranks share few cores.
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=1 --xla_cpu_multi_thread_eigen=false"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", ranks, rank, initialization_timeout=DEADLINE_S)
    mesh = Mesh(np.array(jax.devices()), ("node",))
    over_nodes = NamedSharding(mesh, PartitionSpec("node"))

    def step(values, wish):
        """The four collectives, and whether every rank wants to go on."""
        total = jax.lax.psum(values, "node")
        gathered = jax.lax.all_gather(values * 1e-3 + total, "node", tiled=True)
        mine = jax.lax.psum_scatter(gathered, "node", tiled=True)
        swapped = jax.lax.all_to_all(mine, "node", 0, 0, tiled=True)
        return swapped * 1e-6, jax.lax.pmin(wish, "node")

    spread = PartitionSpec("node")
    stepped = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(spread, spread), out_specs=(spread, spread)))
    work = jax.jit(lambda matrix: (matrix @ matrix) * 1e-3)

    def of_all(mine):
        return jax.make_array_from_single_device_arrays(
            (mine.shape[0] * ranks,), over_nodes, [jax.device_put(mine, jax.local_devices()[0])]
        )

    values, matrix = of_all(jnp.ones(1024 * ranks)), jnp.ones((128, 128))

    def one_step(number, values, matrix, go_on):
        # Another rank is late in every step.
        for _ in range(1 + (number + rank) % ranks):
            matrix = work(matrix)
        matrix.block_until_ready()
        values, wish = stepped(values, of_all(jnp.full(1, float(go_on))))
        return values, matrix, float(np.asarray(wish.addressable_data(0))[0]) > 0.5

    for number in range(3):
        values, matrix, _ = one_step(number, values, matrix, True)
    (folder / f"rank{rank}.ready").touch()
    go = json.loads(waited_for(folder / "go.json"))

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    time.sleep(max(0.0, go["from_ns"] / 1e9 - time.time()))
    jax.profiler.start_trace(folder / f"session{rank}", profiler_options=options)
    # A trace of JAX does not say which rank wrote it; with this event it does.
    with jax.profiler.TraceAnnotation(f"probe_sync.rank#{rank}/{ranks}"):
        pass
    number, more = 0, True
    while more:
        values, matrix, more = one_step(number, values, matrix, time.time_ns() < go["until_ns"])
        number += 1
        time.sleep(PAUSE_S)
    jax.profiler.stop_trace()
    written = sorted((folder / f"session{rank}").rglob("*.xplane.pb"))
    if len(written) != 1:
        sys.exit(f"the profiler wrote {len(written)} traces, not one")
    written[0].rename(folder / f"rank{rank}.xplane.pb")
    print(f"rank {rank}: {number} steps")
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), pathlib.Path(sys.argv[4]))

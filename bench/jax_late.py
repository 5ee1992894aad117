"""A real job of JAX in which rank 2 sleeps 10 ms in every third step (LATE=1), or nobody does; its traces are for `probe_sync stragglers`.

    for rank in 0 1 2 3; do
        RANK=$rank WORLD_SIZE=4 LATE=1 python bench/jax_late.py 29511 traces &
    done; wait
    probe_sync stragglers --traces traces/plugins/profile/*/*.xplane.pb --run-dir traces/probe_sync_run

Arguments are those of examples/jax_distributed.py. Wants JAX and the package. All ranks are on one host and one clock.
"""

import os
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import probe_sync

STEPS = 90


def main(port, folder, settings):
    rank, size, is_late = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ.get("LATE") == "1"
    if os.environ["JAX_PLATFORMS"] == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", size, rank)
    mesh = Mesh(np.array(jax.devices()), ("node",))
    spread = PartitionSpec("node")
    stepped = jax.jit(jax.shard_map(lambda values: jax.lax.psum(values, "node") * 0.2, mesh=mesh, in_specs=spread, out_specs=PartitionSpec()))
    own = jax.device_put(jnp.ones(1024), jax.local_devices()[0])
    values = jax.make_array_from_single_device_arrays((1024 * size,), NamedSharding(mesh, spread), [own])
    stepped(values).block_until_ready()
    with probe_sync.jax.trace(folder, merge=False, **settings):
        for step in range(STEPS):
            if is_late and rank == 2 and step % 3 == 0:
                time.sleep(0.01)
            stepped(values).block_until_ready()
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], dict(argument.split("=", 1) for argument in sys.argv[3:]))

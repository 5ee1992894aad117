"""Processes of jax.distributed whose traces end on one clock.

    RANK=0 WORLD_SIZE=4 python examples/jax_distributed.py PORT FOLDER [KEY=VALUE ...]        # the same with RANK=1 to 3

The lines that mention probe_sync are all that is added. KEY=VALUE are settings of probe_sync, as `inject_skew=7`.
"""

import os
import sys
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import probe_sync

STEPS = 60


def main(port: str, folder: str, settings: dict[str, Any]) -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", size, rank)
    mesh = Mesh(np.array(jax.devices()), ("node",))
    spread = PartitionSpec("node")

    def step(values: jax.Array) -> jax.Array:
        total = jax.lax.psum(values, "node")
        return jax.lax.all_gather(values * 1e-3 + total, "node", tiled=True)[: values.shape[0]] * 1e-3

    stepped = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=spread, out_specs=spread))
    mine = jnp.ones(1024) * rank
    values = jax.make_array_from_single_device_arrays((1024 * size,), NamedSharding(mesh, spread), [jax.device_put(mine, jax.local_devices()[0])])
    values = stepped(values).block_until_ready()
    merge = "inject_skew" not in settings
    with probe_sync.jax.trace(folder, merge=merge, **settings):
        for _ in range(STEPS):
            values = stepped(values).block_until_ready()
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], dict(argument.split("=", 1) for argument in sys.argv[3:]))

"""A program of JAX on a mesh of two rows, whose sums run along its rows and gathers along its columns: operations of different devices that bear one label.

    python bench/gpu/run.py FOLDER jax_mesh

run.py starts a process for each of four ranks. Arguments: the port of JAX's coordinator, a folder, settings of probe_sync.
"""

import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import probe_sync

STEPS = 30


def main(port, folder, settings):
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    jax.distributed.initialize(f"127.0.0.1:{port}", size, rank)
    mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("row", "column"))
    spread = PartitionSpec(("row", "column"))

    def step(values):
        total = jax.lax.psum(values, "column") * 0.5
        return jax.lax.all_gather(total, "row", tiled=True)[: values.shape[0]]

    stepped = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=spread, out_specs=spread))
    own = jax.device_put(jnp.ones(1 << 14), jax.local_devices()[0])
    values = jax.make_array_from_single_device_arrays((size << 14,), NamedSharding(mesh, spread), [own])
    values = stepped(values).block_until_ready()
    with probe_sync.jax.trace(folder, merge=False, **settings):
        for _ in range(STEPS):
            values = stepped(values).block_until_ready()
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], dict(argument.split("=", 1) for argument in sys.argv[3:]))

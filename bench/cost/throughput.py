#!/usr/bin/env python3
"""What a run of probe_sync costs the job beside it: throughput without a run, beside one with defaults, and beside `--fixed`.

    python3 bench/cost/throughput.py --program target/release/probe_sync --job cpu [--rounds 8] [--block 5]
    python3 bench/cost/throughput.py ... --job mpi            needs mpicc and mpirun
    target/flow/venv/bin/python bench/cost/throughput.py ... --job jax

Jobs, two processes each, for a host of two cores:
    cpu   two processes that only compute
    mpi   work and an allreduce in a loop (allreduce.c)
    jax   work and an all-reduce over gloo in a loop, jax.distributed

The job runs all the time. Blocks without a run, with defaults and with `--fixed` follow each other in turn; a run measures `--settle` seconds
before its block begins, so that the first dense seconds of the defaults are not in it (`--settle 0` puts them in). Prints the median
and the quartiles of each block's throughput as a share of the mean of the two blocks without a run around it.

It does not judge. It is for a quiet machine.
"""

import argparse
import mmap
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


def compute(path, place):
    """A process that only computes, and counts."""
    with open(path, "r+b") as file:
        page = mmap.mmap(file.fileno(), 0)
    count = 0
    while True:
        total = 0
        for number in range(2000):
            total += number * number
        count += 1
        struct.pack_into("Q", page, 8 * place, count)


def jax_rank(path, rank, port):
    """A rank of a job that blocks in gloo."""
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=1 --xla_cpu_multi_thread_eigen=false"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
    mesh = Mesh(np.array(jax.devices()), ("node",))
    spread = NamedSharding(mesh, PartitionSpec("node"))
    values = jax.make_array_from_callback((2, 64, 64), spread, lambda _: np.ones((1, 64, 64), np.float32))

    def step(values):
        for _ in range(8):
            values = jnp.tanh(values @ values * 1e-2)
        return values + jnp.sum(values, axis=0, keepdims=True) * 1e-3

    compiled = jax.jit(step, out_shardings=spread)
    with open(path, "r+b") as file:
        page = mmap.mmap(file.fileno(), 0)
    count = 0
    while True:
        values = compiled(values)
        values.block_until_ready()
        count += 1
        if rank == 0:
            struct.pack_into("Q", page, 0, count)


def start_job(job, path):
    """The job's processes."""
    me = [sys.executable, str(pathlib.Path(__file__).resolve())]
    if job == "cpu":
        return [subprocess.Popen([*me, "--inside", f"cpu:{path}:{place}"]) for place in range(2)]
    if job == "jax":
        port = 20_000 + os.getpid() % 20_000
        return [subprocess.Popen([*me, "--inside", f"jax:{path}:{rank}:{port}"]) for rank in range(2)]
    binary = path.with_suffix(".allreduce")
    subprocess.run(["mpicc", "-O2", "-o", binary, HERE / "allreduce.c"], check=True)
    command = ["mpirun", "--timeout", "7200", "-n", "2", str(binary), str(path)]
    return [subprocess.Popen(command, env=os.environ | MPI)]


def progress(path):
    return sum(struct.unpack("2Q", path.read_bytes()))


def block(path, seconds):
    before, begun = progress(path), time.monotonic()
    time.sleep(seconds)
    return (progress(path) - before) / (time.monotonic() - begun)


def beside(options, arguments, path, folder):
    """The job's throughput beside a run; without one where there are no arguments."""
    if arguments is None:
        return block(path, options.block)
    seconds = options.settle + options.block + 2
    command = [options.program, "run", "--local", "2", "--duration", f"{seconds}s", *arguments, "--out", str(folder / "run")]
    with open(folder / "run.log", "w") as log:
        run = subprocess.Popen(command, stdout=log, stderr=log)
    time.sleep(options.settle + 0.5)
    rate = block(path, options.block)
    if run.wait(timeout=120) != 0:
        sys.exit(f"the run failed; see {folder / 'run.log'}")
    return rate


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program")
    parser.add_argument("--job", choices=["cpu", "mpi", "jax"], default="cpu")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--block", type=float, default=5.0)
    parser.add_argument("--settle", type=float, default=15.0)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        kind, path, place, *port = options.inside.split(":")
        return compute(path, int(place)) if kind == "cpu" else jax_rank(path, int(place), port[0])
    folder = pathlib.Path(tempfile.mkdtemp(prefix="probe_sync_cost_"))
    path = folder / "steps"
    path.write_bytes(bytes(16))
    job = start_job(options.job, path)
    shares = {"defaults": [], "--fixed": [], "without": []}
    try:
        deadline = time.monotonic() + 120
        while progress(path) == 0:
            if time.monotonic() > deadline:
                sys.exit("the job did not begin within 120 s")
            time.sleep(0.1)
        time.sleep(2)
        for _ in range(options.rounds):
            # The shares of the blocks without a run say how far they differ among themselves.
            first = beside(options, None, path, folder)
            defaults = beside(options, [], path, folder)
            middle = beside(options, None, path, folder)
            fixed = beside(options, ["--fixed"], path, folder)
            last = beside(options, None, path, folder)
            shares["defaults"].append(2 * defaults / (first + middle))
            shares["--fixed"].append(2 * fixed / (middle + last))
            shares["without"].append(2 * middle / (first + last))
    finally:
        for process in job:
            process.kill()
    print(f"job {options.job}, {options.rounds} rounds of {options.block:g} s blocks, {options.settle:g} s settled; share of the throughput without a run")
    print(f"{'beside':<10}{'median':>8}{'quartiles':>18}{'least':>8}{'most':>8}")
    for name, values in shares.items():
        low, median, high = statistics.quantiles(values, n=4)
        print(f"{name:<10}{median:>8.3f}{low:>10.3f}{high:>8.3f}{min(values):>8.3f}{max(values):>8.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

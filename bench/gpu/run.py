#!/usr/bin/env python3
"""Jobs of NCCL in torch and JAX on one GPU, with their traces: nobody late, a late host, a late device; and what a session costs their steps.

    python bench/gpu/run.py FOLDER [CASE ...]

NCCL refuses two ranks on one device of one host. Given a host's name of its own, each rank is taken for a host with one GPU; they send over sockets, and the
kernels are those of any job. The ranks' kernels must run side by side, or each waits for the others' time slices: the CUDA multi-process service does that, and
this starts and ends one of its own. Wants torch, JAX with CUDA, and the package.

It does not judge (`probe_sync check` and `stragglers` do, on any machine) or assert.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
OURS = HERE.parent
SKEW = "inject_skew=7"

# Name → program, arguments after the case's folder, ranks, LATE, seconds.
CASES = {
    "torch": (HERE / "nccl_late.py", [SKEW], 4, "", 75),
    "torch_cpu": (HERE / "nccl_late.py", [SKEW], 4, "cpu", 75),
    "torch_gpu": (HERE / "nccl_late.py", [SKEW], 4, "gpu", 75),
    "jax": (OURS / "jax_late.py", [SKEW], 4, "", 75),
    "jax_cpu": (OURS / "jax_late.py", [SKEW], 4, "1", 75),
    "jax_mesh": (HERE / "jax_mesh.py", [SKEW], 4, "", 75),
    "stamps": (HERE / "stamps.py", [], 4, "", 75),
    "cost": (OURS / "step_cost.py", ["--pairs", "24", "--seconds", "2"], 2, "", 330),
}


def environment(rank, size, port, late):
    host = {"NCCL_HOSTID": f"host{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
    job = {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LATE": late}
    return os.environ | host | job | {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".05"}


def clock_beside(folder):
    """Builds and starts what compares the GPU's timer with the system clock."""
    built = str(folder / "clock.bin")
    subprocess.run(["nvcc", "-O2", "-o", built, str(HERE / "clock.cu")], check=True, timeout=120)
    with open(folder / "clock", "w") as output:
        return subprocess.Popen([built], stdin=subprocess.PIPE, stdout=output)


def run(case, folder, port):
    """Runs a case's ranks to their end, or ends them; whether all succeeded."""
    program, arguments, ranks, late, seconds = CASES[case]
    target = folder / case
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    if program.name.startswith("jax_"):
        arguments = [str(port), str(target), *arguments]
    elif program.name == "step_cost.py":
        arguments = ["nccl", str(target), *arguments]
    else:
        arguments = [str(target), *arguments]
    begun, processes = time.monotonic(), []
    clock = clock_beside(target) if case == "stamps" else None
    try:
        for rank in range(ranks):
            with open(folder / f"{case}.{rank}.log", "w") as log:
                command = [sys.executable, str(program), *arguments]
                processes.append(subprocess.Popen(command, env=environment(rank, ranks, port, late), stdout=log, stderr=subprocess.STDOUT))
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, begun + seconds - time.monotonic()))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        if clock is not None:
            clock.communicate(timeout=30)
    codes = [process.returncode for process in processes]
    print(f"{case}: exit statuses {codes} after {time.monotonic() - begun:.1f} s", flush=True)
    return not any(codes)


def main(folder, cases):
    service = shutil.which("nvidia-cuda-mps-control")
    if service is None:
        print("nvidia-cuda-mps-control is not there: ranks wait for each other's time slices, and what is late says little", flush=True)
    else:
        pipes = folder / "service"
        pipes.mkdir(parents=True, exist_ok=True)
        os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(pipes)}
        subprocess.run([service, "-d"], check=True)
    try:
        done = [run(case, folder, 20100 + 10 * number) for number, case in enumerate(cases or CASES)]
    finally:
        if service is not None:
            subprocess.run([service], input="quit\n", text=True, timeout=30)
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]))

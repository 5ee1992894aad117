"""A loop of Hugging Face Accelerate whose traces end on one clock.

    torchrun --nproc-per-node 4 examples/accelerate_loop.py FOLDER [KEY=VALUE ...]

`accelerate launch` starts it as well; without GPUs it starts one process. The lines that mention probe_sync are all that is added. KEY=VALUE are
settings of probe_sync, as `inject_skew=7`.
"""

import sys
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import ProfileKwargs

import probe_sync

STEPS = 40


def main(folder: str, settings: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    handler = probe_sync.torch.trace_handler(folder, merge="inject_skew" not in settings, **settings)
    accelerator.profile_handler = ProfileKwargs(activities=["cpu"], on_trace_ready=handler)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    with accelerator.profile():
        for _ in range(STEPS):
            optimizer.zero_grad()
            accelerator.backward(model(torch.randn(64, 256)).square().mean())
            optimizer.step()
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1], dict(argument.split("=", 1) for argument in sys.argv[2:]))

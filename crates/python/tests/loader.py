"""A torch job that forks while it is measured: `torchrun loader.py FOLDER`; two workers of a DataLoader are forked anew in every epoch."""

import os
import sys

import torch
import torch.distributed as dist

import probe_sync

EPOCHS = 3


class Squares(torch.utils.data.Dataset):
    """Each item is computed in a worker, and says how many sockets of the parent that one holds."""

    def __len__(self):
        return 32

    def __getitem__(self, index):
        links = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{number}")]
        return torch.tensor([float(index) ** 2, float(sum(link.startswith("socket:") for link in links))])


def main(folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    before = sum(Squares()[0][1:].tolist())
    handler = probe_sync.torch.trace_handler(folder)
    most = 0.0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], on_trace_ready=handler):
        for _ in range(EPOCHS):
            for batch in torch.utils.data.DataLoader(Squares(), batch_size=8, num_workers=2, multiprocessing_context="fork"):
                most = max(most, float(batch[:, 1].max()))
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
    # torch's own sockets are there before the session and in every worker, with one of multiprocessing's.
    print(f"sockets: {before:.0f} before the session, at most {most:.0f} in a worker", file=sys.stderr)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])

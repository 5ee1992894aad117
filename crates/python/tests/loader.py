"""A torch job that forks while it is measured: `torchrun loader.py FOLDER`; two workers of a DataLoader are forked anew in every epoch.

With `torchrun loader.py FOLDER fail` rank 1 raises an error in the second epoch.
"""

import os
import pathlib
import sys

import torch
import torch.distributed as dist

import probe_sync

EPOCHS = 3


def sockets(process):
    """The inodes of a process's sockets; what is closed meanwhile is not one of them."""
    found = set()
    for number in os.listdir(f"/proc/{process}/fd"):
        try:
            kind, _, inode = os.readlink(f"/proc/{process}/fd/{number}").partition(":")
        except FileNotFoundError:
            continue
        if kind == "socket":
            found.add(inode.strip("[]"))
    return found


class Squares(torch.utils.data.Dataset):
    """Each item is computed in a worker, and says how many sockets that one holds which the parent has opened since the session began."""

    def __init__(self):
        self.torchs = sockets("self")

    def __len__(self):
        return 32

    def __getitem__(self, index):
        kept = sockets("self") & sockets(os.getppid()) - self.torchs
        for inode in kept:
            lines = [f"{table.name}: {line}" for table in pathlib.Path("/proc/self/net").iterdir() for line in rows(table) if inode in line.split()]
            print(f"a worker holds socket {inode}: {lines}", file=sys.stderr)
        return torch.tensor([float(index) ** 2, float(len(kept))])


def rows(table):
    try:
        return table.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def main(folder, fail=""):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    squares = Squares()
    most = 0.0
    handler = probe_sync.torch.trace_handler(folder)
    opened = len(sockets("self") - squares.torchs)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], on_trace_ready=handler):
        for epoch in range(EPOCHS):
            for batch in torch.utils.data.DataLoader(squares, batch_size=8, num_workers=2, multiprocessing_context="fork"):
                most = max(most, float(batch[:, 1].max()))
                if fail and epoch == 1 and dist.get_rank() == 1:
                    raise ArithmeticError("rank 1 has had enough")
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
    print(f"sockets: {opened} of the session, at most {most:.0f} of them in a worker", file=sys.stderr)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

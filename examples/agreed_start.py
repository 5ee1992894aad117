"""Ranks that begin at one instant, to within what their clocks are known to.

    torchrun --nproc-per-node 2 examples/agreed_start.py FOLDER

Rank 0 names a time of the reference's clock, the job carries it, and all ranks wait for it. Each then says how late it was by its own clock, and how sure that is.
"""

import sys

import torch.distributed as dist

import probe_sync

SECOND_NS = 1_000_000_000


def main(folder: str) -> None:
    dist.init_process_group("gloo")
    with probe_sync.start(group=probe_sync.from_torch(), out=folder) as session:
        session.wait_until_bound(1_000, timeout=60)
        start = [session.clock.now().latest + SECOND_NS]
        dist.broadcast_object_list(start, src=0)
        session.clock.wait_until(start[0], timeout=10)
        begun = session.clock.now()
        print(f"rank {session.state.rank}: {begun.time - start[0]} ns after the start, to within ±{begun.bound95} ns in 95 %", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])

"""One rank of a test: `worker.py ADAPTER FOLDER`; writes what it saw into FOLDER/rankN.json."""

import itertools
import json
import os
import pathlib
import sys
import time

import probe_sync


def by_file(folder):
    """The id through a file, as any launcher could carry it."""
    rank, size, path = int(os.environ["WORKER"]), int(os.environ["WORKERS"]), folder / "id"
    if rank == 0:
        meeting = probe_sync.Meeting()
        partial = folder / "id.partial"
        partial.write_bytes(meeting.unique_id)
        partial.rename(path)
        return probe_sync.Group(rank, size, meeting.unique_id, meeting)
    while not path.exists():
        time.sleep(0.01)
    return probe_sync.Group(rank, size, path.read_bytes())


def by_hosts(_folder):
    hosts = ["127.0.0.1"] * int(os.environ["WORKERS"])
    return probe_sync.from_hosts(hosts, int(os.environ["WORKER"]), int(os.environ["PORT"]), key="a secret of this job")


def by_jax(_folder):
    import jax

    jax.distributed.initialize(
        f"127.0.0.1:{os.environ['PORT']}", num_processes=int(os.environ["WORKERS"]), process_id=int(os.environ["WORKER"])
    )
    return probe_sync.from_jax()


def by_torch(_folder):
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    return probe_sync.from_env() if "RANK" in os.environ else probe_sync.from_torch()


ADAPTERS = {
    "file": by_file,
    "hosts": by_hosts,
    "env": lambda _folder: probe_sync.from_env(),
    "mpi4py": lambda _folder: probe_sync.from_mpi4py(),
    "jax": by_jax,
    "torch": by_torch,
}


def main(adapter, folder):
    group = ADAPTERS[adapter](folder)
    settings = {"window": "250ms", "inject_skew": 7, "tracer_clock": "none"}
    with probe_sync.start(settings, group=group, out=folder / "out") as session:
        session.wait_until_bound(1_000_000, timeout=60)
        rounds = [
            {
                "number": seen.number,
                "reference": seen.reference,
                "midpoint_ns": seen.midpoint_ns,
                "offset_ns": seen.offset_ns.tolist(),
                "bound_lo_ns": seen.bound_lo_ns.tolist(),
                "bound_hi_ns": seen.bound_hi_ns.tolist(),
            }
            for seen in itertools.islice(session.rounds(timeout=30), 3)
        ]
        if session.state.node != session.round.reference:
            try:
                session.wait_until_bound(0, timeout=60)
            except probe_sync.BoundUnreachable as error:
                assert "a bound of ±0 ns cannot be reached" in str(error), error
            else:
                raise AssertionError("no link shows a clock to 0 ns")
            (folder / f"refused{group.rank}").touch()
        # Who stops first ends the session of all.
        end = time.monotonic() + 60
        while len(list(folder.glob("refused*"))) < group.size - 1 and time.monotonic() < end:
            time.sleep(0.05)
        state = session.state
        report = session.stop(timeout=30)
    assert state.phase == "measuring" and state.rank == group.rank and state.nodes == group.size, state
    told = {"rank": group.rank, "rounds": rounds, "report": report}
    # mpirun would mix what ranks print.
    (folder / f"rank{group.rank}.json").write_text(json.dumps(told))


main(sys.argv[1], pathlib.Path(sys.argv[2]))

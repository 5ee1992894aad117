"""One rank of a test: `worker.py ADAPTER FOLDER`; writes what it saw into FOLDER/rankN.json."""

import contextlib
import fcntl
import itertools
import json
import os
import pathlib
import sys
import time

import probe_sync
from probe_sync import _carried


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


def over_jax(folder):
    by_jax(folder)
    return probe_sync.over_jax()


def over_torch(_folder):
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    return probe_sync.over_torch()


class Folder:
    """A store of files."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, key):
        return self.folder / key.replace("/", ".")

    def increment(self, key):
        with open(self.path(key + "#"), "a+b") as counter:
            fcntl.flock(counter, fcntl.LOCK_EX)
            counter.write(b".")
            counter.flush()
            return counter.tell()

    def put(self, key, value):
        partial = self.path(f"partial.{os.getpid()}.{key}")
        partial.write_bytes(value)
        partial.rename(self.path(key))

    def take(self, key, timeout_s):
        end, path = time.monotonic() + timeout_s, self.path(key)
        while not path.exists():
            if time.monotonic() > end:
                return None
            time.sleep(0.005)
        value = path.read_bytes()
        path.unlink()
        return value


def over_files(folder):
    (folder / "store").mkdir(exist_ok=True)
    return _carried._carry(int(os.environ["WORKER"]), int(os.environ["WORKERS"]), "job", Folder(folder / "store"))


ADAPTERS = {
    "file": by_file,
    "hosts": by_hosts,
    "env": lambda _folder: probe_sync.from_env(),
    "mpi4py": lambda _folder: probe_sync.from_mpi4py(),
    "jax": by_jax,
    "torch": by_torch,
    "over_files": over_files,
    "over_jax": over_jax,
    "over_torch": over_torch,
}


def listeners():
    """The TCP ports at which this process listens."""
    ports = {}
    for family in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/self/net/{family}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                ports[f"socket:[{fields[9]}]"] = int(fields[1].rpartition(":")[2], 16)
    opened = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            opened.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return {port for socket, port in ports.items() if socket in opened}


def main(adapter, folder):
    before = listeners()
    group = ADAPTERS[adapter](folder)
    if adapter.startswith("over_"):
        before = listeners()
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
        if adapter.startswith("over_"):
            assert listeners() == before, (listeners(), before)
        elif group.rank == 0:
            assert listeners() - before, "rank 0 listens for the others"
        report = session.stop(timeout=30)
    assert state.phase == "measuring" and state.rank == group.rank and state.nodes == group.size, state
    told = {"rank": group.rank, "rounds": rounds, "report": report}
    # mpirun would mix what ranks print.
    (folder / f"rank{group.rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))

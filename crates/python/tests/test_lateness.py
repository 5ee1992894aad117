"""Which rank is late, as every rank of a job sees it by `arrive` and `late`."""

import json
import pathlib
import socket
import subprocess
import sys
import time
import timeit
import unittest

import probe_sync
from common import LIMIT_S, Folder, clean
from probe_sync import _flight_recorder

RANKS = 3

# A rank that waits for the others in every step; what the next step is like comes from the test:
# (U)sual, (L)ate, (E)nd.
LOOP = """
import json, pathlib, socket, sys, time
import probe_sync
from probe_sync import record

rank, size, port, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), pathlib.Path(sys.argv[4])
identity = folder / "id"
if rank == 0:
    group = {"meeting": probe_sync.Meeting()}
    (folder / "partial").write_bytes(group["meeting"].unique_id)
    (folder / "partial").rename(identity)
else:
    while not identity.exists():
        time.sleep(0.01)
    group = {"unique_id": identity.read_bytes()}
settings = {"window": "500ms", "inject_skew": 7, "tracer_clock": "none"}
with probe_sync.start(settings, out=folder / "out", rank=rank, size=size, **group) as session:
    session.wait_until_bound(1_000_000, timeout=60)
    if rank == 1:
        session.observe_collectives()
    barrier = socket.create_connection(("127.0.0.1", port))
    barrier.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    kind, step = b"U", 0
    while kind != b"E":
        time.sleep(0.03 if kind == b"L" and rank == 1 else 0.02)
        if rank == 1:
            with record.collective("all_reduce", group="grads", sequence=step):
                pass
        else:
            session.arrive("grads", step)
        barrier.sendall(str(session.late())[:1].encode() or b"-")
        kind, step = barrier.recv(1), step + 1
    late = session.late()
    (folder / f"rank{rank}.json").write_text(json.dumps([str(late), [[one.rank, one.times] for one in late.late]]))
"""


class Lateness(Folder):
    def test_every_rank_sees_who_is_late(self):
        """Some ten seconds: members are known after three, and a verdict takes some twenty steps."""
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        command = [sys.executable, "-c", LOOP]
        own = [str(RANKS), str(server.getsockname()[1]), str(self.folder)]
        ranks = [subprocess.Popen([*command, str(rank), *own], env=clean()) for rank in range(RANKS)]
        for rank in ranks:
            self.addCleanup(rank.kill)
        barrier = [server.accept()[0] for _ in ranks]
        for rank in barrier:
            self.addCleanup(rank.close)
        begun, seen = time.monotonic(), []
        while seen != [b"l"] * RANKS and time.monotonic() - begun < LIMIT_S:
            seen = [rank.recv(1) for rank in barrier]
            usual = time.monotonic() - begun < 4
            self.assertFalse(usual and seen != [b"-"] * RANKS, seen)
            for rank in barrier:
                rank.sendall(b"U" if usual else b"L")
        for rank in barrier:
            rank.recv(1)
            rank.sendall(b"E")
        self.assertEqual([rank.wait(LIMIT_S) for rank in ranks], [0] * RANKS)
        for rank in range(RANKS):
            text, late = json.loads((self.folder / f"rank{rank}.json").read_text())
            self.assertEqual([who for who, _ in late], [1])
            self.assertRegex(text, r"^late: rank 1 on \S+: \d+ of \d+ operations of grads, by \d+\.\d [mµ]s ± ")
        lines = [json.loads(line) for line in pathlib.Path(self.folder / "out/late.jsonl").read_text().splitlines()]
        self.assertEqual([(line["schema"], line["event"], line["late"]["rank"]) for line in lines if "late" in line][:1], [(1, "begun", 1)])

    def test_an_arrival_costs_little_and_a_flood_is_dropped(self):
        with probe_sync.start(window="250ms", tracer_clock="none", out=self.folder / "out") as session:
            arrive = session.arrive
            took = min(timeit.repeat(lambda: arrive("grads", 1), number=2000, repeat=5)) / 2000
            print(f"{self.id()}: {took * 1e9:.0f} ns, a Python function around it included")
            for _ in range(40_000):
                arrive("grads", 2)
            self.assertEqual(str(session.late()), "")
            for wrong in ((1, 1), ("grads", -1), ("grads",)):
                self.assertRaises((TypeError, OverflowError), arrive, *wrong)


class FlightRecorder(unittest.TestCase):
    """What is new in dumps of torch's Flight Recorder, as torch 2.8 writes them."""

    def test_only_new_collectives_are_reported_and_lost_ones_counted(self):
        reader = _flight_recorder.Reader(lambda _collectives, _active: b"{}")
        reader.skip()
        group = "all_reduce (default_pg)"

        def entry(record, sequence, operation="gloo:all_reduce", **other):
            return {
                "record_id": record,
                "collective_seq_id": sequence,
                "profiling_name": operation,
                "process_group": ["0", "default_pg"],
                "time_created_ns": 1000 + record,
                "is_p2p": False,
                **other,
            }

        def check(entries, expected, lost):
            arrivals = []
            self.assertEqual(reader.take(json.dumps(entries and {"entries": entries}).encode(), arrivals), lost)
            self.assertEqual(arrivals, expected)

        check({}, [], 0)
        check([entry(0, 1), entry(1, 2, "gloo:broadcast"), entry(2, 3)], [(group, 1, 1000), (group, 3, 1002)], 0)
        check([entry(1, 2), entry(2, 3)], [], 0)
        check([entry(2, 3), entry(3, 4, is_p2p=True), entry(4, 5, time_created_ns=None), entry(5, 6, "nccl:_all_gather_base")], [("_all_gather_base (default_pg)", 6, 1005)], 0)
        # Entries 6 and 7 were overwritten.
        check([entry(8, 9), entry(9, 10)], [(group, 9, 1008), (group, 10, 1009)], 2)
        # Torch has emptied the ring.
        check([entry(0, 11)], [(group, 11, 1000)], 0)
        check([entry(0, 11)], [], 0)


if __name__ == "__main__":
    unittest.main()

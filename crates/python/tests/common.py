"""What the tests of the package share: ranks as real processes, known truth, the command line to compare with.

The tests need `probe_sync` installed; `cargo xtask python` does that and runs them. What a machine lacks is skipped with its reason.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DATA = ROOT.parent / "shared/data"
# Built by `cargo xtask test` before this runs; alone, `cargo build` makes it.
CLI = pathlib.Path(os.environ.get("PROBE_SYNC_CLI", ROOT / "target/debug/probe_sync"))
RANKS = 4
LIMIT_S = 120


def data(name):
    """A folder of recorded traces, or a skip."""
    folder = DATA / name
    if not folder.is_dir():
        raise unittest.SkipTest(f"no recorded traces at {folder}")
    return folder


def cli(*arguments):
    """Runs the command line; its exit status, and what it printed."""
    if not CLI.exists():
        raise unittest.SkipTest(f"{CLI} is not built; run cargo build")
    done = subprocess.run([CLI, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S)
    return done.returncode, done.stdout + done.stderr


class Folder(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ranks(self, adapter, environments, *, python=sys.executable, prefix=()):
        """Runs `worker.py` as ranks; what each saw, by rank."""
        command = [*prefix, python, str(HERE / "worker.py"), adapter, str(self.folder)]
        processes = [
            subprocess.Popen(command, env={**clean(), **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for environment in environments
        ]
        try:
            for process in processes:
                _, error = process.communicate(timeout=LIMIT_S)
                self.assertEqual(process.returncode, 0, error)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        told = [json.loads(path.read_text()) for path in self.folder.glob("rank*.json")]
        return sorted(told, key=lambda rank: rank["rank"])

    def judge(self, told):
        """Every rank has seen the same rounds, and every offset is within its hard interval of the truth."""
        self.assertEqual([rank["rank"] for rank in told], list(range(RANKS)))
        by_number = {}
        for rank in told:
            for seen in rank["rounds"]:
                self.assertEqual(by_number.setdefault(seen["number"], seen), seen)
        clocks = json.loads((self.folder / "out/truth.json").read_text())["nodes"]
        judged = 0
        for seen in by_number.values():
            if seen["number"] == 0:
                continue
            for node in range(1, RANKS):
                true = true_offset_ns(clocks, node, seen["reference"], seen["midpoint_ns"])
                self.assertLessEqual(seen["bound_lo_ns"][node], true)
                self.assertGreaterEqual(seen["bound_hi_ns"][node], true)
                self.assertLess(abs(seen["offset_ns"][node] - true), 20_000)
                judged += 1
        self.assertGreater(judged, 0)
        self.assertIsNotNone(told[0]["report"])
        self.assertEqual(told[0]["report"]["truth"]["outside_hard_interval"], 0)
        self.assertTrue(all(rank["report"] is None for rank in told[1:]))


def clean():
    """This environment without what launchers put into it."""
    names = ("RANK", "WORLD_SIZE", "MASTER_", "TORCHELASTIC_", "OMPI_", "PMI", "SLURM_", "PROBE_SYNC_")
    return {name: value for name, value in os.environ.items() if not name.startswith(names)}


def error_ns(clock, at_ns):
    """How far a virtual clock is ahead at a true time."""
    seconds = (at_ns - clock["t0_ns"]) * 1e-9
    return clock["off_ns"] + clock["ppm"] * 1e3 * seconds


def true_offset_ns(clocks, node, reference, midpoint_ns):
    """A node's clock minus the reference's when that shows `midpoint_ns`."""
    of_reference = clocks[str(reference)]
    at_ns = midpoint_ns
    for _ in range(3):
        at_ns = midpoint_ns - round(error_ns(of_reference, at_ns))
    return error_ns(clocks[str(node)], at_ns) - error_ns(of_reference, at_ns)

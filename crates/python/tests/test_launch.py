"""How ranks meet: four real processes by every adapter that this machine has a launcher for, and environments that are not clear."""

import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import types
import unittest
from unittest import mock

import probe_sync
from common import HERE, LIMIT_S, RANKS, Folder, clean
from probe_sync import launch


def free_port():
    """One whose successor is free too, where torchrun's MASTER_PORT makes it ours; below those that Linux gives to outgoing connections."""
    for port in random.sample(range(20000, 32000), 100):
        try:
            for number in (port, port + 1):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
            return port
        except OSError:
            continue
    raise OSError("no free port on loopback")


class Launchers(Folder):
    """Every rank sees every round, and all offsets are right."""

    def workers(self, **more):
        return [{"WORKER": str(rank), "WORKERS": str(RANKS), **more} for rank in range(RANKS)]

    def test_an_id_through_a_file(self):
        self.judge(self.ranks("file", self.workers()))

    def test_a_list_of_hosts(self):
        self.judge(self.ranks("hosts", self.workers(PORT=str(free_port()))))

    def test_variables_as_torchrun_sets_them(self):
        # Its store would have MASTER_PORT.
        both = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "TORCHELASTIC_RUN_ID": "7", "WORLD_SIZE": str(RANKS)}
        self.judge(self.ranks("env", [{"RANK": str(rank), **both} for rank in range(RANKS)]))

    def under_mpirun(self, adapter, mpirun="mpirun", **more):
        if shutil.which(mpirun) is None:
            self.skipTest(f"{mpirun} is not installed")
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        return self.ranks(adapter, [{**allowed, **more}], prefix=[mpirun, "-n", str(RANKS)])

    def need_mpi4py(self):
        try:
            import mpi4py  # noqa: F401
        except ImportError as error:
            self.skipTest(str(error))

    def test_variables_of_open_mpi(self):
        self.judge(self.under_mpirun("env", PROBE_SYNC_MASTER_PORT=str(free_port())))

    def test_a_communicator_of_mpi4py(self):
        self.need_mpi4py()
        self.judge(self.under_mpirun("mpi4py"))

    def test_a_communicator_of_mpi4py_over_mpich(self):
        self.need_mpi4py()
        found = sorted(pathlib.Path("/usr/lib").glob("*/libmpich.so.12"))
        if not found:
            self.skipTest("no libmpich.so.12; on Debian: apt-get install mpich")
        # mpi4py's wheel looks for MPICH under the name of its common interface, which Debian's
        # package has not.
        (self.folder / "mpich").mkdir()
        (self.folder / "mpich/libmpi.so.12").symlink_to(found[0])
        self.judge(self.under_mpirun("mpi4py", "mpirun.mpich", LD_LIBRARY_PATH=str(self.folder / "mpich"), MPI4PY_MPIABI="mpich"))

    def test_rounds_through_a_store_of_files(self):
        self.judge(self.ranks("over_files", self.workers()))


    def test_a_rank_that_is_lost_ends_the_session_of_a_store_by_name(self):
        code = (
            "import os, pathlib, probe_sync, worker\n"
            f"group = worker.over_files(pathlib.Path({str(self.folder)!r}))\n"
            "settings = {'window': '250ms', 'tracer_clock': 'none', 'round_timeout': '2s', 'per_rank': True}\n"
            f"session = probe_sync.start(settings, group=group, out={str(self.folder / 'out')!r})\n"
            "session.next_round(timeout=60)\n"
            "if group.rank == 2:\n"
            "    os._exit(0)\n"
            "try:\n"
            "    list(session.rounds(timeout=60))\n"
            "except probe_sync.SessionFailed as error:\n"
            "    print(error)\n"
            "try:\n"
            "    probe_sync.start(settings, group=group)\n"
            "except probe_sync.ConfigError as error:\n"
            "    print(error)\n"
        )
        command = [sys.executable, "-c", code]
        environment = {**clean(), "PYTHONPATH": str(HERE), "WORKERS": "3"}
        ranks = [
            subprocess.Popen(command, env={**environment, "WORKER": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for rank in range(3)
        ]
        told = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
        for rank in (0, 1):
            self.assertIn("no data from rank(s) 2", told[rank])
            self.assertIn("this group was already used", told[rank])
        self.assertEqual([rank.returncode for rank in ranks], [0, 0, 0], told)


class Protocols(unittest.TestCase):
    """What is asked of torch and jax, where they are not installed: stand-ins that keep what rank 0 gives."""

    def test_torch_broadcasts_from_the_first_rank_of_the_group(self):
        carried = []

        def broadcast(objects, src, group):
            self.assertEqual((src, group), (5, "a group"))
            if objects[0] is None:
                objects[0] = carried[0]
            else:
                carried.append(objects[0])

        for rank in range(2):
            distributed = types.SimpleNamespace(
                is_available=lambda: True,
                is_initialized=lambda: True,
                get_rank=lambda _group, rank=rank: rank,
                get_world_size=lambda _group: 2,
                get_global_rank=lambda _group, _rank: 5,
                broadcast_object_list=broadcast,
            )
            with mock.patch.dict(sys.modules, {"torch.distributed": distributed, "torch": types.ModuleType("torch")}):
                group = probe_sync.from_torch("a group")
            self.assertEqual((group.rank, group.size, group.unique_id), (rank, 2, carried[0]))
            self.assertEqual(group.meeting is not None, rank == 0)

    def test_what_is_not_there_or_not_begun_is_said(self):
        for name in ("torch", "jax"):
            with mock.patch.dict(sys.modules, {name: None, f"{name}.profiler": None}):
                sys.modules.pop(f"probe_sync.{name}", None)
                with self.assertRaisesRegex(probe_sync.ConfigError, f"probe_sync.{name}: {name} cannot be imported .* install {name}"):
                    getattr(probe_sync, name)
        missing = dict.fromkeys(["torch", "torch.distributed", "jax", "jax._src", "jax._src.distributed", "mpi4py", "mpi4py.MPI"])
        for adapter in (probe_sync.from_torch, probe_sync.from_jax, probe_sync.from_mpi4py):
            with mock.patch.dict(sys.modules, missing), self.assertRaisesRegex(probe_sync.ConfigError, "install it"):
                adapter()
        idle = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False)
        with mock.patch.dict(sys.modules, {"torch.distributed": idle, "torch": types.ModuleType("torch")}):
            with self.assertRaisesRegex(probe_sync.ConfigError, "init_process_group"):
                probe_sync.from_torch()


class Environments(unittest.TestCase):
    """Whose variables count, and what is refused."""

    def check(self, environ, expected):
        if isinstance(expected, str):
            with self.assertRaisesRegex(probe_sync.ConfigError, expected):
                probe_sync.from_env(environ)
        else:
            self.assertEqual(launch._place(environ)[:2], expected)

    def test_the_launchers(self):
        torchrun = {"RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "x"}
        open_mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
        slurm = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_ID": "0"}
        self.check(torchrun, (3, 8))
        self.check(open_mpi, (1, 2))
        self.check({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2))
        self.check(slurm, (0, 4))
        self.check({**torchrun, **open_mpi}, (3, 8))
        self.check({**open_mpi, **slurm}, (1, 2))
        self.check({**open_mpi, "RANK": "1", "WORLD_SIZE": "2"}, (1, 2))

    def test_what_is_not_clear_is_refused_with_what_to_do(self):
        open_mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
        self.check({}, "start the ranks with torchrun, mpirun or srun")
        self.check({"RANK": "1"}, "set RANK and WORLD_SIZE")
        self.check({"RANK": "x", "WORLD_SIZE": "2"}, "whole numbers")
        self.check({"RANK": "2", "WORLD_SIZE": "2"}, "numbered from 0 to size - 1")
        self.check({"RANK": "0", "WORLD_SIZE": "2", **open_mpi}, "unset the wrong variables")
        self.check({"RANK": "0", "WORLD_SIZE": "2"}, "set MASTER_ADDR")
        self.check({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}, "set PROBE_SYNC_MASTER_PORT")
        self.check({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "ssh"}, "a port number")
        self.check({"PMIX_RANK": "0"}, "from_mpi4py")
        self.check({**open_mpi, "PROBE_SYNC_MASTER_PORT": "1"}, "set MASTER_ADDR")
        self.check({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"}, "start the ranks with srun")

    def test_where_slurm_has_rank_0(self):
        for nodes, first in (("a3,a4", "a3"), ("gpu[03-05,9],b", "gpu03"), ("n[7]-ib", "n7-ib"), ("x-1.y", "x-1.y")):
            self.assertEqual(launch._first_host(nodes), first)
        with self.assertRaisesRegex(probe_sync.ConfigError, "MASTER_ADDR"):
            launch._first_host("r[1-2]n[3-4]")
        slurm = {"SLURM_STEP_NODELIST": "a[1-2]", "SLURM_JOB_ID": "4097"}
        self.assertEqual(launch._address(slurm, "Slurm", 4), "a1")
        self.assertEqual(launch._port(slurm, "Slurm"), 61440 + 2049)
        with self.assertRaisesRegex(probe_sync.ConfigError, "MASTER_ADDR"):
            launch._address({**slurm, "SLURM_DISTRIBUTION": "arbitrary"}, "Slurm", 4)


if __name__ == "__main__":
    unittest.main()

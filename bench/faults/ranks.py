#!/usr/bin/env python3
"""Starts the ranks of one cell over one way of talking, hurts them, and reads what they said.

`cells.py` says what is done to whom; this does it. The hosts are made once for each way of talking and used by its cells one after the other.
It does not judge.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTS = ROOT / "bench/hosts/hosts.sh"
PROXY = pathlib.Path(__file__).resolve().parent / "proxy.py"
TCP_PORT = 29890
UDP_PORT = 29990
PROXY_PORT = 29999
TCP_RANKS, MPI_RANKS = 7, 5
DURATION_S, WINDOW_S, ROUND_TIMEOUT_S = 16.0, 0.5, 2.0
# A run in which a fault is to be noticed by those who wait longest, or in which ranks come back.
LONG_S = 32.0
LEAVE_ID = 'echo $$ > "$1/${OMPI_COMM_WORLD_RANK}"; shift; exec "$0" "$@"'
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MPIRUN_TIMEOUT_S = 70
# How ranks are named as lost, by the command and by mpirun.
NAMES = [r"no data from rank\(s\) ([\d, ]+) within", r"lost rank (\d+)", r"mpirun noticed that process rank (\d+)"]


class Launch:
    """Hosts for one way of talking."""

    def __init__(self, backend, options):
        self.backend, self.options, self.tcp = backend, options, backend in ("star", "tree")
        self.size = TCP_RANKS if self.tcp else MPI_RANKS
        self.name = f"psf{backend}"
        self.environment = os.environ | {"HOSTS_NAME": self.name, "HOSTS_TIMEOUT": str(MPIRUN_TIMEOUT_S), "PROBE_SYNC_JOB": "faults", "PROBE_SYNC_RENDEZVOUS_TIMEOUT": "8s"}
        if backend != "ulfm":
            subprocess.run([HOSTS, "up", str(self.size)], env=self.environment, check=True, timeout=120)

    def close(self):
        if self.backend != "ulfm":
            subprocess.run([HOSTS, "down"], env=self.environment, check=False, timeout=120)


class Ranks:
    """The processes of one cell."""

    def __init__(self, launch, folder, extra, seconds):
        self.launch, self.size, self.folder = launch, launch.size, folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # A folder of its own, so that a small file system can be mounted on it.
        self.disk = folder / "disk"
        self.disk.mkdir()
        self.run = self.disk / "run"
        self.words = [str(launch.options.program), "run", "--fixed", "--window", f"{int(WINDOW_S * 1e3)}ms", "--round-timeout", f"{int(ROUND_TIMEOUT_S * 1e3)}ms", "--inject-skew", "7",
                      "--tracer-clock", "none", "--duration", f"{int(seconds)}s", "--json", "--out", str(self.run), *extra]
        self.processes, self.earlier, self.helpers, self.mounted, self.killed = {}, {}, [], False, set()
        self.told = 0

    def host(self, rank):
        return f"{self.launch.name}{rank + 1}"

    def log(self, rank):
        return self.folder / (f"rank{rank}.log" if self.launch.tcp else "job.log")

    def start(self, late=()):
        """All of them, but those that are to come late."""
        if self.launch.tcp:
            return [self.start_rank(rank) for rank in range(self.size) if rank not in late]
        ids = self.folder / "ids"
        ids.mkdir()
        with self.log(0).open("wb") as log, (self.folder / "rank0.out").open("wb") as out:
            if self.launch.backend == "mpi":
                command, environment = [HOSTS, "mpirun", str(self.size), "sh", "-c", LEAVE_ID, self.words[0], str(ids), *self.words[1:]], self.launch.environment
            else:
                ulfm = self.launch.options.ulfm
                command = [ulfm / "bin/mpirun", "--timeout", str(MPIRUN_TIMEOUT_S), "--with-ft", "ulfm", "--oversubscribe", "-n", str(self.size), "sh", "-c", LEAVE_ID, self.words[0], str(ids), *self.words[1:],
                           "--per-rank"]
                environment = self.launch.environment | MPI_ENVIRONMENT | {"LD_LIBRARY_PATH": str(ulfm / "lib")}
            self.processes[0] = subprocess.Popen(command, env=environment, stdout=out, stderr=log)

    def start_rank(self, rank):
        """Over TCP: one process, also in the place of an earlier one."""
        place = {"RANK": str(rank), "WORLD_SIZE": str(self.size), "MASTER_ADDR": "10.78.0.2", "MASTER_PORT": str(TCP_PORT), "PROBE_SYNC_TCP_FANOUT": "2" if self.launch.backend == "tree" else "star"}
        if rank in self.processes:
            self.earlier.setdefault(rank, []).append(self.processes[rank].poll())
        with self.log(rank).open("ab") as log, (self.folder / f"rank{rank}.out").open("ab") as out:
            self.processes[rank] = subprocess.Popen([HOSTS, "enter", self.host(rank), *self.words], env=self.launch.environment | place, stdout=out, stderr=log)

    def pid(self, rank):
        """The process that is this rank; none where it has ended."""
        if self.launch.tcp:
            return self.processes[rank].pid if self.processes[rank].poll() is None else None
        pid = int((self.folder / "ids" / str(rank)).read_text())
        return pid if pathlib.Path(f"/proc/{pid}").exists() else None

    def signal(self, rank, number):
        if number == signal.SIGKILL:
            self.killed.add(rank)
        if (pid := self.pid(rank)) is not None:
            os.kill(pid, number)

    def rules(self, rank, rules):
        """nft's rules on a rank's host, in a table of ours."""
        done = subprocess.run(["ip", "netns", "exec", self.host(rank), "nft", "-f", "-"], input=f"table inet faults {{\n{rules}\n}}\n", capture_output=True, text=True, timeout=20)
        if done.returncode:
            raise OSError(f"nft on {self.host(rank)}: {done.stderr.strip()}")

    def drop(self, rank, ways, what):
        """Drops packets, as in "ip saddr 10.78.0.3"; an empty text is all of them."""
        self.rules(rank, "\n".join(f"chain {way} {{ type filter hook {way} priority 0; {'iifname' if way == 'input' else 'oifname'} eth0 {what} drop; }}" for way in ways))

    def no_rules(self, rank):
        subprocess.run(["ip", "netns", "exec", self.host(rank), "nft", "delete", "table", "inet", "faults"], capture_output=True, timeout=20)

    def link(self, rank, state):
        subprocess.run(["ip", "-n", self.host(rank), "link", "set", "eth0", state], check=True, timeout=20)

    def proxy(self, rank):
        """All that the rank connects to goes through a proxy on its host from its start on."""
        process = subprocess.Popen(["ip", "netns", "exec", self.host(rank), "python3", str(PROXY), str(PROXY_PORT)])
        self.helpers.append(process)
        self.rules(rank, f"chain nat {{ type nat hook output priority -100; oifname != \"lo\" meta mark != 7 meta l4proto tcp redirect to :{PROXY_PORT}; }}")
        time.sleep(0.5)
        return process

    def mount(self):
        """A file system of 8 MiB where the run's files go."""
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(self.disk)], check=True, timeout=20)
        self.mounted = True

    def fill(self):
        """Nothing more fits."""
        with (self.disk / "ballast").open("wb", buffering=0) as file:
            size = 1 << 16
            while size:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2

    def rounds_so_far(self):
        try:
            return (self.run / "global_windows.jsonl").read_bytes().count(b"\n")
        except OSError:
            return 0

    def rounds_of(self, rank):
        """Rounds that a rank has led in another's place."""
        folders = self.run.glob(f"rank{rank}-from-round*/global_windows.jsonl")
        return sum(path.read_bytes().count(b"\n") for path in folders)

    def said(self, ranks):
        """What these ranks have written to their logs."""
        logs = sorted({self.log(rank) for rank in ranks})
        return "".join(log.read_text(errors="replace") for log in logs if log.exists())

    def named(self, ranks):
        """The ranks that these ranks called lost."""
        text = self.said(ranks)
        return {int(number) for pattern in NAMES for match in re.findall(pattern, text) for number in match.split(",")}

    def running(self):
        return [rank for rank, process in self.processes.items() if process.poll() is None]

    def end(self):
        """Everything of ours that still runs, and what was done to the hosts."""
        pids = [] if self.launch.tcp else [int(path.read_text() or 0) for path in (self.folder / "ids").glob("*")]
        for process in [*self.processes.values(), *self.helpers]:
            if process.poll() is None:
                process.kill()
            process.wait()
        for pid in pids:
            comm = pathlib.Path(f"/proc/{pid}/comm")
            if comm.exists() and comm.read_text().strip() == "probe_sync":
                os.kill(pid, signal.SIGKILL)
        if self.launch.backend != "ulfm":
            for rank in range(self.size):
                self.no_rules(rank)
                self.link(rank, "up")
        if self.mounted:
            copy = self.folder / "kept"
            shutil.copytree(self.run, copy, dirs_exist_ok=True)
            subprocess.run(["umount", str(self.disk)], check=True, timeout=20)
            self.run = copy

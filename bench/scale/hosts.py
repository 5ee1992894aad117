#!/usr/bin/env python3
"""`probe_sync` on up to 100 namespace hosts, over MPI and over TCP; one host killed and one stopped.

    sudo python3 bench/scale/hosts.py --out FOLDER [--hosts 16,64,100] [--rounds 20] [--from target/release]

Hosts are network namespaces on a switch (`bench/hosts/hosts.sh`; needs root), one rank each, with virtual clocks of known error. For every number of hosts:

    mpi          mpirun -n N probe_sync run
    tcp          RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT set, one process per host
    tcp, faults  the same, with one host killed and another stopped (SIGSTOP): the run goes on, and names these two and nobody else
    mpi, stopped one host stopped: the run ends and names it (over MPI a rank that is lost ends the run)

FOLDER gets `hosts.md` and `hosts.json`, and each run's directory. The exit status is 1 when a run does not end as it must, 77 where this machine permits none.
It does not build the programs, or measure single messages (`run.py` does).
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTS = ROOT / "bench/hosts/hosts.sh"
NAME = "pshosts"
PORT = 29880
SKIPPED = 77


class Failed(Exception):
    """A run did not end as it must."""


def settings(options, out, rounds):
    """What every rank runs. One window more than rounds are wanted: the first begins while ranks still join."""
    # An earlier run's files would tell of rounds that this one has not solved.
    shutil.rmtree(out, ignore_errors=True)
    words = [str(options.program), "run", "--fixed", "--window", "1s", "--inject-skew", "7", "--round-timeout", "4s", "--tracer-clock", "none"]
    return [*words, "--duration", f"{rounds + 2}s", "--out", str(out)]


def figures(out, hosts):
    """What the report says, checked for what holds of every run."""
    path = out / "report.json"
    if not path.exists():
        raise Failed(f"{path} is missing")
    report = json.loads(path.read_text())
    rounds = [json.loads(line)["round_id"] for line in (out / "global_windows.jsonl").read_text().splitlines()]
    if rounds != list(range(rounds[0], rounds[0] + len(rounds))):
        raise Failed(f"{out}: rounds are missing: {rounds}")
    if report["truth"]["outside_hard_interval"]:
        raise Failed(f"{out}: {report['truth']['outside_hard_interval']} true offsets are outside of their bounds")
    if report["ranks"] != hosts:
        raise Failed(f"{out}: {report['ranks']} ranks instead of {hosts}")
    return report


def metrics_of(out):
    """`metrics.prom` without comments: value by name and labels."""
    values = {}
    for line in (out / "metrics.prom").read_text().splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            values[name] = float(value)
    return values


def root_of(out, hosts):
    """What rank 0 had and what messages weighed: megabytes, open files, bytes of a node's window and of the decision."""
    values = metrics_of(out)
    of = lambda name, labels="": values.get(f"probe_sync_{name}{labels}", float("nan"))
    mean = lambda message: of("round_message_bytes_sum", f'{{message="{message}"}}') / of("round_message_bytes_count", f'{{message="{message}"}}')
    return {"root_mb": of("process_resident_memory_bytes") / 1e6, "root_files": of("process_open_fds"), "window_bytes": mean("gather") / hosts, "decision_bytes": mean("decision")}


def row(report, hosts, what, load):
    """A line of the table."""
    median, largest = report["round_latency_us"]
    return {**root_of(pathlib.Path(report["out"]), hosts), "hosts": hosts, "run": what, "rounds": report["rounds"], "median_ms": median / 1e3, "largest_ms": largest / 1e3,
            "median_error_ns": report["truth"]["median_error_ns"], "worst_error_ns": report["truth"]["worst_error_ns"], "cpu_cores": report["cpu_cores"], "load": load}


def over_mpi(options, hosts):
    """mpirun, undisturbed."""
    out = options.out / f"mpi-{hosts}"
    done = subprocess.run([HOSTS, "mpirun", str(hosts), *settings(options, out, options.rounds)], env=environment(), capture_output=True, text=True, timeout=420)
    if done.returncode:
        raise Failed(f"mpirun on {hosts} hosts: exit status {done.returncode}: {done.stderr[-600:]}")
    return row(figures(out, hosts), hosts, "mpi", os.getloadavg()[0])


def start_tcp(options, hosts, out, rounds):
    """A process per host; rank 0 first."""
    out.parent.mkdir(parents=True, exist_ok=True)
    ranks, words = [], settings(options, out, rounds)
    for rank in range(hosts):
        place = {"RANK": str(rank), "WORLD_SIZE": str(hosts), "MASTER_ADDR": "10.78.0.2", "MASTER_PORT": str(PORT), "PROBE_SYNC_JOB": "hosts"}
        with (out.parent / f"{out.name}-rank{rank}.log").open("wb") as log:
            command = [HOSTS, "enter", f"{NAME}{rank + 1}", *words]
            ranks.append(subprocess.Popen(command, env=environment() | place, stdout=log, stderr=log))
    return ranks


def end(ranks):
    """Ends processes of ours that still run."""
    for process in ranks:
        if process.poll() is None:
            process.kill()
        process.wait()


def over_tcp(options, hosts):
    """Undisturbed."""
    out = options.out / f"tcp-{hosts}"
    ranks = start_tcp(options, hosts, out, options.rounds)
    try:
        statuses = [process.wait(options.rounds + 180) for process in ranks]
    except subprocess.TimeoutExpired:
        raise Failed(f"{out}: ranks still run") from None
    finally:
        end(ranks)
    if any(statuses):
        raise Failed(f"{out}: exit statuses by rank {statuses}")
    return row(figures(out, hosts), hosts, "tcp", os.getloadavg()[0])


def wait_for(condition, seconds, what):
    """Looks ten times a second."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise Failed(what)
        time.sleep(0.1)


def lines_of(path):
    """How many lines there are by now."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def tcp_with_faults(options, hosts):
    """One host is killed and one is stopped: the others go on, and name these two."""
    out = options.out / f"tcp-{hosts}-faults"
    killed, stopped = hosts // 2, hosts // 3
    ranks = start_tcp(options, hosts, out, options.rounds + 8)
    log, windows = out.parent / f"{out.name}-rank0.log", out / "global_windows.jsonl"
    named = lambda rank: f"rank {rank} on " in log.read_text(errors="replace")
    try:
        wait_for(lambda: lines_of(windows) >= 4, 180, f"{out}: no rounds")
        seconds = {}
        for rank, how in [(killed, signal.SIGKILL), (stopped, signal.SIGSTOP)]:
            ranks[rank].send_signal(how)
            begun = time.monotonic()
            wait_for(lambda rank=rank: named(rank), 60, f"{out}: nobody names rank {rank}")
            seconds[rank] = time.monotonic() - begun
        statuses = {rank: process.wait(options.rounds + 120) for rank, process in enumerate(ranks) if rank not in (killed, stopped)}
    except subprocess.TimeoutExpired:
        raise Failed(f"{out}: ranks still run") from None
    finally:
        end(ranks)
    if any(statuses.values()):
        raise Failed(f"{out}: exit statuses {dict((rank, status) for rank, status in statuses.items() if status)}")
    report = figures(out, hosts)
    absent = sorted({absence["rank"] for absence in report["absences"]})
    if absent != sorted((killed, stopped)):
        raise Failed(f"{out}: ranks {absent} were named instead of {sorted((killed, stopped))}")
    shown = f"tcp, rank {killed} killed (named after {seconds[killed]:.1f} s), rank {stopped} stopped (after {seconds[stopped]:.1f} s)"
    return row(report, hosts, shown, os.getloadavg()[0])


def processes_of(host):
    """Processes named probe_sync in a namespace of ours."""
    listed = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, check=False).stdout.split()
    name = lambda pid: pathlib.Path(f"/proc/{pid}/comm")
    return [int(pid) for pid in listed if name(pid).exists() and name(pid).read_text().strip() == "probe_sync"]


def mpi_with_one_stopped(options, hosts):
    """Over MPI a lost rank ends the run: with its name, and the finished rounds on disk."""
    out, stopped = options.out / f"mpi-{hosts}-stopped", hosts // 3
    log = options.out / f"{out.name}.log"
    with log.open("wb") as file:
        command = [HOSTS, "mpirun", str(hosts), *settings(options, out, options.rounds + 20)]
        job = subprocess.Popen(command, env=environment(), stdout=file, stderr=file)
    pids = []
    try:
        wait_for(lambda: lines_of(out / "global_windows.jsonl") >= 4, 240, f"{out}: no rounds; see {log}")
        pids = processes_of(f"{NAME}{stopped + 1}")
        [os.kill(pid, signal.SIGSTOP) for pid in pids]
        begun = time.monotonic()
        status = job.wait(120)
        seconds = time.monotonic() - begun
    except subprocess.TimeoutExpired:
        raise Failed(f"{out}: the job did not end") from None
    finally:
        for pid in pids:
            if pathlib.Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)
        end([job])
    names = sorted(int(rank) for rank in set(re.findall(r"no data from rank\(s\) (\d+) within", log.read_text(errors="replace"))))
    if status == 0 or names != [stopped]:
        raise Failed(f"{out}: exit status {status}, named {names} instead of {[stopped]}; see {log}")
    return row(figures(out, hosts), hosts, f"mpi, rank {stopped} stopped: the run ended after {seconds:.1f} s and named it", os.getloadavg()[0])


def environment():
    """For what runs on the hosts."""
    return os.environ | {"HOSTS_NAME": NAME, "HOSTS_TIMEOUT": "400"}


def markdown(rows):
    """The table."""
    text = ["| hosts | run | rounds | median ms from a window's end to its result | largest | median error ns | worst | cores of all ranks | rank 0: MB, open files | bytes of a window, of the decision | load |", "|---" * 11 + "|"]
    for row in rows:
        text.append(f"| {row['hosts']} | {row['run']} | {row['rounds']} | {row['median_ms']:.1f} | {row['largest_ms']:.1f} | {row['median_error_ns']:.0f} | {row['worst_error_ns']:.0f} | {row['cpu_cores']:.2f} "
                    f"| {row['root_mb']:.0f}, {row['root_files']:.0f} | {row['window_bytes']:.0f}, {row['decision_bytes']:.0f} | {row['load']:.0f} |")
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--hosts", type=lambda text: [int(word) for word in text.split(",")], default=[16, 64, 100])
    parser.add_argument("--rounds", type=int, default=20, help="of every undisturbed run")
    parser.add_argument("--from", dest="programs", type=pathlib.Path, default=ROOT / "target/release", help="folder of probe_sync, built with MPI")
    parser.add_argument("--only", default="", help="runs whose name contains this: mpi, tcp, tcp_with_faults, mpi_with_one_stopped")
    options = parser.parse_args()
    options.out, options.program = options.out.resolve(), options.programs.resolve() / "probe_sync"
    if not options.program.exists():
        sys.exit(f"{options.program} is missing: cargo build --release -p probe-sync-cli --features mpi")
    runs = [run for run in (over_mpi, over_tcp, tcp_with_faults, mpi_with_one_stopped) if options.only in run.__name__]
    if not shutil.which("mpirun"):
        print("skipped the runs over MPI: mpirun is not installed")
        runs = [run for run in runs if "mpi" not in run.__name__]
    options.out.mkdir(parents=True, exist_ok=True)
    up = subprocess.run([HOSTS, "up", str(max(options.hosts))], env=environment(), capture_output=True, text=True)
    if up.returncode:
        print(up.stderr.strip())
        sys.exit(SKIPPED if up.returncode == SKIPPED else 1)
    rows, failed = [], []
    try:
        for hosts in options.hosts:
            for run in runs:
                # Disturbed runs take long; the largest shows what smaller ones do.
                if run in (tcp_with_faults, mpi_with_one_stopped) and hosts != max(options.hosts):
                    continue
                try:
                    rows.append(run(options, hosts))
                    print(markdown(rows[-1:]).splitlines()[-1], flush=True)
                except (Failed, subprocess.TimeoutExpired) as error:
                    failed.append(str(error))
                    print(f"FAILED {error}", flush=True)
    finally:
        subprocess.run([HOSTS, "down"], env=environment(), check=False)
    (options.out / "hosts.md").write_text(markdown(rows) + "".join(f"\nFAILED {error}\n" for error in failed))
    (options.out / "hosts.json").write_text(json.dumps({"rows": rows, "failed": failed}, indent=1) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

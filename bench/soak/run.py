#!/usr/bin/env python3
"""A long run over TCP under random faults, judged: nothing leaks, no round is missed, nobody healthy is accused, the truth stays in its bounds.

    sudo python3 bench/soak/run.py --out FOLDER [--minutes 30] [--nodes 32] [--seed 1] [--program target/release/probe_sync]

Every node is a process on a namespace host of its own (`bench/hosts/hosts.sh`); clocks are virtual with known error, and one of them steps. From the seed one
rank after the other is hurt: killed and started again, stopped for a short or a long time, slowed down, losing packets both ways (nft), or cut off from the
network and joined again. Rank 0 is spared, since it judges; a rank is left alone for a while after it was hurt.

FOLDER/verdict.json says what was found, and FOLDER/observed.json what was done and seen; `judge.py FOLDER` judges it again. The exit status is 1 when anything is wrong, 77 where namespaces are not permitted.

It does not kill the master (the tests of the command do), or judge how accurate offsets are (their hard intervals are judged).
"""

import argparse
import json
import os
import pathlib
import random
import signal
import shutil
import subprocess
import sys
import time

from judge import verdict

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTS = ROOT / "bench/hosts/hosts.sh"
PORT = 29870
ROUND_TIMEOUT_S = 3.0
WINDOW_S = 1.0
# A rank is given up after the timeout and a window and a half; then everybody must have noticed.
NOTICED_S = ROUND_TIMEOUT_S + 1.5 * WINDOW_S
# How long nobody hurts a rank that has been hurt.
REST_S = 20.0
SAMPLE_S = 2.0
KINDS = ["kill", "long_stop", "short_stop", "slow", "loss", "cut"]


class Node:
    """One rank's process, its lives and what was done to it."""

    def __init__(self, rank, host, command, environment, log):
        self.rank, self.host = rank, host
        self.command, self.environment, self.log = command, environment, log
        self.process, self.begun = None, 0.0
        self.rested_at = 0.0
        self.fault = None
        self.restart_at = None
        self.samples = []
        self.exits = []

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, env=self.environment, stdout=log, stderr=log)
        self.begun = time.time()
        self.restart_at = None

    def signal(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)

    def in_host(self, *command):
        return subprocess.run(["ip", "netns", "exec", self.host, *command], capture_output=True, text=True, timeout=20)

    def sample(self):
        """Resident memory and open files, now."""
        status = pathlib.Path(f"/proc/{self.process.pid}")
        try:
            fields = dict(line.split(":", 1) for line in (status / "status").read_text().splitlines())
            kilobytes, files = int(fields["VmRSS"].split()[0]), len(list((status / "fd").iterdir()))
        except (OSError, KeyError):
            return
        self.samples.append((time.time(), self.begun, kilobytes, files))


def hurt(node, kind, now, draw):
    """Begins a fault; its record."""
    lasts = {"kill": draw.uniform(2, 6), "long_stop": NOTICED_S + draw.uniform(2, 5), "short_stop": draw.uniform(0.2, 1.5),
             "slow": draw.uniform(4, 8), "loss": draw.uniform(5, 10), "cut": draw.uniform(1, 12)}[kind]
    fault = {"rank": node.rank, "kind": kind, "from": now, "until": now + lasts}
    if kind == "kill":
        node.signal(signal.SIGKILL)
        node.restart_at = now + lasts
    elif kind in ("long_stop", "short_stop"):
        node.signal(signal.SIGSTOP)
    elif kind == "loss":
        fault["percent"] = draw.choice([5, 20, 50])
        drop = f"meta l4proto udp numgen random mod 100 < {fault['percent']} drop"
        rules = "table inet soak {\n" + "".join(f"chain {way} {{ type filter hook {way} priority 0; {drop}; }}\n" for way in ("input", "output")) + "}"
        done = subprocess.run(["ip", "netns", "exec", node.host, "nft", "-f", "-"], input=rules, capture_output=True, text=True, timeout=20)
        if done.returncode:
            sys.exit(f"nft on {node.host}: {done.stderr.strip()}")
    elif kind == "cut":
        node.in_host("ip", "link", "set", "eth0", "down")
    node.fault = fault
    return fault


def continue_fault(node, now):
    """What a fault does while it lasts, and how it ends."""
    fault = node.fault
    if fault["kind"] == "slow" and now < fault["until"]:
        # Four fifths of the time it does not run.
        node.signal(signal.SIGSTOP)
        time.sleep(0.2)
        node.signal(signal.SIGCONT)
        return
    if now < fault["until"]:
        return
    if fault["kind"] in ("long_stop", "short_stop"):
        node.signal(signal.SIGCONT)
    elif fault["kind"] == "loss":
        node.in_host("nft", "delete", "table", "inet", "soak")
    elif fault["kind"] == "cut":
        node.in_host("ip", "link", "set", "eth0", "up")
    fault["ended"] = now
    node.fault, node.rested_at = None, now + REST_S


def wait_for_rounds(directory, count, seconds):
    """Until the run has solved so many rounds; false when it does not."""
    end = time.time() + seconds
    while time.time() < end:
        try:
            if (directory / "global_windows.jsonl").read_bytes().count(b"\n") >= count:
                return True
        except OSError:
            pass
        time.sleep(0.2)
    return False


def soak(nodes, seconds, draw, kinds):
    """Hurts the nodes for so long; the faults."""
    faults, end = [], time.time() + seconds
    next_fault, next_sample = time.time() + 2.0, 0.0
    while (now := time.time()) < end:
        for node in nodes:
            if node.process.poll() is not None and node.restart_at is None:
                node.exits.append({"at": now, "status": node.process.returncode})
                if node.rank == 0:
                    return faults
                node.restart_at = max(now + 1.0, node.fault["until"] + 0.5 if node.fault else 0.0)
            if node.fault:
                continue_fault(node, now)
            if node.restart_at is not None and now >= node.restart_at:
                node.start()
                node.rested_at = now + REST_S
        if now >= next_sample:
            next_sample = now + SAMPLE_S
            [node.sample() for node in nodes if node.process.poll() is None]
        # The last faults are over before the end.
        if now >= next_fault and now < end - 30.0:
            rested = [node for node in nodes[1:] if not node.fault and node.process.poll() is None and now >= node.rested_at]
            if rested:
                faults.append(hurt(draw.choice(rested), draw.choice(kinds), now, draw))
            next_fault = now + draw.uniform(1.0, 6.0)
        time.sleep(0.1)
    return faults


def command(options, run):
    """What every rank runs."""
    step = f"{options.nodes // 2}@{min(60, int(options.minutes * 30))}s:300us"
    return [str(options.program), "run", "--fixed", "--window", f"{int(WINDOW_S * 1000)}ms", "--round-timeout", f"{int(ROUND_TIMEOUT_S * 1000)}ms",
            "--inject-skew", str(options.seed), "--inject-step", step, "--successors", "0", "--tracer-clock", "none", "--out", str(run)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder for the run and the verdict")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "target/release/probe_sync")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS), help="faults to draw from, as in kill,cut")
    parser.add_argument("--hosts", default="pssoak", help="name of the namespace hosts, for several soaks at a time")
    options = parser.parse_args()
    options.out, options.program = options.out.resolve(), options.program.resolve()
    kinds = options.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        sys.exit(f"--kinds: {', '.join(sorted(unknown))}: not one of {', '.join(KINDS)}")
    if "loss" in kinds and not shutil.which("nft"):
        print("nft is not installed: no packets are lost on purpose", flush=True)
        kinds.remove("loss")
    options.out.mkdir(parents=True, exist_ok=True)
    run, hosts = options.out / "run", {"HOSTS_NAME": options.hosts}
    # An earlier run's files would tell of rounds that this one has not solved.
    shutil.rmtree(run, ignore_errors=True)
    up = subprocess.run([HOSTS, "up", str(options.nodes)], env=os.environ | hosts, capture_output=True, text=True)
    if up.returncode:
        print(up.stderr.strip(), file=sys.stderr)
        sys.exit(up.returncode)
    nodes = []
    try:
        for rank in range(options.nodes):
            place = hosts | {"RANK": str(rank), "WORLD_SIZE": str(options.nodes), "MASTER_ADDR": "10.78.0.2", "MASTER_PORT": str(PORT), "PROBE_SYNC_JOB": "soak"}
            host = f"{options.hosts}{rank + 1}"
            words = [str(HOSTS), "enter", host, *command(options, run)]
            log = options.out / f"rank{rank}.log"
            log.unlink(missing_ok=True)
            nodes.append(Node(rank, host, words, os.environ | place, log))
            nodes[-1].start()
        if not wait_for_rounds(run, 5, 120):
            sys.exit(f"no rounds within 120 s; see {options.out}/rank0.log")
        begun = time.time()
        load = os.getloadavg()[0]
        faults = soak(nodes, options.minutes * 60, random.Random(options.seed), kinds)
        # A rank under way back takes part in the end.
        time.sleep(2.0)
        nodes[0].signal(signal.SIGTERM)
        ended = [{"rank": node.rank, "status": wait(node)} for node in nodes]
    finally:
        for node in nodes:
            if node.process and node.process.poll() is None:
                node.process.kill()
                node.process.wait()
        subprocess.run([HOSTS, "down"], env=os.environ | hosts, check=False)
    observed = {"seed": options.seed, "seconds": round(time.time() - begun), "load": [load, os.getloadavg()[0]], "noticed_s": NOTICED_S, "faults": faults, "ended": ended,
                "nodes": [{"rank": node.rank, "exits": node.exits, "samples": node.samples} for node in nodes]}
    (options.out / "observed.json").write_text(json.dumps(observed) + "\n")
    found = verdict(options.out)
    (options.out / "verdict.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    sys.exit(0 if found["passed"] else 1)


def wait(node):
    """The exit status, of a process that ends soon; null where it had to be killed."""
    try:
        return node.process.wait(60)
    except subprocess.TimeoutExpired:
        return None


if __name__ == "__main__":
    main()

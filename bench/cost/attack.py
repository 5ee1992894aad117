#!/usr/bin/env python3
"""Forged probe packets beside a run on loopback: what they move, and what they cost.

    sudo python3 bench/cost/attack.py --program target/release/probe_sync [--seconds 20] [--rate 100000]

Starts `probe_sync run --local 4` with virtual clocks of known error, lets it settle, then sends forged packets of each kind in turn
from the addresses of the run's own nodes (raw sockets: needs root), so that nothing but the packet itself can tell that it is forged:

    garbage   80 random bytes
    header    right magic, version and run id, random stamps, no valid tag
    replay    packets of the run itself, captured a moment before
    jump      packets of the run itself with a sequence number far ahead

Prints per kind the rate, the processor time of the attacked processes above their own, and after the run what was counted by kind and
whether any offset left its bounds. Ends with status 1 when one did, or when the cost is above `--cost-max`.

It does not guess the key, or attack anything but the run that it started.
"""

import argparse
import json
import os
import pathlib
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time

PACKET_BYTES = 80
SETTLE_S = 8.0


def cpu_seconds(pids):
    """Processor time of these processes, user and system."""
    ticks = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def children(pid):
    """The processes that a run on this host consists of."""
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += children(int(child))
    return found


def captured(ports, seconds):
    """Packets of the run as they pass on loopback: source port, destination port, payload."""
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    tap.bind(("lo", 0))
    tap.settimeout(0.2)
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end and len(found) < 2000:
        try:
            frame = tap.recv(2048)
        except TimeoutError:
            continue
        header = 14 + 4 * (frame[14] & 15)
        if frame[23] != socket.IPPROTO_UDP or len(frame) < header + 8:
            continue
        source, destination, length = struct.unpack("!HHH", frame[header : header + 6])
        if source in ports and destination in ports and length == 8 + PACKET_BYTES:
            found.append((source, destination, frame[header + 8 : header + 8 + PACKET_BYTES]))
    return found


def forged(kind, samples, run_id, ports):
    """A thousand packets of one kind, with their UDP headers, to be sent over and over."""
    packets = []
    for _ in range(1000):
        source, destination, payload = random.choice(samples)
        if kind == "garbage":
            source, destination = random.sample(ports, 2)
            payload = random.randbytes(PACKET_BYTES)
        elif kind == "header":
            payload = payload[:32] + random.randbytes(PACKET_BYTES - 32)
        elif kind == "jump":
            sequence = struct.unpack("!I", payload[24:28])[0]
            ahead = random.choice([1 << 31, (1 << 31) - 1, 1 << 16, 1000])
            payload = payload[:24] + struct.pack("!I", (sequence + ahead) & 0xFFFFFFFF) + payload[28:]
        packets.append(struct.pack("!HHHH", source, destination, 8 + len(payload), 0) + payload)
    return packets


def flood(packets, rate, seconds):
    """Sends them at about this rate; packets per second reached."""
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
    target, sent, begun = ("127.0.0.1", 0), 0, time.monotonic()
    while (elapsed := time.monotonic() - begun) < seconds:
        due = min(int(elapsed * rate) - sent, 2000)
        for number in range(due):
            try:
                raw.sendto(packets[(sent + number) % len(packets)], target)
            except OSError:
                pass
        sent += max(due, 0)
        if due < 50:
            time.sleep(0.0005)
    return sent / (time.monotonic() - begun)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--rate", type=int, default=100_000, help="forged packets per second in all")
    parser.add_argument("--seconds", type=float, default=20.0, help="of all kinds together")
    parser.add_argument("--cost-max", type=float, default=0.15, help="share of a core that may be lost")
    options = parser.parse_args()
    out = pathlib.Path(tempfile.mkdtemp(prefix="probe_sync_attack_")) / "run"
    duration = int(SETTLE_S + options.seconds + 10)
    arguments = ["run", "--local", "4", "--duration", f"{duration}s", "--inject-skew", "7", "--json", "--out", str(out)]
    process = subprocess.Popen([options.program, *arguments], stdout=subprocess.PIPE)
    try:
        time.sleep(SETTLE_S)
        run = json.loads((out / "run.json").read_text())
        ports = [int(node["address"].rsplit(":", 1)[1]) for node in run["nodes"]]
        pids = children(process.pid)
        before, begun = cpu_seconds(pids), time.monotonic()
        samples = captured(ports, 2.0)
        own = (cpu_seconds(pids) - before) / (time.monotonic() - begun)
        if not samples:
            sys.exit("no packet of the run was seen on loopback")
        worst = 0.0
        print(f"{'kind':<10}{'packets/s':>12}{'cost, share of a core':>24}")
        for kind in ["garbage", "header", "replay", "jump"]:
            packets = forged(kind, samples, run["run_id"], ports)
            before, begun = cpu_seconds(pids), time.monotonic()
            rate = flood(packets, options.rate, options.seconds / 4)
            cost = (cpu_seconds(pids) - before) / (time.monotonic() - begun) - own
            worst = max(worst, cost)
            print(f"{kind:<10}{rate:>12.0f}{cost:>24.3f}")
        report = json.loads(process.communicate(timeout=duration + 60)[0])
    finally:
        if process.poll() is None:
            process.kill()
    counters, truth = report["counters"], report["truth"]
    print(f"the run alone: {own:.3f} of a core; counted by kind:")
    for name, count in sorted(counters.items()):
        if count and name.startswith(("packets_foreign", "packets_dup", "packets_too", "packets_out", "packets_dropped")):
            print(f"  {name} {count}")
    started, finished = counters["exchanges_started"], counters["exchanges_finished"]
    print(f"exchanges: {finished} of {started} finished; packets_late {counters['packets_late']}")
    outside = truth["outside_hard_interval"]
    print(f"truth: {truth['judged']} node-rounds judged, {outside} outside the hard interval; worst error {truth['worst_error_ns']:.0f} ns")
    sys.exit(1 if outside or worst > options.cost_max else 0)


if __name__ == "__main__":
    main()

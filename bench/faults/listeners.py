#!/usr/bin/env python3
"""What foreign clients of every listener cost a run: median round time with them and without, in turn.

    sudo python3 bench/faults/listeners.py --out FOLDER [--program target/release/probe_sync] [--seconds 60] [--count 500]

Starts 8 ranks over a TCP tree of two, each on a namespace host of its own, and on a ninth host the clients (`attacker.py`). The listeners are those that the kernel shows, not those
that this script knows. Blocks of 5 s go round: none, then each listener; every listener has so many seconds in all. A round's time is from a node's end of its window to its decision, the mean of
the nodes; given are medians over rounds, and the median of the ratios of each block to the block without clients of the same turn. Every rank must end well, and none may be named.
FOLDER gets `listeners.md` and `listeners.json`. The exit status is 1 when a round takes more than a tenth longer, a rank was lost, or fewer than half of the clients had a connection (of the packets: were sent) in any block, so that
they show nothing; 77 where namespaces are not permitted. How many connections stand at a time is the listener's choice. Where nobody is heard before rank 0 is lost the kernel's queue is full
after the first block, and stays so.
It does not fill the machine's cores or its network, which delays anything; the clients have a niceness of 10.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTS = ROOT / "bench/hosts/hosts.sh"
ATTACKER = pathlib.Path(__file__).resolve().parent / "attacker.py"
NAME = "psattack"
RANKS = 8
PORT, METRICS_PORT, UDP_PORT = 29895, 29896, 29995
UDP_RATE = 5000
BLOCK_S, SETTLE_S = 5.0, 0.5
LIMIT = 1.10
LEAST_THROUGH = 0.5


def environment(rank=None):
    place = {} if rank is None else {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "10.78.0.2", "MASTER_PORT": str(PORT), "PROBE_SYNC_TCP_FANOUT": "2", "PROBE_SYNC_JOB": "attack"}
    return os.environ | {"HOSTS_NAME": NAME} | place


def address(rank):
    return f"10.78.0.{rank + 2}"


def listeners(run, count):
    """What each attack is, by the name of its listener: the ports that the kernel shows in every host, the control socket, the probing sockets."""
    found = {}
    for rank in range(RANKS):
        shown = subprocess.run(["ip", "netns", "exec", f"{NAME}{rank + 1}", "ss", "-ltnH"], capture_output=True, text=True, check=True, timeout=20).stdout
        for port in sorted({int(line.split()[3].rsplit(":", 1)[1]) for line in shown.splitlines()}):
            what = {PORT: "rank 0's port (ranks and files)", METRICS_PORT: "metrics over HTTP"}.get(port, f"rank {rank}'s port {port} (children, or the way to the next master)")
            found[what] = ["tcp", address(rank), str(port), str(count)]
    sockets = [path for path in run.rglob("*") if path.is_socket()]
    for path in sockets:
        found[f"control socket {path.name}"] = ["unix", str(path), str(count)]
    found[f"probing sockets ({UDP_RATE} packets of garbage per s)"] = ["udp", str(UDP_RATE), *(f"{address(rank)}:{UDP_PORT}" for rank in range(RANKS))]
    return found


def chosen(found):
    """All listeners but those of ranks whose kind another has shown: inner ranks are alike."""
    kept = {}
    for name, words in found.items():
        kind = "port" if "(children" in name else name
        # Rank 1's are an inner rank's and a standby's.
        if kind != "port" or name.startswith("rank 1's"):
            kept[name] = words
    return kept


def attacked(words, seconds):
    """Runs the clients for so long; when that was, ns since 1970, and what came of it."""
    command = ["ip", "netns", "exec", f"{NAME}{RANKS + 1}", "python3", str(ATTACKER), *words] if words else None
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) if command else None
    try:
        time.sleep(SETTLE_S)
        begun = time.time_ns()
        time.sleep(seconds)
        if process and process.poll() is not None:
            sys.exit(f"the clients ended by themselves: {words}")
        ended = time.time_ns()
        if not process:
            return begun, ended, None
        process.terminate()
        return begun, ended, json.loads(process.communicate(timeout=20)[0])
    finally:
        if process:
            process.kill()
            process.wait()
            time.sleep(SETTLE_S)


def share_of(clients, count):
    """The part of the clients that had a connection, or of the packets that were sent."""
    return clients["reached"] / count if "reached" in clients else clients["sent"] / clients["wanted"]


def round_times(run):
    """When each round's window ended (ns since 1970), and the mean over the nodes of the time until the decision, s."""
    times = {}
    for path in sorted(run.glob("windows/node*.jsonl")):
        for line in path.read_text().splitlines():
            window = json.loads(line)
            decided = (window.get("punctuality") or {}).get("decision_at_ns")
            if decided and window["round_id"] > 0:
                # A window begins where the one before ended.
                times.setdefault(window["round_id"], []).append((window["window_start_ns"], (decided - window["window_start_ns"]) * 1e-9))
    return [(parts[0][0], statistics.fmean(seconds for _, seconds in parts)) for _, parts in sorted(times.items()) if len(parts) == RANKS]


def measured(options, run):
    """The blocks, in turns: (name, begin, end)."""
    found = chosen(listeners(run, options.count))
    print("listeners:", *found, sep="\n  ", flush=True)
    blocks = []
    for turn in range(max(1, round(options.seconds / BLOCK_S))):
        for name, words in [("none", None), *found.items()]:
            blocks.append((name, turn, *attacked(words, BLOCK_S)))
    return blocks


def rows_of(blocks, times, count):
    """A line per listener."""
    medians, names = {}, list(dict.fromkeys(block[0] for block in blocks))
    pooled = {name: [] for name in names}
    for name, turn, begin, end, _ in blocks:
        inside = [seconds for at, seconds in times if begin <= at <= end]
        if inside:
            medians[name, turn] = statistics.median(inside)
            pooled[name] += inside
    rows = []
    for name in names:
        ratios = [medians[name, turn] / medians["none", turn] for found, turn in medians if found == name and ("none", turn) in medians]
        rows.append({"listener": name, "rounds": len(pooled[name]), "median_us": statistics.median(pooled[name]) * 1e6, "of_medians": statistics.median(pooled[name]) / statistics.median(pooled["none"]),
                     "paired": statistics.median(ratios), "least": min(ratios), "most": max(ratios), **clients_of([block[4] for block in blocks if block[0] == name and block[4]], count)})
    return rows


def clients_of(blocks, count):
    """The part of the clients that came through, of the block in which most did, and how many connections stood."""
    standing = [clients["standing"] for clients in blocks if "standing" in clients]
    return {"through": max((share_of(clients, count) for clients in blocks), default=None), "standing": statistics.median(standing) if standing else None}


def shown(value, form):
    return "" if value is None else format(value, form)


def markdown(rows):
    lines = ["| foreign clients of | rounds | median µs | to none | paired, median (least, most) | clients with a connection (of packets: sent), most | connections standing |", "|---" * 7 + "|"]
    lines += [f"| {row['listener']} | {row['rounds']} | {row['median_us']:.0f} | {row['of_medians']:.3f} | {row['paired']:.3f} ({row['least']:.2f}, {row['most']:.2f}) | {shown(row['through'], '.0%')} | {shown(row['standing'], '.0f')} |" for row in rows]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "target/release/probe_sync")
    parser.add_argument("--seconds", type=float, default=60.0, help="of foreign clients for each listener")
    parser.add_argument("--count", type=int, default=500, help="foreign connections")
    options = parser.parse_args()
    options.out, options.program = options.out.resolve(), options.program.resolve()
    if not options.program.exists():
        sys.exit(f"{options.program} is missing: cargo build --release -p probe-sync-cli")
    options.out.mkdir(parents=True, exist_ok=True)
    run = options.out / "run"
    shutil.rmtree(run, ignore_errors=True)
    up = subprocess.run([HOSTS, "up", str(RANKS + 1)], env=environment(), capture_output=True, text=True)
    if up.returncode:
        print(up.stderr.strip())
        sys.exit(up.returncode)
    words = [str(options.program), "run", "--fixed", "--window", "250ms", "--tracer-clock", "none", "--port", str(UDP_PORT), "--metrics-listen", f"0.0.0.0:{METRICS_PORT}", "--json", "--out", str(run)]
    ranks = []
    try:
        for rank in range(RANKS):
            with (options.out / f"rank{rank}.log").open("wb") as log, (options.out / f"rank{rank}.out").open("wb") as out:
                ranks.append(subprocess.Popen([HOSTS, "enter", f"{NAME}{rank + 1}", *words], env=environment(rank), stdout=out, stderr=log))
        until = time.monotonic() + 60
        while not (run / "global_windows.jsonl").exists() or (run / "global_windows.jsonl").read_bytes().count(b"\n") < 8:
            if time.monotonic() > until:
                sys.exit(f"no rounds within 60 s; see {options.out}/rank0.log")
            time.sleep(0.1)
        blocks = measured(options, run)
        ranks[0].send_signal(signal.SIGTERM)
        statuses = [process.wait(60) for process in ranks]
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
            process.wait()
        subprocess.run([HOSTS, "down"], env=environment(), check=False)
    rows, report = rows_of(blocks, round_times(run), options.count), json.loads((run / "report.json").read_text())
    (options.out / "listeners.json").write_text(json.dumps({"rows": rows, "statuses": statuses, "absences": report["absences"], "blocks": blocks}, indent=1) + "\n")
    (options.out / "listeners.md").write_text(markdown(rows))
    print(markdown(rows), f"exit statuses {statuses}, absences {report['absences']}", sep="")
    few = [row["listener"] for row in rows if row["through"] is not None and row["through"] < LEAST_THROUGH]
    for name in few:
        print(f"{name}: fewer than half of the clients came through, so these blocks show nothing")
    sys.exit(1 if few or any(statuses) or report["absences"] or any(row["paired"] > LIMIT for row in rows) else 0)


if __name__ == "__main__":
    main()

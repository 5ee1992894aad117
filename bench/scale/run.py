#!/usr/bin/env python3
"""Rounds of 2 to 128 ranks on this host and of up to 100 namespace hosts: every backend and mode beside direct MPI calls, in the same minute.

    python3 bench/scale/run.py --out FOLDER [--short] [--ranks 2,8,64] [--hosts 16,64,100 | --hosts none] [--from target/release]

Each size is one `mpirun` of `probe-sync-mpi-tests bench`, which runs all candidates in turn in the same processes: rounds over MPI and TCP (star and tree), with a
master and timed, beside MPI_Gatherv + MPI_Bcast. Hosts are network namespaces (`bench/hosts/hosts.sh`; needs root), joined by a switch; MPI goes over TCP there.
A size that cannot run here is left out, with its reason.

FOLDER gets `rounds.md`, `rounds.csv`, `rounds.svg`, `rounds.json` (everything), `costs.toml` (what a message costs here; the simulation
`cargo bench -p probe-sync-sim --bench round_cost -- FOLDER/costs.toml` takes it).

It does not build the programs, or judge. Times are medians of rounds; ratios are medians over pairs of blocks that ran next to each other.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys

from shown import markdown, plot, table

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTS = ROOT / "bench/hosts/hosts.sh"
HOSTS_NAME = "psscale"
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}

C_ROUND = "MPI gatherv, known counts, + bcast (K)"
DEFAULT = "our default round"
STAR = "our TCP round, star"
STAR_TIMED = "our TCP timed round, star"
CANDIDATES = [C_ROUND, DEFAULT, "our timed round", STAR, "our TCP round, tree", STAR_TIMED, "our TCP timed round, tree"]

# What nodes say of ten edges, and of one node's estimate: docs/scale.md says where from.
WINDOW_BYTES = 1100
ESTIMATE_BYTES = 74
FAN_OUT = 8


def effort(ranks, short):
    """Blocks, rounds of each, rounds with ranks that arrive apart."""
    if short:
        return 3, 10, 3
    return (12, 100, 20) if ranks <= 16 else (6, 40, 10) if ranks <= 64 else (4, 15, 8)


def bench(program, ranks, short):
    """The command that measures one size."""
    blocks, rounds, skewed = effort(ranks, short)
    # "our default round" is part of no other name; "K" of none either.
    only = ",".join(["(K)", "our default", "our timed", "our TCP"])
    figures = {"--blocks": blocks, "--rounds": rounds, "--skewed-rounds": skewed, "--payload": WINDOW_BYTES}
    figures |= {"--decision": ESTIMATE_BYTES, "--fan-out": FAN_OUT, "--only": only}
    return [str(program), "bench", "--json", *(str(word) for pair in figures.items() for word in pair)]


def run(command, environment, seconds):
    """The JSON that it prints last, or why there is none."""
    try:
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=seconds)
    except FileNotFoundError:
        return None, f"{command[0]} is not installed"
    except subprocess.TimeoutExpired:
        return None, f"it took longer than {seconds} s"
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0 and lines:
        return json.loads(lines[-1]), None
    last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
    return None, f"exit status {done.returncode}: {last}"


def on_one_host(program, sizes, short):
    """Measured sizes, and those left out with their reasons."""
    for ranks in sizes:
        command = ["mpirun", "--timeout", "300", "-n", str(ranks), *bench(program, ranks, short)]
        yield ranks, *run(command, MPI, 330)


def on_hosts(program, sizes, short):
    """The same, on namespace hosts."""
    environment = MPI | {"HOSTS_NAME": HOSTS_NAME, "HOSTS_TIMEOUT": "400"}
    if not sizes:
        return
    missing = "mpirun is not installed" if not shutil.which("mpirun") else "namespaces need root" if os.geteuid() else None
    up = None if missing else subprocess.run([HOSTS, "up", str(max(sizes))], env=os.environ | environment, capture_output=True, text=True)
    if up is None or up.returncode:
        for hosts in sizes:
            yield hosts, None, missing or up.stderr.strip()
        return
    try:
        for hosts in sizes:
            yield hosts, *run([HOSTS, "mpirun", str(hosts), *bench(program, hosts, short)], environment, 450)
    finally:
        subprocess.run([HOSTS, "down"], env=os.environ | environment, check=False)


def rows(where, size, load, answer):
    """One row per candidate and variant."""
    for variant in answer["variants"]:
        ratios = {ratio["of"]: ratio["median"] for ratio in variant["ratios"] if ratio["to"] == C_ROUND}
        for candidate in variant["candidates"]:
            name = candidate["name"]
            yield {
                "where": where,
                "size": size,
                "variant": "apart" if variant["variant"] == "Skewed" else "back to back",
                "candidate": name,
                "median_us": candidate["median_us"],
                "ratio_to_c": 1.0 if name == C_ROUND else ratios.get(name),
                "cpu_us": candidate["cpu_us"],
                "root_cpu_us": candidate["root_cpu_us"],
                "load": load,
            }


def of(found, where, size, candidate, variant="back to back"):
    """One row's figures, or none."""
    wanted = (where, size, candidate, variant)
    return next((row for row in found if (row["where"], row["size"], row["candidate"], row["variant"]) == wanted), None)


def message_costs(found, where, size, master, timed):
    """What a message costs its ends: the root's share of processor time, and the others'."""
    row, all_windows = of(found, where, size, master), of(found, where, size, timed)
    if row is None:
        return None
    messages = 2 * (size - 1)
    kibibyte = 0.0
    if all_windows:
        more = (size - 1) * size * (WINDOW_BYTES + 8 - ESTIMATE_BYTES) / 1024
        kibibyte = max(all_windows["cpu_us"] - row["cpu_us"], 0.0) / (2 * more)
    both = lambda bytes_each: kibibyte * bytes_each / 1024
    # On average a message is half a window and half a decision.
    size_of = (WINDOW_BYTES + ESTIMATE_BYTES * size) / 2
    many = max(row["root_cpu_us"] / messages - both(size_of), 0.1)
    alone = max((row["cpu_us"] - row["root_cpu_us"]) / messages - both(size_of), 0.1)
    return {"many_us": many, "alone_us": alone, "kibibyte_us": kibibyte}


def costs(found, machine):
    """The text of costs.toml; none where too little was measured."""
    sizes = sorted({row["size"] for row in found if row["where"] == "one host"})
    hosts = sorted({row["size"] for row in found if row["where"] == "hosts"})
    if not sizes:
        return None
    calibrating = max((size for size in sizes if size <= 64), default=sizes[-1])
    lines = ["# What messages cost on this machine, µs of processor time: written by bench/scale/run.py, read by the bench round_cost of probe-sync-sim.",
             f'machine = "{machine}; costs from {calibrating} ranks on one host and {hosts[0] if hosts else "no"} namespace hosts"', f"cores = {os.cpu_count()}", "",
             "[sizes]", f"window = {WINDOW_BYTES}", f"estimate = {ESTIMATE_BYTES}", "header = 80", "shared_estimates_max = 65536"]
    for name, master, timed in [("tcp", STAR, STAR_TIMED), ("mpi", DEFAULT, "our timed round")]:
        within = message_costs(found, "one host", calibrating, master, timed)
        between = message_costs(found, "hosts", hosts[0], master, timed) if hosts else within
        two = of(found, "one host", 2, master)
        wake = max((two["median_us"] - 4 * within["alone_us"]) / 2, 0.0) if two else 0.0
        lines += ["", f"[{name}]", f"wake_us = {wake:.2f}"]
        for place, figures in [("between_hosts", between or within), ("within_host", within)]:
            lines += [f"[{name}.{place}]", *(f"{key} = {value:.3f}" for key, value in figures.items())]
    for row in found:
        kinds = {DEFAULT: "leaders", STAR: "star", "our TCP round, tree": "tree", STAR_TIMED: "star", "our TCP timed round, tree": "tree"}
        if row["where"] == "one host" and row["variant"] == "back to back" and row["candidate"] in kinds and row["size"] >= 8:
            kind = kinds[row["candidate"]]
            lines += ["", "[[measured]]", f"ranks = {row['size']}", f'topology = "{kind}"', f"fan_out = {FAN_OUT if kind == 'tree' else 0}",
                      f"timed = {str('timed' in row['candidate']).lower()}", f"window = {WINDOW_BYTES}", f"estimate = {ESTIMATE_BYTES}",
                      f"us = {row['median_us']:.1f}"]
    return "\n".join(lines) + "\n"


def numbers(text):
    """Sizes from the command line."""
    return [] if text == "none" else [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder for the results")
    parser.add_argument("--short", action="store_true", help="few rounds of few sizes, to see that it works")
    parser.add_argument("--ranks", type=numbers, help="ranks on this host, as in 2,8,64")
    parser.add_argument("--hosts", type=numbers, help="namespace hosts, as in 16,64,100, or none")
    parser.add_argument("--from", dest="programs", type=pathlib.Path, default=ROOT / "target/release", help="folder of probe-sync-mpi-tests")
    options = parser.parse_args()
    ranks = options.ranks if options.ranks is not None else [2, 8] if options.short else [2, 4, 8, 16, 32, 64, 128]
    hosts = options.hosts if options.hosts is not None else [4] if options.short else [16, 64, 100]
    program = options.programs.resolve() / "probe-sync-mpi-tests"
    if not program.exists():
        sys.exit(f"{program} is missing: cargo build --release -p probe-sync-mpi-tests")
    options.out.mkdir(parents=True, exist_ok=True)
    found, skipped = [], []
    for where, runs in [("one host", on_one_host(program, ranks, options.short)), ("hosts", on_hosts(program, hosts, options.short))]:
        for size, answer, why in runs:
            load = os.getloadavg()[0]
            if answer is None:
                skipped.append(f"{where}, {size}: {why}")
                print("skipped", skipped[-1], flush=True)
                continue
            found += rows(where, size, load, answer)
            print(table([row for row in found if (row["where"], row["size"]) == (where, size)]), flush=True)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release().split('-')[0]}"
    (options.out / "rounds.json").write_text(json.dumps({"machine": machine, "rounds": found, "skipped": skipped}, indent=1) + "\n")
    keys = ["where", "size", "variant", "candidate", "median_us", "ratio_to_c", "cpu_us", "root_cpu_us", "load"]
    lines = [",".join(keys), *(",".join(f'"{row[key]}"' if key == "candidate" else str(row[key]) for key in keys) for row in found)]
    (options.out / "rounds.csv").write_text("\n".join(lines) + "\n")
    (options.out / "rounds.md").write_text(markdown(found, skipped, machine))
    (options.out / "rounds.svg").write_text(plot(found, CANDIDATES))
    text = costs(found, machine)
    if text:
        (options.out / "costs.toml").write_text(text)
    print(f"files in {options.out}")
    if not found:
        sys.exit("nothing could be measured here")


if __name__ == "__main__":
    main()

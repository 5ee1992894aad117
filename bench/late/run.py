#!/usr/bin/env python3
"""Which rank is late while a program runs, under MPI or torchrun: how soon it is named and cleared, and whether another rank is.

    cargo xtask install --prefix PREFIX
    python3 bench/late/run.py PREFIX FOLDER [--runs 20] [--nobody MINUTES]
    python3 bench/late/run.py --torch PYTHON --package PACKAGE FOLDER [--runs 20] [--nobody MINUTES]

Four ranks of crates/capi/tests/c/late_job.c run under mpirun with the layer of MPI's profiling interface before them, or of
crates/python/tests/torch_late.py under torchrun, with a Python that has torch, and probe_sync's package in the folder PACKAGE. Rank 2 sleeps 10 ms in every
third step from 6 to 16 s of 31. Clocks are wrong by up to 50 ms (virtual ones, whose truth is known), so the times that ranks record would blame whichever clock is
furthest ahead. With --nobody no rank sleeps, for that long.

Prints a line per run: delay of the name, error of the lead, delay of the end, and who else was named. The exit status is 1 if a run misses what docs/live.md
promises: only rank 2, at most 10 s after the onset, the lead within 5 %, cleared at most 15 s after the end. With torch the ranks pause for 20 to 22 ms,
and the lead may differ by 20 %.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
JOB = HERE.parents[1] / "crates/capi/tests/c/late_job.c"
TORCH_JOB = HERE.parents[1] / "crates/python/tests/torch_late.py"
RANKS, FROM_S, UNTIL_S, END_S, SLEEP_NS = 4, 6, 16, 31, 10e6
NAMED_S, CLEARED_S, LEAD, TORCH_LEAD = 10, 15, 0.05, 0.2
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def compiled(prefix, folder):
    layer, job = folder / "libprobe_sync_pmpi.so", folder / "late_job"
    library = [f"-I{prefix}/include", f"-L{prefix}/lib", "-lprobe_sync", f"-Wl,-rpath,{prefix}/lib"]
    subprocess.run(["mpicc", "-shared", "-fPIC", prefix / "share/probe_sync/probe_sync_pmpi.c", "-o", layer, *library], check=True)
    subprocess.run(["mpicc", JOB, "-o", job], check=True)
    return layer, job


def job(programs, out, seed, *times):
    """Runs the job; returns when its first step began, ns, and the lines of late.jsonl."""
    layer, program = programs
    settings = {"PROBE_SYNC_OUT": out, "PROBE_SYNC_WINDOW": "500ms", "PROBE_SYNC_INJECT_SKEW": seed, "PROBE_SYNC_SKEW_OFFSET": "50ms"}
    environment = {**os.environ, **ENVIRONMENT, **{key: str(value) for key, value in settings.items()}}
    command = ["mpirun", "--timeout", int(times[0]) + 120, "-n", RANKS, "env", f"LD_PRELOAD={layer}", program, *times]
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True)
    if done.returncode != 0 or "sum 4" not in done.stdout:
        sys.exit(f"the job ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return int(done.stdout.split("from ")[1].split(",")[0]), names(out)


def torch_job(programs, out, seed, *times):
    """Runs the job under torchrun; returns the same as `job`."""
    python, package = programs
    end, *late = (str(time) for time in times)
    command = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-port", "29517", TORCH_JOB, out, *late, end]
    environment = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1", "LATE_SEED": str(seed)}
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True, timeout=times[0] + 120)
    if done.returncode != 0:
        sys.exit(f"the job ended with status {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads((out / "rank0.json").read_text())["begun_ns"], names(out / "out")


def names(run):
    """The lines of a run's late.jsonl that name a rank."""
    told = run / "late.jsonl"
    lines = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
    return [line for line in lines if "late" in line]


def blamed_by_raw_times(out):
    """The rank whose clock is furthest ahead: by recorded times it comes last in every step."""
    clocks = json.loads((out / "truth.json").read_text())["nodes"]
    return max(clocks, key=lambda node: clocks[node].get("off_ns", 0.0))


def judged(start_ns, lines):
    """Delay of the name s, error of the lead, delay of the end s, others that were named."""
    others = sorted({str(line["late"]["rank"]) for line in lines if line["late"]["rank"] != 2})
    ours = [line for line in lines if line["late"]["rank"] == 2]
    since_s = {event: [(line["at_ns"] - start_ns) / 1e9 for line in ours if line["event"] == event] for event in ("begun", "ended")}
    named = since_s["begun"][0] - FROM_S if since_s["begun"] else None
    cleared = since_s["ended"][-1] - UNTIL_S if since_s["ended"] else None
    lead = ours[-1]["late"]["lead_ns"] / SLEEP_NS - 1 if ours else None
    return named, lead, cleared, others


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefix", type=pathlib.Path, nargs="?")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--torch", metavar="PYTHON")
    parser.add_argument("--package", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--nobody", type=float, default=0, metavar="MINUTES")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.torch and options.package:
        programs, run, run_folder, lead_error = (options.torch, options.package.resolve()), torch_job, "out", TORCH_LEAD
    elif options.prefix and not options.torch:
        programs, run, run_folder, lead_error = compiled(options.prefix.resolve(), options.folder.resolve()), job, ".", LEAD
    else:
        parser.error("give PREFIX, or --torch and --package")
    missed, figures = 0, []
    for number in range(1, options.runs + 1):
        out = options.folder.resolve() / f"run{number}"
        out.mkdir(exist_ok=True)
        named, lead, cleared, others = judged(*run(programs, out, number, END_S, FROM_S, UNTIL_S))
        good = None not in (named, lead, cleared) and not others and 0 < named <= NAMED_S and abs(lead) <= lead_error and 0 < cleared <= CLEARED_S
        missed += not good
        told = "rank 2 was not named and cleared" if None in (named, lead, cleared) else f"named after {named:.1f} s, lead {lead:+.2%}, cleared after {cleared:.1f} s"
        print(f"run {number}: {told}; others: {', '.join(others) or 'none'}; recorded times blame rank {blamed_by_raw_times(out / run_folder)}", flush=True)
        figures += [(named, abs(lead), cleared)] if None not in (named, lead, cleared) else []
    if figures:
        named, lead, cleared = zip(*figures)
        print(f"median (worst) of {len(figures)}: named {statistics.median(named):.1f} ({max(named):.1f}) s, lead {statistics.median(lead):.2%} ({max(lead):.2%}),"
              f" cleared {statistics.median(cleared):.1f} ({max(cleared):.1f}) s; {missed} missed")  # fmt: skip
    if options.nobody > 0:
        seconds = options.nobody * 60
        (options.folder / "nobody").mkdir(exist_ok=True)
        _, lines = run(programs, options.folder.resolve() / "nobody", 1, seconds, seconds, seconds)
        print(f"nobody late for {options.nobody:g} minutes: {len(lines)} lines name a rank")
        missed += bool(lines)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()

